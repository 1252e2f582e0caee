# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The container toolkit's packages: the real programs where Go can build them, at the versions they say they are."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

from hosts.cache import locked
from hosts.commands import run
from hosts.paths import cache_root
from hosts.progress import LabError, Progress

from .deb import STAND_IN_NOTE, File, Package
from .platform import Platform
from .scripts import LDCONFIG, service

VERSIONS = ("1.19.0", "1.19.1", "1.20.2")
"""Below the security floor, the floor, and the default."""

_MODULE = "github.com/NVIDIA/nvidia-container-toolkit"
_PROGRAMS = (
    "nvidia-ctk",
    "nvidia-cdi-hook",
    "nvidia-container-runtime",
    "nvidia-container-runtime-hook",
    "nvidia-container-runtime.cdi",
    "nvidia-container-runtime.legacy",
)
_UNITS = ("nvidia-cdi-refresh.service", "nvidia-cdi-refresh.path", "nvidia-cdi-refresh.env")
#: Since 1.20.1.
_DROP_IN = "10-container-engines.conf"
_REAL = "NVIDIA's programs, built by the lab from their published source; packaged by the lab, not by NVIDIA."
_STAND_IN = """#!/bin/sh
# A stand-in of the lab: this machine has no Go to build the real program with.
case "$1" in
    --version|version) echo "{program} version @VERSION@ (lab stand-in)"; exit 0 ;;
esac
echo "{program}: this is a stand-in of the lab. Install Go and rebuild the lab (lab down --purge; lab up)." >&2
exit 1
"""
_CONFIGURE = """#!/bin/sh
set -e
if [ "$1" = configure ]; then
    /usr/bin/nvidia-ctk --quiet config --config-file=/etc/nvidia-container-runtime/config.toml --in-place
fi
"""


def build_all_programs(progress: Progress) -> None:
    """Build the real programs of all versions that are not in the cache yet."""
    for version in VERSIONS:
        build_programs(version, progress)


def build_programs(version: str, progress: Progress) -> Path | None:
    """The directory with the real programs of C(version), built once and kept in the cache.

    :return: None where they cannot be built: the packages then carry stand-ins that say so.
    """
    programs = cache_root() / "programs"
    with locked(programs / ".lock", progress, "the container toolkit"):
        return _build_programs(version, programs / f"nvidia-container-toolkit-{version}", progress)


def _build_programs(version: str, target: Path, progress: Progress) -> Path | None:
    if target.is_dir():
        return target
    if not shutil.which("go"):
        progress.say("Go is not installed: the container toolkit's packages carry stand-ins (remedy: install Go)")
        return None
    partial = target.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    progress.say(f"building the container toolkit {version} with Go")
    try:
        with progress.alive(f"the container toolkit {version}"):
            _go_install(version, partial)
            _fetch_units(version, partial)
    except LabError as error:
        progress.say(f"the container toolkit {version} carries stand-ins: {error}")
        shutil.rmtree(partial)
        return None
    partial.rename(target)
    return target


def _go_install(version: str, target: Path) -> None:
    flags = f"-s -w -extldflags=-Wl,-z,lazy -X {_MODULE}/internal/info.version={version}"
    packages = [f"{_MODULE}/cmd/{program}@v{version}" for program in _PROGRAMS]
    run(
        ["go", "install", "-trimpath", f"-ldflags={flags}", *packages],
        extra_environment={"GOBIN": str(target), "CGO_ENABLED": "1", "CGO_CFLAGS": "-w", "GOFLAGS": "-buildvcs=false"},
        remedy="Check that Go's module proxy is reachable.",
    )


def _fetch_units(version: str, target: Path) -> None:
    """The units come from the same published source as the programs."""
    told = json.loads(run(["go", "mod", "download", "-json", f"{_MODULE}@v{version}"]))
    published = Path(told["Dir"]) / "deployments/systemd"
    for unit in (*_UNITS, *([_DROP_IN] if (published / _DROP_IN).exists() else [])):
        shutil.copyfile(published / unit, target / unit)


def runs_in(base: Path, programs: Path, progress: Progress) -> bool:
    """Whether the hosts can run C(programs): built on a newer system they may want a newer C library."""
    with tempfile.TemporaryDirectory(dir=base / "root/var/tmp") as directory:
        inside = Path(directory) / "nvidia-ctk"
        shutil.copy2(programs / "nvidia-ctk", inside)
        try:
            run(["chroot", base / "root", f"/{inside.relative_to(base / 'root')}", "--version"])
        except LabError as error:
            progress.say(f"the container toolkit's packages carry stand-ins: {error}")
            return False
    return True


def toolkit_packages(version: str, platform: Platform, programs: Path | None, stub_library: Path) -> list[Package]:
    """The four packages of one version, with NVIDIA's dependencies: every part wants exactly its own version."""
    debian = f"{version}-1"
    note = _REAL if programs else STAND_IN_NOTE

    def program(name: str) -> File:
        if programs:
            return File(source=programs / name, executable=True)
        text = _STAND_IN.format(program=name).replace("@VERSION@", version)
        if name == "nvidia-ctk":
            text = text.replace("esac", "    --quiet) exit 0 ;;\nesac", 1)
        return File(text=text, executable=True)

    base_files = {f"/usr/bin/{name}": program(name) for name in _PROGRAMS if name != "nvidia-container-runtime-hook"}
    scripts: dict[str, str] = {"postinst": _CONFIGURE}
    configuration: tuple[str, ...] = ()
    if programs:
        base_files["/lib/systemd/system/nvidia-cdi-refresh.service"] = File(
            source=programs / "nvidia-cdi-refresh.service"
        )
        base_files["/lib/systemd/system/nvidia-cdi-refresh.path"] = File(source=programs / "nvidia-cdi-refresh.path")
        if (programs / _DROP_IN).exists():
            drop_in = f"/lib/systemd/system/nvidia-cdi-refresh.service.d/{_DROP_IN}"
            base_files[drop_in] = File(source=programs / _DROP_IN)
        configuration = ("/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env",)
        base_files[configuration[0]] = File(source=programs / "nvidia-cdi-refresh.env")
        scripts = _refresh_scripts()
    cli = _STAND_IN.format(program="nvidia-container-cli").replace("@VERSION@", version)
    return [
        Package(
            "nvidia-container-toolkit-base",
            debian,
            "NVIDIA Container Toolkit base",
            fields={"Breaks": "nvidia-container-runtime (<= 3.5.0-1), nvidia-container-toolkit (<= 1.10.0-1)"},
            files=base_files,
            scripts=scripts,
            configuration=configuration,
            note=note,
        ),
        Package(
            "nvidia-container-toolkit",
            debian,
            "NVIDIA Container Toolkit",
            fields={
                "Depends": f"nvidia-container-toolkit-base (= {debian}), libnvidia-container-tools (= {debian}), "
                "libnvidia-container-tools (<< 2.0.0)"
            },
            files={"/usr/bin/nvidia-container-runtime-hook": program("nvidia-container-runtime-hook")},
            note=note,
        ),
        Package(
            "libnvidia-container-tools",
            debian,
            "NVIDIA container command line tools",
            fields={"Depends": f"libnvidia-container1 (= {debian})"},
            files={"/usr/bin/nvidia-container-cli": File(text=cli, executable=True)},
        ),
        Package(
            "libnvidia-container1",
            debian,
            "NVIDIA container runtime library",
            fields={"Depends": "libc6"},
            files={
                f"{platform.libraries}/libnvidia-container.so.{version}": File(source=stub_library),
                f"{platform.libraries}/libnvidia-container.so.1": File(link=f"libnvidia-container.so.{version}"),
            },
            scripts={"triggers": LDCONFIG},
        ),
    ]


def _refresh_scripts() -> dict[str, str]:
    """Both units of the CDI refresh are enabled by the package, after the configuration is written."""
    path = service("nvidia-cdi-refresh.path")
    oneshot = service("nvidia-cdi-refresh.service")
    body = "\n".join(text.split("\n", 2)[2] for text in (path["postinst"], oneshot["postinst"]))
    return {
        "postinst": _CONFIGURE + body,
        "prerm": path["prerm"],
        "postrm": path["postrm"] + oneshot["postrm"].split("\n", 2)[2],
    }
