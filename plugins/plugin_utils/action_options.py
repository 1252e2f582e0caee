# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The options of actions that run on the controller: declared once, in the documentation of their module, which is a file of YAML beside it.
An action says which of them it takes, and what is otherwise with it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from typing import Any

from .role_variables import load_yaml

_MODULES = os.path.join(os.path.dirname(os.path.dirname(__file__)), "modules")
_SPECIFIED = ("type", "elements", "choices", "default", "required")


@cache
def _documented(module: str) -> dict[str, dict[str, Any]]:
    options: dict[str, dict[str, Any]] = load_yaml(os.path.join(_MODULES, f"{module}.yml"))["DOCUMENTATION"]["options"]
    return options


def takes(module: str, names: str = "", needs: str = "", **defaults: Any) -> dict[str, Mapping[str, Any]]:
    """Return the argument specification of an action.

    :param names: options of the module that it takes as they are documented.
    :param needs: others that it has to be given.
    :param defaults: others, by their defaults with this action.
    """
    own: dict[str, dict[str, Any]] = {name: {"required": True} for name in needs.split()}
    own |= {name: {"default": default} for name, default in defaults.items()}
    found: dict[str, Mapping[str, Any]] = {}
    for name in (*names.split(), *own):
        option = {key: value for key, value in _documented(module)[name].items() if key in _SPECIFIED}
        if name in own:
            option.pop("default", None)
        found[name] = {**option, **own.get(name, {})}
    return found


def choice_of(*choices: str, default: str | None = None) -> dict[str, Any]:
    """Return the specification of an option whose choices are those of one action. C(default): None where it has to be given."""
    given = {"required": True} if default is None else {"default": default}
    return {"type": "str", "choices": [*choices], **given}
