# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The linter against the real device plugin (0.19, unmodified), asked about hundreds of files that nobody recorded.

Without a GPU the plugin reads and checks its configuration as it always does, prints it, and then offers nothing.
"""

from __future__ import annotations

import concurrent.futures
import importlib.util
import json
import subprocess
import sys
import threading
from pathlib import Path

import plugin_files
import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.lint.lint import lint
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.fleet import Fleet
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.tree import cluster_tree

INSTALL = Path(__file__).resolve().parents[1] / "lab" / "real_tools" / "install.py"
#: What the plugin reads without complaint, and the MPS daemon beside it does not start with.
DIES_LATER = "the MPS daemon dies"
#: Flags whose default is another in 0.19.0 than before and after it, and what is given on the command line here.
ELSEWHERE = {"gdrcopyEnabled", "gdsEnabled", "mofedEnabled", "mpsRoot", "failOnInitError", "gfd"}


@pytest.fixture(scope="module")
def plugin():
    """Return the path of the real plugin."""
    specification = importlib.util.spec_from_file_location("real_tools_install", INSTALL)
    module = importlib.util.module_from_spec(specification)
    # A dataclass looks its module up.
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    try:
        return module.install(module.TOOLS["nvidia-device-plugin"])
    except module.NotInstalled as error:
        pytest.fail(str(error), pytrace=False)


def ask(plugin, path):
    """Return the configuration that the plugin prints for a file, or None when it refuses it, and all that it said."""
    process = subprocess.Popen(
        [
            plugin,
            f"--config-file={path}",
            "--mps-root=/run/nvidia/mps",
            "--kubelet-socket=",
            "--fail-on-init-error=false",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    overdue = threading.Timer(300, process.kill)
    overdue.start()
    said, printed = [], None
    try:
        for line in process.stdout:
            said.append(line)
            if "Running with config" in line:
                printed = []
            elif printed is not None:
                printed.append(line)
                if line.rstrip() == "}":
                    return json.loads("".join(printed)), "".join(said)
        assert "Error: " in said[-1] or "error" in "".join(said), "".join(said)
        return None, "".join(said)
    finally:
        overdue.cancel()
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture(scope="module")
def verdicts(plugin, tmp_path_factory):
    """Return, by name of the file, its text, what the plugin made of it, and what the linter says."""
    folder = tmp_path_factory.mktemp("files")
    files = dict(plugin_files.files())

    def verdict(number, text):
        path = folder / f"{number}.yaml"
        path.write_text(text)
        return (text, *ask(plugin, path), lint(text))

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        answers = pool.map(verdict, range(len(files)), files.values())
        return dict(zip(files, answers, strict=True))


def test_the_linter_refuses_what_the_plugin_refuses_and_nothing_else(verdicts):
    wrong = []
    for name, (text, config, said, verdict) in verdicts.items():
        errors = [finding for finding in verdict.errors if DIES_LATER not in finding.message]
        if bool(errors) != (config is None) and not any("cdi-" in finding.message for finding in verdict.findings):
            wrong.append((name, text, said[-300:] if config is None else "accepted", errors))
    assert not wrong, "\n".join(map(str, wrong))
    refused = sum(1 for _text, config, _said, _verdict in verdicts.values() if config is None)
    assert refused > 150 and len(verdicts) - refused > 150


def test_the_effective_configuration_is_what_the_plugin_prints(verdicts):
    wrong = []
    for name, (text, config, _said, verdict) in verdicts.items():
        if config is None or verdict.effective is None:
            continue
        flags, ours = dict(config["flags"]), dict(verdict.effective["flags"])
        plugin, our_plugin = flags.pop("plugin"), ours.pop("plugin")
        our_plugin = {key: value for key, value in our_plugin.items() if key != "sharedDevicesAllocationPolicy"}
        for found, expected in (
            (without(ours, ELSEWHERE), without(flags, ELSEWHERE)),
            (our_plugin, plugin),
            (truthy(verdict.effective["sharing"]), truthy(config["sharing"])),
        ):
            if {key: value for key, value in found.items() if value is not None or key in expected} != expected:
                wrong.append((name, text, found, expected))
    assert not wrong, "\n".join(map(str, wrong))


def test_what_the_plugin_does_not_take_as_written_is_never_clean(verdicts):
    wrong = [
        (name, text)
        for name, (text, config, _said, verdict) in verdicts.items()
        if config is not None and not verdict.findings and not taken(yaml.safe_load(text) or {}, config)
    ]
    assert not wrong, "\n".join(map(str, wrong))
    assert sum(1 for _text, _config, _said, verdict in verdicts.values() if not verdict.findings) > 50


NAMED = {
    "tesla-t4": {"replicas": 4},
    "a100-40gb": {"replicas": {"gpu": 8, "1g.5gb": 2, "2g.10gb": 3}},
    "2080ti-12gb": {"replicas": 6, "rename": True, "gpus_per_pod": 2},
}
MIG = {
    "nvidia_mig_strategy": "mixed",
    "nvidia_mig_layout": [{"devices": "all", "instances": {"1g.5gb": 2, "2g.10gb": 1}}],
}


@pytest.mark.parametrize("stack", ["device_plugin", "gpu_operator"])
def test_the_plugin_reads_every_named_configuration_as_it_is_meant(plugin, tmp_path, stack):
    variables = {
        "gpu_facts_gpus": [{"board": "a100-40gb", "count": 2}],
        "gpu_kubernetes_sharing_configurations": NAMED,
        "gpu_kubernetes_stack": stack,
    }
    fleet = Fleet({"gpu_hosts": ["a", "b"], "whole": ["a"], "parts": ["b"]}, lambda *_arguments: None)
    fleet.add("a", variables, lambda value: value)
    fleet.add("b", {**variables, **MIG}, lambda value: value)
    tree = cluster_tree(fleet.clusters()[0])
    read = {}
    for path in [path for path in tree if path.startswith("objects/nvidia-device-plugin")]:
        (config_map,) = yaml.safe_load_all(tree[path])
        for number, (name, text) in enumerate(config_map["data"].items()):
            file = tmp_path / f"{number}.yaml"
            file.write_text(text)
            config, said = ask(plugin, file)
            assert config is not None, f"{path} {name}: {said}"
            read.setdefault(name, []).append(config["sharing"].get("timeSlicing") or {})
    shared = [
        (
            name,
            part.get("renameByDefault", False),
            part.get("failRequestsGreaterThanOne", False),
            one["name"],
            one["replicas"],
        )
        for name in ("default", *NAMED)
        for part in read[name]
        for one in part.get("resources") or ()
    ]
    gpu, small, large = "nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "nvidia.com/mig-2g.10gb"
    assert sorted(shared) == sorted(
        [("tesla-t4", False, True, name, 4) for name in (gpu, small, large)]
        + [("a100-40gb", False, True, name, count) for name, count in ((gpu, 8), (small, 2), (large, 3))]
        + [("2080ti-12gb", True, False, name, 6) for name in (gpu, small, large)]
    )


def without(values, names):
    return {name: value for name, value in values.items() if name not in names}


def truthy(sharing):
    """0.19 prints a false failRequestsGreaterThanOne as if it were not there."""
    if isinstance(sharing, dict):
        return {key: truthy(value) for key, value in sharing.items() if value is not False}
    return sharing


def taken(written, used, key=""):
    """Whether everything that is written is used, and under the same names; an empty value asks for the default."""
    if isinstance(written, dict):
        return all(
            name in ELSEWHERE or value in (None, "", [], False) or (name in used and taken(value, used[name], name))
            for name, value in written.items()
        )
    if key == "name" and not written.startswith("nvidia.com/"):
        written = f"nvidia.com/{written}"
    if isinstance(written, list) and written and isinstance(written[0], dict):
        return len(written) == len(used) and all(taken(one, other) for one, other in zip(written, used, strict=True))
    return used in (written, [written])
