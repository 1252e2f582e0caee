# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What rendering a large inventory costs, beside C(ansible-inventory --list) on the same inventory."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
BINARIES = Path(sys.executable).parent
HOSTS = 10_000
POOLS = 50
TURNS = 3

_KINDS = (
    "gpu_facts_gpus: [{board: h100-80gb-sxm, count: 8}]\nnvidia_mig_strategy: mixed\nnvidia_mig_layout: all-balanced\n",
    "gpu_facts_gpus: [{board: a100-40gb, count: 8}]\nnvidia_mig_strategy: single\nnvidia_mig_layout: all-1g.5gb\n",
    "gpu_facts_gpus: [{board: l40s-48gb, count: 4}]\nnvidia_sharing_mode: mps\nnvidia_sharing_memory_slice: 4GiB\n",
)


def run() -> dict[str, object]:
    """Time both commands in turns; compare medians, and the cost of a host in a fleet a fifth of the size."""
    folder = Path(tempfile.mkdtemp(prefix="gpufleet-bench-render-"))
    try:
        large, small = folder / "large", folder / "small"
        _inventory(large, HOSTS)
        _inventory(small, HOSTS // 5)
        first = _timed(_render(large, folder / "out"))
        written = _snapshot(folder / "out")
        render, listing = [first], list[float]()
        for _turn in range(TURNS):
            listing.append(_timed([str(BINARIES / "ansible-inventory"), "-i", str(large), "--list"]))
            render.append(_timed(_render(large, folder / "out")))
        if _snapshot(folder / "out") != written:
            raise RuntimeError("a second run wrote files")
        fresh = statistics.median(_fresh(large, folder) for _turn in range(TURNS))
        of_small = statistics.median(_fresh(small, folder) for _turn in range(TURNS))
        empty = statistics.median(_timed(_render(_tiny(folder), folder / "tiny-out")) for _turn in range(TURNS))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {
        "render.ratio_to_inventory_list_10000_hosts": fresh / statistics.median(listing),
        "render.ratio_without_changes": statistics.median(render[1:]) / statistics.median(listing),
        "render.seconds_10000_hosts": fresh,
        "render.seconds_per_1000_hosts": (fresh - empty) / (HOSTS / 1000),
        "render.seconds_per_1000_hosts_of_2000": (of_small - empty) / (HOSTS / 5 / 1000),
    }


def _fresh(inventory: Path, folder: Path) -> float:
    """Time a run that writes everything."""
    output = folder / "fresh"
    shutil.rmtree(output, ignore_errors=True)
    return _timed(_render(inventory, output))


def _inventory(folder: Path, hosts: int, pools: int = POOLS) -> None:
    (folder / "group_vars").mkdir(parents=True)
    lines = ["gpu_hosts:", "  children:"]
    for pool in range(pools):
        lines += [f"    pool{pool:02d}:", "      hosts:", f"        gpu-{pool:02d}-[0001:{hosts // pools:04d}]:"]
        (folder / "group_vars" / f"pool{pool:02d}.yml").write_text(_KINDS[pool % len(_KINDS)])
    (folder / "group_vars" / "gpu_hosts.yml").write_text('nvidia_driver_branch: "580"\ngpu_kubernetes_cluster: large\n')
    (folder / "hosts.yml").write_text("\n".join(lines) + "\n")


def _tiny(folder: Path) -> Path:
    tiny = folder / "tiny"
    if not tiny.exists():
        _inventory(tiny, 3, 3)
    return tiny


def _render(inventory: Path, output: Path) -> list[str]:
    option = f"gpu_kubernetes_output_directory={output}"
    return [str(BINARIES / "ansible-playbook"), "-i", str(inventory), "gpufleet.nvidia.render", "-e", option]


def _timed(command: list[str]) -> float:
    environment = {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": str(REPOSITORY / "build" / "collections"),
        "ANSIBLE_CONFIG": str(REPOSITORY / "examples" / "ansible.cfg"),
    }
    started = time.monotonic()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return time.monotonic() - started


def _snapshot(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in sorted(folder.rglob("*")) if path.is_file()}
