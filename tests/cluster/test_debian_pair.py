# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The upgrade of three nodes by Debian's own driver packages, from the release's version to the fixed one of the security archive; then
runs that are killed in the middle of the package transaction, and what the next run makes of it.

Real are Debian's archive, apt, the packages with their scripts and DKMS, the container toolkit's programs, and the API server. The kernel's
build system is a stand-in that writes loadable modules without code, and NVML and nvidia-smi are the lab's, put in the place of Debian's by
a hook of dpkg: Debian's would ask a real GPU.
"""

from __future__ import annotations

import json
import os

import pytest
from debian import EXACT, FIXED, HERE, RELEASED, REVISIONS
from fleet import Fleet, Run
from transcript import stale

NODES = ("debian-node-1", "debian-node-2", "debian-node-3")
FIRST, SECOND, THIRD = NODES
TOOLKIT = {RELEASED: "1.19.1", FIXED: "1.20.2"}
PROOF = "/usr/local/bin/cuda-proof"
#: What is broken where /etc/broken is there is seen by a CUDA program alone, and with the new driver alone.
CUDA = f"""#!/bin/sh
while test -e /run/proof-waits; do sleep 0.2; done
if grep -q {FIXED} /sys/module/nvidia/version && test -e /etc/broken; then echo CUDA error 999; exit 1; fi
"""
#: The modules of a version are not built before this file is gone: so a test meets dpkg in the middle of a transaction.
HELD = "/etc/build-of-{}-waits"
#: What a build that waits writes.
REACHED = "/run/build-reached"
BUILD_WAITS = f"""
$(shell while test -e {HELD.format("$(VERSION)")}; do touch {REACHED}; sleep 0.2; done)
"""
#: Stops dpkg as soon as packages are unpacked and not configured.
FREEZE = r"""
states() { dpkg-query -W -f '${db:Status-Status}\n' '*nvidia*'; }
unpacks() { pid=$(pidof -s dpkg) && grep -qa -e --unpack "/proc/$pid/cmdline"; }
until unpacks && states | grep -q -e unpacked -e half && kill -STOP "$pid"; do sleep 0.02; done
touch /run/frozen
"""
#: Ends processes and everything below them, as the loss of power does.
END = """
level=$({})
while test -n "$level"; do
    all="$all $level"
    level=$(pgrep -d , -P "$(echo $level | tr ' ' ,)" | tr , ' ')
done
kill -KILL $all || true
"""
MODULE, APT = "cat /run/gpufleet/lock", "pidof apt-get"
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
echo post-invoke=/usr/local/sbin/virtual-nvml > /etc/dpkg/dpkg.cfg.d/virtual-nvml
apt-get -q update
"""


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pair")
    name = f"{os.environ.get('GPUFLEET_TEST_LAB', 'fleet-tests')}-debian"
    spec = folder / "lab.json"
    host = {"group": "debian", "boards": [{"board": "t4", "count": 2}], "node": "containerd-1.6"}
    spec.write_text(json.dumps({"hosts": [{"name": node, **host} for node in NODES]}))
    desired = {
        "nvidia_driver_source": "distribution",
        "nvidia_driver_flavour": "proprietary",
        # Debian's daemon asks a real GPU.
        "nvidia_driver_persistence": False,
        # Debian 12 has branch 535 alone, which NVIDIA's bulletins name no more.
        "nvidia_driver_allow_vulnerable": True,
        "nvidia_mig_strategy": "none",
        "nvidia_mig_layout": [],
    }
    found = Fleet(name, folder, nodes=NODES, variables=desired)
    try:
        found.boot(spec)
        makefile = "LOADABLE := yes\n" + (HERE / "debian_kernel.mk").read_text() + BUILD_WAITS
        for node in NODES:
            found.sh(node, f"cat > /usr/src/linux-headers-$(uname -r)/Makefile <<'END'\n{makefile}\nEND")
            found.sh(node, VIRTUAL)
        found.site(driver=RELEASED, nvidia_toolkit_version=TOOLKIT[RELEASED])
        yield found
    finally:
        found.down()


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


def bring(fleet: Fleet, host: str, version: str) -> None:
    """Have a node in service at a version, with nothing left on it of an earlier test."""
    held = " ".join(HELD.format(found) for found in REVISIONS)
    fleet.sh(host, f"cat > {PROOF} <<'END'\n{CUDA}END\nchmod +x {PROOF}; rm -f /etc/broken {held} {REACHED}")
    fleet.forget()
    if fleet.sh(host, "cat /sys/module/nvidia/version || true").strip() != version:
        run = fleet.run("upgrade", "--limit", host, **desired(version))
        assert run.status == 0, run.output[-3000:]
        fleet.forget()
    prove(fleet, host, version)


def desired(version: str = FIXED) -> dict[str, object]:
    return {"driver": version, "nvidia_toolkit_version": TOOLKIT[version], "nvidia_health_cuda_check": [PROOF]}


def meets(fleet: Fleet, host: str, run: Run, path: str) -> None:
    """Wait until a file on the host says that the run is where the test wants it."""
    fleet.wait_for(lambda: fleet.alive(run) and fleet.sh(host, f"ls {path} || true"))


def half_done(fleet: Fleet, host: str) -> None:
    """The transaction was met in the middle of it."""
    assert "nvidia" in fleet.sh(host, "dpkg --audit")


def test_the_one_of_three_nodes_that_fails_goes_back_and_the_last_is_not_begun(pair):
    for host in NODES:
        bring(pair, host, RELEASED)
        pair.sh(host, "touch /run/not-rebooted")
    pair.sh(SECOND, "touch /etc/broken")
    pair.workloads.workload("train", 3, "nvidia.com/gpu", max_unavailable=1)
    pair.wait_for(lambda: pair.workloads.complete("train"))

    run = pair.run("upgrade", **desired())
    assert run.status != 0
    assert [pair.state(host) for host in NODES] == ["done", "failed", None], run.output[-3000:]
    prove(pair, FIRST, FIXED)
    prove(pair, SECOND, RELEASED)
    prove(pair, THIRD, RELEASED)
    assert [pair.cordoned(host) for host in NODES] == [False, True, False]
    assert "The check cuda failed" in pair.reason(SECOND)
    assert f"Rolled back to driver {RELEASED}, which works" in pair.reason(SECOND)
    assert pair.workloads.fewest["train"] >= 2, "the budget allows one pod to be away at a time"
    for host in NODES:
        pair.sh(host, "test -e /run/not-rebooted")
        assert pair.workloads.offered(host) == {"nvidia.com/gpu": 2}
    assert stale(run.output) == [], f"write it anew: python tests/cluster/transcript.py {run.log}"


def test_a_run_that_is_killed_at_every_step_is_continued_where_it_stopped(pair):
    """One upgrade of a node that people had cordoned, in seven runs; each starts from what the one before it left."""
    bring(pair, THIRD, RELEASED)
    pair.workloads.workload("train", 3, "nvidia.com/gpu", max_unavailable=1)
    pair.wait_for(lambda: pair.workloads.complete("train"))
    pair.plane.kubectl("cordon", THIRD)

    def start():
        return pair.start("upgrade", "--limit", THIRD, **desired())

    def kept(state):
        """What the first run had found is what the record says, whatever is on the host by now."""
        found = {key.rpartition("/")[2]: value for key, value in pair.workloads.annotations(THIRD).items()}
        assert found["upgrade-state"] == state
        assert (found["upgrade-from"], found["upgrade-from-toolkit"]) == (RELEASED, TOOLKIT[RELEASED])
        assert found["upgrade-initial-unschedulable"] == "true"
        assert pair.cordoned(THIRD)

    for step in ("started", "evicting"):
        run = start()
        pair.wait_for(lambda run=run, step=step: pair.reached(run, step, THIRD))
        run.kill()
        assert pair.cordoned(THIRD)

    # The power of the host and of the controller goes while packages are unpacked.
    pair.sh(THIRD, f"cat > /run/freeze <<'END'\n{FREEZE}END\nsystemd-run --quiet bash /run/freeze")
    run = start()
    meets(pair, THIRD, run, "/run/frozen")
    run.kill()
    pair.lab("power-cut", THIRD)
    half_done(pair, THIRD)
    kept("installing")

    # The same while DKMS builds the modules: of the package database that the next run repairs first.
    pair.sh(THIRD, f"touch {HELD.format(FIXED)}")
    run = start()
    meets(pair, THIRD, run, REACHED)
    run.kill()
    pair.sh(THIRD, END.format(MODULE))
    half_done(pair, THIRD)
    kept("installing")

    # The controller alone: apt goes on without it, and the next run meets it at work.
    pair.sh(THIRD, f"rm {REACHED}")
    run = start()
    meets(pair, THIRD, run, REACHED)
    run.kill()
    run = start()
    pair.wait_for(lambda: pair.alive(run) and "TASK [gpufleet.nvidia.nvidia_driver : Install the driver]" in run.output)
    half_done(pair, THIRD)
    kept("installing")
    pair.sh(THIRD, f"touch /run/proof-waits; rm {HELD.format(FIXED)}")
    pair.wait_for(lambda: pair.reached(run, "verifying", THIRD))
    run.kill()
    pair.sh(THIRD, "rm /run/proof-waits")
    kept("verifying")

    last = start().wait()
    assert last.status == 0, last.output[-3000:]
    assert f"1 cut off earlier ({THIRD})" in last.output
    prove(pair, THIRD, FIXED)
    kept("done")
    assert pair.resumed(THIRD)
    assert pair.workloads.fewest["train"] >= 2


def test_a_rollback_that_is_cut_off_in_its_package_transaction_is_finished_by_the_next_run(pair):
    bring(pair, SECOND, RELEASED)
    pair.sh(SECOND, f"touch /etc/broken {HELD.format(RELEASED)}")
    run = pair.start("upgrade", "--limit", SECOND, **desired())
    meets(pair, SECOND, run, REACHED)
    assert pair.state(SECOND) == "rolling-back"
    run.kill()
    pair.lab("power-cut", SECOND)
    half_done(pair, SECOND)
    pair.sh(SECOND, f"rm {HELD.format(RELEASED)}")

    again = pair.run("upgrade", "--limit", SECOND, **desired())
    assert again.status != 0
    rolled_back(pair, SECOND, again, "The check cuda failed")


def test_an_apt_that_dies_under_the_run_is_repaired_and_rolled_back_by_it(pair):
    bring(pair, SECOND, RELEASED)
    pair.sh(SECOND, f"touch {HELD.format(FIXED)}")
    run = pair.start("upgrade", "--limit", SECOND, **desired())
    meets(pair, SECOND, run, REACHED)
    pair.sh(SECOND, f"{END.format(APT)}\nrm {HELD.format(FIXED)}")
    half_done(pair, SECOND)
    assert run.wait().status != 0
    rolled_back(pair, SECOND, run, "ended by signal 9")


def test_a_rollback_by_hand_goes_before_the_last_change_whatever_older_rollout_is_recorded(pair):
    bring(pair, FIRST, FIXED)
    older = {"state": "done", "from": "525.147.05", "from-toolkit": "1.18.0", "to": f"driver {RELEASED}"}
    pair.plane.kubectl("annotate", "node", FIRST, *(f"gpufleet.github.io/upgrade-{k}={v}" for k, v in older.items()))
    run = pair.run("rollback", "--limit", FIRST, **desired())
    assert run.status == 0, run.output[-3000:]
    prove(pair, FIRST, RELEASED)
    assert not pair.cordoned(FIRST)
    assert pair.resumed(FIRST)
    assert f"Rolled back by hand to driver {RELEASED}" in pair.reason(FIRST)


def rolled_back(fleet: Fleet, host: str, run: Run, why: str) -> None:
    """Everything is as before, and the node stays cordoned with the reason."""
    assert fleet.state(host) == "failed", run.output[-3000:]
    assert why in fleet.reason(host)
    assert f"Rolled back to driver {RELEASED}, which works" in fleet.reason(host)
    assert fleet.cordoned(host)
    prove(fleet, host, RELEASED)
