# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The driver's packages of one version, as NVIDIA's repository for Debian 12 has them.

The meta packages ask for their parts with C(>=), as NVIDIA's do: asking for an old nvidia-open alone brings the newest
driver, and only the pinning packages prevent it (reference: the pinning traps of the host documentation).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hosts.commands import run

from .deb import File, Package
from .platform import Platform
from .scripts import LDCONFIG, dkms_add, service

VERSIONS = ("580.126.09", "580.178.04", "595.91.07")
"""Below the security floor of its branch, the floor, and the floor of the next branch."""

_SOURCES = Path(__file__).resolve().parent / "sources"
_CUDA = {"580": "13000", "595": "13020"}
_BLACKLIST = (
    "# nouveau and the driver cannot own a GPU at the same time.\nblacklist nouveau\noptions nouveau modeset=0\n"
)
_SOFT_DEPENDENCIES = "softdep nvidia post: nvidia-uvm\n"


def compile_programs(version: str, virtual_nvml: Path, work: Path) -> dict[str, Path]:
    """Compile what the packages of C(version) ship; return the files by their purpose."""
    build = work / version
    build.mkdir(parents=True)
    # One folder for all versions: only the library itself differs.
    nvml = work / "nvml"
    nvml.mkdir(exist_ok=True)
    run(["make", "-j2", "-C", virtual_nvml, f"BUILD={nvml}", f"VERSION={version}"], log=nvml / "make.log")
    compiler = ["gcc", "-O2", "-Wall", "-Werror", f'-DVERSION="{version}"', f"-DCUDA_VERSION={_CUDA[version[:3]]}"]
    daemons = {"persistenced": "nvidia-persistenced", "fabricmanager": "nv-fabricmanager", "imex": "nvidia-imex"}
    for source, program in daemons.items():
        run([*compiler, "-o", build / program, _SOURCES / f"{source}.c", "-ldl"])
    shared = [*compiler, "-shared", "-fPIC"]
    run([*shared, "-Wl,-soname,libcuda.so.1", "-o", build / "libcuda", _SOURCES / "libcuda.c"])
    for library in ("libnvidia-cfg", "libnvidia-nscq"):
        empty = "int lab_stand_in = 1;\n"
        run([*shared, "-x", "c", f"-Wl,-soname,{library}.so.1", "-o", build / library, "-"], stdin=empty)
    return {
        "libnvidia-ml": nvml / f"libnvidia-ml.so.{version}",
        "nvidia-smi": nvml / "nvidia-smi",
        "nvidia-persistenced": build / "nvidia-persistenced",
        "nv-fabricmanager": build / "nv-fabricmanager",
        "nvidia-imex": build / "nvidia-imex",
        "libcuda": build / "libcuda",
        "libnvidia-cfg": build / "libnvidia-cfg",
        "libnvidia-nscq": build / "libnvidia-nscq",
    }


def driver_packages(
    version: str, platform: Platform, programs: Mapping[str, Path], debian_programs: Mapping[str, Mapping[str, File]]
) -> list[Package]:
    """All packages of one driver version; C(debian_programs) are real programs of Debian's archive, by package."""
    debian = f"{version}-1"

    def package(name: str, summary: str, depends: str = "", **rest: object) -> Package:
        fields = {"Depends": depends, **rest.pop("fields", {})}  # type: ignore[dict-item]
        return Package(name, debian, summary, fields=fields, **rest)  # type: ignore[arg-type]

    def library(name: str, soname: str, program: str, depends: str = "libc6") -> Package:
        files = {
            f"{platform.libraries}/{soname}.{version}": File(source=programs[program]),
            f"{platform.libraries}/{soname}.1": File(link=f"{soname}.{version}"),
        }
        return package(name, f"NVIDIA {soname} library", depends, files=files, scripts={"triggers": LDCONFIG})

    def exactly(*names: str) -> str:
        return ", ".join(f"{name} (= {debian})" for name in names)

    def at_least(*names: str) -> str:
        return ", ".join(f"{name} (>= {debian})" for name in names)

    kernel = f"nvidia-kernel-open-dkms (= {debian}) | nvidia-kernel-dkms (= {debian})"
    return [
        package(
            "nvidia-open",
            "NVIDIA driver meta package, open kernel modules",
            at_least("nvidia-driver", "nvidia-driver-cuda", "nvidia-kernel-open-dkms"),
        ),
        package(
            "cuda-drivers",
            "NVIDIA driver meta package, proprietary kernel modules",
            at_least("nvidia-driver", "nvidia-driver-cuda", "nvidia-kernel-dkms"),
        ),
        package(
            "nvidia-driver",
            "NVIDIA driver",
            f"{exactly('libnvidia-cfg1')}, {at_least('nvidia-modprobe')}, {kernel}",
        ),
        package(
            "nvidia-driver-cuda",
            "NVIDIA driver, compute part",
            f"libc6, {exactly('libcuda1', 'libnvidia-ml1', 'libnvidia-cfg1', 'nvidia-cuda-mps')}, "
            f"{at_least('nvidia-persistenced', 'nvidia-modprobe')}, {kernel}",
            fields={"Provides": f"nvidia-smi (= {debian})", "Conflicts": "nvidia-smi", "Replaces": "nvidia-smi"},
            files={"/usr/bin/nvidia-smi": File(source=programs["nvidia-smi"], executable=True)},
        ),
        _kernel_modules("nvidia-kernel-open-dkms", version, "Dual MIT/GPL", conflicts="nvidia-kernel-dkms"),
        _kernel_modules("nvidia-kernel-dkms", version, "NVIDIA", conflicts="nvidia-kernel-open-dkms"),
        package(
            "nvidia-kernel-support",
            "NVIDIA kernel module settings",
            files={
                "/usr/lib/modprobe.d/nvidia-blacklists-nouveau.conf": File(text=_BLACKLIST),
                "/usr/lib/modprobe.d/nvidia.conf": File(text=_SOFT_DEPENDENCIES),
            },
        ),
        library("libnvidia-ml1", "libnvidia-ml.so", "libnvidia-ml"),
        library("libcuda1", "libcuda.so", "libcuda"),
        library("libnvidia-cfg1", "libnvidia-cfg.so", "libnvidia-cfg"),
        library("libnvidia-nscq", "libnvidia-nscq.so", "libnvidia-nscq"),
        package(
            "nvidia-persistenced",
            "NVIDIA persistence daemon",
            "adduser, libc6, libnvidia-cfg1",
            files={
                "/usr/bin/nvidia-persistenced": File(source=programs["nvidia-persistenced"], executable=True),
                "/lib/systemd/system/nvidia-persistenced.service": _unit("nvidia-persistenced.service"),
            },
            scripts=service("nvidia-persistenced.service", before=_ACCOUNT),
        ),
        package(
            "nvidia-modprobe",
            "NVIDIA utility that loads modules and makes device files; Debian's program",
            "libc6",
            files=debian_programs["nvidia-modprobe"],
        ),
        package(
            "nvidia-cuda-mps",
            "NVIDIA CUDA multi-process service; Debian's program",
            "libc6",
            files=debian_programs["nvidia-cuda-mps"],
        ),
        package(
            "nvidia-fabricmanager",
            "NVIDIA fabric manager for NVSwitch",
            "libc6",
            fields={"Recommends": f"libnvidia-nscq (= {debian})"},
            files={
                "/usr/bin/nv-fabricmanager": File(source=programs["nv-fabricmanager"], executable=True),
                "/lib/systemd/system/nvidia-fabricmanager.service": _unit("nvidia-fabricmanager.service"),
                "/usr/share/nvidia/nvswitch/fabricmanager.cfg": File(text="LOG_LEVEL=4\nFABRIC_MODE=0\n"),
            },
            scripts=service("nvidia-fabricmanager.service", enable=False),
        ),
        package(
            "nvidia-imex",
            "NVIDIA IMEX service for NVLink networks",
            "libc6",
            files={
                "/usr/bin/nvidia-imex": File(source=programs["nvidia-imex"], executable=True),
                "/lib/systemd/system/nvidia-imex.service": _unit("nvidia-imex.service"),
                "/etc/nvidia-imex/config.cfg": File(text="IMEX_NODE_CONFIG_FILE=/etc/nvidia-imex/nodes_config.cfg\n"),
            },
            scripts=service("nvidia-imex.service", enable=False),
        ),
        pinning(version, debian, f"{version}-*"),
    ]


_ACCOUNT = """        if ! getent passwd nvpd >/dev/null; then
            adduser --system --group --quiet --home /var/run/nvpd/ --no-create-home nvpd
        fi
"""


def _unit(name: str) -> File:
    return File(text=(_SOURCES / "units" / name).read_text(encoding="utf-8"))


def _kernel_modules(name: str, version: str, module_license: str, *, conflicts: str) -> Package:
    sources = _SOURCES / "kernel-modules"
    place = f"/usr/src/nvidia-{version}"

    def filled(file_name: str) -> File:
        text = (sources / file_name).read_text(encoding="utf-8")
        return File(text=text.replace("@VERSION@", version).replace("@LICENSE@", module_license))

    return Package(
        name,
        f"{version}-1",
        f"NVIDIA kernel modules ({module_license}) as DKMS source",
        fields={
            "Depends": f"dkms, nvidia-kernel-support (= {version}-1)",
            "Provides": f"nvidia-kernel-{version}",
            "Conflicts": conflicts,
            "Replaces": conflicts,
        },
        files={
            f"{place}/dkms.conf": filled("dkms.conf.in"),
            f"{place}/Makefile": filled("Makefile.in"),
            f"{place}/module.c": File(source=sources / "module.c"),
        },
        scripts=dkms_add("nvidia", version),
    )


def pinning(suffix: str, debian: str, pattern: str) -> Package:
    """A pinning package, for a branch or for a version; only one of them can be installed."""
    text = "\n".join(
        f"Package: {name}\nPin: version {pattern}\nPin-Priority: 1000\n"
        for name in ("*nvidia*", "libcuda1", "cuda-drivers*")
    )
    return Package(
        f"nvidia-driver-pinning-{suffix}",
        debian,
        f"Pins the NVIDIA driver to {suffix}",
        fields={
            "Provides": "nvidia-driver-pinning",
            "Conflicts": "nvidia-driver-pinning",
            "Replaces": "nvidia-driver-pinning",
        },
        files={"/etc/apt/preferences.d/nvidia-driver-pin": File(text=text)},
        configuration=("/etc/apt/preferences.d/nvidia-driver-pin",),
        architecture="all",
    )


def branch_pinnings() -> list[Package]:
    """One pinning package per branch, at the newest version of the branch."""
    newest = {version.split(".")[0]: version for version in sorted(VERSIONS)}
    return [pinning(branch, f"{version}-1", f"{branch}.*") for branch, version in newest.items()]
