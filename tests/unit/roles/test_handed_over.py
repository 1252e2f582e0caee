# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A variable that a task hands over as it is, and an option that is not generated from it, are declared alike: type, choices and default."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
NAMESPACE = "gpufleet.nvidia."
ACTIONS = "ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions"
#: Declared otherwise on purpose, with what differs.
OTHERWISE = {
    # Where no plan is applied, the gate is not asked, or says so itself.
    "gpu_plan_apply-fleet plan_gate.plan": {"default"},
    # Only with what jobs printed.
    "gpu_slurm_constrain_devices-fleet slurm_report.constrained": {"default"},
    # A role that does not call its module for this value.
    "nvidia_driver_state-driver.state": {"choices"},
    "nvidia_dcgm_state-dcgm.state": {"choices", "default"},
    "nvidia_toolkit_runtime-container_toolkit.runtime": {"choices"},
    "nvidia_toolkit_runtime-container_runtime.runtime": {"choices"},
    # A role waits for another run of itself, a task that was written by hand for less.
    "nvidia_driver_lock_timeout-driver.lock_timeout": {"default"},
    # A role comes after a change.
    "nvidia_health_fabric_timeout-health.fabric_timeout": {"default"},
    "gpu_node_settle_time-node verify_node.settle": {"default"},
    "gpu_node_ready_timeout-node verify_node.timeout": {"default"},
    "gpu_node_ready_timeout-node node_operands.timeout": {"default"},
    # Without a namespace there is no lease, without a layout the module does not know what is meant.
    "gpu_node_lease_namespace-node heal_node.lease_namespace": {"default"},
    "gpu_node_lease_namespace-node upgrade_node.lease_namespace": {"default"},
    "nvidia_mig_layout-mig.layout": {"default"},
    # The module takes parts of a second, too.
    "nvidia_settings_lock_timeout-gpu_settings.lock_timeout": {"type"},
}


def documented(module):
    """Return the options of a module, or of an action of one, without those of fragments."""
    if " " in module:
        name = module.split()[1]
        action = import_module(f"{ACTIONS}.{name}").ActionModule
        return {**getattr(action, "COMMON", {}), **getattr(action, "OPTIONS", {})}
    path = ROOT / "plugins" / "modules" / f"{module}.yml"
    if path.exists():
        return yaml.safe_load(path.read_text(encoding="utf-8"))["DOCUMENTATION"]["options"]
    text = path.with_suffix(".py").read_text(encoding="utf-8")
    found = re.search(r'^DOCUMENTATION = r?"""(.*?)"""', text, re.MULTILINE | re.DOTALL)
    return yaml.safe_load(found[1]).get("options") or {}


def specified():
    """Return the options of all roles by name."""
    found = {}
    for path in (ROOT / "roles").glob("*/meta/argument_specs.yml"):
        for entry in yaml.safe_load(path.read_text(encoding="utf-8"))["argument_specs"].values():
            found.update(entry.get("options") or {})
    return found


def calls(tasks):
    """Return the modules of the collection that tasks call, with their arguments."""
    for task in tasks or []:
        for key, value in task.items():
            if key in ("block", "rescue", "always"):
                yield from calls(value)
            elif key.startswith(NAMESPACE) and isinstance(value, dict):
                yield " ".join([key.removeprefix(NAMESPACE), *([value["action"]] if "action" in value else [])]), value


def handed_over():
    """Return pairs of a variable and an option, with their names."""
    variables = specified()
    for path in sorted((ROOT / "roles").glob("*/tasks/*.yml")):
        for module, arguments in calls(yaml.safe_load(path.read_text(encoding="utf-8"))):
            options = documented(module)
            for name, value in arguments.items():
                plain = re.fullmatch(r"\{\{ (\w+) \}\}", value) if isinstance(value, str) else None
                if plain and plain[1] in variables and name in options:
                    yield pytest.param(variables[plain[1]], options[name], id=f"{plain[1]}-{module}.{name}")


PAIRS = list({param.id: param for param in handed_over()}.values())


def test_what_is_declared_otherwise_is_handed_over():
    assert len(PAIRS) > 20
    assert set(OTHERWISE) <= {param.id for param in PAIRS}


@pytest.mark.parametrize(("variable", "option"), PAIRS)
def test_both_declare_the_same(variable, option, request):
    name = request.node.callspec.id
    differs = {
        key: (variable.get(key), option.get(key))
        for key in ("type", "elements", "choices", "default")
        if variable.get(key) != option.get(key)
    }
    if option.get("required"):
        differs.pop("default", None)
    assert set(differs) == OTHERWISE.get(name, set()), differs
