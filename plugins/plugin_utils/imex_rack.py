# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The hosts of an NVL72 rack, by the inventory group that C(nvidia_driver_imex_group) names: what IMEX on each of them has to know of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleError
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.imex import (
    ADDRESS,
    HOST,
    MASKED,
    VARIABLE,
    in_order,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.text import shortened
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.plain import plain

_GROUP, _VERSION = f"{VARIABLE}_group", "nvidia_driver_version"


class Racks:
    """The racks of an inventory. Each host's variables are looked at once, whoever asks.

    :param task_vars: with C(groups), and C(hostvars) for the variables of the other hosts.
    """

    def __init__(self, task_vars: Mapping[str, Any]) -> None:
        self._groups: Mapping[str, Sequence[str]] = task_vars.get("groups") or {}
        self._hostvars = task_vars.get("hostvars") or {}
        self._members: dict[str, dict[str, str]] = {}

    def nodes_of(self, host: str, desired: Mapping[str, Any]) -> list[str]:
        """Return the addresses of the rack of C(host), in the order that they have on all of its hosts; none where IMEX does not run there.

        Hosts that leave IMEX to ComputeDomains have to agree too, where their rack is named: a domain forms only among equal drivers.

        :param desired: the variables of the host's roles, complete.
        :raises Refused: the rack is none, or its hosts do not agree.
        """
        group = str(desired[_GROUP] or "")
        mode = str(desired[VARIABLE])
        if mode != HOST and not (mode == MASKED and group):
            return []
        members = [str(name) for name in self._groups.get(group) or ()]
        if not group or not members:
            reason = f"the inventory group {group!r} has no host" if group else "the rack of the host is not named"
            raise Refused(_GROUP, reason, "Name the inventory group that has the hosts of this rack, and only those.")
        if host not in members:
            raise Refused(_GROUP, f"{host} is not in {group}, its own rack", f"Add it to {group}, or name its rack.")
        version = str(desired[_VERSION] or "")
        if not version:
            raise Refused(
                _VERSION,
                f"the hosts of a rack run one driver version, and branch {desired['nvidia_driver_branch']} leaves the version to each of them",
                f"Give the version, in the variables of {group}.",
            )
        rack = {name: self._host(name) for name in members}
        for name, what, mine in ((_VERSION, "driver", version), (VARIABLE, "IMEX mode", mode), (_GROUP, "rack", group)):
            others = {peer: found[name] for peer, found in rack.items() if found[name] != mine}
            if others:
                named = shortened([f"{peer} ({value or 'none'})" for peer, value in others.items()])
                raise Refused(
                    name, f"{group} has hosts of another {what} than {mine}: {named}", f"Set it for all of {group}."
                )
        if mode == MASKED:
            return []
        try:
            return list(in_order([found[ADDRESS] for found in rack.values()]))
        except Refused as refusal:
            whose = [peer for peer, found in rack.items() if found[ADDRESS] in refusal.reason]
            raise Refused(refusal.thing, f"{refusal.reason} ({shortened(whose)})", refusal.remedy) from None

    def _host(self, name: str) -> dict[str, str]:
        """Return what a rack has to know of one of its hosts."""
        if name not in self._members:
            variables = self._hostvars[name]
            try:
                found = {one: str(plain(variables.get(one)) or "") for one in (_VERSION, VARIABLE, _GROUP, ADDRESS)}
                found[ADDRESS] = found[ADDRESS] or str(plain(variables.get("ansible_host")) or name)
            except (AnsibleError, TypeError) as error:
                raise Refused(_GROUP, f"the variables of {name} cannot be read: {error}", "Correct them.") from error
            self._members[name] = found
        return self._members[name]
