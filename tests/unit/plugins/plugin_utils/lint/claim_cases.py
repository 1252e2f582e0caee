# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Claims that the API server accepts (tests/charts asks a real one), with what the linter finds in them."""

from __future__ import annotations

from typing import Any

PROFILE = "device.attributes['gpu.nvidia.com'].profile == '1g.10gb'"
#: What a request names, and where the linter finds something: nothing for a good one.
REQUESTS: dict[str, tuple[dict[str, Any], tuple[str, str] | None]] = {
    "a GPU": ({"deviceClassName": "gpu.nvidia.com"}, None),
    "a MIG device of a profile": ({"deviceClassName": "mig.nvidia.com", "expression": PROFILE}, None),
    "another driver's class": ({"deviceClassName": "network.example.com"}, None),
    "an attribute that is asked for first": (
        {"deviceClassName": "gpu.nvidia.com", "expression": f"has({PROFILE.partition(' ==')[0]}) && {PROFILE}"},
        None,
    ),
    "the addressing mode": (
        {
            "deviceClassName": "gpu.nvidia.com",
            "expression": "device.attributes['gpu.nvidia.com'].addressingMode == 'ATS'",
        },
        None,
    ),
    "a class that the driver does not have": (
        {"deviceClassName": "migs.nvidia.com"},
        ("error", "deviceClassName"),
    ),
    "a profile of a whole GPU": (
        {"deviceClassName": "gpu.nvidia.com", "expression": PROFILE},
        ("error", "selectors[0].cel.expression"),
    ),
    "an attribute by a wrong name": (
        {"deviceClassName": "gpu.nvidia.com", "expression": "device.attributes['gpu.nvidia.com'].model == 'H100'"},
        ("error", "selectors[0].cel.expression"),
    ),
    "a class as the domain of an attribute": (
        {"deviceClassName": "mig.nvidia.com", "expression": PROFILE.replace("gpu.nvidia", "mig.nvidia")},
        ("error", "selectors[0].cel.expression"),
    ),
    "memory of a GPU": (
        {"deviceClassName": "gpu.nvidia.com", "capacity": {"requests": {"memory": "8Gi"}}},
        ("note", "capacity.requests.memory"),
    ),
}

PARAMETERS: dict[str, Any] = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig"}
SLICES: dict[str, Any] = {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}
#: Parameters of the driver, what else the request has, and where the linter finds what; nothing in good ones. The driver's own code is asked
#: about them in tests/charts.
CONFIGURATIONS: list[tuple[dict[str, Any], dict[str, Any], str, str]] = [
    ({"sharing": SLICES}, {}, "", ""),
    ({"sharing": {"strategy": "MPS", "mpsConfig": {"defaultActiveThreadPercentage": 25}}}, {}, "", ""),
    ({"sharing": {"strategy": "MPS", "mpsConfig": {"multiUser": True}}}, {}, "", ""),
    ({"kind": "MigDeviceConfig", "sharing": {"strategy": "MPS"}}, {"deviceClassName": "mig.nvidia.com"}, "", ""),
    ({"kind": "MigDeviceConfig", "sharing": {"strategy": "MPS"}}, {}, ".kind", "Use GpuConfig"),
    ({"kind": "GPUConfig"}, {}, "", "Write GpuConfig"),
    ({"apiVersion": "gpu.nvidia.com/v1", "sharing": SLICES}, {}, "", "is nothing that the driver reads"),
    ({"sharing": {"strategy": "Timeslicing"}}, {}, ".sharing.strategy", "Write TimeSlicing"),
    ({"sharing": {**SLICES, "replicas": 4}}, {}, ".sharing.replicas", "its decoder is strict"),
    ({"sharing": {**SLICES, "strategy": "MPS"}}, {}, ".sharing.timeSlicingConfig", "does not belong to MPS"),
    (
        {"sharing": {**SLICES, "timeSlicingConfig": {"interval": "long"}}},
        {},
        ".sharing.timeSlicingConfig.interval",
        "Write Long",
    ),
    (
        {"sharing": {**SLICES, "timeSlicingConfig": {}}},
        {},
        ".sharing.timeSlicingConfig",
        "the driver's pod crashes",
    ),
    (
        {"sharing": {"strategy": "MPS", "mpsConfig": {"defaultActiveThreadPercentage": 101}}},
        {},
        ".sharing.mpsConfig.defaultActiveThreadPercentage",
        "from 0 to 100",
    ),
    (
        {"kind": "MigDeviceConfig", "sharing": SLICES},
        {"deviceClassName": "mig.nvidia.com"},
        ".sharing.timeSlicingConfig",
        "no time slice of their own",
    ),
]


def claim(
    request: dict[str, Any], constraint: dict[str, Any] | None = None, kind: str = "ResourceClaimTemplate"
) -> dict[str, Any]:
    """Return the object with one request; C(expression) is its selector."""
    exactly = {key: value for key, value in request.items() if key != "expression"}
    if "expression" in request:
        exactly["selectors"] = [{"cel": {"expression": request["expression"]}}]
    devices: dict[str, Any] = {"requests": [{"name": "device", "exactly": exactly}]}
    if constraint:
        devices["constraints"] = [constraint]
    spec: dict[str, Any] = {"devices": devices}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": "claimed"},
        "spec": {"spec": spec} if kind == "ResourceClaimTemplate" else spec,
    }
