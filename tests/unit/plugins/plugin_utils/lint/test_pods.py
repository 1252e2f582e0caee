# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Other people's values and DaemonSets whose pods see no driver on the node, although they start everywhere else."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.lint.lint import lint_files

REFUSES = {
    "gpus": [{"index": 0, "mig": {"current": False}}],
    "nvml": {"available": True},
    "driver": {"library_version": "580.178.04"},
    "toolkit": {"accept_envvar_unprivileged": False, "accept_volume_mounts": False},
    "runtimes": {"containerd": {"version": "2.1.5", "active": True, "default_runtime": "nvidia"}},
}
RUNC = {**REFUSES, "runtimes": {"containerd": {"version": "2.1.5", "active": True, "default_runtime": "runc"}}}
ACCEPTS = {**REFUSES, "toolkit": {"accept_envvar_unprivileged": True, "accept_volume_mounts": False}}

CDI = "deviceListStrategy: cdi-cri\n"
DAEMON_SET = """apiVersion: apps/v1
kind: DaemonSet
metadata: {{name: one}}
spec: {{template: {{spec: {{{0} containers: [{1}]}}}}}}
"""
#: As deployments/static/nvidia-device-plugin.yml of the plugin has it.
STATIC = (
    "{name: nvidia-device-plugin-ctr, image: 'nvcr.io/nvidia/k8s-device-plugin:v0.19.0', env: [],"
    " securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}"
)


def blind(text, facts):
    """Return where a pod sees no driver, by the place of the values or the object."""
    return {
        (name, finding.path)
        for name, verdict in lint_files({"f": text}, facts).items()
        for finding in verdict.errors
        if "sees no driver on this node" in finding.message
    }


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ("migStrategy: none\n" + CDI, "securityContext"),
        (CDI, "securityContext"),
        (CDI + "securityContext: {capabilities: {drop: [ALL]}}\n", "securityContext"),
        # The chart writes what is given, whatever it would have added by itself.
        ("migStrategy: mixed\nsecurityContext: {runAsUser: 0}\n" + CDI, "securityContext"),
        ("migStrategy: none\nconfig: {map: {a: 'version: v1', b: 'version: v1'}}\n" + CDI, "securityContext"),
        (
            "securityContext: {privileged: true}\ngfd: {enabled: true, securityContext: {privileged: false}}\n" + CDI,
            "gfd.securityContext",
        ),
        ("devicePlugin: {enabled: false}\ngfd: {enabled: true, securityContext: null}\n" + CDI, "gfd.securityContext"),
        ("image: {repository: nvcr.io/nvidia/k8s/dcgm-exporter}\nsecurityContext: null\n", "securityContext"),
        ("debugDump: {enabled: false}\nsecurityContext: {capabilities: {add: [NET_ADMIN]}}\n", "securityContext"),
        ("debugDump: {enabled: false}\nsecurityContext: {capabilities: null}\n", "securityContext"),
    ],
)
def test_values_without_the_capability_where_the_toolkit_refuses_the_variable(values, path):
    assert blind(values, REFUSES) == {("f[values]", path)}
    assert not blind(values, ACCEPTS)
    assert not blind(values, None)


@pytest.mark.parametrize(
    "values",
    [
        CDI + "securityContext: {capabilities: {add: [SYS_ADMIN]}}\n",
        CDI + "compatWithCPUManager: true\n",
        CDI + "migStrategy: single\n",
        "deviceListStrategy: volume-mounts\n",
        "deviceListStrategy: envvar,volume-mounts\n",
        # The chart adds it where a configuration may want MIG.
        CDI + "config: {name: mine}\n",
        "config: {map: {a: 'version: v1', b: 'version: v1'}}\n",
        CDI + "migStrategy: mixed\ngfd: {enabled: true}\n",
        CDI + "devicePlugin: {enabled: false}\n",
        "image: {repository: nvcr.io/nvidia/k8s/dcgm-exporter}\n",
        "debugDump: {enabled: false}\nsecurityContext: {runAsUser: 0, capabilities: {drop: [ALL]}}\n",
        # The GPU Operator's plugin is privileged; these are its values.
        "operator: {}\ngfd: {enabled: true}\ndevicePlugin: {enabled: true}\n",
        # A configuration of the plugin, and no values.
        "version: v1\nmigStrategy: none\n",
    ],
)
def test_values_with_which_the_pods_see_the_driver(values):
    assert not blind(values, REFUSES)


@pytest.mark.parametrize(
    ("values", "found"),
    [
        (CDI + "migStrategy: mixed\n", True),
        (CDI + "migStrategy: mixed\nruntimeClassName: nvidia\n", False),
        # It finds the libraries below the driver's root, and all devices by its privilege.
        (CDI + "nvidiaDriverRoot: /\nsecurityContext: {privileged: true}\n", False),
        (CDI + "nvidiaDriverRoot: /\nmigStrategy: mixed\n", True),
        ("debugDump: {enabled: false}\n", True),
    ],
)
def test_values_without_the_runtime_class_where_nvidia_is_not_the_default(values, found):
    assert blind(values, RUNC) == ({("f[values]", "runtimeClassName")} if found else set())
    assert not blind(values, REFUSES)


@pytest.mark.parametrize(
    ("above", "container", "facts", "path"),
    [
        ("", STATIC, REFUSES, "containers[0].securityContext"),
        ("runtimeClassName: nvidia,", STATIC, REFUSES, "containers[0].securityContext"),
        (
            "",
            "{command: [/usr/bin/gpu-feature-discovery], securityContext: {privileged: true}}",
            RUNC,
            "runtimeClassName",
        ),
        ("", "{image: 'mirror:5000/dcgm-exporter@sha256:0a'}", REFUSES, "containers[0].securityContext"),
        ("", STATIC, ACCEPTS, None),
        ("", STATIC.replace("drop: [ALL]", "add: [SYS_ADMIN]"), REFUSES, None),
        # A sidecar of the chart has the plugin's image, and needs no driver.
        ("", "{command: [config-manager], image: 'nvcr.io/nvidia/k8s-device-plugin:v0.19.0'}", RUNC, None),
        ("", "{image: busybox}", RUNC, None),
    ],
)
def test_daemon_sets(above, container, facts, path):
    wanted = {("f[DaemonSet/one]", f"spec.template.spec.{path}")} if path else set()
    assert blind(DAEMON_SET.format(above, container), facts) == wanted


def test_the_strategy_of_values_is_checked_beside_their_pods():
    verdicts = lint_files({"f": "deviceListStrategy: envvar\nmigStrategy: none\n"}, RUNC)
    assert [one.path for one in verdicts["f[values]"].errors] == [
        "securityContext",
        "runtimeClassName",
        "flags.plugin.deviceListStrategy",
    ]
    (first, *_others) = verdicts["f[values]"].errors
    assert "only from containers with SYS_ADMIN" in first.message
    assert "SYS_ADMIN" in first.remedy


@pytest.mark.parametrize(
    "text", ["gfd: 1\n", "gfd: {enabled: true, securityContext: 3}\n", "debugDump: x\nsecurityContext: []\n"]
)
def test_what_is_of_another_type_ends_nothing(text):
    assert lint_files({"f": text}, REFUSES)
