# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From the facts of a host that somebody else set up to the variables that describe it as it is. Pure.

The planners of C(site) decide whether a description is right: of the values that a fact leaves open, the first with which a stage has
nothing to do is taken. A stage that no value describes is left alone, and what it would do is a difference that is named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Callable

from ...module_utils._boards.cards import cards_of_machines, cards_on_bus
from ...module_utils._driver.packages import versioned
from ...module_utils._driver.refusals import FOREIGN
from ...module_utils._facts_view import Facts
from ...module_utils._formats.documents import read_yaml
from ...module_utils._formats.driver_versions import branch_of, is_driver_version
from ...module_utils._formats.imex import HOST, MASKED, NODES, UNMANAGED
from ...module_utils._formats.imex import VARIABLE as IMEX
from ...module_utils._formats.slurm_files import elsewhere, expanded, lines_of
from ...module_utils._health.metric_units import METRICS_TIMER
from ...module_utils._injection import CDI, ENVVAR, METHODS, VARIABLE, VOLUME_MOUNTS
from ...module_utils._mig import mig_parted
from ...module_utils._mig.desired import desired_layout
from ...module_utils._mig.model import DesiredGpu
from ...module_utils._mig.state import gpus_with_pci
from ...module_utils._mig.state import present as now
from ...module_utils._plan import Refused, StagePlan
from ...module_utils._runtime.stage import refuse_elsewhere
from ...module_utils._runtimes import DISTRIBUTIONS, RUNTIMES
from .adopt_cluster import ServedConfiguration
from .adopt_inventory import NO_IMEX, Adopted, Found

Stages = Mapping[str, Callable[[Facts, Mapping[str, Any]], StagePlan]]
#: A Docker host has containerd too.
_CONTAINERD_AND_DOCKER = ("containerd", "docker")
_OTHERS = (name for name in RUNTIMES if name not in (*DISTRIBUTIONS, *_CONTAINERD_AND_DOCKER))
#: In the order in which they are looked at: a node of k3s brings its own.
_ORDER = (*DISTRIBUTIONS, *_OTHERS, *_CONTAINERD_AND_DOCKER)
STRATEGIES = ("mixed", "single")


@dataclass
class _Reader:
    facts: Facts
    stages: Stages
    defaults: Mapping[str, Any]
    variables: dict[str, Any] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def left(self, names: Iterable[str], given: Mapping[str, Any]) -> list[str]:
        """Return what the stages would still do, or refuse, a line each."""
        lines: list[str] = []
        for name in names:
            try:
                plan = self.stages[name](self.facts, {**self.defaults, **self.variables, **given})
            except Refused as refusal:
                lines.append(refusal.message)
                continue
            found = [*map(str, plan.steps), *([plan.unknown] if plan.unknown else [])]
            found += [refusal.message for refusal in plan.refusals]
            lines += found or ([f"run the stage {name}"] if plan.needed else [])
        return lines

    def refused(self, names: Iterable[str], given: Mapping[str, Any]) -> bool:
        """Return whether one of the stages refuses what is written."""
        desired = {**self.defaults, **self.variables, **given}
        try:
            return any(self.stages[name](self.facts, desired).refusals for name in names)
        except Refused:
            return True

    def choose(self, names: Sequence[str], candidates: Iterable[dict[str, Any]]) -> tuple[dict[str, Any], list[str]]:
        """Return the first candidate with which the stages have nothing to do, or the one that leaves the least, and what it leaves."""
        best: tuple[dict[str, Any], list[str]] | None = None
        for candidate in candidates:
            left = self.left(names, candidate)
            if best is None or len(left) < len(best[1]):
                best = (candidate, left)
            if not left:
                break
        return best or ({}, [])


def adopt(
    host: str,
    facts: Facts,
    served: ServedConfiguration,
    stages: Stages,
    defaults: Mapping[str, Any],
    runtime: str = "",
    rack: Found = NO_IMEX,
) -> Adopted:
    """Return the description of one host.

    :param facts: the facts document, with C(mig_parted).
    :param defaults: the variables of all host roles as they are where nobody sets them.
    :param runtime: the container runtime that the variables of another tool name; looked at before the others.
    :raises Refused: the facts have something that is of their types, and does not exist, such as a MIG profile.
    """
    reader = _Reader(facts, stages, {**defaults, NODES: list(rack.nodes)})
    boards = Counter(one.board or "" for one in facts.gpus or cards_on_bus(facts))
    known = {} if "" in boards else dict(sorted(boards.items()))
    if known:
        reader.variables["gpu_facts_gpus"] = [{"board": board, "count": count} for board, count in known.items()]
    else:
        reader.notes.append(
            "a board is not in the table of boards, so gpu_facts_gpus is not written: keep the facts of this host"
        )
    machines = cards_of_machines(facts)
    if machines:
        # How many, and not which: hosts of one pool may have them in other slots.
        reader.variables["gpu_facts_passthrough"] = len(machines)
    _driver(reader, served, rack)
    _toolkit(reader, served, runtime)
    _mig(reader, served)
    _sharing(reader, served)
    _boot(reader)
    _slurm(reader, host)
    reader.differences += served.differences
    reader.notes += served.notes
    group = rack.group if reader.variables.get(IMEX) == HOST else ""
    return Adopted(host, known, reader.variables, tuple(reader.differences), tuple(reader.notes), group)


def _driver(reader: _Reader, served: ServedConfiguration, rack: Found) -> None:
    driver = reader.facts.driver
    installed = sorted(set(versioned(driver.packages or {}).values()))
    version = driver.loaded_version or driver.on_disk_version or next(reversed(installed), None)
    unmanaged = {"nvidia_driver_state": "unmanaged"}
    if version is None and not served.driver:
        # What such a host is to become, the roles' defaults say.
        reader.differences.append(f"driver: none is installed. Site would: {_joined(reader.left(['driver'], {}))}")
        return
    if driver.source not in ("nvidia", "distribution") or not is_driver_version(str(version)):
        reader.variables.update(unmanaged)
        how = FOREIGN.get(str(driver.source), FOREIGN["outside"])[0]
        how = f"packages of {driver.vendor}" if driver.vendor else how
        if served.driver:
            which = f"driver {version}" if version else "the driver"
            reader.notes.append(f"the GPU Operator's container installs {which}: nvidia_driver_state is unmanaged")
        else:
            reader.differences.append(
                f"driver: {version} was installed by {how}, so it is left alone (nvidia_driver_state: unmanaged). "
                "Uninstall it the way it was installed before you let site install packages."
            )
        return
    daemon = bool(driver.persistence_daemon.active)
    if not daemon and any(gpu.persistence_mode for gpu in reader.facts.gpus or ()):
        reader.notes.append(
            "persistence mode is on without nvidia-persistenced, so nvidia_driver_persistence is false: site leaves the mode as it is, and a reboot "
            "or a reload of the driver turns it off. With true, site has the daemon run."
        )
    fixed = {
        "nvidia_driver_branch": str(branch_of(str(version))),
        "nvidia_driver_source": driver.source,
        "nvidia_driver_persistence": daemon,
        **({"nvidia_driver_flavour": driver.flavour} if driver.flavour else {}),
    }
    # The hosts of a rack need one version, and so its number.
    of_rack = {UNMANAGED: {}, HOST: {IMEX: HOST, "nvidia_driver_version": str(version)}, MASKED: {IMEX: MASKED}}
    candidates = (
        {
            **fixed,
            **of_rack[mode],
            "nvidia_driver_variant": variant,
            "nvidia_driver_hold": hold,
            "nvidia_driver_fabric_manager": fabric,
        }
        for mode, fabric, variant, hold in product(
            dict.fromkeys((rack.mode, UNMANAGED)), ("auto", "never"), ("compute", "full"), (True, False)
        )
    )
    found, left = reader.choose(["driver"], candidates)
    reader.variables.update(found)
    if rack.difference:
        reader.differences.append(f"IMEX: it is left alone ({IMEX}: {UNMANAGED}): {rack.difference}.")
    elif not left and found.get(IMEX, UNMANAGED) != rack.mode:
        would = reader.left(["driver"], of_rack[rack.mode])
        reader.differences.append(
            f"IMEX: it is left alone ({IMEX}: {UNMANAGED}). With {rack.mode} site would: {_joined(would)}"
        )
    if left and not driver.loaded_version and not reader.refused(["driver"], {}):
        reader.differences.append(f"driver: {version} is installed and not loaded. Site would: {_joined(left)}")
    elif left:
        reader.variables.update(unmanaged)
        reader.differences.append(
            f"driver: {version} is left alone (nvidia_driver_state: unmanaged). With nvidia_driver_state: present site would: {_joined(left)}"
        )


def _toolkit(reader: _Reader, served: ServedConfiguration, preferred: str) -> None:
    toolkit = reader.facts.toolkit
    runtimes = reader.facts.runtimes or {}
    configured = [name for name in _ORDER if name in runtimes and runtimes[name].nvidia]
    configured.sort(key=lambda name: name != preferred)
    accepted = (toolkit.accept_envvar_unprivileged, toolkit.accept_volume_mounts)
    methods: dict[tuple[Any, Any], str] = {(True, False): ENVVAR, (False, True): VOLUME_MOUNTS, (False, False): CDI}
    injection = methods.get(accepted)
    fixed = {"nvidia_toolkit_version": toolkit.version} if toolkit.version else {}
    candidates = (
        {
            **fixed,
            "nvidia_toolkit_runtime": name,
            "nvidia_toolkit_default_runtime": runtimes[name].default_runtime == "nvidia",
            VARIABLE: method,
            "nvidia_toolkit_cdi": cdi,
            "nvidia_toolkit_hold": hold,
        }
        for name, method, cdi, hold in product(
            configured, (injection,) if injection else METHODS, (True, False), (True, False)
        )
    )
    found, left = reader.choose(["toolkit", "runtime"], candidates)
    if not found and not served.toolkit and (toolkit.packages or not reader.facts.gpus):
        # Nobody has finished this host: what it is to become, the roles' defaults say.
        order = _ORDER if reader.facts.kubelet.installed else (*_ORDER[:-2], "docker", "containerd")
        name = next((name for name in (preferred, *order) if name in runtimes), None)
        elsewhere = refuse_elsewhere(reader.facts, name) if name else None
        if elsewhere:
            reader.variables["nvidia_toolkit_runtime"] = "none"
            reader.differences.append(f"toolkit: it is not set up. {elsewhere.message}")
            return
        if name is not None:
            wanted = [
                {"nvidia_toolkit_runtime": name, **version, **method}
                for version, method in product((fixed, {}), ({}, {VARIABLE: VOLUME_MOUNTS}))
            ]
            chosen = next((one for one in wanted if not reader.refused(("toolkit", "runtime"), one)), wanted[0])
            reader.variables.update(chosen)
            left = reader.left(["toolkit", "runtime"], {})
            reader.differences.append(f"toolkit: it is not set up for {name}. Site would: {_joined(left)}")
            return
    if left and served.toolkit:
        # Beside the operator's toolkit the host needs no specification, and the one that takes its place does.
        found = {name: value for name, value in found.items() if name != "nvidia_toolkit_cdi"}
    reader.variables.update(found)
    if found and not left:
        return
    reader.variables["nvidia_toolkit_runtime"] = "none"
    if served.toolkit:
        reader.notes.append(
            "the GPU Operator's container installs the container toolkit: nvidia_toolkit_runtime is none"
        )
    elif not found:
        reader.notes.append("no container runtime of the host has the runtime nvidia: nvidia_toolkit_runtime is none")
    else:
        name = found["nvidia_toolkit_runtime"]
        reader.differences.append(
            f"toolkit: it is left alone (nvidia_toolkit_runtime: none). With nvidia_toolkit_runtime: {name} site would: {_joined(left)}"
        )


def _mig(reader: _Reader, served: ServedConfiguration) -> None:
    gpus = [gpu for gpu in reader.facts.gpus or () if gpu.mig.supported]
    total = len(reader.facts.gpus or ())
    present = {gpu.index: now(gpu) or DesiredGpu(False) for gpu in gpus}
    if not any(one.enabled for one in present.values()):
        reader.variables.update({"nvidia_mig_strategy": served.strategy or "none", "nvidia_mig_layout": []})
        if reader.left(["mig"], {}):
            reader.variables["nvidia_mig_strategy"] = "none"
        _compare_mig_parted(reader, present, "mixed")
        return
    layout = mig_parted.layout_of(present, total)
    wanted = [served.strategy] if served.strategy in STRATEGIES else list(STRATEGIES)
    candidates = (
        {"nvidia_mig_strategy": strategy, "nvidia_mig_layout": layout, "nvidia_mig_restore": restore}
        for strategy, restore in product(wanted, (True, False))
    )
    found, left = reader.choose(["mig"], candidates)
    reader.variables.update(found)
    if left:
        # With none site would switch MIG off.
        strategy = served.strategy if served.strategy in STRATEGIES else "mixed"
        reader.variables.update({"nvidia_mig_strategy": strategy, "nvidia_mig_layout": []})
        off = reader.left(["mig"], {})
        alone = f"the cluster offers whole GPUs, so site would: {_joined(off)}" if off else "the layout is left alone"
        reader.differences.append(f"mig: {alone} (nvidia_mig_layout: []). With {layout} site would: {_joined(left)}")
    elif not found["nvidia_mig_restore"] and served.mig_manager:
        reader.notes.append(
            "the GPU Operator's MIG manager restores the MIG layout, so nvidia_mig_restore is false: one owner is enough."
        )
    elif not found["nvidia_mig_restore"]:
        enabled = reader.facts.mig_parted and reader.facts.mig_parted.enabled
        reader.notes.append(
            "nvidia-mig-manager.service restores the MIG layout at boot, so nvidia_mig_restore is false. Disable that service before you set it to true."
            if enabled
            else "nothing restores the MIG layout at boot. Set nvidia_mig_restore: true to have it recorded by site and restored at boot."
        )
    _compare_mig_parted(reader, present, str(found["nvidia_mig_strategy"]))


def _compare_mig_parted(reader: _Reader, present: Mapping[int, DesiredGpu], strategy: str) -> None:
    """Name what nvidia-mig-parted would make of the GPUs at the next boot, where that is not what they are now."""
    found = reader.facts.mig_parted
    label = found and found.selected
    if not found or not found.enabled or not label:
        return
    where = f"mig: {found.config_path}, configuration {label}, which nvidia-mig-manager.service applies at boot"
    try:
        document = read_yaml(found.config or "")
        made = desired_layout(
            {"mig_parted": document, "label": label}, strategy, gpus_with_pci(reader.facts), disruption="force"
        ).gpus
    except (Refused, ValueError) as error:
        reader.differences.append(f"{where}, cannot be read: {getattr(error, 'message', None) or error}")
        return
    other = [
        f"GPU {index} {made[index]} in place of {one}" for index, one in present.items() if made.get(index, one) != one
    ]
    if other:
        reader.differences.append(f"{where}, makes {', '.join(other)}. The inventory describes what the GPUs have now.")


def _sharing(reader: _Reader, served: ServedConfiguration) -> None:
    none = {"nvidia_sharing_mode": "none"}
    found, left = reader.choose(["sharing"], [dict(served.sharing)] if served.sharing else [none])
    reader.variables.update(found)
    if left and reader.facts.gpus:
        reader.differences.append(f"sharing: site would: {_joined(left)}")
    recorded = reader.facts.recorded.sharing
    daemons = reader.facts.mps or ()
    if daemons and not recorded and served.sharing.get("nvidia_sharing_mode") != "mps":
        where = ", ".join(str(daemon.pipe_directory or "an unknown directory") for daemon in daemons)
        reader.differences.append(
            f"sharing: an MPS daemon that no variable describes serves {where}. "
            "docs/kubernetes.md says how to describe a pool with MPS; stop the daemon when you do."
        )


def _boot(reader: _Reader) -> None:
    part = reader.facts.host_program
    directory, timer = part.metrics_directory, (part.units or {}).get(METRICS_TIMER)
    if directory and timer and timer.state == "enabled":
        reader.variables.update({"nvidia_health_metrics": True, "nvidia_health_metrics_directory": directory})
    left = reader.left(["boot"], {})
    if left:
        reader.differences.append(f"boot: site would: {_joined(left)}")


def slurm_node(facts: Facts, host: str) -> str:
    """Return the name of a host in the slurm.conf that it has; empty where it is no node there."""
    mine = (facts.host.name or host).partition(".")[0]
    for line in lines_of(_site_of(facts)):
        nodes = expanded(line.get("nodename", ""))
        if mine in nodes:
            return mine
        if len(nodes) == 1 and line.get("nodehostname") == mine:
            return nodes.pop()
    return ""


def _site_of(facts: Facts) -> Mapping[str, str]:
    """Return the site's own files of Slurm, where they were read."""
    return (facts.slurm and facts.slurm.site) or {}


def _slurm(reader: _Reader, host: str) -> None:
    lines, node = lines_of(_site_of(reader.facts)), slurm_node(reader.facts, host)
    names = [line["clustername"] for line in lines if "clustername" in line]
    if not names or not node:
        if lines:
            reader.differences.append(
                "slurm: slurm.conf has no ClusterName, or no node of this host: it is not described"
            )
        return
    controllers = [line["slurmctldhost"].partition("(")[0] for line in lines if "slurmctldhost" in line]
    reader.variables["gpu_slurm_cluster"] = names[0].lower().replace("_", "-")
    reader.variables["gpu_slurm_controllers"] = controllers
    found = [refusal.message.rstrip(".") for refusal in elsewhere(_site_of(reader.facts), [node])]
    refused = f" It refuses the host until this is gone: {_joined(found)}" if found else ""
    reader.differences.append(
        f"slurm: site would bring node {node} the rendered files, which the site's own have to include (docs/scenarios/slurm.md).{refused}"
    )


def _joined(lines: Sequence[str]) -> str:
    return "; ".join(line.rstrip(".") for line in lines) + "."
