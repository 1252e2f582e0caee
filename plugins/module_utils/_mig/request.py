# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the parameters of M(gpufleet.nvidia.mig) ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from .._plan import Refused
from .apply_clients import full_name
from .apply_machine import Policy


@dataclass(frozen=True)
class Request:
    """What the user asks for.

    :param layout: see C(layouts).
    :param record: whether the layout is recorded for the next boot.
    :param services: units that are stopped for a change of mode and restarted after any change.
    :param original: whether what the GPUs had before the collection changed them comes back, and is forgotten with what is recorded.
    """

    layout: Any
    strategy: str
    record: bool = True
    services: tuple[str, ...] = ()
    original: bool = False

    def as_dict(self) -> dict[str, Any]:
        return {"layout": self.layout, "strategy": self.strategy}

    def variables(self, policy: Policy) -> dict[str, Any]:
        """Return what is asked for as the variables of the role, which the planner takes."""
        return {
            "nvidia_mig_layout": self.layout,
            "nvidia_mig_strategy": self.strategy,
            "nvidia_mig_disruption": policy.disruption,
            "nvidia_mig_reboot": policy.reboot_allowed,
        }


def request_of(parameters: Mapping[str, Any]) -> Request:
    """Return the request that the module's parameters make.

    :raises Refused: the parameters contradict each other.
    """
    absent, original_layout = parameters["state"] == "absent", parameters["state"] == "original"
    if original_layout:
        if parameters["layout"] not in (None, "", []):
            raise Refused("state", "original takes its layout from the host", "Remove layout, or set state: present.")
        # The strategy with the fewest conditions: what was there served whoever used it then.
        services = tuple(full_name(service) for service in parameters["restart_services"])
        return Request([], "mixed", record=False, services=services, original=True)
    if absent and parameters["layout"] not in (None, "", [], "all-disabled"):
        raise Refused("state", "absent switches MIG off and takes no layout", "Remove layout, or set state: present.")
    if not absent and parameters["layout"] is None:
        raise Refused("layout", "it is needed with state: present", "For example: all-balanced.")
    request = Request(
        layout=parameters["layout"],
        strategy=parameters["strategy"],
        record=parameters["record"],
        services=tuple(full_name(service) for service in parameters["restart_services"]),
    )
    return replace(request, layout="all-disabled", strategy="none") if absent else request
