# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The wish of a host: the variables of all host roles, with their defaults, checked before anything is touched."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Callable

import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.plain import plain

_ROLES = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(__file__))), "roles")
_REGISTER = re.compile(r"^\s*register: (\w+)\s*$", re.MULTILINE)
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

#: The roles whose variables describe a host, in the order in which C(site) runs them.
HOST_ROLES = ("gpu_facts", "nvidia_driver", "nvidia_toolkit", "nvidia_mig", "nvidia_sharing", "nvidia_health")


@dataclass(frozen=True)
class RoleInterface:
    """What a role's defaults and argument_specs say.

    :param defaults: variable name to default, as written (may hold templates).
    :param options: the argument specification of the entry point C(main).
    :param registered: names that the role's own tasks give a value.
    """

    role: str
    defaults: Mapping[str, Any]
    options: Mapping[str, Any]
    registered: frozenset[str]


@cache
def role_interface(role: str) -> RoleInterface:
    """Return the interface of C(role), read once a process."""
    defaults = _load(os.path.join(_ROLES, role, "defaults", "main.yml")) or {}
    specs = _load(os.path.join(_ROLES, role, "meta", "argument_specs.yml")) or {}
    options = specs.get("argument_specs", {}).get("main", {}).get("options", {})
    return RoleInterface(role, defaults, options, _registered(os.path.join(_ROLES, role, "tasks")))


def collect(
    variables: Mapping[str, Any], template: Callable[[Any], Any], roles: tuple[str, ...] = HOST_ROLES
) -> dict[str, Any]:
    """Return the wish of one host: every variable of C(roles), typed and complete.

    :param variables: the host's variables, possibly holding templates.
    :param template: renders a value that may hold templates.
    :raises Refused: a variable has the wrong type or a value that is not among its choices, or is the misspelt name of one.
    """
    wish: dict[str, Any] = {}
    for role in roles:
        interface = role_interface(role)
        known = set(interface.defaults) | set(interface.options)
        given = {name: plain(template(variables.get(name, interface.defaults.get(name)))) for name in sorted(known)}
        given = {name: value for name, value in given.items() if value is not None or name in interface.defaults}
        wish.update(_validated(interface, given))
        _refuse_unknown(role, variables, known | interface.registered)
    return wish


def _validated(interface: RoleInterface, given: dict[str, Any]) -> dict[str, Any]:
    if not interface.options:
        return given
    checked = {name: value for name, value in given.items() if name in interface.options}
    outcome = ArgumentSpecValidator(dict(interface.options)).validate(checked, validate_role_argument_spec=True)
    if outcome.error_messages:
        raise Refused(
            f"the variables of role gpufleet.nvidia.{interface.role}",
            "; ".join(outcome.error_messages).rstrip("."),
            f"ansible-doc -t role gpufleet.nvidia.{interface.role} lists them.",
        )
    return {**given, **plain(outcome.validated_parameters)}


def _refuse_unknown(role: str, variables: Mapping[str, Any], known: set[str]) -> None:
    """A misspelt variable would be ignored in silence: find names that start like the role's and are none of its own."""
    for name in variables:
        if not name.startswith(f"{role}_") or name in known:
            continue
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
        if near:
            raise Refused(name, f"role gpufleet.nvidia.{role} has no such variable", f"Did you mean {near[0]}?")


def _registered(folder: str) -> frozenset[str]:
    names: set[str] = set()
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        with open(os.path.join(folder, name), encoding="utf-8") as handle:
            names.update(_REGISTER.findall(handle.read()))
    return frozenset(names)


def _load(path: str) -> Any:
    if not os.path.isfile(path):
        return None
    with open(path, encoding="utf-8") as handle:
        return yaml.load(handle, Loader=_LOADER)
