# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The variables of every host for the generator, where a run overrides some in the inventory.

Variables given with C(-e) stand above the inventory for every host of it, those outside of C(--limit) among them. The tree describes the
whole cluster, so to such a host they must not apply: it has what the inventory says, or the overrides of an earlier run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from ansible.errors import AnsibleError
from ansible.utils.unsafe_proxy import wrap_var
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.host_facts import without_injected
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.plain import plain
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.fleet import OF_HOST, REGISTERED

#: Options of the cluster, which is one, whatever hosts a run has.
_OF_CLUSTER = "gpu_kubernetes_"
_ABSENT = object()

Variables = Mapping[str, Any]
Template = Callable[[Any, Variables], Any]


class HostVariables:
    """Answers which variables a host has.

    :param hostvars: Ansible's.
    :param extra: those given with C(-e).
    :param hosts: the hosts of this run; empty for all of the inventory.
    :param earlier: the overrides of a host in an earlier run.
    """

    def __init__(
        self, hostvars: Any, extra: Variables, hosts: Collection[str], earlier: Callable[[str], Variables]
    ) -> None:
        self._hostvars = without_injected(hostvars)
        self._extra = extra
        self._hosts = frozenset(hosts)
        self._earlier = earlier
        self._inventory = without_injected(hostvars, {})

    def of(self, host: str) -> Variables:
        """Return the variables of C(host), raw."""
        if not self._hosts or host in self._hosts:
            found: Variables = self._hostvars.raw_get(host)
            return found
        cluster = {name: value for name, value in self._extra.items() if name.startswith(_OF_CLUSTER)}
        return {**self._inventory.raw_get(host), **cluster, **wrap_var(dict(self._earlier(host)))}

    def overrides(self, host: str, template: Template) -> dict[str, Any]:
        """Return the variables of C(host) that differ in this run from the inventory, templates resolved."""
        if not self._extra or (self._hosts and host not in self._hosts):
            return {}
        now, inventory = self.of(host), self._inventory.raw_get(host)
        found = {}
        for name in sorted(name for name in now if name.startswith(OF_HOST) and name not in REGISTERED):
            value = _value(now, name, template)
            if value is not _ABSENT and value != _value(inventory, name, template):
                found[name] = value
        return found


def _value(variables: Variables, name: str, template: Template) -> Any:
    if name not in variables:
        return _ABSENT
    try:
        return plain(template(variables[name], variables))
    except (AnsibleError, TypeError):
        # Its template uses what only -e gives.
        return _ABSENT
