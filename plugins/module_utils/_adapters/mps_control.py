# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Talk to one MPS control daemon through the real C(nvidia-cuda-mps-control), in protocol 2 or 3.

Protocol 2: one command a call, on standard input. Commands as arguments are understood by some releases only (and then print an old value).
Protocol 3 (C(-p 3), from release 615 on): commands are arguments, C(<module> <verb> ...). It has no defaults for servers to come: the limits are
those of one named server, L(SERVER), and clients get them by connecting to its directory, C(<pipe directory>/shared). Source: NVIDIA's MPS
documentation, "MPS v3 Interface" (release 615).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from .._formats import mps_commands
from .._formats.documents import whole_number
from . import command
from .files import HostFiles

PROGRAM = "nvidia-cuda-mps-control"
NO_DAEMON = "Cannot find MPS control daemon process"


def installed() -> bool:
    return command.find(PROGRAM) is not None


def multi_user_option() -> str | None:
    """Return how the installed release spells the option for a multi-user server, or None when it has none."""
    return multi_user_option_of(program_in(HostFiles()) or b"")


def program_in(files: HostFiles) -> bytes | None:
    """Return the control program of a host, or None where it cannot be read. What runs first may be a script that starts it: what the release can
    is not in there.
    """
    found = (files.read_bytes(path) for path in files.find_programs(PROGRAM))
    return next((program for program in found if program is not None and not program.startswith(b"#!")), None)


def multi_user_option_of(program: bytes) -> str | None:
    """Return how the release whose control program is C(program) spells the option for a multi-user server, or None. Releases 535 and 550 have none,
    and with C(-M) end as if there were no daemon to talk to. 555 takes C(-multiuser-server) only, and prints its help for anything else. 580 and 615
    take C(-M). The help of the older ones names no options, so the names are looked for in the program.
    """
    if b"\0-multiuser-server\0" in program:
        return "-multiuser-server"
    return "-M" if b"multiuser-server" in program else None


class MpsError(Exception):
    """The daemon refused a command, or a setting was not what was asked when it was read back."""


class MpsNotRunning(MpsError):
    """There is no daemon at this pipe directory."""


class MpsDaemon(ABC):
    """One daemon, known by its C(CUDA_MPS_PIPE_DIRECTORY). It takes an invalid value without a word, so every setting is read back."""

    #: The protocol to speak: releases from 615 on know 3 beside 2, which all releases speak.
    protocol: str
    #: Whose settings these are.
    owner = "daemon"

    def __init__(self, pipe_directory: str) -> None:
        self.pipe_directory = pipe_directory

    @abstractmethod
    def memory_limit(self, ordinal: int) -> str | None:
        """Return the limit of the device with this ordinal among the daemon's devices, as protocol 2 prints it."""

    @abstractmethod
    def _set_limit(self, ordinal: int, mib: int) -> None:
        """Limit the memory of a device."""

    @abstractmethod
    def _get(self, setting: str) -> str:
        """Return a setting, which is called as in protocol 2, without blanks around it."""

    @abstractmethod
    def _set(self, setting: str, value: str) -> None:
        """Change a setting."""

    def thread_percentage(self) -> float | None:
        return mps_commands.percentage(self._get("active_thread_percentage").rstrip("%"))

    def priority(self) -> str:
        return self._get("client_priority")

    def set_thread_percentage(self, value: float) -> None:
        self._set("active_thread_percentage", f"{value:g}")
        present = self.thread_percentage()
        if present is None or abs(present - value) > 0.05:
            self._refuse_kept(
                "set the active thread percentage of",
                f"{value:g}: it is {present} (control.log in its log directory says why)",
            )

    def set_memory_limit(self, ordinal: int, mib: int) -> None:
        """Limit the memory of a device; 0 MiB lifts the limit."""
        self._set_limit(ordinal, mib)
        present = self.memory_limit(ordinal)
        if present != mps_commands.limit_text(mib):
            self._refuse_kept(f"limit device {ordinal} of", f"{mib} MiB: reading back gives {present or 'no limit'}")

    def set_priority(self, value: int) -> None:
        self._set("client_priority", str(value))
        present = self.priority()
        if present != str(value):
            self._refuse_kept("set the client priority of", f"{value}: it is {present}")

    def _refuse_kept(self, attempt: str, found: str) -> None:
        raise MpsError(f"Failed to {attempt} the MPS {self.owner} at {self.pipe_directory} to {found}")

    def responds(self) -> bool:
        """Whether a daemon answers with a float, which is the health contract of MPS."""
        try:
            return self.thread_percentage() is not None
        except (MpsError, command.CommandError):
            return False

    def _call(self, arguments: Sequence[str], stdin: str | None, timeout: float) -> command.Result:
        """Run the control program against this daemon. Raises MpsNotRunning: no daemon answers at the pipe directory."""
        result = command.run(
            [PROGRAM, *arguments],
            stdin=stdin,
            timeout=timeout,
            environment={"CUDA_MPS_PIPE_DIRECTORY": self.pipe_directory, "CUDA_MPS_PROTOCOL_VERSION": self.protocol},
        )
        if NO_DAEMON in result.stderr or NO_DAEMON in result.stdout:
            raise MpsNotRunning(f"No MPS control daemon answers at {self.pipe_directory}")
        return result

    def _answer(self, result: command.Result, sent: str, said: str | None) -> str:
        """Return what was printed. Raises MpsError: the daemon said that it did not do it."""
        if said:
            raise MpsError(f"Failed to send {sent!r} to the MPS daemon at {self.pipe_directory}: {said}")
        return result.stdout


class MpsControl(MpsDaemon):
    """One daemon, spoken to in protocol 2; what is set is the default for servers that start later."""

    protocol = "2"

    def ask(self, text: str, timeout: float = 20.0) -> str:
        """Send the command C(text) and return the answer. Raises MpsError: nobody answers, or the daemon said that it did not do it."""
        result = self._call([], f"{text}\n", timeout)
        return self._answer(
            result, text, mps_commands.refused(result.stdout) or (result.stderr.strip() if result.rc else None)
        )

    def memory_limit(self, ordinal: int) -> str | None:
        return mps_commands.limit(self._get(f"device_pinned_mem_limit {ordinal}"))

    def _get(self, setting: str) -> str:
        return self.ask(f"get_default_{setting}").strip()

    def _set(self, setting: str, value: str) -> None:
        self.ask(f"set_default_{setting} {value}")

    def _set_limit(self, ordinal: int, mib: int) -> None:
        # A UUID in place of the ordinal makes releases below 580 change device 0.
        self._set("device_pinned_mem_limit", f"{ordinal} {mib}M")

    def servers(self) -> tuple[int, ...]:
        return mps_commands.pids(self.ask("get_server_list"))

    def clients(self, server: int) -> tuple[int, ...]:
        """Return the process ids of the clients of C(server); none when the server has ended meanwhile."""
        try:
            return mps_commands.pids(self.ask(f"get_client_list {server}"))
        except MpsNotRunning:
            raise
        except MpsError:
            if server in self.servers():
                raise
            return ()

    def stop_idle_server(self, server: int) -> None:
        """Ask a server to end once it has no clients, so that the next one starts with the new defaults."""
        self.ask(f"shutdown_server {server}")

    def quit(self, seconds: int = 10) -> None:
        """End the daemon. Servers with clients are given C(seconds) seconds, then they are ended as well."""
        self.ask(f"quit -t {seconds}", timeout=seconds + 20.0)


#: The server whose clients are limited. Names have lower case letters, digits and underscores only.
SERVER = "shared"
_CSV = "--format=csv,noheader"


def has_protocol_3() -> bool:
    """Whether this release of the control program speaks protocol 3; those that do read its number from a variable."""
    return b"CUDA_MPS_PROTOCOL_VERSION" in (program_in(HostFiles()) or b"")


class MpsControl3(MpsDaemon):
    """One daemon, spoken to in protocol 3; what is set is of L(SERVER), and the same on each of its devices."""

    protocol = "3"
    owner = f"server {SERVER}"

    def ask(self, arguments: Sequence[str], timeout: float = 20.0) -> str:
        """Do as L(MpsControl.ask). A wrong verb ends with status 0 and C(Error:)."""
        result = self._call(arguments, None, timeout)
        said = mps_commands.refused(result.stdout) or mps_commands.refused(result.stderr)
        if said is None and result.rc:
            said = (result.stderr or result.stdout).strip() or f"exit status {result.rc}"
        return self._answer(result, " ".join(arguments), said)

    def ensure_server(self) -> None:
        """Create the limited server where it is not yet; it belongs to root, which alone may change it."""
        if SERVER not in self._servers():
            self.ask(["server", "create", SERVER, "--uid=0"])
            if SERVER not in self._servers():
                raise MpsError(
                    f"Failed to create the MPS server {SERVER} at {self.pipe_directory}: the daemon does not list it "
                    "(control.log in its log directory says why)"
                )

    def memory_limit(self, _ordinal: int) -> str | None:
        mib = mps_commands.limit_mib(self._get("pinned_memory_limit"))
        return None if mib is None else mps_commands.limit_text(mib)

    def servers(self) -> tuple[int, ...]:
        """Return the process ids of all servers, also of those that clients got beside the limited one."""
        return tuple(pid for pid in self._servers().values() if pid is not None)

    def clients(self, server: int) -> tuple[int, ...]:
        """Return the process ids of the clients of C(server), each once, however many devices it uses."""
        names = {name for name, pid in self._servers().items() if pid == server}
        rows = mps_commands.rows(self.ask(["client", "list", "--all", _CSV]))
        found = (whole_number(row[0]) for row in rows if len(row) > 1 and row[1] in names)
        return tuple(dict.fromkeys(pid for pid in found if pid is not None))

    def quit(self, seconds: int = 10) -> None:
        self.ask(["-q"], timeout=seconds + 20.0)

    def _get(self, setting: str) -> str:
        return self.ask(["namespace", "get", "default", SERVER, setting.replace("_", "-")]).strip()

    def _set(self, setting: str, value: str) -> None:
        self.ask(["server", "set", SERVER, f"--{setting.replace('_', '-')}={value}"])

    def _set_limit(self, _ordinal: int, mib: int) -> None:
        # A new server has no limit, and cannot be told 0.
        if mib > 0:
            self._set("pinned_memory_limit", f"{mib}M")

    def _servers(self) -> dict[str, int | None]:
        rows = mps_commands.rows(self.ask(["server", "list", _CSV]))
        return {row[0]: whole_number(row[2]) for row in rows if len(row) > 2}
