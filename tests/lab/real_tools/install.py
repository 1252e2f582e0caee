#!/usr/bin/env python3
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Build NVIDIA's tools, unmodified and at pinned versions, through Go's module proxy.

    install.py [TOOL ...]

They go to ${XDG_CACHE_HOME:-~/.cache}/gpufleet/tools/TOOL-VERSION/. Used by tests only. Prints one line per tool and
ends with 1 when one could not be had, with go's reason.

`go install PACKAGE@VERSION` also asks for the list of all versions, which a proxy may refuse while it has the version
itself. A module of our own that requires the version does not ask.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Tool:
    """One program of a Go module."""

    name: str
    module: str
    package: str
    version: str

    @property
    def path(self) -> Path:
        """Where the program is when it is installed."""
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return cache / "gpufleet" / "tools" / f"{self.name}-{self.version}" / self.name


# The newest versions that the proxy had when this was written; reference work was done with mig-parted v0.15.0 and
# k8s-device-plugin v0.20.0.
TOOLS = {
    tool.name: tool
    for tool in (
        Tool("nvidia-mig-parted", "github.com/NVIDIA/mig-parted", "cmd/nvidia-mig-parted", "v0.14.4"),
        Tool("nvidia-ctk", "github.com/NVIDIA/nvidia-container-toolkit", "cmd/nvidia-ctk", "v1.20.0"),
        Tool("gpu-feature-discovery", "github.com/NVIDIA/k8s-device-plugin", "cmd/gpu-feature-discovery", "v0.19.0"),
        Tool("nvidia-device-plugin", "github.com/NVIDIA/k8s-device-plugin", "cmd/nvidia-device-plugin", "v0.19.0"),
    )
}


class NotInstalled(Exception):
    """The tool cannot be had here; the message says why."""


def install(tool: Tool) -> Path:
    """Return the program, building it first when it is not in the cache.

    :raises NotInstalled: no Go, or the proxy does not give it.
    """
    if tool.path.exists():
        return tool.path
    go = shutil.which("go")
    if go is None:
        raise NotInstalled(f"Failed to build {tool.name} {tool.version}: go is not installed. Install Go 1.24 or newer")
    with tempfile.TemporaryDirectory(prefix="gpufleet-tools-") as work:
        for command in (
            [go, "mod", "init", "tools.invalid/pinned"],
            [go, "mod", "edit", f"-require={tool.module}@{tool.version}"],
            [go, "build", "-mod=mod", "-o", tool.name, f"{tool.module}/{tool.package}"],
        ):
            done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
            if done.returncode:
                reason = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "no reason given")
                raise NotInstalled(
                    f"Failed to build {tool.name} {tool.version} by {' '.join(command[1:3])}: {reason.strip()}"
                )
        tool.path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = tool.path.with_suffix(".new")
        shutil.copy2(Path(work) / tool.name, unfinished)
        unfinished.replace(tool.path)
    return tool.path


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
