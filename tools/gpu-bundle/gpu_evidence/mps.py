# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An MPS daemon of this run's own: limits set, read back, and seen by CUDA clients of two users. The host's own daemon is not asked for anything."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Iterator

from gpu_evidence import nvml, product
from gpu_evidence.running import Folder, end_group, environment, run, which

PROGRAM = "nvidia-cuda-mps-control"
LIMIT_MIB, PERCENTAGE = 2048, 50
#: Below the limit with what a context takes; above it.
_SIZES = ("3072", "1024")
_NOBODY = 65534
_SUCCESS, _OUT_OF_MEMORY = 0, 2


def part(out: str, work: str) -> int:
    folder = Folder(out)
    program = which(PROGRAM)
    if program is None:
        return folder.answer("absent", f"{PROGRAM} is not installed")
    found: dict[str, Any] = {}
    failures: list[str] = []
    options = [("default", [])]
    # How a release spells the option is in the program: the help of older ones does not name it.
    raw = Path(program).read_bytes()
    if os.geteuid() == 0 and b"multiuser-server" in raw:
        options.append(("multiuser", ["-multiuser-server" if b"\0-multiuser-server\0" in raw else "-M"]))
    for name, words in options:
        try:
            found[name] = _daemon(folder, name, program, words, work)
        except Exception as error:  # The next daemon is another question.
            failures.append(f"{name}: {type(error).__name__}: {error}")
            continue
        failures += [f"{name}: {one}" for one in _wrong(found[name])]
        folder.answer("failed" if failures else "ran", "; ".join(failures), daemons=found)
    said = f"limit {LIMIT_MIB} MiB and {PERCENTAGE} % held for clients of {', '.join(found)}"
    return folder.answer("failed" if failures else "ran", "; ".join(failures) or said, daemons=found)


def _daemon(folder: Folder, name: str, program: str, words: list[str], work: str) -> dict[str, Any]:
    """One daemon's life: started, set, asked, used by clients of this user and of another, and ended."""
    # Short: the path of a socket holds 108 bytes.
    top = Path(tempfile.mkdtemp(prefix="m", dir=work))
    top.chmod(0o755)
    pipe, log = top / "p", top / "l"
    for path in (pipe, log):
        path.mkdir()
        path.chmod(0o777)
    env = environment(CUDA_MPS_PIPE_DIRECTORY=str(pipe), CUDA_MPS_LOG_DIRECTORY=str(log))
    said: dict[str, Any] = {"options": words}

    def ask(text: str, seconds: float = 15.0) -> str:
        done = run([program], seconds, env, given=f"{text}\n")
        said.setdefault("asked", []).append([text, done.status, done.out.strip(), done.err.strip(), done.seconds])
        return done.out.strip()

    try:
        started = folder.keep(f"{name}-start", run([program, "-d", *words], 20, env))
        said["started"] = started.said
        if not started.ok:
            return said
        ask("get_default_active_thread_percentage")
        ask("get_default_device_pinned_mem_limit 0")
        ask(f"set_default_active_thread_percentage {PERCENTAGE}")
        ask(f"set_default_device_pinned_mem_limit 0 {LIMIT_MIB}M")
        said["percentage"] = ask("get_default_active_thread_percentage")
        said["limit"] = ask("get_default_device_pinned_mem_limit 0")
        ask("get_default_client_priority")
        ask("get_server_list")
        users = [None, *([_NOBODY] if os.geteuid() == 0 else [])]
        said["clients"] = []
        for user in users:
            with client(env, user) as answer:
                said["clients"].append(answer)
                servers = ask("get_server_list").split()
                answer["server_list"] = servers
                answer["client_list"] = [
                    ask(f"get_client_list {server}").split() for server in servers if server.isdigit()
                ]
                for server in servers:
                    if server.isdigit():
                        ask(f"get_active_thread_percentage {server}")
                        ask(f"get_device_pinned_mem_limit {server} 0")
                ask("ps")
                if user is None:
                    nvml.in_use(folder, name)
                    product.in_use(folder, name, work)
            # One server serves one user, unless it is told otherwise: it has to be gone before the next one's can start.
            time.sleep(1)
        ask("set_default_active_thread_percentage 0")
        ask("get_default_active_thread_percentage")
        ask("set_default_device_pinned_mem_limit 0 no-size")
        ask("no_such_command")
        with client({**env, "CUDA_MPS_PIPE_DIRECTORY": f"{pipe}-nowhere"}, None) as answer:
            said["without"] = answer
    finally:
        ask("quit -t 3", 20.0)
        for path in (*log.glob("*"), *pipe.glob("*.pid")):
            folder.write(f"{name}-{path.name}", path.read_text(encoding="utf-8", errors="replace"))
    return said


@contextlib.contextmanager
def client(env: dict[str, str], user: int | None) -> Iterator[dict[str, Any]]:
    """A CUDA client that holds what it was given until the block ends."""

    clean = {name: value for name, value in env.items() if name != "CUDA_VISIBLE_DEVICES"}
    with tempfile.TemporaryFile() as heard:
        process = subprocess.Popen(
            [sys.executable, "-m", "gpu_evidence.cuda", "hold", *([] if user is None else [f"user={user}"]), *_SIZES],
            env=clean, stdin=subprocess.PIPE, stdout=heard, stderr=heard, start_new_session=True,
        )  # fmt: skip
        try:
            text, deadline = "", time.monotonic() + 20
            while "\n" not in text and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.2)
                heard.seek(0)
                text = heard.read().decode(errors="replace")
            heard.seek(0)
            text = heard.read().decode(errors="replace")
            try:
                answer = json.loads(text.strip().splitlines()[-1])
            except (ValueError, IndexError):
                answer = {"error": text[-2000:] or f"no answer in 20 s, status {process.poll()}"}
            yield {"user": user, **answer}
        finally:
            with contextlib.suppress(OSError):
                process.stdin.close()  # type: ignore[union-attr]
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                end_group(process)


def _wrong(said: dict[str, Any]) -> list[str]:
    found = []
    if not said.get("started", "").startswith("status 0"):
        return [f"the daemon did not start: {said.get('started')}"]
    if not said["percentage"].startswith(str(PERCENTAGE)):
        found.append(f"the percentage reads {said['percentage']!r}")
    if said["limit"] not in ("2G", "2048M"):
        found.append(f"the memory limit reads {said['limit']!r}")
    for one in said["clients"]:
        results = [result for _size, result in one.get("allocations", [])]
        if results != [_OUT_OF_MEMORY, _SUCCESS]:
            found.append(
                f"the client of user {one['user'] or os.geteuid()} was answered {results or one.get('error') or one.get('calls')}"
            )
    return found
