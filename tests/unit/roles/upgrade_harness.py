# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbooks for day two with their real roles, on this machine, where the roles that change a host only write down that they ran.

What is proven so is the order of the steps and which of them follow a failure; tests/cluster proves the steps themselves.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from ...warm_ansible import run as run_ansible
from ...warm_python import interpreter

REPOSITORY = Path(__file__).resolve().parents[3]
OLD, NEW = "580.126.09", "580.178.04"

_STUB = """
import json, os, time
from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

class ActionModule(ActionBase):
    _VALID_ARGS = None

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        folder, host = os.environ["STUB_FOLDER"], task_vars["inventory_hostname"]
        step = " ".join(str(value) for value in self._task.args.values())
        with open(os.path.join(folder, "log"), "a") as log:
            log.write(f"{host} {step}{' (check)' if self._task.check_mode else ''}\\n")
        with open(os.path.join(folder, "wait.json")) as handle:
            awaited = json.load(handle).get(f"{host} {step}")
        until = time.monotonic() + 200
        while awaited and awaited not in open(os.path.join(folder, "log")).read().splitlines():
            if time.monotonic() > until:
                return {**result, "failed": True, "msg": f"{awaited} did not come"}
            time.sleep(0.1)
        with open(os.path.join(folder, "fail.json")) as handle:
            message = json.load(handle).get(f"{host} {step}")
        result.update({"changed": True, "reboot_required": False})
        if message == "lost":
            raise AnsibleConnectionFailure("ssh broke off")
        if message:
            result.update({"failed": True, "msg": message})
        return result
"""
_STUB_FACTS = """
from ansible.plugins.action import ActionBase

class ActionModule(ActionBase):
    _VALID_ARGS = None

    def run(self, tmp=None, task_vars=None):
        return {**super().run(tmp, task_vars), "changed": False, "gpu": self._templar.template(task_vars["stub_facts"])}
"""
_STUB_KERNEL = """
import json, os
from ansible_collections.gpufleet.nvidia.plugins.action import stub

class ActionModule(stub.ActionModule):
    # Stands for GRUB (release: what is booted next, for once) and for the reboot (no argument).

    def run(self, tmp=None, task_vars=None):
        path = os.path.join(os.environ["STUB_FOLDER"], f"kernel-{task_vars['inventory_hostname']}.json")
        with open(path) as handle:
            facts = json.load(handle)
        release = self._task.args.pop("release", None)
        self._task.args.clear()
        self._task.args["step"] = f"boot {release}" if release else "prove kernel" if release == "" else "reboot"
        result = super().run(tmp, task_vars)
        following = facts["driver"].pop("next_kernel", {}).get("release", facts["host"]["kernel"])
        if release == "":
            return {**result, "boots_next": following}
        if not result.get("failed") and not self._task.check_mode:
            if release:
                facts["driver"]["next_kernel"] = {"release": release, "version": "x"}
            else:
                facts["host"]["kernel"] = facts.pop("boots", following)
            with open(path, "w") as handle:
                json.dump(facts, handle)
        return result
"""
_STUB_NEWEST = """
import json, os
from ansible_collections.gpufleet.nvidia.plugins.action import stub

class ActionModule(stub.ActionModule):
    # Stands for the package manager: installs the kernel that the file of the host calls the newest one.

    def run(self, tmp=None, task_vars=None):
        path = os.path.join(os.environ["STUB_FOLDER"], f"kernel-{task_vars['inventory_hostname']}.json")
        with open(path) as handle:
            facts = json.load(handle)
        running, driver = facts["host"]["kernel"], facts["driver"]
        installed = driver.get("next_kernel", {}).get("release", running)
        plan = {"steps": [{}] if facts["newest"] != installed else [], "running": running}
        if self._task.args.get("state") == "planned":
            return {"changed": False, "release": installed, **plan}
        self._task.args["step"] = "install kernel"
        result = super().run(tmp, task_vars)
        if not result.get("failed"):
            driver["next_kernel"] = {"release": facts["newest"], "version": "x"}
            with open(path, "w") as handle:
                json.dump(facts, handle)
        return {**result, "release": facts["newest"], **plan}
"""
_STUB_STEP = """
from ansible_collections.gpufleet.nvidia.plugins.action import stub

class ActionModule(stub.ActionModule):
    # Stands for the plan of a MIG layout, for the Lease and for the quotas of teams, whatever they are given.

    def run(self, tmp=None, task_vars=None):
        state = self._task.args.get("state")
        self._task.args.clear()
        self._task.args["step"] = f"{'lease' if state in ('present', 'absent') else 'quotas'} {state}" if state else "plan"
        return {**super().run(tmp, task_vars), "steps": task_vars.get("stub_steps", [{}])}
"""
_STUB_OPERANDS = """
from ansible_collections.gpufleet.nvidia.plugins.action import stub

class ActionModule(stub.ActionModule):
    # Stands for the cluster of a migration from the GPU Operator, whose pods obey.

    def run(self, tmp=None, task_vars=None):
        given = dict(self._task.args)
        self._task.args.clear()
        if given["state"] == "surveyed":
            return {"changed": False, "moved": task_vars.get("stub_moved", False)}
        self._task.args["step"] = f"brought by {given['brought_by']}" if "brought_by" in given else f"stack {given['stack']}"
        return super().run(tmp, task_vars)
"""


def _facts(version: str) -> dict:
    return {
        "schema": 1,
        "driver": {"loaded_version": version, "on_disk_version": version},
        "toolkit": {"version": "1.20.2"},
    }


_PLAN = {"needed": ["driver"], "stages": {"driver": {"needed": True, "steps": []}}}
#: Role to the task files of it that are called, each of which stands for one step.
_ROLES = {
    "nvidia_driver": {"main.yml": "driver", "install.yml": "install"},
    "nvidia_toolkit": {"main.yml": "toolkit", "rollback.yml": "toolkit back", "remove.yml": "toolkit away"},
    "nvidia_settings": {"main.yml": "settings"},
    "nvidia_mig": {"main.yml": "mig"},
    "nvidia_sharing": {"main.yml": "sharing"},
    "nvidia_dcgm": {"main.yml": "dcgm"},
    "nvidia_health": {"main.yml": "health"},
}
#: The roles whose own tasks run, and those of gpu_facts that do.
_DAY_TWO = ("gpu_node", "gpu_upgrade", "gpu_repartition")
_OF_FACTS = ("reboot.yml", "ask.yml", "hold.yml", "note_plan.yml")


def _link(collection: Path) -> None:
    (collection / "plugins" / "action").mkdir(parents=True)
    for name in ("meta", "playbooks", "galaxy.yml"):
        (collection / name).symlink_to(REPOSITORY / name)
    for path in (REPOSITORY / "plugins").iterdir():
        if path.name != "action":
            (collection / "plugins" / path.name).symlink_to(path)
    for path in (REPOSITORY / "plugins" / "action").glob("*.py"):
        (collection / "plugins" / "action" / path.name).symlink_to(path)
    (collection / "plugins" / "action" / "stub.py").write_text(_STUB)
    (collection / "plugins" / "action" / "stub_kernel.py").write_text(_STUB_KERNEL)
    (collection / "plugins" / "action" / "stub_newest.py").write_text(_STUB_NEWEST)
    (collection / "plugins" / "action" / "stub_step.py").write_text(_STUB_STEP)
    (collection / "plugins" / "action" / "stub_facts.py").write_text(_STUB_FACTS)
    (collection / "plugins" / "action" / "stub_operands.py").write_text(_STUB_OPERANDS)


def _roles(roles: Path, folder: Path) -> None:
    for real in (REPOSITORY / "roles").iterdir():
        for part in ("defaults", "meta", "vars", "tasks"):
            own = (part == "tasks" and real.name != "gpu_kubernetes") or (part == "vars" and real.name in _DAY_TWO)
            if (real / part).is_dir() and not own:
                (roles / real.name).mkdir(parents=True, exist_ok=True)
                (roles / real.name / part).symlink_to(real / part)
    for role, files in _ROLES.items():
        for name, step in files.items():
            task = {"name": step, "gpufleet.nvidia.stub": {"step": step}, "register": f"{role}_result"}
            _write(roles / role / "tasks" / name, [task])
    facts = {"gpu_facts_host": {"gpu": "{{ stub_found }}"}, "gpu_facts_plan": "{{ stub_plan }}"}
    prove = {"name": "Prove", "gpufleet.nvidia.stub_kernel": {"release": ""}, "register": "__gpu_facts_next_boot"}
    _write(roles / "gpu_facts" / "tasks" / "next_kernel.yml", [prove])
    _write(roles / "gpu_facts" / "tasks" / "main.yml", [{"name": "Facts", "ansible.builtin.set_fact": facts}])
    for path in [found for part in ("tasks", "vars") for found in (REPOSITORY / "roles").glob(f"*/{part}/*.yml")]:
        role = path.parent.parent.name
        if role not in _DAY_TWO and (role != "gpu_facts" or path.name not in _OF_FACTS):
            continue
        text = path.read_text(encoding="utf-8")
        # A folder and services of each host's own.
        text = text.replace("/var/lib/gpufleet", f"{folder}/{{{{ inventory_hostname }}}}")
        text = text.replace("/usr/local/nvidia", f"{folder}/{{{{ inventory_hostname }}}}/nvidia")
        text = text.replace("/run/nvidia/driver", f"{folder}/{{{{ inventory_hostname }}}}/mounted")
        for program in ("systemctl", "findmnt", "umount"):
            text = text.replace(f"/usr/bin/{program}", f"{folder}/{program}")
        text = re.sub(
            r"gpufleet[.]nvidia[.]node:\n( *action: node_(operands|stack))",
            r"gpufleet.nvidia.stub_operands:\n\1",
            text,
        )
        text = re.sub(r"gpufleet[.]nvidia[.]host_module:\n *systemd_service:", "gpufleet.nvidia.stub:", text)
        text = text.replace("gpufleet.nvidia.gpu_info:", "gpufleet.nvidia.stub_facts:")
        text = text.replace("gpufleet.nvidia.mig:", "gpufleet.nvidia.stub_step:")
        # Who holds the Lease when is seen without a cluster, too.
        text = re.sub(
            r"gpufleet[.]nvidia[.]rollout:\n *action: (upgrade_lease|team_quotas)",
            "gpufleet.nvidia.stub_step:",
            text,
        )
        # Whose turn comes is cordoned, and returned where it did not come, as far as this log says.
        if path.name in ("ahead.yml", "spared.yml"):
            text = text.replace("gpufleet.nvidia.node:", "gpufleet.nvidia.stub:")
            text = text.replace("    - gpu_node_kubernetes | bool\n", "")
        if path.name == "lease.yml":
            text = text.replace("  when: gpu_node_kubernetes | bool\n", "")
        text = text.replace("gpufleet.nvidia.boot_kernel:", "gpufleet.nvidia.stub_kernel:")
        text = text.replace("gpufleet.nvidia.kernel_package:", "gpufleet.nvidia.stub_newest:")
        text = re.sub(r"gpufleet[.]nvidia[.]host_module:\n *reboot:", "gpufleet.nvidia.stub_kernel:", text)
        written = roles / role / path.parent.name / path.name
        written.parent.mkdir(parents=True, exist_ok=True)
        written.write_text(text, encoding="utf-8")


def _write(path: Path, tasks: list) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(tasks, sort_keys=False))


@functools.cache
def _collections() -> Path:
    """The folder with the collection as all sites have it, until this process ends: Ansible is started once for them.

    What roles have on hosts is in C(site) there, which leads to the folder of the site whose playbook runs.
    """
    folder = Path(tempfile.mkdtemp(prefix="site-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    collection = folder / "ansible_collections" / "gpufleet" / "nvidia"
    _link(collection)
    _roles(collection / "roles", folder / "site")
    return folder


class Site:
    """Plain hosts, all of which need another driver."""

    def __init__(self, folder: Path, hosts: str = "ab") -> None:
        self.folder = folder
        self.hosts = tuple(hosts)
        for host in self.hosts:
            (folder / host).mkdir()
            self.kernel(host).write_text("{}")
            (folder / host / "driver-previous.json").write_text(json.dumps({"version": OLD}))
        # What is mounted is a folder here.
        last = "for last; do :; done"
        programs = {
            "systemctl": f"cat {folder}/services",
            "findmnt": f'{last}; test -d "$last"',
            "umount": f'{last}; rmdir "$last"',
        }
        for name, script in programs.items():
            (folder / name).write_text(f"#!/bin/sh\n{script}\n")
            (folder / name).chmod(0o755)
        self.services()
        self.fail()
        self.wait()
        local = {
            "ansible_connection": "local",
            "ansible_become": False,
            "ansible_python_interpreter": interpreter(),
            "gpu_node_kubernetes": False,
            "nvidia_driver_version": NEW,
            "nvidia_mig_layout": "all-balanced",
            "nvidia_mig_strategy": "mixed",
            # What the survey finds, and what is there once the driver was changed.
            "stub_found": self._facts(OLD),
            "stub_facts": self._facts(NEW),
            "stub_plan": _PLAN,
            "gpu_node_drain_command": ["sh", "-c", f"echo {{{{ inventory_hostname }}}} drain >> {folder}/log"],
            "gpu_node_resume_command": [
                "sh",
                "-c",
                f"echo {{{{ inventory_hostname }}}} resume >> {folder}/log; test ! -e {folder}/no-resume",
            ],
        }
        pools = {"training": {"hosts": {host: {} for host in self.hosts}}}
        inventory = {"gpu_hosts": {"children": pools, "vars": local}}
        (folder / "inventory.yml").write_text(yaml.safe_dump(inventory))

    def _facts(self, version: str) -> str:
        """Return facts with the kernel that the host has by now."""
        kernel = f"lookup('file', '{self.folder}/kernel-' ~ inventory_hostname ~ '.json') | from_json"
        return f"{{{{ {json.dumps(_facts(version))} | combine({kernel}, recursive=True) }}}}"

    def kernel(self, host: str) -> Path:
        """Return the file with the facts of the host that its kernels are in."""
        return self.folder / f"kernel-{host}.json"

    def kernels(self, running: str, following: str, driver: bool = False, offered: bool = False) -> None:
        """Have all hosts run a kernel, and GRUB boot another one next.

        :param driver: whether the driver is to be changed, too.
        :param offered: whether the other one is not installed yet, and is to be.
        """
        following_facts = {} if offered else {"next_kernel": {"release": following, "version": OLD}}
        facts = {"host": {"kernel": running}, "driver": following_facts, "newest": following}
        for host in self.hosts:
            self.kernel(host).write_text(json.dumps(facts))
        inventory = yaml.safe_load((self.folder / "inventory.yml").read_text())
        variables = inventory["gpu_hosts"]["vars"]
        variables["gpu_upgrade_kernel"] = "latest" if offered else "installed"
        if not driver:
            variables.update(
                stub_plan={"needed": [], "stages": {"driver": {"needed": False, "steps": []}}},
                stub_facts=variables["stub_found"],
            )
        (self.folder / "inventory.yml").write_text(yaml.safe_dump(inventory))

    def fail(self, lost: bool = False, **steps: str) -> None:
        """Let steps fail: C(a="health") is the health of host a.

        :param lost: whether the host cannot be reached any more.
        """
        found = {f"{host} {step}": "lost" if lost else f"{step} does not work" for host, step in steps.items()}
        (self.folder / "fail.json").write_text(json.dumps(found))

    def wait(self, **steps: str) -> None:
        """Let steps of hosts last until a line is in the log: C(a_driver="b health")."""
        found = {step.replace("_", " ", 1): line for step, line in steps.items()}
        (self.folder / "wait.json").write_text(json.dumps(found))

    def services(self, *names: str) -> None:
        lines = [f"{name}.service loaded active running It" for name in names]
        (self.folder / "services").write_text("\n".join(lines) + "\n")

    def run(self, playbook: str | Path, *arguments: str) -> subprocess.CompletedProcess:
        """Run a playbook of the collection, or that of a file; C(log) has what it did."""
        (self.folder / "log").write_text("")
        site = _collections() / "site"
        site.unlink(missing_ok=True)
        site.symlink_to(self.folder)
        paths = f"{_collections()}:{REPOSITORY}/build/collections"
        environment = {
            **os.environ,
            "ANSIBLE_COLLECTIONS_PATH": paths,
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_GATHERING": "explicit",
            "ANSIBLE_PIPELINING": "true",
            "STUB_FOLDER": str(self.folder),
        }
        program = str(Path(sys.executable).parent / "ansible-playbook")
        name = f"gpufleet.nvidia.{playbook}" if isinstance(playbook, str) else str(playbook)
        command = [program, "-i", str(self.folder / "inventory.yml"), name, *arguments]
        return run_ansible(command, environment, self.folder)

    @property
    def log(self) -> list[str]:
        return (self.folder / "log").read_text().splitlines()

    def record(self, host: str) -> dict:
        path = self.folder / host / "upgrade.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def keep(self, host: str, **record: str) -> None:
        """Leave on a host what an earlier run recorded."""
        values = {"schema": 1, "from": OLD, "to": f"driver {NEW}", "operator": "me@gone/1-1", "since": "", **record}
        (self.folder / host / "upgrade.json").write_text(json.dumps(values))
