# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The objects of a GPU Operator and of standalone device plugins, read as the variables that mean the same."""

from __future__ import annotations

import re

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.adopt_cluster import Objects, read_plugin_file
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.capacity import gpus_of_inventory
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.sharing_configurations import read


def labelled(name="gpu01", labels=()):
    return {
        "metadata": {"name": name, "labels": dict(labels)},
        "status": {
            "nodeInfo": {"kubeletVersion": "v1.34.4"},
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        },
    }


def policy(**spec):
    return {
        "metadata": {"name": "cluster-policy"},
        "spec": {"driver": {"enabled": False}, "toolkit": {"enabled": False}, **spec},
        "status": {"state": "ready", "namespace": "gpu-operator"},
    }


def plugin(name="plugin", config_map="", selector=None, environment=(), arguments=(), owner=None):
    volumes = [{"name": "available-configs", "configMap": {"name": config_map}}] if config_map else []
    container = {
        "name": "nvidia-device-plugin-ctr",
        "command": ["nvidia-device-plugin"],
        "args": list(arguments),
        "env": [{"name": key, "value": value} for key, value in dict(environment).items()],
    }
    owners = [{"kind": owner, "name": "cluster-policy"}] if owner else []
    return {
        "metadata": {"name": name, "namespace": "nvidia-gpu", "ownerReferences": owners},
        "spec": {"template": {"spec": {"containers": [container], "volumes": volumes, "nodeSelector": selector or {}}}},
    }


def file(strategy="none", **sharing):
    return yaml.safe_dump({"version": "v1", "flags": {"migStrategy": strategy}, "sharing": sharing})


FOUR = file(timeSlicing={"resources": [{"name": "nvidia.com/gpu", "replicas": 4}]})


def test_an_operator_with_time_slicing_by_node_label():
    configuration = {"name": "plugin-config", "default": "whole"}
    objects = Objects(
        [labelled(labels={"nvidia.com/device-plugin.config": "four"}), labelled("gpu02")],
        [
            policy(
                devicePlugin={"config": configuration}, mig={"strategy": "mixed"}, operator={"runtimeClass": "nvidia"}
            )
        ],
        (),
        [plugin(owner="ClusterPolicy")],
        {("gpu-operator", "plugin-config"): {"four": FOUR, "whole": file()}},
    )
    assert objects.wanted_config_maps() == [("gpu-operator", "plugin-config")]
    assert objects.variables() == {
        "gpu_kubernetes_stack": "gpu_operator",
        "gpu_kubernetes_mig_manager": "host",
        "gpu_kubernetes_runtime_class": "nvidia",
        "gpu_kubernetes_namespace": "gpu-operator",
        "gpu_kubernetes_version": "1.34",
        "gpu_kubernetes_sharing_configurations": {
            "four": {"replicas": 4, "gpus_per_pod": 2},
            "whole": {"mode": "none"},
        },
    }
    four = objects.served(objects.node_named("gpu01"))
    assert (four.strategy, four.driver, four.toolkit, four.differences) == ("mixed", False, False, ())
    assert dict(four.sharing) == {
        "nvidia_sharing_mode": "time_slicing",
        "nvidia_sharing_rename": False,
        "nvidia_sharing_gpus_per_pod": 2,
        "nvidia_sharing_replicas": 4,
    }
    whole = objects.served(objects.node_named("gpu02"))
    assert dict(whole.sharing) == {} and whole.strategy == "mixed"


def test_an_operator_that_brings_driver_and_toolkit_and_partitions():
    labels = {"nvidia.com/mig.config": "all-balanced", "nvidia.com/mig.config.state": "failed", "pool": "training"}
    drivers = [
        {"metadata": {"name": "training"}, "spec": {"version": "580.178.04", "nodeSelector": {"pool": "training"}}},
        {"metadata": {"name": "other"}, "spec": {"version": "570.1", "nodeSelector": {"pool": "other"}}},
    ]
    given = {"driver": {"enabled": True, "useNvidiaDriverCRD": True}, "toolkit": {"enabled": True}}
    objects = Objects([labelled(labels=labels)], [policy(**given)], drivers)
    assert objects.variables()["gpu_kubernetes_mig_manager"] == "operator"
    found = objects.served(objects.nodes[0])
    assert found.driver and found.toolkit
    assert found.strategy == "none", "without mig the operator leaves the strategy to the plugin"
    assert found.notes == ("the driver of node gpu01 is decided by NVIDIADriver training (580.178.04)",)
    assert "nvidia.com/mig.config=all-balanced, and its state is failed" in found.differences[0]


@pytest.mark.parametrize(
    ("labels", "driver", "toolkit"),
    [
        ({}, True, True),
        ({"driver": "true", "container-toolkit": "true"}, True, True),
        ({"driver": "false"}, False, True),
        ({"driver": "pre-installed"}, False, True),
        ({"driver": "true", "container-toolkit": "false"}, True, False),
        ({"driver": "false", "container-toolkit": "false"}, False, False),
        # The operator removes the labels of its operands then.
        ({"operands": "false"}, False, False),
        # Its driver manager says this while it works, and has it back.
        ({"driver": "paused-for-driver-upgrade"}, True, True),
    ],
)
def test_a_node_that_has_left_the_operators_driver_or_toolkit_is_described_so_in_a_mixed_cluster(
    labels, driver, toolkit
):
    given = {"driver": {"enabled": True, "useNvidiaDriverCRD": True}, "toolkit": {"enabled": True}}
    named = {f"nvidia.com/gpu.deploy.{name}": value for name, value in labels.items()}
    objects = Objects([labelled(labels=named), labelled("gpu02")], [policy(**given)])
    left, other = (objects.served(node) for node in objects.nodes)
    assert (left.driver, left.toolkit) == (driver, toolkit)
    assert (other.driver, other.toolkit) == (True, True), "enabled stays what it is for the others"
    assert bool(left.notes) is driver, "no NVIDIADriver decides about the driver of a host"


def test_the_versions_of_the_charts_are_those_of_helms_labels():
    installed = policy()
    installed["metadata"]["labels"] = {"helm.sh/chart": "gpu-operator-v25.3.4"}
    assert Objects([labelled()], [installed]).charts == {"gpu-operator": "v25.3.4"}
    alone = plugin()
    alone["metadata"]["labels"] = {"helm.sh/chart": "nvidia-device-plugin-0.17.1"}
    assert Objects([labelled()], daemon_sets=[alone]).charts == {"nvidia-device-plugin": "0.17.1"}
    assert Objects([labelled()], [policy()], daemon_sets=[plugin()]).charts == {}


def test_a_label_that_names_a_configuration_that_is_not_there_is_named():
    objects = Objects(
        [labelled(labels={"nvidia.com/device-plugin.config": "gone"})],
        [policy(devicePlugin={"config": {"name": "plugin-config"}})],
        config_maps={("gpu-operator", "plugin-config"): {"four": FOUR}},
    )
    found = objects.served(objects.nodes[0])
    assert not found.sharing
    assert "names configuration gone, which ConfigMap gpu-operator/plugin-config does not have" in found.differences[0]


MIG_SLICES = file(
    timeSlicing={"renameByDefault": True, "resources": [{"name": "nvidia.com/mig-1g.10gb", "replicas": 2}]}
)
DAEMON = file(mps={"resources": [{"name": "nvidia.com/gpu", "replicas": 3}]})
BY_MPS_ON_MIG = file("mixed", mps={"resources": [{"name": "nvidia.com/gpu", "replicas": 4}]})


def with_configurations(*config_maps):
    plugins = [plugin(f"plugin-{number}", config_map=f"c{number}") for number in range(len(config_maps))]
    data = {("nvidia-gpu", f"c{number}"): texts for number, texts in enumerate(config_maps)}
    return Objects([labelled()], daemon_sets=plugins, config_maps=data)


def test_the_configurations_between_which_nodes_choose_are_those_that_are_rendered():
    objects = with_configurations(
        {"default": file(), "mig": MIG_SLICES, "daemon": DAEMON, "four": FOUR, "none": file()}
    )
    named, left = objects.named_configurations
    assert left == []
    assert named == {
        "daemon": {"mode": "mps", "replicas": 3},
        "four": {"replicas": 4, "gpus_per_pod": 2},
        "mig": {"replicas": {"1g.10gb": 2}, "rename": True, "gpus_per_pod": 2},
        "none": {"mode": "none"},
    }
    gpus = gpus_of_inventory([{"board": "l40s-48gb", "count": 2}])
    variables = {"nvidia_sharing_mode": "time_slicing", "nvidia_sharing_replicas": 4}
    choices = read(gpus=gpus, desired={**variables, "gpu_kubernetes_sharing_configurations": named})
    assert set(choices.named) == {"default", "four", "none"}, (
        "the GPUs have no instances, and no MPS daemon serves them"
    )
    assert choices.labelled(labelled(labels={"nvidia.com/device-plugin.config": "none"})).sharing.mode == "none"


def test_where_there_is_one_configuration_there_is_nothing_to_choose():
    assert with_configurations({"only": FOUR}).named_configurations == ({}, [])
    assert "gpu_kubernetes_sharing_configurations" not in with_configurations({"only": FOUR}).variables()


@pytest.mark.parametrize(
    ("config_maps", "said"),
    [
        (
            ({"default": FOUR, "a": file()},),
            "configuration default of the device plugin is not described: it shares GPUs",
        ),
        (({"A_B": FOUR, "a": file()},), "configuration A_B of the device plugin is not described: the name cannot be"),
        (
            ({"a": file()}, {"b": FOUR}, {"b": file()}),
            "configuration b .* several ConfigMaps have one of this name, and they",
        ),
        (
            ({"a": file()}, {"b": BY_MPS_ON_MIG}),
            "configuration b .* does not start with its configuration: flags.migStrategy",
        ),
        (({"a": file(), "b": "}"},), "configuration b .* invalid YAML"),
    ],
)
def test_a_configuration_that_cannot_be_described_is_named(config_maps, said):
    named, left = with_configurations(*config_maps).named_configurations
    assert named == {"a": {"mode": "none"}}
    assert len(left) == 1 and re.match(said, left[0])


def test_an_ignored_cluster_policy_is_not_the_one_that_counts():
    ignored = {**policy(mig={"strategy": "single"}), "status": {"state": "ignored"}}
    assert Objects(cluster_policies=[ignored]).policy is None
    assert Objects(cluster_policies=[ignored, policy()]).policy == policy()


def test_a_release_of_the_plugin_for_each_pool_serves_the_nodes_that_it_selects():
    objects = Objects(
        [labelled("gpu01", {"pool": "shared"}), labelled("gpu02", {"pool": "training"}), labelled("gpu03")],
        daemon_sets=[
            plugin("shared", "shared-config", {"pool": "shared"}),
            plugin("training", "", {"pool": "training"}, {"MIG_STRATEGY": "mixed"}),
            {"metadata": {"name": "something"}, "spec": {"template": {"spec": {"containers": [{"name": "a"}]}}}},
        ],
        config_maps={("nvidia-gpu", "shared-config"): {"only": FOUR}},
    )
    assert objects.wanted_config_maps() == [("nvidia-gpu", "shared-config")]
    assert objects.variables()["gpu_kubernetes_stack"] == "device_plugin"
    assert objects.variables()["gpu_kubernetes_namespace"] == "nvidia-gpu"
    shared, training, other = (objects.served(one) for one in objects.nodes)
    # The only configuration serves nodes that name none.
    assert shared.sharing["nvidia_sharing_replicas"] == 4 and shared.strategy == "none"
    assert (training.strategy, dict(training.sharing)) == ("mixed", {})
    assert (other.strategy, dict(other.sharing)) == (None, {})


def test_the_plugins_flag_beats_its_environment_and_several_plugins_on_a_node_are_named():
    daemon_sets = [plugin("a", arguments=["--mig-strategy=single"], environment={"MIG_STRATEGY": "mixed"}), plugin("b")]
    objects = Objects([labelled()], daemon_sets=daemon_sets)
    found = objects.served(objects.nodes[0])
    assert found.strategy == "single" and "besides the one that was read: b" in found.notes[0]


def test_the_configuration_that_is_named_default_serves_nodes_that_name_none():
    both = {("nvidia-gpu", "c"): {"default": FOUR, "other": file()}}
    objects = Objects([labelled()], daemon_sets=[plugin(config_map="c")], config_maps=both)
    assert objects.served(objects.nodes[0]).sharing["nvidia_sharing_replicas"] == 4
    named = Objects(
        [labelled()], daemon_sets=[plugin(config_map="c", environment={"DEFAULT_CONFIG": "other"})], config_maps=both
    )
    assert dict(named.served(named.nodes[0]).sharing) == {}


def test_a_node_is_found_by_its_name_and_by_its_address():
    objects = Objects([labelled("node-7")])
    assert objects.node_named("gpu01", "10.0.0.1") is objects.nodes[0]
    assert objects.node_named("gpu01", "") is None


def test_a_node_that_says_it_has_the_name_or_the_address_of_another_is_not_taken_for_it():
    liar = labelled("a-liar")
    liar["status"]["addresses"] = [
        {"type": "Hostname", "address": "node-7"},
        {"type": "InternalIP", "address": "10.0.0.1"},
    ]
    objects = Objects([liar, labelled("node-7")])
    assert objects.node_named("node-7", "10.0.0.1") is objects.nodes[1]
    assert objects.node_named("gpu01", "node-7", "10.0.0.1") is objects.nodes[1]
    assert objects.node_named("gpu01", "10.0.0.1") is None, "two say that it is theirs"


TIME, MPS = "time_slicing", "mps"


def shared(mode, replicas, gpus_per_pod=2, rename=False):
    several = {"nvidia_sharing_gpus_per_pod": gpus_per_pod} if gpus_per_pod > 1 else {}
    return {
        "nvidia_sharing_mode": mode,
        "nvidia_sharing_rename": rename,
        **several,
        "nvidia_sharing_replicas": replicas,
    }


def resources(**replicas):
    return [{"name": f"nvidia.com/{name.replace('_', '-')}", "replicas": count} for name, count in replicas.items()]


@pytest.mark.parametrize(
    ("sharing", "variables", "said"),
    [
        ({"mps": {"resources": resources(gpu=8)}}, shared(MPS, 8, 1), []),
        ({"mps": {"failRequestsGreaterThanOne": False, "resources": resources(gpu=8)}}, shared(MPS, 8, 1), ["several MPS slices"]),
        # Unset and false it admits pods with several slices, which a rendered true would refuse.
        ({"timeSlicing": {"resources": resources(gpu=4)}}, shared(TIME, 4), []),
        ({"timeSlicing": {"failRequestsGreaterThanOne": False, "resources": resources(gpu=4)}}, shared(TIME, 4), []),
        ({"timeSlicing": {"failRequestsGreaterThanOne": True, "resources": resources(gpu=4)}}, shared(TIME, 4, 1), []),
        (
            {"timeSlicing": {"renameByDefault": True, "resources": [*resources(gpu=4), {"name": "mig-1g.5gb", "replicas": 2}]}},
            shared(TIME, {"gpu": 4, "1g.5gb": 2}, rename=True),
            [],
        ),
        ({"timeslicing": {"resources": resources(gpu=4)}}, shared(TIME, 4), []),
        ({"timeSlicing": {"resources": resources(gpu=4)}, "mps": {"resources": resources(gpu=8)}}, shared(MPS, 8, 1), []),
        ({"timeSlicing": {"resources": [*resources(gpu=4), *resources(gpu=6)]}}, shared(TIME, 6), []),
        # The plugin ignores both and shares all devices under their name.
        ({"timeSlicing": {"resources": [{**resources(gpu=4)[0], "devices": ["0"], "rename": "x"}]}}, shared(TIME, 4), []),
    ],
)  # fmt: skip
def test_what_a_configuration_shares(sharing, variables, said):
    found, strategy, differences = read_plugin_file(file("none", **sharing))
    assert (found, strategy) == (variables, "none")
    assert len(differences) == len(said) and all(text in line for text, line in zip(said, differences, strict=True))


def test_a_strategy_from_outside_beats_the_files_before_the_plugin_judges():
    text = file("mixed", mps={"resources": resources(gpu=2)})
    assert read_plugin_file(text)[2]
    assert read_plugin_file(text, "none") == (shared(MPS, 2, 1), "none", [])


@pytest.mark.parametrize(
    "text",
    ["{", "[" * 30_000, "sharing: {timeSlicing: {resources: 5}}", "[]", "sharing: 3", "sharing: {timeSlicing: [1]}"]
    + ["flags: {migStrategy: [single]}", "version: v2", "sharing: {timeSlicing: {resources: []}}", "a: \ud800"]
    + [file("mixed", mps={"resources": resources(gpu=2)}), file(timeSlicing={"resources": resources(gpu=1)})],
)
def test_a_file_with_which_the_plugin_does_not_start_is_a_difference(text):
    found, strategy, (difference,) = read_plugin_file(text)
    assert (found, strategy) == ({}, None)
    assert "does not start" in difference


@pytest.mark.parametrize("text", ["", "version: v1", "a: 2026-99-99", "sharing:"])
def test_a_configuration_that_shares_nothing(text):
    assert read_plugin_file(text) == ({}, None, [])


def test_what_looks_like_a_plugin_in_a_namespace_that_nobody_named_is_named_and_decides_nothing():
    hostile = plugin("hostile", "config", arguments=["--mig-strategy=single"])
    hostile["metadata"]["namespace"] = "tenant"
    objects = Objects([labelled()], daemon_sets=[hostile], config_maps={("tenant", "config"): {"only": FOUR}})
    assert objects.strangers == ["tenant/hostile"] and objects.wanted_config_maps() == []
    assert objects.variables() == Objects([labelled()]).variables()
    assert objects.served(objects.nodes[0]) == Objects([labelled()]).served(labelled())
    theirs = Objects([labelled()], daemon_sets=[hostile], namespaces=["tenant"])
    assert theirs.strangers == [] and theirs.variables()["gpu_kubernetes_namespace"] == "tenant"
