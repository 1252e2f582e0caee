# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.host_facts import HostAction


class ActionModule(HostAction):
    """All of it is in L(HostAction)."""
