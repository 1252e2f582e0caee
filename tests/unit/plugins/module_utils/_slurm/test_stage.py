# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files of Slurm on a host: what is written, and which daemon has to take them up, with the files that Debian's Slurm 22.05.8 ran with."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import view_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused, Verdict
from ansible_collections.gpufleet.nvidia.plugins.module_utils._slurm.plan import (
    DesiredSlurm,
    SlurmState,
    changed_nodes,
    digest_of,
    plan,
    refuse_includes,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._slurm.stage import DESIRED, stage

DATA = Path(__file__).parents[2] / "plugin_utils/render/data/slurm"
FILES = {name: (DATA / name).read_text() for name in ("nodes.conf", "gres.conf", "task-prolog.sh")}
OURS = "/etc/slurm/gpufleet"
SITE = {
    "/etc/slurm/slurm.conf": f"ClusterName=hpc\ninclude {OURS}/nodes.conf\n",
    "/etc/slurm/gres.conf": f"Include {OURS}/gres.conf\n",
}


def desired(node="gpu01", **files):
    return DesiredSlurm(OURS, node, {**FILES, **files})


def applied(wanted, **more):
    """A host that has what is wanted, and whose daemon was started with it."""
    there = {name: digest_of(name, text, True) for name, text in wanted.files.items()}
    return SlurmState({**there, **more}, {wanted.service: wanted.digest, **there, **more})


def steps(state, wanted):
    return [(step.kind.key, step.target) for step in plan(state, wanted).steps]


def test_a_bare_host_gets_the_files_before_its_daemon_is_started_with_them():
    assert steps(SlurmState(), desired()) == [
        ("write_file", f"{OURS}/gres.conf"),
        ("write_file", f"{OURS}/nodes.conf"),
        ("write_file", f"{OURS}/task-prolog.sh"),
        ("restart_service", "slurmd"),
    ]


@pytest.mark.parametrize("node", ["gpu01", ""])
def test_a_host_that_has_them_has_nothing_to_do(node):
    assert steps(applied(desired(node)), desired(node)) == []


def test_a_run_that_was_cut_off_between_the_files_and_the_daemon_is_finished():
    there = applied(desired())
    assert steps(SlurmState(there.files), desired()) == [("restart_service", "slurmd")]


def test_what_the_files_say_of_another_node_restarts_slurmctld_and_leaves_slurmd_alone():
    more = FILES["nodes.conf"] + "NodeName=gpu77 Gres=gpu:nvidia_l4:1\n"
    assert steps(applied(desired()), desired(**{"nodes.conf": more})) == [("write_file", f"{OURS}/nodes.conf")]
    assert steps(applied(desired("")), desired("", **{"nodes.conf": more}))[-1] == ("restart_service", "slurmctld")


def test_nodes_that_are_written_as_one_range_now_are_not_changed():
    before = {"nodes.conf": "NodeName=a1 Gres=gpu:x:1\nNodeName=a2 Gres=gpu:x:1\nNodeName=a3 Gres=gpu:x:2\n"}
    after = {"nodes.conf": "NodeName=a[1-2] Gres=gpu:x:1\nNodeName=a3 Gres=gpu:x:3\nNodeName=a4 Gres=gpu:x:3\n"}
    assert changed_nodes(before, after) == ["a3"]


def test_another_set_of_resource_types_concerns_every_node():
    before = {"nodes.conf": "GresTypes=gpu\nNodeName=a[1-2] Gres=gpu:x:1\n"}
    after = {"nodes.conf": "GresTypes=gpu,nic\nNodeName=a[1-2] Gres=gpu:x:1\n"}
    assert changed_nodes(before, after) == ["a1", "a2"]


def test_a_file_that_a_person_wrote_is_written_and_its_daemon_restarted_with_it():
    """It may have been started with the other one."""
    there = applied(desired())
    edited = SlurmState({**there.files, "gres.conf": "edited"}, there.applied)
    assert steps(edited, desired()) == [("write_file", f"{OURS}/gres.conf"), ("restart_service", "slurmd")]


def test_a_prolog_that_is_no_program_is_written_again():
    there = applied(desired())
    broken = {**there.files, "task-prolog.sh": digest_of("task-prolog.sh", FILES["task-prolog.sh"], False)}
    assert steps(SlurmState(broken, there.applied), desired()) == [("write_file", f"{OURS}/task-prolog.sh")]


def test_a_file_that_is_no_longer_rendered_leaves():
    assert steps(applied(desired(), **{"cgroup.conf": "1"}), desired()) == [("remove_file", f"{OURS}/cgroup.conf")]


@pytest.mark.parametrize(
    ("own", "text", "reason"),
    [
        ("slurm.conf", "ClusterName=hpc\n", "does not include /etc/slurm/gpufleet/nodes.conf"),
        ("gres.conf", None, "is not there"),
        ("cgroup.conf", "Include gpufleet/cgroup.conf\n", "which is no longer rendered"),
    ],
)
def test_a_site_whose_own_files_do_not_follow_is_refused_by_file(own, text, reason):
    site = {path: line for path, line in SITE.items() if not path.endswith(f"/{own}")}
    if text is not None:
        site[f"/etc/slurm/{own}"] = text
    refuse_includes(SITE, "/etc/slurm", desired())
    with pytest.raises(Refused) as refused:
        refuse_includes(site, "/etc/slurm", desired())
    assert refused.value.thing == f"/etc/slurm/{own}"
    assert reason in refused.value.reason


def options(wanted):
    return {"directory": wanted.directory, "node": wanted.node, "files": wanted.files}


def facts(state=None):
    return view_of({"slurm": {"files": dict(state.files), "applied": dict(state.applied)}} if state else {})


@pytest.mark.parametrize(
    ("read", "wanted", "verdict"),
    [
        (None, None, Verdict.AS_DESCRIBED),
        (None, desired(), Verdict.UNREAD),
        (applied(desired()), desired(), Verdict.AS_DESCRIBED),
        (applied(desired(), **{"gres.conf": "edited"}), desired(), Verdict.TO_CHANGE),
        (SlurmState(), "nothing is rendered yet", Verdict.TO_CHANGE),
    ],
)
def test_the_stage_sees_drift(read, wanted, verdict):
    given = options(wanted) if isinstance(wanted, DesiredSlurm) else wanted
    assert stage(facts(read), {DESIRED: given}).verdict is verdict


def test_the_plan_says_that_slurm_drains_the_whole_node():
    found = stage(facts(SlurmState()), {DESIRED: options(desired())})
    assert "Slurm drains the whole node gpu01 first" in found.steps[-1].why
