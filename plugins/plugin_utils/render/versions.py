# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The charts that the generator writes values for, pinned. This is the one place where they are raised.

After raising one, run C(tools/chart-keys.py) on the unpacked chart and put its output with the
new version into C(../lint/chart_keys.yml).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Chart:
    """One chart at an exact version, and where Helm finds it; C(oci://) for a registry."""

    name: str
    version: str
    repository: str


@dataclass(frozen=True)
class Definitions:
    """Where the custom resource definitions of a chart are: a Git repository, and a folder of it, at the tag of the chart's version.

    :param exclude: files of that folder that belong to another chart.
    """

    repository: str
    path: str
    exclude: str = ""


NODE_FEATURE_DISCOVERY = "node-feature-discovery"
GPU_OPERATOR = "gpu-operator"
DRA_DRIVER = "dra-driver-nvidia-gpu"

CHARTS: dict[str, Chart] = {
    chart.name: chart
    for chart in (
        Chart("nvidia-device-plugin", "0.20.0", "https://nvidia.github.io/k8s-device-plugin"),
        Chart(GPU_OPERATOR, "v26.7.0", "https://helm.ngc.nvidia.com/nvidia"),
        Chart(NODE_FEATURE_DISCOVERY, "0.19.0", "oci://registry.k8s.io/nfd/charts"),
        Chart("dcgm-exporter", "4.8.2", "https://nvidia.github.io/dcgm-exporter/helm-charts"),
        Chart("hami", "2.10.0", "https://project-hami.github.io/HAMi"),
        Chart(DRA_DRIVER, "0.5.0", "oci://registry.k8s.io/dra-driver-nvidia/charts"),
    )
}

#: The charts that bring definitions. Each definition has one owner: those of the DRA driver are in the operator's chart, too, and differ there,
#: and so are those of Node Feature Discovery, whose release 0.19.0 is part of the operator's chart.
DEFINITIONS: dict[str, Definitions] = {
    NODE_FEATURE_DISCOVERY: Definitions(
        "https://github.com/kubernetes-sigs/node-feature-discovery", "deployment/helm/node-feature-discovery/crds"
    ),
    GPU_OPERATOR: Definitions(
        "https://github.com/NVIDIA/gpu-operator", "deployments/gpu-operator/crds", "resource.nvidia.com_*.yaml"
    ),
    DRA_DRIVER: Definitions(
        "https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu", "deployments/helm/dra-driver-nvidia-gpu/crds"
    ),
}


def tag(chart: Chart) -> str:
    return f"v{chart.version.lstrip('v')}"


#: The chart of this collection (charts/gpufleet-nvidia), which sites publish in a repository of their own: gpu_kubernetes_chart_repository.
OWN_CHART = "gpufleet-nvidia"
OWN_CHART_VERSION = "1.0.0"
