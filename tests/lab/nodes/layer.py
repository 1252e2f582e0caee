# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a lab host that is a node has on its disk beside Debian: kubelet, CNI plugins, images and, where asked for, containerd 2.

A directory of files that lies above the lab's layer; all nodes share it.
"""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path

from hosts import cache
from hosts.commands import run
from hosts.paths import layers
from hosts.progress import Progress

from . import programs
from .images import claims_image, images, write_archive

_IMAGE = Path(__file__).resolve().parent / "image"
_SOURCES = ("layer.py", "images.py", "programs.py")
_PACKAGES = ("bash-static", "busybox-static", "containernetworking-plugins")
CONTAINERD_1_6, CONTAINERD_2_4 = "containerd-1.6", "containerd-2.4"
RUNTIMES = (CONTAINERD_1_6, CONTAINERD_2_4)
_IMAGES = "usr/lib/gpufleet-lab/images"


def ensure_node_layer(runtime: str, base: Path, version: str, progress: Progress) -> Path:
    """The directory of the layer for nodes with C(runtime), built if it is not there yet.

    :param version: of Kubernetes.
    """
    kubernetes = programs.kubernetes(progress, version)
    plugin = programs.tools(programs.DEVICE_PLUGIN, progress)
    discovery = programs.tools(programs.DISCOVERY, progress)
    # The DRA driver needs a runtime that injects CDI devices.
    engine = programs.tools(programs.CONTAINERD, progress) if runtime == CONTAINERD_2_4 else []
    claims = programs.tools(programs.CLAIMS, progress) if runtime == CONTAINERD_2_4 else []
    files = [path for path in _IMAGE.rglob("*") if path.is_file()]
    files += [Path(__file__).with_name(name) for name in _SOURCES]
    made_of = [str(kubernetes), *map(str, (*plugin, *discovery, *engine, *claims))]
    name = cache.content_hash(runtime, made_of, cache.files_hash(files), base.name, platform.machine())

    def build(directory: Path) -> None:
        progress.say(f"making the node's disk with {runtime}: kubelet, CNI plugins, images")
        shutil.copytree(_IMAGE, directory, dirs_exist_ok=True, symlinks=True)
        _copy(kubernetes / "kubelet", directory / "usr/bin/kubelet")
        _network_plugins(directory, base)
        _images(directory, base, kubernetes, plugin, discovery, claims)
        _runtime(directory, base, engine)
        _enable(directory)

    directory, _built = cache.build_once(layers(), f"node-{name}", "a node's disk", progress, build)
    return directory


def _network_plugins(directory: Path, base: Path) -> None:
    """Debian's CNI plugins, and busybox for the images, from the archive that the base was made from."""
    root, work = base / "root", directory / "work"
    (work / "cache/archives/partial").mkdir(parents=True)
    options = [f"Dir={root}", f"Dir::Cache={work / 'cache'}", f"Dir::State::status={root}/var/lib/dpkg/status"]
    settings = [word for option in options for word in ("-o", option)]
    run(["apt-get", *settings, "download", *_PACKAGES], cwd=work)
    for package in work.glob("*.deb"):
        run(["dpkg-deb", "--extract", package, work / "files"])
    shutil.copytree(work / "files/usr/lib/cni", directory / "usr/lib/cni")
    # Where containerd looks unless it is told otherwise.
    (directory / "opt/cni").mkdir(parents=True)
    (directory / "opt/cni/bin").symlink_to("/usr/lib/cni")


def _images(
    directory: Path, base: Path, kubernetes: Path, plugin: list[Path], discovery: list[Path], claims: list[Path]
) -> None:
    work = directory / "work"
    version = kubernetes.name.split("-")[1]
    for program in (*plugin, *discovery, *claims):
        # Symbols double the time that every node needs for the import.
        run(["strip", "-o", work / program.name, program])
    sources = programs.module_source(f"k8s.io/kubernetes@{version}") / "build/pause/linux"
    run(["gcc", "-Os", "-static", "-DVERSION=lab", "-o", work / "pause", sources / "pause.c"])
    made = images(
        work / "pause",
        {path.name: work / path.name for path in plugin},
        programs.version(plugin[0].name),
        {path.name: work / path.name for path in discovery},
        programs.version(discovery[0].name),
    )
    if claims:
        files = {path.name: work / path.name for path in claims}
        script = programs.source(claims[0].name) / "hack" / "kubelet-plugin-prestart.sh"
        files |= {script.name: script, "bash": work / "files/bin/bash-static"}
        daemon = programs.source(claims[0].name) / "templates" / "mps-control-daemon.tmpl.yaml"
        made.append(claims_image(files, daemon, programs.version(claims[0].name)))
    target = directory / _IMAGES
    target.mkdir(parents=True)
    for number, image in enumerate(made):
        name = image.names[0].rpartition("/")[2].partition(":")[0]
        write_archive(image, target / f"{number}-{name}.tar", base / "root", work / "files/bin/busybox")


def _runtime(directory: Path, base: Path, engine: list[Path]) -> None:
    for program in engine:
        # Where a site puts what did not come from a package, before Debian's own in every PATH.
        _copy(program, directory / "usr/local/bin" / program.name)
    if engine:
        unit = (base / "root/lib/systemd/system/containerd.service").read_text(encoding="utf-8")
        target = directory / "etc/systemd/system/containerd.service"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(unit.replace("/usr/bin/containerd", "/usr/local/bin/containerd"), encoding="utf-8")


def _enable(directory: Path) -> None:
    shutil.rmtree(directory / "work")
    wants = directory / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir(parents=True)
    for unit in sorted((directory / "usr/lib/systemd/system").glob("*.service")):
        (wants / unit.name).symlink_to(f"/usr/lib/systemd/system/{unit.name}")
    # A layer below the upper one decides owner and mode of the directories it names.
    for path in [directory, *directory.rglob("*")]:
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)


def _copy(program: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(program, target)
    os.chmod(target, 0o755)
