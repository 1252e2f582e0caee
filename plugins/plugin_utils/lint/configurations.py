# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How the pods of a claim share its devices: what the DRA driver reads only when it prepares the claim, and refuses there.

The API server takes any object as the parameters of a driver. What this one takes is in the driver 0.5.0, api/nvidia.com/resource/v1beta1
(sharing.go, validate.go; its decoder is strict).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .finding import Report, join, near
from .objects import mapping, sequence

_DRIVER, _GROUP = "gpu.nvidia.com", "resource.nvidia.com/v1beta1"
#: Kind of the parameters to the class of the devices that it is for.
_CLASS_OF = {
    "GpuConfig": "gpu.nvidia.com",
    "MigDeviceConfig": "mig.nvidia.com",
    "VfioDeviceConfig": "vfio.gpu.nvidia.com",
}
#: Strategy to the feature gate of the driver and to the section of its settings.
_STRATEGIES = {"TimeSlicing": ("TimeSlicingSettings", "timeSlicingConfig"), "MPS": ("MPSSupport", "mpsConfig")}
_INTERVALS = {"Default", "Short", "Medium", "Long"}
_SETTINGS = {
    "timeSlicingConfig": {"interval"},
    "mpsConfig": {
        "defaultActiveThreadPercentage",
        "defaultPinnedDeviceMemoryLimit",
        "defaultPerDevicePinnedMemoryLimit",
        "multiUser",
    },
}
_STAYS = "the driver refuses the claim when it prepares it, and the pod stays in ContainerCreating"


def check(entries: Sequence[Any], path: str, classes: Mapping[str, str], report: Report) -> None:
    """Check C(config) of a claim, or of a DeviceClass.

    :param classes: of the requests of the claim, by their names; of a DeviceClass none.
    """
    for number, entry in enumerate(entries):
        where = f"{path}.config[{number}]"
        opaque = mapping(mapping(entry).get("opaque"))
        if opaque.get("driver") != _DRIVER:
            continue
        place, parameters = f"{where}.opaque.parameters", mapping(opaque.get("parameters"))
        kind = str(parameters.get("kind"))
        if parameters.get("apiVersion") != _GROUP or kind not in _CLASS_OF:
            said = f"{parameters.get('apiVersion')}, {kind}"
            report.error(
                place,
                f"{said} is nothing that the driver reads: {_STAYS}",
                f"Write {_GROUP}, {near(kind, set(_CLASS_OF))}",
            )
            continue
        named = sequence(mapping(entry).get("requests")) or list(classes)
        # A request FIRST/ALTERNATIVE is one of firstAvailable, whose classes may differ.
        for one in named:
            of = classes.get(str(one), "")
            if of in _CLASS_OF.values() and of != _CLASS_OF[kind]:
                report.error(
                    f"{place}.kind",
                    f"{kind} is not for the devices of {of}, which {one} requests: {_STAYS}",
                    f"Use {_kind_of(of)}.",
                )
        if kind != "VfioDeviceConfig":
            _known(parameters, {"apiVersion", "kind", "sharing"}, place, report)
            if "sharing" in parameters:
                _sharing(kind, mapping(parameters["sharing"]), f"{place}.sharing", report)


def _kind_of(name: str) -> str:
    return next(kind for kind, of in _CLASS_OF.items() if of == name)


def _sharing(kind: str, sharing: Mapping[str, Any], path: str, report: Report) -> None:
    sections = {"mpsConfig"} if kind == "MigDeviceConfig" else set(_SETTINGS)
    if kind == "MigDeviceConfig" and "timeSlicingConfig" in sharing:
        report.error(
            f"{path}.timeSlicingConfig",
            f"MIG devices have no time slice of their own: {_STAYS}",
            "Remove it: pods share a MIG device by naming one claim.",
        )
    _known(
        {key: value for key, value in sharing.items() if key != "timeSlicingConfig"},
        {"strategy", *sections},
        path,
        report,
    )
    strategy = str(sharing.get("strategy"))
    if strategy not in _STRATEGIES:
        report.error(
            f"{path}.strategy", f"{strategy} is no strategy of the driver: {_STAYS}", near(strategy, set(_STRATEGIES))
        )
        return
    gate, section = _STRATEGIES[strategy]
    for other in set(_SETTINGS) - {section}:
        if other in sharing and kind == "GpuConfig":
            report.error(
                f"{path}.{other}", f"it does not belong to {strategy}: {_STAYS}", "Remove it, or change the strategy."
            )
    report.warning(
        f"{path}.strategy",
        f"{strategy} needs the driver's feature gate {gate} (alpha, off by default); without it {_STAYS}",
        f"Render the pool with nvidia_sharing_backend: dra and nvidia_sharing_mode: {'mps' if strategy == 'MPS' else 'time_slicing'}, which sets it.",
    )
    settings = mapping(sharing.get(section))
    _known(settings, _SETTINGS[section], f"{path}.{section}", report)
    if section == "timeSlicingConfig" and section in sharing and settings.get("interval") is None:
        report.error(
            f"{path}.{section}",
            "it has no interval, which the driver's check of it dereferences: the driver's pod crashes",
            f"Set interval, or remove {section}.",
        )
    interval = settings.get("interval") or "Default"
    if interval not in _INTERVALS:
        report.error(
            f"{path}.{section}.interval",
            f"{interval} is no interval of the driver: {_STAYS}",
            near(str(interval), _INTERVALS),
        )
    percentage = settings.get("defaultActiveThreadPercentage", 100)
    if not isinstance(percentage, int) or isinstance(percentage, bool) or not 0 <= percentage <= 100:
        report.error(
            f"{path}.{section}.defaultActiveThreadPercentage",
            f"{percentage} must be an integer from 0 to 100: {_STAYS}",
            "Write such as 25.",
        )


def _known(values: Mapping[str, Any], known: set[str], path: str, report: Report) -> None:
    for key in values:
        if key not in known:
            report.error(
                join(path, str(key)),
                f"the driver knows no such field, and its decoder is strict: {_STAYS}",
                near(str(key), known),
            )
