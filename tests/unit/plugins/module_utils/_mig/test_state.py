# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._boards.lookup import board
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import view_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu_facts import gpu_view
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.host_plan import states, toggle_needs_reset
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.model import DesiredGpu, DesiredInstance
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.nodes import plan_node
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.state import devices_of, node_gpus, profiles_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._schema import encode
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._mig.live import (
    BUSY,
    gpu,
    instance,
    of,
    offered,
    state,
)


def test_processes_make_their_instance_busy_and_no_other():
    found = gpu(instance("3g.40gb", 4, 4, 1, busy=True), instance("1g.10gb", 0, 1, 9))
    users = {one.profile: one.users for one in found.current}
    assert users == {"3g.40gb": ("python3 (PID 812)",), "1g.10gb": ()}


def test_the_stage_and_the_module_plan_from_one_form():
    live = gpu(instance("3g.40gb", 4, 4, 1, busy=True))
    document = {
        key: value for key, value in encode(live.facts).items() if key not in ("profiles", "device_id", "subsystem_id")
    }
    pci = [{"address": "0000:18:00.0", "device_id": "0x2330", "kind": "gpu"}]
    (told,) = node_gpus(view_of({"gpus": [document], "pci": pci}))
    assert replace(told, profiles=()) == replace(live, profiles=())
    names = [[(one.name, one.placements, one.profile_id) for one in seen.profiles] for seen in (told, live)]
    assert names[0] == names[1]


def test_the_caller_can_tell_of_pods():
    found = gpu(instance("3g.40gb", 4, 4, 1), instance("1g.10gb", 0, 1, 9), pods={"MIG-9-0"})
    assert [bool(one.users) for one in found.current] == [False, True]
    named = gpu(
        instance("3g.40gb", 4, 4, 1), instance("1g.10gb", 0, 1, 9), pods={"MIG-9-0"}, named={"MIG-1-0", "MIG-9-0"}
    )
    users = [one.users for one in named.current]
    assert users[0] == ("pod that nvidia_mig_busy_instances names",)
    assert users[1] == ("pod team/notebook", "pod that nvidia_mig_busy_instances names")


def test_unknown_processes_make_every_instance_busy():
    found = gpu(instance("3g.40gb", 4, 4, 1), instance("1g.10gb", 0, 1, 9), processes=None)
    assert all(one.users == ("unknown (NVML reports no processes)",) for one in found.current)


def test_a_process_on_no_known_instance_may_be_on_any():
    found = gpu(instance("3g.40gb", 4, 4, 1), processes=[BUSY])
    assert found.current[0].users == ("python3 (PID 812)",)


def test_processes_of_a_whole_gpu_count_while_mig_is_off():
    assert gpu(current=False, processes=[BUSY]).busy == ("python3 (PID 812)",)
    # What is on an instance keeps no GPU from being in MIG mode.
    on = gpu(instance("3g.40gb", 4, 4, 1, busy=True))
    assert plan_node([on], {0: DesiredGpu(True, (DesiredInstance("3g.40gb", (3,)), DesiredInstance("1g.10gb", (1,))))})


def offers(profiles, key="h100-80gb-sxm"):
    return profiles_of(gpu_view({"index": 0, "board": key, "profiles": list(profiles)}))


def test_places_come_from_the_table_while_the_driver_does_not_tell_them():
    profiles = offers(offered(places=False))
    assert {p.name: p.placements for p in profiles} == {p.name: p.placements for p in board("h100-80gb-sxm").profiles}
    assert all(profile.profile_id is not None for profile in profiles)


def test_a_driver_that_offers_nothing_is_replaced_by_the_table():
    assert offers((), "a100-40gb") == board("a100-40gb").profiles
    assert offers((), None) == ()


def test_an_unknown_board_has_what_the_driver_tells():
    profiles = offers(offered(places=False), None)
    assert all(profile.placements is None for profile in profiles)


def test_the_row_of_the_table_is_found_by_name_where_the_index_is_new():
    strange = [{**profile, "enum": 77, "starts": None, "size": None} for profile in offered()]
    assert all(profile.placements for profile in offers(strange))
    unknown = {**offered()[0], "enum": 78, "name": "5g.70gb", "starts": None, "size": None}
    assert offers([unknown])[0].placements is None


def test_the_wrong_counts_of_an_a30_are_the_tables():
    wrong = [{**profile, "max_instances": 1} for profile in offered("a30-24gb")]
    counts = {profile.name: profile.max_instances for profile in offers(wrong, "a30-24gb")}
    assert counts["1g.6gb"] == 4


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({}, None),
        ({"unknown": {"compute_mode": "no"}}, None),
        ({"unknown": {"mig": "Timeout"}}, "Timeout"),
        ({"unknown": {"gpu_instances": "Unknown Error"}}, "Unknown Error"),
        ({"lost": True, "unknown": {"handle": "GPU is lost"}}, "GPU is lost"),
        ({"lost": True}, "it is lost"),
    ],
)
def test_a_gpu_that_does_not_tell_its_instances_has_a_problem(values, problem):
    assert gpu(**values).problem == problem


@pytest.mark.parametrize(
    ("key", "needs"),
    [("a100-40gb", True), ("h100-80gb-sxm", False), ("b200-180gb", False)],
)
def test_which_modes_change_only_by_a_reset(key, needs):
    assert toggle_needs_reset(gpu(key=key).facts.architecture) is needs


def test_an_unknown_architecture_is_taken_to_need_a_reset():
    assert toggle_needs_reset("vera") and toggle_needs_reset(None)


def test_titles_and_uuids():
    found = gpu(instance("3g.40gb", 4, 4, 1))
    assert found.title == "GPU 0 (0000:18:00.0)"
    assert devices_of(found.facts) == ["GPU-0", "MIG-1-0"]
    assert of(state(pci_address=None)).title == "GPU 0"


def test_pids_of_a_gpu_and_a_compute_instance():
    found = gpu(instance("3g.40gb", 4, 4, 1, busy=True), instance("1g.10gb", 0, 1, 9))
    assert found.pids() == (812,)
    assert [found.pids(one, 0) for one in found.current] == [(812,), ()]
    assert found.pids(found.current[0], 1) == ()
    assert gpu(processes=None).pids() == ()


def test_the_state_for_people_leaves_out_gpus_without_mig():
    without = of(state("t4-16gb", index=1))
    parts = gpu(instance("3g.40gb", 4, 4, 1, ["2c.3g.40gb", "1c.3g.40gb"]), index=2)
    assert states([gpu(instance("3g.40gb", 4, 4, 1)), without, parts]) == {
        "GPU 0 (0000:18:00.0)": {"mig": True, "instances": ["3g.40gb at 4:4"]},
        "GPU 2 (0000:1a:00.0)": {"mig": True, "instances": ["3g.40gb at 4:4 [2, 1]"]},
    }
