# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.stage_times import shown, stage_time, sum_seconds

FIRST = {"elapsed": 400.0, "seconds": {"download": 60.0, "build": 300.0, "packages": 20.0, "programs": 5.0, "own": 3.0}}


def test_what_is_not_waited_for_is_ours():
    time = stage_time("driver", FIRST)
    assert (time.elapsed, time.waits["ansible"], time.ours) == (400.0, 12.0, 3.0)
    assert stage_time("mig", {"elapsed": 7}).ours == 7.0
    assert stage_time("reboot", {"elapsed": 90, "rebooted": True}).ours == 0.0


@pytest.mark.parametrize(
    "answer", [None, "x", {}, {"skipped": True}, {"elapsed": 0}, {"elapsed": True}, {"elapsed": float("nan")}]
)
def test_a_stage_that_did_not_run_took_nothing(answer):
    assert stage_time("driver", answer) is None


@pytest.mark.parametrize("said", ["x", {}, {"build": 500.0}, {"own": 500.0}, {"build": 300.0, "own": 101.0}])
def test_a_host_cannot_say_that_it_waited_longer_than_it_took(said):
    assert stage_time("driver", {"elapsed": 400.0, "seconds": said}).ours == 400.0


@pytest.mark.parametrize("said", ["long", -1, float("inf"), float("nan"), True, None])
def test_what_is_no_time_is_none(said):
    assert stage_time("driver", {"elapsed": 400.0, "seconds": {"build": said, "own": 400.0}}).ours == 400.0


def test_the_driver_is_waited_for_as_programs_are():
    time = stage_time("mig", {"elapsed": 20.0, "seconds": {"nvml": 14.0, "own": 1.0}})
    assert (time.waits["nvml"], time.waits["ansible"], time.ours) == (14.0, 5.0, 1.0)


def test_a_task_that_calls_its_module_twice_took_the_seconds_of_both():
    assert sum_seconds({"own": 0.4}, {"own": 0.3, "nvml": 2.0}) == {"own": 0.7, "nvml": 2.0}
    assert sum_seconds(None, {"own": 0.3}) == sum_seconds({"own": "long"}, {"own": 0.3}) == {"own": 0.3}


def test_the_table_has_the_slowest_host_of_each_stage_and_the_share_of_all():
    hosts = {
        "a": {"facts": stage_time("facts", {"elapsed": 5.0}), "driver": stage_time("driver", FIRST)},
        "b": {"driver": stage_time("driver", {"elapsed": 95.0, "seconds": {"packages": 88.0, "own": 2.0}})},
    }
    assert shown(hosts) == (
        "Seconds of the slowest host of each stage:\n"
        "STAGE   HOSTS  SECONDS  DOWNLOAD  BUILD  PACKAGES  PROGRAMS  NVML  ANSIBLE  OURS\n"
        "facts   1      5        0         0      0         0         0     0        5\n"
        "driver  2      400      60        300    20        5         0     12       3\n"
        "Of 500 s on 2 hosts, 10 s (2 %) are this collection's own.\n"
    )
    assert "Of 0 s on 1 hosts" in shown({"a": {}})
