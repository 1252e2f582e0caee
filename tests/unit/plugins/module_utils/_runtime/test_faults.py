# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files with which a runtime cannot be set up: the plan, from the facts, refuses them in the words in which the module does on the host."""

from __future__ import annotations

import json
import re

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts.environment import read_runtimes
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts.host import Services
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts.schema import check_facts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.json_edit import JsonError
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.toml_read import TomlError
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime import containerd, docker, rancher
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime import stage as stage_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime.desired import (
    DesiredRuntime,
    refusal,
    unreadable,
)
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import by_document

stage = by_document(stage_of.stage)
VARIABLES = {
    "nvidia_toolkit_default_runtime": False,
    "nvidia_toolkit_cdi": True,
    "nvidia_toolkit_device_injection": "volume_mounts",
    "nvidia_toolkit_restart": "auto",
    "nvidia_toolkit_disruption": "refuse",
}
MAIN, SITE = "/etc/containerd/config.toml", "/etc/containerd/site.toml"
K3S, RKE2 = rancher.places("k3s"), rancher.places("rke2")
CRI_1, CRI_3 = "[plugins.cri]\nenable_selinux = false\n", "[plugins.'io.containerd.cri.v1.runtime'.containerd]\n"
RIVAL = {
    MAIN: 'version = 3\nimports = ["site.toml"]\n',
    SITE: f"version = 3\n{CRI_3}default_runtime_name = 'kata'\n",
}


def by_module(runtime: str, version: tuple[int, ...], files: dict[str, str], wanted: DesiredRuntime) -> str:
    """Return what the module refuses of these files."""
    try:
        if runtime == "containerd":
            containerd.edit(version, files, wanted)
        elif runtime == "docker":
            docker.edit(version, files[docker.MAIN], wanted)
        else:
            rancher.edit(runtime, files, wanted)
    except (TomlError, JsonError) as error:
        return refusal(unreadable(runtime, error), runtime).message
    except Refused as refused:
        return refused.message
    return ""


def facts_of(tree, runtime: str, version: str, files: dict[str, str]):
    program = {"docker": "dockerd"}.get(runtime, runtime)
    tree.program(f"/usr/bin/{program}")
    tree.answers[program] = f"{program} version v{version}"
    for path, text in files.items():
        tree.write(path, text)
    found = read_runtimes(tree.source(), Services())
    check_facts({"schema": 1, "runtimes": found})
    return found


@pytest.mark.parametrize(
    ("runtime", "version", "files", "said"),
    [
        ("k3s", "1.33.1", {K3S.template: ""}, "nor root, state, address, so k3s would not start with it"),
        ("rke2", "1.33.1", {RKE2.template_v3: "root = 1\n"}, f"{RKE2.template_v3}: it has neither"),
        (
            "containerd",
            "1.7.22",
            {MAIN: "version = 3\n"},
            "configuration version 3 is for containerd 2, and this is 1.7.22",
        ),
        ("containerd", "2.1.5", {MAIN: CRI_1}, f"'containerd --config {MAIN} config migrate'"),
        ("containerd", "1.7.22", {MAIN: 'disabled_plugins = ["cri"]\n'}, "(disabled_plugins has cri)"),
        (
            "containerd",
            "1.7.22",
            {MAIN: 'version = 2\nimports = ["site.toml"]\n', SITE: 'disabled_plugins = ["cri"]\n'},
            SITE,
        ),
        ("containerd", "2.1.5", {MAIN: "version = 'x'\n"}, "its version is not a number"),
        (
            "containerd",
            "1.7.22",
            {MAIN: "version = 2\n[plugins\n"},
            "configuration of containerd: it cannot be read or edited",
        ),
        ("docker", "29.1.3", {docker.MAIN: '{"runtimes": }'}, "configuration of docker: it cannot be read or edited"),
        ("docker", "29.1.3", {docker.MAIN: '{"runtimes": []}'}, "runtimes is not an object"),
        ("docker", "29.1.3", {docker.MAIN: '{"debug": true, "debug": false}'}, "twice"),
    ],
)
def test_the_plan_refuses_in_the_words_of_the_module(tree, runtime, version, files, said):
    numbers = tuple(map(int, version.split(".")))
    message = by_module(runtime, numbers, files, DesiredRuntime())
    assert said in message
    found = facts_of(tree, runtime, version, files)
    plan = stage({"runtimes": json.loads(json.dumps(found))}, {**VARIABLES, "nvidia_toolkit_runtime": runtime})
    assert [one.message for one in plan.refusals] == [message]


LATIN = "# gerät\n".encode("latin-1")


@pytest.mark.parametrize(
    ("runtime", "version", "files", "path"),
    [
        ("containerd", "1.7.22", {MAIN: LATIN}, MAIN),
        ("containerd", "1.7.22", {MAIN: 'version = 2\nimports = ["site.toml"]\n', SITE: LATIN}, SITE),
        ("docker", "29.1.3", {docker.MAIN: b'{"labels": ["\xe4"]}'}, docker.MAIN),
        ("crio", "1.34.0", {"/etc/crio/crio.conf.d/10-site.conf": LATIN}, "/etc/crio/crio.conf.d/10-site.conf"),
        ("k3s", "1.33.1", {K3S.template_v3: LATIN}, K3S.template_v3),
    ],
)
def test_a_file_that_is_not_utf_8_is_named_by_the_plan(tree, runtime, version, files, path):
    """The module refuses to edit it, after the driver and the toolkit were changed."""
    found = facts_of(tree, runtime, version, files)
    plan = stage({"runtimes": json.loads(json.dumps(found))}, {**VARIABLES, "nvidia_toolkit_runtime": runtime})
    (refusal,) = plan.refusals
    assert re.search(
        rf"it cannot be read or edited: {path} is not UTF-8 \(at byte \d+, 0xe4, in line \d; 'iconv -f", refusal.message
    )


def test_another_default_is_in_the_way_of_nvidia_as_the_default_alone(tree):
    message = by_module("containerd", (2, 1, 5), RIVAL, DesiredRuntime(default=True))
    assert "it makes kata the default runtime and is read last" in message
    assert by_module("containerd", (2, 1, 5), RIVAL, DesiredRuntime()) == ""
    found = {"runtimes": facts_of(tree, "containerd", "2.1.5", RIVAL)}
    variables = {**VARIABLES, "nvidia_toolkit_runtime": "containerd"}
    assert not stage(found, variables).refusals
    (refused,) = stage(found, {**variables, "nvidia_toolkit_default_runtime": True}).refusals
    assert refused.message == message


@pytest.mark.parametrize(
    ("runtime", "version", "files"),
    [
        (
            "containerd",
            "2.1.5",
            {MAIN: "version = 3\nimports = ['/etc/containerd/conf.d/*.toml']\n", SITE: "= no TOML"},
        ),
        ("containerd", "2.1.5", {MAIN: "disabled_plugins = [{}, 7]\nversion = 3\n"}),
        ("containerd", "1.7.22", {}),
        # A leftover of nvidia-ctk is moved aside, whatever version it has.
        (
            "containerd",
            "1.7.22",
            {
                MAIN: "version = 2\nimports = ['conf.d/*.toml']\n",
                "/etc/containerd/conf.d/99-nvidia.toml": f"version = 3\n{CRI_3}runtimes.nvidia.runtime_type = 'io.containerd.runc.v2'\n",
            },
        ),
        ("k3s", "1.33.1", {K3S.template: '{{ template "base" . }}\n'}),
        # The template of version 2 is not taken where there is one of version 3.
        (
            "k3s",
            "1.33.1",
            {K3S.template: "", K3S.template_v3: '{{ template "base" . }}\n', K3S.generated: "version = 3\n"},
        ),
        # CRI-O's own program reads its files, which may be more than TOML.
        ("crio", "1.35.0", {"/etc/crio/crio.conf": "= no TOML"}),
    ],
)
def test_other_files_have_no_fault(tree, runtime, version, files):
    assert "fault" not in facts_of(tree, runtime, version, files)[runtime]


def test_what_another_release_calls_a_fault_is_none():
    found = {"version": "2.1.5", "fault": {"kind": "new", "path": "/x", "found": ["{0}", "{runtime}"]}}
    assert not stage(
        {"runtimes": {"containerd": found}}, {**VARIABLES, "nvidia_toolkit_runtime": "containerd"}
    ).refusals
