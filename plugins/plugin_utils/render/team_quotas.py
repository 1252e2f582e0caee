# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The numbers of the quotas in a cluster around a new layout: lowered before it, raised after it as far as the nodes offer what is described. Pure."""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ...module_utils._plan import Refused
from ..fleet.objects import CLUSTER_QUEUE, RESOURCE_QUOTA, metadata, taken
from ..fleet.pods import quantity
from .clusters import DescribedCluster
from .gitops import QUOTAS
from .quotas import FLAVOR_PREFIX, counted_as, flavor_of, quota_objects

QUEUE, QUOTA = "ClusterQueue", "ResourceQuota"
#: Kinds of objects with numbers, and what is read of them.
SHAPES = {QUEUE: CLUSTER_QUEUE, QUOTA: RESOURCE_QUOTA}
#: What a rendered ResourceQuota names. Whatever else somebody limits by it is left alone.
_COUNTED = re.compile(
    r"requests[.]nvidia[.]com/(gpu|mig-.+?)([.]shared)?|((gpu|mig)[.]nvidia[.]com|gpufleet-.+)[.]deviceclass[.]resource[.]k8s[.]io/devices"
)
#: Flavor (a ResourceQuota has none) and name of what is counted.
Key = tuple[str, str]


def described(cluster: DescribedCluster) -> dict[str, Any]:
    """Return what C(repartition) has to know: the hosts, the objects, their file and what syncs it, and what is counted, of which nodes."""
    kueue, gitops = cluster.options["quota_kind"] == "kueue", cluster.options["gitops"]
    offered = [
        {
            "key": [flavor_of(item) if kueue else "", name],
            "resource": resource,
            "nodes": list(item.nodes),
            "number": sum(one.offers.get(resource, 0) for one in item.capacities),
        }
        for item in cluster.configurations
        for resource in item.capacity.offers
        for name in ([resource] if kueue else counted_as(item, resource))
    ]
    return {
        "file": f"clusters/{cluster.name}/{QUOTAS}/quotas.yaml",
        "gitops": "" if gitops == "none" else gitops,
        "hosts": [host for item in cluster.configurations for host in item.hosts],
        "objects": quota_objects(cluster),
        "offered": offered,
    }


def existing(offered: Iterable[Any], nodes: Mapping[str, Mapping[str, int]]) -> dict[Key, tuple[int, int]]:
    """Return, by what is counted, how many of the described ones C(nodes) offer now, and how many are described."""
    found: dict[Key, tuple[int, int]] = {}
    for one in offered:
        there = sum(nodes.get(node, {}).get(one["resource"], 0) for node in one["nodes"])
        have, of = found.get(tuple(one["key"]), (0, 0))
        found[tuple(one["key"])] = (have + min(there, one["number"]), of + one["number"])
    return found


def changes(
    file: str,
    objects: Iterable[Mapping[str, Any]],
    live: Mapping[str, list[Any]],
    there: Mapping[Key, tuple[int, int]] | None = None,
) -> tuple[list[tuple[str, Mapping[str, Any], dict[str, Any], str]], list[str]]:
    """Return what changes (kind, object as it was read, what of its spec is written, and as text), and what a person has to know beside.

    Lowered, each is the smaller one of now and described. Raised, it is the part of the described one that the nodes have of what is described, and
    never less than lowered: so the sum of all teams is not above what exists. An object of a team that is described no more gets 0, because without
    it the pods of its namespaces would not be limited.

    :param file: which has the described C(objects), for messages.
    :param live: by kind, those that the cluster has.
    :param there: L(existing), to raise; None to lower.
    :raises Refused: an object of the cluster cannot be read.
    """
    wanted = {_title(one["kind"], one): one for one in objects if one["kind"] in SHAPES}
    found, notes = [], []
    for kind, one in ((kind, one) for kind, items in live.items() for one in items):
        if not taken([one], SHAPES[kind]) or not metadata(one).get("resourceVersion"):
            name = _title(kind, one) if taken([one], {"metadata": {"name": str, "namespace": str}}) else f"one {kind}"
            raise Refused(name, "it is not as the API defines it", f"Correct it, or apply {file} again.")
        title = _title(kind, one)
        goal = wanted.pop(title, None)
        now = _numbers(kind, one, title)
        # A resource that nodes offer no more keeps its 0 in a ResourceQuota, and a queue does not cover it any more.
        goals = {**dict.fromkeys(now if kind == QUOTA or not goal else (), 0), **_numbers(kind, goal or {}, file)}
        then = {}
        for key, most in goals.items():
            have, of = (there or {}).get(key, (0, 0))
            then[key] = max(min(now.get(key, 0), most), most * have // of if of else 0)
            if there is not None and then[key] < most:
                notes.append(
                    f"{title}: {' '.join(key).strip()} is {then[key]} of {most}: the nodes offer {have} of {of} so far."
                )
        # What a ResourceQuota does not name has no limit; what a queue does not cover has none to give.
        absent = 0 if kind == QUEUE else "no limit"
        new = [key for key in sorted({*now, *then}) if now.get(key, absent) != then.get(key, 0)]
        if new:
            text = ", ".join(f"{' '.join(key).strip()} {now.get(key, absent)} -> {then.get(key, 0)}" for key in new)
            found.append((kind, one, _spec(kind, one, goal or one, then), f"{title}: {text}"))
    return found, [*notes, *(f"{title} is not in the cluster: apply {file}." for title in wanted)]


def _title(kind: str, one: Mapping[str, Any]) -> str:
    return " ".join(filter(None, (kind, metadata(one).get("namespace"), metadata(one).get("name"))))


def _numbers(kind: str, one: Mapping[str, Any], where: str) -> dict[Key, int]:
    """Return the rendered numbers of an object, without those of others."""
    cells = _cells(_groups(one)) if kind == QUEUE else {}
    values = {key: item.get("nominalQuota") for key, item in cells.items() if key[0].startswith(FLAVOR_PREFIX)}
    hard = (one.get("spec") or {}).get("hard") or {}
    values |= {("", name): value for name, value in hard.items() if kind == QUOTA and _COUNTED.fullmatch(name)}
    for key, value in values.items():
        if not quantity(value) and str(value) != "0":
            raise Refused(f"{where}: {' '.join(key).strip()}", f"{value!r} is not a number of devices", "Correct it.")
    return {key: quantity(value) for key, value in values.items()}


def _groups(one: Mapping[str, Any]) -> list[dict[str, Any]]:
    return (one.get("spec") or {}).get("resourceGroups") or []


def _cells(groups: Iterable[Mapping[str, Any]]) -> dict[Key, dict[str, Any]]:
    """Return the entries of a queue by flavor and resource."""
    flavors = [flavor for group in groups for flavor in group.get("flavors") or ()]
    return {
        (str(one.get("name")), str(item.get("name"))): item for one in flavors for item in one.get("resources") or ()
    }


def _spec(kind: str, one: Mapping[str, Any], goal: Mapping[str, Any], then: Mapping[Key, int]) -> dict[str, Any]:
    """Return what is written: these numbers of what C(goal) names. What others added stays."""
    if kind == QUOTA:
        return {"hard": {name: str(number) for (_flavor, name), number in then.items()}}
    ours, others = filter(_is_ours, _groups(goal)), itertools.filterfalse(_is_ours, _groups(one) or _groups(goal))
    groups, old = copy.deepcopy([*ours, *others]), _cells(_groups(one))
    _keep_foreign_flavors(one, groups)
    for key, item in _cells(groups).items():
        item.update({**old.get(key, {}), **({"nominalQuota": str(then[key])} if key in then else {})})
    return {"resourceGroups": groups}


def _keep_foreign_flavors(one: Mapping[str, Any], groups: Iterable[dict[str, Any]]) -> None:
    """Add the flavors that others gave the groups of ours: all flavors of a group have the same resources, so a group with others cannot take them.

    :raises Refused: a flavor fits no group.
    """
    for flavor in (flavor for group in filter(_is_ours, _groups(one)) for flavor in group.get("flavors") or ()):
        resources = {str(item.get("name")) for item in flavor.get("resources") or ()}
        if str(flavor.get("name")).startswith(FLAVOR_PREFIX):
            continue
        group = next((group for group in groups if set(group.get("coveredResources") or ()) == resources), None)
        if group is None:
            reason = f"somebody added the flavor {flavor.get('name')}, which has not the resources that are described"
            remedy = "Take it out, or give it a ClusterQueue of its own in the cohort."
            raise Refused(f"ClusterQueue {metadata(one).get('name')}", reason, remedy)
        group["flavors"] = [*group["flavors"], copy.deepcopy(flavor)]


def _is_ours(group: Mapping[str, Any]) -> bool:
    return any(flavor.startswith(FLAVOR_PREFIX) for flavor, _name in _cells([group]))
