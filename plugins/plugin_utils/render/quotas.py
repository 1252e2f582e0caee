# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What each team may use of each pool (C(gpu_kubernetes_quotas)), as numbers and as objects of Kueue or ResourceQuotas. Pure.

The numbers are shares of what C(capacity.json) says of the nodes, so that their sum is never above it.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ...module_utils._plan import Refused
from ..fleet.claims import GPU_CLASS, MIG_CLASS
from ..fleet.node_match import VARIABLE as NODE_MATCH
from ..fleet.text import LABEL_PREFIX
from . import claimed_devices
from .clusters import MANAGED_BY, DescribedCluster, PluginConfiguration, kube_object
from .emit import made

VARIABLE, KIND = "gpu_kubernetes_quotas", "gpu_kubernetes_quota_kind"
TEAM_LABEL = f"{LABEL_PREFIX}/team"
#: Of Kueue 0.14, and served by 0.19 beside v1beta2; its limits of a resource group are those of its definition.
API_VERSION = "kueue.x-k8s.io/v1beta1"
_MOST = 64
_MOST_LABELS = 8
#: The flavor without limits; names of configurations have no dot.
_UNLIMITED_FLAVOR = "gpufleet.unlimited"
FLAVOR_PREFIX = "gpufleet-"
#: Kueue holds a pod that requests what its queue does not cover, and nothing here says how much of this the nodes have: as good as no limit.
_UNLIMITED = {"cpu": "1000000", "memory": "1Ei", "ephemeral-storage": "1Ei"}
_ALL = 100
#: Percentages are read to six digits after the point.
_PARTS = 10**6


@dataclass(frozen=True)
class Team:
    """A team as the variable names it; C(queue) is the name of its objects."""

    name: str
    namespaces: tuple[str, ...]
    path: str
    queue: str


@dataclass(frozen=True)
class _Share:
    """What a team gets of a resource of a pool, before it is rounded."""

    team: str
    exact: Fraction
    percent: Fraction | None
    path: str


@dataclass(frozen=True)
class Quotas:
    """The numbers of a cluster.

    :param offered: by pool and resource, what the nodes of the inventory offer together.
    :param given: by team, configuration and resource, how much of it.
    """

    teams: tuple[Team, ...]
    offered: Mapping[tuple[str, str], int]
    given: Counter[tuple[str, str, str]]

    def of_pool(self, cluster: DescribedCluster, team: Team, pool: str, resource: str) -> int:
        """Return how much a team gets of a resource of a pool."""
        names = [item.name for item in cluster.configurations if item.pool == pool]
        return sum(self.given[team.name, name, resource] for name in names)


def quotas(cluster: DescribedCluster) -> Quotas:
    """Return the numbers of C(gpu_kubernetes_quotas).

    A percentage is rounded down, and what that leaves of the sum of all percentages goes one by one to those that lost most, the first in the
    list where two lost the same.

    :raises Refused: it cannot be understood, shares are more than there is, or what counts them would not count what pods use.
    """
    teams = tuple(_teams(cluster.options["quotas"]))
    counts = {item.name: _offered(item) for item in cluster.configurations}
    offered: Counter[tuple[str, str]] = Counter()
    for item in cluster.configurations:
        for resource, number in counts[item.name].items():
            offered[item.pool, resource] += number
    shares: dict[tuple[str, str], list[_Share]] = {}
    for team, entry in zip(teams, cluster.options["quotas"], strict=True):
        for number, share in enumerate(entry["shares"]):
            for key, one in _shares(team, share, f"{team.path}.shares[{number}]", offered):
                before = next((other for other in shares.get(key, ()) if other.team == team.name), None)
                if before:
                    reason = f"team {team.name} has a share of {key[1]} of pool {key[0]} already ({before.path})"
                    raise Refused(one.path, reason, "Make it one share.")
                shares.setdefault(key, []).append(one)
    _refuse_uncounted(cluster, shares)
    given: Counter[tuple[str, str, str]] = Counter()
    for (pool, resource), of_teams in shares.items():
        free = {item.name: counts[item.name][resource] for item in cluster.configurations if item.pool == pool}
        for share, number in zip(of_teams, _rounded(pool, resource, offered[pool, resource], of_teams), strict=True):
            # The configurations of a pool are used up in their order.
            for name, there in free.items():
                taken = min(number, there)
                given[share.team, name, resource] += taken
                free[name] -= taken
                number -= taken
    return Quotas(teams, dict(sorted(offered.items())), given)


def _offered(item: PluginConfiguration) -> Counter[str]:
    """Return what its nodes offer together, as capacity.json has it of each."""
    found: Counter[str] = Counter()
    for shown in item.capacities:
        found.update(shown.offers)
    return found


def _teams(entries: Any) -> Iterator[Team]:
    seen: dict[tuple[str, str], str] = {}
    for number, entry in enumerate(entries):
        path = f"{VARIABLE}[{number}]"
        team = Team(str(entry["team"]), tuple(map(str, entry["namespaces"])), path, f"gpufleet-{entry['team']}")
        for kind, name, where, most in [
            ("team", team.name, f"{path}.team", 40),
            *(("namespace", name, f"{path}.namespaces", 63) for name in team.namespaces),
        ]:
            if len(name) > most or not re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", name):
                remedy = f"Use at most {most} lower-case letters, digits and '-'."
                raise Refused(where, f"{name!r} is not a valid name of a {kind}", remedy)
            if (kind, name) in seen:
                raise Refused(where, f"{kind} {name} is named twice ({seen[kind, name]})", "Name it once.")
            seen[kind, name] = where
        if not team.namespaces:
            raise Refused(f"{path}.namespaces", f"team {team.name} has no namespace", "Name those of its pods.")
        if not entry["shares"]:
            raise Refused(f"{path}.shares", f"team {team.name} has no share of any pool", "Give it one, or remove it.")
        yield team


def _shares(
    team: Team, share: Mapping[str, Any], path: str, offered: Mapping[tuple[str, str], int]
) -> Iterator[tuple[tuple[str, str], _Share]]:
    """Give, by pool and resource, what an entry of C(shares) says."""
    pool, named = str(share["pool"]), share.get("resource")
    pools = sorted({name for name, _resource in offered})
    if pool not in pools:
        raise Refused(f"{path}.pool", f"the cluster has no pool {pool!r} that offers GPUs", _remedy(pool, pools))
    resources = sorted(resource for name, resource in offered if name == pool)
    if named and named not in resources:
        reason = f"the nodes of pool {pool} do not offer {named}"
        raise Refused(f"{path}.resource", reason, _remedy(str(named), resources))
    percent: float | None = share.get("percent")
    count: int | None = share.get("count")
    if (percent is None) == (count is None):
        reason = "it has neither percent nor count" if percent is None else "it has both percent and count"
        raise Refused(path, reason, "Set percent: 40 or count: 8.")
    if count is not None and not named and len(resources) > 1:
        reason = f"count says of one resource how many, and the nodes of pool {pool} offer {', '.join(resources)}"
        raise Refused(path, reason, f"Add resource: {resources[0]}, or set percent.")
    if percent is not None and not 0 <= percent <= _ALL:
        raise Refused(f"{path}.percent", f"{percent} must be from 0 to {_ALL}", "Write a share of the whole.")
    if count is not None and count < 0:
        raise Refused(f"{path}.count", f"{count} must be 0 or more", "Write how many the team may use.")
    # What was written or computed, such as a third, and not the float nearest to it.
    part = None if percent is None else Fraction(str(percent)).limit_denominator(_PARTS)
    for resource in [str(named)] if named else resources:
        exact = Fraction(count or 0) if part is None else part * offered[pool, resource] / _ALL
        yield (pool, resource), _Share(team.name, exact, part, path)


def _remedy(name: str, names: list[str]) -> str:
    near = difflib.get_close_matches(name, names, n=1)
    return f"Did you mean {near[0]}?" if near else f"There are {', '.join(names)}."


def _rounded(pool: str, resource: str, offered: int, shares: list[_Share]) -> list[int]:
    """Return whole numbers, which together are no more than is offered."""
    wanted = sum((share.exact for share in shares), Fraction())
    if wanted > offered:
        each = ", ".join(
            f"{share.team} {share.exact}" if share.percent is None else f"{share.team} {_text(share.percent)} %"
            for share in shares
        )
        percent = _text(wanted * _ALL / offered) if offered else "more than 100"
        raise Refused(
            f"{VARIABLE}: {resource} of pool {pool}",
            f"the shares are {percent} % together, {_text(wanted)} of the {offered} that its nodes offer ({each})",
            f"Lower them to {_ALL} % or less together.",
        )
    numbers = [int(share.exact) for share in shares]
    over = int(sum((share.exact - number for share, number in zip(shares, numbers, strict=True)), Fraction()))
    by_loss = sorted(range(len(shares)), key=lambda index: numbers[index] - shares[index].exact)
    for index in by_loss[:over]:
        numbers[index] += 1
    return numbers


def _text(number: Fraction) -> str:
    return f"{float(number):.10g}"


def _refuse_uncounted(cluster: DescribedCluster, shares: Mapping[tuple[str, str], list[_Share]]) -> None:
    """Refuse what would be counted, and not be what pods use."""
    kueue = cluster.options["quota_kind"] == "kueue"
    served = [
        (item.pool, item, resource, of_teams[0])
        for item in cluster.configurations
        for (pool, resource), of_teams in shares.items()
        if pool == item.pool
    ]
    for pool, item, resource, share in served:
        sharing = item.sharing
        if sharing.migrate_from:
            reason = f"pool {pool} is migrated, and its nodes offer something else until each is moved"
            raise Refused(share.path, reason, "Remove the share until the migration has ended.")
        if sharing.backend == "hami":
            reason = f"pods of pool {pool} say how much memory they take, so a number of {resource} limits nothing"
            raise Refused(share.path, reason, "Remove the share, or set another nvidia_sharing_backend.")
        if sharing.backend != "dra":
            continue
        if kueue:
            reason = f"pods of pool {pool} claim their GPUs, and Kueue 0.14 counts no claims unless its alpha gate DynamicResourceAllocation is on"
            raise Refused(share.path, reason, f"Set {KIND}: resourcequota, which counts whole GPUs in claims.")
        if resource != GPU_CLASS or sharing.consumed:
            what = "parts of a GPU's memory" if sharing.consumed else f"{resource} by profile"
            reason = f"pods of pool {pool} claim {what}, and a ResourceQuota counts the devices of a DeviceClass"
            raise Refused(share.path, reason, "Remove the share.")
    if kueue:
        return
    for pool, item, resource, share in served:
        # Claims of a class are counted under the name, too, by which pods can request its devices.
        names = {resource, item.named_classes.get(resource, resource)}
        for other in cluster.configurations:
            both = sorted(names & {*other.capacity.offers, *other.requestable})
            if both and other.pool != pool:
                reason = f"pools {pool} and {other.pool} offer {both[0]}, and a ResourceQuota does not know pools"
                raise Refused(share.path, reason, f"Set {KIND}: kueue, or remove the share.")
    for number, entry in enumerate(cluster.options["quotas"]):
        if len(entry["namespaces"]) > 1:
            reason = f"team {entry['team']} has {len(entry['namespaces'])} namespaces, and a ResourceQuota is of one"
            raise Refused(f"{VARIABLE}[{number}].namespaces", reason, f"Make it a team for each, or set {KIND}: kueue.")


def quota_objects(cluster: DescribedCluster) -> list[dict[str, Any]]:
    """Return the objects by which the cluster admits what L(quotas) says, and no more."""
    numbers = quotas(cluster)
    if cluster.options["quota_kind"] == "kueue":
        return _kueue(cluster, numbers)
    # A ResourceQuota limits what it names: what the team has no share of is named, too, and what a node offers after another choice.
    names = {resource for _pool, resource in numbers.offered}.union(
        *(item.requestable for item in cluster.configurations)
    )
    nothing = {_counted(name): 0 for name in names}
    nothing.update({_of_class(one["metadata"]["name"]): 0 for one in claimed_devices.named_classes(cluster)})
    items = {item.name: item for item in cluster.configurations}
    found = []
    for team in numbers.teams:
        hard = Counter(nothing)
        for (name, configuration, resource), number in numbers.given.items():
            if name == team.name:
                for counted in counted_as(items[configuration], resource):
                    hard[counted] += number
        spec = {"hard": {name: str(number) for name, number in sorted(hard.items())}}
        found.append(kube_object("v1", "ResourceQuota", team.queue, _labels(team), team.namespaces[0], spec=spec))
    return found


def counted_as(item: PluginConfiguration, resource: str) -> list[str]:
    """Return by what a ResourceQuota counts what nodes offer: claims of a class under the name, too, by which pods can request its devices."""
    return [_counted(name) for name in dict.fromkeys((resource, item.named_classes.get(resource, resource)))]


def _counted(resource: str) -> str:
    """Return by what a ResourceQuota counts a resource, or devices in claims."""
    device = resource.partition("/")[0] in (GPU_CLASS, MIG_CLASS)
    return _of_class(resource.partition("/")[0]) if device else f"requests.{resource}"


def _of_class(name: str) -> str:
    return f"{name}.deviceclass.resource.k8s.io/devices"


def _labels(team: Team) -> dict[str, str]:
    return {**MANAGED_BY, TEAM_LABEL: team.name}


def _kueue(cluster: DescribedCluster, numbers: Quotas) -> list[dict[str, Any]]:
    given = numbers.given
    used = [item for item in cluster.configurations if any(name == item.name for _team, name, _what in given)]
    for item in used:
        if len(item.selector) > _MOST_LABELS:
            raise Refused(
                f"{NODE_MATCH}.labels of pool {item.pool}",
                f"it has {len(item.selector)} labels, and a ResourceFlavor of Kueue has at most {_MOST_LABELS}",
                f"Use {_MOST_LABELS} or fewer, set {KIND}: resourcequota, or remove the shares of the pool.",
            )
    found = [
        kube_object(API_VERSION, "ResourceFlavor", name, MANAGED_BY, spec={"nodeLabels": labels})
        for name, labels in [*((flavor_of(item), item.selector) for item in used), (_UNLIMITED_FLAVOR, {})]
    ]
    for team in numbers.teams:
        mine = [item for item in used if any(key[:2] == (team.name, item.name) for key in given)]
        resources = sorted({resource for item in mine for resource in item.capacity.offers})
        if max(len(mine), len(resources)) > _MOST:
            raise Refused(
                f"{team.path}.shares",
                f"they are of {len(mine)} kinds of nodes with {len(resources)} resources, and a ClusterQueue has at most {_MOST} of each",
                "Make them several teams.",
            )
        given_to = {flavor_of(one): {what: given[team.name, one.name, what] for what in resources} for one in mine}
        groups = [given_to, {_UNLIMITED_FLAVOR: _UNLIMITED}]
        names = {"name": team.queue, "labels": _labels(team), "namespaces": team.namespaces}
        found.append(made("cluster_queue", api_version=API_VERSION, groups=groups, **names))
        for namespace in team.namespaces:
            queue = {"clusterQueue": team.queue}
            found.append(kube_object(API_VERSION, "LocalQueue", team.queue, _labels(team), namespace, spec=queue))
    return found


def flavor_of(item: PluginConfiguration) -> str:
    return f"{FLAVOR_PREFIX}{item.name}"
