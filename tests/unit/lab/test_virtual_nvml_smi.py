# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lab's nvidia-smi: texts, columns and exit codes that scripts rely on."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.xid import errors_in

if TYPE_CHECKING:
    from virtual_machine import VirtualMachine

NO_DRIVER = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."


@pytest.mark.parametrize(
    "arguments", [[], ["-L"], ["mig", "-lgip"], ["compute-policy", "-l"], ["-q"], ["topo", "-m"], ["--version"]]
)
def test_no_driver(machine: VirtualMachine, arguments: list[str]) -> None:
    machine.gpu("create", "--board", "h100-80gb-sxm")
    machine.gpu("boot")
    done = machine.smi(*arguments)
    assert (done.returncode, NO_DRIVER in done.stdout, done.stderr) == (9, True, "")


def test_mismatch(machine: VirtualMachine) -> None:
    machine.start("h100-80gb-sxm", driver="570.133.20")
    done = machine.smi()
    assert done.returncode == 18
    assert done.stdout == "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.126\n"


def test_no_library(machine: VirtualMachine) -> None:
    machine.start("h100-80gb-sxm")
    alone = machine.root / "bin"
    alone.mkdir()
    shutil.copy(machine.build / "nvidia-smi", alone)
    done = machine.run(str(alone / "nvidia-smi"), LD_LIBRARY_PATH="")
    assert (done.returncode, "couldn't find libnvidia-ml.so" in done.stdout) == (12, True)


def test_query_gpu(machine: VirtualMachine) -> None:
    machine.start("h100-80gb-sxm", "--board=t4")
    fields = "index,name,memory.total,mig.mode.current,compute_mode,compute_cap,pci.bus_id,driver_version"
    with_units = machine.smi(f"--query-gpu={fields}", "--format=csv").stdout.splitlines()
    assert with_units == [
        "index, name, memory.total [MiB], mig.mode.current, compute_mode, compute_cap, pci.bus_id, driver_version",
        "0, NVIDIA H100 80GB HBM3, 81559 MiB, Disabled, Default, 9.0, 00000000:18:00.0, 580.126.09",
        "1, Tesla T4, 15360 MiB, [N/A], Default, 7.5, 00000000:2A:00.0, 580.126.09",
    ]
    assert machine.smi("-i", "1", "--query-gpu=memory.total", "--format=csv,noheader,nounits").stdout == "15360\n"
    wrong = machine.smi("--query-gpu=nonsense", "--format=csv")
    assert (wrong.returncode, 'Field "nonsense" is not a valid field' in wrong.stdout) == (2, True)


def test_list_and_select(machine: VirtualMachine) -> None:
    machine.start("h100-80gb-sxm", "--count=2")
    gpus = machine.show()["gpus"]
    lines = machine.smi("-L").stdout.splitlines()
    assert lines == [f"GPU {g['index']}: {g['name']} (UUID: {g['uuid']})" for g in gpus]
    for name in (gpus[1]["uuid"], "1", gpus[1]["pci_address"], gpus[1]["serial"]):
        assert machine.smi("-L", "-i", name).stdout.splitlines() == lines[1:]
    assert machine.smi("-L", "-i", "7").returncode == 6


def test_lost_gpu(machine: VirtualMachine) -> None:
    machine.start("h100-80gb-sxm", "--count=2")
    machine.gpu("lose", "--gpu", "1")
    done = machine.smi()
    assert (done.returncode, "GPU is lost" in done.stdout) == (15, True)
    assert machine.smi("-i", "0").returncode == 0


def test_summary_names_versions(machine: VirtualMachine) -> None:
    machine.start("h100-80gb-sxm")
    out = machine.smi().stdout
    assert "| NVIDIA-SMI 580.126.09 " in out
    assert "CUDA Version: 13.0 " in out
    assert len({len(line) for line in out.splitlines() if line}) == 1


def test_mig_by_hand(machine: VirtualMachine) -> None:
    machine.start("h100-80gb-sxm")
    assert machine.smi("mig", "-lgi").returncode == 0
    assert machine.smi("-mig", "1").stdout == "Enabled MIG Mode for GPU 00000000:18:00.0\nAll done.\n"
    made = machine.smi("mig", "-cgi", "3g.40gb,19:0,15", "-C")
    assert made.returncode == 0
    assert made.stdout.splitlines()[:2] == [
        "Successfully created GPU instance ID  2 on GPU  0 using profile MIG 3g.40gb (ID  9)",
        "Successfully created compute instance ID  0 on GPU  0 GPU instance ID  2 using profile MIG 3g.40gb (ID  2)",
    ]
    shown = machine.show()["gpus"][0]["gpu_instances"]
    assert [(g["profile"], g["start"], g["compute_instances"][0]["multiprocessors"]) for g in shown] == [
        ("3g.40gb", 4, 60), ("1g.20gb", 2, 26), ("1g.10gb", 0, 16),
    ]  # fmt: skip
    uuids = [c["uuid"] for g in shown for c in g["compute_instances"]]
    listed = machine.smi("-L").stdout
    assert all(uuid in listed for uuid in uuids)
    assert "|   0  MIG 3g.40gb            9        2          4:4      |" in machine.smi("mig", "-lgi").stdout
    assert "GPU  0 Profile ID  9 Placements: {0,4}:4\n" in machine.smi("mig", "-lgipp").stdout
    assert machine.smi("mig", "-cgi", "9").returncode == 23
    assert machine.smi("mig", "-dgi").returncode == 19
    assert machine.smi("mig", "-dci", "-gi", "2").returncode == 0
    assert machine.smi("mig", "-dgi", "-gi", "2").stdout == "Successfully destroyed GPU instance ID  2 from GPU  0\n"
    assert machine.smi("mig", "-lci", "-gi", "2").returncode == 6


def test_pending_mode_and_reset(machine: VirtualMachine) -> None:
    machine.start("a100-40gb", "--board=t4")
    assert "pending enable state for GPU 00000000:18:00.0:Reset Required" in machine.smi("-i", "0", "-mig", "1").stdout
    assert machine.smi("--query-gpu=mig.mode.current,mig.mode.pending", "--format=csv,noheader").stdout.splitlines() == [
        "Disabled, Enabled", "[N/A], [N/A]",
    ]  # fmt: skip
    assert machine.smi("--gpu-reset", "-i", "0").stdout == "GPU 00000000:18:00.0 was successfully reset.\nAll done.\n"
    assert machine.show()["gpus"][0]["mig"]["current"]
    assert machine.smi("-i", "1", "-mig", "1").stdout.startswith(
        "Unable to enable MIG Mode for GPU 00000000:2A:00.0: Not Supported"
    )


def test_modes(machine: VirtualMachine) -> None:
    machine.start("l40s", "--count=2")
    uuid = machine.show()["gpus"][1]["uuid"]
    assert machine.smi("-i", uuid, "-c", "EXCLUSIVE_PROCESS").stdout == (
        "Set compute mode to EXCLUSIVE_PROCESS for GPU 00000000:2A:00.0.\nAll done.\n"
    )
    assert machine.smi("-i", "0", "-pm", "1").returncode == 0
    assert machine.smi("compute-policy", "-i", uuid, "--set-timeslice", "3").returncode == 0
    shown = machine.show()["gpus"]
    assert [g["compute_mode"] for g in shown] == ["default", "exclusive_process"]
    assert [g["persistence_mode"] for g in shown] == [True, False]
    assert [g["timeslice"] for g in shown] == [0, 3]
    assert "Long" in machine.smi("compute-policy", "-l", "-i", "1").stdout
    assert machine.smi("-c", "0", VIRTUAL_GPU_PRIVILEGED="0").returncode == 4
    assert machine.smi("-c", "sometimes").returncode == 2


def test_power_limit(machine: VirtualMachine) -> None:
    machine.start("h100-80gb-sxm", "--count=2")
    assert machine.smi("-i", "1", "-pl", "400").stdout == (
        "Power limit for GPU 00000000:2A:00.0 was set to 400.00 W from 700.00 W.\nAll done.\n"
    )
    refused = machine.smi("-pl", "900")
    assert refused.returncode == 2
    assert "should be between 200.00 W and 700.00 W for GPU 00000000:18:00.0" in refused.stdout
    assert machine.smi("-pl", "much").returncode == 2
    assert machine.smi("-pl", "400", VIRTUAL_GPU_PRIVILEGED="0").returncode == 4


def test_processes(machine: VirtualMachine) -> None:
    machine.start("h100-80gb-sxm")
    machine.gpu("run", "--gpu", "0", "--pid", "4100001", "--memory", "512", "--name", "train.py")
    asked = machine.smi("--query-compute-apps=pid,process_name,used_memory,gpu_uuid", "--format=csv,noheader").stdout
    assert asked == f"4100001, train.py, 512 MiB, {machine.show()['gpus'][0]['uuid']}\n"
    assert "4100001" in machine.smi().stdout
    assert "Process ID" in machine.smi("-q").stdout


def test_long_query(machine: VirtualMachine) -> None:
    machine.start("h100-80gb-sxm", "--nvswitch=4")
    machine.gpu("fabric", "in-progress")
    lines = [line.strip() for line in machine.smi("-q").stdout.splitlines()]
    fabric = lines.index("Fabric")
    assert lines[fabric + 1].split(" : ")[-1].split(": ")[-1] == "In Progress"
    assert any(line.startswith("Compute Mode") and line.endswith(": Default") for line in lines)


def asked(machine: VirtualMachine) -> list[int]:
    return [gpu["recovery_action"] for gpu in machine.show()["gpus"]]


def test_what_ends_a_recovery_action(machine: VirtualMachine) -> None:
    machine.start("h100-80gb-sxm", "--count=3")
    for gpu, until in enumerate(("reset", "boot", "replaced")):
        machine.gpu("recovery", "--gpu", str(gpu), "--action", "1", "--until", until)
    assert asked(machine) == [1, 1, 1]
    assert machine.smi("--gpu-reset", "-i", "0,1,2").returncode == 0
    assert asked(machine) == [0, 1, 1]
    machine.gpu("boot")
    assert asked(machine) == [0, 0, 1]
    machine.gpu("recovery", "--gpu", "2", "--action", "0")
    machine.gpu("boot")
    assert asked(machine) == [0, 0, 0]


def test_gpus_that_can_only_be_reset_together(machine: VirtualMachine) -> None:
    machine.start("v100-16gb", "--count=2")
    machine.gpu("recovery", "--gpu", "0", "--action", "1")
    machine.gpu("peers", "on")
    alone = machine.smi("--gpu-reset", "-i", "0")
    assert alone.returncode != 0 and "must be reset in the same command" in alone.stdout
    assert asked(machine) == [1, 0]
    uuids = ",".join(gpu["uuid"] for gpu in machine.show()["gpus"])
    assert machine.smi("--gpu-reset", "-i", uuids).returncode == 0
    assert asked(machine) == [0, 0]


def test_an_xid_is_written_as_the_driver_writes_it(machine: VirtualMachine, tmp_path) -> None:
    machine.start("h100-80gb-sxm", "--count=2")
    log = tmp_path / "kmsg"
    machine.environment["VIRTUAL_GPU_KMSG"] = str(log)
    machine.gpu("xid", "--gpu", "1", "--number", "79")
    assert not log.exists(), "a log that is not there is not made"
    log.touch()
    text = "GPU has fallen off the bus."
    machine.gpu("xid", "--gpu", "1", "--number", "79", "--text", text)
    assert log.read_text().endswith(f";NVRM: Xid (PCI:0000:2a:00): 79, {text}\n")
    pci = [("gpu", "0000:2a:00.0")]
    assert [(xid.number, xid.pci_address) for _, xid in errors_in(log.read_text(), pci)] == [(79, "0000:2a:00")]
