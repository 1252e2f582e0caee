# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Real apt, dnf and zypper in roots of their own, against generated, signed repositories; nothing of the host is touched."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent))

from repositories import Signer


def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in Path(item.fspath).parents:
            item.add_marker(pytest.mark.resolver)


@pytest.fixture(scope="session")
def memory():
    """Return a folder in memory: rpm and dpkg sync every step to the disk, which takes minutes where others use it too."""
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="gpufleet-resolver-", dir=place) as folder:
        # apt's and rpm's helpers may drop privileges.
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture(scope="session")
def workspace(memory):
    folder = memory / "repositories"
    folder.mkdir(mode=0o755)
    return folder


@pytest.fixture
def tmp_path(memory):
    """A folder of the test's own, as pytest's, in memory."""
    folder = Path(tempfile.mkdtemp(dir=memory))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def plugins():
    """Return the folder with dnf's plugins, after everything that these tests need is installed."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "gpufleet" / "resolver"
    done = subprocess.run([str(HERE / "tools.sh"), str(cache)], capture_output=True, text=True, check=False)
    if done.returncode == 3:
        pytest.fail(f"the resolver tests cannot run here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    return cache


@pytest.fixture(scope="session")
def signer(workspace, plugins):
    assert plugins.is_dir()
    key = Signer.create(workspace / "gnupg")
    yield key
    key.close()
