# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Adding, reading or losing a host changes nothing of what serves another."""

from __future__ import annotations

import json

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.expectations import expected
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.capacity_document import (
    Former,
    ResourceKind,
    former,
    names,
)
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.fleet import Fleet
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.tree import cluster_tree
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import seen_gpu
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
L40S = {"name": "NVIDIA L40S", "board": "l40s-48gb", "architecture": "ada"}
#: What a driver reports of the board of the pool: less than nominal, a little less than that, and a GPU fewer.
READ = {
    "read": [46068] * 4,
    "other driver": [46050] * 4,
    "small": [32000] * 4,
    "lost a gpu": [46068] * 3,
}
POOLS = {
    "shared": {"nvidia_sharing_mode": "mps", "nvidia_sharing_memory_slice": "4GiB"},
    "sliced": {"nvidia_sharing_mode": "time_slicing", "nvidia_sharing_replicas": 4},
    "whole": {},
    "claims": {"nvidia_sharing_backend": "dra", "nvidia_sharing_memory_slice": "4GiB"},
}
OVERRIDES = {
    "none": {},
    "other slice": {"nvidia_sharing_memory_slice": "8GiB"},
    "host only": {"nvidia_sharing_time_slice": "short"},
}
INVENTORY = {
    "gpu_facts_gpus": [{"board": "l40s-48gb", "count": 4}],
    "gpu_kubernetes_version": "1.36",
    "gpu_kubernetes_examples": False,
}


def facts(memories):
    return [
        {**L40S, "index": index, "memory_mib": memory, "mig": {"supported": False, "current": False}}
        for index, memory in enumerate(memories)
    ]


def rendered(hosts, before=None, **options):
    """Return the tree of hosts, C({name: (pool, facts or None, override)}), after another tree."""
    groups = {pool: sorted(name for name, host in hosts.items() if host[0] == pool) for pool in POOLS}
    groups["gpu_hosts"] = sorted(hosts)
    recorded = {name: [seen_gpu(gpu) for gpu in facts(READ[host[1]])] for name, host in hosts.items() if host[1]}
    text = before["capacity.json"] if before else None
    fleet = Fleet(groups, lambda host, _variables: recorded.get(host), lambda _cluster: former(text, "capacity.json"))
    common = {**INVENTORY, **{f"gpu_kubernetes_{name}": value for name, value in options.items()}}
    for name, (pool, _facts, override) in hosts.items():
        own = OVERRIDES[override]
        own = own if all(key in POOLS[pool] or (pool == "sliced" and "time_slice" in key) for key in own) else {}
        fleet.add(name, {**common, **POOLS[pool], **own}, lambda value: value)
    return cluster_tree(fleet.clusters()[0])


def documents(text):
    return [item for item in yaml.load_all(text, Loader=LOADER) if item]


def serving(tree, node):
    """Return what of a tree serves a node: its labels, what it must show, and the values and the file of its plugin."""
    capacity = json.loads(tree["capacity.json"])
    name = capacity["nodes"][node]["configuration"]
    labels = capacity["configurations"][name]["node_labels"]
    (rule,) = [
        rule
        for rule in documents(tree["node-labels/pools.yaml"])[0]["spec"]["rules"]
        if node in rule["matchFeatures"][0]["matchExpressions"]["nodename"]["value"]
    ]
    found = {"name": name, "labels": [labels, rule["labels"]], "shows": expected(tree["capacity.json"], "c", node)}
    backend = labels.get("gpufleet.github.io/backend")
    files = {"dra": ["dra-driver-nvidia-gpu"], None: [f"nvidia-device-plugin-{name}", "gpu-operator"]}[backend]
    # Compared byte by byte: a changed comment is a changed file.
    found["values"] = {
        file: tree.get(f"values/{file}.yaml") for file in (*files, "dcgm-exporter", "node-feature-discovery")
    }
    keys = {labels.get("nvidia.com/device-plugin.config", name), "default"}
    for path in (f"objects/nvidia-device-plugin-{name}.yaml", "objects/nvidia-device-plugin.yaml"):
        for config_map in documents(tree.get(path, "")) if backend is None else ():
            data = {key: text for key, text in config_map["data"].items() if key in keys}
            found[path] = (config_map["metadata"], data)
    return found


HOST = st.tuples(
    st.sampled_from(list(POOLS)),
    st.sampled_from([None, *READ]),
    st.sampled_from(list(OVERRIDES)),
)
FLEET = st.dictionaries(st.sampled_from([f"gpu-{number}" for number in range(6)]), HOST, min_size=2, max_size=6)
#: What happens to hosts between two renderings: each is added, changed or lost.
EDITS = st.lists(
    st.dictionaries(
        st.sampled_from([f"gpu-{number}" for number in range(6)]), st.none() | HOST, min_size=1, max_size=4
    ),
    min_size=1,
    max_size=3,
)
#: It keeps the operator in the cluster, which goes with the last pool of the device plugin.
ANCHOR = {"anchor": ("whole", "read", "none")}


@pytest.mark.slow
@pytest.mark.parametrize("stack", ["device_plugin", "gpu_operator"])
@settings(max_examples=30, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(first=FLEET, edits=EDITS)
def test_what_serves_a_host_follows_from_itself(stack, first, edits):
    """Whatever is added, lost, read or told otherwise between two renderings: the hosts that stay as they are keep everything."""
    earlier = {**first, **ANCHOR}
    tree = rendered(earlier, stack=stack)
    for edit in edits:
        changed = {**earlier, **edit}
        later = {name: host for name, host in changed.items() if host}
        after = rendered(later, before=tree, stack=stack)
        for name in earlier:
            if later.get(name) == earlier[name]:
                assert serving(after, name) == serving(tree, name), name
        earlier, tree = later, after


def test_the_smaller_part_of_a_pool_keeps_the_name_that_the_others_leave():
    hosts = dict.fromkeys("abc", ("shared", "read", "none"))
    first = rendered(hosts)
    second = rendered({**hosts, "a": ("shared", "read", "other slice"), "b": ("shared", "read", "other slice")}, first)
    assert configurations(second)["c"] == "shared"
    assert serving(second, "c") == serving(first, "c")
    assert len({configurations(second)[name] for name in "ab"} | {"shared"}) == 2
    third = rendered({**hosts, "c": ("shared", "read", "other slice")}, second)
    assert {configurations(third)[name] for name in "ab"} == {"shared"}


@settings(max_examples=10, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(hosts=FLEET)
def test_rendering_again_changes_nothing(hosts):
    first = rendered(hosts)
    assert rendered(dict(reversed(list(hosts.items()))), before=first) == first
    assert rendered(dict(reversed(list(hosts.items())))) == first


def configurations(tree):
    return {node: entry["configuration"] for node, entry in json.loads(tree["capacity.json"])["nodes"].items()}


def test_hosts_that_nobody_has_read_join_those_at_work():
    """The case that moved three nodes in service to another release: four more of them, unread."""
    service = {f"gpu-{number}": ("shared", "read", "none") for number in range(3)}
    first = rendered(service)
    assert set(configurations(first).values()) == {"shared"}
    more = {**service, **{f"new-{number}": ("shared", None, "none") for number in range(4)}}
    for tree in (rendered(more, before=first), rendered(more)):
        assert {name: configurations(tree)[name] for name in service} == configurations(first)
        assert serving(tree, "gpu-0") == serving(first, "gpu-0"), "in a new directory as well: what is read comes first"


def test_where_the_gpus_are_known_from_makes_no_configuration_of_its_own():
    hosts = {"a": ("whole", None, "none"), "b": ("whole", "read", "none"), "c": ("sliced", "small", "none")}
    hosts |= {"d": ("sliced", None, "none"), "e": ("sliced", "lost a gpu", "host only")}
    tree = rendered(hosts)
    assert configurations(tree) == {"a": "whole", "b": "whole", "c": "sliced", "d": "sliced", "e": "sliced"}
    shows = {name: expected(tree["capacity.json"], "c", name) for name in hosts}
    assert [shows[name].resources for name in "cde"] == [{"nvidia.com/gpu": count} for count in (16, 16, 12)]
    assert shows["c"].labels["nvidia.com/gpu.memory"] == "32000"
    assert "nvidia.com/gpu.memory" not in shows["d"].labels, "the table of boards does not know it to the MiB"


def test_a_change_of_the_pool_keeps_its_releases(monkeypatch):
    """A new release in place of an updated one would end the clients of the plugin's MPS daemon on all nodes at once."""
    hosts = {"a": ("shared", "read", "none"), "b": ("shared", "read", "none"), "c": ("shared", "small", "none")}
    first = rendered(hosts)
    monkeypatch.setitem(POOLS, "shared", {**POOLS["shared"], "nvidia_sharing_memory_slice": "2GiB"})
    second = rendered(hosts, before=first)
    assert configurations(second) == configurations(first)
    assert serving(second, "a") != serving(first, "a")


def test_a_tree_of_an_earlier_release_keeps_the_names_of_its_nodes():
    """It does not tell the content, so the nodes decide."""
    before = {
        "shared": Former("shared", "", frozenset("defg")),
        "shared-9fcb": Former("shared", "", frozenset("abc")),
        "other": Former("other", "", frozenset("xyz")),
    }
    read, unread = ResourceKind("1", frozenset("abc"), False), ResourceKind("2", frozenset("defg"), True)
    assert names("shared", [read, unread], before) == {"1": "shared-9fcb", "2": "shared"}
    assert names("shared", [ResourceKind("3", frozenset("abcdefg"), False)], before) == {"3": "shared"}


@pytest.mark.parametrize(
    "text",
    ["", "<<<<<<< ours", "[]", '{"nodes": {}}', '{"nodes": {"a": {"configuration": 1}}, "configurations": {}}'],
)
def test_a_file_that_cannot_be_read_is_no_empty_one(text):
    with pytest.raises(Refused, match="names of the configurations are read from it"):
        former(text, "capacity.json")
    assert former(None, "capacity.json") == {}
