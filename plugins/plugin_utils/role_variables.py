# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The desired state of a host: the variables of all host roles, with their defaults, checked before anything is touched."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any, Callable

import yaml
from ansible.errors import AnsibleError
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator, ValidationResult

from ..module_utils._plan import Refused
from .plain import plain

_ROLES = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(__file__))), "roles")
_REGISTER = re.compile(r"^\s*register: (\w+)\s*$", re.MULTILINE)
_WORD = re.compile(r"\w+")
_MOST_DIGITS = 4300
#: Of one role that are named one by one: a list of thousands is not read.
_MOST_MISTAKES = 20
#: Different values of one role that are remembered as checked.
_MOST_TAKEN = 64
_HALF_CHARACTER = re.compile(r"[\ud800-\udfff]")
#: What a value of a type of an argument specification has to be, in a sentence.
_KINDS = {
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "str": "text",
    "list": "a list",
    "dict": "a mapping",
}
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load_yaml(path: str) -> Any:
    """Return what a file of the collection holds; None where there is no such file."""
    if not os.path.isfile(path):
        return None
    with open(path, encoding="utf-8") as handle:
        return yaml.load(handle, Loader=_LOADER)


_NAMES = load_yaml(os.path.join(os.path.dirname(__file__), "former_names.yml"))
#: Variables of earlier releases: what replaces each, and how.
RENAMED = {
    **{old: (f"its name is {new} now", "Rename it.") for old, new in _NAMES["renamed"].items()},
    **{old: (why, remedy) for old, (why, remedy) in _NAMES["replaced"].items()},
}
#: Former names of variables that still count where the present one has its default, until 2.0.0.
FORMER: dict[str, str] = _NAMES["former"]
#: The roles whose variables describe a host, in the order in which C(site) runs them.
HOST_ROLES = (
    "gpu_facts",
    "nvidia_driver",
    "nvidia_toolkit",
    "nvidia_settings",
    "nvidia_mig",
    "nvidia_sharing",
    "nvidia_dcgm",
    "nvidia_health",
)


@dataclass(frozen=True)
class RoleInterface:
    """What a role's argument_specs say, of which its defaults are generated.

    :param registered: names that the role's own tasks give a value.
    :param described: where a person reads what the variables mean, one sentence.
    :param taken: values that were found right, by their text, as they are taken.
    """

    role: str
    defaults: Mapping[str, Any]
    options: Mapping[str, Any]
    registered: frozenset[str]
    described: str = field(default="", compare=False)
    taken: dict[str, dict[str, Any]] = field(default_factory=dict, compare=False, repr=False)


@cache
def role_interface(role: str) -> RoleInterface:
    """Return the interface of C(role), read once a process."""
    specs = load_yaml(os.path.join(_ROLES, role, "meta", "argument_specs.yml")) or {}
    options = specs.get("argument_specs", {}).get("main", {}).get("options", {})
    defaults = {name: option["default"] for name, option in options.items() if "default" in option}
    described = f"ansible-doc -t role gpufleet.nvidia.{role} describes it."
    return RoleInterface(role, defaults, options, registered(os.path.join(_ROLES, role, "tasks")), described)


def entry_points(role: str) -> dict[str, dict[str, Any]]:
    """Return the options of every entry point of C(role), by its name."""
    specs = load_yaml(os.path.join(_ROLES, role, "meta", "argument_specs.yml"))["argument_specs"]
    return {str(name): entry.get("options") or {} for name, entry in specs.items()}


class VariablesRefused(Refused):
    """Several variables of a host cannot be taken as they are. C(refusals) holds one for each."""

    def __init__(self, refusals: Sequence[Refused]) -> None:
        self.refusals = tuple(refusals)
        first = self.refusals[0]
        super().__init__(", ".join(one.thing for one in self.refusals), first.reason, first.remedy)

    @property
    def message(self) -> str:
        return "\n".join(one.message for one in self.refusals)


def refusals_of(refusal: Refused) -> tuple[Refused, ...]:
    """Return the single refusals that C(refusal) stands for."""
    return refusal.refusals if isinstance(refusal, VariablesRefused) else (refusal,)


def collect(
    variables: Mapping[str, Any], template: Callable[[Any], Any], roles: tuple[str, ...] = HOST_ROLES
) -> dict[str, Any]:
    """Return the desired state of one host: every variable of C(roles), typed and complete.

    :raises VariablesRefused: variables have the wrong type or a value that is not among their choices, or are the misspelt name of one.
    """
    desired: dict[str, Any] = {}
    refusals: list[Refused] = []
    for role in roles:
        interface = role_interface(role)
        given, unread = values_of({*interface.defaults, *interface.options}, variables, template, interface.defaults)
        checked, wrong = validated(interface, given)
        desired.update(checked)
        refusals += [*unread, *wrong]
    refusals += _misspelt(variables, roles)
    if refusals:
        raise VariablesRefused(refusals)
    return desired


def inventory_lines(extra: Mapping[str, Any]) -> list[str]:
    """Return the lines of the inventory for variables of the host roles that were given with C(-e), which end with the run: the next C(site) would
    take back what they brought.
    """
    names = {name for role in HOST_ROLES for name in role_interface(role).options} | set(FORMER.values())
    return [f"{name}: {json.dumps(plain(extra[name]))}" for name in sorted(names.intersection(extra))]


def value_of(
    name: str, variables: Mapping[str, Any], template: Callable[[Any], Any] = lambda value: value, default: Any = None
) -> Any:
    """Return the value of a variable of a host as plain data.

    :raises Refused: its template cannot be rendered, or its vault cannot be opened.
    """
    try:
        return plain(template(variables.get(name, default)))
    except (AnsibleError, TypeError) as error:
        said = (str(error).strip().splitlines() or ["it cannot be read"])[0].rstrip(".")
        of_vault = "vault" in said.lower()
        remedy = "Give the password of its vault with --vault-id." if of_vault else "Define what its template uses."
        raise Refused(name, said, remedy) from error


def values_of(
    names: Iterable[str], variables: Mapping[str, Any], template: Callable[[Any], Any], defaults: Mapping[str, Any]
) -> tuple[dict[str, Any], list[Refused]]:
    """Return the values of those variables of a host that are set or have a default, and why some of them cannot be read."""
    found, refusals = {}, []
    for name in sorted(names):
        default, former = defaults.get(name), FORMER.get(name)
        given = former if former and former in variables and variables.get(name, default) == default else name
        if given not in variables:
            if name in defaults:
                found[name] = plain(default)
            continue
        try:
            value = value_of(str(given), variables, template, default)
        except Refused as refusal:
            refusals.append(refusal)
            continue
        if value is not None or name in defaults:
            found[name] = value
    return found, refusals


def validated(interface: RoleInterface, given: dict[str, Any]) -> tuple[dict[str, Any], list[Refused]]:
    """Return the values in the types that the interface says, and why some of them cannot be taken."""
    if not interface.options:
        return given, []
    # Hosts of a pool have the same values.
    said = repr(given)
    if said in interface.taken:
        return plain(interface.taken[said]), []
    checked = {name: value for name, value in given.items() if name in interface.options}
    paths = list(_numbers(interface.options, checked))
    tops = {path.partition(".")[0].partition("[")[0] for path in paths}
    checked = {name: value for name, value in checked.items() if name not in tops}
    try:
        outcome = _outcome(interface.options, checked)
    except (OverflowError, ValueError):
        broken = [name for name in checked if _breaks(interface, checked, name)]
        return given, [Refused(name, f"{checked[name]!r} must be finite", interface.described) for name in broken]
    messages = outcome.error_messages
    wrong = [_number(path, interface) for path in paths]
    wrong += [_explained(interface, message.rstrip("."), given) for message in messages[:_MOST_MISTAKES]]
    if len(messages) > _MOST_MISTAKES:
        rest = f"{len(messages) - _MOST_MISTAKES} more values are invalid"
        wrong.append(Refused(f"the variables of role gpufleet.nvidia.{interface.role}", rest, interface.described))
    taken = plain(outcome.validated_parameters)
    for name in sorted(name for name in taken if name in checked):
        reason = _unusable(taken[name])
        if reason:
            wrong.append(Refused(name, reason, interface.described))
            taken[name] = None
    found = {**given, **taken}
    if not wrong:
        if len(interface.taken) >= _MOST_TAKEN:
            interface.taken.clear()
        interface.taken[said] = plain(found)
    return found, wrong


def _numbers(options: Mapping[str, Any], given: Any, path: str = "") -> Iterator[str]:
    """Give the paths of numbers with a decimal point where a text belongs: YAML has already made 1.3 of 1.30."""
    for name, option in options.items() if isinstance(given, Mapping) else ():
        value, several = given.get(name), isinstance(given.get(name), list)
        kind = option.get("elements") if several else option.get("type", "str")
        for position, entry in enumerate(value if several else [value]):
            where = f"{path}{name}[{position}]" if several else f"{path}{name}"
            if kind == "str" and isinstance(entry, float):
                yield where
            yield from _numbers(option.get("options") or {}, entry, f"{where}.")


def _number(path: str, interface: RoleInterface) -> Refused:
    # The value may be a password, and is not shown.
    example = interface.defaults.get(path)
    written = f"{path}: {json.dumps(example)}" if example and isinstance(example, str) else f'{path}: "..."'
    reason = "it is a number with a decimal point where a text belongs, of which YAML drops zeros at the end: 1.30 is read as 1.3"
    return Refused(path, reason, f"Write it in quotes, such as {written}.")


def _outcome(options: Mapping[str, Any], given: Mapping[str, Any]) -> ValidationResult:
    return ArgumentSpecValidator(dict(options)).validate(given, validate_role_argument_spec=True)


def _breaks(interface: RoleInterface, given: Mapping[str, Any], name: str) -> bool:
    """Whether ansible-core ends with a trace at a value, as 2.19 does at an infinity where an integer belongs."""
    try:
        _outcome({name: interface.options[name]}, {name: given[name]})
    except (OverflowError, ValueError):
        return True
    return False


def _unusable(value: Any) -> str:
    """Return why a value that has its type cannot be worked with, or an empty string."""
    if isinstance(value, (dict, list)):
        items = [*value, *value.values()] if isinstance(value, dict) else value
        return next(filter(None, map(_unusable, items)), "")
    if isinstance(value, int) and abs(value) >= 2**63:
        return "it has an integer of more than 64 bits"
    # Python makes neither a text of a longer integer, which every message has in it, nor an integer of a longer text.
    if isinstance(value, str) and len(value) > _MOST_DIGITS and value.isdigit():
        return f"it has a number of more than {_MOST_DIGITS} digits"
    # The value may be a password, and is not shown.
    if isinstance(value, str) and not value.isascii() and _HALF_CHARACTER.search(value):
        return "it has half of a character (a surrogate), which no file can hold"
    return ""


def _explained(interface: RoleInterface, message: str, given: Mapping[str, Any]) -> Refused:
    """Say what the validator said in terms of the variable, its value, and what would be taken."""
    remedy = interface.described
    words = set(_WORD.findall(message))
    name = next((option for option in interface.options if option in words), None)
    if name is None:
        return Refused(f"the variables of role gpufleet.nvidia.{interface.role}", message, remedy)
    option, value = interface.options[name], given.get(name)
    choices = [str(choice) for choice in option.get("choices", ())]
    if choices and str(value) not in choices:
        near = difflib.get_close_matches(str(value), choices, n=1)
        reason = f"{value!r} must be one of {', '.join(choices)}"
        return Refused(name, reason, f"Did you mean {near[0]}?" if near else remedy)
    if message.startswith(f"argument '{name}' is of type"):
        kind = _KINDS.get(option.get("type", "str"), option.get("type", "str"))
        example = f"The default is {interface.defaults[name]!r}. " if name in interface.defaults else ""
        return Refused(name, f"{value!r} must be {kind}", f"{example}{remedy}")
    return Refused(name, message, remedy)


def deprecations(variables: Mapping[str, Any]) -> list[str]:
    """Return what is to be said of former names among the variables of a host, which still count."""
    return [
        f"{old}: its name is {new}. The former name counts until 2.0.0."
        for new, old in FORMER.items()
        if old in variables
    ]


def renamed(name: str) -> Refused:
    """Return the refusal of a variable of an earlier release, which names what replaces it."""
    why, remedy = RENAMED[name]
    return Refused(name, f"it no longer exists: {why}", remedy)


def _misspelt(variables: Mapping[str, Any], roles: tuple[str, ...]) -> list[Refused]:
    """A misspelt variable would be ignored in silence: find names that are nearly those of the roles' variables."""
    found = []
    for name in variables:
        if name in RENAMED:
            found.append(renamed(str(name)))
            continue
        meant = _meant(str(name), roles)
        if meant:
            found.append(Refused(str(name), "no role of gpufleet.nvidia has such a variable", f"Did you mean {meant}?"))
    return found


@lru_cache(maxsize=65536)
def _meant(name: str, roles: tuple[str, ...]) -> str | None:
    """Return the variable that C(name) is a slip of, or None.

    One that holds a variable's whole name, such as C(nvidia_mig_layout_night), is a variable of the site's own.
    """
    known, taken = _names(roles)
    if name in known or name in taken or any(f"{one}_" in name or f"_{one}" in name for one in known):
        return None
    return nearest(name, known, name.startswith(tuple(f"{role}_" for role in roles)))


@lru_cache(maxsize=65536)
def nearest(name: str, known: tuple[str, ...], own: bool) -> str | None:
    """Return the variable that C(name) is a slip of, or None. One that does not begin as ours do differs in a letter or two only."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.8 if own else 0.92)
    return near[0] if near and (own or abs(len(near[0]) - len(name)) <= 2) else None


@cache
def _names(roles: tuple[str, ...]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return the variables of C(roles), and what else has a meaning: other roles' variables and registered results."""
    known = [set(role_interface(role).defaults) | set(role_interface(role).options) for role in roles]
    return tuple(sorted(set().union(*known))), names_of_all_roles()


@cache
def names_of_all_roles() -> frozenset[str]:
    """Return the names that have a meaning for some role: its variables, and the results that its tasks register."""
    everywhere = [role_interface(role) for role in os.listdir(_ROLES)]
    return frozenset(FORMER.values()).union(
        *(set(one.defaults) | set(one.options) | one.registered for one in everywhere)
    )


def registered(folder: str) -> frozenset[str]:
    """Return the names that the tasks in the files of a folder register."""
    names: set[str] = set()
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        if not name.endswith((".yml", ".yaml")):
            continue
        with open(os.path.join(folder, name), encoding="utf-8") as handle:
            names.update(_REGISTER.findall(handle.read()))
    return frozenset(names)
