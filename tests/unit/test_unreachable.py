# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts that nobody answers for: a line each, and a last line that says so."""

from __future__ import annotations

import os
import re
import sys

import pytest
import yaml

from ..warm_ansible import run as run_ansible
from .test_terminal import ROOT

#: Each case starts ansible-playbook.
pytestmark = pytest.mark.slow

#: As a host that does not let anybody in may say it: ssh shows its banner.
BANNER = "\x1b]0;title\x07\x9b31m\u202ebanner"
HOSTS = [f"gpu-{number:02}" for number in range(1, 26)]
#: What else a run prints: headings, the variables, the recap, the task that fails. The lines of the tree are counted apart.
OTHERS = 44


def ansible(folder, callback, *arguments):
    """Run ansible-playbook in a folder, with nothing of the environment that would change what it shows."""
    return run_ansible(
        [sys.executable.replace("python", "ansible-playbook"), *arguments],
        {
            **{name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")},
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "build" / "collections"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_STDOUT_CALLBACK": callback,
        },
        folder,
    )


@pytest.fixture
def run(tmp_path):
    """Run a playbook on 25 hosts on which no port is open."""
    hosts = {host: {"ansible_host": f"127.0.0.{number}"} for number, host in enumerate(HOSTS, 2)}
    shared = {
        "ansible_port": 1,
        "gpu_facts_gpus": [{"board": "l40s-48gb", "count": 4}],
        "gpu_kubernetes_cluster": "",
    }
    inventory = {"gpu_hosts": {"vars": shared, "children": {"shared": {"hosts": hosts}}}}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump(inventory), encoding="utf-8")

    def play(playbook, callback="ansible.builtin.default"):
        done = ansible(tmp_path, callback, "-f", "25", "-i", "hosts.yml", f"gpufleet.nvidia.{playbook}")
        assert done.returncode
        return done.stdout + done.stderr

    return play


@pytest.mark.parametrize(
    "playbook",
    ["plan", "site", *(pytest.param(name, marks=pytest.mark.by_name) for name in ("inspect", "verify", "doctor"))],
)
def test_every_unreachable_host_is_one_line(run, playbook):
    said = run(playbook)
    why = [line for line in said.splitlines() if "it cannot be reached: ssh: connect to host 127.0.0." in line]
    assert sorted(re.search(r"gpu-[0-9]+", line)[0] for line in why) == HOSTS, said
    # Beside the reason Ansible lists hosts that answered a task, and all of them in the recap; inspect has two tables more.
    assert len(said.splitlines()) <= OTHERS + len(HOSTS) * {"site": 2, "inspect": 5}.get(playbook, 3), said
    assert "gpufleet.nvidia.site" not in said.replace("gpufleet/nvidia/playbooks/site", ""), "it could change nothing"


def test_under_progress_too(run):
    said = run("site", "gpufleet.nvidia.progress")
    assert sum("UNREACHABLE: it cannot be reached: ssh:" in line for line in said.splitlines()) == len(HOSTS), said


def on_one_host(folder, module, options, callback, *arguments):
    """Have C(host_module) run a module, and return the status of the play and what it shows."""
    tasks = [{"gpufleet.nvidia.host_module": {module: options}}]
    (folder / "play.yml").write_text(yaml.safe_dump([{"hosts": "all", "gather_facts": False, "tasks": tasks}]))
    done = ansible(folder, callback, "-i", "gpu-01,", *arguments, "play.yml")
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("module", "options"),
    [("reboot", {"reboot_timeout": 1}), ("wait_for_connection", {"timeout": 1}), ("slurp", {"src": "/x"})],
)
@pytest.mark.parametrize("callback", ["ansible.builtin.default", "gpufleet.nvidia.progress"])
def test_what_ssh_shows_of_a_host_that_is_rebooted_or_waited_for_can_be_printed(tmp_path, module, options, callback):
    ssh = tmp_path / "ssh"
    ssh.write_text(f"#!/bin/sh\nprintf '%s\\n' '{BANNER}' >&2\nexit 255\n", encoding="utf-8")
    ssh.chmod(0o755)
    status, said = on_one_host(tmp_path, module, options, callback, "-e", f"ansible_ssh_executable={ssh}")
    assert status and "31m?banner" in said, said
    assert not [one for one in said if not one.isprintable() and one not in "\n\t"], repr(said)


def test_the_controller_is_not_rebooted_and_the_message_names_the_module(tmp_path):
    status, said = on_one_host(tmp_path, "reboot", {}, "gpufleet.nvidia.progress", "--connection", "local")
    assert status and "ansible.builtin.reboot with local connection would reboot the control node" in said, said
