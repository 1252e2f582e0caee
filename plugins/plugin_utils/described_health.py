# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the variables of the host roles say that a healthy host is, and whether what was read of it agrees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.imex import NODES
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.cuda import is_auto, reason_unproven
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.evidence import evidence_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.reply import ARGUMENTS, answer
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.plain import is_true, plain

#: The variables that L(described_health) reads.
VARIABLES = (
    "gpu_facts_gpus",
    "nvidia_driver_state",
    "nvidia_driver_version",
    "nvidia_driver_branch",
    "nvidia_driver_flavour",
    "nvidia_driver_imex",
    NODES,
    "nvidia_toolkit_runtime",
    "nvidia_toolkit_version",
    "nvidia_toolkit_cdi",
    "nvidia_health_dcgm_level",
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
    mode = given("nvidia_driver_imex")
    if mode not in ("", "unmanaged"):
        expected["imex"] = mode
        expected["imex_nodes"] = list(variables.get(NODES) or ())
    runtime = given("nvidia_toolkit_runtime") or "none"
    if runtime != "none":
        expected["toolkit_version"] = given("nvidia_toolkit_version")
        expected["runtime"] = runtime
        expected["cdi"] = is_true(variables.get("nvidia_toolkit_cdi"))
    # A level that is not asked for any more leaves nothing owed.
    expected["accepted"] = str(variables.get("nvidia_health_dcgm_level") or 0) != "0"
    return {name: value for name, value in expected.items() if value}


def judged(
    facts: Mapping[str, Any], expected: Mapping[str, Any], checks: Sequence[str] = (), cuda_check: Sequence[str] = ()
) -> dict[str, Any]:
    """Return what M(gpufleet.nvidia.health) answers of facts that were read with all that it looks at.

    :param expected: the suboptions of its option C(expect).
    :param checks: the checks to report; empty for all of them.
    :param cuda_check: the host's C(nvidia_health_cuda_check). Nothing is run here, so that it can only say why CUDA is not proven.
    :raises Refused: an expectation or a check that there is not.
    """
    validated = ArgumentSpecValidator(ARGUMENTS).validate(
        {"expect": dict(expected), **({"checks": list(checks)} if checks else {})}
    )
    if validated.error_messages:
        reason = "; ".join(validated.error_messages).rstrip(".")
        raise Refused("nvidia_health_expect and nvidia_health_checks", reason)
    unproven = reason_unproven(facts) if is_auto(cuda_check) else ""
    return answer(evidence_of(facts, cuda_unproven=unproven), plain(validated.validated_parameters), False)
