# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whatever people write into an inventory or a file that is linted: it is taken or refused, and what others wrote means the same."""

from __future__ import annotations

import json

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import view_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions.site_gate import by_pool, work_of
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.descriptions import describe
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.lint.lint import lint
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.playbook_variables import check as check_variables
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.fleet import Fleet
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.recorded import KeptFacts
from hypothesis import strategies as st

from ...host_documents import FACTS, WHOLE
from ...mutation import examples_of, mutated, property_of, shown

POOLS = {"pool-a": ["a"], "pool-b": ["b"]}
GROUPS = {"gpu_hosts": ["a", "b"], **POOLS}
#: What all hosts of a cluster say alike.
CLUSTER = {
    "gpu_kubernetes_cluster": "one",
    "gpu_kubernetes_namespace": "gpu",
    "gpu_kubernetes_version": "1.34",
}
#: One of each kind of value that people write: numbers, sizes, lists, mappings, choices, versions, names of nodes, paths.
WRITTEN = {
    **CLUSTER,
    "gpu_facts_gpus": [{"board": "h100-80gb-sxm", "count": 2}],
    "gpu_facts_pool": "pool-a",
    "nvidia_driver_version": "580.178.04",
    "nvidia_driver_flavour": "open",
    "nvidia_driver_persistence": True,
    "nvidia_toolkit_version": "1.20.1",
    "nvidia_toolkit_device_injection": "cdi",
    "nvidia_toolkit_runtime": "containerd",
    "nvidia_mig_strategy": "mixed",
    "nvidia_mig_layout": [
        {"devices": [0], "instances": {"3g.40gb": 1, "1g.10gb": 2}},
        {"devices": [1], "enabled": False},
    ],
    "nvidia_mig_disruption": "refuse",
    "nvidia_sharing_mode": "time_slicing",
    "nvidia_sharing_replicas": 4,
    "nvidia_health_checks": ["pci", "driver"],
    "nvidia_health_expect": {"gpus": 2},
    "gpu_node_name": "node-a",
    "gpu_upgrade_canary": 1,
    "gpu_upgrade_max_parallel": "20%",
}
HONEST = {
    **CLUSTER,
    "gpu_facts_gpus": [{"board": "l40s-48gb", "count": 1}],
    "gpu_facts_host": {"gpu": {**FACTS, "gpus": [{**WHOLE, "index": 0, "board": "l40s-48gb", "memory_mib": 46068}]}},
}
PLUGIN = {
    "version": "v1",
    "flags": {
        "migStrategy": "mixed",
        "failOnInitError": True,
        "plugin": {"passDeviceSpecs": True, "deviceListStrategy": ["cdi-cri"], "deviceIDStrategy": "uuid"},
        "gfd": {"sleepInterval": "60s", "oneshot": False},
    },
    "sharing": {
        "timeSlicing": {
            "renameByDefault": True,
            "failRequestsGreaterThanOne": True,
            "resources": [
                {"name": "nvidia.com/gpu", "rename": "nvidia.com/gpu.shared", "replicas": 4, "devices": "all"}
            ],
        },
        "mps": {"resources": [{"name": "nvidia.com/gpu", "replicas": 2, "memoryLimits": {"0": "4Gi"}}]},
    },
    "imex": {"channelIDs": [0], "required": False},
}


def rendered(variables):
    tree = Fleet(GROUPS, KeptFacts("").gpus)
    for host, given in {"a": variables, "b": HONEST}.items():
        tree.add(host, given, lambda value: value)
    return repr([item for cluster in tree.clusters() for item in cluster.configurations if item.pool == "pool-b"])


@examples_of()
def test_what_is_written_of_a_host_is_taken_or_refused_and_hurts_no_other(examples):
    facts = {"gpu": FACTS}
    honest = work_of("b", describe("b", HONEST, POOLS), view_of(HONEST["gpu_facts_host"]["gpu"]))
    expected = rendered(WRITTEN)

    @property_of(mutated(WRITTEN), examples)
    def check(variables):
        if not isinstance(variables, dict) or not all(isinstance(name, str) for name in variables):
            return  # Ansible reads no such inventory.
        for refusal in check_variables("upgrade", variables).refusals:
            shown(refusal.message)
        work = work_of("a", describe("a", variables, POOLS), view_of(facts["gpu"]))
        shown("\n".join([*map(str, work.refusals), *by_pool([work, honest])]))
        assert work.refusals or work.stages
        try:
            found = rendered({**variables, "gpu_facts_host": facts})
        except Refused as refusal:
            shown(refusal.message)
        else:
            # Another cluster, or pool, is another file; in this one b is what it was.
            assert found == expected or variables.get("gpu_facts_pool") != "pool-a"


def written(document):
    """A file as somebody writes it: YAML, JSON, or something with characters in places where they do not belong."""
    text = yaml.safe_dump(document, allow_unicode=True, sort_keys=False)
    return st.one_of(
        st.just(text),
        st.just(json.dumps(document)),
        st.tuples(st.integers(0, max(len(text) - 1, 0)), st.sampled_from(["\t", ":", "- ", "&a ", "*a", "[", "{", "'", "\n", "!!int ", "%", "---\n"]))
        .map(lambda drawn: text[: drawn[0]] + drawn[1] + text[drawn[0] :]),
    )  # fmt: skip


@examples_of(tests=2)
@pytest.mark.parametrize("facts", [None, FACTS], ids=["alone", "with facts"])
def test_a_file_is_linted_whatever_is_in_it(examples, facts):
    assert not [finding for finding in lint(yaml.safe_dump(PLUGIN)).findings if "cannot be parsed" in finding.message]

    @property_of(mutated(PLUGIN).flatmap(written), examples)
    def check(text):
        for finding in lint(text, facts).findings:
            shown(finding.message)
            shown(finding.path)
