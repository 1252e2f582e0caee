# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the variables of the host roles say that a healthy host is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean

#: The variables that L(described_health) reads.
VARIABLES = (
    "gpu_facts_gpus",
    "nvidia_driver_state",
    "nvidia_driver_version",
    "nvidia_driver_branch",
    "nvidia_driver_flavour",
    "nvidia_toolkit_runtime",
    "nvidia_toolkit_version",
    "nvidia_toolkit_cdi",
)


def described_health(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the suboptions of O(gpufleet.nvidia.health#module:expect) that the variables of a host stand for.

    :param variables: values without templates. What is missing or empty is not expected, and so not compared.
    """

    def given(name: str) -> str:
        return str(variables.get(name) or "")

    expected: dict[str, Any] = {
        "gpus": sum(int(entry.get("count") or 0) for entry in variables.get("gpu_facts_gpus") or ()),
    }
    if given("nvidia_driver_state") in ("", "present"):
        expected["driver_version"] = given("nvidia_driver_version")
        # A version says more than its branch, and may be of another one than the role's default.
        expected["driver_branch"] = "" if expected["driver_version"] else given("nvidia_driver_branch")
        expected["driver_flavour"] = given("nvidia_driver_flavour")
    runtime = given("nvidia_toolkit_runtime") or "none"
    if runtime != "none":
        expected["toolkit_version"] = given("nvidia_toolkit_version")
        expected["runtime"] = runtime
        expected["cdi"] = boolean(variables.get("nvidia_toolkit_cdi") or False, strict=False)
    return {name: value for name, value in expected.items() if value}
