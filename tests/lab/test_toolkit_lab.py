# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The container toolkit on a Debian 12 lab host: real apt and dpkg, a signed repository with three versions.

The tests follow each other as a host's life does.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
HOST = "toolkit-1"
PACKAGES = (
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
)

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="the lab needs root: run this as root"),
]


@pytest.fixture(scope="module")
def lab(make_lab):
    return make_lab(
        "toolkit-tests",
        {"name": HOST, "group": "toolkit", "boards": [{"board": "h100-80gb-sxm", "count": 1}], "headers": False},
    )


def toolkit(lab, fails=False, check=False, **options):
    inventory = lab.run("inventory").stdout.strip()
    variables = yaml.safe_load(Path(inventory).read_text())["all"]["vars"]
    repository = {
        "url": variables["nvidia_toolkit_repository_url"],
        "key_file": variables["nvidia_toolkit_repository_key_file"],
        "key_fingerprint": variables["nvidia_toolkit_repository_key_fingerprint"],
        **options.pop("repository", {}),
    }
    arguments = json.dumps({"repository": repository, **options})
    command = [str(REPOSITORY / ".venv" / "bin" / "ansible"), "-i", inventory, HOST, "-o"]
    command += ["-m", "gpufleet.nvidia.container_toolkit", "-a", arguments, *(["--check"] if check else [])]
    environment = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(REPOSITORY / "build" / "collections")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode != 0) is fails, done.stdout + done.stderr
    return json.loads(done.stdout[done.stdout.index("{") :])


def installed(lab):
    answer = lab.sh(
        HOST, "dpkg-query -W -f '${Package} ${Version} ${db:Status-Status}\\n' '*nvidia-container*' || true"
    )
    return {line.split()[0]: line.split()[1] for line in answer.splitlines() if line.endswith(" installed")}


def actions(outcome):
    return [step["action"] for step in outcome["plan"]["steps"]]


def test_below_the_floor_nothing_is_touched(lab):
    assert "CVE-2026-24260" in toolkit(lab, fails=True, version="1.19.0")["msg"]
    assert lab.status(HOST, "test -e /etc/apt/sources.list.d/nvidia-container-toolkit.sources") == 1


def test_another_key_is_refused_and_nothing_is_touched(lab):
    failed = toolkit(lab, fails=True, repository={"key_fingerprint": "0" * 40})
    assert "expected only 0000" in failed["msg"]
    assert lab.status(HOST, "test -e /etc/apt/keyrings/nvidia-container-toolkit.gpg") == 1


def test_check_mode_then_installed_then_nothing_to_do(lab):
    lab.sh(HOST, "echo 'deb https://nvidia.github.io/libnvidia-container/stable/ubuntu18.04/amd64 /' "
                 "> /etc/apt/sources.list.d/nvidia-docker.list")  # fmt: skip
    planned = toolkit(lab, check=True)
    assert actions(planned)[:3] == ["remove", "configure", "install"]
    assert installed(lab) == {}
    outcome = toolkit(lab)
    assert outcome["version"] == "1.20.0"
    assert installed(lab) == dict.fromkeys(PACKAGES, "1.20.0-1")
    assert sorted(lab.sh(HOST, "apt-mark showhold").split()) == sorted(PACKAGES)
    config = lab.sh(HOST, "cat /etc/nvidia-container-runtime/config.toml")
    assert "accept-nvidia-visible-devices-envvar-when-unprivileged = false" in config
    assert not toolkit(lab)["changed"]


def test_unattended_upgrades_do_not_move_it(lab):
    toolkit(lab, version="1.19.1")
    lab.sh(HOST, "apt-get -y -qq -o Dir::Etc::sourceparts=/etc/apt/sources.list.d upgrade")
    assert installed(lab) == dict.fromkeys(PACKAGES, "1.19.1-1")
    assert toolkit(lab)["version"] == "1.20.0"


def test_a_version_that_is_not_offered(lab):
    assert "All four are there at 1.20.0, 1.19.1" in toolkit(lab, fails=True, version="1.21.0")["msg"]
    assert installed(lab) == dict.fromkeys(PACKAGES, "1.20.0-1")


def test_the_way_back_and_forth(lab):
    assert actions(toolkit(lab, config={"accept_envvar_unprivileged": True})) == ["let"]
    assert not toolkit(lab, config={"accept_envvar_unprivileged": True})["changed"]
    assert actions(toolkit(lab)) == ["forbid"]


def test_a_killed_transaction_is_completed(lab):
    lab.sh(
        HOST,
        "cd /tmp; apt-get download -qq libnvidia-container1=1.19.1-1; "
        "dpkg --force-all --unpack /tmp/libnvidia-container1_1.19.1-1_*.deb",
    )
    assert "libnvidia-container1" not in installed(lab)
    outcome = toolkit(lab)
    assert actions(outcome)[:2] == ["repair", "install"]
    assert installed(lab) == dict.fromkeys(PACKAGES, "1.20.0-1")


def test_a_repository_that_does_not_answer_stops_nothing_that_is_right(lab):
    address = yaml.safe_load(Path(lab.run("inventory").stdout.strip()).read_text())["all"]["vars"]["lab_repository_url"]
    dead = {"url": f"{address}/libnvidia-container/stable/deb"}
    lab.run("repository", "off")
    try:
        assert not toolkit(lab)["changed"]
        assert toolkit(lab, fails=True, version="1.19.1", repository=dead)
        assert installed(lab) == dict.fromkeys(PACKAGES, "1.20.0-1")
        assert sorted(lab.sh(HOST, "apt-mark showhold").split()) == sorted(PACKAGES)
    finally:
        lab.run("repository", "on")
    # The dead repository was not left behind.
    assert toolkit(lab)["version"] == "1.20.0"


def test_absent(lab):
    toolkit(lab, state="absent")
    assert installed(lab) == {}
    assert lab.sh(HOST, "apt-mark showhold").split() == []
    assert not toolkit(lab, state="absent")["changed"]
