# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where the chart is, and for which Kubernetes it is rendered."""

from __future__ import annotations

from pathlib import Path

CHART = Path(__file__).resolve().parents[2] / "charts" / "gpufleet-nvidia"
KUBERNETES = "1.37.2"
