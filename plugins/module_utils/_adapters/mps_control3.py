# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Talk to one MPS control daemon of protocol 3 (C(-p 3), from release 615 on): commands are arguments, C(<module> <verb> ...).

Protocol 3 has no defaults for servers to come. The limits are those of one named server, L(SERVER), and clients get them by
connecting to its directory, C(<pipe directory>/shared). Source: NVIDIA's MPS documentation, "MPS v3 Interface" (release 615).
"""

from __future__ import annotations

from collections.abc import Sequence

from .._formats import mps_commands
from .._formats.numbers import whole_number
from .host_files import HostFiles
from .mps_control import MpsDaemon, MpsError, program_in

#: The server whose clients are limited. Names have lower case letters, digits and underscores only.
SERVER = "shared"
_CSV = "--format=csv,noheader"


def has_protocol_3() -> bool:
    """Whether this release of the control program speaks protocol 3; those that do read its number from a variable."""
    return b"CUDA_MPS_PROTOCOL_VERSION" in (program_in(HostFiles()) or b"")


class MpsControl3(MpsDaemon):
    """One daemon, spoken to in protocol 3; what L(mps_control.MpsControl) is for protocol 2."""

    protocol = "3"

    def ask(self, arguments: Sequence[str], timeout: float = 20.0) -> str:
        """Give a command and return the answer.

        :raises MpsNotRunning: no daemon answers at the pipe directory.
        :raises MpsError: the daemon said that it did not do it. A wrong verb ends with status 0 and C(Error:).
        """
        result = self._call(arguments, None, timeout)
        said = mps_commands.refused(result.stdout) or mps_commands.refused(result.stderr)
        if said is None and result.rc:
            said = (result.stderr or result.stdout).strip() or f"exit status {result.rc}"
        if said:
            raise MpsError(f"Failed to send {' '.join(arguments)!r} to the MPS daemon at {self.pipe_directory}: {said}")
        return result.stdout

    def ensure_server(self) -> None:
        """Create the limited server where it is not yet; it belongs to root, which alone may change it."""
        if SERVER not in self._servers():
            self.ask(["server", "create", SERVER, "--uid=0"])
            if SERVER not in self._servers():
                raise MpsError(
                    f"Failed to create the MPS server {SERVER} at {self.pipe_directory}: the daemon does not list it "
                    "(control.log in its log directory says why)"
                )

    def thread_percentage(self) -> float | None:
        return mps_commands.percentage(self._get("active-thread-percentage").rstrip("%"))

    def set_thread_percentage(self, value: float) -> None:
        self._set(f"--active-thread-percentage={value:g}")
        present = self.thread_percentage()
        if present is None or abs(present - value) > 0.05:
            raise MpsError(
                f"Failed to set the active thread percentage of the MPS server {SERVER} at {self.pipe_directory} to {value:g}: "
                f"it is {present}"
            )

    def memory_limit(self, _ordinal: int) -> str | None:
        """Return the limit, the same on every device of the server, as protocol 2 would print it."""
        mib = mps_commands.limit_mib(self._get("pinned-memory-limit"))
        return None if mib is None else mps_commands.limit_text(mib)

    def set_memory_limit(self, ordinal: int, mib: int) -> None:
        """Set the limit of the server; 0 MiB is what a new server has, and is not set."""
        if mib > 0:
            self._set(f"--pinned-memory-limit={mib}M")
        present = self.memory_limit(ordinal)
        if present != mps_commands.limit_text(mib):
            raise MpsError(
                f"Failed to limit the MPS server {SERVER} at {self.pipe_directory} to {mib} MiB: "
                f"reading back gives {present or 'no limit'}"
            )

    def priority(self) -> str:
        return self._get("client-priority")

    def set_priority(self, value: int) -> None:
        self._set(f"--client-priority={value}")
        present = self.priority()
        if present != str(value):
            raise MpsError(
                f"Failed to set the client priority of the MPS server {SERVER} at {self.pipe_directory} to {value}: it is {present}"
            )

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
        """End the daemon and all servers."""
        self.ask(["-q"], timeout=seconds + 20.0)

    def _get(self, field: str) -> str:
        return self.ask(["namespace", "get", "default", SERVER, field]).strip()

    def _set(self, option: str) -> None:
        self.ask(["server", "set", SERVER, option])

    def _servers(self) -> dict[str, int | None]:
        rows = mps_commands.rows(self.ask(["server", "list", _CSV]))
        return {row[0]: whole_number(row[2]) for row in rows if len(row) > 2}
