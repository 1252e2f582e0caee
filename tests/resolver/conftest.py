# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Real apt, dnf and zypper in roots of their own, against generated, signed repositories; nothing of the host is touched."""

from __future__ import annotations

import os
import subprocess
import sys
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
def workspace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("resolver")
    # apt's and rpm's helpers may drop privileges.
    for parent in (folder, *folder.parents):
        if parent.stat().st_uid == os.getuid() and str(parent).startswith("/tmp/"):
            parent.chmod(0o755)
    return folder


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
