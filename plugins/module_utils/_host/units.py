# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The systemd units that restore the recorded state of the GPUs at boot, as text.

Order at boot: driver, fabric manager, persistence daemon, MIG, CDI, settings, sharing, and only then whoever uses a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping

from .._adapters.nvml_library import HOST_PROGRAM
from .._formats.host_names import CDI_UNIT, FABRIC_UNIT, MIG_UNIT, PERSISTENCE_UNIT, SETTINGS_UNIT, SHARING_UNIT
from .._formats.unit_sandbox import sandbox, unit_text
from .._runtimes import KUBELETS, RUNTIMES

UNIT_DIRECTORY = "/etc/systemd/system"

RECORDED_MIG = "/etc/gpufleet/mig.json"
RECORDED_SETTINGS = "/etc/gpufleet/settings.json"
RECORDED_SHARING = "/etc/gpufleet/sharing.json"

#: What makes the driver ready.
_DRIVER = ("systemd-modules-load.service", PERSISTENCE_UNIT, FABRIC_UNIT)

#: Who uses GPUs: container runtimes start containers with GPUs on their own, and metrics hold every GPU open.
CLIENTS = (
    "nvidia-cdi-refresh.service",
    *(f"{unit}.service" for runtime in RUNTIMES.values() if not runtime.is_distribution for unit in runtime.units),
    *KUBELETS,
    "nvidia-dcgm.service",
    "dcgm.service",
    "dcgm-exporter.service",
    "nvidia-dcgm-exporter.service",
    "nvsm.service",
    "slurmd.service",
)

# Somebody who waits for the GPUs must not wait for ever: NVML calls can hang on a broken GPU.
_TIMEOUT = "600"


def units(python: str) -> Mapping[str, str]:
    """Return the text of every unit by its name. C(python): absolute path of the interpreter that runs the host program."""
    return {
        MIG_UNIT: _unit(
            python,
            "restore-mig",
            description="Restore the recorded MIG layout of the NVIDIA GPUs",
            after=_DRIVER,
            before=(CDI_UNIT, SETTINGS_UNIT, SHARING_UNIT, *CLIENTS),
            conditions=(RECORDED_MIG,),
        ),
        CDI_UNIT: _unit(
            python,
            "refresh-cdi",
            description="Write the CDI specification of the NVIDIA GPUs after MIG is restored",
            after=(*_DRIVER, MIG_UNIT),
            before=(SHARING_UNIT, *CLIENTS),
            conditions=(RECORDED_MIG, "/usr/bin/nvidia-ctk"),
            # The site may have the specification written wherever it wants (nvidia-cdi-refresh.env).
            protect="true",
        ),
        SETTINGS_UNIT: _unit(
            python,
            "restore-settings",
            description="Restore power limits and clocks of the NVIDIA GPUs",
            # A GPU whose MIG mode changes may be reset for it, which would lose them.
            after=(*_DRIVER, MIG_UNIT),
            before=(SHARING_UNIT, *CLIENTS),
            conditions=(RECORDED_SETTINGS,),
        ),
        SHARING_UNIT: _unit(
            python,
            "restore-sharing",
            description="Restore compute modes and MPS of the NVIDIA GPUs",
            after=(*_DRIVER, MIG_UNIT, CDI_UNIT, SETTINGS_UNIT),
            before=CLIENTS,
            conditions=(RECORDED_SHARING,),
        ),
    }


def _unit(
    python: str,
    verb: str,
    description: str,
    after: tuple[str, ...],
    before: tuple[str, ...],
    conditions: tuple[str, ...],
    protect: str = "strict",
) -> str:
    order = (f"After={' '.join(after)}", f"Before={' '.join(before)}")
    service = [
        "[Service]",
        "Type=oneshot",
        "RemainAfterExit=yes",
        f"ExecStart={python} {HOST_PROGRAM} {verb}",
        f"TimeoutStartSec={_TIMEOUT}",
        *sandbox(system=protect),
    ]
    more = (*(f"ConditionPathExists={path}" for path in conditions), *order)
    return unit_text(description, more, service, ["[Install]", "WantedBy=multi-user.target"])
