# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Python for modules that Ansible runs on this machine, without the time that their start takes: a process is forked for every module.

A module arrives as an archive that carries what it imports, and Python compiles all of it each time: a third of what a playbook costs whose hosts are
this machine. Here each text is compiled once, and what the standard library has for modules is imported already. Nothing else is kept: each module is
a process of its own with the environment, the folder and the files that Ansible gave it, and imports what is in its archive.
"""

from __future__ import annotations

import atexit
import functools
import gc
import hashlib
import importlib
import marshal
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

#: What modules and what they carry import of the standard library.
_OF_MODULES = (
    *("base64", "ctypes", "dataclasses", "datetime", "grp", "inspect", "json", "locale"),
    *("logging", "platform", "pwd", "runpy", "selectors", "shlex", "syslog", "uuid", "zipfile"),
)
#: What Ansible starts: hands its files to the process that waits, and ends as the module does.
_CLIENT = """#!{python} -IS
import _socket, marshal, posix, sys
call = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
call.connect({address!r})
files = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
order = marshal.dumps((sys.argv[1:], posix.getcwd(), posix.environ))
call.sendmsg([order], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, files)])
posix._exit(int(call.recv(16) or b"1"))
"""


@functools.cache
def interpreter() -> str:
    """The path of a program that is Python for modules, until this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="python-"))
    address = str(folder / "socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as orders:
        orders.bind(address)
        orders.listen(64)
        ours, theirs = os.pipe()
        # It ends when nobody holds the other end of the pipe.
        command = [sys.executable, __file__, str(orders.fileno()), str(ours)]
        process = subprocess.Popen(command, pass_fds=[orders.fileno(), ours], cwd="/")
        os.close(ours)

    def close() -> None:
        os.close(theirs)
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(close)
    program = folder / "python"
    program.write_text(_CLIENT.format(python=sys.executable, address=address))
    program.chmod(0o755)
    return str(program)


def _serve(orders: socket.socket, end: int) -> None:
    import selectors

    _import_ahead()
    gc.freeze()
    with selectors.DefaultSelector() as selector:
        selector.register(orders, selectors.EVENT_READ)
        selector.register(end, selectors.EVENT_READ)
        while all(key.fileobj is not end for key, _events in selector.select()):
            call, _address = orders.accept()
            if os.fork() == 0:
                orders.close()
                os.close(end)
                selector.close()
                _module(call)
            call.close()
            _reap(os.WNOHANG)
    _reap(0)


def _reap(options: int) -> None:
    try:
        while os.waitpid(-1, options)[0]:
            pass
    except ChildProcessError:
        return


def _import_ahead() -> None:
    import zipimport

    for name in _OF_MODULES:
        importlib.import_module(name)
    folder = Path(__file__).resolve().parents[1] / "build" / "pycache" / f"modules-{sys.implementation.cache_tag}"
    folder.mkdir(parents=True, exist_ok=True)

    def compiled(path: str, source: bytes) -> Any:
        kept = folder / hashlib.sha256(path.rpartition(".zip")[2].encode() + b"\0" + source).hexdigest()
        try:
            return marshal.loads(kept.read_bytes())
        except (OSError, EOFError, ValueError, TypeError):
            pass
        code = compile(source.replace(b"\r\n", b"\n"), path, "exec", dont_inherit=True)
        part = folder / f"{kept.name}.{os.getpid()}"
        part.write_bytes(marshal.dumps(code))
        part.replace(kept)
        return code

    vars(zipimport)["_compile_source"] = compiled


def _module(call: socket.socket) -> None:
    """Be the process of one module; does not return."""
    import runpy

    status: object = 1
    try:
        order, files, _flags, _address = socket.recv_fds(call, 1 << 20, 3)
        arguments, folder, environment = marshal.loads(order)
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        os.environ.clear()
        os.environb.update(environment)
        os.chdir(folder)
        sys.argv = arguments or [""]
        if arguments:
            runpy.run_path(arguments[0], run_name="__main__")
        else:
            main = type(sys)("__main__")
            sys.modules["__main__"] = main
            exec(compile(sys.stdin.read(), "<stdin>", "exec", dont_inherit=True), vars(main))
        status = 0
    except SystemExit as end:
        status = end.code
        if isinstance(status, str):
            print(status, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    call.send(b"%d" % (status if isinstance(status, int) else status is not None))
    os._exit(0)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
