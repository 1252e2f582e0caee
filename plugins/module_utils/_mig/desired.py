# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The user's C(nvidia_mig_layout): from entries that select GPUs to what each GPU is to be.

The layout is the name of a predefined layout, or a list of entries. The first entry that selects a GPU decides; GPUs
that no entry selects are left alone.

    nvidia_mig_layout:
      - device_filter: NVIDIA A30
        layout: all-balanced
      - devices: [0, "0000:3b:00.0"]
        enabled: false
      - devices: all
        instances: {3g.40gb: 1, 1g.10gb: 2, 1c.2g.20gb: 2}

A file of nvidia-mig-parted is a layout too: C({mig_parted: <its content>, label: <one of its configurations>}).

An entry with C(node) (or the layout C({node: {...}})) gives totals over the GPUs that it selects; the planner places
them on GPUs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from .._boards.board import GpuInstanceProfile
from .._boards.cards import board_of
from .._gpu_facts import GpuFacts
from .._plan import Refused
from . import mig_parted
from .geometry import geometry, refuse_infeasible
from .layouts import ALL_DISABLED, check_against_strategy, check_strategy, matches, predefined_layout, select
from .model import DesiredGpu, DesiredInstance, ProfileName, describe, parse, resolve
from .nodes import distribute
from .plan import DISRUPTIONS, REFUSE, named_as
from .state import has_mig, instances_of, node_gpu, profiles_of

LAYOUT = "nvidia_mig_layout"
#: More than any host has, which could keep a planner busy for ever: 64 GPUs of 8.
_MOST_INSTANCES = 512
_KEYS = ("devices", "device_filter", "enabled", "layout", "instances", "node")
#: What happens to MIG on GPUs that no entry selects.
LEAVE, DISABLE = "leave", "disable"


class Unread(Refused):
    """A layout selects a GPU of which NVML does not tell what a change needs."""


class DesiredLayout(NamedTuple):
    """What the GPUs of a host are to be.

    :ivar gpus: by index.
    :ivar unselected: indices of GPUs that no entry selects, or that have no MIG; they are left alone.
    :ivar left_on: indices of GPUs that no entry selects and that lose MIG.
    """

    gpus: dict[int, DesiredGpu]
    unselected: tuple[int, ...]
    left_on: tuple[int, ...] = ()


def unselected_policy(strategy: str, backend: str | None) -> str:
    """Return what happens to MIG on GPUs that no entry selects: a cluster with the strategy C(none) would offer them as whole GPUs, which no CUDA
    program can use. The DRA driver makes instances, and switches MIG, by itself.
    """
    return DISABLE if strategy == "none" and backend != "dra" else LEAVE


def desired_of(variables: Mapping[str, Any], gpus: Sequence[GpuFacts]) -> DesiredLayout:
    """Return what the variables of a host make of its GPUs: its layout, and no MIG on the others where L(unselected_policy) says so.

    :raises Refused: for everything that cannot be met.
    :raises Unread: the state of a GPU is not known that would change.
    """
    disruption = str(variables.get("nvidia_mig_disruption") or REFUSE)
    if disruption not in DISRUPTIONS:
        thing = "nvidia_mig_disruption"
        raise Refused(thing, f"{disruption!r} is not a disruption policy", f"Use {', '.join(DISRUPTIONS)}.")
    strategy = str(variables.get("nvidia_mig_strategy") or "none")
    found = desired_layout(variables.get(LAYOUT), strategy, gpus, disruption)
    off_elsewhere = _policy(variables) == DISABLE
    left_on = [gpu for gpu in gpus if gpu.index in found.unselected and _is_on(gpu)] if off_elsewhere else []
    _refuse_unread(left_on)
    off = {gpu.index: DesiredGpu(False) for gpu in left_on}
    return DesiredLayout(
        dict(sorted({**found.gpus, **off}.items())),
        tuple(one for one in found.unselected if one not in off),
        tuple(off),
    )


def may_switch_off(variables: Mapping[str, Any]) -> bool:
    """Return whether L(desired_of) may switch MIG off on a GPU, as far as it can be said without planning; what is no layout switches nothing."""
    try:
        chosen = [entry for _path, entry in entries(variables.get(LAYOUT))]
    except Refused:
        return False
    stays = all(entry.get("enabled", True) and entry.get("layout") != ALL_DISABLED for entry in chosen)
    return not stays or any("node" in entry for entry in chosen) or _policy(variables) == DISABLE


def _policy(variables: Mapping[str, Any]) -> str:
    strategy = str(variables.get("nvidia_mig_strategy") or "none")
    default = unselected_policy(strategy, variables.get("nvidia_sharing_backend"))
    return str(variables.get("nvidia_mig_unselected") or default)


def _is_on(gpu: GpuFacts) -> bool:
    """Return whether MIG is on, or will be from the next reset or boot on."""
    return True in (gpu.mig.current, gpu.mig.pending)


def desired_layout(layout: Any, strategy: str, gpus: Sequence[GpuFacts], disruption: str = REFUSE) -> DesiredLayout:
    """Return what the layout makes of the GPUs of a host.

    :param layout: the user's C(nvidia_mig_layout); None or an empty list selects nothing.
    :param strategy: the user's C(nvidia_mig_strategy): C(none), C(single) or C(mixed).
    :param gpus: of the facts, with C(device_id) and C(subsystem_id) of C(pci) where known.
    :param disruption: the user's C(nvidia_mig_disruption); it matters for totals over a node only.
    :raises Refused: for everything that cannot be met, with the path into the user's variables.
    :raises Unread: it selects a GPU whose state is not known.
    """
    check_strategy(strategy)
    found: dict[int, DesiredGpu] = {}
    taken: list[GpuFacts] = []
    for path, entry in entries(layout):
        chosen = [gpu for gpu in _selected(entry, gpus, path) if gpu not in taken]
        _refuse_unread(chosen)
        capable = _capable(chosen, entry, path)
        taken += capable
        if "node" in entry:
            found.update(_desired_of_node(entry["node"], capable, f"{path}.node", disruption))
        else:
            alike: dict[tuple[GpuInstanceProfile, ...], DesiredGpu] = {}
            for gpu in capable:
                # Most GPUs of a host offer the same.
                offered = profiles_of(gpu)
                wanted = alike.get(offered) or _desired_gpu(entry, gpu, path, offered)
                alike[offered] = found[gpu.index] = wanted
                _check_feasible(wanted, gpu, offered, _where(entry, path))
    unselected = tuple(gpu.index for gpu in gpus if gpu.index not in found)
    check_against_strategy(strategy, found, [gpu for gpu in gpus if gpu.index in unselected])
    return DesiredLayout(dict(sorted(found.items())), unselected)


def entries(layout: Any) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the entries of a layout, each with its path. Raises Refused: for what is wrong whatever GPUs a host has."""
    if layout is None or (isinstance(layout, (list, str)) and not layout):
        return []
    if isinstance(layout, str):
        return [(LAYOUT, {"devices": "all", "layout": layout})]
    if isinstance(layout, Mapping) and "mig_parted" in layout:
        return _from_mig_parted(layout)
    if isinstance(layout, Mapping):
        return [(LAYOUT, _checked(layout, LAYOUT))]
    if not isinstance(layout, (list, tuple)):
        raise Refused(LAYOUT, f"a layout is a name or a list of entries, not {layout!r}", "For example: all-balanced.")
    return [(f"{LAYOUT}[{number}]", _checked(entry, f"{LAYOUT}[{number}]")) for number, entry in enumerate(layout)]


def _from_mig_parted(layout: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    for key in layout:
        if key not in ("mig_parted", "label"):
            raise Refused(f"{LAYOUT}.{key}", "there is no such key", "The only other key is label.")
    path = f"{LAYOUT}.mig_parted"
    found = mig_parted.read(layout["mig_parted"], path)
    label = layout.get("label", next(iter(found)) if len(found) == 1 else None)
    if label not in found:
        reason = (
            "it has several configurations, and none is chosen"
            if label is None
            else f"there is no configuration {label}"
        )
        raise Refused(f"{LAYOUT}.label", reason, f"Use one of {', '.join(found)}.")
    return [(f"{path}: mig-configs.{label}", _checked(entry, path)) for entry in found[label]]


def _checked(entry: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(entry, Mapping):
        raise Refused(path, f"every entry must be a mapping, not {entry!r}", f"The keys are {', '.join(_KEYS)}.")
    for key in entry:
        if key not in _KEYS:
            raise Refused(f"{path}.{key}", "there is no such key", f"The keys are {', '.join(_KEYS)}.")
    enabled = entry.get("enabled", True)
    if not isinstance(enabled, bool):
        raise Refused(f"{path}.enabled", f"{enabled!r} must be true or false", "")
    forms = [key for key in ("layout", "instances", "node") if key in entry]
    if len(forms) > 1:
        raise Refused(path, f"{' and '.join(forms)} exclude each other", "Keep one of them.")
    if not enabled and forms:
        raise Refused(path, f"{forms[0]} has no meaning with enabled: false", f"Remove enabled or {forms[0]}.")
    if enabled and not forms:
        reason = "the entry selects GPUs but sets nothing"
        raise Refused(path, reason, "Give it layout, instances or node, or enabled: false.")
    return entry


def _refuse_unread(chosen: Sequence[GpuFacts]) -> None:
    """Refuse to go on where NVML does not tell what a selected GPU is: it would be passed over, and the run report success. Raises Unread: there is one."""
    for gpu in chosen:
        if gpu.problem and gpu.mig.supported is not False:
            remedy = f"Check it with the module gpufleet.nvidia.health, or select other GPUs in {LAYOUT}."
            raise Unread(gpu.title, f"its MIG state cannot be read: {gpu.problem}", remedy)


def _selected(entry: Mapping[str, Any], gpus: Sequence[GpuFacts], path: str) -> list[GpuFacts]:
    chosen = select(entry.get("devices", "all"), gpus, f"{path}.devices")
    return [gpu for gpu in chosen if matches(entry.get("device_filter"), gpu, f"{path}.device_filter")]


def _capable(chosen: Sequence[GpuFacts], entry: Mapping[str, Any], path: str) -> list[GpuFacts]:
    """Return the chosen GPUs that have MIG; a GPU without it is passed over unless it was named, or its board has MIG and its driver says no."""
    capable = [gpu for gpu in chosen if has_mig(gpu)]
    off = not entry.get("enabled", True) or entry.get("layout") == "all-disabled"
    without = [gpu for gpu in chosen if gpu not in capable]
    if not without or off:
        return capable
    denied = ", ".join(f"{gpu.title}, {gpu.name}" for gpu in without if profiles_of(gpu))
    if denied:
        raise Refused(
            f"{path}.devices",
            f"the driver reports that MIG is not supported on {denied}, although the board has it",
            "A workstation board needs a VBIOS with MIG and its display mode set to compute (NVIDIA's displaymodeselector); a vGPU has no MIG. "
            "Otherwise select other GPUs, or set enabled: false.",
        )
    by_name = entry.get("devices", "all") != "all"
    if by_name or (not capable and entry.get("device_filter") is None):
        unread = [gpu for gpu in without if board_of(gpu) is None and not gpu.says("mig")]
        if unread:
            who = ", ".join(f"{gpu.title}, device {gpu.device_id}" for gpu in unread)
            reason = f"the table of boards does not have {who}: only its driver says which MIG profiles it has, and no driver answers"
            remedy = f"Run gpufleet.nvidia.site once with -e '{{\"{LAYOUT}\": []}}', which installs the driver, and then with the layout."
            raise Refused(f"{path}.devices", reason, remedy)
        who = ", ".join(f"{gpu.title}, {gpu.name or 'of an unknown board'}" for gpu in without)
        raise Refused(f"{path}.devices", f"no MIG on {who}", "Select other GPUs, or set enabled: false.")
    return capable


def _desired_gpu(
    entry: Mapping[str, Any], gpu: GpuFacts, path: str, offered: Sequence[GpuInstanceProfile]
) -> DesiredGpu:
    if not entry.get("enabled", True):
        return DesiredGpu(False)
    board = board_of(gpu)
    of = f"{gpu.title} ({gpu.name or (board.key if board else 'unknown board')})"
    if "layout" in entry:
        name = entry["layout"]
        if not isinstance(name, str):
            raise Refused(f"{path}.layout", f"{name!r} is not the name of a layout", "For example: all-balanced.")
        if name not in ("all-disabled", "all-enabled") and not offered:
            thing = f"{path}.layout"
            raise Refused(thing, f"nothing is known about the MIG profiles of {of}", "Install the driver first.")
        return predefined_layout(name, offered, _where(entry, path), of)
    return DesiredGpu(True, _instances(entry["instances"], offered, _where(entry, path), of))


def _where(entry: Mapping[str, Any], path: str) -> str:
    """Return the path of what an entry asks for."""
    if "layout" in entry:
        return path if path == LAYOUT else f"{path}.layout"
    return f"{path}.instances"


def _counts(instances: Any, path: str) -> list[tuple[ProfileName, int, str]]:
    if not isinstance(instances, Mapping) or not instances:
        remedy = "For MIG without instances use layout: all-enabled."
        raise Refused(path, "instances are counts by profile, such as {1g.10gb: 2}", remedy)
    found = []
    for name, count in instances.items():
        where = f"{path}['{name}']"
        if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= _MOST_INSTANCES:
            remedy = "Write the number of instances."
            raise Refused(where, f"{count!r} must be an integer from 0 to {_MOST_INSTANCES}", remedy)
        found.append((parse(name, where), count, where))
    if not any(count for _name, count, _where in found):
        raise Refused(path, "all counts are 0", "For MIG without instances use layout: all-enabled.")
    return found


def _instances(
    instances: Any, offered: Sequence[GpuInstanceProfile], path: str, of: str
) -> tuple[DesiredInstance, ...]:
    """Return the GPU instances that counts by profile mean. A plain profile is a GPU instance of its own. Compute instances that are smaller than
    their GPU instance share one as far as they fit: C({1c.3g.40gb: 3}) is one GPU instance, C({1c.3g.40gb: 4}) are two.
    """
    whole: list[DesiredInstance] = []
    parts: dict[str, list[int]] = {}
    slices: dict[str, int] = {}
    for name, count, where in _counts(instances, path):
        profile = resolve(name, offered, where, of)
        slices[profile.name] = profile.gpu_slices
        if name.compute_slices is None:
            whole += [DesiredInstance(profile.name, (profile.gpu_slices,))] * count
        else:
            parts.setdefault(profile.name, []).extend([name.compute_slices] * count)
    for profile_name, compute in parts.items():
        whole += [DesiredInstance(profile_name, group) for group in _pack(compute, slices[profile_name])]
    return tuple(sorted(whole))


def _pack(parts: Sequence[int], width: int) -> list[tuple[int, ...]]:
    """Put compute instances into as few GPU instances as possible. Widest first into the first that has room: the fewest for widths up to five
    slices, and wider profiles exist once on a GPU.
    """
    groups: list[list[int]] = []
    for part in sorted(parts, reverse=True):
        for group in groups:
            if sum(group) + part <= width:
                group.append(part)
                break
        else:
            groups.append([part])
    return [tuple(group) for group in groups]


def _check_feasible(desired: DesiredGpu, gpu: GpuFacts, offered: Sequence[GpuInstanceProfile], path: str) -> None:
    if not desired.instances:
        return
    if sorted(one.profile for one in named_as(instances_of(gpu), offered)) == [
        one.profile for one in desired.instances
    ]:
        return
    shape = geometry(tuple(offered))
    request = shape.request(desired.counts)
    if all(profile.placements for profile in offered if desired.counts[profile.name]) and not shape.layouts_of(request):
        raise refuse_infeasible(shape, request, path, f"{describe(desired.counts)} on {gpu.title}")


def _desired_of_node(totals: Any, gpus: Sequence[GpuFacts], path: str, disruption: str) -> dict[int, DesiredGpu]:
    if not gpus:
        raise Refused(path, "no GPU with MIG is selected", "Select GPUs with MIG.")
    counts: Counter[str] = Counter()
    for name, count, where in _counts(totals, path):
        if name.compute_slices is not None:
            raise Refused(where, "totals of a node count whole GPU instances", f"Write {name.gpu_instance}.")
        meant, missing = set(), None
        for gpu in gpus:
            try:
                meant.add(resolve(name, profiles_of(gpu), where, gpu.title).name)
            except Refused as refused:
                missing = refused
        if not meant and missing is not None:
            raise missing
        if len(meant) > 1:
            remedy = "Use device_filter."
            raise Refused(where, f"it means different profiles on these GPUs: {', '.join(sorted(meant))}", remedy)
        counts[meant.pop()] += count
    for gpu in gpus:
        offered = profiles_of(gpu)
        unplaced = [profile.name for profile in offered if counts[profile.name] and profile.placements is None]
        if unplaced or not offered:
            what = ", ".join(unplaced) or "its profiles"
            raise Refused(
                path,
                f"no source says where {gpu.title} places {what}",
                "Only its driver knows, while MIG is on: install the driver, apply nvidia_mig_layout: all-enabled once, and then the totals. "
                "Or write instances per GPU.",
            )
    nodes = [node_gpu(gpu) for gpu in gpus]
    return distribute(
        counts, [replace(one, current=named_as(one.current, one.profiles)) for one in nodes], disruption, path
    )


def variables_of(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is asked for. The layout of state C(original) is on the host. Raises Refused: the parameters contradict each other."""
    state, layout, strategy = parameters["state"], parameters["layout"], parameters["strategy"]
    if state == "original":
        if layout not in (None, "", []):
            raise Refused("state", "original takes its layout from the host", "Remove layout, or set state: present.")
        # The strategy with the fewest conditions: what was there served whoever used it then.
        layout, strategy = [], "mixed"
    elif state == "absent":
        if layout not in (None, "", [], "all-disabled"):
            thing = "state"
            raise Refused(thing, "absent switches MIG off and takes no layout", "Remove layout, or set state: present.")
        layout, strategy = "all-disabled", "none"
    elif layout is None:
        raise Refused("layout", "it is needed with state: present", "For example: all-balanced.")
    return {
        "nvidia_mig_layout": layout,
        "nvidia_mig_strategy": strategy,
        "nvidia_mig_unselected": parameters["unselected"] if state == "present" else LEAVE,
        "nvidia_mig_restore": parameters["record"] and state != "original",
        "nvidia_mig_disruption": parameters["disruption"],
        "nvidia_mig_reset": parameters["reset"],
        "nvidia_mig_reboot": parameters["reboot"] == "allow",
        "nvidia_mig_busy_instances": parameters["busy_instances"],
        "nvidia_mig_allocations": parameters["allocations"],
        "nvidia_mig_restart_services": [full_name(service) for service in parameters["restart_services"]],
    }


def full_name(service: str) -> str:
    """Return a service's unit: C(nvidia-dcgm) is C(nvidia-dcgm.service)."""
    return service if "." in service else f"{service}.service"
