# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fleets that have every release and every kind of object that the generator knows, with and without GitOps controllers."""

from __future__ import annotations

BOARDS = {"gpu_facts_gpus": [{"board": "l40s", "count": 4}]}
SLICES = {"nvidia_sharing_memory_slice": "4GiB", "nvidia_sharing_gpus_per_pod": 2}
TRAINING = {
    "gpu_facts_gpus": [{"board": "h100-80gb-sxm", "count": 8}],
    "nvidia_mig_strategy": "mixed",
    "nvidia_mig_layout": "all-balanced",
}
CLAIMS = {"nvidia_sharing_backend": "dra"}
RACK = {"gpu_facts_gpus": [{"board": "gb200-186gb", "count": 4}], "nvidia_driver_imex": "masked"}
QUOTAS = {
    "gpu_kubernetes_quotas": [
        {"team": "vision", "namespaces": ["vision", "vision-dev"], "shares": [{"pool": "training", "percent": 60}]},
        {
            "team": "speech",
            "namespaces": ["speech"],
            "shares": [
                {"pool": "training", "resource": "nvidia.com/mig-1g.10gb", "percent": 40},
                {"pool": "shared", "count": 3},
            ],
        },
    ]
}
OF_NAMESPACES = {
    "gpu_kubernetes_quotas": [{**QUOTAS["gpu_kubernetes_quotas"][1], "team": "audio"}],
    "gpu_kubernetes_quota_kind": "resourcequota",
}
#: Every release that the generator knows.
FLEETS = {
    "device plugin": {
        "training": TRAINING,
        "shared": {**BOARDS, **SLICES, "nvidia_sharing_mode": "mps", "nvidia_sharing_rename": True},
        "hami": {**BOARDS, **SLICES, "nvidia_sharing_backend": "hami"},
    },
    # HAMi and the DRA driver would both serve nvidia.com/gpu in one cluster.
    "claims": {"training": TRAINING, "dra": {**BOARDS, **SLICES, "nvidia_sharing_backend": "dra"}},
    "shared claims": {
        "sliced": {**BOARDS, "nvidia_sharing_mode": "time_slicing", "nvidia_sharing_replicas": 3, **CLAIMS},
        "served": {**BOARDS, **SLICES, "nvidia_sharing_mode": "mps", **CLAIMS},
        "divided": {**TRAINING, "nvidia_sharing_mode": "mps", "nvidia_sharing_replicas": 2, **CLAIMS},
        "whole": {**TRAINING, **CLAIMS},
    },
    "operator": {"training": {**TRAINING, "gpu_kubernetes_stack": "gpu_operator"}},
    "racks by claims": {"rack": {**RACK, "nvidia_sharing_backend": "dra"}},
    "racks by the device plugin": {"rack": RACK, "training": TRAINING},
    "nodes by property": {"training": {**TRAINING, "gpu_kubernetes_node_match": {"boards": True}}, "shared": BOARDS},
    "quotas by Kueue": {"training": {**TRAINING, **QUOTAS}, "shared": {**BOARDS, **QUOTAS}},
    "quotas by ResourceQuotas": {"training": {**TRAINING, **OF_NAMESPACES}, "shared": {**BOARDS, **OF_NAMESPACES}},
}
COMMON = {
    "gpu_kubernetes_version": "1.36",
    "gpu_kubernetes_chart_repository": "oci://registry.example.com/charts",
    "gpu_kubernetes_prometheus_rule": True,
    "gpu_kubernetes_grafana_dashboard": True,
}
GITOPS = {
    "argocd": {"gpu_kubernetes_gitops": "argocd", "gpu_kubernetes_gitops_repository": "https://git.example.com/x.git"},
    "flux": {"gpu_kubernetes_gitops": "flux", "gpu_kubernetes_gitops_source": "fleet"},
}
