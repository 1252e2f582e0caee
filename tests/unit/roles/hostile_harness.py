# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The real playbooks and roles against a host that was broken into: whatever Ansible runs there is answered by C(hostile_python.py).

Nothing of this machine is changed: no module is run but on the controller, where the modules of hosts have no business.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import yaml

from ...warm_ansible import run as run_ansible
from ..host_documents import FACTS as HOST_FACTS
from ..host_documents import WHOLE

REPOSITORY = Path(__file__).resolve().parents[3]
_IDLE = {name: value for name, value in WHOLE.items() if name != "profiles"}
#: A host that is as described, so that every stage has what it asks for.
FACTS = {
    **HOST_FACTS,
    "pci": HOST_FACTS["pci"][:1],
    "gpus": [{**_IDLE, "index": 0, "uuid": "GPU-0", "pci_address": "0000:18:00.0", "processes": []}],
    "fabric": {"nvswitches": 0, "manager": {"installed": False, "active": False, "version": None}, "state": None},
    "mps": [],
    "recorded": {"mig": None, "sharing": None, "mig_unfinished": False},
    "health": {"nvidia_smi": {"rc": 0, "text": "GPU 0"}, "xids": []},
    "holders": [],
    "unknown": {},
}
#: What is in the folder of a fleet before a playbook runs, and Ansible's temporary files.
GIVEN = {"answers.json", "inventory.yml", "play.yml", "poison.json", "python", "site.yml", "tmp", "written"}
#: What a module on the host answers; others that they changed something.
_ANSWERS = {
    "gpu_info": {"changed": False, "gpu": FACTS},
    "driver": {"changed": True, "reboot_required": False},
    "health": {"changed": False, "healthy": True, "checks": []},
    "mig": {"changed": False, "steps": [{"what": "create"}], "reboot_required": False},
    "ping": {"changed": False, "ping": "pong"},
    "slurp": {"failed": True, "msg": "there is no such file"},
    "stat": {"changed": False, "stat": {"exists": False}},
    "command": {
        "changed": True,
        "rc": 0,
        "stdout": "nvidia-dcgm.service loaded",
        "stdout_lines": ["nvidia-dcgm.service loaded"],
    },
}


def variables() -> set[str]:
    """Return the names of all variables that a role or a playbook of the collection reads, sets or registers."""
    from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.playbook_variables import OWN
    from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.role_variables import role_interface

    names = {name for options in OWN.values() for name in options}
    for path in (REPOSITORY / "roles").iterdir():
        found = role_interface(path.name)
        names |= {*found.options, *found.defaults, *found.registered}
        for text in (file.read_text() for file in path.glob("*/*.yml")):
            names |= {word.rstrip(":") for word in text.replace("(", " ").split() if word.startswith("__")}
    return {name for name in names if name.isidentifier()}


class Fleet:
    """A fleet of hosts that were broken into.

    :param poison: what every answer of theirs carries beside what is asked for.
    :param group: in which the hosts are.
    """

    def __init__(self, folder: Path, poison: dict, hosts: tuple[str, ...] = ("a",), group: str = "gpu_hosts") -> None:
        self.folder = folder
        self.canary = folder / "canary"
        self.answers = dict(_ANSWERS)
        folder.mkdir()
        (folder / "poison.json").write_text(json.dumps(poison))
        interpreter = folder / "python"
        interpreter.write_text(
            f'#!/bin/sh\nexec {sys.executable} {Path(__file__).parent}/hostile_python.py {folder} "$@"\n'
        )
        interpreter.chmod(0o755)
        log = "echo {{ inventory_hostname }}"
        described = {
            "ansible_connection": "local",
            "ansible_become": False,
            "ansible_python_interpreter": str(interpreter),
            "ansible_remote_tmp": str(folder / "tmp"),
            "gpu_facts_gpus": [{"board": "h100-80gb-sxm", "count": 1}],
            "gpu_node_kubernetes": False,
            "gpu_node_drain_command": ["sh", "-c", f"{log} drain >> {folder}/commands"],
            "gpu_node_resume_command": ["sh", "-c", f"{log} resume >> {folder}/commands"],
            "nvidia_driver_version": "580.178.04",
        }
        inventory = {group: {"children": {"training": {"hosts": {host: {} for host in hosts}, "vars": described}}}}
        (folder / "inventory.yml").write_text(yaml.safe_dump(inventory))

    def run(self, playbook: str, *arguments: str, programs: Path | None = None) -> subprocess.CompletedProcess:
        """Run a playbook, by the ansible-core whose programs are in a folder."""
        (self.folder / "answers.json").write_text(json.dumps(self.answers))
        environment = {
            **os.environ,
            "ANSIBLE_COLLECTIONS_PATH": str(REPOSITORY / "build" / "collections"),
            "ANSIBLE_INJECT_FACT_VARS": "true",
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_GATHERING": "explicit",
            "ANSIBLE_FORKS": "1",
        }
        environment.pop("ANSIBLE_CONFIG", None)
        program = str((programs or Path(sys.executable).parent) / "ansible-playbook")
        command = [program, "-i", str(self.folder / "inventory.yml"), playbook, *arguments]
        if not programs:
            return run_ansible(command, environment, self.folder)
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=600, check=False, cwd=self.folder
        )

    def did(self) -> dict[str, str]:
        """Return what was done: every module with its arguments, every command on the controller, every file that a playbook wrote.

        Playbooks run in the folder, so that whatever they write without being told where is in it.
        """
        return {
            str(path.relative_to(self.folder)): path.read_text().replace(str(self.folder), "FOLDER")
            for path in sorted(self.folder.rglob("*"))
            if path.is_file() and path.relative_to(self.folder).parts[0] not in GIVEN
        }
