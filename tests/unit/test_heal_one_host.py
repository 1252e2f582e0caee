# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""C(heal) for one host, as an alert starts it: a name that stands for others ends the run before any host is read."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import yaml

from ..warm_ansible import run as run_ansible

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
UNREACHABLE = {"ansible_host": "127.0.0.1", "ansible_port": 1}
GROUPS = {"rack": ["gpu-1", "gpu-2"], "alone": ["gpu-3"]}


@pytest.fixture
def heal(tmp_path):
    children = {group: {"hosts": dict.fromkeys(hosts, UNREACHABLE)} for group, hosts in GROUPS.items()}
    variables = {"gpu_node_kubernetes": False}
    (tmp_path / "inventory.yml").write_text(
        yaml.safe_dump({"gpu_hosts": {"children": children, "vars": variables}}), encoding="utf-8"
    )

    def run(limit):
        command = [sys.executable.replace("python", "ansible-playbook"), "-i", "inventory.yml", "gpufleet.nvidia.heal"]
        environment = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "build" / "collections")}
        arguments = ["--limit", limit, "-e", f"gpu_heal_host={limit}"]
        done = run_ansible([*command, *arguments], environment, tmp_path)
        return done.returncode, " ".join(done.stdout.split())

    return run


@pytest.mark.parametrize("group", ["rack", "alone", "gpu_hosts"])
def test_the_name_of_a_group_starts_nothing(heal, group):
    code, shown = heal(group)
    assert code != 0 and f"{group}: gpu_heal_host is to be the only host of this run" in shown
    assert "TASK [Read the host]" not in shown


def test_the_name_of_a_host_is_that_host(heal):
    _code, shown = heal("gpu-1")
    assert "gpu_heal_host is to be" not in shown
    assert "TASK [Read the host]" in shown and "gpu-2" not in shown
