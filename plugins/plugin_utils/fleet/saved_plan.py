# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# ruff: noqa: RUF009 (the functions declare fields)

"""A plan as a file: what C(plan) found, to be read by people, and what a later run is held to. Pure.

It is JSON with one way to write it: a host without work is a line, and so is each step. It has digests of facts and variables, and none of their values but
those that steps have.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import zip_longest
from typing import Any

from ...module_utils._formats.documents import read_json
from ...module_utils._mig.state import NAMED
from ...module_utils._plan import Refused, StagePlan, Step
from ...module_utils._printable import LONGEST_OUTPUT, printable
from ...module_utils._schema import OUTPUT, Unfit, anything, check, has, items, mapping, needs, not_null, of, text
from ...module_utils._steps import Kind
from .plan import FleetPlan, HostPlan, NodeView
from .text import shortened

_IS_PLAN = "gpufleet.nvidia plan "
FORMAT = f"{_IS_PLAN}1"
AGAIN = "Plan again with gpu_plan_out, and have that plan approved."
#: Steps that end what a run that was cut off left half done: a plan that was begun has them, though nobody could foresee them.
_FINISHING = (Kind.FINISH_MIG_CHANGE, Kind.REPAIR_PACKAGE_DATABASE, Kind.FINISH_REPAIR)
#: Stages with what a change of the driver takes, and DCGM, which is for its CUDA: they bring it back afterwards, and a plan says so of each of which nothing
#: was to be done before.
_LOST_WITH_DRIVER = frozenset({"settings", "mig", "sharing", "dcgm"})
#: Of the data of a step, what was not asked for.
_OPEN = (None, "")
_NAME, MOMENT = text(256), "%Y-%m-%dT%H:%M:%SZ"
_MOST_HOSTS = 10**6
_WHY, _REFUSAL = ("unknown", "unread"), ("thing", "reason", "remedy")
_DIGEST = text(64, "[0-9a-f]+")
_TEXTS, _DIGESTS = items(OUTPUT), mapping(not_null(_DIGEST))


def _moment(value: Any, path: Any) -> Any:
    said = _NAME(value, path)
    try:
        time.strptime(said or "", MOMENT)
    except ValueError as error:
        raise Unfit(path, f"{said!r} is no time") from error
    return said


def _option(value: Any, path: Any) -> Any:
    return OUTPUT(value, path) if isinstance(value, str) else _TEXTS(value, path)


def _kind(value: Any, path: Any) -> Any:
    name = _NAME(value, path)
    if name is not None and name.upper() not in Kind.__members__:
        raise Unfit(path, f"{name!r} is no kind of step that this release has")
    return name and Kind[name.upper()]


def _refusal(value: Any, path: Any) -> Any:
    found = mapping(not_null(OUTPUT))(value, path)
    if found is not None and found.keys() != set(_REFUSAL):
        raise Unfit(path, "it must have a thing, a reason and a remedy")
    return found


@dataclass(frozen=True)
class Work:
    """A step of a stage; or of a stage, why its steps are not known, what of it is refused, or after which stage it brings back what that took."""

    stage: str = needs(_NAME)
    kind: Kind | None = has(_kind)
    target: str | None = has(OUTPUT)
    data: Mapping[str, Any] | None = has(mapping(anything))
    disturbs: tuple[str, ...] | None = has(_TEXTS)
    why: str | None = has(OUTPUT)
    unknown: str | None = has(OUTPUT)
    unread: str | None = has(OUTPUT)
    refused: Mapping[str, str] | None = has(_refusal)
    after: str | None = has(text(16, "driver"))

    @property
    def step(self) -> Step | None:
        if self.kind is None:
            return None
        return Step(self.kind, self.target or "", self.why or "", tuple(self.disturbs or ()), self.data or {})


@dataclass(frozen=True)
class PlannedHost:
    """What is planned of a host, and from what.

    :param facts: digests of the facts that were read for it, by place; of a host with work more exactly.
    :param variables: the digest of its variables.
    :param tree: the digest of what the files of the clusters say of its node.
    :param pods: of its node, those that use GPUs; for a playbook that empties it, those that are evicted.
    """

    pool: str | None = has(_NAME)
    facts: Mapping[str, str] | None = has(_DIGESTS)
    variables: str | None = has(_DIGEST)
    tree: str | None = has(_DIGEST)
    unread: str | None = has(OUTPUT)
    pods: tuple[str, ...] | None = has(_TEXTS)
    work: tuple[Work, ...] = has(items(of(Work)), ())

    @property
    def stages(self) -> dict[str, StagePlan]:
        """The plans of its stages that have work, as far as the file has them."""
        found = {}
        for name in dict.fromkeys(one.stage for one in self.work if not one.after):
            mine = [one for one in self.work if one.stage == name]
            refusals = tuple(Refused(**one.refused) for one in mine if one.refused)
            unknown, unread = (next(filter(None, (getattr(one, what) for one in mine)), None) for what in _WHY)
            steps = tuple(one.step for one in mine if one.step)
            found[name] = StagePlan(name, True, steps, unknown, refusals, (), unread)
        return found

    @property
    def brought_back(self) -> dict[str, StagePlan]:
        """The stages that bring back what the change of the driver takes."""
        why = "what the change of the driver takes comes back after it"
        return {one.stage: StagePlan(one.stage, True, unknown=why) for one in self.work if one.after}


@dataclass(frozen=True)
class SavedPlan:
    """A plan of a run.

    :param playbook: that it is made for.
    :param tree: the digest of the files of the clusters as they are to be, and C(files) those that change, with what happens to them.
    :param variables: by the digest of a host's variables, a digest of each that has not its default.
    """

    format: str = needs(text(64, FORMAT))
    release: str = needs(_NAME)
    made: str = needs(_moment)
    author: str | None = has(_NAME)
    playbook: str = needs(_NAME, "site")
    options: Mapping[str, Any] | None = has(mapping(_option))
    tree: str | None = has(_DIGEST)
    files: Mapping[str, str] | None = has(mapping(not_null(_NAME)))
    variables: Mapping[str, Mapping[str, str]] | None = has(mapping(not_null(_DIGESTS), _MOST_HOSTS))
    hosts: Mapping[str, PlannedHost] = needs(mapping(not_null(of(PlannedHost)), _MOST_HOSTS), None)

    def as_text(self) -> str:
        """Return the file."""
        parts = [f" {json.dumps(name)}: {_lines(value)}" for name, value in _bare(self).items()]
        body = "{\n" + ",\n".join(parts) + ",\n"
        return f'{body} "digest": "{_digest(body)}"\n}}\n'

    def host(self, host: str) -> PlannedHost:
        """Return what is planned of a host, which is nothing where the plan does not have it."""
        return (self.hosts or {}).get(host) or PlannedHost(unread="the plan does not have this host")

    def shown(self) -> FleetPlan:
        """Return it as what C(plan) prints."""
        nodes = {name: NodeView(name, pods=one.pods) for name, one in (self.hosts or {}).items() if one.pods}
        hosts = [
            HostPlan(name, one.pool, {**one.stages, **one.brought_back}, one.unread, nodes.get(name))
            for name, one in (self.hosts or {}).items()
        ]
        return FleetPlan(hosts, [{"action": done, "path": path} for path, done in (self.files or {}).items()])


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()


def _bare(one: Any) -> dict[str, Any]:
    """Return the fields of a part of it that say something."""
    return {each.name: value for each in fields(one) if (value := getattr(one, each.name)) not in (None, (), {}, "")}


def _line(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=lambda kind: kind.key)


def _lines(value: Any) -> str:
    """Return a mapping whose values are mappings, or hosts, with a line for each of them; of a host, with one for each step."""
    if not isinstance(value, Mapping) or not all(isinstance(one, (Mapping, PlannedHost)) for one in value.values()):
        return _line(value)
    return "{\n" + ",\n".join(f"  {json.dumps(name)}: {_entry(value[name])}" for name in sorted(value)) + "}"


def _entry(one: Any) -> str:
    if not isinstance(one, PlannedHost):
        return _line(one)
    said = _bare(one)
    work = [f"   {_line(_bare(each))}" for each in said.pop("work", ())]
    if not work:
        return _line(said)
    return f'{_line(said)[:-1]}{", " if said else ""}"work": [\n' + ",\n".join(work) + "]}"


def read(written: str, path: str) -> tuple[SavedPlan, str]:
    """Return the plan in a file, and its digest. Raises Refused: it is none, or not as it was written; the reason says where."""
    try:
        document = read_json(written, None)
    except ValueError as error:
        raise Refused(path, f"it is no whole JSON document ({error})", AGAIN) from error
    said = document.get("format") if isinstance(document, dict) else None
    if not isinstance(said, str) or not said.startswith(_IS_PLAN):
        raise Refused(path, "it is no plan that gpufleet.nvidia.plan wrote", AGAIN)
    if said != FORMAT:
        raise Refused(path, f"its format is {said}, and this release reads {FORMAT}", AGAIN)
    try:
        found: SavedPlan = check(_PLAN, document)
    except Unfit as unfit:
        raise Refused(path, f"{unfit.thing}: {unfit.reason}", AGAIN) from unfit
    again = found.as_text()
    if again != written:
        lines = enumerate(zip_longest(again.split("\n"), written.split("\n"), fillvalue=""), 1)
        number, meant = next((number, meant) for number, (meant, there) in lines if meant != there)
        what = "what is in it is not what its digest says" if '"digest"' in meant else "it is not as it was written"
        raise Refused(path, f"line {number}: {what}: somebody changed it", AGAIN)
    return found, digest_in(again)


def steps_of(results: Iterable[Mapping[str, Any]]) -> list[Step]:
    """Return the steps in the result of a module. Raises Unfit: they are none."""
    works = check(items(of(Work)), [{"stage": "-", **one} for one in results])
    return [one.step for one in works if one.step]


def digest_in(written: str) -> str:
    """Return the digest that a file has of itself."""
    return written.rpartition('"digest": "')[2].partition('"')[0]


_PLAN = of(SavedPlan)


def read_host(written: str, host: str, path: str) -> tuple[SavedPlan, str]:
    """Return of a plan that was read before what it has of one host, and its digest: a file with thousands is not parsed for each of them.

    Raises Refused: it is not as it was written.
    """
    body, digest = written.rpartition(' "digest": "')[0], digest_in(written)
    if digest != _digest(body):
        raise Refused(path, "what is in it is not what its digest says: somebody changed it", AGAIN)
    planned_host = _part(body, "hosts", host)
    found: PlannedHost = check(of(PlannedHost), planned_host or {})
    variables = {found.variables: _part(body, "variables", found.variables)} if found.variables else None
    hosts = {host: found} if planned_host is not None else {}
    return SavedPlan(FORMAT, "", "", variables=variables, hosts=hosts), digest


def _part(body: str, section: str, name: str) -> Any:
    """Return an entry of a mapping that has a line for each of them."""
    begin = f"\n  {json.dumps(name)}: "
    at = body.find(begin, body.find(f'\n "{section}": '))
    return json.JSONDecoder().raw_decode(body, at + len(begin))[0] if at >= 0 else None


def work_of(stages: Mapping[str, StagePlan]) -> Iterator[Work]:
    """Give what a file has of the stages of a host. Of texts for people, it has what can be shown."""
    for name, plan in stages.items():
        for step in plan.steps:
            data = json.loads(json.dumps(dict(step.data)))
            disturbs = tuple(map(_shown, step.disturbs)) or None
            yield Work(name, step.kind, step.target, data or None, disturbs, _shown(step.why) or None)
        for what in _WHY:
            if getattr(plan, what):
                yield Work(name, **{what: _shown(getattr(plan, what))})
        for refusal in plan.refusals:
            yield Work(name, refused={what: _shown(getattr(refusal, what)) for what in _REFUSAL})
    driver = stages.get("driver")
    if driver and (driver.steps or driver.unknown):
        lost = (plan for name, plan in stages.items() if name in _LOST_WITH_DRIVER)
        yield from (Work(one.stage, after="driver") for one in lost if not (one.steps or one.unknown or one.refusals))


def _shown(said: str) -> Any:
    return printable(said, lines=True, longest=LONGEST_OUTPUT)


def differences(
    then: PlannedHost, now: PlannedHost, before: Mapping[str, str], after: Mapping[str, str], begun: bool
) -> list[str]:
    """Return why a host is not what its plan was made of, a sentence each; nothing where the plan holds.

    :param before: digests of the variables that the plan was made from, and C(after) those of now.
    :param begun: the plan was begun on the host, and cut off: what it did already is no difference.
    """
    if now.unread or then.unread:
        return [f"it could not be read: {now.unread}" if now.unread else str(then.unread)]
    first = next((one.step for one in then.work if one.step), None)
    at = f'before the step "{first.what}": ' if first else ""
    found = []
    if not begun and then.facts != now.facts:
        names = _others(then.facts or {}, now.facts or {})
        found.append(f"{at}facts that the plan was made from are others now: {shortened(names)}")
    if then.variables != now.variables:
        found.append(f"{at}variables have other values: {shortened(_others(before, after)) or 'one with its default'}")
    return found + [
        f"{name}: {step.what}: {why}"
        for name, plan in now.stages.items()
        for step in plan.steps
        for why in objections(then, name, step, begun)
    ]


def objections(then: PlannedHost, stage: str, step: Step, begun: bool = False, exact: bool = False) -> list[str]:
    """Return why a step that is about to be carried out is none of the plan's; nothing where it is one.

    What one of them does not know, such as the version that a repository has for a branch, it leaves open. C(exact): a module says what it would do, as one
    did for the plan unless that says what is not known: what it knows beside is another step. Both are of one release, which has one order of steps.
    """
    mine = [one.step for one in then.work if one.stage == stage and one.step]
    if begun and mine and step.kind in _FINISHING:
        return []
    if begun and any(one.after for one in then.work if one.stage == stage) and not step.disturbs:
        return []
    exact = exact and not any(one.unknown for one in then.work if one.stage == stage)
    alike = [one for one in mine if (one.kind, one.target) == (step.kind, step.target)]
    found = [_objections(one, step, exact) for one in alike]
    return min(found, key=len) if found else ["it is not in the plan"]


def _objections(meant: Step, step: Step, exact: bool) -> list[str]:
    found = [
        f"{name} is {_line(meant.data.get(name))} in the plan, and {_line(value)} now"
        for name, value in json.loads(json.dumps(dict(step.data))).items()
        if value not in _OPEN and meant.data.get(name) != value
        if meant.data.get(name) not in _OPEN or (exact and name not in meant.data)
    ]
    # Whom a variable names is compared as such, and pods that are evicted by their names.
    others = sorted({*step.disturbs} - {*meant.disturbs, NAMED})
    return [*found, *([f"it disturbs {shortened(others)}, whom the plan does not name"] if others else [])]


def arrived(then: PlannedHost, pods: Iterable[str]) -> str:
    """Return which pods that are to be evicted the plan does not have; nothing where it has all."""
    others = sorted({*pods} - {*(then.pods or ())})
    return f"{shortened(others)} would be evicted, which the plan does not have" if others else ""


def _others(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    return sorted(name for name in {*one, *other} if one.get(name) != other.get(name))
