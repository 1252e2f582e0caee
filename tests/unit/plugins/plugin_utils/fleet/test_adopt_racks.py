# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""IMEX of adopted hosts: the hosts of C(hand) with the boards of an NVL72 rack."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.imex import NODES
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.adopt import adopt
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.adopt_cluster import ServedConfiguration
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.adopt_inventory import (
    Found,
    RackMember,
    inventory,
    racks,
)
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.pools import Racks
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.role_variables import collect
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.stages import STAGES, plan_stages
from ansible_collections.gpufleet.nvidia.tests import recorded_facts
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import seen

DEFAULTS = collect({}, lambda value: value)
VERSION = "580.178.04"
RACK = ("10.0.0.1", "10.0.0.2")
RUNNING = {"version": VERSION, "active": True, "enabled": True, "masked": False, "nodes": list(RACK)}
MASKED = {"version": VERSION, "active": False, "enabled": False, "masked": True, "nodes": None}


def facts(imex, version=VERSION):
    recorded = json.dumps(recorded_facts.read(Path(__file__).parent / "adopt" / "hand.json"))
    found = json.loads(recorded.replace(VERSION, version))
    for card in (card for card in (*found["pci"], *found["gpus"]) if card.get("board")):
        card.update(board="gb200-186gb", architecture="blackwell")
    for card in found["pci"]:
        card["device_id"] = "0x2941"
    found["driver"]["packages"]["nvidia-imex"] = f"{version}-1"
    found["fabric"]["imex"] = imex
    return found


def adopted(name, read, rack):
    return adopt(name, seen(read), ServedConfiguration(), STAGES, DEFAULTS, rack=rack)


def left(read, one, nodes=()):
    plans = plan_stages(seen(read), {**collect(one.variables, lambda value: value), NODES: list(nodes)})
    return [name for name, plan in plans.items() if plan.needed or plan.refusals]


def test_a_rack_whose_hosts_run_imex_is_described_and_there_is_nothing_to_do():
    hosts = {f"n{place}": RackMember(seen(facts(RUNNING)), address) for place, address in enumerate(RACK, 1)}
    found = racks(hosts, taken=["rack_1"])
    assert set(found.values()) == {Found("host", "rack_2", RACK)}
    ones = [adopted(name, host.facts, found[name]) for name, host in hosts.items()]
    for one in ones:
        assert one.differences == () and one.rack == "rack_2"
        assert one.variables["nvidia_driver_imex"] == "host" and one.variables["nvidia_driver_version"] == VERSION
        assert left(hosts[one.host].facts, one, RACK) == []
        assert "driver" in left(hosts[one.host].facts, one, ("10.0.0.9",)), "with other nodes there is something to do"
    reached = {name: {"ansible_host": host.address} for name, host in hosts.items()}
    files = inventory(ones, {}, reached, {}, []).files()
    assert yaml.safe_load(files["hosts.yml"])["all"]["children"]["rack_2"] == {"hosts": {"n1": None, "n2": None}}
    assert files["group_vars/rack_2.yml"].endswith("nvidia_driver_imex_group: rack_2\n")
    variables = {name: {**ones[0].variables, **reached[name], "nvidia_driver_imex_group": "rack_2"} for name in hosts}
    written = Racks({"groups": {"rack_2": list(hosts)}, "hostvars": variables})
    desired = {**DEFAULTS, **variables["n1"]}
    assert tuple(written.nodes_of("n1", desired)) == RACK, "what is written is the rack that was found"


def test_equal_racks_are_one_pool():
    other = {**RUNNING, "nodes": ["10.0.1.1"]}
    hosts = {
        "a": RackMember(seen(facts({**RUNNING, "nodes": ["10.0.0.1"]})), "10.0.0.1"),
        "b": RackMember(seen(facts(other)), "10.0.1.1"),
    }
    found = racks(hosts)
    assert [found[name].group for name in "ab"] == ["rack_1", "rack_2"]
    assert len(inventory([adopted(name, hosts[name].facts, found[name]) for name in "ab"], {}, {}, {}, []).pools) == 1


def test_masked_for_compute_domains_is_described():
    read = facts(MASKED)
    found = racks({"a": RackMember(seen(read), "10.0.0.1")})["a"]
    one = adopted("a", read, found)
    assert one.variables["nvidia_driver_imex"] == "masked" and one.differences == () and one.rack == ""
    assert left(read, one) == []


@pytest.mark.parametrize("imex", [None, {**RUNNING, "active": False, "enabled": False}, {**MASKED, "version": None}])
def test_a_host_that_uses_no_imex_gets_no_variable_of_it(imex):
    read = facts(imex)
    one = adopted("a", read, racks({"a": RackMember(seen(read), "10.0.0.1")})["a"])
    assert "nvidia_driver_imex" not in one.variables and one.differences == () and left(read, one) == []


@pytest.mark.parametrize(
    ("hosts", "said"),
    [
        ({"a": (RUNNING, "10.0.0.1")}, "of which 10.0.0.2 is not adopted with the same file"),
        ({"a": (RUNNING, "10.0.0.1"), "b": (RUNNING, "login")}, "the address of b, login, is not among them"),
        ({"a": ({**RUNNING, "nodes": None}, "10.0.0.1")}, "has no node, or could not be read"),
        (
            {
                "a": ({**RUNNING, "nodes": [*RACK][::-1]}, "10.0.0.1"),
                "b": ({**RUNNING, "nodes": [*RACK][::-1]}, "10.0.0.2"),
            },
            "in another order",
        ),
        ({"a": ({**RUNNING, "nodes": ["n1"]}, "n1")}, "'n1' is not an IPv4 or IPv6 address"),
    ],
)
def test_a_rack_that_cannot_be_described_is_left_alone_and_named(hosts, said):
    read = {name: RackMember(seen(facts(imex)), address) for name, (imex, address) in hosts.items()}
    found = racks(read)["a"]
    one = adopted("a", read["a"].facts, found)
    assert len(one.differences) == 1 and said in one.differences[0]
    assert one.differences[0].startswith("IMEX: it is left alone (nvidia_driver_imex: unmanaged): ")
    assert "nvidia_driver_imex" not in one.variables and left(read["a"].facts, one) == []


def test_hosts_of_a_rack_with_different_drivers_are_no_rack():
    read = {
        "a": RackMember(seen(facts(RUNNING)), RACK[0]),
        "b": RackMember(seen(facts(RUNNING, "580.181.03")), RACK[1]),
    }
    assert "the hosts of the rack have different drivers: 580.178.04, 580.181.03" in racks(read)["a"].difference


def test_what_site_would_change_of_imex_is_said_and_left():
    read = facts({**RUNNING, "enabled": False, "nodes": ["10.0.0.1"]})
    found = racks({"a": RackMember(seen(read), "10.0.0.1")})["a"]
    one = adopted("a", read, found)
    assert one.differences == (
        "IMEX: it is left alone (nvidia_driver_imex: unmanaged). With host site would: enable nvidia-imex.service (it has to run after a reboot too).",
    )
    assert left(read, one) == [] and one.rack == ""
    assert adopted("a", facts({**RUNNING, "nodes": ["10.0.0.1"]}), replace(found)).rack == "rack_1"
