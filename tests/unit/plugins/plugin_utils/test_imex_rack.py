# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The racks of an inventory, and what is refused of them at the gate, before any host is touched."""

from __future__ import annotations

from collections import Counter

import pytest
from ansible.errors import AnsibleUndefinedVariable
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.imex import NODES
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions.site_gate import REFUSED, work_of
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.descriptions import describe
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.pools import Racks
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import seen

GROUPS = {"gpu_hosts": ["a", "b", "c"], "rack": ["b", "a"], "other": ["c"], "empty": []}
COMMON = {
    "nvidia_driver_imex": "host",
    "nvidia_driver_imex_group": "rack",
    "nvidia_driver_version": "580.178.04",
    "nvidia_driver_branch": "580",
    "nvidia_driver_imex_address": "",
}


def inventory(**changed):
    own = {"a": {"ansible_host": "10.0.0.10"}, "b": {"ansible_host": "login", "nvidia_driver_imex_address": "10.0.0.9"}}
    hosts = {name: {**COMMON, **variables, **changed.get(name, {})} for name, variables in {**own, "c": {}}.items()}
    return Racks({"groups": GROUPS, "hostvars": hosts}), hosts


def test_the_addresses_are_the_same_on_all_hosts_of_the_rack():
    racks, hosts = inventory()
    assert racks.nodes_of("a", hosts["a"]) == racks.nodes_of("b", hosts["b"]) == ["10.0.0.9", "10.0.0.10"]


def test_other_hosts_are_not_looked_at_where_imex_does_not_run():
    assert Racks({}).nodes_of("a", {**COMMON, "nvidia_driver_imex": "unmanaged"}) == []
    masked = {**COMMON, "nvidia_driver_imex": "masked", "nvidia_driver_imex_group": "", "nvidia_driver_version": ""}
    assert Racks({}).nodes_of("a", masked) == []


def test_hosts_of_a_named_rack_with_compute_domains_need_one_driver_and_no_addresses():
    masked = {"nvidia_driver_imex": "masked", "ansible_host": "login"}
    racks, hosts = inventory(a=masked, b=masked)
    assert racks.nodes_of("a", hosts["a"]) == []
    racks, hosts = inventory(a=masked, b={**masked, "nvidia_driver_version": "580.126.09"})
    with pytest.raises(Refused, match=r"rack has hosts of another driver than 580.178.04: b \(580.126.09\)"):
        racks.nodes_of("a", hosts["a"])


@pytest.mark.parametrize(
    ("changed", "thing", "reason"),
    [
        ({"a": {"nvidia_driver_imex_group": ""}}, "nvidia_driver_imex_group", "the rack of the host is not named"),
        ({"a": {"nvidia_driver_imex_group": "empty"}}, "nvidia_driver_imex_group", "'empty' has no host"),
        ({"a": {"nvidia_driver_imex_group": "nowhere"}}, "nvidia_driver_imex_group", "'nowhere' has no host"),
        ({"a": {"nvidia_driver_imex_group": "other"}}, "nvidia_driver_imex_group", "a is not in other, its own rack"),
        (
            {"a": {"nvidia_driver_version": ""}},
            "nvidia_driver_version",
            "branch 580 leaves the version to each of them",
        ),
        (
            {"b": {"nvidia_driver_version": "580.126.09"}},
            "nvidia_driver_version",
            "rack has hosts of another driver than 580.178.04: b (580.126.09)",
        ),
        ({"b": {"nvidia_driver_version": None}}, "nvidia_driver_version", "another driver than 580.178.04: b (none)"),
        ({"b": {"nvidia_driver_imex": "masked"}}, "nvidia_driver_imex", "another IMEX mode than host: b (masked)"),
        ({"b": {"nvidia_driver_imex_group": "other"}}, "nvidia_driver_imex_group", "another rack than rack: b (other)"),
        (
            {"b": {"nvidia_driver_imex_address": ""}},
            "nvidia_driver_imex_address",
            "'login' is not an IPv4 or IPv6 address (b)",
        ),
        (
            {"b": {"nvidia_driver_imex_address": "10.0.0.10"}},
            "nvidia_driver_imex_address",
            "two hosts of the rack have 10.0.0.10 (b, a)",
        ),
        ({"a": {"ansible_host": None}}, "nvidia_driver_imex_address", "'a' is not an IPv4 or IPv6 address"),
    ],
)
def test_what_is_refused_of_a_rack(changed, thing, reason):
    racks, hosts = inventory(**changed)
    with pytest.raises(Refused) as refused:
        racks.nodes_of("a", hosts["a"])
    assert refused.value.thing == thing and reason in refused.value.reason


def test_a_template_of_another_host_that_is_wrong_names_it():
    class Broken(dict):
        def get(self, name):
            raise AnsibleUndefinedVariable(f"no {name}")

    racks, hosts = inventory()
    hosts["b"] = Broken()
    racks = Racks({"groups": GROUPS, "hostvars": hosts})
    with pytest.raises(Refused, match="the variables of b cannot be read"):
        racks.nodes_of("a", hosts["a"])


def test_each_host_is_looked_at_once():
    class Counted(dict):
        seen = Counter()

        def __getitem__(self, name):
            self.seen[name] += 1
            return super().__getitem__(name)

    _racks, hosts = inventory()
    hostvars = Counted(hosts)
    racks = Racks({"groups": GROUPS, "hostvars": hostvars})
    for host in ("a", "b", "a"):
        racks.nodes_of(host, hosts[host])
    assert Counted.seen == {"a": 1, "b": 1}


def test_the_gate_refuses_a_host_of_a_wrong_rack_before_it_looks_at_it():
    racks, hosts = inventory(b={"nvidia_driver_version": "580.126.09"})
    description = describe("a", {**hosts["a"], "ansible_host": "10.0.0.10"}, {"rack": ["a", "b"]}, racks=racks)
    work = work_of("a", description, None)
    assert work.state == REFUSED and "another driver" in str(work.refusals[0])
    good, hosts = inventory()
    assert describe("a", hosts["a"], {"rack": ["a", "b"]}, racks=good).variables[NODES] == ["10.0.0.9", "10.0.0.10"]


def test_the_gate_refuses_the_part_of_a_rack_that_a_sliced_job_has():
    """The group has this host only, and the host's own file all of them."""
    _racks, hosts = inventory()
    part = Racks({"groups": {**GROUPS, "rack": ["a"]}, "hostvars": hosts})
    description = describe("a", hosts["a"], {"rack": ["a"]}, racks=part)
    card = {"address": "0", "device_id": "0x2941", "kind": "gpu", "architecture": "blackwell", "board": "gb200-186gb"}
    facts = {
        "schema": 1,
        "host": {"distribution": {"id": "debian", "version": "12", "family": "debian"}, "architecture": "x86_64"},
        "pci": [card],
        "driver": {},
        "unknown": {},
        "fabric": {"imex": {"active": True, "enabled": True, "nodes": ["10.0.0.9", "10.0.0.10"]}},
    }
    work = work_of("a", description, seen(facts))
    assert work.state == REFUSED
    (refusal,) = [text for text in map(str, work.refusals) if "would no longer reach 10.0.0.9" in text]
    assert refusal.startswith("nvidia_driver_imex_group: the inventory has fewer hosts of the rack (1)")
