# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions import site_times


def test_the_stages_that_ran_are_shown_and_the_others_are_not(call):
    driver = {"elapsed": 40.0, "seconds": {"build": 30.0, "own": 2.0}}
    hostvars = {
        "a": {
            "gpu_facts_host": {"elapsed": 2.0},
            "nvidia_driver_result": driver,
            "nvidia_mig_result": {"skipped": True},
        },
        "b": {},
    }
    result, display = call(site_times, {"hosts": ["a", "b"]}, {"hostvars": hostvars})
    lines = display.text.splitlines()
    assert [line.split()[0] for line in lines[3:-1]] == ["facts", "driver"]
    assert lines[-1] == "Of 42 s on 2 hosts, 4 s (10 %) are this collection's own."
    assert result["seconds"]["a"]["driver"]["ours"] == 2.0 and result["seconds"]["b"] == {}
    assert result["seconds"]["a"]["driver"]["ansible"] == 8.0
    assert result["changed"] is False


@pytest.mark.parametrize(
    ("kubelet", "mig", "named"),
    [
        ({"active": True}, {"changed": True}, True),
        ({"active": True}, {"changed": False}, False),
        ({"active": True}, {"skipped": True}, False),
        ({"active": True}, {"changed": True, "reboot_required": True}, False),
        ({"active": False}, {"changed": True}, False),
        (None, {"changed": True}, False),
    ],
)
def test_the_nodes_that_offer_former_instances_are_named_with_what_is_to_restart(call, bare_facts, kubelet, mig, named):
    read = {"elapsed": 1.0, "gpu": {**bare_facts, "kubelet": kubelet}}
    hostvars = {name: {"gpu_facts_host": read, "nvidia_mig_result": mig} for name in ("a", "b")}
    _result, display = call(site_times, {"hosts": ["a", "b"]}, {"hostvars": hostvars, "groups": {}})
    assert [text.startswith("a, b: the GPU instances changed") for text in display.warnings] == [True] * named
