# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The one name under which the collection writes labels and annotations of Kubernetes objects."""

from __future__ import annotations

LABEL_PREFIX = "gpufleet.github.io"
