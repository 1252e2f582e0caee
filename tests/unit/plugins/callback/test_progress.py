# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The callback in a real run: what changes, what fails and what a task has to say is a line, all else is silent."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]
PLAYBOOK = """
- name: Work
  hosts: all
  connection: local
  gather_facts: false
  tasks:
    - name: Say what is
      ansible.builtin.debug: {msg: ["the driver stays", "the toolkit goes"]}
    - name: Install something
      ansible.builtin.debug: {msg: done}
      changed_when: inventory_hostname == 'gpu01'
    - name: Leave something out
      ansible.builtin.debug: {msg: no}
      when: false
    - name: Try something
      ansible.builtin.fail: {msg: of no matter}
      ignore_errors: true
    - name: Prove it
      ansible.builtin.fail: {msg: "the driver is not loaded"}
      when: inventory_hostname == 'gpu02'
"""


def test_what_changes_and_what_fails_is_a_line_each(tmp_path):
    (tmp_path / "play.yml").write_text(PLAYBOOK)
    environment = {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "build" / "collections"),
        "ANSIBLE_STDOUT_CALLBACK": "gpufleet.nvidia.progress",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_DEVEL_WARNING": "0",
    }
    program = Path(sys.executable).with_name("ansible-playbook")
    command = [str(program), "--forks", "1", "-i", "gpu01,gpu02", "play.yml"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    shown = re.sub(r" +\d+ s", " N s", done.stdout).strip()
    assert shown == (
        "Work\n"
        "  gpu01: the driver stays\n"
        "  gpu01: the toolkit goes\n"
        "  gpu02: the driver stays\n"
        "  gpu02: the toolkit goes\n"
        "  gpu01 N s  Install something: changed\n"
        "  gpu02: done\n"
        "  gpu02 N s  Prove it: FAILED: the driver is not loaded\n"
        "\n"
        "HOST   STATE   CHANGES\n"
        "gpu01  ok      1\n"
        "gpu02  failed  0"
    )
