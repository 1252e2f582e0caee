# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The checks of whether a GPU host works, in the order in which a person would look for a fault: from the bus upwards."""

from __future__ import annotations

from . import hardware, software
from .cuda import cuda
from .dcgm import dcgm
from .fabric import fabric
from .hardware import next_kernel, recovery
from .report import Check
from .xid import xid

CHECKS = (
    Check("pci", hardware.pci),
    Check("driver", hardware.driver, needs=("pci",)),
    Check("next_kernel", next_kernel, needs=("driver",)),
    Check("nvidia_smi", hardware.nvidia_smi, needs=("driver",)),
    Check("nvml", hardware.nvml, needs=("driver",)),
    Check("recovery", recovery, needs=("nvml",)),
    Check("xid", xid),
    Check("fabric", fabric, needs=("driver",)),
    Check("persistence", hardware.persistence, needs=("nvml",)),
    Check("memory", hardware.memory, needs=("nvml",)),
    Check("runtime", software.runtime),
    Check("mps", software.mps, needs=("nvml",)),
    Check("cuda", cuda, needs=("nvml", "fabric")),
    Check("dcgm", dcgm, needs=("nvml", "fabric")),
)

NAMES = tuple(check.name for check in CHECKS)
