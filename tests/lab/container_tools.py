# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Real container runtimes as judges: Debian's packages, unpacked, and containerd releases built from their modules.

Kept in ${XDG_CACHE_HOME:-~/.cache}/gpufleet/tools. A release takes two to four minutes to build, once.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

TOOLS = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpufleet" / "tools"
_MODULE = "github.com/containerd/containerd"
_TAGS = "no_btrfs no_devmapper no_zfs no_aufs"


class ToolMissing(Exception):
    """A tool is not available here; the message says why."""


def debian_program(package: str, program: str) -> Path:
    """Return a program of Debian's C(package), unpacked and not installed."""
    root = TOOLS / "deb" / "root"
    path = root / program
    if not path.exists():
        TOOLS.joinpath("deb").mkdir(parents=True, exist_ok=True)
        _run(["apt-get", "download", package], TOOLS / "deb")
        archive = max((TOOLS / "deb").glob(f"{package}_*.deb"), key=lambda found: found.stat().st_mtime)
        _run(["dpkg", "-x", str(archive), str(root)], TOOLS)
    return path


def containerd(version: str) -> Path:
    """Return containerd C(version), such as C(2.1.5), built with the Go toolchain."""
    return _built(version, f"containerd-{version}", "./cmd/containerd")


def runtime_options(version: str) -> Path:
    """Return the program of runtime_options.go, built with the code of containerd C(version)."""

    def add(source: Path) -> None:
        program = Path(__file__).with_name("runtime_options.go").read_text()
        if not version.startswith("2."):
            for new, old in (
                (
                    'generate "github.com/containerd/containerd/v2/internal/cri/config"',
                    f'generate "{_MODULE}/pkg/cri/server"',
                ),
                ("containerd/v2/internal/cri/config", "containerd/pkg/cri/config"),
                ("go-toml/v2", "go-toml"),
                ("GenerateRuntimeOptions(runtime)", "GenerateRuntimeOptions(runtime, criconfig.Config{})"),
            ):
                program = program.replace(new, old)
            exported = "package server\n\nvar GenerateRuntimeOptions = generateRuntimeOptions\n"
            (source / "pkg" / "cri" / "server" / "exported.go").write_text(exported)
        (source / "cmd" / "runtime_options").mkdir()
        (source / "cmd" / "runtime_options" / "main.go").write_text(program)

    return _built(version, f"containerd-runtime-options-{version}", "./cmd/runtime_options", add)


def template_renderer() -> Path:
    """Return the program of render_template.go."""
    source = Path(__file__).with_name("render_template.go")
    path = TOOLS / f"render-template-{hashlib.sha256(source.read_bytes()).hexdigest()[:16]}"
    if not path.exists():
        if shutil.which("go") is None:
            raise ToolMissing("there is no Go toolchain to build the renderer of templates with")
        TOOLS.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="gpufleet-renderer-") as folder:
            built = f"{folder}/render"
            _run(["go", "build", "-ldflags", "-s -w", "-o", built, str(source)], Path(folder), {"GO111MODULE": "off"})
            shutil.move(built, path)
    return path


def _built(version: str, name: str, package: str, prepare: Callable[[Path], None] | None = None) -> Path:
    """Return a program of containerd's source, which C(prepare) may add to, from the cache."""
    path = TOOLS / name
    if path.exists():
        return path
    if shutil.which("go") is None:
        raise ToolMissing("there is no Go toolchain to build containerd with")
    module = _MODULE + ("/v2" if version.startswith("2.") else "")
    described = json.loads(_run(["go", "mod", "download", "-json", f"{module}@v{version}"], Path("/")))
    TOOLS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gpufleet-containerd-") as folder:
        source = Path(folder) / "source"
        shutil.copytree(described["Dir"], source, ignore=shutil.ignore_patterns("vendor"))
        for place, _folders, _files in os.walk(source):
            os.chmod(place, 0o755)
        for changed in ("go.mod", "go.sum"):
            (source / changed).chmod(0o644)
        if prepare:
            prepare(source)
        built = Path(folder) / name
        flags = f"-s -w -X {module}/version.Version=v{version}"
        _run(["go", "build", "-mod=mod", "-ldflags", flags, "-tags", _TAGS, "-o", str(built), package], source)
        shutil.move(built, path)
    return path


def _run(command: list[str], folder: Path, variables: Mapping[str, str] | None = None) -> str:
    environment = {**os.environ, "CGO_ENABLED": "0", "LC_ALL": "C", **(variables or {})}
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=900, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolMissing(f"{command[0]}: {error}") from error
    if done.returncode:
        raise ToolMissing(f"{' '.join(command)}: {done.stderr.strip()[-500:]}")
    return done.stdout
