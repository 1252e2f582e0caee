# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The programs of a cluster: built once at pinned versions by scripts of the repository, and found in their cache."""

from __future__ import annotations

import subprocess
from pathlib import Path

from hosts.progress import LabError, Progress
from real_tools import install

_TESTS = Path(__file__).resolve().parents[2]
_KUBERNETES = _TESTS / "cluster" / "build.sh"
_HELM = _TESTS / "charts" / "build-helm.sh"
#: The newest release that can be built here, which every lab and test has that names no other.
KUBERNETES = "1.37.2"
#: The oldest one that serves claims: what it does otherwise is tested by name.
OLDEST_KUBERNETES = "1.34.4"
DEVICE_PLUGIN = ("nvidia-device-plugin", "gpu-feature-discovery", "config-manager", "mps-control-daemon")
DISCOVERY = ("nfd-master", "nfd-worker", "nfd-gc")
#: NVIDIA's DRA driver for GPUs, and the hook that it brings to nodes for containers.
CLAIMS = ("gpu-kubelet-plugin", "nvidia-cdi-hook")
CONTAINERD = ("containerd", "containerd-shim-runc-v2", "ctr")


def kubernetes(progress: Progress, version: str = KUBERNETES) -> Path:
    """The folder with the control plane, etcd, kubelet and kubectl; a first build takes 7 minutes on two cores."""
    with progress.alive("the build of Kubernetes"):
        return _script(_KUBERNETES, f"v{version}")


def helm(progress: Progress) -> Path:
    """The program helm; a first build takes 2 minutes on two cores."""
    with progress.alive("the build of helm"):
        return _script(_HELM)


def tools(names: tuple[str, ...], progress: Progress) -> list[Path]:
    """The programs of Go modules that real_tools/install.py builds; minutes the first time."""
    found = []
    for name in names:
        tool = install.TOOLS[name]
        if not tool.path.exists():
            progress.say(f"building {name} {tool.version} (once; {install.TOOLS[name].takes} on 2 cores)")
        with progress.alive(f"the build of {name}"):
            found.append(_installed(tool))
    return found


def version(name: str) -> str:
    """The version that the program C(name) is pinned to."""
    return install.TOOLS[name].version


def source(name: str) -> Path:
    """The source that the program C(name) is built from."""
    return module_source("@".join(install.TOOLS[name].required))


def chart(name: str) -> Path:
    """The chart that comes with the program C(name), unmodified."""
    return next(source(name).glob("deployment*/helm/*/Chart.yaml")).parent


def module_source(module: str) -> Path:
    """The source of a Go module, MODULE@VERSION."""
    try:
        return install.source(module)
    except install.NotInstalled as error:
        raise LabError(str(error)) from error


def _installed(tool: install.Tool) -> Path:
    try:
        return install.install(tool)
    except install.NotInstalled as error:
        raise LabError(str(error)) from error


def _script(script: Path, *arguments: str) -> Path:
    # What it says while it builds goes to the person who waits.
    done = subprocess.run([script, *arguments], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise LabError(f"Failed to build with {script}: exit status {done.returncode}; its reason is above.")
    return Path(done.stdout.strip().splitlines()[-1])
