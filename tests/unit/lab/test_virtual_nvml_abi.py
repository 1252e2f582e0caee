# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The library speaks the binary interface that pynvml declares, and exports every name that tools resolve."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path

import pynvml
import pytest

SOURCES = Path(__file__).resolve().parents[3] / "tests" / "lab" / "virtual_nvml"

#: Structure of nvml_abi.h -> class of pynvml.
STRUCTURES = {
    "nvmlMemory_t": "c_nvmlMemory_t",
    "nvmlMemory_v2_t": "c_nvmlMemory_v2_t",
    "nvmlBAR1Memory_t": "c_nvmlBAR1Memory_t",
    "nvmlUtilization_t": "c_nvmlUtilization_t",
    "nvmlPciInfo_t": "nvmlPciInfo_t",
    "nvmlPciInfo_v2_t": "nvmlPciInfo_v2_t",
    "nvmlPciInfoExt_v1_t": "nvmlPciInfoExt_v1_t",
    "nvmlProcessInfo_v2_t": "c_nvmlProcessInfo_v2_t",
    "nvmlGpuInstancePlacement_t": "c_nvmlGpuInstancePlacement_t",
    "nvmlComputeInstancePlacement_t": "c_nvmlComputeInstancePlacement_t",
    "nvmlGpuInstanceProfileInfo_t": "c_nvmlGpuInstanceProfileInfo_t",
    "nvmlGpuInstanceProfileInfo_v2_t": "c_nvmlGpuInstanceProfileInfo_v2_t",
    "nvmlGpuInstanceInfo_t": "c_nvmlGpuInstanceInfo_t",
    "nvmlComputeInstanceProfileInfo_t": "c_nvmlComputeInstanceProfileInfo_t",
    "nvmlComputeInstanceProfileInfo_v2_t": "c_nvmlComputeInstanceProfileInfo_v2_t",
    "nvmlComputeInstanceInfo_t": "c_nvmlComputeInstanceInfo_t",
    "nvmlDeviceAttributes_t": "c_nvmlDeviceAttributes",
    "nvmlGpuFabricInfo_t": "c_nvmlGpuFabricInfo_t",
    "nvmlGpuFabricInfo_v2_t": "c_nvmlGpuFabricInfo_v2_t",
    "nvmlGpuFabricInfo_v3_t": "c_nvmlGpuFabricInfo_v3_t",
    "nvmlFieldValue_t": "c_nvmlFieldValue_t",
    "nvmlEventData_t": "c_nvmlEventData_t",
    "nvmlUUID_t": "c_nvmlUUID_t",
    "nvmlTemperature_v1_t": "c_nvmlTemperature_v1_t",
}
#: Ours that pynvml has no class for: the first version of the process entry, and the newest profile answers.
NOT_IN_PYNVML = {"nvmlProcessInfo_v1_t", "nvmlGpuInstanceProfileInfo_v3_t", "nvmlComputeInstanceProfileInfo_v3_t"}


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """Size of every structure and offset of every field, as gcc sees them."""
    folder = tmp_path_factory.mktemp("abi")
    lines = ["#include <stddef.h>", "#include <stdio.h>", '#include "nvml_abi.h"', "int main(void) {"]
    for structure, name in STRUCTURES.items():
        lines.append(f'printf("{structure} %zu\\n", sizeof({structure}));')
        for field in getattr(pynvml, name)._fields_:
            lines.append(f'printf("{structure}.{field[0]} %zu\\n", offsetof({structure}, {field[0]}));')
    (folder / "layout.c").write_text("\n".join([*lines, "return 0; }"]))
    program = folder / "layout"
    subprocess.run(["gcc", "-I", str(SOURCES), "-o", str(program), str(folder / "layout.c")], check=True)
    output = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout
    return {name: int(number) for name, number in (line.split() for line in output.splitlines())}


@pytest.mark.parametrize("structure", sorted(STRUCTURES))
def test_layout_is_pynvmls(layout: dict[str, int], structure: str) -> None:
    declared = getattr(pynvml, STRUCTURES[structure])
    ours = {key.partition(".")[2]: offset for key, offset in layout.items() if key.startswith(structure + ".")}
    assert layout[structure] == ctypes.sizeof(declared)
    assert ours == {field[0]: getattr(declared, field[0]).offset for field in declared._fields_}


def test_every_structure_is_compared() -> None:
    header = (SOURCES / "nvml_abi.h").read_text()
    declared = set(re.findall(r"^(?:typedef struct .*|)\} (nvml\w+);$", header, re.M))
    assert declared == set(STRUCTURES) | NOT_IN_PYNVML


def test_error_codes_are_pynvmls() -> None:
    header = (SOURCES / "nvml_abi.h").read_text()
    ours = {name: int(value) for name, value in re.findall(r"(NVML_ERROR_\w+) = (\d+)", header)}
    theirs = {name: value for name, value in vars(pynvml).items() if name.startswith("NVML_ERROR_")}
    assert ours == theirs


def exported(library: Path) -> set[str]:
    output = subprocess.run(
        ["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True
    ).stdout
    return {line.split()[-1] for line in output.splitlines()}


def test_every_symbol_is_exported(virtual_nvml: Path) -> None:
    listed = {name for name in (SOURCES / "symbols.txt").read_text().splitlines() if name.startswith("nvml")}
    called = set(re.findall(r'_nvmlGetFunctionPointer\("(\w+)"\)', Path(pynvml.__file__).read_text()))
    symbols = exported(virtual_nvml / "libnvidia-ml.so.1")
    assert len(called) > 400
    assert called <= listed
    assert listed <= symbols
    assert {name for name in symbols - listed if not name.startswith("virtualGpu")} == set()


def test_soname(virtual_nvml: Path) -> None:
    dynamic = subprocess.run(
        ["readelf", "-d", str(virtual_nvml / "libnvidia-ml.so.1")], capture_output=True, text=True, check=True
    ).stdout
    assert "[libnvidia-ml.so.1]" in dynamic


def test_what_has_no_model_says_so(machine) -> None:  # type: ignore[no-untyped-def]
    machine.start("t4")
    assert machine.nvml("answer(refused(nvmlDeviceGetFanSpeedRPM, nvmlDeviceGetHandleByIndex(0)))") == "NotSupported"
    assert machine.raw("nvmlDeviceGetFanSpeedRPM").returncode == 0
