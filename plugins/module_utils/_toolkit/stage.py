# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stage C(toolkit), planned from the facts of a host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .._distributions.distributions import find
from .._facts_view import Facts
from .._migration import LEFT, TOOLKIT, is_left
from .._packages.package_set import attempt, key_file_refusals
from .._plan import Refused, StagePlan
from .._runtime.stage import containers_at_risk
from .._runtimes import ENVVAR, RUNTIMES
from .._steps import Kind
from .._versions import product_key
from .config import MODE, NO_CGROUPS, PATH, refuse_decisive
from .desired import from_variables
from .packages import DEFAULT_VERSION, PREFIX, check_version
from .plan import plan
from .state import from_facts

_ON_THE_HOST = ("nvidia", "distribution", "vendor", "runfile")
#: The first whose default mode has NVIDIA_MIG_MONITOR_DEVICES, which the device plugin's chart sets (its changelog).
_WITH_MIG_MONITOR = "1.20.1"


def stage(facts: Facts, desired: Mapping[str, Any]) -> StagePlan:
    """Return what the stage would do; see docs/architecture.md."""
    left = is_left(facts, desired, TOOLKIT)
    if desired["nvidia_toolkit_runtime"] == "none":
        return StagePlan("toolkit", needed=False)
    wanted = from_variables(desired)
    refusals: list[Refused] = []
    warning = attempt(refusals, lambda: check_version(wanted.version, wanted.allow_vulnerable))
    attempt(refusals, lambda: find(facts.host.distribution))
    warnings = [warning] if warning else []
    settings = facts.toolkit.settings or {}
    # One that comes in a container, or by a mount, has a root of its own.
    of_host = facts.driver.source in _ON_THE_HOST or desired.get("nvidia_driver_state") == "present"
    unusable = refuse_decisive(settings, of_host)
    refusals += [unusable] if unusable else []
    if refusals:
        return StagePlan("toolkit", True, refusals=tuple(refusals), warnings=tuple(warnings))
    if left:
        return StagePlan("toolkit", False, warnings=(LEFT.format("container toolkit"),))
    state = from_facts(facts, wanted)
    if state is None:
        return StagePlan("toolkit", True, warnings=tuple(warnings), unread="the installed packages are not known")
    planned = plan(state, wanted)
    installs = any(step.kind is Kind.INSTALL_TOOLKIT for step in planned.steps)
    warnings = [
        *planned.warnings,
        *_of_settings(settings, wanted.runtime, facts.kubelet.installed, wanted.version, desired),
    ]
    named = containers_at_risk(facts, wanted.runtime) if installs else ""
    if named:
        # host.md, section 8.
        warnings.append(
            "the scripts of the packages reload systemd, which takes the GPUs from containers that NVIDIA's hook gave them to, but not from those that "
            f"got them by CDI. Running in containers: {named}. Drain the host first, or have them stopped"
        )
    refusals = key_file_refusals(facts, wanted.repository, PREFIX) if installs else []
    return StagePlan("toolkit", planned.changes, planned.steps, refusals=tuple(refusals), warnings=tuple(warnings))


def _of_settings(
    settings: Mapping[str, str], runtime: str, kubelet: bool | None, version: str, desired: Mapping[str, Any]
) -> Iterator[str]:
    """Yield which containers get no GPU, or not all of it, by the settings of the toolkit and by its version."""
    mode = settings.get(MODE, "auto")
    if settings.get(NO_CGROUPS) == "True":
        yield (
            f"{PATH}, {NO_CGROUPS}: it is true, so containers that get their GPUs by NVIDIA's hook (docker --gpus, mode legacy) cannot open them unless "
            "they are rootless: set it to false"
        )
    # nvidia-container-toolkit#1246; cmd/nvidia-container-runtime-hook, assertModeIsLegacy [code].
    if RUNTIMES[runtime].injection == ENVVAR and mode not in ("auto", "legacy"):
        yield (
            f"{PATH}, {MODE}: it is {mode}, so 'docker run --gpus' of versions that inject through the toolkit's hook fails (invoking the NVIDIA Container "
            "Runtime Hook directly is not supported): set it to auto, or start containers with '--runtime nvidia' or '--device nvidia.com/gpu=all'"
        )
    divided = desired.get("nvidia_mig_strategy") not in (None, "none")
    served = kubelet and divided and desired.get("nvidia_sharing_backend") != "dra"
    # NVML in the plugin is refused the memory of GPUs in MIG mode (nvidia-container-toolkit#1740).
    if served and mode != "legacy" and product_key(version) < product_key(_WITH_MIG_MONITOR):
        yield (
            f"{PREFIX}version is {version}: before {_WITH_MIG_MONITOR} containers do not get /dev/nvidia-caps/nvidia-cap2, without which a device plugin "
            f"that is not privileged ends with 'Insufficient Permissions' on GPUs in MIG mode. Use {DEFAULT_VERSION}"
        )
