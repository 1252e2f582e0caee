# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kubelet's record of device plugins: which resources they registered, and which pod holds which device."""

from __future__ import annotations

#: Where the kubelet writes it (C(pkg/kubelet/cm/devicemanager/checkpoint)).
CHECKPOINT = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
