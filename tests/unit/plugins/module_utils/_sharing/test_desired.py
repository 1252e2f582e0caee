# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The variables nvidia_sharing_*: what they mean, and what excludes each other."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing import modes
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing.desired import read, refuse_on_mig
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing.modes import guarantee


def desired(**options):
    return {f"nvidia_sharing_{name}": value for name, value in options.items()}


def test_nothing_said_is_nothing_shared():
    assert read({}) == modes.Sharing()


@pytest.mark.parametrize(
    ("options", "thing"),
    [
        ({"mode": "mpps"}, "mode"),
        ({"mode": "mps"}, "mode"),
        ({"mode": "time_slicing"}, "mode"),
        ({"mode": "mps", "replicas": 4, "memory_slice": "4GiB"}, "replicas"),
        ({"mode": "none", "replicas": 4}, "replicas"),
        ({"mode": "none", "memory_slice": "4GiB"}, "memory_slice"),
        ({"mode": "mps", "replicas": 1}, "replicas"),
        ({"mode": "mps", "replicas": -2}, "replicas"),
        ({"mode": "mps", "replicas": "four"}, "replicas"),
        ({"mode": "mps", "replicas": True}, "replicas"),
        ({"mode": "mps", "replicas": 49}, "replicas"),
        ({"mode": "mps", "replicas": 4, "gpus_per_pod": 0}, "gpus_per_pod"),
        ({"mode": "mps", "replicas": 4, "time_slice": "long"}, "time_slice"),
        ({"mode": "time_slicing", "replicas": 4, "mps_manager": "host"}, "mps_manager"),
        ({"mode": "mps", "memory_slice": "4GiB", "backend": "hami"}, "backend"),
        ({"mode": "none", "backend": "hami"}, "backend"),
        ({"mode": "none", "backend": "vgpu"}, "backend"),
        ({"mode": "none", "gpus_per_pod": 2}, "gpus_per_pod"),
        ({"mode": "none", "rename": True}, "rename"),
        ({"mode": "none", "backend": "hami", "memory_slice": "4GiB", "rename": True}, "rename"),
        ({"mode": "mps", "replicas": 4, "mps_scope": "gpu"}, "mps_scope"),
        ({"mode": "mps", "replicas": 4, "mps_active_thread_percentage": 25}, "mps_active_thread_percentage"),
        ({"mode": "mps", "replicas": 4, "mps_priority": "below_normal"}, "mps_priority"),
        ({"mode": "mps", "replicas": 4, "mps_protocol": 3}, "mps_protocol"),
        ({"mode": "mps", "replicas": 4, "mps_multi_user": True}, "mps_multi_user"),
        ({"mode": "none", "mps_multi_user": "true"}, "mps_multi_user"),
        ({"mode": "mps", "replicas": 61, "mps_manager": "host"}, "replicas"),
        ({"mode": "time_slicing", "replicas": 4, "mps_limits": [{"gpu": 0, "memory": "8GiB"}]}, "mps_limits"),
    ],
)
def test_contradictions_name_the_variable(options, thing):
    with pytest.raises(Refused) as refusal:
        read(desired(**options))
    assert refusal.value.thing == f"nvidia_sharing_{thing}"
    assert refusal.value.remedy


@pytest.mark.parametrize("multi_user", [None, "", "auto", False, "false", "False"])
def test_that_the_plugins_daemon_serves_one_user_at_a_time_may_be_said(multi_user):
    assert read(desired(mode="mps", replicas=4, mps_multi_user=multi_user)).mode == "mps"
    assert read(desired(mps_multi_user=multi_user)).mode == "none"


@pytest.mark.parametrize(
    ("value", "multi_user"),
    [("auto", None), (None, None), ("", None), (True, True), ("true", True), (False, False), ("false", False)],
)
def test_multi_user_as_yaml_and_the_command_line_give_it(value, multi_user):
    found = read(desired(mode="mps", replicas=60, mps_manager="host", mps_multi_user=value))
    assert found.host.multi_user is multi_user


@pytest.mark.parametrize(
    ("options", "replicas"),
    [
        ({"mode": "none"}, 1),
        ({"mode": "time_slicing", "replicas": 6}, 6),
        ({"mode": "time_slicing", "replicas": "6"}, 6),
        ({"mode": "mps", "memory_slice": "4GiB"}, 11),
    ],
)
def test_replicas_on_a_board(options, replicas):
    assert read(desired(**options)).replicas_on(46068) == replicas


def test_a_slice_of_an_unknown_memory_is_refused():
    with pytest.raises(Refused, match="not known"):
        read(desired(mode="mps", memory_slice="4GiB")).replicas_on(None)


@pytest.mark.parametrize(
    ("options", "replicated"),
    [
        ({}, False),
        ({"mode": "time_slicing", "replicas": 2}, True),
        ({"mode": "mps", "replicas": 2}, True),
        ({"mode": "mps", "replicas": 2, "mps_manager": "host"}, True),
        ({"mode": "mps", "replicas": 2, "mps_manager": "host", "mps_scope": "gpu"}, False),
    ],
)
def test_what_the_device_plugin_is_told(options, replicated):
    assert read(desired(**options)).replicated is replicated


@pytest.mark.parametrize(
    ("options", "enforced"),
    [
        ({}, "hardware"),
        ({"mode": "time_slicing", "replicas": 2}, "nobody"),
        ({"mode": "mps", "replicas": 2}, "MPS server"),
        ({"mode": "mps", "replicas": 2, "mps_manager": "host", "mps_scope": "gpu"}, "MPS server of the host"),
        ({"memory_slice": "4GiB", "backend": "hami"}, "libvgpu"),
        ({"memory_slice": "4GiB", "backend": "dra"}, "nobody"),
    ],
)
def test_guarantees(options, enforced):
    holds = guarantee(read(desired(**options)))
    assert holds.enforced_by.startswith(enforced)
    assert set(holds.as_dict()) == {"counted_by", "enforced_by", "visible_in_nvidia_smi", "limit"}


def test_that_the_plugins_daemon_serves_one_user_at_a_time_is_a_limit_of_its_guarantee():
    plugin, host = (guarantee(read(desired(mode="mps", replicas=2, mps_manager=who))) for who in modes.MPS_MANAGERS)
    assert "one user ID at a time" in plugin.limit
    assert "user" not in host.limit


def test_mps_of_the_device_plugin_and_mig_exclude_each_other():
    sharing = read(desired(mode="mps", replicas=2))
    for strategy in ("single", "mixed"):
        with pytest.raises(Refused, match="MIG"):
            refuse_on_mig(sharing, strategy)
    refuse_on_mig(sharing, "none")
    refuse_on_mig(read(desired(mode="mps", replicas=2, mps_manager="host")), "mixed")
    refuse_on_mig(read(desired(mode="time_slicing", replicas=2)), "mixed")


def replicas(value, mode="time_slicing", **more):
    return read({"nvidia_sharing_mode": mode, "nvidia_sharing_replicas": value, **more})


@pytest.mark.parametrize("key", ["1g.10gb+me", "1g.10gb.me", "mig-1g.10gb.me", "nvidia.com/mig-1g.10gb.me"])
def test_replicas_by_resource(key):
    found = replicas({"nvidia.com/gpu": "4", key: 2})
    assert found.resource_replicas == (("nvidia.com/gpu", 4), ("nvidia.com/mig-1g.10gb.me", 2))
    assert (found.replicas_on(None), found.replicas_on(None, resource="nvidia.com/mig-1g.10gb.me")) == (4, 2)
    assert found.replicas_on(None, resource="nvidia.com/mig-3g.40gb") == 1
    assert found.counted


@pytest.mark.parametrize(
    ("value", "mode", "more", "match"),
    [
        ({"gpu": 1}, "time_slicing", {}, r"nvidia_sharing_replicas\.gpu: 1 replicas share nothing"),
        ({"gpu": "many"}, "time_slicing", {}, r"nvidia_sharing_replicas\.gpu"),
        ({"gpus": 2}, "time_slicing", {}, "neither gpu nor a MIG profile"),
        ({"gpu": 2, "nvidia.com/gpu": 3}, "time_slicing", {}, "named twice"),
        ({}, "time_slicing", {}, "the mapping is empty"),
        ([4], "time_slicing", {}, "is a list"),
        ({"gpu": 2}, "mps", {}, "one limit"),
        ({"gpu": 2}, "none", {}, "no effect"),
        ({"gpu": 2}, "time_slicing", {"nvidia_sharing_memory_slice": "4GiB"}, "both nvidia_sharing_replicas"),
    ],
)
def test_replicas_that_cannot_be_taken(value, mode, more, match):
    with pytest.raises(Refused, match=match):
        replicas(value, mode, **more)
