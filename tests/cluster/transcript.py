# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The transcript of docs/transcripts/upgrade.txt, made of what a run printed.

C(python tests/cluster/transcript.py LOG) writes it anew. The log is that of the test of three nodes in C(test_debian_pair.py), which
fails when the file tells what is not printed any more.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

TRANSCRIPT = Path(__file__).resolve().parents[2] / "docs" / "transcripts" / "upgrade.txt"
_HEADING = re.compile(r"^(?:PLAY|TASK) .*?(?= \*+$)", re.MULTILINE)
_STEP = re.compile(r"^PLAY|: Record the step, ")
#: What nobody wants to read: what did nothing on any host, what only names the next tasks, and the checks of arguments.
_LEFT_OUT = re.compile(r"^(?:skipping|included): ")
_ABSOLUTE = re.compile(r"/\S*/ansible_collections/gpufleet/nvidia/")
_TITLE = """\
Three lab hosts with two virtual T4 each and Debian's own driver packages, nodes of a real cluster (tests/cluster/test_debian_pair.py),
at driver 535.261.03 and container toolkit 1.19.1. Three pods of one PodDisruptionBudget (maxUnavailable: 1) work on them, and the device plugin
and an exporter hold the driver. On debian-node-2 the CUDA program that proves the driver fails with the new driver: the node goes back to the
old driver and toolkit and stays cordoned, debian-node-3 is not begun. No node is rebooted.
Left out here: tasks that were skipped on every host, includes and argument checks.

$ ansible-playbook gpufleet.nvidia.upgrade -e nvidia_driver_source=distribution -e nvidia_driver_flavour=proprietary \\
    -e nvidia_driver_version=535.309.01 -e nvidia_driver_allow_vulnerable=true -e nvidia_toolkit_version=1.20.2 \\
    -e gpu_cluster_kubeconfig=... \\
    -e '{"nvidia_health_cuda_check": ["/usr/local/bin/cuda-proof"]}'
"""


def shorten(printed: str) -> str:
    """Return what a run printed without what is left out, and without paths of the machine that it ran on."""
    parts = re.split(r"\n(?=(?:PLAY|TASK) )", _ABSOLUTE.sub("", printed))
    return "\n".join(part for part in parts if _is_told(part)).strip() + "\n"


def stale(printed: str, transcript: Path = TRANSCRIPT) -> list[str]:
    """Return what the transcript tells and a run did not print: tasks of another name, or nodes that went through other steps."""
    told, now = (_HEADING.findall(text) for text in (transcript.read_text(), shorten(printed)))
    before, after = ([heading for heading in found if _STEP.search(heading)] for found in (told, now))
    return sorted(set(told) - set(now)) + ([] if before == after else before)


def _is_told(part: str) -> bool:
    heading, *lines = part.strip().splitlines() or [""]
    told = [line for line in lines if line]
    return "Validating arguments" not in heading and not (told and all(map(_LEFT_OUT.match, told)))


if __name__ == "__main__":
    TRANSCRIPT.write_text(_TITLE + shorten(Path(sys.argv[1]).read_text()))
