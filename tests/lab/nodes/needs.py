# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a cluster with Argo CD needs of the machine beside what every lab does, asked before anything is built.

    python3 -m nodes.needs

It says what is in the way, one sentence with the remedy each, and ends with 1; or installs the packages that are missing.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from hosts import needs
from hosts.paths import cache_root
from hosts.progress import LabError, Progress
from real_tools import install

from .argocd import REDIS

_GO = (1, 26)
#: Programs, and what Go keeps of modules and of what it has compiled: measured with empty caches.
_GIB_OF_DISK = 12
_GIB_OF_MEMORY = 6
_PROGRAMS = {"git": "git", "openssl": "openssl", REDIS: "redis-tools"}


def obstacles() -> list[str]:
    """Why there can be no cluster with Argo CD here, one sentence with the remedy each; empty if there can."""
    return [*needs.obstacles(), *_go(), *_room(), *_below_tmp()]


def _go() -> list[str]:
    remedy = f"Install Go {_GO[0]}.{_GO[1]} or newer and put it into PATH."
    if not shutil.which("go"):
        return [f"go is missing: Kubernetes, NVIDIA's programs and Argo CD are built with it. {remedy}"]
    said = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True, check=False).stdout.strip()
    found = re.match(r"go(\d+)\.(\d+)", said)
    if found and tuple(map(int, found.groups())) < _GO:
        return [f"{said} is too old to build Kubernetes. {remedy}"]
    return []


def _room() -> list[str]:
    there = []
    present = next(path for path in (cache_root(), *cache_root().parents) if path.is_dir())
    free = shutil.disk_usage(present).free >> 30
    if free < _GIB_OF_DISK and not install.TOOLS["argocd"].path.exists():
        there.append(
            f"{present} has {free} GiB free, and what is built the first time takes {_GIB_OF_DISK} GiB. Free some, or name another disk "
            "in XDG_CACHE_HOME and GOPATH."
        )
    memory = (
        int(re.findall(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text("ascii"), re.MULTILINE)[0]) >> 20
    )
    if memory < _GIB_OF_MEMORY:
        there.append(
            f"{memory} GiB of memory are available, and three nodes take {_GIB_OF_MEMORY} GiB. End other programs."
        )
    return there


def _below_tmp() -> list[str]:
    program = install.TOOLS["argocd"].path
    if not program.is_relative_to("/tmp"):
        return []
    return [
        f"{program} would be below /tmp, and Argo CD has a /tmp of its own, where it is not. Name another directory in XDG_CACHE_HOME."
    ]


def main() -> int:
    """Refuse, or install the packages."""
    in_the_way = obstacles()
    if in_the_way:
        print("\n".join(in_the_way), file=sys.stderr)
        return 1
    try:
        needs.ensure(Progress(), [package for program, package in _PROGRAMS.items() if not needs.found(program)])
    except LabError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
