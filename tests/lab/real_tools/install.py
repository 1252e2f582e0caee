#!/usr/bin/env python3
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Build NVIDIA's tools and what real nodes need beside them, unmodified and at pinned versions, through Go's module proxy.

    install.py [TOOL ...]

They go to ${XDG_CACHE_HOME:-~/.cache}/gpufleet/tools/TOOL-VERSION/. Used by tests only. Prints one line per tool and
ends with 1 when one could not be had, with go's reason.

The versions are pinned in modules/MODULE/go.mod, and everything that they are built from in go.sum beside it: go resolves
nothing, and what the proxy sends is checked. `go install PACKAGE@VERSION` would also ask for the list of all versions,
which a proxy may refuse while it has the version itself.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

MODULES = Path(__file__).resolve().parent / "modules"
_ATTEMPTS = 3


@dataclass(frozen=True)
class Tool:
    """One program of a Go module.

    :param module: its folder below modules/; the go.mod there requires the one module that the program is of.
    :param options: what its own Makefile gives to go build.
    :param package: of the program in its module; cmd/NAME where it is not named, "." for the module itself.
    :param takes: how long a first build takes on two cores.
    :param environment: what go build needs besides.
    """

    name: str
    module: str
    options: tuple[str, ...] = ()
    package: str = ""
    takes: str = "a minute or two"
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def required(self) -> tuple[str, str]:
        """The path of the module that its go.mod requires, and the version."""
        text = (MODULES / self.module / "go.mod").read_text(encoding="utf-8")
        found = re.search(r"^require (\S+) (v\S+)$", text, re.MULTILINE)
        if found is None:
            raise NotInstalled(f"Failed to build {self.name}: {self.module}/go.mod does not require it")
        return found.group(1), found.group(2)

    @property
    def version(self) -> str:
        return self.required[1]

    @property
    def path(self) -> Path:
        """Where the program is when it is installed."""
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return cache / "gpufleet" / "tools" / f"{self.name}-{self.version}" / self.name


# Without optimisation and debug data they are built in half the time, and run as they are built otherwise.
QUICKLY = ("-trimpath", "-gcflags=all=-N -l -dwarf=false")
# Tags of containerd's own build without the storage drivers that need libraries.
_CONTAINERD = ("-tags", "no_btrfs,no_devmapper,no_zfs")
# Tags of CRI-O's own build without the libraries that need a compiler: GPGME, seccomp, and storage drivers.
_CRIO = (
    "-tags",
    "containers_image_openpgp,containers_image_ostree_stub,exclude_graphdriver_btrfs,exclude_graphdriver_devicemapper",
)
_STATIC = ("-tags", "osusergo,netgo", "-ldflags", "-s -w -extldflags=-static")
# Its image is built like this: the host's files are mounted below /host-*.
_DISCOVERY = (
    "-tags",
    "osusergo,netgo",
    "-ldflags",
    "-s -w -extldflags=-static -X sigs.k8s.io/node-feature-discovery/pkg/utils/hostpath.pathPrefix=/host-",
)

# The newest versions that the proxy had when this was written; reference work was done with mig-parted v0.15.0 and
# k8s-device-plugin v0.20.0.
TOOLS = {
    tool.name: tool
    for tool in (
        Tool("nvidia-mig-parted", "mig-parted"),
        Tool("nvidia-ctk", "nvidia-container-toolkit"),
        Tool("nvidia-cdi-hook", "nvidia-container-toolkit"),
        Tool("nvidia-ctk-installer", "nvidia-container-toolkit"),
        Tool("gpu-kubelet-plugin", "dra-driver-nvidia-gpu", takes="3 minutes"),
        Tool("gpu-feature-discovery", "k8s-device-plugin"),
        Tool("nvidia-device-plugin", "k8s-device-plugin"),
        Tool("config-manager", "k8s-device-plugin"),
        Tool("mps-control-daemon", "k8s-device-plugin"),
        # The newest that the proxy gives; 26.7, for which values are rendered, is refused.
        Tool("gpu-operator", "gpu-operator", _STATIC, package=".", takes="2 minutes"),
        Tool("nfd-master", "node-feature-discovery", _DISCOVERY),
        Tool("nfd-worker", "node-feature-discovery", _DISCOVERY),
        Tool("nfd-gc", "node-feature-discovery", _DISCOVERY),
        Tool("containerd", "containerd", _CONTAINERD),
        Tool("containerd-shim-runc-v2", "containerd", _CONTAINERD),
        Tool("ctr", "containerd", _CONTAINERD),
        Tool("crio", "cri-o", _CRIO, takes="5 minutes", environment={"CGO_ENABLED": "0"}),
        # What quotas are rendered for: its objects are v1beta1.
        Tool("kueue", "kueue", ("-ldflags", "-s -w"), takes="6 minutes", environment={"CGO_ENABLED": "0"}),
        # All of its parts in one: it is the part that its name, or ARGOCD_BINARY_NAME, says.
        Tool("argocd", "argo-cd", ("-ldflags", "-s -w"), package="cmd", takes="5 minutes"),
    )
}


class NotInstalled(Exception):
    """The tool is not available here; the message says why."""


def install(tool: Tool) -> Path:
    """Return the program, building it first when it is not in the cache.

    :raises NotInstalled: no Go, or the proxy does not give it.
    """
    if tool.path.exists():
        return tool.path
    go = shutil.which("go")
    if go is None:
        raise NotInstalled(
            f"Failed to build {tool.name} {tool.version}: go is not installed. Install Go 1.26 or newer and put it into PATH"
        )
    tool.path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=tool.path.parent) as work:
        # A copy: go may write to it, and nothing writes to a checkout.
        shutil.copytree(MODULES / tool.module, work, dirs_exist_ok=True)
        _build(go, tool, Path(work))
        # Whole or not at all, also where two test runs build at the same time.
        (Path(work) / tool.name).replace(tool.path)
    return tool.path


def source(module: str) -> Path:
    """The unpacked source of C(module), MODULE@VERSION; the projects' charts are in it.

    :raises NotInstalled: no Go, or the proxy does not give it.
    """
    go = shutil.which("go")
    if go is None:
        raise NotInstalled(
            f"Failed to fetch {module}: go is not installed. Install Go 1.26 or newer and put it into PATH"
        )
    environment = {**os.environ, "GOWORK": "off", "GOFLAGS": "-mod=mod"}
    command = [go, "mod", "download", "-json", module]
    done = subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotInstalled(f"Failed to fetch {module}: {done.stderr.strip() or done.stdout.strip()}")
    return Path(json.loads(done.stdout)["Dir"])


def _build(go: str, tool: Tool, work: Path) -> None:
    package = posixpath.normpath(f"{tool.required[0]}/{tool.package or f'cmd/{tool.name}'}")
    environment = {**os.environ, "GOWORK": "off", "GOFLAGS": "", "GOGC": "off", **tool.environment}
    # A proxy that has to fetch a module first may answer one request late; what was fetched is kept.
    for attempt in range(1, _ATTEMPTS + 1):
        done = subprocess.run(
            [go, "build", "-mod=readonly", *QUICKLY, *tool.options, "-o", tool.name, package],
            cwd=work,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0:
            return
        if attempt == _ATTEMPTS:
            lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
            raise NotInstalled(
                f"Failed to build {tool.name} {tool.version} in {_ATTEMPTS} attempts: {'; '.join(lines[-2:]) or 'go gave no reason'}. "
                "Go 1.26 or newer and a Go module proxy (go env GOPROXY) are needed"
            )


def main(names: list[str]) -> int:
    """Install the named tools, or all."""
    status = 0
    for name in names or list(TOOLS):
        if name not in TOOLS:
            print(f"No tool {name}; there are {', '.join(TOOLS)}", file=sys.stderr)
            return 2
        try:
            print(install(TOOLS[name]))
        except NotInstalled as error:
            print(error, file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
