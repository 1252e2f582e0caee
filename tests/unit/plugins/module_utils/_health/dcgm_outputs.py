# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What dcgmi wrote on real machines, without what the check does not look at.

Sources: DCGM 4.2.3 and 4.5.2 on a GB10 (baldwinSPC/glimmer-burnin, runners/dcgm-diag/testdata), DCGM 3 on a T400 (NVIDIA/DCGM issue 139), and a host without a
host engine (dcgmi/Command.cpp of NVIDIA/DCGM, and its issue 43).
"""

from __future__ import annotations

import json

PERSISTENCE = (
    "Persistence Mode: Persistence mode for GPU 0 is disabled. Enable persistence mode by running "
    '"nvidia-smi -i <gpuId> -pm 1 " as root.'
)
SRAM = "Error getting the SRAM Threshold Count for GPU 0. Status = 0. Value = 9223372036854775794. SRAM Threshold checking was skipped."
NO_HOST_ENGINE = "Error: unable to establish a connection to the specified host: localhost\n"


def _test(name, status, **more):
    result = {"entity_group": "GPU", "entity_group_id": 1, "entity_id": 0, "status": status, **more}
    return {"name": name, "results": [result], "test_summary": {"status": status}}


def _software():
    found = [{"error_category": 8, "error_id": 29, "error_severity": 5, "warning": PERSISTENCE}]
    test = _test("software", "Fail", warnings=found)
    test["test_summary"]["info"] = [SRAM]
    return {"category": "Deployment", "tests": [test]}


def document(categories, version):
    """A document of DCGM 4."""
    metadata = {"Driver Version Detected": "580.82.09", "version": version}
    return json.dumps({"DCGM Diagnostic": {"test_categories": categories}, "metadata": metadata}, indent=2)


LEVEL_1 = document([_software()], "4.2.3")
LEVEL_2 = document(
    [
        _software(),
        {"category": "Hardware", "tests": [_test("memory", "Pass", info=["Allocated 112427837082 bytes (87.5%)"])]},
        {"category": "Integration", "tests": [_test("pcie", "Pass", info=["GPU to Host bandwidth:\t\t58.62 GB/s"])]},
    ],
    "4.5.2",
)
LEVEL_2_SKIPPED = document(
    [
        _software(),
        {"category": "Hardware", "tests": [_test("memory", "Skip")]},
        {"category": "Integration", "tests": [_test("pcie", "Skip")]},
    ],
    "4.2.3",
)
VERSION_3 = json.dumps(
    {
        "DCGM GPU Diagnostic": {
            "test_categories": [
                {
                    "category": "Integration",
                    "tests": [{"name": "PCIe", "results": [{"gpu_id": "0", "status": "Skip"}]}],
                },
                {
                    "category": "Hardware",
                    "tests": [{"name": "GPU Memory", "results": [{"gpu_id": "0", "status": "Skip"}]}],
                },
            ]
        }
    }
)


def spoiled(text, **result):
    """A recorded document with another result of its first test, in the form of dcgm_diag_schema.json of NVIDIA/DCGM."""
    read = json.loads(text)
    test = read["DCGM Diagnostic"]["test_categories"][0]["tests"][0]
    test["results"][0].update(result)
    return json.dumps(read)


HEALTHY = spoiled(LEVEL_2, status="Pass", warnings=[])
