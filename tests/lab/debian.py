# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A lab host with Debian's own archive, and the module driver on it. Debian's driver does not see virtual boards and no
kernel loads it here, so the desired state leaves loading to a reboot: everything up to the module on the disk is proven.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
#: What Debian 12 has: its release, and the newer one of its security archive. NVIDIA's bulletins name branch 535 no more, so that both are below
#: the security floor and have to be allowed.
RELEASED, FIXED = "535.261.03", "535.309.01"
REVISIONS = {RELEASED: "535.261.03-1", FIXED: "535.309.01-0+deb12u1"}
#: Those with a version of the driver; the others (nvidia-persistenced, nvidia-support, ...) have versions of their own.
EXACT = ("nvidia-kernel-dkms", "nvidia-smi", "libnvidia-ml1", "libcuda1", "libnvidia-cfg1", "firmware-nvidia-gsp")
DESIRED = {
    "source": "distribution",
    "flavour": "proprietary",
    "reload": "never",
    "disruption": "force",
    "allow_vulnerable": True,
}
#: What a host of L(DebianHost.runs) takes for its kernel, and the library by which its programs do.
RELEASE_FILE, PRELOADED = "/etc/lab-kernel-release", "/usr/local/lib/kernel_release.so"


@dataclass(frozen=True)
class DebianHost:
    """A host of a lab.

    :param fleet: the C(Fleet) of conftest.py that it is in.
    """

    fleet: Any
    name: str

    def sh(self, script: str) -> str:
        return str(self.fleet.lab.sh(self.name, script))

    def driver(self, *options: str, **desired: Any) -> dict[str, Any]:
        """Bring the driver of the distribution to a desired state; fails the test when the module fails."""
        # A real build takes six minutes of two processors that have nothing else to do.
        answer = self.fleet.module(self.name, "driver", {**DESIRED, **desired}, *options, timeout=5400)
        assert "reboot_required" in answer, answer.get("msg", answer)
        return dict(answer)

    def packages(self) -> dict[str, str]:
        """The installed packages that are NVIDIA's by their name."""
        shown = self.sh("dpkg-query -W -f '${db:Status-Status} ${Package} ${Version}\\n'")
        words = [line.split() for line in shown.splitlines() if line.startswith("installed ")]
        return {name: version for _, name, version in words if "nvidia" in name or name.startswith("libcuda")}

    def would_be_moved(self) -> list[str]:
        """What an unattended upgrade of everything would do to them."""
        lines = self.sh("apt-get -s dist-upgrade").splitlines()
        return [line for line in lines if line.startswith(("Inst ", "Remv ")) and "nvidia" in line]

    def runs(self, release: str, folder: Path) -> None:
        """Have every program of the host take C(release) for the running kernel.

        :param folder: an empty one, for the library.
        """
        library = folder / "kernel_release.so"
        command = [
            "gcc",
            "-shared",
            "-fPIC",
            "-Wall",
            "-Wextra",
            "-Werror",
            f'-DGPUFLEET_RELEASE_FILE="{RELEASE_FILE}"',
        ]
        subprocess.run([*command, "-o", str(library), str(HERE / "kernel_release.c")], check=True)
        self.put(library, PRELOADED)
        self.sh(f"echo {release} > {RELEASE_FILE}; echo {PRELOADED} > /etc/ld.so.preload")
        assert self.sh("uname -r").strip() == release

    def put(self, source: Path, place: str) -> None:
        """Write a file into the host."""
        self.fleet.lab.write(self.name, place, source.read_bytes())
