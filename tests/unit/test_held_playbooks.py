# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""No playbook that changes something ignores C(gpu_plan_apply): it holds to the plan, or says that it cannot, before it changes anything.

The hosts answer what C(gpu_info) returns; one that is changed, or asked for anything but files that are read, fails the run (C(tests/bench/canned)).
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils import playbook_variables
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions.check_variables import _NOT_HELD
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.plan_file import APPLYING

from ..warm_ansible import run as run_ansible
from .test_site_without_work import recap
from .test_terminal import ROOT, inventory

#: Playbooks that change no host and no cluster.
READING = {"adopt", "doctor", "inspect", "recommend", "render", "verify"}


def test_each_playbook_that_changes_something_holds_to_a_plan_or_refuses_one():
    assert {*playbook_variables.OWN} == {*APPLYING, *_NOT_HELD, *READING}
    assert not APPLYING.keys() & _NOT_HELD and not READING & {*APPLYING, *_NOT_HELD}


# Of migrate, which needs a cluster, tests/unit/roles/test_change_of_stack_role.py shows it.
@pytest.mark.slow
@pytest.mark.parametrize("playbook", sorted({*APPLYING, *_NOT_HELD} - {"plan", "migrate"}))
def test_a_plan_that_is_none_ends_the_run_before_anything_is_changed(playbook, tmp_path):
    described = yaml.safe_load(inventory("ready", tmp_path))
    for pool in described["gpu_hosts"]["children"].values():
        for variables in pool["hosts"].values():
            facts = json.loads(Path(variables["bench_canned_facts"]).read_text(encoding="utf-8"))
            # There is something to repair.
            facts["gpus"][0]["errors"] = {"row_remap_pending": True}
            Path(variables["bench_canned_facts"]).write_text(json.dumps(facts), encoding="utf-8")
    (tmp_path / "inventory.yml").write_text(yaml.safe_dump(described), encoding="utf-8")
    given = {
        "gpu_plan_apply": str(tmp_path / "none.json"),
        "gpu_kubernetes_output_directory": str(tmp_path / "tree"),
        "gpu_node_kubernetes": False,
        "bench_canned_empty_files": True,
    }
    program = sys.executable.replace("python", "ansible-playbook")
    done = run_ansible(
        [program, "-i", "inventory.yml", f"gpufleet.nvidia.{playbook}", "-e", json.dumps(given)],
        {
            **{name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")},
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "build" / "collections"),
            "ANSIBLE_CONNECTION_PLUGINS": str(ROOT / "tests" / "bench" / "canned"),
            "ANSIBLE_PIPELINING": "true",
            "ANSIBLE_NOCOLOR": "1",
        },
        tmp_path,
    )
    said = "there is no such file" if playbook in APPLYING else f"{playbook} cannot be held to a saved plan"
    assert done.returncode != 0 and said in done.stdout, f"{done.stdout}\n{done.stderr}"
    assert not any(host["changed"] for host in recap(done.stdout).values()), done.stdout
    assert not (tmp_path / "tree").exists()
