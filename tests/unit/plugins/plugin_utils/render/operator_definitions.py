# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Custom resource definitions with exactly the fields of the tables, and those of the GPU Operator as other releases have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.lint.object_fields import known_kinds

POLICIES, DRIVERS = "clusterpolicies.nvidia.com", "nvidiadrivers.nvidia.com"
#: Of each kind the name of its definition, and its version.
VERSIONS = {
    "ClusterPolicy": (POLICIES, "v1"),
    "NVIDIADriver": (DRIVERS, "v1alpha1"),
    "GPUCluster": ("gpuclusters.nvidia.com", "v1alpha1"),
    "ComputeDomain": ("computedomains.resource.nvidia.com", "v1beta1"),
    "ComputeDomainClique": ("computedomaincliques.resource.nvidia.com", "v1beta1"),
    "NodeFeature": ("nodefeatures.nfd.k8s-sigs.io", "v1alpha1"),
    "NodeFeatureRule": ("nodefeaturerules.nfd.k8s-sigs.io", "v1alpha1"),
}
#: What a release does not have yet.
LACKING = {
    "25.10.1": ("spec.dcgmExporter.serviceMonitor.scrapeTimeout", "spec.kataSandboxDevicePlugin"),
    "26.3.3": ("spec.dcgmExporter.serviceMonitor.scrapeTimeout",),
}


def _schema(wanted: Any) -> dict[str, Any]:
    if isinstance(wanted, list):
        return {"type": "array", "items": _schema(wanted[0])}
    if isinstance(wanted, Mapping):
        return {"type": "object", "properties": {name.rstrip("*"): _schema(one) for name, one in wanted.items()}}
    return {"type": wanted.split()[0]} if wanted != "any" else {"x-kubernetes-preserve-unknown-fields": True}


def definition(kind: str, release: str = "") -> dict[str, Any]:
    """Return the definition of the pinned release, or of an earlier one of C(LACKING)."""
    name, version = VERSIONS[kind]
    plural, _dot, group = name.partition(".")
    where = "daemons" if kind == "ComputeDomainClique" else "spec"
    schema = {"type": "object", "properties": {where: _schema(known_kinds()[kind].fields)}}
    found = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": name},
        "spec": {
            "group": group,
            "scope": "Cluster",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "versions": [
                {
                    "name": "v1alpha0",
                    "served": False,
                    "storage": False,
                    "schema": {"openAPIV3Schema": {"type": "object"}},
                },
                {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}},
            ],
        },
    }
    for path in LACKING.get(release, ()) if kind == "ClusterPolicy" else ():
        *parents, last = path.split(".")
        properties = schema["properties"]
        for parent in parents:
            properties = properties[parent]["properties"]
        del properties[last]
    return found


def spec_of(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties of spec in a definition."""
    schema = found["spec"]["versions"][1]["schema"]["openAPIV3Schema"]
    properties: dict[str, Any] = schema["properties"]["spec"]["properties"]
    return properties
