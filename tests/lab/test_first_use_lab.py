# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The README followed by somebody who has hosts and nothing else: an empty environment, six commands, then its inventory applied.

With C(RECORD_TRANSCRIPTS=1) it writes C(docs/transcripts/first-use.txt), and what the hosts said of themselves, before and after C(site),
which C(tests/unit/test_terminal.py) runs the playbooks on.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
import yaml

from .. import recorded_facts

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="the lab needs root: run this as root"),
]

REPOSITORY = Path(__file__).resolve().parents[2]
TRANSCRIPT = REPOSITORY / "docs" / "transcripts" / "first-use.txt"
RECORDED = REPOSITORY / "tests" / "unit" / "readme_fleet"
HOSTS = {
    "gpu-training-1": {"group": "training", "boards": [{"board": "h100-80gb-sxm", "count": 8}], "nvswitch": 4},
    "gpu-shared-1": {"group": "shared", "boards": [{"board": "l40s", "count": 4}]},
}
#: The promise: five minutes and six commands until the plan of one's own hosts is there.
SECONDS = 300
COMMANDS = (
    "python3 -m venv venv && . venv/bin/activate",
    "pip install 'ansible-core==2.19.*'",
    "ansible-galaxy collection install ./{tarball}",
    "pip install -r ~/.ansible/collections/ansible_collections/gpufleet/nvidia/meta/ee-requirements.txt",
    "ansible-playbook -i gpu-training-1, gpufleet.nvidia.doctor",
    "ansible-playbook -i inventory.yml gpufleet.nvidia.plan",
)
_OF_CONTAINERD_1_6 = "nvidia_toolkit_device_injection: volume_mounts"
_PERSON = """
apt-get install -y -qq --no-install-recommends sudo >/dev/null
useradd --create-home --shell /bin/bash ops
install -d -m 700 -o ops /home/ops/.ssh
install -m 600 -o ops /root/.ssh/authorized_keys /home/ops/.ssh/authorized_keys
echo 'ops ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/ops
"""
_HEAD = """\
Six commands on a machine that has Python and nothing of Ansible, to two hosts that no tool has touched (tests/lab/test_first_use_lab.py). The
hosts are those of the lab, with Debian 12 and its containerd 1.6. inventory.yml is the README's with the names of these hosts in ssh's
configuration, and what doctor says about that containerd. Ansible Galaxy cannot be reached where this is recorded, so the tarball of `make build`
is installed in place of gpufleet.nvidia; it requires no other collection. Of pip's and ansible-galaxy's output the last line is shown.
"""


@pytest.fixture(scope="module")
def fleet(make_fleet):
    return make_fleet("first-use", *({"name": name, **host} for name, host in HOSTS.items()))


@pytest.fixture(scope="module")
def ssh_config(fleet, tmp_path_factory):
    """What a person has in ~/.ssh/config: the hosts by name, and a user of theirs who may become root by sudo."""
    for host in HOSTS:
        fleet.lab.sh(host, _PERSON)
    written = Path(fleet.lab.run("inventory").stdout.strip()).with_name("ssh_config").read_text(encoding="utf-8")
    path = tmp_path_factory.mktemp("ssh") / "config"
    path.write_text(written.replace("User root", "User ops"), encoding="utf-8")
    return path


def readme_inventory() -> str:
    """The first block of YAML of the README."""
    found = re.search(r"```yaml\n(.*?)```", (REPOSITORY / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert found
    return found[1]


def without_this_machine(text: str, folder: Path) -> str:
    """Lab hosts share the machine's kernel, which no page has to name: it is called as Debian's is."""
    return text.replace(str(folder), "/srv/gpu").replace(os.uname().release, "6.1.0-50-amd64")


@pytest.fixture
def folder():
    """A person's folder. C(tmp_path) of a parallel run is longer than the path of a Unix socket, such as ssh's below C(~/.ansible/cp), may be."""
    with tempfile.TemporaryDirectory(prefix="gpufleet-") as path:
        yield Path(path)


@pytest.mark.by_name
def test_six_commands_to_the_plan_of_ones_own_hosts(ssh_config, folder):
    home = folder / "home"
    home.mkdir()
    build = [REPOSITORY / ".venv/bin/ansible-galaxy", "collection", "build", "--output-path", folder, REPOSITORY]
    subprocess.run(build, check=True, capture_output=True)
    (tarball,) = folder.glob("gpufleet-nvidia-*.tar.gz")
    own = re.sub(r"(gpu-[\w-]+): \{ansible_host: [\d.]+\}", r"\1: {ansible_host: \1}", readme_inventory())
    own = own.replace("  vars:\n", f"  vars:\n    {_OF_CONTAINERD_1_6}\n", 1)
    (folder / "inventory.yml").write_text(own, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    environment |= {
        "HOME": str(home),
        "PATH": f"{folder}/venv/bin:{environment['PATH']}",
        # A user has this in ~/.ssh/config, which ssh does not look for in HOME.
        "ANSIBLE_SSH_ARGS": f"-F {ssh_config} -o ControlMaster=auto -o ControlPersist=60s",
        "ANSIBLE_NOCOLOR": "1",
    }
    shown, said, total = [], {}, 0.0
    for pattern in COMMANDS:
        command = pattern.format(tarball=tarball.name)
        begun = time.monotonic()
        done = subprocess.run(
            ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        took = time.monotonic() - begun
        total += took
        said[command] = done
        text = without_this_machine(f"{done.stdout}{done.stderr}", folder).strip()
        lines = text.splitlines() if command.startswith("ansible-playbook") else text.splitlines()[-1:]
        shown += [f"$ {command}    # {took:.0f} s", *(line.rstrip() for line in lines), ""]
    transcript = f"{_HEAD}\n" + "\n".join(shown) + f"\nAll of it: {total:.0f} s.\n"
    if os.environ.get("RECORD_TRANSCRIPTS"):
        TRANSCRIPT.write_text(transcript, encoding="utf-8")
    *preparations, doctor, plan = said.values()
    assert [done.returncode for done in preparations] == [0] * 4, transcript
    # Both say by their status that there is something to do.
    assert doctor.returncode == 2 and _OF_CONTAINERD_1_6 in doctor.stdout, transcript
    assert plan.returncode == 2 and "gpu-training-1  training  to change" in plan.stdout, transcript
    assert total < SECONDS, transcript


def test_the_inventory_of_the_readme_is_applied_and_verified(fleet, tmp_path):
    described = yaml.safe_load(readme_inventory())["gpu_hosts"]
    pools = described["children"].items()
    fleet.describe(
        {name: {"hosts": list(pool["hosts"]), "vars": {**described["vars"], **pool["vars"]}} for name, pool in pools}
    )
    _record(fleet, "bare", tmp_path)
    site = fleet.play("site")
    assert site.rc == 0, site.text
    verify = fleet.play("verify")
    assert verify.rc == 0, verify.text
    _record(fleet, "ready", tmp_path)


def _record(fleet, state: str, folder: Path) -> None:
    if not os.environ.get("RECORD_TRANSCRIPTS"):
        return
    for host in HOSTS:
        answer = fleet.module(host, "gpu_info", {"gather": ["errors", "health", "holders"]}, "--become")
        RECORDED.mkdir(exist_ok=True)
        text = without_this_machine(json.dumps(answer["gpu"]), folder)
        recorded_facts.write(RECORDED / f"{host}-{state}.json", json.loads(text))
