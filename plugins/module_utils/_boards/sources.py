# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where the numbers of the board table come from.

The mark in front says how strong the evidence is: [doc] vendor text, [code] read in source, [issue] an issue or pull
request, [secondary] a third party's text such as a user's transcript of a real tool's output, [real] recorded by this collection's own tests on the board.
"""

from __future__ import annotations

SOURCES: dict[str, str] = {
    "S-guide": (
        "[doc] NVIDIA MIG User Guide, Supported MIG Profiles (docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html), read as "
        "two text copies, one newer and one older. Gives names, memory and SM fractions, engines, CE, counts; placements only as diagrams."
    ),
    "S-guide-newer": "[doc] the newer of the two text copies of S-guide",
    "S-guide-lgipp": "[doc] NVIDIA MIG User Guide, Getting Started, nvidia-smi mig -lgip/-lgipp for A100-SXM4-40GB (text copy)",
    "S-gonvml-a100": (
        "[code] NVIDIA/go-nvml pkg/nvml/mock/gpus/a100.go (placements agree with real -lgipp; the Id "
        "field there is the enum, NOT the real profile id)"
    ),
    "S-a30": "[secondary] user transcript, real A30, driver 535.183.01: -lgip, -lgipp, -lgi, -lcip",
    "S-a100-80": "[secondary] two user transcripts, A100-80GB -lgip; 1g shown as 9.50 GiB on one driver and 9.75 GiB on another",
    "S-h100sxm-580": "[real] recorded from an H100 80GB HBM3, driver 580.159.04: NVML, -lgip and -lgipp (tests/real/h100-80gb-sxm-580.159.04)",
    "S-h100pcie": "[secondary] user transcript, H100 PCIe, driver 570.169: -lgip; another user transcript: -lgi showing 1g at 0..6 with mirrored GI ids",
    "S-h100nvl": "[secondary] user transcript, H100 NVL, driver 560.35.03: -lgip and -lgipp; [issue] NVIDIA/gpu-operator#900, #903",
    "S-gh200-96": "[secondary] user transcript, GH200 96GB: -lgip and -cgi",
    "S-gh200-144": "[issue] NVIDIA/mig-parted#139, NVIDIA/gpu-operator#1057 (-lgip; excerpt ends after the 2g row)",
    "S-h200": "[issue] NVIDIA/mig-parted#120 (-lgip of an 8x H200 box)",
    "S-h200-580": "[real] recorded from an H200, driver 580.159.04: NVML, -lgip and -lgipp (tests/real/h200-141gb-580.159.04)",
    "S-b200": (
        "[issue] NVIDIA/mig-parted#187, NVIDIA/gpu-operator#1351 (-lgip; 1g = 20.50 GiB) and mig-parted#166, gpu-operator#1242 (1g = 22.00 GiB on "
        "the earlier driver); excerpts end after the 2g row"
    ),
    "S-gb200": (
        "[issue] NVIDIA/mig-parted#227 (production GB200 -lgip, excerpt ends at the 2g row), NVIDIA/gpu-"
        "operator#1303 (early board: 1g.24gb 20.00 GiB)"
    ),
    "S-cfg": (
        "[code] names and counts only: NVIDIA/mig-parted deployments/systemd/config-default.yaml and "
        "NVIDIA/gpu-operator assets/state-mig-manager/0400_configmap.yaml"
    ),
    "S-kti829": (
        "[secondary] NVIDIA/k8s-test-infra PR #829 tables (deployments/nvml-mock/helm/nvml-"
        'mock/profiles/mig/*.yaml, pkg/gpu/mocknvml/configs/*.mig.yaml): placements "transcribed from the'
        ' layout those diagrams show"; for GB200/GB300 engine counts are declared a B200 proxy'
    ),
    "S-rtxpro6000": "[secondary] user article with real -lgip and -lgipp, RTX PRO 6000 Blackwell Server Edition (a Chinese copy exists)",
    "S-h20": "[secondary] user transcript, NVIDIA H20, driver 535.247.01: partial -lgip (1g rows)",
    "S-pciids": "[code] NVIDIA/go-nvlib pkg/pciids/default_pci.ids",
    "S-mpd-test": "[code] NVIDIA/mig-parted pkg/mig/builder/builder_test.go (names and max counts)",
    "S-smi-modal": (
        "[issue] modal-labs/modal-client#2797: totals that nvidia-smi reports for H100, A100, A10, L40S, L4 and T4. The L40S also in "
        "akash-network/provider-configs#99 (driver 595.71.05), the A100 40GB in bottlerocket-os/bottlerocket-core-kit#834 (580.126.09)"
    ),
    "S-smi-p100": "[issue] wookayin/gpustat#130: nvidia-smi of 4 x P100 16 GB, driver 515.65.01",
    "S-smi-v100-16": "[issue] 1CatAI/1Cat-vLLM#85: nvidia-smi of 2 x V100-SXM2-16GB, driver 570.211.01",
    "S-smi-v100-32": "[issue] Wan-Video/Wan2.1#5: nvidia-smi of a V100-SXM2 32 GB, driver 525.105.17 (NVIDIA/k8s-device-plugin#243: 32510 MiB on 450.51.05)",
    "S-smi-h20": "[issue] NVIDIA/nvtrust#128: nvidia-smi of H20, driver 580.95.05",
    "S-smi-b200": "[issue] NVIDIA/TensorRT-LLM#10278: nvidia-smi of 8 x B200, driver 580.95.05",
    "S-smi-rtx-3090": "[issue] noonghunna/club-3090#1127: nvidia-smi of 4 x RTX 3090, driver 595.84",
    "S-smi-rtx-4090": "[issue] RLinf/RLinf#255: nvidia-smi of RTX 4090, driver 550.163.01",
    "S-smi-public": (
        "[secondary] outputs of nvidia-smi in public repositories, at least two of each board that agree, drivers 525 to 610, ECC on where "
        "the board has it on when it is delivered (A40 with ECC off: 49140 MiB)"
    ),
    "S-label": "[doc] the size in the product's name; what a driver reports was not found",
}
