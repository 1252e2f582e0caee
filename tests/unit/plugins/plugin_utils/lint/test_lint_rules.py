# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules of the linter that the recorded verdicts do not reach, and what facts of a node add."""

from __future__ import annotations

import json
import re

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.lint.lint import lint, lint_files

MPS = "version: v1\nsharing:\n  mps:\n    resources:\n    - name: nvidia.com/gpu\n      replicas: {}\n"
SLICED = "version: v1\n{}sharing:\n  timeSlicing:\n    resources:\n    - name: {}\n      replicas: 2\n"
FLAGS = "version: v1\nflags:\n  {}\n"
PLUGIN = "version: v1\nflags:\n  plugin:\n    {}\n"


def found(text, facts=None):
    return [(finding.level, finding.path) for finding in lint(text, facts).findings]


def gpu(index=0, architecture="hopper", profiles=None):
    """A GPU; with profiles it has MIG enabled and these instances."""
    instances = [
        {
            "id": number,
            "profile": profile,
            "start": number,
            "size": 1,
            "compute_instances": [{"id": 0, "profile": profile}],
        }
        for number, profile in enumerate(profiles or ())
    ]
    return {
        "index": index,
        "architecture": architecture,
        "mig": {"supported": True, "current": profiles is not None},
        "gpu_instances": instances,
    }


def facts(*gpus, nvml=True, library="580.1"):
    return {"gpus": list(gpus), "nvml": {"available": nvml}, "driver": {"library_version": library}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- a\n", ("error", "")),
        ("hello\n", ("error", "")),
        ("a: [\n", ("error", "")),
        ("%YAML 1.2\n---\nversion: v1\n", ("error", "")),
        ("version: v1\n\tflags: {}\n", ("error", "")),
        ('version: v1\nx: "\\ud800"\n', ("error", "")),
        ('version: v1\n"\\udbe3\\uddb3": x\n', ("error", "")),
        ("version: v1\n[a]: x\n", ("error", "")),
        ("version: v1\nx: *unknown\n", ("error", "")),
        ("version: v1\nx: &a [*a]\n", ("error", "")),
        ("version: v1\n<<: 4\n", ("error", "")),
        ("version: 1\n", ("error", "version")),
        ("version: v1\n---\nversion: v1\n", ("warning", "")),
        ("version: v1\n--- [\n", ("warning", "")),
        ("version: v1\nversion: v1\n", ("warning", "version")),
        ("version: v1\nsharing:\n", ("warning", "sharing")),
        ("version: v1\nsharing:\n  mps:\n", ("warning", "sharing.mps")),
        ("version: v1\nimex:\n  required: true\n", ("warning", "imex.required")),
        ("version: v1\nimex:\n  channelIDs: 0\n", ("error", "imex.channelIDs")),
        ("apiVersion: v1\nkind: ConfigMap\n", ("warning", "kind")),
        (FLAGS.format('migStrategy: ""'), ("error", "flags.migStrategy")),
        (FLAGS.format("migStrategy: no"), ("error", "flags.migStrategy")),
        (FLAGS.format("deviceDiscoveryStrategy: vfio"), ("error", "flags.deviceDiscoveryStrategy")),
        (FLAGS.format("migStrategy: none\n  MIGSTRATEGY: none"), ("warning", "flags.migStrategy")),
        (PLUGIN.format("deviceIDStrategy: minor"), ("error", "flags.plugin.deviceIDStrategy")),
        (PLUGIN.format("deviceListStrategy: []"), ("warning", "flags.plugin.deviceListStrategy")),
        (PLUGIN.format("deviceListStrategy: envvar,cdi-cri"), ("error", "flags.plugin.deviceListStrategy")),
        (PLUGIN.format("deviceListStrategy: {}"), ("error", "flags.plugin.deviceListStrategy")),
        (
            PLUGIN.format("sharedDevicesAllocationPolicy: spread"),
            ("error", "flags.plugin.sharedDevicesAllocationPolicy"),
        ),
        (PLUGIN.format("migStrategy: mixed"), ("error", "flags.migStrategy")),
        (PLUGIN.format("failOnInitError: true"), ("warning", "flags.failOnInitError")),
        (
            SLICED.format("flags: {migStrategy: mixed}\n", "nvidia.com/mig-9g.999gb"),
            ("warning", "sharing.timeSlicing.resources[0].name"),
        ),
        (MPS.format("010"), ("warning", "sharing.mps.resources[0].replicas")),
        (MPS.format("1_0"), ("warning", "sharing.mps.resources[0].replicas")),
        (MPS.format("4\n      devices: [0]"), ("warning", "sharing.mps.resources[0].devices")),
        (MPS.format("4\n      devices: 2"), ("warning", "sharing.mps.resources[0].devices")),
        (MPS.format("4\n      devices: 0"), ("error", "sharing.mps.resources[0].devices")),
        (MPS.format("4\n      devices: [foo]"), ("error", "sharing.mps.resources[0].devices[0]")),
        (MPS.format("4\n      rename: other"), ("warning", "sharing.mps.resources[0].rename")),
        (MPS.format("4\n      Replicas: 5"), ("warning", "sharing.mps.resources[0].Replicas")),
        (MPS.format("4\n    renamebydefault: true"), ("warning", "sharing.mps.renamebydefault")),
        (
            SLICED.format("flags: {migStrategy: single}\n", "nvidia.com/mig-1g.10gb"),
            ("warning", "sharing.timeSlicing.resources[0].name"),
        ),
        (SLICED.format("", "nvidia.com/mig-1g.10gb"), ("warning", "sharing.timeSlicing.resources[0].name")),
    ],
)
def test_one_finding(text, expected):
    assert expected in found(text)


@pytest.mark.parametrize(
    "text",
    [
        "version: v1\n",
        'version: ""\n',
        "# only what it says\nversion: v1\nflags: {migStrategy: mixed}\n",
        '{"version": "v1", "flags": {"migStrategy": "none"}}\n',
        SLICED.format("flags: {migStrategy: mixed}\n", "nvidia.com/mig-1g.10gb.me"),
        SLICED.format("", "gpu"),
        SLICED.format("flags: {migStrategy: mixed}\n", "nvidia.com/mig-1g.23gb"),
        MPS.format("4.0"),
        MPS.format("4\n      devices: all"),
        MPS.format("4\n    renameByDefault: true\n    failRequestsGreaterThanOne: false"),
        "version: v1\nimex: {channelIDs: [0], required: true}\n",
        "version: v1\nflags: {gfd: {sleepInterval: infinite, oneshot: no}}\n",
    ],
)
def test_clean(text):
    assert found(text) == []


@pytest.mark.parametrize(
    ("text", "node", "expected"),
    [
        (MPS.format(17), facts(gpu(architecture="volta")), [("error", "sharing.mps.resources[0].replicas")]),
        (MPS.format(17), facts(gpu(architecture="turing")), []),
        (
            MPS.format(17),
            facts({"index": 0, "name": "Tesla V100-SXM2-16GB"}),
            [("error", "sharing.mps.resources[0].replicas")],
        ),
        (MPS.format(17), facts({"index": 0, "name": "a board of tomorrow"}), []),
        (MPS.format(4), facts(gpu(profiles=[])), [("error", "sharing.mps")]),
        (
            FLAGS.format("migStrategy: single"),
            facts(gpu(profiles=["1g.10gb"]), gpu(1)),
            [("error", "flags.migStrategy")],
        ),
        (FLAGS.format("migStrategy: single"), facts(gpu(profiles=[])), [("error", "flags.migStrategy")]),
        (
            FLAGS.format("migStrategy: single"),
            facts(gpu(profiles=["1g.10gb", "2g.20gb"])),
            [("error", "flags.migStrategy")],
        ),
        (FLAGS.format("migStrategy: single"), facts(gpu(profiles=["1g.10gb", "1g.10gb"])), []),
        (FLAGS.format("migStrategy: single"), facts(gpu()), []),
        (SLICED.format("", "nvidia.com/gpu"), facts(gpu()), []),
        (
            SLICED.format("flags: {migStrategy: mixed}\n", "nvidia.com/gpu"),
            facts(gpu(profiles=["1g.10gb"])),
            [("warning", "sharing.timeSlicing.resources[0].name")],
        ),
        (
            SLICED.format("flags: {migStrategy: mixed}\n", "nvidia.com/mig-1g.10gb.me"),
            facts(gpu(profiles=["1g.10gb+me"])),
            [],
        ),
        (SLICED.format("flags: {migStrategy: single}\n", "nvidia.com/gpu"), facts(gpu(profiles=["1g.10gb"])), []),
        ("version: v1\n", facts(), [("warning", "")]),
        (PLUGIN.format("deviceListStrategy: [cdi-cri]"), facts(gpu()), []),
        (
            PLUGIN.format("deviceListStrategy: [cdi-cri]"),
            facts(gpu(), library=None),
            [("error", "flags.plugin.deviceListStrategy")],
        ),
        (
            PLUGIN.format("deviceListStrategy: [cdi-cri]"),
            facts(gpu(), nvml=False),
            [("error", "flags.plugin.deviceListStrategy")],
        ),
    ],
)
def test_on_a_node(text, node, expected):
    assert found(text, node) == expected
    assert found(text, {"gpu": node}) == expected, "the whole answer of gpu_info will do"


def test_a_compute_instance_beside_others_is_no_device_of_the_strategy_mixed():
    part = gpu(profiles=["3g.40gb"])
    part["gpu_instances"][0]["compute_instances"] = [
        {"id": 0, "profile": "1c.3g.40gb"},
        {"id": 1, "profile": "2c.3g.40gb"},
    ]
    assert ("error", "flags.migStrategy") in found(FLAGS.format("migStrategy: mixed"), facts(part))


def test_facts_without_gpus_say_nothing():
    assert found("version: v1\n", {"host": {}}) == []


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"toolkit": {"version": 1.2}}, "toolkit.version"),
        ({"gpus": [{"index": 0, "mig": {"current": "yes"}}]}, "gpus[0].mig.current"),
        ({"gpus": [{}]}, "gpus[0].index"),
        ({"driver": []}, "driver"),
        ([], "the document"),
        ("gpus", "the document"),
        ({"gpu": None}, "the document"),
    ],
)
def test_facts_that_do_not_fit_are_refused_with_their_field(wrong, named):
    """They would count as none, and everything that depends on the node as right."""
    for text in ("version: v1\n", "kind: Deployment\n"):
        with pytest.raises(
            Refused, match=rf"^the facts of the node: {re.escape(named)}: .* gpufleet\.nvidia\.gpu_info\.$"
        ):
            lint_files({"f": text}, wrong)


def test_a_bomb_of_aliases_is_refused():
    levels = "\n".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 9))
    assert found(f"l0: &l0 [x, x]\n{levels}\n") == [("error", "")]


def test_nesting_without_end_is_refused():
    assert found("x: " + "[" * 1200) == [("error", "")]


def test_merge_below_the_keys_overwrites_them():
    text = "version: v1\nx: &x {name: nvidia.com/gpu, replicas: 2}\nsharing:\n  mps:\n    resources:\n    - {replicas: 4, <<: *x}\n"
    verdict = lint(text)
    assert verdict.effective["sharing"]["mps"]["resources"][0]["replicas"] == 2
    assert ("warning", "sharing.mps.resources[0].replicas") in found(text)


def test_configurations_inside_other_files():
    """What is found is found where it stands."""

    def places(text):
        return {name: len(verdict.findings) for name, verdict in lint_files({"f": text}).items()}

    config_map = "kind: ConfigMap\ndata:\n  a: |\n    version: v1\n  b: |\n    version: v2\n"
    assert places(config_map) == {"f[data.a]": 0, "f[data.b]": 1}
    assert places("config:\n  map:\n    a: |\n      version: v2\n") == {"f[values]": 0, "f[config.map.a]": 1}
    operator = "devicePlugin:\n  config:\n    data:\n      a: |\n        version: v2\n"
    assert places(operator) == {"f[devicePlugin.config.data.a]": 1}
    assert places("version: v2\n") == {"f": 1} and places("sharing: [") == {"f": 1}


PLUGINS_VALUES = "deviceListStrategy: {0}\nconfig: {{map: {{a: 'version: v1'}}}}\n"
OPERATORS_VALUES = "devicePlugin: {{env: [{{name: DEVICE_LIST_STRATEGY, value: '{0}'}}]}}\n"
DAEMON_SET = """kind: DaemonSet
spec: {{template: {{spec: {{containers: [{{env: [{{name: DEVICE_LIST_STRATEGY, value: '{0}'}}]}}]}}}}}}
"""


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (PLUGINS_VALUES, "f[config.map.a]"),
        ("deviceListStrategy: [{0}]\nsecurityContext: {{privileged: true}}\n", "f[values]"),
        (OPERATORS_VALUES, "f[values]"),
        ("devicePlugin: {{deviceListStrategy: {0}}}  # HAMi's\n", "f[values]"),
        (DAEMON_SET, "f[DaemonSet]"),
    ],
)
def test_a_strategy_in_other_peoples_values_is_held_against_the_node(text, name):
    """It beats that of the file, and is nowhere in it."""
    found = lint_files({"f": text.format("envvar")}, accepting())
    assert [one for one, verdict in found.items() if verdict.findings] == [name]
    (finding,) = found[name].findings
    assert (finding.level, finding.path) == ("error", "flags.plugin.deviceListStrategy")
    assert "do not accept envvar" in finding.message and "nvidia_toolkit_device_injection" in finding.remedy
    assert not lint_files({"f": text.format("envvar")}, accepting(envvar=True))[name].findings


def test_the_strategy_of_the_charts_values_beats_that_of_the_configuration():
    values = {"deviceListStrategy": "cdi-cri", "config": {"map": {"a": PLUGIN.format("deviceListStrategy: [envvar]")}}}
    assert not lint_files({"f": json.dumps(values)}, accepting())["f[config.map.a]"].findings


def test_the_operator_with_cdi_gives_its_plugin_both_strategies_of_cdi():
    text = "devicePlugin: {enabled: true}\ncdi: {enabled: true}\n"
    (finding,) = lint_files({"f": text}, accepting(containerd="1.6.20"))["f[values]"].findings
    assert "do not accept cdi-annotations, cdi-cri" in finding.message


def test_a_configuration_with_a_key_of_the_charts_values_is_a_configuration():
    text = "version: v1\ndeviceListStrategy: envvar\n"
    assert [one.path for one in lint_files({"f": text})["f"].findings] == ["deviceListStrategy"]


def accepting(envvar=False, mounts=False, containerd="2.1.5"):
    return {
        **facts(gpu()),
        "toolkit": {"accept_envvar_unprivileged": envvar, "accept_volume_mounts": mounts},
        "runtimes": {"containerd": {"version": containerd}},
    }


@pytest.mark.parametrize(
    ("strategies", "node", "remedy"),
    [
        ("[envvar]", accepting(), "Write [cdi-cri]"),
        ("[volume-mounts]", accepting(), "Write [cdi-cri]"),
        ("[cdi-cri]", accepting(mounts=True, containerd="1.6.20"), "Write [volume-mounts]"),
        ("[envvar]", accepting(containerd="1.6.20"), "Configure the node's container toolkit"),
    ],
)
def test_a_strategy_that_the_node_does_not_accept_is_an_error(strategies, node, remedy):
    (finding,) = lint(PLUGIN.format(f"deviceListStrategy: {strategies}"), node).findings
    assert (finding.level, finding.path) == ("error", "flags.plugin.deviceListStrategy")
    assert "unprivileged pods would get no GPU" in finding.message
    assert remedy in finding.remedy


def test_a_file_that_leaves_the_strategy_to_the_plugin_is_a_warning_where_the_node_refuses_it():
    (finding,) = lint("version: v1\n", accepting()).findings
    assert finding.level == "warning"
    assert "default is envvar" in finding.message
    assert not lint("version: v1\n", accepting(envvar=True)).findings
    assert not lint("version: v1\n", facts(gpu())).findings


@pytest.mark.parametrize("strategies", ["[cdi-cri]", "[envvar, cdi-cri]"])
def test_one_way_that_is_open_is_enough(strategies):
    assert not lint(PLUGIN.format(f"deviceListStrategy: {strategies}"), accepting()).findings


@pytest.mark.parametrize(
    "text",
    [
        "version: v{digits}\n",
        "version: v1\nsharing: {{timeSlicing: {{resources: [{{name: nvidia.com/gpu, replicas: {digits}}}]}}}}\n",
        'version: v1\nsharing: {{timeSlicing: {{resources: [{{name: nvidia.com/gpu, replicas: 2, devices: ["{digits}"]}}]}}}}\n',
        "version: v1\nflags: {{gfd: {{sleepInterval: {digits}s}}}}\n",
    ],
)
def test_numbers_without_end_are_refused_as_any_that_is_too_large(text):
    assert lint(text.format(digits="9" * 5000)).errors


def test_a_file_made_of_mistakes_is_given_up_soon():
    text = "version: v1\nflags:\n" + "".join(f"  unknown{number}: 1\n" for number in range(3000))
    found = lint(text)
    assert found.effective is None and len(found.findings) == 501
    assert "more than 500 findings" in found.errors[0].message
