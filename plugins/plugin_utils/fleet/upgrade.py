# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a rollout knows of a node, where that is kept, and which nodes it has to work on. Pure.

The record of a node lies in annotations of its Node object and in a file on the host, with the same names. A run that is cut off leaves
it there; the next run, on any machine, reads it and continues.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...module_utils._formats.host_names import UPGRADE_STEPS
from ...module_utils._formats.utc_time import lately, moment_of
from ...module_utils._health import repair_record
from ...module_utils._health.repair_record import found_cordoned
from ...module_utils._plan import Refused
from ...module_utils._printable import amount
from ...module_utils._schema import OUTPUT, Record, Unfit, boolean, check, has, number, of, text
from .objects import is_cordoned, is_ready, labels_of, metadata
from .text import LABEL_PREFIX
from .waves import CURRENT, DONE, FAILED, WAITING, Node

PREFIX = f"{LABEL_PREFIX}/"
REFUSED = "refused"
SKIP_LABEL = f"{PREFIX}upgrade.skip"

ROLLING_BACK = "rolling-back"
#: What a run is for, and what else the turn of a node can be.
UPGRADE, MIGRATE, HAND_OVER, CHANGE_STACK = WORK = ("upgrade", "migrate", "hand_over", "change_stack")
#: What leaves the driver of the host alone, and whoever uses it outside of pods.
LEAVES_DRIVER = (MIGRATE, CHANGE_STACK)
#: How the targets of migrations begin; only the first leaves half a host where it fails.
_MIGRATIONS = ("driver and container toolkit of ", "GPUs served by ", "device plugin of ")
#: Whose record is in a node's annotations beside that of a rollout, whose names begin with C(upgrade).
HEAL, REPARTITION = ("heal", "repartition")
ROLLBACK, REVERT = "rollback", "revert"
#: From this step on the host is not as it was.
_CHANGED = UPGRADE_STEPS[UPGRADE_STEPS.index("installing") :]
#: The steps after which a failure is a reason to go back: not once the new state is proven, nor on the way back itself.
_REVERTED = ("installing", "verifying")
_STATES = {
    UPGRADE: (*UPGRADE_STEPS, DONE, FAILED, REFUSED),
    HEAL: (*repair_record.STEPS, *repair_record.ENDS),
    REPARTITION: (UPGRADE_STEPS[0], FAILED, REFUSED),
}
_WAVE = re.compile("[0-9]{1,6}")
_TEXT = text(1024)


@dataclass(frozen=True)
class NodeRecord(Record):
    """What is kept of a node.

    :param state: a step; C(done); C(failed), out of service until somebody looked at it; C(refused), back in service because nothing
        of the host was changed; or empty when no rollout came here.
    :param origin: the driver version before the rollout.
    :param toolkit: the version of the container toolkit before it; empty when there was none.
    :param kernel: the release of the kernel before it; empty where the rollout leaves kernels alone.
    :param driver: the driver that the last rollout which changed it, or a rollback, left the host with; C(former) the one it took the place of.
    :param target: what the rollout brings; a record with another target belongs to an older rollout.
    :param wave: the how-manyeth node of its rollout this one was.
    :param initial_unschedulable: whether somebody had cordoned the node before; it stays so.
    """

    state: str = has(text(64), "")
    origin: str = has(_TEXT, "", called="from")
    target: str = has(_TEXT, "", called="to")
    wave: int = has(number(0, 10**6), 0)
    initial_unschedulable: bool = has(boolean, False)
    failed_reason: str = has(OUTPUT, "")
    operator: str = has(_TEXT, "")
    since: str = has(text(64), "")
    toolkit: str = has(_TEXT, "", called="from_toolkit")
    kernel: str = has(_TEXT, "", called="from_kernel")
    driver: str = has(_TEXT, "")
    former: str = has(_TEXT, "")

    @property
    def interrupted(self) -> bool:
        """Whether a run began with the node and did not end."""
        return self.state in UPGRADE_STEPS

    @property
    def ours(self) -> bool:
        """Whether the node is out of service because of a rollout."""
        return self.interrupted or self.state == FAILED

    @property
    def host_changed(self) -> bool:
        """Whether the host may not be as it was before."""
        return self.state in _CHANGED

    def values(self) -> dict[str, Any]:
        return {name: value for name, value in self.as_dict().items() if name != "schema"}

    def annotations(self, work: str = UPGRADE) -> dict[str, str | None]:
        """Return the annotations of the node; C(None) removes one. C(work): a rollout of either kind, C(heal) or C(repartition)."""
        return {annotation(work, name): _text(value) or None for name, value in self.values().items()}


_RECORD = of(NodeRecord)
_STATE = {work: text(pattern="|".join(("", *states))) for work, states in _STATES.items()}


def annotation(work: str, field: str) -> str:
    """Return the annotation with a field of a record, such as C(gpufleet.github.io/upgrade-failed-reason)."""
    return f"{PREFIX}{work}-{field.replace('_', '-')}"


def is_half_way(node: Any, operator: str) -> bool:
    """Whether this run, of any kind, has begun with a node and not ended, by its annotations, whatever else they say."""
    notes, steps = metadata(node).get("annotations") or {}, (*UPGRADE_STEPS, *repair_record.STEPS)
    records = ([notes.get(annotation(work, name)) for name in ("operator", "state")] for work in _STATES)
    return any(who == operator and state in steps for who, state in records)


def from_values(values: Any, work: str = UPGRADE) -> NodeRecord:
    """Return the record with these values, as L(Record.values) gives them."""
    found: NodeRecord = check(_RECORD, values)
    _STATE[work](found.state, "state")
    return found


def from_annotations(annotations: Mapping[str, str] | None, work: str = UPGRADE) -> NodeRecord:
    """Return the record in the annotations of a node; raise Unfit where they hold none that can be read."""
    given = {} if annotations is None else annotations
    if not isinstance(given, Mapping):
        raise Unfit("", "annotations must be a mapping")
    found: dict[str, Any] = {name: given.get(annotation(work, name)) for name in NodeRecord().values()}
    found["wave"] = int(found["wave"]) if _WAVE.fullmatch(str(found["wave"])) else found["wave"]
    unschedulable = found["initial_unschedulable"]
    found["initial_unschedulable"] = {"true": True, "false": False}.get(str(unschedulable), unschedulable)
    if work == REPARTITION and unschedulable and not found["state"]:
        # Releases before wrote down this alone.
        found["state"] = UPGRADE_STEPS[0]
    return from_values(found, work)


def begin(
    record: NodeRecord,
    origin: str,
    target: str,
    wave: int,
    unschedulable: bool,
    operator: str,
    now: str,
    toolkit: str = "",
    kernel: str = "",
) -> NodeRecord:
    """Return the record of a node that a rollout begins with, or continues.

    What was there before an interrupted run is what that run found, not what it left behind.

    :param kernel: the release of its running kernel, where the rollout changes that.
    """
    if record.interrupted and record.target == target:
        return replace(record, wave=wave, operator=operator, since=now)
    kept = found_cordoned(unschedulable, record.initial_unschedulable, record.ours)
    half_way = record.interrupted and record.host_changed
    if half_way:
        origin, toolkit, kernel = record.origin, record.toolkit, record.kernel or kernel
    return NodeRecord(
        "started", origin, target, wave, kept, "", operator, now, toolkit, kernel, record.driver, record.former
    )


def advance(record: NodeRecord, state: str) -> NodeRecord:
    """Return the record at a later step, or at its end.

    A run that continues passes the early steps again. The record does not go back with it: a host that was changed stays one that was
    changed, and is not put back into service as if nothing had happened.
    """
    if (
        record.state in UPGRADE_STEPS
        and state in UPGRADE_STEPS
        and UPGRADE_STEPS.index(state) < UPGRADE_STEPS.index(record.state)
    ):
        return record
    return replace(record, state=state)


def with_driver(record: NodeRecord, before: NodeRecord, driver: str) -> NodeRecord:
    """Return the record with what became of the driver: a run of C(site) must not take it back by itself.

    :param driver: that the host has at this step; empty where none is loaded.
    """
    if record.state == ROLLING_BACK:
        return record if before.state == ROLLING_BACK else replace(record, driver="", former=driver)
    former = before.former if before.state == ROLLING_BACK else record.origin
    ended = record.state == DONE or (before.state == ROLLING_BACK and record.state in (FAILED, REFUSED))
    if not ended or not driver or driver == former:
        return record
    return replace(record, driver=driver, former=former)


def turn(record: NodeRecord, work: str = UPGRADE) -> str:
    """Return what a node does in its turn: C(work), or the end of a rollback that was cut off.

    That one comes before everything else, and the new driver is not installed again by itself. A rollback with a reason is one after a failure and
    leaves the node out of service; one without was started by hand. A migration, of whichever kind, is not rolled back: none of its records says so.
    """
    if work != UPGRADE or record.state != ROLLING_BACK:
        return work
    return REVERT if record.failed_reason else ROLLBACK


def if_failed(record: NodeRecord, work: str = UPGRADE) -> dict[str, Any]:
    """Return how the turn of a node ends that fails with this record: the C(state) that is recorded, whether to C(uncordon) the node, because nothing
    of its host was changed, and whether there is something to C(revert). A node that is migrated stays where it is, and the next run moves it to the end.
    """
    if record.host_changed or work == MIGRATE:
        return {"state": FAILED, "uncordon": False, "revert": work == UPGRADE and record.state in _REVERTED}
    # Where nothing was begun, a node that failed earlier stays what it is: out of service by us, and not by people.
    return {"state": FAILED if record.state == FAILED else REFUSED, "uncordon": record.interrupted, "revert": False}


@dataclass(frozen=True)
class FleetHost:
    """One host of the fleet, as it was read.

    :param node: the Node object; None without a cluster, or when the cluster has none of that name.
    :param unread: why its record cannot be taken; empty where it can.
    :param rack: the rack whose hosts need one driver version; empty where it is in none.
    """

    host: str
    record: NodeRecord
    needed: bool
    node: Mapping[str, Any] | None = None
    reachable: bool = True
    unread: str = ""
    rack: str = ""


def unfinished(on_host: NodeRecord, on_node: NodeRecord, work: str = "", target: str = "") -> Refused | None:
    """Return why a run must leave a host alone: another one was cut off there, or failed, which only that one, or its way back, ends.

    :param work: of the run: that of a rollout to C(target), C(ROLLBACK), C(HEAL), or empty for what is none of them.
    """
    # The node's record is written before the host's: a run that was killed between the two has ended.
    of_node = on_node.ours or (on_node.state and on_node.target == on_host.target)
    record = on_node if of_node else on_host
    migration = _kind(record.target)
    if work in WORK[1:]:
        # What failed of its own kind it tries again, or takes back. Of another run it would prove nothing, and return the node all the same.
        same = record.target == target if record.interrupted else migration == _kind(target)
        stands = record.ours and not same
    elif migration:
        # Of the others the host has no half: what is broken on it is repaired, so that the migration can be tried again.
        stands = record.interrupted or (record.ours and (work != HEAL or migration == _MIGRATIONS[0]))
    else:
        stands = record.interrupted and work in ("", HEAL)
    if not stands:
        return None
    remedy = "Finish it first: gpufleet.nvidia.upgrade continues it, gpufleet.nvidia.rollback rolls it back."
    if migration:
        how = "gpufleet.nvidia.migrate" if record.interrupted else "gpufleet.nvidia.migrate with gpu_upgrade_retry=true"
        remedy = f"Finish it first: {how} continues it, with the variables of its pool as they were ({record.target})."
    ended = f"was cut off while {record.state}, or is still running" if record.interrupted else "failed"
    return Refused("the host", f"{'a migration' if migration else 'an upgrade'} of it {ended}", remedy)


def _kind(target: str) -> str:
    """Return how the target of a migration begins; empty for that of an upgrade."""
    return next(filter(target.startswith, _MIGRATIONS), "")


def wave_node(member: FleetHost, target: str, retry: bool, *, started_here: bool = False) -> Node:
    """Return the node as it is decided on.

    :param started_here: whether this run has begun with it: a record that still has a step then says that the host was lost.
    """
    record = member.record
    same = record.target == target
    unschedulable = is_cordoned(member.node)
    broken = record.state in (FAILED, REFUSED)
    if member.unread:
        # How far it came is not known: it is left alone, and counts as out of service.
        phase = WAITING
    elif started_here and (record.interrupted or broken):
        phase = FAILED
    elif record.interrupted:
        # A rollback that was cut off is among them: it is finished, and the new driver is not brought again by itself.
        phase = WAITING
    elif same and broken and not retry:
        phase = FAILED
    elif same and record.state == DONE and (started_here or not member.needed):
        phase = DONE
    else:
        phase = WAITING if member.needed or record.state == FAILED else CURRENT
    return Node(
        member.host,
        phase,
        ready=(is_ready(member.node) if member.node is not None else True) and member.reachable and not member.unread,
        cordoned=unschedulable,
        cordoned_by_hand=found_cordoned(unschedulable, record.initial_unschedulable, record.ours),
        skip=labels_of(member.node).get(SKIP_LABEL) == "true",
        rack=member.rack,
    )


def at_work_elsewhere(
    members: Iterable[FleetHost], here: str, now: datetime.datetime, seconds: int
) -> NodeRecord | None:
    """Return the record of a host on which another run is at work, where no cluster has a lease.

    :param now: what lies after it is not believed: a host can write any moment into its record.
    :param seconds: after which a run that has not renewed its lease is taken for dead.
    """
    for member in members:
        record = member.record
        if not record.interrupted or record.operator == here:
            continue
        if lately(moment_of(record.since), now, seconds):
            return record
    return None


def progress(nodes: Sequence[Node], members: Mapping[str, FleetHost], target: str) -> str:
    """Return one line that says how far a rollout is."""
    counts = {
        phase: sum(1 for node in nodes if node.phase == phase and not node.skip)
        for phase in (DONE, WAITING, FAILED, CURRENT)
    }
    parts = [f"{counts[DONE]} done", f"{counts[WAITING]} to go", f"{counts[FAILED]} failed"]
    if counts[CURRENT]:
        parts.append(f"{counts[CURRENT]} had nothing to do")
    skipped = [node.name for node in nodes if node.skip]
    if skipped:
        parts.append(f"{len(skipped)} skipped by label ({', '.join(skipped[:5])})")
    resumed = [name for name, member in members.items() if member.record.interrupted]
    if resumed:
        parts.append(f"{len(resumed)} cut off earlier ({', '.join(resumed[:5])})")
    return f"{target}: {', '.join(parts)}"


def would(nodes: Sequence[Node]) -> str:
    """Return one line for check mode, in which nothing is done."""
    counts = {phase: sum(1 for node in nodes if node.phase == phase and not node.skip) for phase in (DONE, FAILED)}
    return f"check mode: {amount(counts[DONE], 'host')} would be changed, {counts[FAILED]} would be refused or left as they are. Nothing was changed."


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if value else ""
