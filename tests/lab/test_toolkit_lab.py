# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The container toolkit on a Debian 12 lab host: real apt and dpkg, a signed repository with three versions.

The tests follow each other as a host's life does.
"""

from __future__ import annotations

import os

import pytest

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
def fleet(make_fleet):
    return make_fleet(
        "toolkit-tests",
        {"name": HOST, "group": "toolkit", "boards": [{"board": "h100-80gb-sxm", "count": 1}], "headers": False},
    )


@pytest.fixture(scope="module")
def lab(fleet):
    return fleet.lab


@pytest.fixture(scope="module")
def toolkit(fleet):
    def call(fails=False, check=False, **options):
        repository = {
            "url": fleet.variables["nvidia_toolkit_repository_url"],
            "key_file": fleet.variables["nvidia_toolkit_repository_key_file"],
            "key_fingerprint": fleet.variables["nvidia_toolkit_repository_key_fingerprint"],
            **options.pop("repository", {}),
        }
        arguments = {"repository": repository, **options}
        answer = fleet.module(HOST, "container_toolkit", arguments, *(["--check"] if check else []), timeout=1800)
        assert ("steps" not in answer) is fails, answer.get("msg", answer)
        return answer

    return call


def installed(lab):
    answer = lab.sh(
        HOST, "dpkg-query -W -f '${Package} ${Version} ${db:Status-Status}\\n' '*nvidia-container*' || true"
    )
    return {line.split()[0]: line.split()[1] for line in answer.splitlines() if line.endswith(" installed")}


def actions(outcome):
    return [step["kind"] for step in outcome["steps"]]


def test_below_the_floor_nothing_is_touched(lab, toolkit):
    assert "CVE-2026-24260" in toolkit(fails=True, version="1.19.0")["msg"]
    assert lab.status(HOST, "test -e /etc/apt/sources.list.d/nvidia-container-toolkit.sources") == 1


def test_another_key_is_refused_and_nothing_is_touched(lab, toolkit):
    failed = toolkit(fails=True, repository={"key_fingerprint": "0" * 40})
    assert "expected only 0000" in failed["msg"]
    assert lab.status(HOST, "test -e /etc/apt/keyrings/nvidia-container-toolkit.gpg") == 1


@pytest.mark.proves("toolkit", "", rows=["debian-12"], note="built from NVIDIA's published source")
def test_check_mode_then_installed_then_nothing_to_do(lab, toolkit):
    lab.sh(HOST, "echo 'deb https://nvidia.github.io/libnvidia-container/stable/ubuntu18.04/amd64 /' "
                 "> /etc/apt/sources.list.d/nvidia-docker.list")  # fmt: skip
    planned = toolkit(check=True)
    assert actions(planned)[:3] == ["remove_file", "add_repository", "install_toolkit"]
    assert installed(lab) == {}
    outcome = toolkit()
    assert outcome["version"] == "1.20.2"
    assert installed(lab) == dict.fromkeys(PACKAGES, "1.20.2-1")
    assert sorted(lab.sh(HOST, "apt-mark showhold").split()) == sorted(PACKAGES)
    config = lab.sh(HOST, "cat /etc/nvidia-container-runtime/config.toml")
    assert "accept-nvidia-visible-devices-envvar-when-unprivileged = false" in config
    assert not toolkit()["changed"]


@pytest.mark.proves("toolkit", "", rows=["debian-12"], note="built from NVIDIA's published source")
def test_unattended_upgrades_do_not_move_it(lab, toolkit):
    toolkit(version="1.19.1")
    lab.sh(HOST, "apt-get -y -qq -o Dir::Etc::sourceparts=/etc/apt/sources.list.d upgrade")
    assert installed(lab) == dict.fromkeys(PACKAGES, "1.19.1-1")
    assert toolkit()["version"] == "1.20.2"


def test_a_version_that_is_not_offered(lab, toolkit):
    assert "All four packages are offered at 1.20.2, 1.19.1" in toolkit(fails=True, version="1.21.0")["msg"]
    assert installed(lab) == dict.fromkeys(PACKAGES, "1.20.2-1")


def test_the_way_back_and_forth(toolkit):
    assert actions(toolkit(device_injection="envvar")) == ["accept_devices"]
    assert not toolkit(device_injection="auto", runtime="docker")["changed"]
    assert actions(toolkit()) == ["accept_devices"]


@pytest.mark.proves("toolkit", "", rows=["debian-12"], note="built from NVIDIA's published source")
def test_a_killed_transaction_is_completed(lab, toolkit):
    lab.sh(
        HOST,
        "cd /tmp; apt-get download -qq libnvidia-container1=1.19.1-1; "
        "dpkg --force-all --unpack /tmp/libnvidia-container1_1.19.1-1_*.deb",
    )
    assert "libnvidia-container1" not in installed(lab)
    outcome = toolkit()
    assert actions(outcome)[:2] == ["repair_package_database", "install_toolkit"]
    assert installed(lab) == dict.fromkeys(PACKAGES, "1.20.2-1")


def test_a_repository_that_does_not_answer_stops_nothing_that_is_right(fleet, lab, toolkit):
    address = fleet.variables["lab_repository_url"]
    dead = {"url": f"{address}/libnvidia-container/stable/deb"}
    lab.run("repository", "off")
    try:
        assert not toolkit()["changed"]
        assert toolkit(fails=True, version="1.19.1", repository=dead)
        assert installed(lab) == dict.fromkeys(PACKAGES, "1.20.2-1")
        assert sorted(lab.sh(HOST, "apt-mark showhold").split()) == sorted(PACKAGES)
    finally:
        lab.run("repository", "on")
    # The dead repository was not left behind.
    assert toolkit()["version"] == "1.20.2"


@pytest.mark.proves("toolkit", "", rows=["debian-12"], note="built from NVIDIA's published source")
def test_absent(lab, toolkit):
    toolkit(state="absent")
    assert installed(lab) == {}
    assert lab.sh(HOST, "apt-mark showhold").split() == []
    assert not toolkit(state="absent")["changed"]
