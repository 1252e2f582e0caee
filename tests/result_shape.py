# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The one shape that C(steps), C(refusals) and C(diff) have in every result, held against results that modules and actions returned."""

from __future__ import annotations

#: What they were called in some results, and what holds it now.
FORMER = {"refusal": "refusals", "refused": "refusals", "plan": "steps"}
SHAPES = {
    "steps": {"kind": str, "target": str, "data": dict, "text": str, "why": str, "disturbs": list},
    "refusals": {"thing": str, "reason": str, "remedy": str, "message": str},
    "diff": {"before_header": str, "after_header": str, "before": str, "after": str},
}


def misshapen(result):
    """Return what of a result is not as in all others.

    :param result: what a module or an action returned. Only an action for the whole fleet has a plan of its own, of hosts.
    """
    plan = result.get("plan")
    ours = {"plan"} if isinstance(plan, dict) and "hosts" in plan else set()
    wrong = [f"{old} is now {new}" for old, new in FORMER.items() if old in result and old not in ours]
    for key, shape in SHAPES.items():
        for entry in result.get(key, []) if isinstance(result.get(key, []), list) else [None]:
            if not isinstance(entry, dict) or {name: type(entry.get(name)) for name in shape} != shape:
                wrong.append(f"{key}: {entry!r}")
            elif set(entry) - set(shape) - {"hosts"}:
                wrong.append(f"{key}: {sorted(set(entry) - set(shape))}")
    return wrong
