# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Objects by which pods claim devices of NVIDIA's DRA driver: what the API server accepts, and no node can serve.

Classes, attributes and parameters are in dra_claims.yml. The API server takes any object as the parameters of a driver.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...module_utils._formats.documents import table
from .finding import Report, below, closest, group_of, join, mapping, near, sequence
from .node import LintedNode

KINDS = ("DeviceClass", "ResourceClaim", "ResourceClaimTemplate")
#: The driver's name, which is the domain of its attributes.
DRIVER = "gpu.nvidia.com"
_OF_NVIDIA = ".nvidia.com"
GPU, MIG, VFIO = "gpu.nvidia.com", "mig.nvidia.com", "vfio.gpu.nvidia.com"
_TABLE: Mapping[str, Any] = table(str(__package__), "dra_claims")
_CLASSES = set(_TABLE["classes"])
_ATTRIBUTES: Mapping[str, set[str]] = {name: set(there) for name, there in _TABLE["attributes"].items()}
_ATTRIBUTE = re.compile(r"""device\.attributes\[\s*['"]([^'"]*)['"]\s*\]\s*\.\s*(\w+)""")
#: A capacity, or an attribute, without the domain of its driver: the expression compares a mapping, or asks an empty one.
_WITHOUT_DOMAIN = re.compile(r"""device\.(?P<kind>capacity|attributes)\[\s*['"](?P<name>[^'"./]*)['"]\s*\]""")
#: Those of the driver's FabricManagerPartitioning: the partitions of a fabric by their number of GPUs.
_PARTITION = re.compile(r"partition[0-9]+")
_PROFILE = re.compile(r"""\.\s*profile\s*==\s*['"]([^'"]*)['"]""")
_GROUP = "resource.nvidia.com/v1beta1"
#: Kind of the parameters to the class of the devices that it is for.
_CLASS_OF: Mapping[str, str] = {kind: one["class"] for kind, one in _TABLE["parameters"].items()}
_STAYS = "the driver refuses the claim when it prepares it, and the pod stays in ContainerCreating"
#: A request for the devices of a class as if they were an extended resource (KEP-5004).
_BY_CLASS = "deviceclass.resource.kubernetes.io/"


def is_claim(document: Mapping[str, Any]) -> bool:
    """Return whether an object is one by which devices are claimed, or a pod that asks for devices of a class."""
    return (document.get("kind") in KINDS and group_of(document) == "resource.k8s.io") or any(
        True for _one in _by_class(document)
    )


def check(document: Mapping[str, Any], report: Report) -> None:
    """Check one object; of the devices that the cluster has something is said where the node is known."""
    for path, name in _by_class(document):
        if name == MIG:
            report.error(
                path,
                "Kubernetes 1.34 starts the pod without any device and without an error",
                f"Claim a MIG device by its profile with a ResourceClaimTemplate of the class {MIG}.",
            )
    kind, spec = document.get("kind"), mapping(document.get("spec"))
    version = str(document.get("apiVersion")).rpartition("/")[2]
    template = kind == "ResourceClaimTemplate"
    if kind in KINDS[1:] and template is not ("spec" in spec):
        message = "a template has the claim below spec.spec" if template else "spec.spec is for templates"
        report.error("spec", f"{message}: the API server refuses the object", "Write spec.devices in a ResourceClaim.")
    if kind == "DeviceClass":
        _device_class(str(mapping(document.get("metadata")).get("name")), spec, report)
    elif kind in KINDS:
        path = "spec.spec.devices" if template else "spec.devices"
        _devices(mapping(below(document, *path.split("."))), path, version, report)


def _device_class(name: str, spec: Mapping[str, Any], report: Report) -> None:
    resource = spec.get("extendedResourceName")
    drivers = " ".join(expression for _path, expression in _expressions(spec, "spec")) or DRIVER
    if resource == "nvidia.com/gpu" and name != GPU and DRIVER in drivers:
        message = f"the driver's chart gives {resource} to the class {GPU}: of two classes with it Kubernetes serves pods from one only"
        report.warning("spec.extendedResourceName", message, f"Remove it, or use the class {GPU}.")
    _shared_by(sequence(spec.get("config")), "spec", {}, report)
    for path, expression in _expressions(spec, "spec"):
        if DRIVER in expression and "device.driver" not in expression:
            report.warning(
                path,
                "it does not compare device.driver: devices of other drivers have no such attributes, and the expression fails on them",
                f"Begin it with device.driver == '{DRIVER}' && ...",
            )
        _domain(path, expression, None, report)


def _devices(devices: Mapping[str, Any], path: str, version: str, report: Report) -> None:
    classes = set()
    classes_of: dict[str, str] = {}
    for number, entry in enumerate(sequence(devices.get("requests"))):
        one = mapping(entry)
        name = mapping(one.get("exactly")).get("deviceClassName", one.get("deviceClassName"))
        if isinstance(name, str):
            classes_of[str(one.get("name", number))] = name
    _shared_by(sequence(devices.get("config")), path, classes_of, report)
    for number, entry in enumerate(sequence(devices.get("requests"))):
        if version == "v1" and "deviceClassName" in mapping(entry):
            message = "resource.k8s.io/v1 has it below exactly or firstAvailable: the API server refuses the object"
            report.error(
                f"{path}.requests[{number}].deviceClassName", message, "Write exactly: {deviceClassName: ...}."
            )
    for where, request in _requests(devices, path):
        name = request.get("deviceClassName")
        if not isinstance(name, str):
            continue
        classes.add(name)
        if name.endswith(_OF_NVIDIA) and name not in _CLASSES:
            own = {one.removesuffix(_OF_NVIDIA): one for one in _CLASSES}
            meant = closest(name.removesuffix(_OF_NVIDIA), own, 0.7)
            say = report.error if meant else report.note
            say(
                join(where, "deviceClassName"),
                f"the DRA driver has no class {name}",
                f"Did you mean {own[meant]}?" if meant else "",
            )
        profiles = set()
        for place, expression in _expressions(request, where):
            _domain(place, expression, name if name in _ATTRIBUTES else None, report)
            profiles |= set(_PROFILE.findall(expression)) if name == MIG else set()
        _memory(name, request, where, report)
        if report.node is not None and name in (GPU, MIG):
            _on_node(name, profiles, request, where, report.node, report)
    _constraints(devices, classes, path, report)


def _requests(devices: Mapping[str, Any], path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield requests as v1 and v1beta2 write them (exactly, firstAvailable), and as v1beta1 does."""
    for number, entry in enumerate(sequence(devices.get("requests"))):
        where, entry = f"{path}.requests[{number}]", mapping(entry)
        if "exactly" in entry:
            yield f"{where}.exactly", mapping(entry["exactly"])
        elif "firstAvailable" in entry:
            for index, one in enumerate(sequence(entry["firstAvailable"])):
                yield f"{where}.firstAvailable[{index}]", mapping(one)
        else:
            yield where, entry


def _expressions(of: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    for number, entry in enumerate(sequence(of.get("selectors"))):
        expression = mapping(mapping(entry).get("cel")).get("expression")
        if isinstance(expression, str):
            yield f"{path}.selectors[{number}].cel.expression", expression


def _domain(path: str, expression: str, name: str | None, report: Report) -> None:
    """Check the attributes that an expression reads: a missing one is an error of the scheduler, and the pod stays Pending."""
    guarded = "has(" in expression or " in device.attributes" in expression
    for match in _WITHOUT_DOMAIN.finditer(expression):
        if not guarded or match["kind"] == "capacity":
            message = f"{match['name']} is not the domain of a driver: the expression fails, and the pod stays Pending"
            kind = "capacity" if match["name"] == "memory" else match["kind"]
            report.error(path, message, f"Write device.{kind}['{DRIVER}'].{match['name']}.")
    if guarded:
        return
    known = _ATTRIBUTES[name] if name else set().union(*_ATTRIBUTES.values())
    for domain, attribute in _ATTRIBUTE.findall(expression):
        if domain in _CLASSES - {DRIVER}:
            report.error(
                path,
                f"{domain} is a class and not a driver, so no device has attributes of it: the expression fails, and the pod stays Pending",
                f"Write device.attributes['{DRIVER}'].",
            )
        elif domain == DRIVER and attribute not in known and not _PARTITION.fullmatch(attribute):
            message = f"devices of {name or 'the driver'} have no attribute {attribute}: the expression fails, and the pod stays Pending"
            report.error(path, message, near(attribute, known))


def _memory(name: str, request: Mapping[str, Any], where: str, report: Report) -> None:
    asked = mapping(mapping(request.get("capacity")).get("requests"))
    if name == GPU and "memory" in asked:
        report.note(
            f"{where}.capacity.requests.memory",
            "it takes a whole GPU, unless the driver runs with featureGates.ConsumableShares (alpha) and consumableShares: memory, and Kubernetes "
            "1.34 and 1.35 with the feature gate DRAConsumableCapacity; 1.34 then gives shares of the first GPU of a node only; nothing enforces the amount",
            "Render the pool with nvidia_sharing_backend: dra and nvidia_sharing_memory_slice, which sets them.",
        )


def _on_node(
    name: str, profiles: set[str], request: Mapping[str, Any], where: str, node: LintedNode, report: Report
) -> None:
    there = Counter(node.profiles)
    for profile in sorted(profiles - set(there)):
        has = ", ".join(f"{count} x {one}" for one, count in sorted(there.items())) or "none"
        message = f"the node has no MIG device of the profile {profile}: the pod stays Pending"
        report.error(where, message, f"Its MIG devices: {has}. Add the profile to nvidia_mig_layout.")
    if name == GPU:
        most = len(node.without_mig)
    elif profiles:
        most = sum(there[profile] for profile in profiles)
    else:
        most = sum(there.values())
    count = request.get("count", 1)
    if isinstance(count, int) and not profiles - set(there) and count > most:
        what = "GPUs without MIG" if name == GPU else "such MIG devices"
        message = f"it asks for {count}, and the node has {most} {what}: the pod stays Pending"
        report.error(join(where, "count"), message, "Ask for fewer, or describe the node's GPUs in another way.")


def _constraints(devices: Mapping[str, Any], classes: set[str], path: str, report: Report) -> None:
    """Check qualified names of attributes; what all requests of the constraint have is not traced."""
    known = set().union(*(_ATTRIBUTES[name] for name in classes if name in _ATTRIBUTES))
    for number, entry in enumerate(sequence(devices.get("constraints"))):
        for key in ("matchAttribute", "distinctAttribute"):
            domain, _slash, attribute = str(mapping(entry).get(key) or "").partition("/")
            if domain == DRIVER and known and attribute not in known and not _PARTITION.fullmatch(attribute):
                message = f"no device that is claimed here has the attribute {attribute}, so no devices fulfil it: the pod stays Pending"
                report.error(f"{path}.constraints[{number}].{key}", message, near(attribute, known))


def _by_class(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield where containers of a pod, or of a workload's template, ask for devices by a class, and the class."""
    spec, path = mapping(document.get("spec")), "spec"
    for key in ("jobTemplate", "template"):
        if isinstance(spec.get(key), Mapping):
            spec, path = mapping(mapping(spec[key]).get("spec")), f"{path}.{key}.spec"
    for kind in ("initContainers", "containers"):
        for number, container in enumerate(sequence(spec.get(kind))):
            limits = mapping(mapping(mapping(container).get("resources")).get("limits"))
            for name in limits:
                if isinstance(name, str) and name.startswith(_BY_CLASS):
                    yield f"{path}.{kind}[{number}].resources.limits['{name}']", name[len(_BY_CLASS) :]


def _shared_by(entries: Sequence[Any], path: str, classes: Mapping[str, str], report: Report) -> None:
    """Check C(config) of a claim with C(classes) by request, or of a DeviceClass: how pods share devices, which the driver reads when it prepares the claim."""
    for number, entry in enumerate(entries):
        where = f"{path}.config[{number}]"
        opaque = mapping(mapping(entry).get("opaque"))
        if opaque.get("driver") != DRIVER:
            continue
        place, parameters = f"{where}.opaque.parameters", mapping(opaque.get("parameters"))
        kind = str(parameters.get("kind"))
        if parameters.get("apiVersion") != _GROUP or kind not in _CLASS_OF:
            said = f"{parameters.get('apiVersion')}, {kind}"
            message = f"{said} is nothing that the driver reads: {_STAYS}"
            report.error(place, message, f"Write {_GROUP}, {near(kind, set(_CLASS_OF))}")
            continue
        named = sequence(mapping(entry).get("requests")) or list(classes)
        # A request FIRST/ALTERNATIVE is one of firstAvailable, whose classes may differ.
        for one in named:
            of = classes.get(str(one), "")
            if of in _CLASS_OF.values() and of != _CLASS_OF[kind]:
                report.error(
                    f"{place}.kind",
                    f"{kind} is not for the devices of {of}, which {one} requests: {_STAYS}",
                    f"Use {next(one for one, name in _CLASS_OF.items() if name == of)}.",
                )
        fields = _TABLE["parameters"][kind]["fields"]
        _known(parameters, fields, place, report)
        if fields and "sharing" in parameters:
            _sharing(kind, mapping(parameters["sharing"]), f"{place}.sharing", report)


def _sharing(kind: str, sharing: Mapping[str, Any], path: str, report: Report) -> None:
    if kind == "MigDeviceConfig" and "timeSlicingConfig" in sharing:
        message = f"MIG devices have no time slice of their own: {_STAYS}"
        report.error(f"{path}.timeSlicingConfig", message, "Remove it: pods share a MIG device by naming one claim.")
    strategies, strategy = _TABLE["strategies"], str(sharing.get("strategy"))
    if strategy not in strategies:
        report.error(
            f"{path}.strategy", f"{strategy} is no strategy of the driver: {_STAYS}", near(strategy, strategies)
        )
        return
    gate, section, mode = strategies[strategy]
    for _gate, other, _mode in strategies.values():
        if other != section and other in sharing and kind == "GpuConfig":
            report.error(
                f"{path}.{other}", f"it does not belong to {strategy}: {_STAYS}", "Remove it, or change the strategy."
            )
    report.note(
        f"{path}.strategy",
        f"{strategy} needs the driver's feature gate {gate} (alpha, off by default); without it {_STAYS}",
        f"Render the pool with nvidia_sharing_backend: dra and nvidia_sharing_mode: {mode}, which sets it.",
    )
    settings = mapping(sharing.get(section))
    if section == "timeSlicingConfig" and section in sharing and settings.get("interval") is None:
        message = "it has no interval, which the driver's check of it dereferences: the driver's pod crashes"
        report.error(f"{path}.{section}", message, f"Set interval, or remove {section}.")
    interval = settings.get("interval") or "Default"
    if interval not in _TABLE["intervals"]:
        message = f"{interval} is no interval of the driver: {_STAYS}"
        report.error(f"{path}.{section}.interval", message, near(str(interval), _TABLE["intervals"]))
    percentage = settings.get("defaultActiveThreadPercentage", 100)
    if not isinstance(percentage, int) or isinstance(percentage, bool) or not 0 <= percentage <= 100:
        message = f"{percentage} must be an integer from 0 to 100: {_STAYS}"
        report.error(f"{path}.{section}.defaultActiveThreadPercentage", message, "Write such as 25.")


def _known(values: Mapping[str, Any], known: Any, path: str, report: Report) -> None:
    """Check that the driver knows fields, and those below them; C(known) is null where nothing is checked."""
    for key, inner in values.items() if known else ():
        if key in known:
            _known(mapping(inner), known[key], join(path, key), report)
        else:
            message = f"the driver knows no such field, and its decoder is strict: {_STAYS}"
            report.error(join(path, str(key)), message, near(str(key), known))
