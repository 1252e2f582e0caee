# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What GPUs had before the first change comes back, on virtual GPUs."""

from __future__ import annotations

import subprocess

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig import apply_run, original
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.desired import variables_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.journal import Journal
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._records import GpuRecord, PlacedInstance
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._mig import test_apply_run as mig

make, virtual_nvml, run, one = mig.make, mig.virtual_nvml, mig.run, mig.one


def journal(host):
    return Journal(str(host.root / "journal"))


def back(host, **asked):
    asked = {"restore": False, **asked}
    return run(host, [], to_original=True, **asked)


def modes(host):
    return [gpu["mig"]["current"] for gpu in host.gpus()]


def test_whole_gpus_are_whole_again_and_nothing_is_kept(make, tmp_path):
    host = make(count=2)
    run(host, "all-balanced")
    run(host, one(**{"3g_40gb": 1}))
    assert [record.mig for record in original.read(journal(host))] == [False, False]
    planned = back(host, check=True)
    assert [step["target"] for step in planned["steps"] if step["kind"] == "remove_file"] == [
        str(tmp_path / "mig.json"),
        original.path_of(journal(host)),
    ]
    assert modes(host) == [True, True]
    assert back(host)["changed"]
    assert modes(host) == [False, False]
    assert apply_run.nothing_kept(journal(host)) and not back(host)["changed"]


def test_a_layout_that_was_there_comes_back_with_its_compute_instances(make):
    host = make()
    run(host, one(**{"3g_40gb": 1, "1c.2g_20gb": 2}), restore=False)
    before = host.layout()
    assert not original.read(journal(host)), "what is not recorded is not kept either"
    run(host, one(**{"1g_10gb": 7}))
    run(host, "all-disabled")
    back(host)
    assert host.layout() == before


def test_gpus_that_were_never_changed_are_left_alone(make):
    host = make(count=2)
    run(host, [{"devices": [1], "instances": {"3g.40gb": 1}}], restore=False)
    run(host, [{"devices": [0], "instances": {"1g.10gb": 2}}])
    assert len(original.read(journal(host))) == 1
    back(host)
    assert modes(host) == [False, True] and host.counts(1) == {"3g.40gb": 1}


def test_gpus_that_an_older_release_changed_are_whole_afterwards(make):
    host = make()
    run(host, "all-balanced")
    (host.root / original.NAME).unlink()
    back(host)
    assert modes(host) == [False]


def test_what_is_in_use_is_refused_and_nothing_is_forgotten(make):
    host = make()
    run(host, one(**{"3g_40gb": 1}))
    host.occupy("3g.40gb")
    with pytest.raises(Refused):
        back(host)
    assert not apply_run.nothing_kept(journal(host))


def test_a_gpu_that_is_left_to_its_users_is_brought_back_later(make, tmp_path):
    host = make(count=2)
    run(host, one(**{"3g_40gb": 1}))
    instance = host.gpus()[0]["gpu_instances"][0]
    with subprocess.Popen(["sleep", "600"]) as job:
        place = ("--gpu", "0", "--gi", str(instance["id"]), "--ci", "0", "--pid", str(job.pid))
        try:
            host.control("run", *place, "--memory", "10")
            back(host, disruption="idle_only")
            assert modes(host) == [True, False] and not (tmp_path / "mig.json").exists()
        finally:
            job.kill()
    back(host)
    assert modes(host) == [False, False] and apply_run.nothing_kept(journal(host))


def record(uuid, mig=True, *instances):
    return GpuRecord(uuid, f"0000:{uuid}", "NVIDIA H100 80GB HBM3", mig, instances)


def test_only_gpus_that_were_never_changed_are_kept():
    kept = (record("a", False),)
    assert original.merged(kept, [record("a"), record("b"), record("c"), record("t4", None)], [record("b")]) == (
        *kept,
        record("c"),
    )


def test_a_layout_names_only_gpus_that_are_there():
    kept = (record("a", False), record("b"), record("gone"), record("c", True, PlacedInstance("3g.40gb", 4, 4, ())))
    assert original.layout(kept, [record("a"), record("old"), record("lost")], ["a", "b", "c", "old"]) == [
        {"devices": ["a"], "enabled": False},
        {"devices": ["b"], "layout": "all-enabled"},
        {"devices": ["c"], "instances": {"3g.40gb": 1}},
        {"devices": ["old"], "enabled": False},
    ]


def test_it_takes_no_layout():
    with pytest.raises(Refused, match="original takes its layout from the host"):
        variables_of({**mig.PARAMETERS, "state": "original", "layout": "all-balanced"})
