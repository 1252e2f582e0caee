# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Container images without a registry: docker archives made from files, under the names that charts and examples use.

What the images of NVIDIA and of Node Feature Discovery hold that counts is there: their programs, built from their source, their
environment, user and entry point, and a C library for what the container toolkit puts in beside them.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_LIBRARIES = "usr/lib/x86_64-linux-gnu"
_LOADER = "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"
_C_LIBRARY = ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libgcc_s.so.1")
_APPLETS = ("sh", "basename", "cat", "chroot", "cp", "date", "echo", "env", "false", "find", "grep", "head", "id", "kill", "ln", "ls", "mkdir", "mount",
            "ps", "rm", "sed", "sleep", "sort", "stat", "tail", "test", "touch", "tr", "true", "umount", "wc")  # fmt: skip
#: What NVIDIA's images set, and what the toolkit reads.
_GPUS = {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: In place of the sample that adds vectors: what the container was given (GPUs, one a line; their memory; MPS's limits), and the
#: sample's last words.
_SAMPLE = """#!/bin/sh
nvidia-smi -L || exit 1
nvidia-smi
if env | grep ^CUDA_MPS; then
    echo "MPS memory limit: $(echo get_default_device_pinned_mem_limit 0 | nvidia-cuda-mps-control)"
    echo "MPS active thread percentage: $(echo get_default_active_thread_percentage | nvidia-cuda-mps-control)"
fi
echo "Test PASSED"
"""


@dataclass(frozen=True)
class Image:
    """An image of one layer.

    :param names: with tag; all that ask for it.
    :param files: path in the image to a file, or to a text.
    :param shell: whether it has a shell and a C library.
    """

    names: tuple[str, ...]
    files: Mapping[str, Path | str]
    entry_point: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    shell: bool = True


def images(
    pause: Path, plugin: Mapping[str, Path], plugin_version: str, discovery: Mapping[str, Path], discovery_version: str
) -> list[Image]:
    """The images that a node needs."""
    usr_bin = {f"usr/bin/{name}": path for name, path in {**plugin, **discovery}.items()}
    return [
        # The first is what containerd 1.6 asks for, the second what 2.4 does.
        Image(("registry.k8s.io/pause:3.6", "registry.k8s.io/pause:3.10.2"), {"pause": pause}, ["/pause"], shell=False),
        Image(
            (f"nvcr.io/nvidia/k8s-device-plugin:{plugin_version}",),
            {path: file for path, file in usr_bin.items() if Path(path).name in plugin},
            ["nvidia-device-plugin"],
            {**_GPUS, "NVIDIA_DISABLE_REQUIRE": "true"},
        ),
        Image(
            (f"registry.k8s.io/nfd/node-feature-discovery:{discovery_version}",),
            {path: file for path, file in usr_bin.items() if Path(path).name in discovery},
            ["nfd-worker"],
            {"GRPC_GO_LOG_SEVERITY_LEVEL": "INFO"},
            user="65534:65534",
        ),
        Image(
            ("nvcr.io/nvidia/k8s/cuda-sample:vectoradd-cuda12.5.0",),
            {"cuda-samples/vectorAdd": _SAMPLE},
            ["/cuda-samples/vectorAdd"],
            _GPUS,
        ),
    ]


def claims_image(programs: Mapping[str, Path], template: Path, version: str) -> Image:
    """The image of NVIDIA's DRA driver: its program, its script and what that needs.

    :param template: of the Deployment that runs an MPS daemon for a claim, in this image.
    """
    name = f"registry.k8s.io/dra-driver-nvidia/dra-driver-nvidia-gpu:{version}"
    environment = {**_GPUS, "NVIDIA_DRIVER_CAPABILITIES": "utility", "NVIDIA_DISABLE_REQUIRE": "true"}
    files = {f"usr/bin/{name}": path for name, path in programs.items()}
    return Image((name,), {**files, f"templates/{template.name}": template}, ["bash"], environment)


def write_archive(image: Image, path: Path, root: Path, busybox: Path) -> None:
    """Write the image as C(docker save) does.

    :param root: a Debian whose C library the image gets.
    """
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as archive:
        _fill(archive, image, root, busybox)
    data = layer.getvalue()
    digest = hashlib.sha256(data).hexdigest()
    environment = {"PATH": _PATH, **image.environment}
    settings = {
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "Env": [f"{key}={value}" for key, value in environment.items()],
            "Entrypoint": list(image.entry_point),
            "WorkingDir": "/",
            **({"User": image.user} if image.user else {}),
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    text = json.dumps(settings).encode()
    name = hashlib.sha256(text).hexdigest()
    manifest = [{"Config": f"{name}.json", "RepoTags": list(image.names), "Layers": [f"{digest}.tar"]}]
    with tarfile.open(path, "w") as archive:
        _add(archive, f"{name}.json", text)
        _add(archive, f"{digest}.tar", data)
        _add(archive, "manifest.json", json.dumps(manifest).encode())


def _fill(archive: tarfile.TarFile, image: Image, root: Path, busybox: Path) -> None:
    if image.shell:
        for directory in (
            "usr/bin",
            "usr/sbin",
            _LIBRARIES,
            "usr/lib64",
            "etc/ld.so.conf.d",
            "dev",
            "proc",
            "sys",
            "run",
            "root",
        ):
            _directory(archive, directory)
        _directory(archive, "tmp", 0o1777)
        # With /usr merged, as in the images of today.
        for name in ("bin", "sbin", "lib", "lib64"):
            _link(archive, name, f"usr/{name}")
        for library in _C_LIBRARY:
            _add(archive, f"{_LIBRARIES}/{library}", (root / _LIBRARIES / library).read_bytes(), 0o755)
        _add(archive, _LOADER, (root / _LOADER).read_bytes(), 0o755)
        _link(archive, "usr/lib64/ld-linux-x86-64.so.2", f"/{_LOADER}")
        _add(archive, "etc/ld.so.conf", b"include /etc/ld.so.conf.d/*.conf\n")
        _add(archive, "etc/passwd", b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n")
        _add(archive, "etc/group", b"root:x:0:\nnogroup:x:65534:\n")
        _add(archive, "usr/bin/busybox", busybox.read_bytes(), 0o755)
        for applet in _APPLETS:
            _link(archive, f"usr/bin/{applet}", "busybox")
    for path, content in image.files.items():
        _add(archive, path, content.encode() if isinstance(content, str) else content.read_bytes(), 0o755)


def _directory(archive: tarfile.TarFile, name: str, mode: int = 0o755) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, mode
    archive.addfile(entry)


def _link(archive: tarfile.TarFile, name: str, target: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    archive.addfile(entry)


def _add(archive: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    archive.addfile(entry, io.BytesIO(data))
