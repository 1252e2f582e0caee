# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The main job by every ansible-core release that the collection is for, beside the one that the other tests run with.

Each release has an environment of its own with the pinned packages of the controller, and the collection as users have it: built to a
tarball and installed from that, without the repository. It brings the host to a layout of its own, and then has nothing to do.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from ansible_collections.gpufleet.nvidia.tests.unit.roles.hostile_results import WRITTEN, outcome

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="the lab needs root: run this as root"),
]

REPOSITORY = Path(__file__).resolve().parents[2]
TOOLS = REPOSITORY / ".venv" / "bin"
HOST = "versions-1"
#: Release to the newest Python that it runs on and the MIG layout of its turn.
RELEASES = {
    "2.18.19": (("3.11", "3.12", "3.13"), "all-balanced"),
    "2.20.10": (("3.12", "3.13", "3.14"), "all-1g.10gb"),
    "2.21.5": (("3.12", "3.13", "3.14"), "all-3g.40gb"),
}


@pytest.fixture(scope="module")
def fleet(make_fleet):
    return make_fleet(
        "ansible-versions",
        {"name": HOST, "group": "training", "boards": [{"board": "h100-80gb-sxm", "count": 2}]},
    )


def programs_of(release: str, python_of) -> Path:
    """The folder of ansible-core's programs of this release; made when it is not there."""
    versions, _layout = RELEASES[release]
    python = python_of(*versions)
    environment = REPOSITORY / "build" / "ansible-versions" / release
    if not (environment / "complete").exists():
        subprocess.run([python, "-m", "venv", "--clear", str(environment)], check=True)
        wanted = ["-r", str(REPOSITORY / "meta" / "ee-requirements.txt"), f"ansible-core=={release}"]
        pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *wanted], check=True)
        (environment / "complete").touch()
    return environment / "bin"


@pytest.fixture(scope="module")
def tarball(tmp_path_factory):
    """The collection, built."""
    folder = tmp_path_factory.mktemp("tarball")
    build = [TOOLS / "ansible-galaxy", "collection", "build", "--output-path", folder, REPOSITORY]
    subprocess.run(build, check=True, capture_output=True)
    (built,) = folder.glob("gpufleet-nvidia-*.tar.gz")
    return built


#: The oldest; the others by name.
EACH_RELEASE = pytest.mark.parametrize(
    "release",
    [pytest.param(release, marks=pytest.mark.by_name if number else ()) for number, release in enumerate(RELEASES)],
)


@pytest.mark.by_name
@EACH_RELEASE
def test_the_main_job_and_then_nothing_to_do(fleet, tarball, tmp_path, python_of, release):
    programs = programs_of(release, python_of)
    said = subprocess.run([programs / "ansible", "--version"], capture_output=True, text=True, check=True).stdout
    assert said.startswith(f"ansible [core {release}]")
    install = [programs / "ansible-galaxy", "collection", "install", "-p", tmp_path, tarball]
    # Where this checkout is in the path already, the installer would find nothing to do.
    alone = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(tmp_path)}
    subprocess.run(install, check=True, capture_output=True, env=alone)
    where = {"programs": programs, "collections": tmp_path}
    fleet.describe(
        {
            "training": {
                "hosts": [HOST],
                "vars": {"nvidia_mig_strategy": "mixed", "nvidia_mig_layout": RELEASES[release][1]},
            }
        }
    )
    first = fleet.play("site", **where)
    assert first.rc == 0 and first.recap[HOST]["changed"] > 0, first.text
    second = fleet.play("site", **where)
    assert second.rc == 0 and second.quiet(HOST), second.text
    for playbook in ("plan", "verify", "inspect", "render"):
        run = fleet.play(playbook, **where)
        assert run.rc == 0, run.text


@pytest.mark.by_name
@EACH_RELEASE
def test_whatever_a_host_answers_the_others_go_on(tmp_path, python_of, release):
    status, went_on, text = outcome(tmp_path, programs_of(release, python_of))
    # From 2.21 on Ansible itself gives a value of a wrong type the right one, before the action plugin sees it.
    converts = tuple(map(int, release.split(".")[:2])) >= (2, 21)
    refused = {name for name in went_on if name.startswith("refused") and not converts}
    refused |= {name for name, (_written, goes_on) in WRITTEN.items() if not goes_on}
    assert {name for name, on in went_on.items() if not on} == refused
    assert status == 2, text[-3000:]
