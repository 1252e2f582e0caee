#!/usr/bin/env python3
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Say what tiers of the tests download and build once on this machine, and refuse where they could not end for lack of disk or memory.

    tools/needs.py TIER...    what is missing, with the minutes of each; exit status 2 where the machine is too small
    tools/needs.py --build    build the Go programs that the default tiers wait for

It runs before there is an environment, with the machine's own Python. What one tier alone needs, and has in a minute, is not named.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "lab"))

from hosts import paths
from hosts.progress import Progress
from nodes import programs
from real_tools import install

LAB = frozenset({"lab", "cluster", "nodes", "pods", "gitops", "upgrade", "debian", "dkms", "molecule", "bench"})
NODES = frozenset({"cluster", "nodes", "pods", "gitops", "upgrade", "debian"})
#: Tiers that build Kubernetes, helm and other programs of Go's: tools/test.sh leaves them out where there is no Go.
GO = NODES | {"programs", "charts", "importer"}
#: MiB that runs write beside what they keep: the disks of lab hosts, logs, tarballs. Measured: 3.5 GB with eight labs at a time.
SCRATCH, SCRATCH_LAB = 500, 4000
#: MiB of memory that a tier with lab hosts needs: three nodes of a cluster with its control plane. Others need the second.
MEMORY_LAB, MEMORY = 6000, 2000


@dataclass(frozen=True)
class Need:
    """Something that is downloaded or built once.

    :param place: where it is then, a pattern below its folder.
    :param minutes: that it takes on two cores; C(mebibytes): what is kept of it, with caches of what it is made from.
    """

    what: str
    tiers: frozenset[str]
    folder: Path
    place: str
    minutes: int
    mebibytes: int

    @property
    def missing(self) -> bool:
        return next(self.folder.glob(self.place), None) is None


def needs() -> Iterator[Need]:
    """Everything that takes more than a minute, in the order in which it is said."""
    tools = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpufleet" / "tools"
    every = LAB | {"unit", "lint", "slow", "resolver", "sanity", "charts", "importer", "oldest-python", "docs", "eda"}
    yield Need("pinned Python tools (.venv)", every, ROOT, ".venv/.requirements", 2, 700)
    for tier, words in (("docs", "docs"), ("eda", "eda"), ("importer", "importer")):
        yield Need(f"Python tools of the tier {tier}", frozenset({tier}), ROOT, f".venv-{words}/bin/python", 1, 300)
    yield Need("ansible-test's environments", frozenset({"sanity"}), Path.home(), ".ansible/test/venv/*", 3, 400)
    yield Need("other releases of ansible-core", frozenset({"lab"}), ROOT, "build/ansible-versions/*/complete", 2, 400)
    yield Need("Debian for lab hosts", LAB, paths.bases(), "*", 3, 700)
    yield Need("what lab hosts have beside Debian", LAB, paths.layers(), "*", 3, 1300)
    kubernetes = f"kubernetes-v{programs.KUBERNETES}*/kubelet"
    yield Need(f"Kubernetes {programs.KUBERNETES}", NODES, tools, kubernetes, 7, 9000)
    for name in (*programs.DEVICE_PLUGIN, *programs.CLAIMS, *programs.CONTAINERD):
        path = install.TOOLS[name].path
        yield Need(f"{name} {install.TOOLS[name].version}", NODES, path.parent, path.name, 1, 500)
    yield Need("helm", NODES | {"charts", "importer"}, tools, "helm*/helm", 2, 500)
    yield Need("oras", frozenset({"importer"}), tools, "oras*/oras", 1, 300)


def refusal(wanted: Iterable[Need], tiers: set[str], free: int, memory: int) -> list[str]:
    """Return why the run could not end, with the remedy; C(free) and C(memory) are what there is, in MiB."""
    lab = tiers & LAB
    disk = sum(need.mebibytes for need in wanted) + (SCRATCH_LAB if lab else SCRATCH)
    part = 'Or run a part that needs less: make test TIERS="unit lint"'
    found = []
    if free < disk:
        found.append(
            f"The run needs {disk / 1024:.1f} GiB of disk, and {free / 1024:.1f} GiB are free. Free {(disk - free) / 1024:.1f} GiB, or name a "
            f"larger disk in XDG_CACHE_HOME. {part}"
        )
    least = MEMORY_LAB if lab else MEMORY
    if memory < least:
        found.append(
            f"The run needs {least / 1024:.1f} GiB of memory, and {memory / 1024:.1f} GiB are free. End what takes it, or use a larger machine. {part}"
        )
    return found


def available() -> tuple[int, int]:
    """Return MiB of free disk, the least of where a run writes, and of memory."""
    places = [place for place in (ROOT, *(paths.cache_root(), *paths.cache_root().parents)) if place.is_dir()][:2]
    free = min(shutil.disk_usage(place).free for place in places) // 1024**2
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    memory = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")) // 1024
    return free, memory


def tell(tiers: set[str]) -> int:
    wanted = [need for need in needs() if need.tiers & tiers and need.missing]
    if wanted:
        print(f"Downloaded or built once, then kept ({sum(need.minutes for need in wanted)} minutes on two cores):")
        for need in wanted:
            print(f"   {need.minutes:3} min  {need.what}")
    else:
        print("Nothing has to be downloaded or built first.")
    if os.geteuid() and tiers & LAB:
        print(f"NOT RUN without root: {' '.join(sorted(tiers & LAB))}. They boot lab hosts: sudo make test")
    if not shutil.which("go") and tiers & GO:
        print(f"NOT RUN without Go: {' '.join(sorted(tiers & GO))}. Install Go 1.26 or newer and put it into PATH.")
    why = refusal(wanted, tiers, *available())
    print(*why, sep="\n", end="\n" if why else "", file=sys.stderr)
    return 2 if why else 0


def build() -> int:
    """Build what takes minutes before any test waits for it."""
    progress = Progress()
    programs.kubernetes(progress, programs.KUBERNETES)
    programs.tools((*programs.DEVICE_PLUGIN, *programs.CLAIMS, *programs.CONTAINERD), progress)
    programs.helm(progress)
    return 0


if __name__ == "__main__":
    sys.exit(build() if sys.argv[1:] == ["--build"] else tell(set(sys.argv[1:])))
