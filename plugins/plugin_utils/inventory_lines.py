# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What of a run has to be written into the inventory, so that the next C(site) does not take it back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.plain import plain
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.role_variables import HOST_ROLES, role_interface


def inventory_lines(extra: Mapping[str, Any]) -> list[str]:
    """Return the lines of YAML for variables of the host roles that were given with C(-e), which end with the run.

    :param extra: what C(load_extra_vars) returns.
    """
    names = {name for role in HOST_ROLES for name in role_interface(role).options}
    return [f"{name}: {json.dumps(plain(extra[name]))}" for name in sorted(names.intersection(extra))]
