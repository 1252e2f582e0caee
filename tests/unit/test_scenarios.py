# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The pages of docs/scenarios: their commands are run over their inventory, and what they print is what the page shows.

C(RECORD_TRANSCRIPTS=1 pytest tests/unit/test_scenarios.py -m slow) writes the pages anew.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ..warm_ansible import run as run_ansible

#: Each command starts ansible-playbook.
pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
#: What inspect.md shows is written by the test of the action inspect: it needs hosts.
PAGES = sorted(path for path in (ROOT / "docs" / "scenarios").glob("*.md") if path.stem != "inspect")
_CONSOLE = re.compile(r"```console\n\$ (.*)\n((?:(?!```).*\n)*)```")
#: Ansible's own lines, where a message came from, and what plan judges by: its date moves with each release, and its warning comes with time.
_NOT_OURS = re.compile(
    r"^(?:PLAY|Judged by NVIDIA's|warning: NVIDIA's|TASK|ok:|changed:|fatal:|localhost +:|Origin:|\d+ | +\^ column)"
)


def printed(command: str, folder: Path) -> str:
    """Run a command of a page and return what it shows beside Ansible's own lines, without names of this machine."""
    program, *arguments = shlex.split(command)
    path = Path(sys.executable).with_name(program)
    environment = {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "build" / "collections"),
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_LOCALHOST_WARNING": "0",
        "ANSIBLE_DEVEL_WARNING": "0",
        "COLUMNS": "200",
    }
    if program == "ansible-playbook":
        done = run_ansible([path, *arguments], environment, folder)
    else:
        line = [str(path) if path.exists() else program, *arguments]
        done = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    text = f"{done.stdout}{done.stderr}" if program == "ansible-playbook" else done.stdout
    assert done.returncode == 0 or program == "ansible-playbook", text
    if program != "ansible-playbook":
        return text.rstrip() + "\n"
    lines = [line for line in text.replace(str(folder), "/srv/gpu").splitlines() if not _NOT_OURS.match(line)]
    return re.sub(r"\n{2,}", "\n", "\n".join(lines).strip()) + "\n"


def test_there_are_pages():
    assert len(PAGES) >= 5


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_a_page_shows_what_its_commands_print(page, tmp_path):
    text = page.read_text(encoding="utf-8")
    (tmp_path / "inventory.yml").write_text(re.search(r"```yaml\n(.*?)```", text, re.DOTALL)[1], encoding="utf-8")
    assert _CONSOLE.search(text)
    shown = _CONSOLE.sub(lambda block: f"```console\n$ {block[1]}\n{printed(block[1], tmp_path)}```", text)
    if os.environ.get("RECORD_TRANSCRIPTS"):
        page.write_text(shown, encoding="utf-8")
    assert page.read_text(encoding="utf-8") == shown
