# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the variables of NVIDIA's DeepOps, and of its role nvidia.nvidia_driver, mean for a host that is adopted. Pure.

What a host has decides, and not what a variable says that it should have: they break ties, and where they say something else than the
host, that is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: Source: config.example/group_vars/k8s-cluster.yml of NVIDIA/deepops, and the README of its role nvidia.nvidia_driver.
STRATEGY, RUNTIME, OPERATOR = "k8s_gpu_mig_strategy", "container_manager", "deepops_gpu_operator_enabled"
#: nvidia_driver_branch is a variable of both, and means the same.
BRANCH = "nvidia_driver_branch"
OF_DRIVER = (
    "nvidia_driver_package_state",
    "nvidia_driver_package_version",
    "nvidia_driver_persistence_mode_on",
    "nvidia_driver_skip_reboot",
    "nvidia_driver_ubuntu_install_from_cuda_repo",
    "nvidia_driver_ubuntu_cuda_repo_baseurl",
    "nvidia_driver_ubuntu_cuda_package",
    "nvidia_driver_ubuntu_packages_suffix",
    "nvidia_driver_rhel_cuda_repo_baseurl",
    "nvidia_driver_rhel_cuda_repo_gpgkey",
)
NAMES = (STRATEGY, RUNTIME, OPERATOR, BRANCH, *OF_DRIVER)


@dataclass(frozen=True)
class DeepOpsVariables:
    """What the variables of a host say."""

    strategy: str | None = None
    runtime: str = ""
    notes: tuple[str, ...] = ()


def read(variables: Mapping[str, Any], branch: str, cluster_read: bool) -> DeepOpsVariables:
    """Return what DeepOps' variables say of a host."""
    notes = []
    if variables.get(OPERATOR) in (True, "true", "yes") and not cluster_read:
        notes.append(
            f"DeepOps: {OPERATOR} is true, so the GPU Operator serves this host. Set gpu_cluster_kubeconfig to adopt what it does"
        )
    pinned = str(variables.get(BRANCH) or "")
    if pinned and pinned != branch:
        notes.append(
            f"DeepOps: {BRANCH} is {pinned}, and the host has branch {branch or 'none'}; what the host has is written"
        )
    unused = [name for name in OF_DRIVER if name in variables]
    if unused:
        notes.append(
            f"DeepOps: {', '.join(unused)} have no equivalent here and are not written. Use the written inventory alone, not beside the old one"
        )
    strategy = variables.get(STRATEGY)
    return DeepOpsVariables(str(strategy) if strategy else None, str(variables.get(RUNTIME) or ""), tuple(notes))
