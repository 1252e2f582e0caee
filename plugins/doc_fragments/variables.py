# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documentation fragments, one for each module: its options that take a variable of a role as it is, with the words of the role."""

from __future__ import annotations

import json
import os
import re
from typing import Any

import yaml
from ansible_collections.gpufleet.nvidia.plugins.module_utils._options import OPTIONS

_ROLES = os.path.join(os.path.dirname(__file__), "..", "..", "roles")
_NAME = re.compile(r"\b[OC]\((nvidia_\w+)((?:=[^()]*)?)\)")


class ModuleDocFragment:
    """Has its attributes from the roles."""


def _documented(option: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    def named(found: re.Match[str]) -> str:
        return f"O({names[found[1]]}{found[2]})" if found[1] in names else f"C({found[1]}{found[2]})"

    text = option["description"]
    found = {key: value for key, value in option.items() if key not in ("options", "no_log")}
    found["description"] = [_NAME.sub(named, one) for one in ([text] if isinstance(text, str) else text)]
    if "options" in option:
        found["suboptions"] = {name: _documented(one, names) for name, one in option["options"].items()}
    return found


def _options_of(role: str) -> dict[str, Any]:
    with open(os.path.join(_ROLES, role, "meta", "argument_specs.yml"), encoding="utf-8") as handle:
        options: dict[str, Any] = yaml.safe_load(handle)["argument_specs"]["main"]["options"]
    return options


for _module, _options in OPTIONS.items():
    _names = {variable: option for option, (variable, _specification) in _options.items()}
    _variables = _options_of("_".join(next(iter(_names)).split("_")[:2]))
    _texts = {option: _documented(_variables[variable], _names) for variable, option in _names.items()}
    setattr(ModuleDocFragment, _module.upper(), json.dumps({"options": _texts}))
