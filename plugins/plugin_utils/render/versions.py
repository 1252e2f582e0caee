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


NODE_FEATURE_DISCOVERY = "node-feature-discovery"

CHARTS: dict[str, Chart] = {
    chart.name: chart
    for chart in (
        Chart("nvidia-device-plugin", "0.20.0", "https://nvidia.github.io/k8s-device-plugin"),
        Chart("gpu-operator", "v26.7.0", "https://helm.ngc.nvidia.com/nvidia"),
        Chart(NODE_FEATURE_DISCOVERY, "0.19.0", "oci://registry.k8s.io/nfd/charts"),
        Chart("dcgm-exporter", "4.8.2", "https://nvidia.github.io/dcgm-exporter/helm-charts"),
        Chart("hami", "2.10.0", "https://project-hami.github.io/HAMi"),
        Chart("dra-driver-nvidia-gpu", "0.5.0", "oci://registry.k8s.io/dra-driver-nvidia/charts"),
    )
}

#: The chart of this collection (charts/gpufleet-nvidia), which sites publish in a repository of their own: gpu_kubernetes_chart_repository.
OWN_CHART = "gpufleet-nvidia"
OWN_CHART_VERSION = "1.0.0"
