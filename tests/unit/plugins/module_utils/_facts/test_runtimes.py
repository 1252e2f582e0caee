# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts.environment import read_runtimes
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts.host import Services, read_services
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts.schema import check_facts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime import state as runtime_state
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime.state import RuntimeConfiguration

V2 = """version = 2
imports = ["/etc/containerd/conf.d/*.toml"]
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "registry.k8s.io/pause:3.9" # [plugins.nonsense]
  [plugins."io.containerd.grpc.v1.cri".containerd]
    default_runtime_name = "runc"
"""
V2_DROP_IN = """version = 2
[plugins."io.containerd.grpc.v1.cri"]
  enable_cdi = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    default_runtime_name = "nvidia"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
        BinaryName = "/usr/bin/nvidia-container-runtime"
"""
V3 = """version = 3
[plugins.'io.containerd.cri.v1.runtime']
  enable_cdi = false
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia]
    runtime_type = 'io.containerd.runc.v2'
"""
V3_CGROUPS = """version = 3
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  SystemdCgroup = true
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia]
  runtime_type = 'io.containerd.runc.v2'
"""
V1 = """[plugins.cri.containerd.runtimes.nvidia]
runtime_type = "io.containerd.runc.v2"
"""


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([V2], {"version": 2}),
        (
            [V2, V2_DROP_IN],
            {
                "version": 2,
                "nvidia": True,
                "binary": "/usr/bin/nvidia-container-runtime",
                "default_runtime": "nvidia",
                "cdi": True,
                "cgroup_driver": "cgroupfs",
            },
        ),
        ([V3], {"version": 3, "nvidia": True, "cdi": False, "cgroup_driver": "cgroupfs"}),
        ([V3_CGROUPS], {"version": 3, "nvidia": True, "cgroup_driver": "cgroupfs", "other_cgroup_driver": "systemd"}),
        ([V1], {"version": 1, "nvidia": True, "cgroup_driver": "cgroupfs"}),
        (
            [V1 + "[plugins.cri]\nsystemd_cgroup = true\n"],
            {"version": 1, "nvidia": True, "cgroup_driver": "cgroupfs", "other_cgroup_driver": "systemd"},
        ),
        # containerd 1.x replaces a plugin's section as a whole.
        (
            ["[plugins.cri]\nsystemd_cgroup = true\n", V1],
            {"version": 1, "nvidia": True, "cgroup_driver": "cgroupfs", "other_cgroup_driver": "cgroupfs"},
        ),
        ([""], {"version": 1}),
        # The drop-in of toolkit 1.19.1 for containerd 2: the type is the file's that it is merged into, which has none.
        (
            [
                V3_CGROUPS.replace(
                    "  runtime_type = 'io.containerd.runc.v2'\n", "  privileged_without_host_devices = false\n"
                )
            ],
            {"version": 3, "nvidia": True, "has_type": False, "other_cgroup_driver": "systemd"}
            | {"cgroup_driver": "cgroupfs"},
        ),
        # containerd 2 has none of the shims of containerd 1.
        (
            [V3.replace("io.containerd.runc.v2", "io.containerd.runtime.v1.linux")],
            {"version": 3, "nvidia": True, "cdi": False, "has_type": False, "cgroup_driver": "cgroupfs"},
        ),
    ],
)
def test_containerd(texts, expected):
    assert runtime_state.parse_containerd(texts) == RuntimeConfiguration(
        **{"other_cgroup_driver": "cgroupfs", **expected}
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        (
            '{"runtimes": {"nvidia": {"path": "x"}}, "default-runtime": "nvidia"}',
            {"nvidia": True, "binary": "x", "default_runtime": "nvidia"},
        ),
        ('{"features": {"cdi": true, "containerd-snapshotter": true}}', {"cdi": True}),
    ],
)
def test_docker(text, expected):
    assert runtime_state.parse_docker(text) == RuntimeConfiguration(**expected)


@pytest.mark.parametrize("text", ["{", "[]"])
def test_docker_configuration_that_is_none(text):
    with pytest.raises(ValueError):
        runtime_state.parse_docker(text)


def test_crio():
    drop_in = '[crio.runtime]\ndefault_runtime = "nvidia"\n[crio.runtime.runtimes.nvidia]\nruntime_path = "/x"\n'
    assert runtime_state.parse_crio(["[crio]\n"]) == RuntimeConfiguration(cdi=True)
    assert runtime_state.parse_crio(["[crio]\n", drop_in]) == RuntimeConfiguration(
        nvidia=True, binary="/x", default_runtime="nvidia", cdi=True
    )


def test_the_monitors_and_the_low_level_runtime_of_crio(tree):
    own = "[crio.runtime.runtimes.{}]\nruntime_path = '{}'\nmonitor_path = '{}'\n"
    tree.program("/usr/bin/crio")
    tree.answers["crio"] = "crio version 1.35.0"
    tree.write("/etc/crio/crio.conf", own.format("runc", "/usr/libexec/crio/runc", "/usr/libexec/crio/conmon"))
    tree.write("/etc/crio/crio.conf.d/05-site.conf", "[crio.runtime]\ndefault_runtime = 'crun'\n")
    tree.write(
        "/etc/crio/crio.conf.d/10-crio.conf", own.format("crun", "/usr/libexec/crio/crun", "/usr/libexec/crio/conmon")
    )
    # The table of a later file hides the earlier one as a whole, monitor_path and all.
    tree.write("/etc/crio/crio.conf.d/20-site.conf", own.format("nvidia", "/usr/bin/nvidia-container-runtime", "/x"))
    tree.write(
        "/etc/crio/crio.conf.d/99-own.conf",
        "[crio.runtime]\ndefault_runtime = 'nvidia'\n[crio.runtime.runtimes.nvidia]\nruntime_path = '/y'\n",
    )
    found = read_runtimes(tree.source(), Services())["crio"]
    assert found["binary"] == "/y"
    assert found["monitors"] == {"nvidia": None, "crun": "/usr/libexec/crio/conmon"}
    check_facts({"schema": 1, "runtimes": {"crio": found}})
    assert found["low_level_runtime"] == "/usr/libexec/crio/crun"


def test_the_sandboxers_where_they_differ_and_the_folders_of_cdi():
    """By containerd 1.7's name and by 2.x's; where runc names none it has containerd's own."""
    for key, text in (("sandbox_mode", V2_DROP_IN), ("sandboxer", V3)):
        named = text.replace("runtime_type = ", f"{key} = 'shim'\n  runtime_type = ")
        assert runtime_state.parse_containerd([named]).sandboxers == {"nvidia": "shim", "runc": "podsandbox"}
        assert runtime_state.parse_containerd([named.replace("'shim'", "'podsandbox'")]).sandboxers == {}
    folders = "cdi_spec_dirs = ['/etc/cdi', '/run/cdi']\n"
    assert runtime_state.parse_crio([f"[crio.runtime]\n{folders}"]).cdi_folders == ("/etc/cdi", "/var/run/cdi")
    one = '{"cdi-spec-dirs": ["/srv/cdi", 7, "relative"]}'
    assert runtime_state.parse_docker(one).cdi_folders == ("/srv/cdi",)
    plugin = "version = 3\n[plugins.'io.containerd.cri.v1.runtime']\nCDI_spec_dirs = ['/etc/cdi']\n"
    assert runtime_state.parse_containerd([plugin]).cdi_folders == ("/etc/cdi",)
    twice = "cdi_spec_dirs = ['/etc/cdi/', '/run/cdi/', '/var/run/cdi']\n"
    assert runtime_state.parse_crio([f"[crio.runtime]\n{twice}"]).cdi_folders == ("/etc/cdi", "/var/run/cdi")


def test_a_program_of_the_runtime_that_is_gone(tree):
    tree.program("/usr/bin/containerd")
    tree.answers["containerd"] = "containerd github.com/containerd/containerd v2.1.5 x"
    options = "runtimes.nvidia.options]\nBinaryName = '/usr/bin/nvidia-container-runtime'\n"
    plugin = "[plugins.'io.containerd.cri.v1.runtime'.containerd."
    tree.write("/etc/containerd/config.toml", f"version = 3\n{plugin}{options}")
    found = read_runtimes(tree.source(), Services())["containerd"]
    assert found["absent"] == ["/usr/bin/nvidia-container-runtime"]
    check_facts({"schema": 1, "runtimes": {"containerd": {**found, "sandboxers": {}, "cdi_folders": []}}})
    tree.program("/usr/bin/nvidia-container-runtime")
    assert "absent" not in read_runtimes(tree.source(), Services())["containerd"]


def test_a_host_with_containerd(tree):
    tree.program("/usr/bin/containerd")
    tree.program("/usr/bin/nvidia-container-runtime")
    tree.answers["containerd"] = "containerd github.com/containerd/containerd v1.7.22 x"
    tree.write("/etc/containerd/config.toml", V2)
    tree.write("/etc/containerd/conf.d/99-nvidia.toml", V2_DROP_IN)
    tree.folder("/run/systemd/system")
    tree.active = {"containerd.service"}
    source = tree.source()

    assert read_runtimes(source, read_services(source)) == {
        "containerd": {
            "version": "1.7.22",
            "active": True,
            "config_path": "/etc/containerd/config.toml",
            "config_version": 2,
            "nvidia": True,
            "binary": "/usr/bin/nvidia-container-runtime",
            "default_runtime": "nvidia",
            "cdi": True,
            "cgroup_drivers": {"nvidia": "cgroupfs", "runc": "cgroupfs"},
        }
    }
    assert len(tree.calls) == 2


def test_a_drop_in_of_a_former_toolkit_counts_where_containerd_does_not_run(tree):
    left = "/etc/containerd/conf.d/99-nvidia.toml"
    tree.program("/usr/bin/containerd")
    tree.answers["containerd"] = "containerd github.com/containerd/containerd v1.7.22 x"
    tree.write(left, V2_DROP_IN)
    tree.write("/etc/containerd/config.d/99-nvidia.toml", "= no TOML")
    tree.folder("/run/systemd/system")
    for active, leftovers in ((set(), [left]), ({"containerd.service"}, None)):
        tree.active = active
        source = tree.source()
        assert read_runtimes(source, read_services(source))["containerd"].get("leftovers") == leftovers


@pytest.mark.parametrize("runtime", ["k3s", "rke2"])
def test_the_toolkit_of_a_former_operator_is_in_the_way_of_k3s_and_rke2(tree, runtime):
    for program in (runtime, "containerd"):
        tree.program(f"/usr/local/bin/{program}")
    assert "leftovers" not in read_runtimes(tree.source(local=False), Services())[runtime]
    tree.write("/usr/local/nvidia/toolkit/nvidia-container-runtime")
    found = read_runtimes(tree.source(local=False), Services())
    assert found[runtime]["leftovers"] == ["/usr/local/nvidia/toolkit"] and "leftovers" not in found["containerd"]
    # Its containers are named where a plan asks who would lose it.
    assert found[runtime]["containers"] == [] and "containers" not in found["containerd"]


@pytest.mark.parametrize(
    ("runtime", "folder"),
    [
        ("containerd", "/run/containerd/io.containerd.runtime.v2.task/k8s.io"),
        ("k3s", "/run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io"),
        ("rke2", "/run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io"),
    ],
)
def test_pods_that_a_toolkits_program_has_started_are_named_once(tree, runtime, folder):
    tree.program(f"/usr/local/bin/{runtime}")
    operators, hosts = "/usr/local/nvidia/toolkit/nvidia-container-runtime", "/usr/bin/nvidia-container-runtime.cdi"
    pod = {f"io.kubernetes.cri.sandbox-{key}": key for key in ("namespace", "name", "uid")}
    other = {**pod, "io.kubernetes.cri.sandbox-uid": "u" * 300}
    bundles = {"sandbox": (operators, pod), "web": (operators, pod), "x": ("/usr/bin/runc", pod), "z": (hosts, None)}
    # Started again when its pod's toolkit had changed; and what is no UID.
    bundles.update(again=(hosts, pod), long=(hosts, other))
    for name, (program, notes) in bundles.items():
        tree.write(f"{folder}/{name}/runtime", program)
        tree.write(f"{folder}/{name}/config.json", json.dumps({"annotations": notes}))
    # A runtime of the host's own, whose configuration cannot be read, and one that has ended since.
    tree.write(f"{folder}/broken/runtime", hosts)
    tree.write(f"{folder}/broken/config.json", "{")
    tree.folder(f"{folder}/gone")
    (found,) = read_runtimes(tree.source(local=False), Services()).values()
    assert "containers" not in found, "only a migration asks"
    (found,) = read_runtimes(tree.source(local=False), Services(), containers=True).values()
    assert found["containers"] == [
        {"program": hosts, "name": "broken", "pod_uid": None},
        {"program": hosts, "name": "namespace/name", "pod_uid": None},
        {"program": hosts, "name": "namespace/name", "pod_uid": "uid"},
        {"program": operators, "name": "namespace/name", "pod_uid": "uid"},
        {"program": hosts, "name": "z", "pod_uid": None},
    ]
    check_facts({"schema": 1, "runtimes": {runtime: found}})


def test_all_runtimes_without_configuration(tree):
    for program in ("containerd", "dockerd", "crio", "k3s", "rke2"):
        tree.program(f"/usr/local/bin/{program}")
        tree.answers[program] = f"{program} version v1.2.3"
    found = read_runtimes(tree.source(), Services())
    assert list(found) == ["containerd", "docker", "crio", "k3s", "rke2"]
    assert {facts["nvidia"] for facts in found.values()} == {False}
    assert {facts["config_path"] for facts in found.values()} == {None}
    assert {facts["active"] for facts in found.values()} == {None}


def test_k3s_generates_its_own(tree):
    path = "/var/lib/rancher/k3s/agent/etc/containerd/config.toml"
    tree.program("/usr/local/bin/k3s")
    tree.write(path, V3)
    facts = read_runtimes(tree.source(local=False), Services())["k3s"]
    assert (facts["config_path"], facts["nvidia"], facts["version"]) == (path, True, None)


def test_crio_drop_ins(tree):
    tree.program("/usr/bin/crio")
    tree.write("/etc/crio/crio.conf.d/99-nvidia.toml", "[crio.runtime.runtimes.nvidia]\n")
    facts = read_runtimes(tree.source(), Services())["crio"]
    assert facts["nvidia"] is True and facts["config_path"] == "/etc/crio/crio.conf.d/99-nvidia.toml"


@pytest.mark.parametrize(
    ("program", "path"), [("containerd", "/etc/containerd/config.toml"), ("dockerd", "/etc/docker/daemon.json")]
)
def test_a_broken_configuration_is_unknown_and_not_false(tree, program, path):
    tree.program(f"/usr/bin/{program}")
    tree.write(path, "this is = = nothing")
    source = tree.source()
    name = "docker" if program == "dockerd" else program
    assert read_runtimes(source, Services())[name]["nvidia"] is None
    assert "cannot be read" in source.unknown[f"runtimes.{name}.nvidia"]


def test_a_runtime_that_does_not_tell_its_version(tree):
    tree.program("/usr/bin/containerd")
    tree.answers["containerd"] = (2, "flag provided but not defined")
    source = tree.source()
    assert read_runtimes(source, Services())["containerd"]["version"] is None
    assert source.unknown["runtimes.containerd.version"].endswith("ended with 2: flag provided but not defined")
