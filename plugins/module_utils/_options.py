# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The options of modules that take a variable of a role as it is: declared in the role's argument specification alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: By module and option, the variable, and the argument specification.
# fmt: off
OPTIONS: dict[str, dict[str, tuple[str, dict[str, Any]]]] = {
    # begin of what tools/generate.py writes
    "container_runtime": {
        "default": ("nvidia_toolkit_default_runtime", {"type": "bool", "default": False}),
        "enable_cdi": ("nvidia_toolkit_cdi", {"type": "bool", "default": True}),
        "move_former": ("nvidia_toolkit_move_former", {"type": "bool", "default": False}),
        "restart": ("nvidia_toolkit_restart", {"type": "str", "choices": ["auto", "never"], "default": "auto"}),
        "disruption": ("nvidia_toolkit_disruption", {"type": "str", "choices": ["refuse", "force"], "default": "refuse"}),
    },
    "container_toolkit": {
        "version": ("nvidia_toolkit_version", {"type": "str", "default": "1.20.2"}),
        "allow_vulnerable": ("nvidia_toolkit_allow_vulnerable", {"type": "bool", "default": False}),
        "device_injection": ("nvidia_toolkit_device_injection", {"type": "str", "choices": ["auto", "cdi", "volume_mounts", "envvar"], "default": "auto"}),
        "hold": ("nvidia_toolkit_hold", {"type": "bool", "default": True}),
        "cdi": ("nvidia_toolkit_cdi", {"type": "bool", "default": True}),
    },
    "dcgm": {
        "version": ("nvidia_dcgm_version", {"type": "str", "default": "4.6.0"}),
        "cuda": ("nvidia_dcgm_cuda", {"type": "list", "elements": "str", "choices": ["11", "12", "13"], "default": []}),
        "hold": ("nvidia_dcgm_hold", {"type": "bool", "default": True}),
        "allow_vulnerable": ("nvidia_dcgm_allow_vulnerable", {"type": "bool", "default": False}),
        "lock_timeout": ("nvidia_dcgm_lock_timeout", {"type": "int", "default": 60}),
    },
    "driver": {
        "migrate_from": ("nvidia_driver_migrate_from", {"type": "str", "choices": ["", "gpu_operator", "host"], "default": ""}),
        "branch": ("nvidia_driver_branch", {"type": "str", "default": "580"}),
        "version": ("nvidia_driver_version", {"type": "str", "default": ""}),
        "flavour": ("nvidia_driver_flavour", {"type": "str", "choices": ["open", "proprietary"], "default": "open"}),
        "variant": ("nvidia_driver_variant", {"type": "str", "choices": ["compute", "full"], "default": "compute"}),
        "source": ("nvidia_driver_source", {"type": "str", "choices": ["nvidia", "distribution", "local_repository"], "default": "nvidia"}),
        "hold": ("nvidia_driver_hold", {"type": "bool", "default": True}),
        "reload": ("nvidia_driver_reload", {"type": "str", "choices": ["auto", "never"], "default": "auto"}),
        "persistence": ("nvidia_driver_persistence", {"type": "bool", "default": True}),
        "fabric_manager": ("nvidia_driver_fabric_manager", {"type": "str", "choices": ["auto", "always", "never"], "default": "auto"}),
        "module_parameters": ("nvidia_driver_module_parameters", {"type": "dict", "default": {}}),
        "coherent_memory": ("nvidia_driver_coherent_memory", {"type": "str", "choices": ["default", "driver"], "default": "default"}),
        "allow_vulnerable": ("nvidia_driver_allow_vulnerable", {"type": "bool", "default": False}),
    },
    "gpu_settings": {
        "power_limit": ("nvidia_settings_power_limit", {"type": "int", "default": 0}),
        "graphics_clocks": ("nvidia_settings_graphics_clocks", {"type": "list", "elements": "int", "default": []}),
        "memory_clocks": ("nvidia_settings_memory_clocks", {"type": "list", "elements": "int", "default": []}),
        "application_clocks": ("nvidia_settings_application_clocks", {"type": "list", "elements": "int", "default": []}),
        "ecc": ("nvidia_settings_ecc", {"type": "str", "choices": ["unmanaged", "enabled", "disabled"], "default": "unmanaged"}),
        "reset": ("nvidia_settings_reset", {"type": "str", "choices": ["auto", "never"], "default": "auto"}),
    },
    "health": {
        "cuda_check": ("nvidia_health_cuda_check", {"type": "list", "elements": "str", "default": ["auto"]}),
        "cuda_timeout": ("nvidia_health_cuda_timeout", {"type": "int", "default": 120}),
        "dcgm_timeout": ("nvidia_health_dcgm_timeout", {"type": "int", "default": 7200}),
        "fail": ("nvidia_health_fail", {"type": "bool", "default": True}),
    },
    "mig": {
        "strategy": ("nvidia_mig_strategy", {"type": "str", "choices": ["none", "single", "mixed"], "default": "none"}),
        "disruption": ("nvidia_mig_disruption", {"type": "str", "choices": ["refuse", "idle_only", "force"], "default": "refuse"}),
        "reset": ("nvidia_mig_reset", {"type": "str", "choices": ["auto", "never"], "default": "auto"}),
        "allocations": ("nvidia_mig_allocations", {"type": "str", "choices": ["read", "given"], "default": "read"}),
        "record": ("nvidia_mig_restore", {"type": "bool", "default": True}),
        "lock_timeout": ("nvidia_mig_lock_timeout", {"type": "int", "default": 60}),
        "busy_instances": ("nvidia_mig_busy_instances", {"type": "list", "elements": "str", "default": []}),
    },
    "mps": {
        "mode": ("nvidia_sharing_mode", {"type": "str", "choices": ["none", "time_slicing", "mps"], "default": "none"}),
        "manager": ("nvidia_sharing_mps_manager", {"type": "str", "choices": ["device_plugin", "host"], "default": "device_plugin"}),
        "backend": ("nvidia_sharing_backend", {"type": "str", "choices": ["mps", "hami", "dra"], "default": "mps"}),
        "replicas": ("nvidia_sharing_replicas", {"type": "raw", "default": 0}),
        "memory_slice": ("nvidia_sharing_memory_slice", {"type": "str", "default": ""}),
        "time_slice": ("nvidia_sharing_time_slice", {"type": "str", "choices": ["default", "short", "medium", "long"], "default": "default"}),
        "compute_mode": ("nvidia_sharing_compute_mode", {"type": "str", "choices": ["auto", "default", "exclusive_process", "prohibited"], "default": "auto"}),
        "rename": ("nvidia_sharing_rename", {"type": "bool", "default": False}),
        "scope": ("nvidia_sharing_mps_scope", {"type": "str", "choices": ["node", "gpu", "instance"], "default": "node"}),
        "active_thread_percentage": ("nvidia_sharing_mps_active_thread_percentage", {"type": "float", "default": 0}),
        "priority": ("nvidia_sharing_mps_priority", {"type": "str", "choices": ["normal", "below_normal"], "default": "normal"}),
        "multi_user": ("nvidia_sharing_mps_multi_user", {"type": "str", "choices": ["auto", "true", "false"], "default": "auto"}),
        "limits": ("nvidia_sharing_mps_limits", {
            "type": "list",
            "elements": "dict",
            "default": [],
            "options": {"gpu": {"type": "int", "required": True}, "memory": {"type": "str", "required": True}},
        }),
        "protocol": ("nvidia_sharing_mps_protocol", {"type": "int", "choices": [2, 3], "default": 2}),
        "disruption": ("nvidia_sharing_mps_disruption", {"type": "str", "choices": ["refuse", "force"], "default": "refuse"}),
    },
    # end of what tools/generate.py writes
}
# fmt: on


def arguments(module: str, **own: Any) -> dict[str, Any]:
    return {**{option: specification for option, (_variable, specification) in OPTIONS[module].items()}, **own}


def variables(module: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {variable: parameters[option] for option, (variable, _specification) in OPTIONS[module].items()}


def default(module: str, option: str) -> Any:
    return OPTIONS[module][option][1]["default"]
