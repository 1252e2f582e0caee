# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The Debian that every lab host starts from: built once by mmdebstrap, then shared read-only by all hosts."""

from __future__ import annotations

import shutil
from pathlib import Path

from . import cache
from .commands import run
from .mirror import SUITE, Mirror, credentials
from .paths import bases
from .progress import Progress

PACKAGES = (
    "systemd", "systemd-sysv", "dbus", "openssh-server", "python3", "python3-apt", "ca-certificates", "iproute2",
    "kmod", "gnupg", "procps", "psmisc", "curl", "pciutils",
    "gcc", "make", "dkms", "containerd",
)  # fmt: skip
"""A host as an ordinary site hands it over: systemd, ssh, a compiler with DKMS, and Debian's containerd."""

_MASKED = (
    # They change settings of the kernel that the host shares with the machine, or have no hardware to work on.
    "systemd-sysctl.service", "systemd-binfmt.service", "systemd-modules-load.service", "systemd-remount-fs.service",
    "systemd-tmpfiles-setup-dev.service", "systemd-udevd.service", "systemd-random-seed.service",
    "proc-sys-fs-binfmt_misc.automount", "sys-kernel-debug.mount", "sys-kernel-tracing.mount",
    "sys-kernel-config.mount", "dev-hugepages.mount", "dev-mqueue.mount", "console-getty.service", "getty@.service", "getty-static.service",
    "getty.target", "apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer",
    "fstrim.timer", "systemd-networkd-wait-online.service", "dbus-org.freedesktop.timesync1.service",
)  # fmt: skip

_FETCHED = ("nvidia-cuda-mps", "nvidia-modprobe")
"""Debian packages that the lab's own package repository carries again; real programs that need no GPU."""

DIVERTED = ("modprobe", "rmmod", "insmod", "lsmod")
"""Tools that the lab's layer replaces; the real kmod is called by them for everything that is not NVIDIA's."""

_FORMAT = 1


def ensure_base(mirror: Mirror, progress: Progress) -> Path:
    """The directory with the base: C(root) is the root file system, C(debs) the packages that were fetched."""
    name = cache.content_hash(
        _FORMAT, PACKAGES, _MASKED, _FETCHED, DIVERTED, [source.line() for source in mirror.sources], mirror.apt_options
    )

    def build(directory: Path) -> None:
        _bootstrap(directory, mirror, progress)

    directory, _built = cache.build_once(bases(), name, "the base system", progress, build)
    return directory


def _bootstrap(directory: Path, mirror: Mirror, progress: Progress) -> None:
    progress.say(f"building the base system: Debian {SUITE} with {len(PACKAGES)} packages, about a minute or two")
    root = directory / "root"
    options = directory / "apt.conf"
    options.write_text(mirror.apt_options, encoding="utf-8")
    with progress.alive("the base system", directory / "build.log"):
        run(
            [
                "mmdebstrap", "--variant=minbase", "--format=directory",
                "--skip=cleanup/apt,cleanup/apt/lists,cleanup/apt/cache",
                "--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/locale/*",
                "--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=force-unsafe-io",
                f"--aptopt={options}", f"--include={','.join(PACKAGES)}",
                SUITE, root, "-",
            ],
            log=directory / "build.log",
            stdin="".join(f"{source.line()}\n" for source in mirror.sources),
            remedy="Check that the mirror and the network are reachable; the next run starts again.",
        )  # fmt: skip
    progress.say("preparing the base system for the lab")
    _configure(root, mirror)
    _fetch(root, directory / "debs", directory / "build.log")
    owned = (root / "var/lib/dpkg/info/kmod.list").read_text(encoding="utf-8").splitlines()
    for path in (f"/{place}/{tool}" for tool in DIVERTED for place in ("sbin", "bin")):
        if path in owned:
            run(["chroot", root, "dpkg-divert", "--local", "--rename", "--divert", f"{path}.kmod", "--add", path])


def _configure(root: Path, mirror: Mirror) -> None:
    for unit in _MASKED:
        link = root / "etc/systemd/system" / unit
        link.unlink(missing_ok=True)
        link.symlink_to("/dev/null")
    (root / "etc/systemd/system/default.target").unlink(missing_ok=True)
    (root / "etc/systemd/system/default.target").symlink_to("/lib/systemd/system/multi-user.target")
    for key in (root / "etc/ssh").glob("ssh_host_*"):
        key.unlink()
    for name in ("etc/machine-id", "var/lib/dbus/machine-id", "etc/hostname"):
        (root / name).unlink(missing_ok=True)
    (root / "etc/apt/sources.list").unlink(missing_ok=True)
    for leftover in (root / "etc/apt/sources.list.d").glob("*"):
        leftover.unlink()
    lines = "".join(f"{source.line()}\n" for source in mirror.sources)
    (root / "etc/apt/sources.list.d/debian.list").write_text(lines, encoding="utf-8")
    (root / "etc/apt/apt.conf.d/80machine").write_text(mirror.apt_options, encoding="utf-8")
    for path, text in credentials().items():
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch(mode=0o600)
        target.write_text(text, encoding="utf-8")
    (root / "etc/apt/apt.conf.d/99mmdebstrap").unlink(missing_ok=True)
    for archive in (root / "var/cache/apt/archives").glob("*.deb"):
        archive.unlink()
    certificates = Path("/etc/ssl/certs/ca-certificates.crt")
    if certificates.is_file():
        # A machine behind an inspecting proxy trusts that proxy: so must its hosts.
        shutil.copyfile(certificates, root / "etc/ssl/certs/ca-certificates.crt")


def _fetch(root: Path, target: Path, log: Path) -> None:
    target.mkdir()
    resolver = root / "etc/resolv.conf"
    shutil.copyfile("/etc/resolv.conf", resolver)
    run(["chroot", root, "sh", "-c", 'cd /var/tmp && apt-get download "$@"', "sh", *_FETCHED], log=log)
    for path in (root / "var/tmp").glob("*.deb"):
        shutil.move(str(path), target / path.name)
    resolver.unlink()
