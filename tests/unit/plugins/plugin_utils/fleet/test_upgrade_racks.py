# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.waves import (
    CURRENT,
    DONE,
    FAILED,
    Budget,
    Node,
    RackHost,
    announcements,
    changed_racks,
    mixed_racks,
    split_racks,
)

OLD, NEW = "580.126.09", "580.178.04"
ALL = Budget(max_parallel=0, max_unavailable="100%")


def rack(size, name="rack_a", **changes):
    nodes = [Node(f"a{place}", rack=name) for place in range(size)]
    return [replace(node, **changes.get(node.name, {})) for node in nodes]


def test_a_rack_counts_where_one_of_its_hosts_gets_another_driver():
    hosts = {
        "a": RackHost("r1", NEW, NEW),
        "b": RackHost("r1", OLD, NEW),
        "c": RackHost("r2", NEW, NEW),
        "d": RackHost("", OLD, NEW),
        "e": RackHost(),
    }
    assert changed_racks(hosts) == {"a": "r1", "b": "r1"}


@pytest.mark.parametrize(
    ("described", "result"),
    [
        ({}, RackHost()),
        ({"mode": "unmanaged", "group": "r1", "cliques": ["c.1"], "driver": OLD}, RackHost("", OLD, OLD)),
        ({"mode": "host", "group": "r1", "cliques": ["c.1"], "driver": OLD, "version": NEW}, RackHost("r1", OLD, NEW)),
        ({"mode": "masked", "cliques": ["c.1", "c.1"], "driver": OLD}, RackHost("clique c.1", OLD, OLD)),
        ({"mode": "host", "cliques": [None, "", "c.2"], "driver": OLD}, RackHost("clique c.2", OLD, OLD)),
        ({"mode": "host", "cliques": [], "driver": OLD}, RackHost("", OLD, OLD)),
        # A newer one of the branch, by no version.
        ({"mode": "host", "group": "r1", "driver": OLD, "changes": True}, RackHost("r1", OLD, "")),
        ({"mode": "host", "group": "r1", "driver": None, "version": None, "changes": False}, RackHost("r1", "", "")),
    ],
)
def test_a_rack_is_named_by_its_group_or_else_by_its_fabric_and_only_where_imex_is_used(described, result):
    assert RackHost.of(described) == result


def test_the_pace_is_said_with_what_would_change_the_rack_in_one_go():
    (told,) = announcements(rack(18), Budget(), 5, {"rack_a": [f"a{place}" for place in range(18)]})
    assert told.startswith("rack_a: 18 of its 18 hosts get a new driver, one after another. Until the last has it")
    assert told.endswith(
        "To change them together: gpu_upgrade_max_parallel=18, gpu_upgrade_max_unavailable=18, --forks 18."
    )
    (told,) = announcements(rack(18), Budget(max_parallel=0, max_unavailable="18"), 5, {})
    assert "at most 5 at a time" in told and told.endswith("To change them together: --forks 18.")
    (told,) = announcements(rack(18), ALL, 18, {})
    assert "18 of its 18 hosts get a new driver, all at a time" in told and "To change" not in told


def test_hosts_of_the_rack_that_the_run_leaves_out_are_named():
    nodes = rack(3, a2={"skip": True})
    (told,) = announcements(nodes, ALL, 5, {"rack_a": ["a0", "a1", "a2", "a9"]})
    assert told.startswith("rack_a: 2 of its 4 hosts")
    assert told.endswith(
        "a2, a9: not part of this run. The rack stays out of its domain until they have that driver too."
    )


def test_a_rack_with_nothing_to_do_and_hosts_in_none_are_not_spoken_of():
    assert announcements([*rack(2, a0={"phase": DONE}, a1={"phase": CURRENT}), Node("b")], ALL, 5, {}) == []


def test_a_rack_that_a_failure_leaves_with_two_versions_and_the_ways_out():
    nodes = rack(5, a0={"phase": DONE}, a1={"phase": DONE}, a2={"phase": FAILED}, a4={"phase": CURRENT})
    assert mixed_racks(nodes) == {
        "rack_a": (
            "rack_a has two driver versions: a0, a1, a4 have the new one, a2 failed, a3 kept the old one. Its IMEX domain does not form, and no job "
            "can share memory across it, until all of its hosts have one version. Correct the reason and run upgrade again with gpu_upgrade_retry=true, "
            "or take the others back: ansible-playbook gpufleet.nvidia.rollback --limit a0,a1."
        )
    }


def test_a_rack_that_is_whole_again_or_that_nothing_was_changed_in_is_not_mixed():
    assert mixed_racks(rack(2, a0={"phase": DONE}, a1={"phase": CURRENT})) == {}
    assert mixed_racks(rack(2, a0={"phase": FAILED})) == {}, "rolled back, as the other one is"
    assert mixed_racks([Node("a", DONE), Node("b", FAILED)]) == {}


RACK_B = {"rack_b": ["b1", "b2", "b3"]}


@pytest.mark.parametrize(
    ("drivers", "rolled_back", "way"),
    [
        # The rest of the rack goes the same way.
        (
            {"b1": OLD, "b2": NEW, "b3": NEW},
            ["b1"],
            "rollback --limit b2,b3, or run upgrade with gpu_upgrade_retry=true",
        ),
        # A host that was not reached is named by nothing.
        ({"b1": OLD, "b2": NEW}, ["b1"], "rollback --limit b2, or run upgrade"),
        # One that failed in this run has its own error.
        ({"b1": OLD, "b2": NEW, "b3": OLD}, ["b1", "b2"], "one version. Run upgrade with gpu_upgrade_retry=true"),
    ],
)
def test_a_rollback_of_part_of_a_rack_says_what_makes_it_whole(drivers, rolled_back, way):
    (told,) = split_racks(RACK_B, drivers, rolled_back).values()
    assert told.startswith(f"rack_b has two driver versions: {OLD} on b1")
    assert way in told


@pytest.mark.parametrize("drivers", [{}, {"b1": OLD}, {"b1": OLD, "b2": OLD, "b3": OLD}, {"b1": OLD, "b2": ""}])
def test_a_rack_of_which_one_version_is_known_is_whole(drivers):
    assert split_racks(RACK_B, drivers, ["b1"]) == {}
