# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the terminal shows, colours included: playbooks over the README's inventory, whose hosts answer at once what lab hosts once said.

C(RECORD_TRANSCRIPTS=1) writes C(docs/transcripts/*.ansi) anew, of which C(make screenshots) makes pictures. What the hosts said is recorded by
C(tests/lab/test_first_use_lab.py).
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
import yaml

from .golden.corpus import recorded

#: Each starts ansible-playbook.
pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
TRANSCRIPTS = ROOT / "docs" / "transcripts"
COLUMNS = 120
#: What is shown: the playbook, and whether on bare hosts or after C(site).
PLAYBOOKS = {"plan": "bare", "verify": "ready", "inspect": "ready"}


def in_terminal(command: list[str], folder: Path, **environment: str) -> str:
    """Run a command in a terminal of C(COLUMNS) columns and return what it shows."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    process = subprocess.Popen(
        command, cwd=folder, env={**kept, "TERM": "xterm", **environment}, stdin=its, stdout=its, stderr=its
    )
    os.close(its)
    shown = b""
    # The end of a terminal is an error of reading.
    try:
        while part := os.read(ours, 65536):
            shown += part
    except OSError:
        pass
    finally:
        os.close(ours)
        process.wait()
    return shown.decode().replace("\r\n", "\n")


def inventory(state: str, folder: Path) -> str:
    """The README's inventory, with hosts that answer what they said when they were in this state, from files in C(folder).

    A host that C(site) set up has the host program of this checkout.
    """
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    described = yaml.safe_load(re.search(r"```yaml\n(.*?)```", readme, re.DOTALL)[1])
    described["gpu_hosts"]["vars"] |= {
        "ansible_connection": "canned",
        "ansible_python_interpreter": "/usr/bin/python3",
        # The hosts have Debian 12's containerd 1.6.
        "nvidia_toolkit_device_injection": "volume_mounts",
    }
    for pool in described["gpu_hosts"]["children"].values():
        for name, variables in pool["hosts"].items():
            path = folder / f"{name}.json"
            path.write_text(json.dumps(recorded(name, state)), encoding="utf-8")
            variables["bench_canned_facts"] = str(path)
    return yaml.safe_dump(described, sort_keys=False)


@pytest.mark.parametrize("name", PLAYBOOKS)
def test_the_transcript_is_what_the_playbook_shows(name, tmp_path):
    (tmp_path / "inventory.yml").write_text(inventory(PLAYBOOKS[name], tmp_path), encoding="utf-8")
    shown = in_terminal(
        [sys.executable.replace("python", "ansible-playbook"), "-i", "inventory.yml", f"gpufleet.nvidia.{name}"],
        tmp_path,
        ANSIBLE_COLLECTIONS_PATH=str(ROOT / "build" / "collections"),
        ANSIBLE_CONNECTION_PLUGINS=str(ROOT / "tests" / "bench" / "canned"),
        ANSIBLE_PIPELINING="true",
        ANSIBLE_STDOUT_CALLBACK="gpufleet.nvidia.progress",
        ANSIBLE_DEVEL_WARNING="0",
    )
    shown = re.sub(r" +\d+ s  ", "    1 s  ", shown.replace(str(tmp_path), "/srv/gpu"))
    # What plan judges by has a date that moves with each release, and a warning that comes with time.
    shown = re.sub(r"[^\n]*NVIDIA's (?:driver branches|security bulletins) [^\n]*\n", "", shown)
    text = (
        "$ export ANSIBLE_STDOUT_CALLBACK=gpufleet.nvidia.progress\n"
        f"$ ansible-playbook -i inventory.yml gpufleet.nvidia.{name}\n{shown}"
    )
    tables = [line for line in text.splitlines() if re.match(r"(?:HOST|NAME|gpu-[\w-]+|-+) ", line)]
    assert tables and max(map(len, tables)) <= COLUMNS, "tables wrap at the width of the terminal"
    path = TRANSCRIPTS / f"{name}.ansi"
    if os.environ.get("RECORD_TRANSCRIPTS"):
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text
