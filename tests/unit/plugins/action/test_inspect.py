# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
from ansible_collections.gpufleet.nvidia.plugins.action import inspect

GROUPS = {"gpu_hosts": ["a", "b", "c"], "shared": ["a", "b", "c"]}
L40S = {
    "index": 0,
    "name": "NVIDIA L40S",
    "board": "l40s-48gb",
    "architecture": "ada",
    "memory_mib": 46068,
    "mig": {"supported": False, "current": False, "pending": False},
    "gpu_instances": [],
    "processes": [],
}
FACTS = {"schema": 1, "driver": {"loaded_version": "580.159.03"}, "gpus": [L40S, {**L40S, "index": 1}]}
SHARED = {"nvidia_sharing_mode": "mps", "nvidia_sharing_memory_slice": "4GiB"}


@pytest.fixture
def show(call):
    def run(arguments=None, play_hosts=("a",), **hosts):
        hostvars = {host: hosts.get(host, {}) for host in play_hosts}
        variables = {"groups": GROUPS, "hostvars": hostvars, "ansible_play_hosts": list(play_hosts)}
        return call(inspect, arguments or {}, variables)

    return run


def read(**variables):
    return {"gpu_facts_host": {"gpu": FACTS}, **variables}


def test_the_table_tells_what_is_divided_and_what_the_cluster_sees(show):
    result, shown = show({"note": "files are there"}, a=read(**SHARED))
    assert "11 MPS clients" in shown.text
    assert "nvidia.com/gpu" in shown.text and ": 22" in shown.text
    assert shown.lines[-1] == "files are there"
    assert result["capacity"]["a"]["pool"] == "shared"
    assert result["changed"] is False


def test_whole_gpus(show):
    result, shown = show(a=read())
    assert "whole" in shown.text
    assert result["capacity"]["a"]["resources"] == {"nvidia.com/gpu": 2}


def test_as_json(show):
    result, shown = show({"format": "json"}, a=read(**SHARED))
    told = json.loads(shown.text)
    assert (told["hosts"], told["capacity"]) == (result["hosts"], result["capacity"])


def test_hosts_that_were_not_read_are_left_out_and_wrong_ones_are_warned_of(show):
    result, shown = show(play_hosts=("a", "b", "c"), a=read(), b={}, c=read(nvidia_sharing_replicas="many"))
    assert list(result["hosts"]) == ["a", "c"]
    assert list(result["capacity"]) == ["a"]
    assert len(shown.warnings) == 1 and shown.warnings[0].startswith("c: nvidia_sharing_replicas: 'many'")
    assert shown.text.count("NVIDIA L40S") == 2
