# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Objects of other projects against the fields of their definitions, and what Kueue's webhook asks of a queue. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from ...module_utils._formats.documents import table
from .decode import describe
from .finding import Report, closest, group_of, join, mapping, near, sequence

_TYPES: Mapping[str, Any] = {"string": str, "boolean": bool, "integer": int, "number": (int, float)}
QUEUE = "ClusterQueue"
#: No tree brings them: a cluster may have another release, with more choices.
_OF_SITES = ("Kueue", "the Prometheus operator")


@dataclass(frozen=True)
class Definition:
    """What a release says of the objects of a kind.

    :param api: group and version.
    :param source: what brings it, with its version, for messages.
    :param fields: those of C(section); the name of a required one ends in C(*).
    """

    api: str
    source: str
    fields: Any

    @property
    def section(self) -> str:
        # The one kind without a spec.
        return "daemons" if isinstance(self.fields, list) else "spec"


@cache
def known_kinds() -> Mapping[str, Definition]:
    """Return the definitions by kind and version of the API, and by kind alone, of the last version."""
    found: dict[str, Definition] = {}
    for source, kinds in table(str(__package__), "object_fields").items():
        for title, fields in kinds.items():
            kind, _space, api = title.partition(" ")
            found[title] = found[kind] = Definition(api, source, fields)
    return found


def definition_of(document: Mapping[str, Any]) -> Definition | None:
    kind = str(document.get("kind"))
    found = known_kinds().get(f"{kind} {document.get('apiVersion')}") or known_kinds().get(kind)
    return found if found and found.api.partition("/")[0] == group_of(document) else None


def check(document: Mapping[str, Any], is_patch: bool, report: Report) -> None:
    """Check an object of a known kind. C(is_patch): it changes another one, and nothing is required of it."""
    known = definition_of(document)
    if known is None:
        return
    if document.get("apiVersion") != known.api:
        report.note("apiVersion", f"its fields are not checked: {known.source} has those of {known.api}")
        return
    check_fields(document.get(known.section), known.fields, known.section, report, known, is_patch)
    if document["kind"] == QUEUE:
        _queue(mapping(document.get("spec")), report)


def check_fields(
    value: Any, wanted: Any, path: str, report: Report, of: Definition | None = None, is_patch: bool = True
) -> None:
    """Check fields of a definition. Without one they are values of a chart, whose other keys, and numbers that it makes texts of, are its own; it leaves
    out empty texts.
    """
    if wanted == "any" or value is None or (of is None and value == ""):
        return
    if isinstance(wanted, Mapping) and isinstance(value, Mapping):
        if not is_patch:
            _required(value, wanted, path, report)
        wanted = {name.rstrip("*"): one for name, one in wanted.items()}
        for name, inner in value.items():
            if name in wanted:
                check_fields(inner, wanted[name], join(path, name), report, of, is_patch)
            elif of:
                message = f"the definition of {of.source} has no such field: the API server drops or refuses it"
                # Others may be of another release.
                slip = closest(str(name).lower(), [one.lower() for one in wanted], 0.75)
                remedy = near(str(name), wanted) if slip else _elsewhere(str(name), of) or near(str(name), wanted)
                (report.warning if slip else report.note)(f"{path}.{name}", message, remedy)
    elif isinstance(wanted, list) and isinstance(value, list):
        for number, item in enumerate(value):
            check_fields(item, wanted[0], f"{path}[{number}]", report, of, is_patch)
    else:
        kind, *choices = (
            ["mapping"] if isinstance(wanted, Mapping) else ["list"] if isinstance(wanted, list) else wanted.split()
        )
        fits = isinstance(value, _TYPES.get(kind, ())) and isinstance(value, bool) is (kind == "boolean")
        if of is None and not fits and (kind != "boolean" or value in ("true", "false")):
            return
        if not fits:
            report.error(path, f"{describe(value)} where a {kind} is expected: the API server refuses the object")
        elif choices and value not in {one.strip('"') for one in choices}:
            known = [one for one in choices if one != '""']
            message = f"{value!r} must be one of {', '.join(known)}: the API server refuses the object"
            of_another = (
                of and of.source.startswith(_OF_SITES) and not closest(value.lower(), map(str.lower, known), 0.6)
            )
            (report.warning if of_another else report.error)(path, message, near(value, known))


def _elsewhere(name: str, of: Definition) -> str:
    """Return a remedy where one section of an object, and no other, has a field of this name."""
    sections = of.fields.items() if isinstance(of.fields, Mapping) else ()
    found = [section.rstrip("*") for section, inner in sections if isinstance(inner, Mapping) and name in inner]
    return f"Did you mean {of.section}.{found[0]}.{name}?" if len(found) == 1 else ""


def _required(value: Mapping[str, Any], wanted: Mapping[str, Any], path: str, report: Report) -> None:
    needed = [name[:-1] for name in wanted if name.endswith("*")]
    missing = [name for name in needed if value.get(name) is None]
    if missing:
        what = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} required"
        # What has few of many may be meant for an object that has the others.
        few = path == "spec" and 2 * len(missing) > len(needed) > 1
        (report.note if few else report.error)(
            path,
            f"{what}: the API server refuses the object{', unless it is applied to one that has them' if few else ''}",
            f"Add {missing[0]}.",
        )


def _queue(spec: Mapping[str, Any], report: Report) -> None:
    """Check what pkg/webhooks/clusterqueue_webhook.go refuses."""
    seen: set[str] = set()
    for where, name, covered, quotas in _flavors(spec):
        given = [str(mapping(one).get("name")) for one in quotas]
        if given != covered:
            message = f"the resources of flavor {name} are {', '.join(given)}: Kueue refuses the queue"
            report.error(f"{where}.resources", message, f"Give each of {', '.join(covered)} its quota, in this order.")
        if name in seen:
            message = f"flavor {name} is given twice: Kueue refuses the queue"
            report.error(f"{where}.name", message, "Keep one.")
        seen.add(name)
        for number, one in enumerate(map(mapping, quotas)):
            for limit in (
                {"borrowingLimit", "lendingLimit"} & set(one)
                if not (spec.get("cohort") or spec.get("cohortName"))
                else ()
            ):
                message = "there is nothing to borrow or lend without a cohort: Kueue refuses the queue"
                report.error(f"{where}.resources[{number}].{limit}", message, "Name a cohort, or remove it.")


def _flavors(spec: Mapping[str, Any]) -> Iterator[tuple[str, str, list[str], list[Any]]]:
    """Yield where a flavor is, its name, the resources of its group, and its own."""
    for index, group in enumerate(map(mapping, sequence(spec.get("resourceGroups")))):
        covered = list(map(str, sequence(group.get("coveredResources"))))
        for number, one in enumerate(map(mapping, sequence(group.get("flavors")))):
            where = f"spec.resourceGroups[{index}].flavors[{number}]"
            yield where, str(one.get("name")), covered, sequence(one.get("resources"))


def names_of(document: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield where an object of Kueue names another one, its kind and its name."""
    spec, known = mapping(document.get("spec")), definition_of(document)
    if known and document["kind"] == QUEUE:
        yield from ((f"{where}.name", "ResourceFlavor", name) for where, name, _covered, _quotas in _flavors(spec))
    elif known and document["kind"] == "LocalQueue":
        yield "spec.clusterQueue", QUEUE, str(spec.get("clusterQueue"))
