# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""GPUs as NVML gives them, in the form of the facts document that the sharing functions take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._adapters.nvml_types import GpuState


def gpu_mappings(gpus: Sequence[GpuState]) -> list[dict[str, Any]]:
    """Return what sharing needs of each GPU that answers, under the names of the facts document."""
    return [
        {
            "index": gpu.index,
            "uuid": gpu.uuid,
            "name": gpu.name,
            "device_id": gpu.pci_device_id,
            "architecture": gpu.architecture,
            "memory_mib": gpu.memory_mib,
            "mig": {"current": gpu.mig.current},
            "gpu_instances": [
                {
                    "id": instance.id,
                    "memory_mib": instance.memory_mib,
                    "compute_instances": [
                        {"id": part.id, "profile": part.profile, "uuid": part.uuid}
                        for part in instance.compute_instances
                    ],
                }
                for instance in gpu.gpu_instances
            ],
        }
        for gpu in gpus
        if not gpu.lost
    ]
