# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts whose modules answer with what Ansible reads in the process of all hosts, beside two that are honest."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml

from .hostile_harness import Fleet

#: Not taken from a host, whatever it is.
DROPPED = (
    *({"ansible_stats": value} for value in (5, "data", ["data"], {"data": [1]}, {"data": {"a": 1}, "per_host": True})),
    *({"results": value} for value in (5, [1], [{"skipped": True}])),
    *({"add_host": value} for value in (5, {}, {"host_name": "x", "groups": 5})),
    {"add_group": 5},
    {"ansible_facts": {"ansible_connection": "x"}, "_ansible_facts_cacheable": True},
    {"_ansible_notify": ["nobody"]},
    {"_ansible_delegated_vars": 5, "_ansible_item_label": {}},
    {"ansible_job_id": 5, "async_result": 5, "attempts": "x", "retries": []},
)
#: Of another type than Ansible takes it for.
REFUSED = (
    *({"changed": value} for value in (5, [1], "yes")),
    {"failed": "no"},
    {"skipped": {}},
    {"unreachable": 1},
    {"rc": [1]},
    {"msg": {"a": 1}},
    *({"warnings": value} for value in (5, {"a": 1}, [5], [["a"]])),
    {"deprecations": 5},
    {"diff": "x"},
    {"invocation": 5},
)
#: What is written in place of an answer, and whether the host goes on.
_ESCAPES = b"\x1b[2J\x1b]52;c;eA==\x07\xc2\x9b31m\xe2\x80\xae\x08\x00"
WRITTEN = {
    "junk-before": (_ESCAPES + b"\nANSWER", True),
    "junk-behind": (b"ANSWER\n" + _ESCAPES, True),
    "no-json": (_ESCAPES + b"Permission denied" + _ESCAPES, False),
    "nested": (b'{"changed": false, "gpu": ' + b"[" * 900 + b"]" * 900 + b"}", False),
    "deep": (b'{"changed": false, "gpu": ' + b"[" * 30_000 + b"]" * 30_000 + b"}", False),
    "long": (b'{"changed": false, "gpu": "' + b"x" * 9 * 2**20 + b'"}', False),
    "long-junk": (b"ANSWER\n" + b"x" * 9 * 2**20, False),
}
_PLAY = {
    "hosts": "gpu_hosts",
    "gather_facts": False,
    "tasks": [
        {"name": "Read", "gpufleet.nvidia.gpu_info": {}, "register": "read"},
        {"name": "Go on", "ansible.builtin.debug": {"msg": "{{ inventory_hostname }} went on"}},
    ],
}


def outcome(folder: Path, programs: Path | None = None) -> tuple[int, dict[str, bool], str]:
    """Return how a run over all of them ended, whether each host went on, and what was printed."""
    poisons = {f"dropped-{n}": DROPPED[n] for n in (0, 3, 5, 8)}
    poisons.update({f"refused-{n}": REFUSED[n] for n in (0, 8)})
    names = ("honest-1", *poisons, *WRITTEN, "honest-2")
    fleet = Fleet(folder / "fleet", {}, names)
    inventory = yaml.safe_load((fleet.folder / "inventory.yml").read_text())
    hosts = inventory["gpu_hosts"]["children"]["training"]["hosts"]
    for name in (*poisons, *WRITTEN):
        hostile = Fleet(folder / name, poisons.get(name, {}))
        if name in WRITTEN:
            (hostile.folder / "written").write_bytes(WRITTEN[name][0])
        (hostile.folder / "answers.json").write_text(json.dumps(hostile.answers))
        hosts[name] = {"ansible_python_interpreter": str(hostile.folder / "python")}
    (fleet.folder / "inventory.yml").write_text(yaml.safe_dump(inventory))
    (fleet.folder / "play.yml").write_text(yaml.safe_dump([_PLAY]))
    done = fleet.run("play.yml", "--forks", "2", programs=programs)
    text = done.stdout + done.stderr
    return done.returncode, {name: re.search(rf'"{name} went on"', text) is not None for name in names}, text
