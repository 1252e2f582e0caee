# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The first run against hosts that do not answer, whose Python is too old, or whose inventory is wrong, as a person sees it."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
import yaml

from ...warm_ansible import run as run_ansible

# Each of them runs a whole playbook.
pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[3]
GONE = {"ansible_host": "127.0.0.1", "ansible_port": 1, "ansible_ssh_common_args": "-o ConnectTimeout=5"}
#: Stands for a Python that cannot even parse a module.
_PYTHON = """#!/bin/sh
case "$2" in *version_info*) echo {version}; exit 0;; esac
echo "  File AnsiballZ_gpu_info.py, line 3" >&2
echo "SyntaxError: future feature annotations is not defined" >&2
exit 1
"""


@pytest.fixture
def play(tmp_path):
    def run(playbook, *arguments, hosts=("a",), pool=None, **variables):
        described = {
            "vars": variables,
            "children": {"pool": {"hosts": {host: {} for host in hosts}, "vars": pool or {}}},
        }
        (tmp_path / "inventory.yml").write_text(yaml.safe_dump({"gpu_hosts": described}), encoding="utf-8")
        program = Path(sys.executable).with_name("ansible-playbook")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
        environment |= {
            "ANSIBLE_COLLECTIONS_PATH": str(REPOSITORY / "build" / "collections"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_BECOME_METHOD": "ansible.builtin.sudo",
        }
        line = [program, "-i", "inventory.yml", f"gpufleet.nvidia.{playbook}", *arguments]
        done = run_ansible(line, environment, tmp_path)
        return done.returncode, done.stdout + done.stderr

    return run


def task(text, name):
    """The lines that a task printed."""
    return text.partition(f"TASK [{name}]")[2].partition("\n")[2].partition("\nTASK [")[0].strip().splitlines()


def test_a_playbook_that_changes_hosts_still_counts_them_as_unreachable(play):
    code, text = play("site", **GONE)
    assert code == 4
    assert re.search(r"^a +: ok=1 .* unreachable=1 ", text, re.MULTILINE)


@pytest.mark.parametrize("given", [("--tags", "cluster"), ("--skip-tags", "mig")])
def test_a_run_whose_tags_leave_out_the_comparison_with_a_saved_plan_writes_nothing(play, tmp_path, given):
    code, text = play("site", *given, gpu_plan_apply="plan.json", gpu_kubernetes_output_directory="tree", **GONE)
    assert code == 2 and "plan.json was not compared with the hosts" in text
    assert not (tmp_path / "tree").exists() and "TASK [gpufleet.nvidia.gpu_kubernetes" not in text


def test_what_is_wrong_with_a_pool_is_said_although_its_hosts_do_not_answer(play):
    code, text = play("site", pool={"nvidia_mig_layuot": []}, hosts=("a", "b"), **GONE)
    assert code == 2
    assert (
        "a, b: nvidia_mig_layuot: no role of gpufleet.nvidia has such a variable. Did you mean nvidia_mig_layout?"
        in text
    )
    assert "TASK [Read the host]" not in text


def test_a_vault_and_a_template_are_named_by_their_variables(play, tmp_path):
    folder = tmp_path / "group_vars"
    folder.mkdir()
    sealed = "$ANSIBLE_VAULT;1.1;AES256\n33613463343938323434396164663236\n"
    (folder / "pool.yml").write_text(
        "nvidia_driver_repository_password: !vault |\n" + "".join(f"  {line}\n" for line in sealed.splitlines()),
        encoding="utf-8",
    )
    code, text = play("site", nvidia_driver_branch="{{ branch_of_the_site }}", **GONE)
    assert code == 2
    assert "a: nvidia_driver_branch: 'branch_of_the_site' is undefined. Define what its template uses." in text
    assert re.search(
        r"^a: nvidia_driver_repository_password: .*Give the password of its vault with --vault-id", text, re.M
    )


@pytest.mark.parametrize(
    ("version", "old"),
    [
        ("3.8", True),
        ("3.9", False),
        *(
            pytest.param(version, old, marks=pytest.mark.by_name)
            for version, old in (("3.6", True), ("2.7", True), ("x", False))
        ),
    ],
)
def test_an_old_python_is_named_with_the_version_that_is_needed(play, tmp_path, version, old):
    program = tmp_path / "python"
    program.write_text(_PYTHON.format(version=version), encoding="utf-8")
    program.chmod(0o755)
    said = f"its Python is {version}, and modules need 3.9 or newer. Install one, and set ansible_python_interpreter to its path"
    here = {"ansible_connection": "local", "ansible_python_interpreter": str(program), "ansible_become": False}
    code, text = play("site", **here)
    assert code == 2
    assert (said in text) is old
    assert ("SyntaxError" in text) is not old
    if old:
        assert said in play("doctor", **here)[1]


@pytest.mark.parametrize(
    ("playbook", "name"),
    [
        pytest.param("site", "Read the host", marks=pytest.mark.by_name),
        pytest.param("site", "Decide which hosts have something to do", marks=pytest.mark.by_name),
        ("site", "Start the stages on these hosts"),
        ("plan", "Fail where the fleet is not as described"),
        ("verify", "Fail where a host is not as described"),
        pytest.param("doctor", "Fail where something is wrong", marks=pytest.mark.by_name),
        pytest.param("inspect", "Fail where a host could not be read", marks=pytest.mark.by_name),
        ("upgrade", "End the rollout"),
        pytest.param("migrate", "End the migration", marks=pytest.mark.by_name),
        pytest.param("rollback", "End the run", marks=pytest.mark.by_name),
        pytest.param("repartition", "End the run", marks=pytest.mark.by_name),
        pytest.param("heal", "End the run", marks=pytest.mark.by_name),
    ],
)
def test_a_run_that_starts_at_a_later_task_is_refused_in_plain_words(play, playbook, name):
    # Ansible gathers facts then, whatever the play says of them.
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "ansible_become": False}
    code, text = play(playbook, "--start-at-task", name, **here)
    assert code == 2, text
    assert "--start-at-task" in text and "from its beginning" in text
    assert "is undefined" not in text
