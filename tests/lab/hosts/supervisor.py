# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Keeps one lab host running: mounts its root, boots it, boots it again when it reboots or loses its power.

One process per host, in a mount namespace of its own, so that the host's mounts go when it goes. Signals: TERM takes
the host down at once; USR1 cuts its power and boots it again; USR2 shuts it down in order and leaves it off.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

from .cgroup import enter_own_cgroup, remove_cgroup
from .paths import REPOSITORY_IN_HOST, HostPaths, write_whole

_REBOOT = 133
"""Exit status of systemd-nspawn when the container asked for a reboot."""

_PR_SET_PDEATHSIG = 1
_POWER_OFF = signal.SIGRTMIN + 4
"""systemd as PID 1 powers off in order on this signal."""


class Supervisor:
    """The life of one host."""

    def __init__(self, paths: HostPaths) -> None:
        self._paths = paths
        self._settings: dict[str, Any] = json.loads(paths.settings.read_text(encoding="utf-8"))
        self._down = False
        self._power_cut = False
        self._nspawn: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT):
            signal.signal(number, self._signalled)
        self._mount()
        self._build_in()
        write_whole(self._paths.pid, f"{os.getpid()}\n")
        while not self._down:
            status = self._boot_once()
            # Groups of containers that the end of the host left: a kubelet would look after each of them.
            remove_cgroup(self._settings["machine"])
            if self._power_cut:
                self._power_cut = False
                self._log("power was cut, booting again")
            elif status == _REBOOT:
                self._log("rebooting")
            else:
                self._log(f"off (status {status})")
                break
        self._paths.pid.unlink(missing_ok=True)
        return 0

    def _signalled(self, number: int, _frame: FrameType | None) -> None:
        leader = self._leader()
        if number == signal.SIGUSR2:
            if leader:
                os.kill(leader, _POWER_OFF)
            return
        if number == signal.SIGUSR1:
            self._power_cut = True
        else:
            self._down = True
        if leader:
            # Nothing in the host outlives the end of its first process.
            os.kill(leader, signal.SIGKILL)
        elif self._nspawn is not None and self._nspawn.poll() is None:
            self._nspawn.kill()

    def _mount(self) -> None:
        lower = ":".join(self._settings["lower"])
        options = f"lowerdir={lower},upperdir={self._paths.upper},workdir={self._paths.work},index=off,xino=off"
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, self._paths.root], check=True)

    def _build_in(self) -> None:
        """Put the boards into a new host, before it is switched on for the first time."""
        done = self._paths.directory / "built-in"
        # A host of an older lab has its boards already.
        hardware = self._settings.get("hardware")
        if hardware and not done.exists():
            subprocess.run(["chroot", self._paths.root, *hardware], check=True, stdin=subprocess.DEVNULL)
        done.touch()

    def _boot_once(self) -> int:
        settings = self._settings
        arguments = [
            "systemd-nspawn", "--quiet", f"--directory={self._paths.root}", "--boot", "--register=no", "--keep-unit",
            f"--machine={settings['machine']}", f"--hostname={settings['hostname']}", "--timezone=off",
            "--capability=all", "--drop-capability=CAP_SYS_MODULE,CAP_SYS_TIME", "--console=pipe",
            # What runc calls: session keyrings, and the device filter of cgroup v2.
            "--system-call-filter=@keyring bpf",
            f"--bind-ro={settings['repository']}:{REPOSITORY_IN_HOST}",
            f"--bind={self._paths.containerd}:/var/lib/containerd",
        ]  # fmt: skip
        environment = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1",
            # /proc/sys and /sys have to be writable for the mounts over them; systemd-sysctl and udev are masked.
            "SYSTEMD_NSPAWN_API_VFS_WRITABLE": "1",
        }
        with self._paths.console.open("ab") as console:
            self._nspawn = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                env=environment,
                preexec_fn=self._in_child,
            )
            while True:
                leader = self._leader()
                if leader:
                    write_whole(self._paths.leader, f"{leader}\n")
                    if self._down or self._power_cut:
                        os.kill(leader, signal.SIGKILL)
                    break
                if self._nspawn.poll() is not None:
                    break
                time.sleep(0.02)
            status = self._nspawn.wait()
        self._paths.leader.unlink(missing_ok=True)
        return status

    def _in_child(self) -> None:
        # A supervisor that is killed takes its host with it: nothing of a lab runs unattended.
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        enter_own_cgroup(self._settings["machine"])

    def _leader(self) -> int | None:
        """The process that is PID 1 inside the host."""
        if self._nspawn is None or self._nspawn.poll() is not None:
            return None
        return find_leader(self._nspawn.pid)

    def _log(self, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {self._settings['machine']}: {text}", flush=True)


def find_leader(parent: int) -> int | None:
    """The child of C(parent) that is PID 1 of a PID namespace of its own."""
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            text = status.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
        if int(fields["PPid"]) == parent:
            numbers = fields.get("NSpid", "").split()
            if len(numbers) > 1 and numbers[-1] == "1":
                return int(fields["Pid"])
    return None


def main(arguments: list[str]) -> int:
    paths = HostPaths(Path(arguments[0]))
    paths.failure.unlink(missing_ok=True)
    try:
        return Supervisor(paths).run()
    except (OSError, subprocess.CalledProcessError, ValueError, KeyError) as error:
        paths.failure.write_text(f"{error}\n", encoding="utf-8")
        print(f"Failed to start the host: {error}", flush=True)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
