# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The upgrade of three nodes by Debian's own driver packages, from the release's version to the fixed one of the security archive.

Real are Debian's archive, apt, the packages with their scripts and DKMS, the container toolkit's programs, and the API server. The kernel's
build system is a stand-in that writes loadable modules without code, and NVML and nvidia-smi are the lab's, put in the place of Debian's by
a hook of dpkg: Debian's would ask a real GPU.
"""

from __future__ import annotations

import json
import os
import sys

import pytest
from fleet import REPOSITORY, Fleet
from stand_ins import StandIns

sys.path.insert(0, str(REPOSITORY / "tests" / "lab"))

from debian import EXACT, FIXED, HERE, RELEASED, REVISIONS

NODES = ("debian-node-1", "debian-node-2", "debian-node-3")
FIRST, SECOND, THIRD = NODES
TOOLKIT = {RELEASED: "1.19.1", FIXED: "1.20.0"}
PROOF = "/usr/local/bin/cuda-proof"
#: Of the lab's packages of NVIDIA's repository: the library and the program that ask the virtual hardware.
VIRTUAL = r"""
set -eu
cd /srv/gpufleet-lab/repository/compute/cuda/repos/debian12/*/
mkdir -p /opt/virtual-nvml
for package in libnvidia-ml1_580.126.09 nvidia-driver-cuda_580.126.09; do
    dpkg -x "$(ls "$package"*.deb)" /opt/virtual-nvml
done
cat > /usr/local/sbin/virtual-nvml <<'END'
#!/bin/sh
for real in /usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so.[0-9]*.*; do
    if [ -f "$real" ] && [ ! -L "$real" ]; then
        install -m 644 "$(ls /opt/virtual-nvml/usr/lib/*/libnvidia-ml.so.*.*)" "$real"
    fi
done
real=$(readlink -f /usr/bin/nvidia-smi || true)
if [ -f "$real" ]; then install -m 755 /opt/virtual-nvml/usr/bin/nvidia-smi "$real"; fi
END
chmod +x /usr/local/sbin/virtual-nvml
echo 'DPkg::Post-Invoke { "/usr/local/sbin/virtual-nvml"; };' > /etc/apt/apt.conf.d/99virtual-nvml
apt-get -q update
"""


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    from control_plane import control_plane

    folder = tmp_path_factory.mktemp("pair")
    name = f"{os.environ.get('GPUFLEET_TEST_LAB', 'fleet-tests')}-debian"
    spec = folder / "lab.json"
    boards = [{"board": "t4", "count": 2}]
    spec.write_text(json.dumps({"hosts": [{"name": node, "group": "debian", "boards": boards} for node in NODES]}))
    wish = {
        "nvidia_driver_source": "distribution",
        "nvidia_driver_flavour": "proprietary",
        # Debian's daemon asks a real GPU.
        "nvidia_driver_persistence": False,
        # The release's version is below the floor: that is why one goes to the other.
        "nvidia_driver_allow_vulnerable": True,
        "nvidia_mig_strategy": "none",
        "nvidia_mig_layout": [],
    }
    with control_plane(workloads=True) as plane:
        found = Fleet(name, folder, plane, None, nodes=NODES, variables=wish)
        found.lab("down")
        found.lab("up", "--spec", str(spec))
        try:
            makefile = "LOADABLE := yes\n" + (HERE / "debian_kernel.mk").read_text()
            for node in NODES:
                found.sh(node, f"cat > /usr/src/linux-headers-$(uname -r)/Makefile <<'END'\n{makefile}\nEND")
                found.sh(node, VIRTUAL)
            site = found.run(
                "site", "--skip-tags", "cluster", driver=RELEASED, nvidia_toolkit_version=TOOLKIT[RELEASED]
            )
            assert site.status == 0, site.output[-4000:]
            hosts = {node: lambda script, node=node: found.sh(node, script) for node in NODES}
            found.stand_ins = StandIns(str(plane.kubeconfig), hosts)
            found.stand_ins.start()
            yield found
        finally:
            if found.stand_ins:
                found.stand_ins.stop()
            found.lab("down")


def prove(fleet: Fleet, host: str, version: str) -> None:
    """Everything that can be read back of one driver and its toolkit, by Debian's own tools."""
    shown = fleet.sh(host, "dpkg-query -W -f '${db:Status-Abbrev} ${Package} ${Version}\\n'")
    packages = {name: found for _status, name, found in (line.split() for line in shown.splitlines())}
    assert {name: packages.get(name) for name in EXACT} == dict.fromkeys(EXACT, REVISIONS[version]), host
    assert packages["nvidia-container-toolkit"].startswith(f"{TOOLKIT[version]}-"), host
    assert fleet.sh(host, "cat /sys/module/nvidia/version").strip() == version
    assert f"nvidia-current/{version}, " in fleet.sh(host, "dkms status")
    assert {*EXACT, "nvidia-container-toolkit"} <= set(fleet.sh(host, "apt-mark showhold").split())
    assert fleet.sh(host, "dpkg --audit") == ""


def test_the_one_of_three_nodes_that_fails_goes_back_and_the_last_is_not_begun(pair):
    # What is broken on the second node is seen by a CUDA program alone, and with the new driver alone.
    broken = (
        f"#!/bin/sh\nif grep -q {FIXED} /sys/module/nvidia/version && test -e /etc/broken; then echo 999; exit 1; fi\n"
    )
    for host in NODES:
        pair.sh(host, f"cat > {PROOF} <<'END'\n{broken}END\nchmod +x {PROOF}; touch /run/not-rebooted")
        prove(pair, host, RELEASED)
    pair.sh(SECOND, "touch /etc/broken")
    pair.stand_ins.workload("train", 3, "nvidia.com/gpu", max_unavailable=1)
    pair.wait_for(lambda: pair.stand_ins.fewest.get("train") == 3)

    wish = {"driver": FIXED, "nvidia_toolkit_version": TOOLKIT[FIXED], "nvidia_health_cuda_check": [PROOF]}
    run = pair.run("upgrade", **wish)
    assert run.status != 0
    assert [pair.state(host) for host in NODES] == ["done", "failed", None], run.output[-3000:]
    prove(pair, FIRST, FIXED)
    prove(pair, SECOND, RELEASED)
    prove(pair, THIRD, RELEASED)
    assert [pair.cordoned(host) for host in NODES] == [False, True, False]
    assert "The check cuda failed" in pair.reason(SECOND)
    assert f"Rolled back to driver {RELEASED}, which works" in pair.reason(SECOND)
    assert pair.stand_ins.fewest["train"] >= 2, "the budget allows one pod to be away at a time"
    for host in NODES:
        pair.sh(host, "test -e /run/not-rebooted")
        allocatable = pair.stand_ins.node(host)["status"]["allocatable"]
        assert allocatable["nvidia.com/gpu"] == "2"
