# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether the driver that a host runs is below the security floor of its branch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.floors import (
    Floor,
    not_judged,
    shortfall,
    with_advisories,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.driver_versions import (
    branch_of,
    is_driver_version,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.driver_advisories import VARIABLE, read_folder

NAME = "driver_security"


def driver_security(facts: Mapping[str, Any], variables: Mapping[str, Any]) -> tuple[dict[str, str], ...]:
    """Return a check with what is known against the running driver; none where nothing is, or no driver runs.

    It is a warning and no failure: a new bulletin changes no host, and the driver works as described.

    :param variables: those of the role nvidia_driver; none where they are refused.
    """
    version = (facts.get("driver") or {}).get("loaded_version")
    if not version or not is_driver_version(str(version)):
        return ()
    try:
        floors = _floors(str(variables.get(VARIABLE) or ""))
    except Refused as error:
        return (_warning(f"{error.thing}: {error.reason}", error.remedy),)
    below = shortfall(version, floors)
    if below is not None:
        reason, fixed = below
        if variables.get("nvidia_driver_allow_vulnerable"):
            return (_warning(f"{reason} (accepted with nvidia_driver_allow_vulnerable)", ""),)
        if variables.get("nvidia_driver_state") == "unmanaged":
            step = f"Let what installs the driver install {fixed} or newer (nvidia_driver_state is unmanaged)"
        else:
            step = f"Set nvidia_driver_version to {fixed} or newer and run gpufleet.nvidia.upgrade"
        return (_warning(reason, step),)
    unknown = not_judged(branch_of(version), floors)
    return (_warning(unknown, f"Give NVIDIA's newest advisories with {VARIABLE}"),) if unknown else ()


def _warning(evidence: str, next_step: str) -> dict[str, str]:
    return {"name": NAME, "status": "warning", "evidence": evidence, "next_step": next_step}


@cache
def _floors(folder: str) -> Mapping[int, Floor]:
    """Return the floors with the advisories of a folder, which is read once in a run and not once for each host."""
    return with_advisories(read_folder(folder))
