# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Saved plans as files: written, signed, verified and opened."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..module_utils._adapters.command import CommandError, run
from ..module_utils._adapters.files import list_directory, read_bytes, utf8, write_whole
from ..module_utils._plan import Refused
from .fleet import saved_plan
from .fleet.saved_plan import AGAIN, SavedPlan

#: Variables: the file that a run is held to, that a plan is saved to, and that is shown; the playbook that it is for; the command that verifies it.
APPLY, OUT, SHOWN = "gpu_plan_apply", "gpu_plan_out", "gpu_plan_in"
PLANNED_FOR, VERIFY = "gpu_plan_for", "gpu_plan_verify_command"
#: Under which names the rendered files of the clusters are registered, and what L(actions/plan_gate) found before the first change.
_RENDERED, GATE = "gpu_kubernetes_result", "gpu_plan_gate"
#: What stands for the file in the commands that sign and verify it.
_FILE = "{file}"
#: Seconds that a command may take that signs or verifies: somebody may have to touch a key.
_PATIENCE = 300.0
#: The module that carries out a stage, and under which name its role registers the answer.
STAGE_OF = {
    "driver": ("driver", "nvidia_driver_result"),
    "container_toolkit": ("toolkit", "nvidia_toolkit_result"),
    "container_runtime": ("runtime", "nvidia_toolkit_runtime_result"),
    "host_program": ("boot", "nvidia_boot_result"),
    "gpu_settings": ("settings", "nvidia_settings_result"),
    "mig": ("mig", "nvidia_mig_result"),
    "mps": ("sharing", "nvidia_sharing_result"),
    "dcgm": ("dcgm", "nvidia_dcgm_result"),
    # Of a rollback; upgrade with another kernel takes no plan.
    "boot_kernel": ("kernel", "__gpu_upgrade_back_to_kernel"),
}


@dataclass(frozen=True)
class Applying:
    """What a playbook does that can be held to a plan.

    :param begins: the stages of which one has to be needed for it to begin with a host; none where any does.
    :param changes: the stages that it changes; none where it changes all.
    :param asked: as L(STAGE_OF), where its role asks otherwise. C(evictions): under which names it registers those that it would ask for.
    """

    begins: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    asked: Mapping[str, tuple[str, str]] = field(default_factory=lambda: STAGE_OF)
    evictions: tuple[str, ...] = ()


_EVICTED = ("__gpu_node_evicted", "__gpu_node_drained")
APPLYING = {
    "site": Applying(),
    "upgrade": Applying(("driver", "toolkit", "runtime"), evictions=_EVICTED),
    # What is done is what was planned for all hosts at once, before the first is repaired.
    "heal": Applying((), ("repair",), {"gpu_repair": ("repair", "__gpu_heal_asked")}, ("__gpu_heal_evicted",)),
    "migrate": Applying((), ("node",), {"node": ("node", "__gpu_upgrade_asked")}, _EVICTED),
    # Driver and toolkit are those of before, whatever is described; what they take comes back as it is described.
    "rollback": Applying(changes=("settings", "mig", "sharing", "dcgm"), evictions=_EVICTED),
    "repartition": Applying(
        ("mig",), ("boot", "mig"), {"mig": ("mig", "__gpu_repartition_mig_plan")}, ("__gpu_repartition_leaving",)
    ),
}


def write(path: str, plan: SavedPlan, sign: Sequence[str]) -> str:
    """Write a plan, have it signed, and return its digest. Raises Refused: it cannot be, and whatever was there before is as it was, its signature too."""
    path, text = os.path.abspath(path), plan.as_text()
    try:
        digest = saved_plan.read(text, path)[1]
    except Refused as refused:
        raise Refused(path, f"it could not be read again ({refused.reason})", "Correct that value.") from refused
    folder, name = os.path.split(path)
    try:
        os.makedirs(folder, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".gpufleet-", dir=folder) as beside:
            write_whole(os.path.join(beside, name), text)
            _call("gpu_plan_sign_command", sign, os.path.join(beside, name))
            # A signature is beside its file, and comes along.
            for each in list_directory(beside):
                os.replace(os.path.join(beside, each), os.path.join(folder, each))
    except OSError as error:
        raise Refused(
            path, f"it cannot be written ({error.strerror})", "Name another file with gpu_plan_out."
        ) from error
    return digest


def _call(variable: str, command: Sequence[str], path: str) -> None:
    if not command:
        return
    if not any(_FILE in part for part in command[1:]):
        raise Refused(variable, f"none of its arguments has {_FILE}, which stands for the plan", f"Add {_FILE}.")
    try:
        run([part.replace(_FILE, path) for part in command], timeout=_PATIENCE, allowed=(0,))
    except CommandError as error:
        raise Refused(variable, str(error), "Correct it, or see why it refuses the plan.") from error


def opened(path: str, verify: Sequence[str] = ()) -> tuple[SavedPlan, str]:
    """Return a saved plan, whose signature is verified, and its digest. Raises Refused: it cannot be read, or is not as it was written."""
    path = os.path.abspath(path)
    written = _content(path)
    found = saved_plan.read(written, path)
    _call(VERIFY, verify, path)
    if _content(path) != written:
        raise Refused(path, "somebody wrote it while it was read", AGAIN)
    return found


def _content(path: str) -> str:
    try:
        found = read_bytes(path)
        if found is not None:
            return utf8(path, found)
    except (OSError, ValueError) as error:
        raise Refused(path, f"it cannot be read ({error})", "Name a plan that gpufleet.nvidia.plan wrote.") from error
    raise Refused(path, "there is no such file", "Name a plan that gpufleet.nvidia.plan wrote.")


def opened_for(task_vars: Mapping[str, Any], path: str, host: str) -> tuple[SavedPlan, str]:
    """Return what the plan that a run is held to has of one host, and its digest. Raises Refused: it is not the one that the run began with, whose
    signature and hosts were looked at before the first change; roles alone began with none.
    """
    path = os.path.abspath(path)
    plan, digest = saved_plan.read_host(_content(path), host, path)
    if digest != (task_vars.get(GATE) or {}).get("digest"):
        raise Refused(path, "it is another plan than the one that this run of a playbook began with", AGAIN)
    return plan, digest


def refuse_tree(path: str, verify: Sequence[str], digest: str) -> str:
    """Return the digest of the plan that the rendered files are those of. Raises Refused: they are others, or it cannot be read."""
    plan, found = opened(path, verify)
    if plan.tree != digest:
        reason = f"rendering them gives the digest {digest}, and the plan {found} was made for {plan.tree or 'none'}"
        raise Refused("the files of the clusters", reason, AGAIN)
    return found


def trees_of_hosts(task_vars: Mapping[str, Any]) -> Mapping[str, str]:
    """Return by host the digest of what the rendered files of the clusters say of it; nothing where none were rendered."""
    return (task_vars.get(_RENDERED) or {}).get("of_hosts") or {}


def is_judged(task_vars: Mapping[str, Any], check_mode: bool) -> bool:
    """Whether what a task would do has to be in a saved plan. In check mode before the first change it is asked what that is."""
    return bool(task_vars.get(APPLY)) and (bool(task_vars.get(GATE)) or not check_mode)


def unannounced(task_vars: Mapping[str, Any], path: str, pods: Iterable[str]) -> None:
    """Raise Refused: one of the pods that are about to be evicted from a host is none of those that its plan has."""
    host = str(task_vars["inventory_hostname"])
    others = saved_plan.arrived(opened_for(task_vars, path, host)[0].host(host), pods)
    if others:
        raise Refused(f"{host}: {path}", f"{others}. None was evicted", AGAIN)


def beyond(task_vars: Mapping[str, Any], path: str, host: str, module: str, answer: Mapping[str, Any]) -> list[str]:
    """Return why a module may not do what it would, which C(answer) is in check mode; nothing where all of it is in the plan.

    Raises Refused: the plan cannot be read.
    """
    steps = saved_plan.steps_of(answer.get("steps") or ())
    then = opened_for(task_vars, path, host)[0].host(host)
    stage = STAGE_OF[module][0]
    return [f"{step.what}: {why}" for step in steps for why in saved_plan.objections(then, stage, step, True, True)]
