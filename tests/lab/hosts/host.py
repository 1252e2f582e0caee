# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One lab host: made from base and layer, switched on and off, reached from the machine."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from .cgroup import remove_cgroup
from .commands import run
from .paths import LAB_SOURCE, HostPaths, write_whole
from .prepare import hardware_command
from .progress import LabError
from .spec import HostSpec

_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# As in the host itself: a program started from outside may not set the machine's clock or load modules either.
_DROPPED = "-sys_module,-sys_time"
_KERNEL_THREAD = 0x00200000
#: A bound for what hangs: several labs may boot on few cores.
_BOOT_SECONDS = 300.0
_RUNNING = ("running", "degraded")
#: Identity, boards, logs, and what no boot keeps.
_OF_ONE_HOST = (
    "etc/ssh/ssh_host_*", "etc/ssh/sshd_config.d/port.conf", "root/.ssh", "root/.ansible", "etc/machine-id",
    "etc/hostname", "etc/hosts", "etc/resolv.conf", "var/lib/virtual-gpu", "var/lib/systemd/random-seed",
    "var/lib/dbus/machine-id", "var/log/journal/*", "run/*", "tmp/*", "var/tmp/*", "var/cache/apt/archives/*.deb",
)  # fmt: skip


class Host:
    """A host of a lab, by name and directory."""

    def __init__(self, lab: str, spec: HostSpec, port: int, paths: HostPaths) -> None:
        self.name = spec.name
        self.spec = spec
        self.port = port
        self.paths = paths
        self.machine = f"{lab}-{spec.name}"

    def create(self, lower: Sequence[Path], repository: Path, authorized_key: str) -> str:
        """Make the host's disk; return the public part of its ssh host key."""
        paths = self.paths
        for directory in (paths.upper, paths.work, paths.root, paths.containerd):
            directory.mkdir(parents=True)
        # The upper layer decides what / looks like to services that are not root.
        paths.upper.chmod(0o755)
        ssh = paths.upper / "etc/ssh"
        (ssh / "sshd_config.d").mkdir(parents=True)
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", self.name, "-f", ssh / "ssh_host_ed25519_key"])
        (ssh / "sshd_config.d/port.conf").write_text(f"Port {self.port}\n", encoding="ascii")
        home = paths.upper / "root/.ssh"
        home.mkdir(parents=True)
        home.parent.chmod(0o700)
        home.chmod(0o700)
        (home / "authorized_keys").write_text(authorized_key, encoding="ascii")
        (home / "authorized_keys").chmod(0o600)
        etc = paths.upper / "etc"
        (etc / "machine-id").write_text(f"{uuid.uuid4().hex}\n", encoding="ascii")
        (etc / "hostname").write_text(f"{self.name}\n", encoding="ascii")
        (etc / "hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 {self.name}\n::1 localhost\n", encoding="ascii")
        shutil.copyfile("/etc/resolv.conf", etc / "resolv.conf")
        settings = {
            "machine": self.machine,
            "hostname": self.name,
            "lower": [str(path) for path in lower],
            "repository": str(repository),
            "hardware": hardware_command(self.spec) if self.spec.boards else [],
        }
        paths.settings.write_text(json.dumps(settings, indent=1), encoding="utf-8")
        return (ssh / "ssh_host_ed25519_key.pub").read_text(encoding="ascii")

    def copy_disk(self, target: Path) -> None:
        """Copy what was written on the host's disk since it was made, without what must differ from host to host.

        :raises LabError: the host is on.
        """
        if self.supervisor():
            raise LabError(
                f"Failed to copy the disk of {self.name}: the host is on. Stop it with 'lab stop {self.name}'."
            )
        run(["cp", "--archive", "--reflink=auto", f"{self.paths.upper}/.", target])
        for pattern in _OF_ONE_HOST:
            for path in target.glob(pattern):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()

    def supervisor(self) -> int | None:
        """The process id of the host's supervisor while it runs."""
        return live_process(self.paths.pid, str(self.paths.directory))

    def leader(self) -> int | None:
        """The process id, on this machine, of the host's PID 1."""
        try:
            number = int(self.paths.leader.read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None
        return number if Path(f"/proc/{number}").exists() else None

    def start(self) -> None:
        """Switch the host on, unless it is on."""
        if self.supervisor():
            return
        environment = {**os.environ, "PYTHONPATH": str(LAB_SOURCE), "PYTHONDONTWRITEBYTECODE": "1"}
        with self.paths.supervisor_log.open("ab") as log:
            process = subprocess.Popen(
                ["unshare", "--mount", "--propagation=slave", sys.executable, "-m", "hosts.supervisor",
                 str(self.paths.directory)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd="/", env=environment,
                start_new_session=True,
            )  # fmt: skip
        # unshare replaces itself by the supervisor: the number stays, and a stop during the start finds it.
        write_whole(self.paths.pid, f"{process.pid}\n")

    def wait_until_running(self, previous_leader: int | None = None) -> float:
        """Wait until systemd has started and ssh answers; return the seconds it took.

        :param previous_leader: PID 1 of the boot that has to be over first.
        :raises LabError: the host failed to start.
        """
        start = time.monotonic()
        gone = 0
        while time.monotonic() - start < _BOOT_SECONDS:
            if self.paths.failure.exists():
                reason = self.paths.failure.read_text(encoding="utf-8").strip()
                raise LabError(f"Failed to start {self.name}: {reason}. See {self.paths.supervisor_log}.")
            leader = self.leader()
            if leader and leader != previous_leader and self.state() in _RUNNING and self._ssh_answers():
                return time.monotonic() - start
            # More than once: a program that is just being started has no command line for a moment.
            gone = gone + 1 if leader is None and self.supervisor() is None else 0
            if gone > 2:
                raise LabError(f"Failed to start {self.name}: it went off. See {self.paths.console}.")
            time.sleep(0.1)
        raise LabError(
            f"Failed to start {self.name}: systemd is {self.state() or 'not there'} after {_BOOT_SECONDS:.0f} s. "
            f"See {self.paths.console} and {self.paths.supervisor_log}."
        )

    def wait_until_off(self) -> None:
        """Wait until the host has shut down.

        :raises LabError: it does not.
        """
        start = time.monotonic()
        while self.supervisor() is not None:
            if time.monotonic() - start > _BOOT_SECONDS:
                raise LabError(f"Failed to stop {self.name}: still {self.state()} after {_BOOT_SECONDS:.0f} s.")
            time.sleep(0.1)

    def state(self) -> str:
        """What systemd of the host says of itself; an empty text if it does not answer."""
        if self.leader() is None:
            return ""
        done = self.execute(["systemctl", "is-system-running"], capture=True)
        return done.stdout.strip() if done.stdout else ""

    def execute(
        self, arguments: Sequence[str], *, capture: bool = False, stdin: str | bytes | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a program in the host's namespaces, without a network connection: it works while ssh does not.

        :raises LabError: the host is off.
        """
        leader = self.leader()
        if leader is None:
            raise LabError(
                f"Failed to run a program in {self.name}: the host is off. Start it with 'lab start {self.name}'."
            )
        terminal = f"TERM={os.environ.get('TERM', 'dumb')}"
        done = subprocess.run(
            ["setpriv", f"--bounding-set={_DROPPED}", "nsenter", f"--target={leader}", "--mount", "--uts", "--ipc", "--pid", "--cgroup", "--root",
             "env", "--chdir=/root", "-i", _PATH, "HOME=/root", "USER=root", "LANG=C.UTF-8", terminal, *arguments],
            capture_output=capture, input=stdin.encode() if isinstance(stdin, str) else stdin, check=False,
        )  # fmt: skip
        output, errors = (None if said is None else said.decode() for said in (done.stdout, done.stderr))
        return subprocess.CompletedProcess(done.args, done.returncode, output, errors)

    def power_cut(self) -> None:
        """End every process of the host at once, as a power cut does, and boot it again."""
        self._signal_supervisor(signal.SIGUSR1)

    def power_off(self) -> None:
        """Shut the host down in order; it stays off until it is started."""
        self._signal_supervisor(signal.SIGUSR2)

    def _signal_supervisor(self, number: signal.Signals) -> None:
        supervisor = self.supervisor()
        if supervisor is None:
            raise LabError(f"Failed to reach {self.name}: the host is off. Start it with 'lab start {self.name}'.")
        os.kill(supervisor, number)

    def destroy(self) -> None:
        """End the host and remove everything that is of it, whatever state it is in."""
        for attempt in range(200):
            supervisor = self.supervisor()
            if supervisor is None:
                break
            os.kill(supervisor, signal.SIGTERM if attempt < 100 else signal.SIGKILL)
            time.sleep(0.05)
        leader = self.leader()
        if leader is not None and supervisor is None and _is_in_cgroup(leader, self.machine):
            os.kill(leader, signal.SIGKILL)
        remove_cgroup(self.machine)
        with contextlib.suppress(OSError):
            (Path("/run/systemd/nspawn/propagate") / self.machine).rmdir()
        if self.paths.directory.exists():
            shutil.rmtree(self.paths.directory)

    def _ssh_answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.settimeout(5)
                return connection.recv(4) == b"SSH-"
        except OSError:
            return False


def live_process(pid_file: Path, mark: str) -> int | None:
    """The number in C(pid_file) if that process is alive and its command line has C(mark) in it."""
    try:
        number = int(pid_file.read_text(encoding="ascii"))
        command_line = Path(f"/proc/{number}/cmdline").read_bytes()
        fields = Path(f"/proc/{number}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except (OSError, ValueError):
        return None
    state, flags = fields[0], int(fields[6])
    if state in "ZX" or flags & _KERNEL_THREAD:
        return None
    # A program that is just being started, or is about to be gone, has no command line for a moment.
    return number if not command_line or mark.encode() in command_line.split(b"\0") else None


def _is_in_cgroup(process: int, machine: str) -> bool:
    try:
        return f"gpufleet-lab-{machine}/" in Path(f"/proc/{process}/cgroup").read_text(encoding="utf-8") + "/"
    except OSError:
        return False
