# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The interpreter of a host that was broken into: answers every module without running it, and notes with which arguments it was called.

C(hostile_python.py FOLDER MODULE): FOLDER has C(answers.json), by name of the module, and C(poison.json), which every answer gets as well. If it has
C(written), that is what is written, with the answer in place of C(ANSWER).
"""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path

_ARGUMENTS = '{"ANSIBLE_MODULE_ARGS"'


def _arguments(source: str) -> dict:
    """Return the arguments in a module as Ansible sends it: a literal with JSON."""
    for node in ast.walk(ast.parse(source)):
        value = getattr(node, "value", None)
        text = value.decode() if isinstance(value, bytes) else value
        if isinstance(text, str) and text.startswith(_ARGUMENTS):
            given = json.loads(text)["ANSIBLE_MODULE_ARGS"]
            return {name: value for name, value in given.items() if not name.startswith("_ansible_")}
    return {}


def main() -> None:
    folder, module = Path(sys.argv[1]), Path(sys.argv[2])
    name = re.sub(r"^AnsiballZ_|[.]py$", "", module.name)
    arguments = _arguments(module.read_text())
    if name == "copy":
        # A file with a random name, and what it holds has the time in it.
        arguments = {name: arguments.get(name) for name in ("dest", "mode")}
    with (folder / "modules").open("a") as log:
        log.write(f"{name} {json.dumps(arguments, sort_keys=True)}\n")
    answer = json.loads((folder / "answers.json").read_text()).get(name, {"changed": True})
    text = json.dumps({**answer, **json.loads((folder / "poison.json").read_text())})
    written = folder / "written"
    if written.exists():
        sys.stdout.buffer.write(written.read_bytes().replace(b"ANSWER", text.encode()))
        sys.stderr.buffer.write(b"\x1b]0;title\x07\xc2\x9b31m")
    else:
        print(text)


if __name__ == "__main__":
    main()
