# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What was restarted on a lab host, as its own systemd wrote it into the journal: the host, its container runtimes and its kubelets."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes import KUBELETS, UNITS
from ansible_collections.gpufleet.nvidia.tests.drift import HOST

#: SD_MESSAGE_UNIT_STARTED and SD_MESSAGE_UNIT_STOPPING. What does not come up is stopped once and never started; what was dead is never stopped.
_STARTED, _STOPPING = "39f53479d3a045ac8e11786248231fbf", "de5b426a63be47a7b6ac3eaac82e2f6f"
_WATCHED = frozenset({*(f"{unit}.service" for unit in UNITS), *KUBELETS})
_KEEP = "/etc/systemd/journald.conf.d/zz-kept.conf"


def keep(lab: Any, host: str) -> None:
    """Have a host keep its journal over a boot; lab hosts have theirs in memory."""
    lab.sh(
        host,
        f"test -e {_KEEP} || {{ printf '[Journal]\\nStorage=persistent\\n' >{_KEEP}; systemctl restart systemd-journald; journalctl --flush; }}",
    )


def now(lab: Any, host: str) -> str:
    """Return the last entry of a host's journal."""
    cursor = lab.sh(host, "journalctl --sync; journalctl --quiet --lines=1 --output=json --output-fields=MESSAGE")
    return str(json.loads(cursor)["__CURSOR"])


def since(lab: Any, host: str, moment: str) -> dict[str, int]:
    """Return how often a host was booted since then, and its runtimes and kubelets started besides; what was not is left out.

    :param moment: of L(now).
    """
    fields = "--output=json --output-fields=MESSAGE_ID,UNIT,_BOOT_ID"
    shown = lab.sh(host, f"journalctl --sync; journalctl --quiet {fields} --after-cursor='{moment}' _PID=1")
    first = moment.partition(";b=")[2].partition(";")[0]
    return count([json.loads(line) for line in shown.splitlines()], first)


def count(entries: list[dict[str, str]], boot: str) -> dict[str, int]:
    """Return what L(since) does, from the entries of PID 1 and the boot in which they begin."""
    boots = [*dict.fromkeys([boot, *(entry["_BOOT_ID"] for entry in entries)])]
    found = Counter({HOST: len(boots) - 1})
    for number, identifier in enumerate(boots):
        seen = Counter((one.get("UNIT"), one.get("MESSAGE_ID")) for one in entries if one["_BOOT_ID"] == identifier)
        for unit in _WATCHED:
            # A boot starts it, and the end of one stops it.
            started = seen[unit, _STARTED] - (number > 0)
            stopped = seen[unit, _STOPPING] - (number < len(boots) - 1)
            found[unit] += max(started, stopped, 0)
    return {name: number for name, number in found.items() if number}
