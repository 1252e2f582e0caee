# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""gpu_info and health on lab hosts, in the states that a host passes through in its life.

The order of the tests is the order of the states: each test puts the host into its state and reads it over ssh, as a
play does. Needs root for the lab, like all of tests/lab.
"""

from __future__ import annotations

import json
import os
import time

import pytest

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="the lab needs root: run this as root"),
]

BOARDS = [{"board": "a100-40gb", "count": 2}]
HOSTS = (
    {"name": "facts-bare", "group": "facts", "boards": BOARDS, "nvswitch": 2},
    {"name": "facts-driver", "group": "facts", "boards": BOARDS, "driver": "installed"},
)
NEWER = "580.178.04"
OLDER = "580.95.05"


class Lab:
    """The two hosts, and the ways to change and to read them."""

    def __init__(self, fleet) -> None:
        self.fleet = fleet
        self.module = fleet.module

    def run(self, host: str, *command: str) -> str:
        done = self.fleet.lab.execute(host, *command)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def state(self, host: str) -> dict:
        return json.loads(self.run(host, "virtual-gpu", "show"))

    def facts(self, host: str, arguments: dict | None = None, *options: str) -> dict:
        answer = self.module(host, "gpu_info", arguments, *options)
        assert answer.get("changed") is False and "gpu" in answer, answer
        return answer["gpu"]

    def doctor(self) -> tuple[int, str, dict]:
        """Run the playbook doctor on all hosts, which nobody described: exit status, what it prints, and its report."""
        report = self.fleet.folder / "doctor.json"
        described = self.fleet.inventory
        self.fleet.inventory = self.fleet.folder / "names.json"
        reached = {name: value for name, value in self.fleet.variables.items() if name.startswith("ansible_")}
        hosts = {host: {"ansible_port": port} for host, port in self.fleet.ports.items()}
        self.fleet.inventory.write_text(json.dumps({"all": {"hosts": hosts, "vars": reached}}))
        try:
            done = self.fleet.play("doctor", "-e", f"gpu_doctor_report={report}")
        finally:
            self.fleet.inventory = described
        assert report.exists(), done.text
        return done.rc, done.text, json.loads(report.read_text())


@pytest.fixture(scope="module")
def lab(make_fleet):
    return Lab(make_fleet("gpu-info-tests", *HOSTS))


def versions(facts):
    driver = facts["driver"]
    return driver["loaded_version"], driver["on_disk_version"], driver["library_version"]


def first_failure(answer):
    return answer["failed_check"], answer["msg"]


def test_a_bare_host(lab):
    facts = lab.facts("facts-bare")
    assert [(device["kind"], device["board"], device["kernel_driver"]) for device in facts["pci"]].count(
        ("gpu", "a100-40gb", None)
    ) == 2
    assert [device["kind"] for device in facts["pci"]].count("nvswitch") == 2
    assert facts["fabric"]["nvswitches"] == 2
    assert versions(facts) == (None, None, None)
    assert facts["gpus"] is None and facts["nvml"]["code"] == "library_not_found"
    assert facts["runtimes"]["containerd"]["active"] is True
    assert facts["runtimes"]["containerd"]["nvidia"] is False
    assert facts["host"]["package_manager"] == "apt"
    assert {"gpus", "driver.library_version", "driver.on_disk_version"} <= set(facts["unknown"])
    name, message = first_failure(lab.module("facts-bare", "health"))
    assert name == "driver" and "nvidia_driver" in message


def test_a_loaded_driver(lab):
    before = lab.state("facts-driver")
    facts = lab.facts("facts-driver", {"gather": ["profiles", "holders", "errors"]})
    assert versions(facts) == (NEWER,) * 3
    assert facts["driver"]["flavour"] == "open" and facts["driver"]["source"] == "nvidia"
    assert [build["state"] for build in facts["driver"]["dkms"]] == ["installed"]
    said = lab.run("facts-driver", "nvidia-smi", "--query-gpu=index,uuid,name", "--format=csv,noheader").splitlines()
    assert [f"{gpu['index']}, {gpu['uuid']}, {gpu['name']}" for gpu in facts["gpus"]] == said
    assert [gpu["pci_address"] for gpu in facts["gpus"]] == [device["address"] for device in facts["pci"]]
    assert facts["gpus"][0]["mig"] == {"supported": True, "current": False, "pending": False}
    assert {"1g.5gb", "7g.40gb"} <= {profile["name"] for profile in facts["gpus"][0]["profiles"]}
    assert facts["unknown"] == {}
    assert lab.state("facts-driver") == before


def test_a_loaded_driver_is_healthy(lab):
    before = lab.state("facts-driver")
    answer = lab.module("facts-driver", "health")
    assert answer["healthy"] is True, answer["msg"]
    assert {check["name"]: check["status"] for check in answer["checks"]}["nvml"] == "passed"
    assert lab.state("facts-driver") == before


def test_doctor_says_of_hosts_that_nobody_described_what_they_are(lab):
    before = lab.state("facts-driver")
    status, text, report = lab.doctor()
    bare, driver = report["facts-bare"], report["facts-driver"]
    assert status != 0 and "Something is wrong with 1 of 2 hosts: facts-bare." in text
    assert bare["identity"]["GPUs"] == "2 x a100-40gb on the PCI bus, not seen by a driver"
    assert bare["failed_check"] == "driver" and bare["stages"]["driver"]["needed"] is True
    (name,) = set(lab.run("facts-driver", "nvidia-smi", "--query-gpu=name", "--format=csv,noheader").splitlines())
    assert driver["identity"]["GPUs"].startswith(f"2 x {name}, ") and driver["identity"]["GPUs"].endswith("(GPU 0-1)")
    assert driver["identity"]["driver"].startswith(f"{NEWER} open from nvidia")
    assert driver["healthy"] is True, driver
    assert "toolkit: install nvidia-container-toolkit" in text
    # Nothing of the collection is left on a host, and nothing changed.
    assert lab.state("facts-driver") == before
    for host in report:
        lab.run(host, "sh", "-c", "! ls -d /usr/local/lib/gpufleet /etc/gpufleet /var/lib/gpufleet 2>/dev/null")


def test_mig_that_is_pending(lab):
    # The persistence daemon holds the GPU, so that an A100 cannot be reset at once.
    lab.run("facts-driver", "nvidia-smi", "-i", "0", "-mig", "1")
    facts = lab.facts("facts-driver")
    assert [gpu["mig"] for gpu in facts["gpus"]] == [
        {"supported": True, "current": False, "pending": True},
        {"supported": True, "current": False, "pending": False},
    ]


def test_without_root(lab):
    lab.run("facts-driver", "sh", "-c", "id reader 2>/dev/null || useradd --create-home --shell /bin/sh reader")
    become = (
        "-b",
        "--become-method",
        "su",
        "--become-user",
        "reader",
        "-e",
        "ansible_shell_allow_world_readable_temp=true",
    )
    facts = lab.facts("facts-driver", {"gather": ["holders"]}, *become)
    assert versions(facts) == (NEWER,) * 3
    assert len(facts["pci"]) == 2
    # The persistence daemon's files are not for this user, and that is said.
    assert "run as root" in facts["unknown"]["holders"]


def test_device_nodes_that_refuse(lab):
    lab.run("facts-driver", "sh", "-c", "virtual-gpu fail nvmlInitWithFlags NO_PERMISSION")
    facts = lab.facts("facts-driver")
    lab.run("facts-driver", "virtual-gpu", "fail", "--clear")
    assert facts["nvml"]["code"] == "no_permission"
    assert facts["gpus"] is None and "root" in facts["unknown"]["gpus"]
    assert versions(facts) == (NEWER,) * 3


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("kill", "killed its caller"),
        # The minute for which it is waited.
        pytest.param("hang:100", "no answer within 60 s", marks=pytest.mark.by_name),
    ],
)
def test_a_library_that_kills_or_hangs(lab, fault, reason):
    lab.run("facts-driver", "virtual-gpu", "fail", "nvmlDeviceGetName", fault)
    started = time.monotonic()
    facts = lab.facts("facts-driver")
    lab.run("facts-driver", "virtual-gpu", "fail", "--clear")
    assert reason in facts["nvml"]["reason"]
    assert facts["gpus"] is None and versions(facts) == (NEWER,) * 3
    assert time.monotonic() - started < 300


def test_a_gpu_that_fell_off_the_bus(lab):
    lab.run("facts-driver", "virtual-gpu", "lose", "--gpu", "1")
    facts = lab.facts("facts-driver")
    name, message = first_failure(lab.module("facts-driver", "health"))
    lab.run("facts-driver", "virtual-gpu", "find", "--gpu", "1")
    assert facts["gpus"][0]["uuid"].startswith("GPU-")
    assert facts["gpus"][1]["lost"] is True and facts["gpus"][1]["uuid"] is None
    assert "lost" in facts["unknown"]["gpus[1]"]
    assert name == "nvidia_smi" and "fallen off the bus" in message


def test_a_driver_that_is_on_disk_only(lab):
    lab.run("facts-driver", "systemctl", "stop", "nvidia-persistenced")
    lab.run("facts-driver", "virtual-gpu", "unload")
    facts = lab.facts("facts-driver")
    assert versions(facts) == (None, NEWER, NEWER)
    assert facts["driver"]["persistence_daemon"] == {"installed": True, "active": False}
    assert facts["nvml"]["code"] == "driver_not_loaded" and facts["gpus"] is None
    name, message = first_failure(lab.module("facts-driver", "health"))
    assert name == "driver" and f"{NEWER} is on disk but not loaded" in message


def test_versions_that_differ(lab):
    lab.run("facts-driver", "virtual-gpu", "load", OLDER, "open")
    facts = lab.facts("facts-driver")
    assert versions(facts) == (OLDER, NEWER, NEWER)
    assert facts["nvml"]["code"] == "version_mismatch" and facts["gpus"] is None
    name, message = first_failure(lab.module("facts-driver", "health"))
    assert name == "driver" and f"driver {OLDER} is loaded" in message and "Run gpufleet.nvidia.upgrade" in message
