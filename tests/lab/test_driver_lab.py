# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module driver on a lab host: real apt, dpkg, DKMS and systemd, packages shaped like NVIDIA's, virtual GPUs.

The tests run in order: each begins with what the one before left. Needs root for the lab, like all of tests/lab.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="the lab needs root: run this as root"),
]

HOST = "driver-1"
REPOSITORY = "/srv/gpufleet-lab/repository/compute/cuda/repos/debian12/x86_64"
OLD, NEW, NEXT = "580.126.09", "580.178.04", "595.91.07"


class DriverLab:
    """One host, and the module on it."""

    def __init__(self, fleet: Any) -> None:
        self.fleet = fleet
        self.lab = fleet.lab
        self.fingerprint = fleet.variables["nvidia_driver_repository_key_fingerprint"]

    def sh(self, script: str, check: bool = True) -> str:
        return self.lab.sh(HOST, script, check=check)

    def driver(self, *options: str, **arguments) -> dict:
        """Call the module and return its result."""
        repository = {
            "url": f"file://{REPOSITORY}",
            "key_file": f"{REPOSITORY}/cuda-archive-keyring.gpg",
            "key_fingerprint": self.fingerprint,
        }
        return self.fleet.module(HOST, "driver", {"repository": repository, **arguments}, *options, timeout=1800)

    def packages(self) -> dict[str, str]:
        shown = self.sh("dpkg-query -W -f '${db:Status-Status} ${Package} ${Version}\\n'")
        words = [line.split() for line in shown.splitlines() if line.startswith("installed ")]
        return {name: version for _state, name, version in words}

    def versions(self) -> tuple[str, str]:
        loaded = self.sh("cat /sys/module/nvidia/version 2>/dev/null || true").strip()
        return loaded, self.sh("modinfo -F version nvidia 2>/dev/null || true").strip()


@pytest.fixture(scope="module")
def host(make_fleet):
    boards = [{"board": "h100-80gb-sxm", "count": 2}]
    return DriverLab(make_fleet("driver-tests", {"name": HOST, "group": "driver", "boards": boards}))


def brought(answer: dict) -> dict:
    """Return a result that is a success; a failed one has a message and no steps of its own."""
    assert "reboot_required" in answer, answer.get("msg", answer)
    return answer


def changes(answer: dict) -> list[tuple[str, str | None]]:
    """Return the kinds of the steps, each with the version that it brings."""
    return [(step["kind"], step["data"].get("version")) for step in answer["steps"]]


@pytest.mark.by_name
def test_check_mode_of_the_whole_site_shows_the_plan_of_a_bare_host(host):
    before = host.sh("find /etc /var/lib/dpkg /var/lib/apt /usr/share/keyrings -type f | sort | xargs -r sha256sum")
    played = host.fleet.play("site", "--check", "--diff", timeout=1800)
    assert played.rc == 0, played.text
    for shown in (
        "add repository gpufleet-nvidia-driver",
        f"signed by {host.fingerprint}",
        f"pin the driver to {NEW}",
        f"install driver {NEW}",
        "hold the whole driver",
        f'"nvidia-kernel-open-dkms": "{NEW}-1"',
        "add repository nvidia-container-toolkit",
        "install nvidia-container-toolkit 1.20.2",
        "accept-nvidia-visible-devices-envvar-when-unprivileged = false",
    ):
        assert shown in played.text, shown
    after = host.sh("find /etc /var/lib/dpkg /var/lib/apt /usr/share/keyrings -type f | sort | xargs -r sha256sum")
    assert after == before
    assert not [name for name in host.packages() if "nvidia" in name]


def test_a_key_with_another_fingerprint_is_refused_and_nothing_is_left(host):
    repository = {
        "url": f"file://{REPOSITORY}",
        "key_file": f"{REPOSITORY}/cuda-archive-keyring.gpg",
        "key_fingerprint": "0" * 40,
    }
    answer = host.driver(version=NEW, repository=repository)
    assert "expected only 0000" in answer["msg"]
    assert (
        host.sh("ls /etc/apt/sources.list.d /etc/apt/keyrings 2>/dev/null | grep gpufleet-nvidia-driver || true") == ""
    )


def test_a_version_that_is_not_offered_is_refused_and_the_repository_taken_away_again(host):
    answer = host.driver(version="580.190.01")
    assert f"The nearest that they offer is {NEW}" in answer["msg"]
    assert host.sh("ls /etc/apt/sources.list.d | grep gpufleet-nvidia-driver || true") == ""


def test_below_the_floor_is_refused(host):
    answer = host.driver(version=OLD)
    assert answer["refusals"][0]["thing"] == "nvidia_driver_version"


def test_check_mode_changes_nothing(host):
    before = host.packages()
    answer = host.driver("--check", version=NEW)
    assert answer["changed"]
    assert host.packages() == before


@pytest.mark.proves("driver", "nvidia", rows=["debian-12"])
def test_installation_is_proven_and_idempotent(host):
    answer = brought(host.driver(version=OLD, allow_vulnerable=True))
    assert answer["version"] == OLD
    assert host.versions() == (OLD, OLD)
    assert host.sh("nvidia-smi -L").count("GPU ") == 2
    assert host.sh("systemctl is-active nvidia-persistenced").strip() == "active"
    held = set(host.sh("apt-mark showhold").split())
    assert {"libcuda1", "nvidia-kernel-open-dkms", "nvidia-driver-cuda"} <= held
    again = host.driver(version=OLD, allow_vulnerable=True)
    assert not again["changed"], changes(again)


def test_unattended_upgrades_cannot_move_it(host):
    moved = [
        line
        for line in host.sh("apt-get -s dist-upgrade").splitlines()
        if line.startswith("Inst ") and "nvidia" in line
    ]
    assert moved == []


@pytest.mark.proves("driver", "nvidia", rows=["debian-12"])
def test_an_upgrade_is_reloaded_without_a_reboot(host):
    planned = brought(host.driver("--check", version=NEXT))
    assert ("change_driver", NEXT) in changes(planned)
    main = next(step for step in planned["steps"] if step["kind"] == "change_driver")
    moved = {change["name"]: (change["before"], change["after"]) for change in main["data"]["changes"]}
    assert moved["libcuda1"] == (f"{OLD}-1", f"{NEXT}-1")
    answer = brought(host.driver(version=NEXT))
    assert not answer["reboot_required"]
    assert host.versions() == (NEXT, NEXT)
    assert ("reload_driver", NEXT) in changes(answer)


@pytest.mark.proves("driver", "nvidia", rows=["debian-12"])
def test_previous_goes_back_to_the_same_package_set(host):
    brought(host.driver(state="previous"))
    assert host.versions() == (OLD, OLD)
    assert not host.driver(state="previous")["changed"]


@pytest.mark.by_name
def test_a_driver_in_use_is_refused_by_all_until_a_reboot_is_allowed(host):
    """Another driver under a process of somebody: nothing moves, and a host that was forced is mended by what the message names."""
    # The lab's kernel has nothing behind the device file; O_PATH opens it all the same, and procfs shows it as open.
    hold = "import os, time; os.open('/dev/nvidiactl', os.O_PATH); time.sleep(900)"
    host.sh(f'systemd-run --unit=holder python3 -c "{hold}"; sleep 1')
    holder = host.sh("systemctl show --property=MainPID --value holder").strip()
    before = host.packages()

    def says(sentence: str, playbook: str, *options: str) -> None:
        played = host.fleet.play(playbook, *options, timeout=1800)
        assert played.rc != 0 and sentence in " ".join(played.text.split()), played.text[-4000:]

    assert f"python3 (PID {holder})" in host.driver(version=NEW)["msg"]
    sentence = f"driver {OLD} is loaded and is in use by python3 (PID {holder})"
    for playbook in ("plan", "site", "verify"):
        says(sentence, playbook)
        assert (host.versions(), host.packages()) == ((OLD, OLD), before)
    assert sentence in " ".join(host.fleet.play("doctor").text.split())
    forced = ("--tags", "driver", "-e", "nvidia_driver_disruption=force")
    says(
        f"Driver {NEW} is installed and not loaded: python3 (PID {holder}) uses the driver. Reboot the host",
        "site",
        *forced,
    )
    assert host.versions() == (OLD, NEW)
    for playbook in ("plan", "site", "verify"):
        says(f"the packages are of driver {NEW}, and driver {OLD} is loaded and is in use", playbook)
    mended = host.fleet.play("site", "--tags", "driver", "-e", "nvidia_driver_reboot=true", timeout=1800)
    assert mended.rc == 0, mended.text[-4000:]
    assert host.versions() == (NEW, NEW)
    assert host.sh("systemctl is-active holder || true").strip() != "active"


def test_a_killed_apt_is_repaired_by_the_next_run(host):
    # What a power cut in the middle of dpkg leaves: unpacked and not configured.
    host.sh(
        "apt-mark unhold $(apt-mark showhold) > /dev/null; cd /tmp; "
        f"dpkg --unpack --force-all {REPOSITORY}/libcuda1_{NEXT}-1_amd64.deb > /dev/null"
    )
    answer = brought(host.driver(version=NEW))
    assert ("repair_package_database", None) in changes(answer)
    assert host.packages()["libcuda1"] == f"{NEW}-1"
    assert host.sh("dpkg --audit") == ""
    assert "libcuda1" in host.sh("apt-mark showhold").split()


@pytest.mark.proves("driver", "nvidia", rows=["debian-12"])
def test_the_other_flavour_replaces_the_first(host):
    brought(host.driver(version=NEW, flavour="proprietary"))
    packages = host.packages()
    assert "nvidia-kernel-dkms" in packages
    assert "nvidia-kernel-open-dkms" not in packages


@pytest.mark.proves("driver", "nvidia", rows=["debian-12"])
def test_removal_leaves_neither_packages_nor_pins(host):
    brought(host.driver(state="absent"))
    assert not [
        name for name in host.packages() if name.startswith(("nvidia-driver", "nvidia-kernel", "libnvidia", "libcuda"))
    ]
    assert host.sh("apt-mark showhold") == ""
    assert host.sh("ls /etc/apt/preferences.d | grep -i nvidia || true") == ""
    assert host.versions()[0] == ""
    assert not host.driver(state="absent")["changed"]
