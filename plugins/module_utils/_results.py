# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How the modules that plan end: C(steps), C(refusals) and C(diff) have one shape in all of their results, and it is made here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, Protocol

from ._plan import Plan, Refused, steps_diff


class Module(Protocol):
    """What is needed of Ansible's C(AnsibleModule)."""

    _diff: bool

    def warn(self, warning: str) -> None: ...

    def exit_json(self, **kwargs: Any) -> NoReturn: ...

    def fail_json(self, msg: str, **kwargs: Any) -> NoReturn: ...


def succeed(
    module: Module, name: str, plan: Plan, parts: Sequence[Mapping[str, str]] | None = None, **more: Any
) -> NoReturn:
    """End a module that carried out a plan, or in check mode made one.

    :param name: what was planned, for the headers of C(--diff).
    :param parts: what C(--diff) shows beside the steps, where it is not the state before and after.
    """
    for warning in plan.warnings:
        module.warn(warning)
    result = {**plan.as_dict(), **more}
    if module._diff:
        shown = [steps_diff(name, plan.steps), *([plan.diff(name)] if parts is None else parts)]
        result["diff"] = [part for part in shown if part["before"] != part["after"]]
    module.exit_json(**result)


def refuse(module: Module, *refusals: Refused) -> NoReturn:
    """End a module whose request cannot be met, before anything was changed."""
    text = "\n".join(refusal.message for refusal in refusals)
    module.fail_json(msg=f"{text} Nothing was changed.", refusals=[refusal.as_dict() for refusal in refusals])
