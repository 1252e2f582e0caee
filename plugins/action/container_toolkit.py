# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The controller's side of M(gpufleet.nvidia.container_toolkit): sends pynvml where the host has none."""

from __future__ import annotations

from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.nvml_action import NvmlAction


class ActionModule(NvmlAction):
    """All of it is in L(NvmlAction)."""
