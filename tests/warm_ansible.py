# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ansible's command line without the time that its start takes: a process that has imported Ansible is forked for every call.

Half of what a call costs the controller is the import of Ansible and the compilation of the collection, and tests make many hundred calls. Nothing else
is kept: each call is a process of its own with a temporary folder of its own, which reads the collection, its plugins and the inventory anew. Ansible reads
its settings (C(ANSIBLE_*) and the C(ansible.cfg) of its folder) when it is imported, so that a call with others, or of another release, is started as usual.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import hashlib
import json
import marshal
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any


class WarmAnsible:
    """The programs C(ansible) and C(ansible-playbook) in one folder, with one set of settings."""

    def __init__(self, programs: Path, environment: Mapping[str, str]) -> None:
        self._programs = programs
        self._settings = _settings(environment)
        self._lock = threading.Lock()
        self._orders, theirs = _pair()
        command = [str(programs / "python"), str(Path(__file__).resolve()), str(theirs.fileno())]
        # Not in this folder, whose ansible.cfg would be that of every call.
        self._process = subprocess.Popen(command, env=dict(environment), pass_fds=[theirs.fileno()], cwd="/")
        theirs.close()
        atexit.register(self.close)

    def fits(self, programs: Path, environment: Mapping[str, str]) -> bool:
        """Whether it is of these programs and has these settings."""
        return programs == self._programs and _settings(environment) == self._settings

    def close(self) -> None:
        """End it when the last call has ended; it removes Ansible's temporary folder, and those of calls that were cut off with it."""
        self._orders.close()
        self._process.wait()

    def run(
        self,
        line: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        timeout: float,
        sent: Callable[[], None] = lambda: None,
    ) -> subprocess.CompletedProcess[str]:
        """Do what C(subprocess.run) does with this command line, and capture what it says.

        :param sent: is called as soon as this process may be closed without harm to the call.
        """
        program = Path(line[0])
        if not self.fits(program.parent, environment) or (folder / "ansible.cfg").exists():
            sent()
            return subprocess.run(
                line, env=environment, capture_output=True, text=True, timeout=timeout, check=False, cwd=folder
            )
        order = {"line": [program.name, *line[1:]], "environment": dict(environment), "folder": str(folder)}
        ours, theirs = _pair()
        with (
            tempfile.TemporaryFile() as given,
            tempfile.TemporaryFile() as output,
            tempfile.TemporaryFile() as errors,
            ours,
        ):
            with theirs, self._lock:
                given.write(json.dumps(order).encode())
                given.flush()
                files = [given.fileno(), output.fileno(), errors.fileno(), theirs.fileno()]
                socket.send_fds(self._orders, [b"run"], files)
            sent()
            status = _status(ours, line, timeout)
            for file in (output, errors):
                file.seek(0)
            return subprocess.CompletedProcess(line, status, output.read().decode(), errors.read().decode())


_kept: list[WarmAnsible] = []
_changing = threading.Lock()


def run(
    line: Sequence[str | Path], environment: Mapping[str, str], folder: Path, timeout: float = 600
) -> subprocess.CompletedProcess[str]:
    """Do what C(subprocess.run) does with this command line of Ansible's, which has settings that many tests share.

    The process of the last settings is kept and no other one: each has Ansible in memory.
    """
    programs = Path(line[0]).parent
    with contextlib.ExitStack() as unchanged:
        unchanged.enter_context(_changing)
        if not _kept or not _kept[0].fits(programs, environment):
            while _kept:
                _kept.pop().close()
            _kept.append(WarmAnsible(programs, environment))
        return _kept[0].run([str(word) for word in line], environment, folder, timeout, unchanged.close)


def _status(call: socket.socket, line: Sequence[str], timeout: float) -> int:
    process = int(call.recv(16))
    call.settimeout(timeout)
    try:
        said = call.recv(16)
    except TimeoutError:
        os.killpg(process, signal.SIGKILL)
        raise subprocess.TimeoutExpired(line, timeout) from None
    return int(said) if said else -signal.SIGKILL


def _pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def _settings(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith("ANSIBLE_") or name == "HOME"}


def _serve(orders: socket.socket) -> None:
    from ansible.cli.adhoc import AdHocCLI
    from ansible.cli.playbook import PlaybookCLI

    programs = {"ansible": AdHocCLI, "ansible-playbook": PlaybookCLI}
    keep_compiled()
    # What is there already need not be looked at, and so copied, in every process, and none of them lives long.
    gc.freeze()
    gc.disable()
    while True:
        message, files, _flags, _address = socket.recv_fds(orders, 16, 4)
        if not message:
            break
        if os.fork() == 0:
            orders.close()
            _call(programs, *files)
        for file in files:
            os.close(file)
        _reap(os.WNOHANG)
    _reap(0)


def keep_compiled() -> None:
    """Compile each text of a collection once: Ansible compiles what it imports of one in every process anew."""
    from ansible.utils.collection_loader import _collection_finder as finder

    folder = Path(__file__).resolve().parents[1] / "build" / "pycache" / f"collections-{sys.implementation.cache_tag}"
    folder.mkdir(parents=True, exist_ok=True)

    def compiled(source: str | bytes, filename: str, **options: Any) -> Any:
        """Return the code of the text: one that is kept in the file of this name has the text's digest before it."""
        text = source.encode() if isinstance(source, str) else source
        digest = hashlib.sha256(text).digest()
        kept = folder / hashlib.sha256(filename.encode()).hexdigest()
        with contextlib.suppress(OSError, EOFError, ValueError, TypeError):
            content = kept.read_bytes()
            if content.startswith(digest):
                return marshal.loads(content[len(digest) :])
        code = compile(source, filename, **options)
        part = folder / f"{kept.name}.{os.getpid()}"
        part.write_bytes(digest + marshal.dumps(code))
        part.replace(kept)
        return code

    vars(finder)["compile"] = compiled


def _reap(options: int) -> None:
    try:
        while os.waitpid(-1, options)[0]:
            pass
    except ChildProcessError:
        return


def _call(programs: Mapping[str, Any], given: int, output: int, errors: int, call: int) -> None:
    """Be the process of one call; does not return."""
    from ansible import constants

    os.setsid()
    status: object = 1
    with socket.socket(fileno=call) as said:
        said.send(b"%d" % os.getpid())
        try:
            order = json.loads(os.pread(given, os.fstat(given).st_size, 0))
            for source, target in ((os.open(os.devnull, os.O_RDONLY), 0), (output, 1), (errors, 2)):
                os.dup2(source, target)
                os.close(source)
            os.environ.clear()
            os.environ.update(order["environment"])
            os.chdir(order["folder"])
            sys.argv = order["line"]
            # The collection keeps there what holds for one run. That of a call which is cut off goes with the folder that it is in.
            shared = constants.DEFAULT_LOCAL_TMP
            with tempfile.TemporaryDirectory(prefix="call-", dir=shared, ignore_cleanup_errors=True) as own:
                constants.DEFAULT_LOCAL_TMP = own
                programs[sys.argv[0]].cli_executor(sys.argv)
        except SystemExit as end:
            status = end.code
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        said.send(b"%d" % (status if isinstance(status, int) else status is not None))
    os._exit(0)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
