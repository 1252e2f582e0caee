# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fleets without Ansible: pools as plain variables."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.fleet import Fleet
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import seen_gpu

TRAINING = {
    "gpu_facts_gpus": [{"board": "h100-80gb-sxm", "count": 8}],
    "nvidia_mig_strategy": "mixed",
    "nvidia_mig_layout": "all-balanced",
}
BATCH = {
    "gpu_facts_gpus": [{"board": "a100-40gb", "count": 8}],
    "nvidia_mig_strategy": "single",
    "nvidia_mig_layout": [{"devices": "all", "instances": {"1g.5gb": 7}}],
}
SHARED = {
    "gpu_facts_gpus": [{"board": "l40s-48gb", "count": 4}],
    "nvidia_sharing_mode": "mps",
    "nvidia_sharing_memory_slice": "4GiB",
}


@pytest.fixture
def pools():
    """The demo's three pools; a test may change them."""
    return {"training": dict(TRAINING), "batch": dict(BATCH), "shared": dict(SHARED)}


@pytest.fixture
def clusters_of():
    """Return the clusters of pools: {pool: variables}, two hosts in each, with options for all."""

    def build(pools, facts=None, hosts=2, of_host=None, before=None, **options):
        groups = {pool: [f"{pool}-{number}" for number in range(hosts)] for pool in pools}
        groups["gpu_hosts"] = [host for members in groups.values() for host in members]
        fleet = Fleet(
            groups,
            lambda host, _variables: [seen_gpu(gpu) for gpu in (facts or {}).get(host) or ()] or None,
            lambda _cluster: before or {},
        )
        common = {f"gpu_kubernetes_{name}": value for name, value in options.items()}
        for pool, variables in pools.items():
            for host in groups[pool]:
                own = {**common, **variables, **(of_host or {}).get(host, {})}
                fleet.add(host, own, lambda value: value)
        return fleet.clusters()

    return build
