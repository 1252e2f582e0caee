# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Make C(ansible_collections.gpufleet.nvidia) importable from this checkout, whatever the checkout is called."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from . import times
from .warm_ansible import keep_compiled
from .whole import Whole
from .whole import add_option as pytest_addoption

__all__ = ["pytest_addoption"]

REPOSITORY = Path(__file__).resolve().parent.parent
COLLECTIONS = REPOSITORY / "build" / "collections"


def _link_checkout() -> None:
    link = COLLECTIONS / "ansible_collections" / "gpufleet" / "nvidia"
    link.parent.mkdir(parents=True, exist_ok=True)
    if not link.is_symlink() or link.resolve() != REPOSITORY:
        link.unlink(missing_ok=True)
        link.symlink_to(REPOSITORY, target_is_directory=True)


def _install_finder() -> None:
    from ansible.utils.collection_loader._collection_finder import _AnsibleCollectionFinder

    if "ansible_collections" not in sys.modules:
        _AnsibleCollectionFinder(paths=[str(COLLECTIONS)])._install()
        keep_compiled()


# Under ansible-test the collection is importable already, and the checkout must not be written to.
if not os.environ.get("ANSIBLE_TEST_CONTENT_ROOT"):
    _link_checkout()
    _install_finder()


def _never_judge_the_machine() -> None:
    """Let no property fail because a machine that has much to do took longer over an example than hypothesis expects."""
    from hypothesis import HealthCheck, settings

    settings.register_profile("any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("any-machine")


_never_judge_the_machine()


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Whole(config), "whole")
    times.configure(config)


@pytest.fixture(scope="session")
def python_of():
    """Return a Python of one of some versions that works, in the path or one of pyenv's, and skip by name where there is none."""

    def find(*versions: str) -> str:
        for version in versions:
            installed = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
            for candidate in (shutil.which(f"python{version}"), *map(str, installed)):
                # A version manager may have put a name into the path that leads nowhere.
                if (
                    candidate
                    and subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode == 0
                ):
                    return candidate
        pytest.skip(f"there is no Python {' or '.join(versions)} on this machine")

    return find
