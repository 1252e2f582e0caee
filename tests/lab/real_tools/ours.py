#!/usr/bin/env python3
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the modules mig and mig_info do, on a virtual machine of a test: one answer as JSON.

    ours.py FOLDER apply LAYOUT     bring the GPUs to a layout, as JSON; the module's answer
    ours.py FOLDER export           what mig_info exports

FOLDER takes the journal and the record. Run in a process of its own, with the machine's environment.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.files import HostFiles
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.nvml_gpus import open_nvml
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig import apply_run
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.apply_machine import Machine
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.host_plan import export
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.journal import Journal


def reset(address: str) -> str:
    done = subprocess.run(["nvidia-smi", "-r", "-i", address], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def main(folder: Path, verb: str, *layout: str) -> None:
    apply_run.RECORD_PATH = str(folder / "mig.json")
    # The specification of the machine that runs the test is none of its business.
    apply_run.cdi_generator.available = lambda: False
    apply_run.to_notify = lambda _services: ()
    with open_nvml() as nvml:
        asked = {
            "layout": json.loads(layout[0]) if layout else [],
            "strategy": "mixed",
            "restore": True,
            "reboot": True,
        }
        variables = {f"nvidia_mig_{name}": value for name, value in asked.items()}
        machine = Machine(nvml, Journal(str(folder / "journal")), variables, HostFiles(str(folder / "nobody")), reset)
        gpus = machine.read()
        if verb == "export":
            answer = export(gpus, "ours")
        else:
            prepared = apply_run.plan(machine, gpus)
            answer = apply_run.carry_out(machine, prepared) if prepared.steps.changes else apply_run.report(prepared)
    print(json.dumps(answer))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
