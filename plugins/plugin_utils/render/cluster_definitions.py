# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Kinds and fields that a rendered tree needs, and what a cluster has of them: it can be behind the pinned charts, or ahead of them. Pure.

An object with a field that the cluster's definition lacks loses it without an error, or is never synced.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Callable

from ...module_utils._formats.imex import MASKED
from ...module_utils._formats.imex import VARIABLE as IMEX
from ...module_utils._health.report import FAILED, PASSED, SKIPPED, WARNING, Check
from ...module_utils._printable import printable
from ..fleet.objects import CLAIMS
from ..fleet.served import KUBERNETES
from ..fleet.text import shortened
from ..lint.finding import below, mapping, sequence
from ..lint.object_fields import known_kinds
from ..lint.operator_objects import CLUSTER, DRIVER, POLICY
from .clusters import DescribedCluster
from .gitops import application_of_definitions, needed_definitions
from .quotas import API_VERSION
from .versions import CHARTS, DEFINITIONS, DRA_DRIVER, GPU_OPERATOR, NODE_FEATURE_DISCOVERY, tag

#: The name of these checks.
NAME = "definitions"
_PREFIX = "gpu_kubernetes_"
_KUEUE, _PROMETHEUS = "Kueue", "the Prometheus operator"
#: By what brings them: the version of an API, its kinds, and the tables of their fields.
_KINDS: Mapping[str, Sequence[tuple[str, Mapping[str, str]]]] = {
    GPU_OPERATOR: (
        ("nvidia.com/v1", {"clusterpolicies": POLICY}),
        ("nvidia.com/v1alpha1", {"nvidiadrivers": DRIVER, "gpuclusters": CLUSTER}),
    ),
    DRA_DRIVER: (
        (
            "resource.nvidia.com/v1beta1",
            {"computedomains": "ComputeDomain", "computedomaincliques": "ComputeDomainClique"},
        ),
    ),
    NODE_FEATURE_DISCOVERY: (
        ("nfd.k8s-sigs.io/v1alpha1", {"nodefeatures": "NodeFeature", "nodefeaturerules": "NodeFeatureRule"}),
    ),
    KUBERNETES: ((CLAIMS, {"deviceclasses": "", "resourceclaims": "", "resourceslices": ""}),),
    _KUEUE: ((API_VERSION, {"clusterqueues": "", "localqueues": "", "resourceflavors": ""}),),
    _PROMETHEUS: (("monitoring.coreos.com/v1", {"prometheusrules": ""}),),
}


@dataclass(frozen=True)
class NeededKind:
    """A kind of which a tree has objects, or what it installs.

    :param table: its name in the table of the fields that the pinned chart's definition has; empty where there is none.
    """

    api: str
    plural: str
    table: str
    brought_by: str
    remedy: str

    @property
    def definition(self) -> str:
        return f"{self.plural}.{self.api.partition('/')[0]}"


def needed(variables: Mapping[str, Any]) -> tuple[NeededKind, ...]:
    """Return the kinds that the tree of a host's cluster needs for it.

    :param variables: those of the roles that describe a host and of C(gpu_kubernetes), typed and complete.
    """
    options = {name[len(_PREFIX) :]: value for name, value in variables.items() if name.startswith(_PREFIX)}
    cluster = DescribedCluster(str(options["cluster"]), options, ())
    claims = "dra" in (variables["nvidia_sharing_backend"], variables["nvidia_sharing_migrate_from"])
    released = {
        GPU_OPERATOR: "gpu_operator" in (options["stack"], options["migrate_from"]),
        DRA_DRIVER: claims or variables[IMEX] == MASKED,
        NODE_FEATURE_DISCOVERY: options["node_feature_discovery"],
        KUBERNETES: claims,
        _KUEUE: options["quotas"] and options["quota_kind"] == "kueue",
        _PROMETHEUS: options["prometheus_rule"],
    }
    if not cluster.name:
        return ()
    charts = needed_definitions(cluster, [name for name, there in released.items() if there])
    kept = released[GPU_OPERATOR] and tag(cluster.chart(GPU_OPERATOR)) != tag(CHARTS[GPU_OPERATOR])
    # Charts of the operator before the pinned one do not have those of the DRA driver, and others of NFD: only a tree for Argo CD brings the pinned ones.
    theirs = kept and options["gitops"] != "argocd"
    if theirs and not released[DRA_DRIVER]:
        charts = [name for name in charts if name != DRA_DRIVER]
    return tuple(
        # The tables are of the pinned charts.
        NeededKind(api, plural, "" if theirs or (kept and name == GPU_OPERATOR) else table, *_owner(cluster, name))
        for name in [*charts, *(one for one, there in released.items() if there and one not in CHARTS)]
        for api, kinds in _KINDS[name]
        for plural, table in kinds.items()
        # The pinned operator does not start without it, and earlier ones do not know it.
        if not (kept and table == CLUSTER)
    )


def _owner(cluster: DescribedCluster, name: str) -> tuple[str, str]:
    """Return what brings definitions, with its version, and how it does."""
    if name not in CHARTS:
        return name, f"Upgrade the cluster to {name} or newer." if name == KUBERNETES else f"Install {name}."
    chart, found = cluster.chart(name), DEFINITIONS[name]
    by_hand = f"kubectl apply --server-side --force-conflicts -f FILE with those of {found.path} of {found.repository} at {tag(chart)}"
    return f"{name} {chart.version}", {
        "argocd": f"Sync the Application {application_of_definitions(cluster, name)}.",
        "flux": f"Reconcile the HelmRelease that has them; if they stay, {by_hand}.",
    }.get(str(cluster.options["gitops"]), f"{by_hand}.")


def check(
    kinds: Sequence[NeededKind],
    served: Callable[[str], Collection[str]],
    definition: Callable[[str], Mapping[str, Any] | None],
) -> tuple[Check, ...]:
    """Return where a cluster differs from what is needed.

    :param served: gives the kinds, in the plural, that the API server has of a version of an API.
    :param definition: gives a CustomResourceDefinition by its name; None where it is not to be read.
    """
    found: list[Check] = []
    unread: list[str] = []
    for one in kinds:
        if one.plural not in served(one.api):
            why = f"the API server has no {one.plural} of {one.api}, which come with {one.brought_by}"
            found.append(Check(NAME, FAILED if one.brought_by == KUBERNETES else WARNING, why, one.remedy))
        elif one.table and (there := definition(one.definition)) is not None:
            found += _fields(one, there)
        elif one.table:
            unread.append(one.definition)
    if unread:
        why = f"fields not checked: with these permissions these definitions cannot be read: {', '.join(unread)}"
        found.append(Check(NAME, SKIPPED, why, "Allow get on them, as in docs/upgrade.md."))
    names = ", ".join(one.definition for one in kinds)
    return tuple(found) or ((Check(NAME, PASSED, f"as the rendered tree needs them: {names}"),) if kinds else ())


def _fields(kind: NeededKind, definition: Mapping[str, Any]) -> Iterator[Check]:
    version = kind.api.rpartition("/")[2]
    versions = [mapping(one) for one in sequence(below(definition, "spec", "versions"))]
    schema = next((below(one, "schema", "openAPIV3Schema") for one in versions if one.get("name") == version), None)
    known = known_kinds()[kind.table]
    where = known.section
    differing = tuple(_differing(mapping(below(schema, "properties", where)), known.fields, where))
    lacking, more = ([path for path, ours in differing if ours is of_pin] for of_pin in (True, False))
    if lacking:
        why = f"{kind.definition} is older than {kind.brought_by}: it lacks {shortened(lacking, 8)}, which the API server drops from objects or refuses"
        yield Check(NAME, WARNING, why, kind.remedy)
    if more:
        why = f"{kind.definition} is newer than {kind.brought_by}, which does not know {shortened(more, 8)}"
        keeps = "Set gpu_kubernetes_operator_version to the release that brought it."
        remedy = f"{keeps if kind.table in (POLICY, DRIVER, CLUSTER) else 'Leave it.'} An older definition would remove the fields from objects that have them."
        yield Check(NAME, WARNING, why, remedy)


def _differing(schema: Mapping[str, Any], wanted: Any, path: str) -> Iterator[tuple[str, bool]]:
    """Give the paths of fields that only one of both has, and whether it is the table."""
    if isinstance(wanted, list):
        yield from _differing(mapping(schema.get("items")), wanted[0], f"{path}[]")
    elif isinstance(wanted, Mapping) and not schema.get("x-kubernetes-preserve-unknown-fields"):
        known, there = {name.rstrip("*"): one for name, one in wanted.items()}, mapping(schema.get("properties"))
        for name in sorted({*known, *there}):
            if name in known and name in there:
                yield from _differing(mapping(there[name]), known[name], f"{path}.{name}")
            else:
                yield str(printable(f"{path}.{name}")), name in known
