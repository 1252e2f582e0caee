# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a new host has on its disk: its boards, its kernel's headers and, where the specification says so, a driver."""

from __future__ import annotations

import platform
import shlex
import shutil
from pathlib import Path

from . import cache
from .commands import run
from .paths import REPOSITORY_IN_HOST, layers
from .progress import Progress
from .spec import HostSpec

_INSTALLED_BRANCH = "580"
_APT = ["apt-get", "--yes", "--no-install-recommends", "install"]
#: A container that is not booted: packages enable their services, and start none.
_CONTAINER = (
    "systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--timezone=off", "--link-journal=no",
    "--resolv-conf=replace-host", "--setenv=DEBIAN_FRONTEND=noninteractive", "--setenv=SYSTEMD_OFFLINE=1",
)  # fmt: skip


def ensure_disk(spec: HostSpec, base: Path, layer: Path, repository: Path, progress: Progress) -> Path:
    """The layer with what is installed on the disk of such a host; the same for every host of its kind, whatever its boards."""
    commands = _commands(spec, repository)
    name = cache.content_hash(base.name, layer.name, repository.name, commands)

    def build(directory: Path) -> None:
        what = "the driver" if spec.driver != "none" else "the kernel's headers" if spec.headers else "nothing"
        progress.say(f"making a disk with {what} installed")
        _install(directory, [layer, base / "root"], repository, commands)

    directory, _built = cache.build_once(layers(), f"disk-{name}", "a host's disk", progress, build)
    return directory


def _commands(spec: HostSpec, repository: Path) -> list[list[str]]:
    """The programs to run on the disk, in order."""
    commands: list[list[str]] = [["depmod", platform.release()]]
    if spec.headers:
        commands.extend(
            ["dpkg", "--install", f"{REPOSITORY_IN_HOST}/kernel/{path.name}"]
            for path in sorted((repository / "kernel").glob(f"linux-headers-{platform.release()}_*.deb"))
        )
    if spec.driver == "none":
        return commands
    keyring = next(iter(sorted((repository / "compute/cuda/repos").glob("*/*/cuda-keyring_*.deb"))))
    commands += [
        ["dpkg", "--install", f"{REPOSITORY_IN_HOST}/{keyring.relative_to(repository)}"],
        ["apt-get", "update"],
        # In a transaction of its own: the pin has to be there before apt chooses versions.
        [*_APT, f"nvidia-driver-pinning-{_INSTALLED_BRANCH}"],
        [*_APT, "nvidia-driver-cuda", "nvidia-kernel-open-dkms"],
    ]
    if spec.nvswitch:
        # Without it CUDA does not start on boards behind NVSwitches. Its version has to be the driver's.
        commands += [[*_APT, "nvidia-fabricmanager"], ["systemctl", "enable", "nvidia-fabricmanager.service"]]
    return commands


def _install(directory: Path, lower: list[Path], repository: Path, commands: list[list[str]]) -> None:
    scratch = directory.with_suffix(".mounted")
    shutil.rmtree(scratch, ignore_errors=True)
    for folder in ("root", "work"):
        (scratch / folder).mkdir(parents=True)
    # The upper layer decides what / looks like to services that are not root.
    directory.chmod(0o755)
    options = f"lowerdir={':'.join(map(str, lower))},upperdir={directory},workdir={scratch / 'work'},index=off,xino=off"
    inside = [*_CONTAINER, f"--directory={scratch / 'root'}", f"--bind-ro={repository}:{REPOSITORY_IN_HOST}"]
    lines = [["mount", "-t", "overlay", "overlay", "-o", options, str(scratch / "root")]]
    lines += [[*inside, *command] for command in commands]
    # Mounted in a namespace of its own: the mount is gone with the last process, whatever happened.
    script = "\n".join(map(shlex.join, lines))
    run(["unshare", "--mount", "bash", "-euc", script], log=scratch / "install.log")
    for name in ("etc/resolv.conf", "etc/machine-id"):
        (directory / name).unlink(missing_ok=True)
    shutil.rmtree(scratch)


def hardware_command(spec: HostSpec) -> list[str]:
    """The call of virtual-gpu that puts the boards of C(spec) into the host."""
    command = ["virtual-gpu", "create", "--seed", spec.name]
    for boards in spec.boards:
        command += ["--board", boards.board, "--count", str(boards.count)]
    if spec.nvswitch:
        command += ["--nvswitch", str(spec.nvswitch)]
    return command
