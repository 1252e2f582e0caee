# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Faults of a host, each as facts and as records of the kernel's log: what the metrics, the alerts and docs/runbooks.md are tested with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import AnswerFacts, Xid
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.checks import CHECKS
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.metrics import (
    ErrorCounts,
    counted,
    expose,
    readings,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.report import Evidence, HealthReport, evaluate
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.xid import distinct, errors_in
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host.write_metrics import drift
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import seen
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._health.hosts import healthy_facts

_ANSWERS = AnswerFacts(0, "GPU 0: NVIDIA H100")


@dataclass(frozen=True)
class Fault:
    """One fault.

    :param check: the check of C(verify) that tells of it.
    :param spoil: makes the facts of a healthy host those of one with the fault.
    :param log: records of the kernel's log.
    :param nvidia_smi: how nvidia-smi ended.
    """

    check: str
    spoil: Callable[[dict[str, Any]], None] = lambda _facts: None
    log: str = ""
    nvidia_smi: AnswerFacts = _ANSWERS

    def evidence(self) -> Evidence:
        facts = healthy_facts()
        facts["host_program"] = {"version": "0.1.0"}
        for gpu in facts["gpus"]:
            gpu["fabric"] = {"state": "completed", "status": 0, "degraded": [], "summary": "healthy"}
            gpu["errors"].update(remapped_correctable=0, remapped_uncorrectable=0)
        self.spoil(facts)
        errors = distinct(
            error
            for _number, error in errors_in(self.log, [(card["kind"], card["address"]) for card in facts["pci"] or ()])
        )
        xids = [error for error in errors if isinstance(error, Xid)]
        return Evidence(seen(facts), self.nvidia_smi, xids, [error for error in errors if not isinstance(error, Xid)])

    def report(self) -> HealthReport:
        return evaluate(CHECKS, self.evidence())

    def text(self, now: float = 0.0) -> str:
        """What the host program writes C(now)."""
        evidence = self.evidence()
        counts = counted(ErrorCounts("boot"), self.log, evidence.facts.pci or ())
        return expose(readings(evidence, self.report(), counts, now, 1.25, drift(evidence.facts)))


def record(number: int, text: str) -> str:
    """Return a record as /dev/kmsg gives it."""
    return f"4,{number},{number}000,-;{text}\n"


def _driver(facts):
    facts["driver"]["library_version"] = "580.178.04"


def _no_nvml(facts):
    facts["nvml"] = {"available": False, "code": "no_answer", "reason": "no answer within 60 s"}
    facts["gpus"] = None


def _lost(facts):
    facts["gpus"][1] = {"index": 1, "pci_address": facts["gpus"][1]["pci_address"], "lost": True}


def _recovery(facts):
    facts["gpus"][0]["recovery_action"] = "gpu_reset"


def _remap_failed(facts):
    facts["gpus"][0]["errors"].update(remap_failed=True, remapped_uncorrectable=512)


def _remap_pending(facts):
    facts["gpus"][0]["errors"]["remap_pending"] = True


def _fabric(facts):
    facts["fabric"]["state"] = "in_progress"
    facts["gpus"][0]["fabric"] = {"state": "in_progress", "status": None, "degraded": None, "summary": None}


def _mig(facts):
    facts["gpus"][0]["gpu_instances"] = []


def _mps(facts):
    facts["mps"][0]["responds"] = False


def _compute_mode(facts):
    facts["gpus"][0]["compute_mode"] = "exclusive_process"


def _next_kernel(facts):
    facts["driver"]["next_kernel"]["version"] = None


def _settings(facts):
    facts["gpus"][0]["settings"]["power_w"]["limit"] = 700


def _runtime(facts):
    facts["runtimes"]["containerd"]["active"] = False


def _cdi(facts):
    facts["cdi"][0]["missing"] = ["MIG-1"]


HEALTHY = Fault("none")
#: By the alert that tells of it.
FAULTS = {
    "GpufleetDriverVersionsDiffer": Fault("driver", _driver),
    "GpufleetNextKernelWithoutDriver": Fault("next_kernel", _next_kernel),
    "GpufleetNvidiaSmiFails": Fault("nvidia_smi", nvidia_smi=AnswerFacts(None, "no answer within 60 s")),
    "GpufleetNvmlNotRead": Fault("nvml", _no_nvml),
    "GpufleetGpuLost": Fault("nvml", _lost),
    "GpufleetRecoveryNeeded": Fault("recovery", _recovery),
    "GpufleetXid": Fault("xid", log=record(7, "NVRM: Xid (PCI:0000:18:00): 119, pid=1, Timeout waiting for RPC")),
    "GpufleetSxid": Fault(
        "xid", log=record(9, "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30 LTSSM Fault Up")
    ),
    "GpufleetRemapFailed": Fault("memory", _remap_failed),
    "GpufleetRemapPending": Fault("memory", _remap_pending),
    "GpufleetFabricNotReady": Fault("fabric", _fabric),
    "GpufleetMigNotAsRecorded": Fault("stage mig", _mig),
    "GpufleetMpsNotServing": Fault("mps", _mps),
    "GpufleetComputeModeNotAsRecorded": Fault("stage sharing", _compute_mode),
    "GpufleetSettingsNotAsRecorded": Fault("stage settings", _settings),
    "GpufleetRuntimeDown": Fault("runtime", _runtime),
    "GpufleetContainersNotServed": Fault("stage toolkit", _cdi),
}
