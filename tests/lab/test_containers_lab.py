# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a container sees of a lab host's GPUs: Debian's runc, NVIDIA's container runtime, cgroup v2's device filter.

The containers are unprivileged, of an image with Python and without anything of NVIDIA's. Some get their devices from
NVIDIA's runtime as on a real host; the others get device nodes by hand, for what that runtime would never do.
"""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import pynvml
import pytest

HOST = "containers-1"
#: GPU 0 is whole; GPU 1 has these GPU instances, by the IDs of their profiles: 3g.40gb, 2g.20gb, 1g.10gb, 1g.10gb.
LAYOUT = "9,14,19,19"
#: Out of Debian's packages on the host: Python with ctypes, a shell, and what both need. Nothing of NVIDIA's is among them.
MAKE_IMAGE = r"""
mkdir -p /srv/image/usr/{bin,lib,lib64,sbin} /srv/image/{dev,etc,proc,run,srv,sys,tmp,var/lib}
cd /srv/image
ln -s usr/{bin,lib,lib64,sbin} .
dpkg -L libc6 libc-bin bash coreutils libtinfo6 libselinux1 libpcre2-8-0 libacl1 libattr1 libgmp10 libcap2 mount \
    libmount1 libblkid1 python3.11-minimal libpython3.11-minimal libpython3.11-stdlib libffi8 zlib1g libexpat1 |
    sed -E 's,^/(bin|lib|lib64|sbin)/,/usr/\1/,; s,^/,,' | grep '^usr/' | sort -u |
    while read -r file; do
        if [ -e "/$file" ] && [ ! -d "/$file" ]; then echo "$file"; fi
    done | tar -C / --no-recursion -c -T - | tar -x
chmod 1777 tmp
ln -s python3.11 usr/bin/python3
cp -r /etc/ld.so.conf /etc/ld.so.conf.d etc
ldconfig -r .
"""
LIBRARIES = "/usr/lib/x86_64-linux-gnu"

#: Followed by a path: wait until it is there.
WAIT_FOR = "wait_for() { for _ in {1..100}; do [ ! -e $1 ] || return 0; sleep 0.1; done; return 1; }; wait_for"
#: What pynvml says: GPUs as [index, UUID, minor number, its MIG devices as [index, UUID, GPU instance]].
PYNVML = """
import json
from pynvml import *
def migs(gpu):
    found = []
    for number in range(nvmlDeviceGetMaxMigDeviceCount(gpu)):
        try:
            mig = nvmlDeviceGetMigDeviceHandleByIndex(gpu, number)
        except NVMLError_NotFound:
            continue
        found.append([nvmlDeviceGetIndex(mig), nvmlDeviceGetUUID(mig), nvmlDeviceGetGpuInstanceId(mig)])
    return found
try:
    nvmlInit()
    gpus = [nvmlDeviceGetHandleByIndex(number) for number in range(nvmlDeviceGetCount())]
    print(json.dumps([[nvmlDeviceGetIndex(gpu), nvmlDeviceGetUUID(gpu), nvmlDeviceGetMinorNumber(gpu), migs(gpu)]
                      for gpu in gpus]))
except NVMLError as error:
    print(json.dumps(type(error).__name__))
"""

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="the lab needs root: run this as root"),
]


@pytest.fixture(scope="module")
def lab(make_lab):
    lab = make_lab(
        "containers-tests",
        {
            "name": HOST,
            "group": "containers",
            "boards": [{"board": "h100-80gb-sxm", "count": 2}],
            "driver": "installed",
        },
    )
    lab.sh(
        HOST,
        "dpkg --install /srv/gpufleet-lab/repository/libnvidia-container/stable/deb/*/*_1.20.2-1_*.deb; "
        f"nvidia-smi -i 1 -mig 1; nvidia-smi mig -i 1 -cgi {LAYOUT} -C; nvidia-smi -i 1 -L",
    )
    lab.sh(HOST, MAKE_IMAGE)
    lab.write(HOST, "/srv/image/srv/pynvml.py", Path(pynvml.__file__).read_bytes())
    lab.write(HOST, "/srv/image/srv/see.py", PYNVML)
    return lab


@pytest.fixture(scope="module")
def uuids(lab):
    """UUIDs of the GPUs and of the second one's MIG devices, in the host's order."""
    seen = json.loads(lab.sh(HOST, "cd /srv/image/srv; python3 see.py"))
    return [gpu[1] for gpu in seen], [mig[1] for mig in seen[1][3]]


@pytest.fixture(scope="module")
def defaults(lab):
    """The configuration that `runc spec` writes: an unprivileged container."""
    return lab.sh(HOST, "cd /tmp; runc spec; cat config.json")


@pytest.fixture(scope="module")
def nodes(lab):
    """The host's device nodes by path: their type and numbers."""
    listed = lab.sh(HOST, "find /dev/nvidia* -type c -exec stat -c '%n %t %T' {} +").splitlines()
    return {
        path: {"type": "c", "major": int(major, 16), "minor": int(minor, 16)}
        for path, major, minor in map(str.split, listed)
    }


@pytest.fixture
def container(lab, defaults, nodes):
    """Start unprivileged containers that stay until the end of the test."""
    started = []

    def start(request=None, devices=(), allowed=None, mounts=(), uid=0, capabilities=()):
        """Start one.

        :param request: devices that NVIDIA's runtime is asked for; without it Debian's runc is called and nothing is injected.
        :param devices: device nodes to make, as paths of the host.
        :param allowed: those of them that the device cgroup allows; all by default.
        """
        config = json.loads(defaults)
        config["root"]["readonly"] = False
        process = config["process"]
        process["terminal"] = False
        process["args"] = [
            "bash",
            "-c",
            "nvidia-smi -L >/tmp/listing 2>&1; mv /tmp/listing /tmp/listed; exec sleep infinity",
        ]
        process["user"] = {"uid": uid, "gid": uid}
        process["env"] += [f"NVIDIA_VISIBLE_DEVICES={request}", "NVIDIA_DRIVER_CAPABILITIES=utility"] if request else []
        for granted in process["capabilities"].values():
            granted += capabilities
        config["mounts"] += mounts
        config["linux"]["devices"] = [{"path": path, "fileMode": 0o666, **nodes[path]} for path in devices]
        rules = [nodes[path] for path in (devices if allowed is None else allowed)]
        config["linux"]["resources"] = {
            "devices": [
                {"allow": False, "access": "rwm"},
                *({"allow": True, "access": "rwm", **rule} for rule in rules),
            ],
            # What a kubelet asks for. The lab host has no controllers for it.
            "memory": {"limit": 1 << 28},
            "pids": {"limit": 100},
            "cpu": {"shares": 2},
        }
        started.append(
            Container(lab, f"test-{len(started)}", config, "nvidia-container-runtime" if request else "runc")
        )
        return started[-1]

    yield start
    for one in started:
        one.remove()


class Container:
    """A container on the host, with a root file system of its own over the image."""

    def __init__(self, lab, name, config, runtime):
        self.lab, self.name, self.bundle = lab, name, f"/run/bundles/{name}"
        lab.sh(
            HOST,
            f"mkdir -p {self.bundle}/upper {self.bundle}/work {self.bundle}/rootfs; cd {self.bundle}\n"
            "mount -t overlay overlay -o lowerdir=/srv/image,upperdir=upper,workdir=work rootfs\n"
            f"echo {shlex.quote(json.dumps(config))} >config.json\n"
            f"{runtime} create {name} </dev/null >log 2>&1 || {{ cat log; false; }}; {runtime} start {name}",
        )

    def remove(self):
        self.lab.sh(HOST, f"runc delete --force {self.name}; umount {self.bundle}/rootfs; rm -r {self.bundle}")

    def sh(self, script, *, uid=0, check=True):
        """Run a script in the container as `kubectl exec` does: beside its first process, without its environment."""
        command = f"runc exec --user {uid}:{uid} {self.name} bash -c {shlex.quote(script)} 2>&1"
        return self.lab.sh(HOST, command, check=check)

    def listed(self, uid=0):
        """What nvidia-smi -L says, to the entry point and to a process that is started later."""
        script = f"{WAIT_FOR} /tmp/listed; cat /tmp/listed; echo ---; nvidia-smi -L"
        at_start, later = self.sh(script, uid=uid, check=False).split("---\n")
        assert at_start == later
        return later.splitlines()

    def seen(self, uid=0):
        """What pynvml sees: a list of GPUs, or the name of the error of nvmlInit."""
        return json.loads(self.sh("cd /srv; python3 see.py", uid=uid))


def gpu(number, uuid):
    return f"GPU {number}: NVIDIA H100 80GB HBM3 (UUID: {uuid})"


def mig(number, profile, uuid):
    return f"  MIG {profile:<15} Device {number:>2}: (UUID: {uuid})"


LIBRARY_ONLY = [
    {"type": "bind", "source": path, "destination": path, "options": ["bind", "ro"]}
    for path in (f"{LIBRARIES}/libnvidia-ml.so.1", "/usr/bin/nvidia-smi")
]


class TestInjected:
    """Devices and libraries from NVIDIA's container runtime 1.20.2."""

    def test_one_gpu(self, container, uuids):
        gpus, _migs = uuids
        one = container("0")
        assert one.listed() == [gpu(0, gpus[0])]
        assert one.seen() == [[0, gpus[0], 0, []]]

    def test_one_mig_device_is_device_0_of_gpu_0(self, container, uuids):
        gpus, migs = uuids
        one = container("1:2")
        assert one.listed() == [gpu(0, gpus[1]), mig(0, "1g.10gb", migs[2])]
        assert one.seen() == [[0, gpus[1], 1, [[0, migs[2], 9]]]]

    def test_by_uuid(self, container, uuids):
        gpus, migs = uuids
        assert container(migs[0]).seen() == [[0, gpus[1], 1, [[0, migs[0], 2]]]]

    def test_a_gpu_and_two_mig_devices_of_another(self, container, uuids):
        gpus, migs = uuids
        one = container("0,1:1,1:3")
        assert one.listed() == [
            gpu(0, gpus[0]),
            gpu(1, gpus[1]),
            mig(0, "2g.20gb", migs[1]),
            mig(1, "1g.10gb", migs[3]),
        ]
        assert one.seen() == [[0, gpus[0], 0, []], [1, gpus[1], 1, [[0, migs[1], 3], [1, migs[3], 10]]]]

    def test_every_device_is_what_the_host_sees(self, lab, container):
        assert container("all").listed() == lab.sh(HOST, "nvidia-smi -L").splitlines()

    def test_a_process_of_another_user(self, container, uuids):
        gpus, migs = uuids
        one = container("1:2", uid=65532)
        assert one.listed(uid=65532) == [gpu(0, gpus[1]), mig(0, "1g.10gb", migs[2])]
        assert one.seen(uid=65532) == [[0, gpus[1], 1, [[0, migs[2], 9]]]]

    def test_what_the_driver_shows_beside_nvml(self, lab, container):
        one = container("0")
        # NVIDIA's hook takes the right to make device nodes from the driver's libraries.
        assert "ModifyDeviceFiles: 0\n" in one.sh("cat /proc/driver/nvidia/params")
        assert " nvidia-caps-imex-channels\n" in one.sh("cat /proc/devices")
        assert one.sh("cat /sys/module/nvidia/version") == lab.sh(HOST, "cat /sys/module/nvidia/version")
        assert one.sh("readlink /sys/bus/pci/devices/0000:18:00.0").startswith("../../../devices/pci0000:17/")
        assert one.sh("cat /sys/bus/pci/devices/0000:18:00.0/vendor") == "0x10de\n"
        assert one.sh("ls /sys/devices/system/cpu/cpu0")

    def test_root_of_an_unprivileged_container_administers_nothing(self, lab, container):
        one = container("all")
        before = lab.sh(HOST, "virtual-gpu show")
        assert "Insufficient Permissions" in one.sh("nvidia-smi -i 0 -mig 1", check=False)
        assert one.sh("nvidia-smi mig -i 1 -dci", check=False)
        assert lab.sh(HOST, "virtual-gpu show") == before

    def test_a_privileged_container_changes_the_hosts_gpu(self, lab, container):
        one = container("all", capabilities=["CAP_SYS_ADMIN"])
        # A process of the host, which the container cannot see, keeps its GPU.
        lab.sh(HOST, "virtual-gpu run --gpu 0 --pid 1 --memory 100")
        one.sh("nvidia-smi -i 0 -c EXCLUSIVE_PROCESS")
        try:
            query = "nvidia-smi -i 0 --query-gpu=compute_mode --format=csv,noheader"
            assert lab.sh(HOST, query) == one.sh(query) == "Exclusive_Process\n"
            processes = "nvidia-smi --query-compute-apps=pid --format=csv,noheader"
            assert lab.sh(HOST, processes) == "1\n"
            assert one.sh(processes) == ""
        finally:
            lab.sh(HOST, "nvidia-smi -i 0 -c DEFAULT; virtual-gpu stop --pid 1")

    def test_a_client_in_a_container_holds_the_gpu(self, lab, container):
        one = container("0")
        hold = "import sys, time; sys.path.insert(0, '/srv'); from pynvml import *; nvmlInit(); open('/tmp/held', 'w'); time.sleep(600)"
        lab.sh(HOST, f"runc exec --detach {one.name} python3 -c {shlex.quote(hold)} </dev/null >/dev/null 2>&1")
        one.sh(f"{WAIT_FOR} /tmp/held")
        assert "In use by another client" in lab.sh(HOST, "nvidia-smi -i 0 -r 2>&1 || true")
        lab.sh(
            HOST,
            f"runc kill {one.name} KILL; for _ in {{1..50}}; do nvidia-smi -i 0 -r && exit; sleep 0.2; done; exit 1",
        )


class TestByHand:
    """Device nodes and a device cgroup that no runtime would make, with the driver's library beside them."""

    def test_nothing_asked_nothing_there(self, container):
        one = container()
        assert one.sh("for path in /dev/nvidia* /proc/driver/nvidia /sys/module/nvidia /.virtual-gpu-container "
                      "/run/virtual-gpu; do [ ! -e $path ] || echo $path; done") == ""  # fmt: skip

    def test_the_library_without_a_device_node_finds_no_driver(self, container):
        one = container(mounts=LIBRARY_ONLY)
        assert one.listed()[0].startswith(
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver"
        )
        assert one.seen() == "NVMLError_DriverNotLoaded"

    def test_control_node_alone(self, container):
        one = container(mounts=LIBRARY_ONLY, devices=["/dev/nvidiactl"])
        assert one.listed() == ["No devices were found"]
        assert one.seen() == []

    def test_control_node_that_the_device_cgroup_refuses(self, container):
        one = container(mounts=LIBRARY_ONLY, devices=["/dev/nvidiactl", "/dev/nvidia0"], allowed=["/dev/nvidia0"])
        assert one.listed() == ["Failed to initialize NVML: Unknown Error"]
        assert one.seen() == "NVMLError_Unknown"

    def test_a_node_that_the_device_cgroup_refuses(self, container, uuids):
        nodes = ["/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia1"]
        one = container(mounts=LIBRARY_ONLY, devices=nodes, allowed=[nodes[0], nodes[2]])
        assert one.listed() == [gpu(0, uuids[0][1])]
        assert one.seen() == [[0, uuids[0][1], 1, []]]

    @pytest.mark.parametrize(
        "allowed", [(0, 1), (0,), (1,), ()], ids=["both", "gpu instance", "compute instance", "none"]
    )
    def test_a_mig_device_needs_both_its_nodes(self, container, uuids, allowed):
        gpus, migs = uuids
        nodes = ["/dev/nvidiactl", "/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap165", "/dev/nvidia-caps/nvidia-cap166"]
        one = container(
            mounts=LIBRARY_ONLY, devices=nodes, allowed=nodes[:2] + [nodes[2 + number] for number in allowed]
        )
        both = len(allowed) == 2
        assert one.listed() == [gpu(0, gpus[1]), *([mig(0, "2g.20gb", migs[1])] if both else [])]
        assert one.seen() == [[0, gpus[1], 1, [[0, migs[1], 3]] if both else []]]

    def test_update_of_a_container_changes_nothing(self, lab, container, uuids):
        one = container("0")
        lab.sh(HOST, f"runc update --memory 268435456 {one.name}")
        assert one.listed() == [gpu(0, uuids[0][0])]


def test_the_host_is_as_before(lab, container):
    look = "findmnt --raw --noheadings --output TARGET,FSTYPE | grep -v ^/run/bundles/; nvidia-smi -L"
    before = lab.sh(HOST, look)
    assert container("1:0").seen()
    assert lab.sh(HOST, look) == before
    assert "ModifyDeviceFiles: 1\n" in lab.sh(HOST, "cat /proc/driver/nvidia/params")
    assert lab.status(HOST, "test -e /.virtual-gpu-container") == 1


def test_after_a_reboot(lab, container, uuids):
    lab.run("reboot", HOST)
    one = container("0")
    assert one.listed() == [gpu(0, uuids[0][0])]
