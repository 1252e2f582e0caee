# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the linter says of HAMi's configuration."""

from __future__ import annotations

import json

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.lint.lint import lint, lint_files

from .test_lint_rules import facts, gpu

#: What the chart of HAMi 2.10 renders for NVIDIA's GPUs with its own values.
DEVICES = {
    "resourceCountName": "nvidia.com/gpu",
    "resourceMemoryName": "nvidia.com/gpumem",
    "resourceMemoryPercentageName": "nvidia.com/gpumem-percentage",
    "resourceCoreName": "nvidia.com/gpucores",
    "resourcePriorityName": "nvidia.com/priority",
    "overwriteEnv": False,
    "defaultMemory": 0,
    "defaultCores": 0,
    "defaultGPUNum": 1,
    "preConfiguredDeviceMemory": 0,
    "memoryFactor": 1,
    "deviceSplitCount": 10,
    "deviceMemoryScaling": 1,
    "deviceCoreScaling": 1,
    "enableNumaTopology": False,
    "gpuCorePolicy": "default",
    "libCudaLogLevel": 1,
    "runtimeClassName": "",
    "migProfileAllowlist": [{"models": ["A30"], "profiles": ["1g.6gb", "2g.12gb"]}],
}
#: One node of the chart's example.
NODE = {
    "name": "gpu-1",
    "operatingmode": "hami-core",
    "devicememoryscaling": 1,
    "devicesplitcount": 10,
    "preconfigureddevicememory": 0,
    "enablenumatopology": False,
    "migstrategy": "none",
    "filterdevices": {"uuid": [], "index": []},
    "enablegetpreferredallocation": False,
}


def found(text, known=None):
    return [(finding.level, finding.path) for finding in lint(text, known).findings]


def of_devices(**changed):
    given = {key: value for key, value in {**DEVICES, **changed}.items() if value is not ...}
    return found(yaml.safe_dump({"nvidia": given, "cambricon": {"resourceCountName": "cambricon.com/vmlu"}}))


def of_node(known=None, **changed):
    return found(json.dumps({"nodeconfig": [{**NODE, **changed}]}), known)


def host(*gpus):
    return {**facts(*({**one, "uuid": f"GPU-{one['index']}"} for one in gpus)), "host": {"name": "gpu-1"}}


def test_what_the_chart_renders_is_clean():
    assert of_devices() == []
    assert of_node() == []
    assert of_node(host(gpu(0))) == []


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"deviceSplitcount": 4}, ("warning", "nvidia.deviceSplitcount")),
        ({"knownMigGeometries": []}, ("warning", "nvidia.knownMigGeometries")),
        ({"deviceSplitCount": ...}, ("error", "nvidia.deviceSplitCount")),
        ({"deviceMemoryScaling": ...}, ("error", "nvidia.deviceMemoryScaling")),
        ({"libCudaLogLevel": None}, ("error", "nvidia.libCudaLogLevel")),
        ({"deviceSplitCount": 0}, ("error", "nvidia.deviceSplitCount")),
        ({"deviceSplitCount": -1}, ("error", "nvidia.deviceSplitCount")),
        ({"deviceSplitCount": 2.5}, ("error", "nvidia.deviceSplitCount")),
        ({"deviceMemoryScaling": "much"}, ("error", "nvidia.deviceMemoryScaling")),
        ({"overwriteEnv": "yes"}, ("error", "nvidia.overwriteEnv")),
        ({"resourceCountName": ["nvidia.com/gpu"]}, ("error", "nvidia.resourceCountName")),
        ({"gpuCorePolicy": "forced"}, ("warning", "nvidia.gpuCorePolicy")),
        ({"libCudaLogLevel": "2"}, ("warning", "nvidia.libCudaLogLevel")),
        (
            {"migProfileAllowlist": [{"models": ["A30"], "profiles": ["1g6gb"]}]},
            ("error", "nvidia.migProfileAllowlist[0].profiles"),
        ),
        (
            {"migProfileAllowlist": [{"profiles": ["1g.6gb"]}]},
            ("error", "nvidia.migProfileAllowlist[0].models"),
        ),
    ],
)
def test_devices(changed, expected):
    assert of_devices(**changed) == [expected]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"operatingMode": "mig", "operatingmode": "mig"}, None),
        ({"operatingmode": "mps"}, ("warning", "nodeconfig[0].operatingmode")),
        ({"migstrategy": "mixed"}, ("warning", "nodeconfig[0].migstrategy")),
        ({"splitcount": 3}, ("warning", "nodeconfig[0].splitcount")),
        ({"name": ""}, ("warning", "nodeconfig[0].name")),
        ({"filterdevices": {"index": ["0"]}}, ("error", "nodeconfig[0].filterdevices.index")),
    ],
)
def test_nodes(changed, expected):
    assert of_node(**changed) == ([expected] if expected else [])


def test_a_node_that_is_named_twice():
    assert found(json.dumps({"nodeconfig": [NODE, NODE]})) == [("warning", "nodeconfig[1].name")]


def test_json_that_only_yaml_reads():
    assert found('{"nodeconfig": [{"name": "gpu-1"},]}') == [("error", "")]
    filled = '{"nodeconfig": [{"name": "gpu-1", "operatingmode": "mps", "devicesplitcount": ${N}}]}'
    assert found(filled) == [("note", ""), ("warning", "nodeconfig[0].operatingmode")]


@pytest.mark.parametrize(
    ("filtered", "expected"),
    [
        ({"index": [0]}, []),
        ({"uuid": ["GPU-1"]}, []),
        ({"index": [0], "uuid": ["GPU-1"]}, [("error", "nodeconfig[0].filterdevices")]),
        ({"index": [2]}, [("warning", "nodeconfig[0].filterdevices.index")]),
        ({"uuid": ["GPU-9"]}, [("warning", "nodeconfig[0].filterdevices.uuid")]),
    ],
)
def test_a_filter_leaves_gpus_out_and_does_not_choose_them(filtered, expected):
    assert of_node(host(gpu(0), gpu(1)), filterdevices=filtered) == expected
    assert of_node(host(gpu(0), gpu(1)), name="another", filterdevices=filtered) == []


def test_mig_devices_of_a_layout_do_not_stay_where_hami_makes_its_own():
    known = host(gpu(0, profiles=["1g.10gb"]))
    assert of_node(known, operatingmode="mig") == [("warning", "nodeconfig[0].operatingmode")]
    assert of_node(host(gpu(0)), operatingmode="mig") == []


@pytest.mark.parametrize(
    ("strategy", "mode", "errors"),
    [
        ("cdi-annotations", "mig", 1),
        ("envvar,cdi-cri", "mig", 1),
        ("envvar", "mig", 0),
        ("cdi-annotations", "hami-core", 0),
        (None, "mig", 0),
    ],
)
def test_mig_devices_that_are_made_for_each_pod_are_in_no_specification_of_cdi(strategy, mode, errors):
    plugin = {"nodeConfiguration": {"config": json.dumps({"nodeconfig": [{**NODE, "operatingmode": mode}]})}}
    values = {"devicePlugin": {**plugin, **({"deviceListStrategy": strategy} if strategy else {})}}
    (verdict,) = (one for name, one in lint_files({"f": yaml.safe_dump(values)}).items() if "config]" in name)
    assert [one.path for one in verdict.errors] == ["nodeconfig[0].operatingmode"] * errors
    # As its chart renders them.
    container = {"env": [{"name": "DEVICE_LIST_STRATEGY", "value": strategy}]}
    volumes = [{"name": "deviceconfig", "configMap": {"name": "hami-device-plugin"}}]
    pods = {"template": {"spec": {"containers": [container], "volumes": volumes}}}
    daemon_set = {"kind": "DaemonSet", "metadata": {"name": "hami"}, "spec": pods}
    config_map = {"kind": "ConfigMap", "data": {"config.json": plugin["nodeConfiguration"]["config"]}}
    for name, expected in (("hami-device-plugin", errors), ("another", 0)):
        documents = [{**config_map, "metadata": {"name": name}}, daemon_set]
        verdicts = lint_files({"f": yaml.safe_dump_all(documents)})
        assert len(verdicts["f[data.config.json]"].errors) == expected


def test_it_is_found_in_config_maps_and_in_values_of_the_chart():
    devices, nodes = yaml.safe_dump({"nvidia": {**DEVICES, "deviceSplitCount": 0}}), json.dumps({"nodeconfig": [{}]})
    config_map = {"kind": "ConfigMap", "data": {"device-config.yaml": devices, "config.json": nodes}}
    values = {"device-config": {"content": devices}, "devicePlugin": {"nodeConfiguration": {"config": nodes}}}
    for document in (config_map, values):
        verdicts = lint_files({"f": yaml.safe_dump(document)}).values()
        assert sorted(finding.level for one in verdicts for finding in one.findings) == ["error", "warning"]
