# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A healthy host, as facts; tests change what they need."""

from __future__ import annotations

from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import ADDRESSES as EIGHT
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import MIG_ON, gpu_instance, h100, h100_settings

ADDRESSES = EIGHT[:2]
LAYOUT = [{"profile": "3g.40gb", "start": 4, "size": 4, "compute": [3]}]


def _gpu(index):
    return h100(
        index,
        mig=dict(MIG_ON),
        settings=h100_settings(500, graphics=1410, locked_graphics=[1410, 1410]),
        errors={"remap_pending": False, "remap_failed": False, "uncorrected": 0},
        recovery_action="none",
        gpu_instances=[gpu_instance(index, "3g.40gb", 4, 4)],
    )


def _recorded(index):
    return {
        "uuid": f"GPU-{index}",
        "pci_address": ADDRESSES[index],
        "name": "NVIDIA H100 80GB HBM3",
        "mig": True,
        "instances": LAYOUT,
    }


DAEMON = {
    "name": "node",
    "devices": ["GPU-0", "GPU-1"],
    "pipe_directory": "/run/nvidia/mps/nvidia.com/gpu/pipe",
    "log_directory": "/run/nvidia/mps/nvidia.com/gpu/log",
    "limits_mib": [4096, 4096],
    "percentage": 25.0,
    "priority": 0,
    "multi_user": False,
}


def healthy_facts():
    return {
        "host": {"name": "gpu01", "container": False},
        "pci": [
            {"address": address, "kind": "gpu", "board": "h100-80gb-sxm", "kernel_driver": "nvidia"}
            for address in ADDRESSES
        ]
        + [{"address": "0000:05:00.0", "kind": "nvswitch", "kernel_driver": "nvidia-nvswitch"}],
        "driver": {
            "loaded_version": "580.126.09",
            "on_disk_version": "580.126.09",
            "next_kernel": {"release": "6.1.0-51-amd64", "version": "580.126.09"},
            "library_version": "580.126.09",
            "flavour": "open",
            "nouveau_loaded": False,
            "persistence_daemon": {"installed": True, "active": True},
        },
        "nvml": {"available": True, "reason": None, "code": None},
        "gpus": [_gpu(0), _gpu(1)],
        "fabric": {
            "nvswitches": 4,
            "manager": {"installed": True, "active": True, "version": "580.126.09"},
            "state": "completed",
        },
        "mps": [
            {"pid": 900, "pipe_directory": DAEMON["pipe_directory"], "responds": True, "percentage": 25.0, "clients": 0}
        ],
        "toolkit": {"version": "1.20.2"},
        "runtimes": {
            "containerd": {
                "version": "1.7.22",
                "active": True,
                "nvidia": True,
                "default_runtime": "runc",
                "cdi": None,
            }
        },
        "cdi": [
            {"path": "/var/run/cdi/nvidia.yaml", "kind": "nvidia.com/gpu", "devices": 3, "missing": [], "stale": []}
        ],
        "recorded": {
            "mig": {"schema": 1, "request": {}, "gpus": [_recorded(0), _recorded(1)]},
            "settings": {
                "schema": 1,
                "power_limit": 500,
                "graphics_clocks": [1410, 1410],
                "memory_clocks": None,
                "application_clocks": None,
                "ecc": True,
            },
            "sharing": {"schema": 1, "compute_mode": "default", "time_slice": None, "daemons": [DAEMON]},
        },
        "unknown": {},
    }


def judge(outcome, status, *texts):
    """Compare the outcome of a check, and what it says and recommends."""
    assert outcome.status == status, outcome
    for text in texts:
        assert text in f"{outcome.evidence}. {outcome.next_step}"
