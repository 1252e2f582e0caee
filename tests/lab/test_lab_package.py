# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lab as others have it: packed, unpacked in an empty folder, and used as its page says, command by command."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="the lab needs root: run this as root"),
]

REPOSITORY = Path(__file__).resolve().parents[2]
VERSION = "99.0.0"


#: A role of somebody else, and what it must find: a host of the inventory has the driver and the GPUs that it says.
SCENARIO = {
    "inventory.yml": {
        "gpu_hosts": {
            "hosts": {"gpu-1": {"gpu_facts_gpus": [{"board": "l40s", "count": 2}], "lab_driver": "installed"}}
        }
    },
    "converge.yml": [{"hosts": "gpu_hosts", "gather_facts": False, "tasks": [{"ansible.builtin.ping": {}}]}],
    "verify.yml": [
        {
            "hosts": "gpu_hosts",
            "gather_facts": False,
            "tasks": [
                {
                    "ansible.builtin.command": "nvidia-smi -L",
                    "register": "listed",
                    "failed_when": "listed.stdout_lines | select('search', 'L40S') | length != 2",
                }
            ],
        }
    ],
}


def blocks_of_the_page(language: str) -> list[str]:
    page = (REPOSITORY / "docs" / "lab.md").read_text(encoding="utf-8").replace("VERSION", VERSION)
    return re.findall(rf"```{language}\n(.*?)```", page.replace("my-roles", "package"), re.DOTALL)


def run(commands: str, folder: Path) -> str:
    """Run what stands in a console of the page, and return what it printed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "GPUFLEET_"))}
    environment["PATH"] = f"{REPOSITORY / '.venv' / 'bin'}:{environment['PATH']}"
    script = re.sub(r"^\$ ", "", commands, flags=re.MULTILINE)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture
def folder(tmp_path):
    """An empty folder with the tarball in it; no lab is left, whatever happened."""
    subprocess.run([REPOSITORY / "tools" / "lab-package.sh", REPOSITORY, VERSION, tmp_path], check=True)
    yield tmp_path
    subprocess.run(
        [REPOSITORY / "tests" / "lab" / "lab", "down", "--name", "package"], check=False, capture_output=True
    )


def test_the_page_of_the_lab_works_with_its_tarball(folder):
    shown = run(blocks_of_the_page("console")[0], folder)
    # What lspci shows of the page's hosts: eight and four GPUs, and four NVSwitches.
    assert len(re.findall(r"3D controller|Bridge", shown)) == 8 + 4 + 4, shown


def test_a_scenario_of_molecule_boots_its_hosts_with_it(folder):
    subprocess.run(["tar", "-xzf", f"gpufleet-lab-{VERSION}.tar.gz"], cwd=folder, check=True)
    scenario = folder / "molecule" / "default"
    scenario.mkdir(parents=True)
    (scenario / "molecule.yml").write_text(blocks_of_the_page("yaml")[0], encoding="utf-8")
    for name, content in SCENARIO.items():
        (scenario / name).write_text(yaml.safe_dump(content), encoding="utf-8")
    run(blocks_of_the_page("console")[1], folder)
