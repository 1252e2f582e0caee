# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the driver itself asks for to bring a GPU back (NVML's recovery action), and what to do then."""

from __future__ import annotations

from dataclasses import dataclass

from .report import Evidence, Outcome, failed, passed, skipped

NONE = "none"


@dataclass(frozen=True)
class Recovery:
    """A recovery action in words.

    :param asked: what the driver asks for, as the end of a sentence.
    :param remedy: what to do.
    """

    asked: str
    remedy: str


#: By the name in the facts.
RECOVERIES = {
    "gpu_reset": Recovery("a reset", "Drain the host and reset the GPU (nvidia-smi --gpu-reset -i INDEX)"),
    "node_reboot": Recovery("a reboot of the host", "Drain and reboot the host"),
    "drain_p2p": Recovery(
        "the end of peer-to-peer traffic", "Stop the programs that use several GPUs over NVLink; then check again"
    ),
    "drain_and_reset": Recovery(
        "a drain and a reset",
        "Start no new program on the GPU, wait until those on it have ended, and reset it (nvidia-smi --gpu-reset -i INDEX)",
    ),
    "recover_imex_domain": Recovery(
        "the recovery of its IMEX domain", "Restart nvidia-imex on the nodes of the IMEX domain"
    ),
    "bus_reset": Recovery("a reset of its PCI bus", "Drain the host and reset the GPU's PCI bus, or reboot the host"),
    "system_reboot": Recovery("a reboot of the whole system", "Drain and reboot the host, with its baseboard"),
}
_UNKNOWN = Recovery(
    "something that this release does not know",
    "Look at 'GPU Recovery Action' in the output of 'nvidia-smi -q', and do not use the GPU before that is done",
)


def recovery_of(name: str) -> Recovery:
    """Return the recovery action C(name), which is not C(none); a name that is not known still asks for something."""
    return RECOVERIES.get(name, _UNKNOWN)


def recovery(evidence: Evidence) -> Outcome:
    """No GPU waits for a recovery that its driver asks for."""
    gpus = evidence.facts.get("gpus") or []
    reported = {gpu["index"]: str(gpu["recovery_action"]) for gpu in gpus if gpu.get("recovery_action")}
    wanted = {index: name for index, name in reported.items() if name != NONE}
    if wanted:
        texts = [f"GPU {index} asks for {recovery_of(name).asked} ({name})" for index, name in wanted.items()]
        steps: dict[str, list[int]] = {}
        for index, name in wanted.items():
            steps.setdefault(recovery_of(name).remedy, []).append(index)
        remedies = [f"GPU {', '.join(map(str, indexes))}: {remedy}" for remedy, indexes in steps.items()]
        return failed("; ".join(texts), ". ".join(remedies))
    if not reported:
        return skipped("neither the driver nor the boards report recovery actions")
    return passed(f"none is needed on {len(reported)} GPUs")
