# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A run of C(gpufleet.nvidia.migrate) that is killed with all its processes, and what a node says while it works."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any

from demo import REPOSITORY, Demo


@contextmanager
def killed_migration(
    demo: Demo, log: Path, options: dict[str, Any], *arguments: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Begin a migration, and kill it at the end; it must not have ended by itself."""
    inventories = [word for path in demo.inventories for word in ("-i", path)]
    program = str(REPOSITORY / ".venv" / "bin" / "ansible-playbook")
    command = [program, *inventories, "-e", json.dumps(options), "gpufleet.nvidia.migrate", *arguments]
    environment = {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": str(REPOSITORY / "build" / "collections"),
        "ANSIBLE_CONFIG": str(REPOSITORY / "examples" / "ansible.cfg"),
    }
    with log.open("wb") as output:
        run = subprocess.Popen(command, stdout=output, stderr=output, env=environment, start_new_session=True)
    try:
        yield run
    finally:
        with suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    assert run.returncode == -signal.SIGKILL, log.read_text()[-4000:]


@contextmanager
def watching(demo: Demo, node: str, fields: str, run: subprocess.Popen[bytes]) -> Iterator[Iterator[str]]:
    """What a node has of some fields (as JSONPath), each time that it changes, until the run ends."""
    words = ["get", "node", node, "--watch", "-o", f"jsonpath={fields}"]
    watch = subprocess.Popen([*demo.command, *words], stdout=subprocess.PIPE, text=True)
    Thread(target=lambda: (run.wait(), watch.kill())).start()
    try:
        assert watch.stdout
        yield (line.rstrip("\n") for line in watch.stdout)
    finally:
        watch.kill()
        watch.wait()


@contextmanager
def counting(demo: Demo) -> Iterator[dict[str, int]]:
    """Deployment to the fewest pods of it that were ready at once, at every change of it."""
    words = ["get", "deployments", "--watch", "-o", r"""jsonpath={.metadata.name} {.status.readyReplicas}{"\n"}"""]
    log = demo.folder / "ready.log"
    with log.open("w") as output:
        watch = subprocess.Popen([*demo.command, *words], stdout=output)
    fewest: dict[str, int] = {}
    try:
        yield fewest
    finally:
        watch.kill()
        watch.wait()
    for line in log.read_text().splitlines():
        name, ready = line.split(" ")
        fewest[name] = min(int(ready or 0), fewest.get(name, 99))
