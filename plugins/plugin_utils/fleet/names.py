# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The one name under which the collection writes labels and annotations of Kubernetes objects."""

from __future__ import annotations

LABEL_PREFIX = "gpufleet.github.io"
#: The label by which the GPU Operator's MIG manager chooses a layout, and the one in which it says how far it is.
MIG_CONFIG_LABEL = "nvidia.com/mig.config"
MIG_STATE_LABEL = "nvidia.com/mig.config.state"
