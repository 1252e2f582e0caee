# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the parameters of M(gpufleet.nvidia.mig) ask for, as the variables of the role: the one form in which planners take it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._plan import Refused
from .apply_clients import full_name


def variables_of(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is asked for. The layout of state C(original) is on the host.

    :raises Refused: the parameters contradict each other.
    """
    state, layout, strategy = parameters["state"], parameters["layout"], parameters["strategy"]
    if state == "original":
        if layout not in (None, "", []):
            raise Refused("state", "original takes its layout from the host", "Remove layout, or set state: present.")
        # The strategy with the fewest conditions: what was there served whoever used it then.
        layout, strategy = [], "mixed"
    elif state == "absent":
        if layout not in (None, "", [], "all-disabled"):
            raise Refused(
                "state", "absent switches MIG off and takes no layout", "Remove layout, or set state: present."
            )
        layout, strategy = "all-disabled", "none"
    elif layout is None:
        raise Refused("layout", "it is needed with state: present", "For example: all-balanced.")
    return {
        "nvidia_mig_layout": layout,
        "nvidia_mig_strategy": strategy,
        "nvidia_mig_restore": parameters["record"] and state != "original",
        "nvidia_mig_disruption": parameters["disruption"],
        "nvidia_mig_reset": parameters["reset"],
        "nvidia_mig_reboot": parameters["reboot"] == "allow",
        "nvidia_mig_busy_instances": parameters["busy_instances"],
        "nvidia_mig_allocations": parameters["allocations"],
        "nvidia_mig_restart_services": [full_name(service) for service in parameters["restart_services"]],
    }


def asked(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the layout and the strategy, for people who read a journal or a record."""
    return {"layout": variables["nvidia_mig_layout"], "strategy": variables["nvidia_mig_strategy"]}
