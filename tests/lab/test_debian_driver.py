# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Debian's driver built by DKMS against Debian's real kernel headers, brought by the module driver in one call.

The one real build of the tests (minutes). The lab's hosts run the machine's kernel, which Debian has no headers for: this
one says that it runs Debian's, and everything in it, apt, DKMS and the module, acts on that.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.stage_times import stage_time

sys.path.insert(0, str(Path(__file__).resolve().parent))

from debian import EXACT, FIXED, REVISIONS, DebianHost

pytestmark = pytest.mark.dkms


@pytest.fixture(scope="module")
def host(make_fleet):
    # Without the stand-in headers: what DKMS builds for has to come from Debian.
    spec = {"name": "debian-build", "group": "debian", "headers": False, "boards": [{"board": "t4", "count": 1}]}
    host = DebianHost(make_fleet("pytest-debian-build", spec), "debian-build")
    host.sh("apt-get -q update")
    return host


@pytest.fixture(scope="module")
def kernel(host, tmp_path_factory) -> str:
    """Debian's kernel, which the host takes for the running one."""
    found = host.sh("apt-cache depends linux-headers-amd64 | sed -n 's/.*Depends: linux-headers-//p'").split()[0]
    host.runs(found, tmp_path_factory.mktemp("kernel"))
    return str(found)


@pytest.fixture(scope="module")
def answer(host, kernel):
    assert kernel in host.sh("uname -r")
    assert host.packages() == {}
    return host.driver(branch="535")


def test_the_headers_of_the_kernel_come_first(answer, kernel):
    kinds = [step["kind"] for step in answer["steps"]]
    assert kinds.index("install_prerequisites") < kinds.index("install_driver")
    headers = next(step for step in answer["steps"] if step["kind"] == "install_prerequisites")
    # Those of the kernel, and what brings the headers of every later one.
    wanted = [f"linux-headers-{kernel}", "linux-headers-amd64"]
    assert [name for name, _version in headers["data"]["packages"]] == wanted


def test_the_branch_comes_at_its_newest_version(answer, host):
    assert answer["version"] == FIXED
    packages = host.packages()
    assert {name: packages.get(name) for name in EXACT} == dict.fromkeys(EXACT, REVISIONS[FIXED])
    assert set(packages) <= set(host.sh("apt-mark showhold").split())
    assert host.would_be_moved() == []


@pytest.mark.proves("driver", "distribution", rows=["debian-12"], level="real", note="a real build")
@pytest.mark.usefixtures("answer")
def test_dkms_built_the_real_modules_for_the_kernel(host, kernel):
    assert host.sh("dkms status").splitlines() == [f"nvidia-current/{FIXED}, {kernel}, x86_64: installed"]
    assert host.sh(f"modinfo -k {kernel} -F version nvidia-current").strip() == FIXED
    assert host.sh(f"modinfo -k {kernel} -F vermagic nvidia-current").startswith(f"{kernel} SMP")
    size = int(host.sh(f"stat -c %s $(modinfo -k {kernel} -F filename nvidia-current)"))
    assert size > 10_000_000, "an empty module file is a failed build"


def test_a_tenth_of_the_first_run_of_the_real_driver_at_most_is_the_collections_own(answer):
    time = stage_time("driver", answer)
    assert time.waits["build"] > time.waits["packages"] > 0, answer["seconds"]
    assert time.ours <= time.elapsed / 10, answer["seconds"]


@pytest.mark.usefixtures("answer")
def test_a_second_run_has_nothing_to_do_and_the_facts_agree(host, kernel):
    assert not host.driver(branch="535")["changed"]
    facts = host.fleet.facts(host.name)
    assert (facts["host"]["kernel"], facts["host"]["kernel_headers"]) == (kernel, True)
    driver = facts["driver"]
    assert (driver["on_disk_version"], driver["library_version"], driver["loaded_version"]) == (FIXED, FIXED, None)
    assert (driver["source"], driver["flavour"]) == ("distribution", "proprietary")


@pytest.mark.usefixtures("answer")
def test_the_real_nvidia_smi_says_that_no_driver_is_loaded(host):
    done = host.fleet.lab.run("exec", host.name, "--", "nvidia-smi", check=False)
    assert done.returncode == 9
    assert done.stdout.startswith("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver")
