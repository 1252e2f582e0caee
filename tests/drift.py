# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What people and packages do to a host after C(site), one row each.

C(tests/lab/test_drift_lab.py) does it to lab hosts, C(tests/unit/golden/test_drift.py) asks the controller about what the facts of these hosts were then,
and C(docs/drift.md) has a table. C(drift.json) has the facts, as lab hosts gave them: C(RECORD_DRIFT=1) before the test of lab hosts records those of the
rows that it runs.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from ansible_collections.gpufleet.nvidia.plugins.module_utils._steps import Kind

from . import recorded_facts
from .unit.golden.corpus import Facts, Host
from .unit.host_documents import PYTHON, installed_program

#: The pools of the hosts: whole GPUs, the same with k3s, shared by time slices and by MPS, and divided by MIG.
PLAIN, K3S, SLICED, MPS, MIG = "whole", "k3s", "sliced", "shared", "divided"
#: What the inventory says of each pool on lab hosts with two H100. A host goes from one to the next.
POOLS: dict[str, dict[str, Any]] = {
    PLAIN: {"gpu_facts_gpus": [{"board": "h100-80gb-sxm", "count": 2}], "nvidia_driver_reboot": True},
    K3S: {"nvidia_toolkit_runtime": "k3s", "nvidia_toolkit_move_former": True},
    SLICED: {"nvidia_sharing_mode": "time_slicing", "nvidia_sharing_replicas": 4},
    MPS: {
        "nvidia_sharing_mode": "mps",
        "nvidia_sharing_memory_slice": "8GiB",
        "nvidia_sharing_mps_manager": "host",
    },
    MIG: {
        "nvidia_mig_strategy": "mixed",
        "nvidia_mig_layout": [
            {"devices": [0], "instances": {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}},
            {"devices": [1], "enabled": False},
        ],
        "nvidia_settings_power_limit": 500,
        "nvidia_driver_module_parameters": {"NVreg_EnableStreamMemOPs": "1"},
        "nvidia_health_metrics": True,
        "nvidia_health_metrics_directory": "/var/lib/node_exporter",
    },
}
#: What the inventory says of all of them: they are no nodes of a cluster, and have Debian 12's containerd 1.6.
COMMON = {"gpu_node_kubernetes": False, "nvidia_toolkit_device_injection": "volume_mounts"}
#: A host among what it can restart.
HOST = "the host"
RECORDED = Path(__file__).parent / "unit" / "golden" / "drift.json"


@dataclass(frozen=True)
class Cut:
    """A run of C(site) that a power cut ends in the middle of a stage.

    :param variables: what the inventory says since that run.
    :param seen: a shell command that succeeds on the host once it is there.
    :param before: a shell script that makes the stage stop in its middle until the power is cut.
    """

    variables: Mapping[str, Any]
    seen: str
    before: str = "true"


@dataclass(frozen=True)
class Failure:
    """A run of C(site) that cannot do what it has to.

    :param says: what it says of that.
    :param empty: a folder in which nothing half done is left; empty where programs of others write there as well.
    :param mended: what a person does about the cause, a shell script; C(site) does the rest.
    """

    says: tuple[str, ...]
    empty: str
    mended: str


@dataclass(frozen=True)
class Row:
    """One thing that is done to a host.

    :param what: in words.
    :param steps: what C(plan) says that C(site) does about it, all of it.
    :param by_hand: a shell script, run as root on a lab host.
    :param pool: which host it is done to.
    :param refused: what the refusal is about; empty where C(site) mends it.
    :param undo: what a person does about what is refused, a shell script; in the end of other rows, so that the host can have another one.
    :param cut: in place of C(by_hand).
    :param fails: how the first C(site) fails at it.
    :param default: it is done to a lab host in every run of the lab.
    :param containerd: a release that the script finds as the program C(/opt/containerd).
    :param reboots: C(site) reboots the host for it.
    """

    what: str
    steps: tuple[Kind, ...] = ()
    by_hand: str = ""
    pool: str = MIG
    refused: str = ""
    undo: str = ""
    cut: Cut | None = None
    fails: Failure | None = None
    default: bool = False
    containerd: str = ""
    reboots: bool = False

    @property
    def restarted(self) -> dict[str, int]:
        """What C(site) restarts for it, and how often: the runtime that takes another configuration over, once, and nothing else."""
        runtime = "k3s.service" if self.pool == K3S else "containerd.service"
        return {**({HOST: 1} if self.reboots else {}), **({runtime: 1} if _RECONFIGURES & {*self.steps} else {})}


#: The steps after which a runtime has another configuration.
_RECONFIGURES = {
    Kind.CONFIGURE_RUNTIME,
    Kind.CORRECT_RUNTIME,
    Kind.CORRECT_CGROUPS,
    Kind.SET_DEFAULT_RUNTIME,
    Kind.ENABLE_CDI,
}


@cache
def recorded() -> dict[str, Any]:
    """Return C(hosts), the facts of a host of whole GPUs after C(site) and what is another in those of the other pools, and C(rows), what of them was
    another after each row.
    """
    return recorded_facts.read(RECORDED)


def _after_site(pool: str, hosts: Mapping[str, Any]) -> Facts:
    """Return the facts of a host of a pool as they are recorded."""
    facts: Facts = {} if pool == PLAIN else _after_site(PLAIN, hosts)
    return recorded_facts.changed(facts, hosts.get(pool, {}))


def host(pool: str, row: Row | None = None) -> Host:
    """Return a host of a pool as C(site) left it, or as it is after what a row does to it."""
    facts = _after_site(pool, recorded()["hosts"])
    # Lab hosts run the kernel of the machine, so that they have no packages of one.
    facts["host"]["kernel_packages"] = ["linux-headers-amd64", "linux-image-amd64"]
    # What changes with every commit stands in no file.
    metrics = POOLS[pool].get("nvidia_health_metrics_directory", "")
    program = _NO_PROGRAM if pool in (PLAIN, K3S) else installed_program(metrics, ["node"] if pool == MPS else [])
    facts["host_program"] = copy.deepcopy(program)
    if row:
        facts = recorded_facts.changed(facts, recorded()["rows"][row.what])
    changed = row.cut.variables if row and row.cut else {}
    return Host(facts, {**COMMON, **POOLS[pool], **changed})


#: What the facts have of the host program where nothing is restored at boot.
_NO_PROGRAM: Facts = {
    "version": None,
    "sha256": None,
    "python": PYTHON,
    "metrics_directory": None,
    "metrics_active": False,
    "units": {},
}
#: What differs whenever a host is read.
_ALWAYS_ANOTHER = ("holders", "boot_id", "pid", "errors", "health")


def record(row: Row, before: Facts, after: Facts) -> None:
    """Write down what the facts of a host were before and after a row."""
    document = recorded_facts.read(RECORDED) if RECORDED.exists() else {"hosts": {}, "rows": {}}
    plain = {} if row.pool == PLAIN else _after_site(PLAIN, document["hosts"])
    facts = {name: value for name, value in before.items() if name != "host_program"}
    document["hosts"].setdefault(row.pool, recorded_facts.changes(plain, facts))
    document["rows"][row.what] = recorded_facts.changes(before, after, ignored=_ALWAYS_ANOTHER)
    recorded_facts.write(RECORDED, document)


_TOOLKIT = (
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
)
_TOOLKIT_AGAIN = (Kind.INSTALL_TOOLKIT, Kind.HOLD_PACKAGES, Kind.GENERATE_CDI_SPECIFICATION)
_APT = "DEBIAN_FRONTEND=noninteractive apt-get -qq -y --allow-downgrades --allow-change-held-packages"
_CONFIG = "nvidia-ctk config --in-place --set"
#: Nobody may hold the driver while it is unloaded or a GPU changes its mode.
_IDLE = "systemctl stop nvidia-persistenced; {}; systemctl start nvidia-persistenced"
_UNLOAD = "systemctl stop nvidia-persistenced; modprobe -r nvidia_uvm nvidia_modeset nvidia"
_DESTROY = "nvidia-smi mig -i 0 -dci; nvidia-smi mig -i 0 -dgi"

_STOPPED = "test -e /run/stopped"


def _stops(program: str, arguments: str) -> str:
    """Return a script that has a program stop where it is called with arguments (a pattern of the shell), until the power is cut."""
    return f"""mkdir -p /opt/stops; cp /usr/bin/{program} /opt/stops/{program}; cat >/opt/stops/{program}.sh <<'END'
#!/bin/sh
case "$*" in {arguments}) touch /run/stopped; exec sleep 600;; esac
exec /opt/stops/{program} "$@"
END
chmod 755 /opt/stops/{program}.sh; mount --bind /opt/stops/{program}.sh /usr/bin/{program}"""


_KEEP_CONFIG = "cp -p /etc/nvidia-container-runtime/config.toml /root"
_KEPT_CONFIG = "cp -p /root/config.toml /etc/nvidia-container-runtime"
_KEEP_CONTAINERD = "cp -p /etc/containerd/config.toml /root/containerd.toml"
_KEPT_CONTAINERD = "cp -p /root/containerd.toml /etc/containerd/config.toml"
_OF_ANOTHER_DRIVER = "s/580.178.04/570.195.03/g"
#: Modules of a kernel that is booted next.
_NEXT = "/lib/modules/6.99.0"
_PURGE = "dpkg-query -W -f '${Package}\\n' 'nvidia-*' 'libnvidia-*' libcuda1 | grep -v container | xargs dpkg --purge --force-all"
#: The lab puts the one of the row there.
_OTHER_CONTAINERD = (
    "cp -p /usr/bin/containerd /root; install -m 755 /opt/containerd /usr/bin/containerd; systemctl restart containerd"
)
_DEBIANS_CONTAINERD = "install -m 755 /root/containerd /usr/bin/containerd; systemctl restart containerd"
#: As in files that Kubespray wrote before its release 2.29.
_SPELLED_TWICE = r"""sed -i 's|^\( *\)BinaryName = .*nvidia-container-runtime"|&\n\1binaryName = "/usr/local/bin/runc"|' /etc/containerd/config.toml"""
_DEAD_CONTAINERD = f"""{_OTHER_CONTAINERD}; mkdir -p /etc/containerd/conf.d; sed -i '1i imports = ["/etc/containerd/conf.d/*.toml"]' /etc/containerd/config.toml
printf 'version = 4\\n[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia]\\nruntime_type = "io.containerd.runc.v2"\\n' \
>/etc/containerd/conf.d/99-nvidia.toml; systemctl restart containerd"""
#: A disk that is full: less than a specification has room in it.
_NO_ROOM = "rm -f /var/run/cdi/nvidia.yaml; mount -t tmpfs -o size=4k none /var/run/cdi"
_CDI_FAILS = Failure(
    ("nvidia-ctk cdi generate", "no space left on device", "4 times in 7 s"), "/var/run/cdi", "umount /var/run/cdi"
)
_TEMPLATE = "/var/lib/rancher/k3s/agent/etc/containerd/config-v3.toml.tmpl"

ROWS: tuple[Row, ...] = (
    Row(
        "nvidia-smi -c EXCLUSIVE_PROCESS",
        (Kind.SET_COMPUTE_MODE, Kind.RECORD_SHARING),
        "nvidia-smi -i 1 -c EXCLUSIVE_PROCESS",
    ),
    Row(
        "nvidia-smi -c DEFAULT on a GPU of an MPS daemon",
        (Kind.SET_COMPUTE_MODE,),
        "nvidia-smi -i 0 -c DEFAULT",
        pool=MPS,
    ),
    Row(
        "nvidia-smi -pl",
        (Kind.SET_POWER_LIMIT,),
        "nvidia-smi -i 0 -pl 400",
    ),
    Row(
        "nvidia-smi mig -dci",
        (Kind.CREATE_COMPUTE_INSTANCE, Kind.GENERATE_CDI_SPECIFICATION),
        "nvidia-smi mig -i 0 -dci",
    ),
    Row(
        "nvidia-smi mig -dci, then -dgi",
        (Kind.CREATE_GPU_INSTANCE, Kind.GENERATE_CDI_SPECIFICATION),
        _DESTROY,
    ),
    Row(
        "nvidia-smi mig -dci, then -dgi, and the folder of CDI specifications is full",
        (Kind.CREATE_GPU_INSTANCE, Kind.GENERATE_CDI_SPECIFICATION),
        f"{_DESTROY}; {_NO_ROOM}",
        fails=_CDI_FAILS,
    ),
    Row(
        "nvidia-smi -mig 0",
        (Kind.ENABLE_MIG, Kind.CREATE_GPU_INSTANCE, Kind.GENERATE_CDI_SPECIFICATION),
        f"{_DESTROY}; {_IDLE.format('nvidia-smi -i 0 -mig 0')}",
        default=True,
    ),
    Row(
        "nvidia-smi -mig 1 on a GPU that is to be whole",
        (Kind.DISABLE_MIG,),
        _IDLE.format("nvidia-smi -i 1 -mig 1"),
    ),
    Row(
        "an instance in use that the layout does not have",
        (Kind.GENERATE_CDI_SPECIFICATION,),
        f"{_DESTROY}; nvidia-smi mig -i 0 -cgi 7g.80gb -C; systemd-run --quiet --unit=job sleep infinity; "
        "virtual-gpu run --gpu 0 --gi 0 --ci 0 --pid $(systemctl show --value -p MainPID job)",
        refused="GPU 0",
        undo="systemctl stop job",
        default=True,
    ),
    Row(
        "nvidia-smi -mig 1 on a GPU of a pool without MIG",
        (Kind.DISABLE_MIG,),
        _IDLE.format("nvidia-smi -i 1 -mig 1"),
        pool=PLAIN,
    ),
    Row(
        "instances of MIG are made by hand on a GPU of a pool without MIG",
        (Kind.DESTROY_GPU_INSTANCE, Kind.DISABLE_MIG, Kind.GENERATE_CDI_SPECIFICATION),
        f"{_IDLE.format('nvidia-smi -i 1 -mig 1')}; nvidia-smi mig -i 1 -cgi 3g.40gb,2g.20gb -C",
        pool=PLAIN,
    ),
    Row(
        "MIG on a GPU of an MPS daemon",
        (Kind.DISABLE_MIG, Kind.SET_COMPUTE_MODE, Kind.START_MPS_DAEMON),
        f"systemctl stop gpufleet-mps@node.service; {_IDLE.format('nvidia-smi -i 1 -mig 1')}",
        pool=MPS,
    ),
    Row(
        "apt-mark unhold of a package of the driver",
        (Kind.HOLD_PACKAGES,),
        "apt-mark unhold nvidia-persistenced",
    ),
    Row(
        "apt-mark unhold of a package of the toolkit",
        (Kind.HOLD_PACKAGES,),
        "apt-mark unhold nvidia-container-toolkit",
    ),
    Row(
        "an older toolkit is installed",
        _TOOLKIT_AGAIN,
        f"{_APT} install {' '.join(f'{one}=1.19.1-1' for one in _TOOLKIT)}",
    ),
    Row(
        "one package of the toolkit is older",
        _TOOLKIT_AGAIN,
        "cd /tmp && apt-get -qq download libnvidia-container1=1.19.1-1 && dpkg --force-all -i libnvidia-container1_*.deb",
    ),
    Row(
        "the toolkit is removed",
        _TOOLKIT_AGAIN,
        f"{_APT} remove nvidia-container-toolkit",
    ),
    Row(
        "another driver is installed",
        (Kind.DOWNGRADE_DRIVER, Kind.HOLD_PACKAGES),
        f"apt-mark unhold $(apt-mark showhold); {_APT} install nvidia-driver-pinning-595; {_APT} dist-upgrade",
        pool=PLAIN,
    ),
    Row(
        "another driver is installed and loaded, and the folder of CDI specifications is full",
        (Kind.DOWNGRADE_DRIVER, Kind.HOLD_PACKAGES, Kind.GENERATE_CDI_SPECIFICATION),
        f"apt-mark unhold $(apt-mark showhold); {_APT} install nvidia-driver-pinning-595; {_APT} dist-upgrade; {_UNLOAD}; modprobe nvidia; "
        f"modprobe nvidia_uvm; systemctl start nvidia-persistenced; {_NO_ROOM}",
        pool=PLAIN,
        # nvidia-cdi-refresh.service of NVIDIA's package tries it, too, and leaves its own.
        fails=replace(_CDI_FAILS, empty=""),
    ),
    Row(
        "another driver is installed, loaded and in use",
        (Kind.DOWNGRADE_DRIVER, Kind.HOLD_PACKAGES),
        f"apt-mark unhold $(apt-mark showhold); {_APT} install nvidia-driver-pinning-595; {_APT} dist-upgrade; {_UNLOAD}; modprobe nvidia; "
        "modprobe nvidia_uvm; systemctl start nvidia-persistenced; "
        """systemd-run --unit=job python3 -c "import os, time; os.open('/dev/nvidiactl', os.O_PATH); time.sleep(3600)"; sleep 1""",
        pool=PLAIN,
        reboots=True,
    ),
    Row(
        "the container runtime is removed",
        (),
        f"{_APT} remove containerd",
        pool=PLAIN,
        refused="nvidia_toolkit_runtime",
        undo=f"{_APT} install containerd",
    ),
    Row(
        "accept-nvidia-visible-devices-envvar-when-unprivileged is switched on",
        (Kind.ACCEPT_DEVICES,),
        f"{_CONFIG} accept-nvidia-visible-devices-envvar-when-unprivileged=true",
        default=True,
    ),
    Row(
        "accept-nvidia-visible-devices-as-volume-mounts is switched off",
        (Kind.ACCEPT_DEVICES,),
        f"{_CONFIG} accept-nvidia-visible-devices-as-volume-mounts=false",
    ),
    Row(
        "the CDI specification is removed",
        (Kind.GENERATE_CDI_SPECIFICATION,),
        "rm /var/run/cdi/nvidia.yaml",
    ),
    Row(
        "the runtime's block is removed",
        (Kind.CONFIGURE_RUNTIME,),
        "containerd config default >/etc/containerd/config.toml; systemctl restart containerd",
    ),
    Row(
        "the runtime nvidia calls another program",
        (Kind.CORRECT_RUNTIME,),
        "sed -i 's,/usr/bin/nvidia-container-runtime,/usr/local/nvidia/toolkit/nvidia-container-runtime,' /etc/containerd/config.toml; "
        "systemctl restart containerd",
    ),
    Row(
        "the runtime nvidia has no type",
        (Kind.CORRECT_RUNTIME,),
        "sed -i '/runtimes.nvidia\\]/,/runtimes.nvidia.options/{/runtime_type/d}' /etc/containerd/config.toml; systemctl restart containerd",
    ),
    Row(
        "the runtime nvidia is made the default",
        (Kind.SET_DEFAULT_RUNTIME,),
        "nvidia-ctk runtime configure --runtime=containerd --nvidia-set-as-default; systemctl restart containerd",
    ),
    Row(
        "a unit is disabled",
        (Kind.ENABLE_SERVICE,),
        "systemctl disable gpufleet-mig.service",
    ),
    Row(
        "a unit is masked",
        (Kind.UNMASK_SERVICE, Kind.WRITE_FILE, Kind.ENABLE_SERVICE),
        "systemctl disable gpufleet-mig.service; ln -sf /dev/null /etc/systemd/system/gpufleet-mig.service; systemctl daemon-reload",
    ),
    Row(
        "the timer of the metrics is disabled",
        (Kind.ENABLE_SERVICE, Kind.START_SERVICE),
        "systemctl disable --now gpufleet-metrics.timer",
    ),
    Row(
        "the timer of the metrics is stopped",
        (Kind.START_SERVICE,),
        "systemctl stop gpufleet-metrics.timer",
    ),
    Row(
        "the host program is removed",
        (Kind.INSTALL_HOST_PROGRAM,),
        "rm -rf /usr/local/lib/gpufleet",
        default=True,
    ),
    Row(
        "the record of MIG is removed",
        (Kind.RECORD_LAYOUT,),
        "rm /etc/gpufleet/mig.json",
    ),
    Row(
        "the record of MIG is cut off in its middle",
        (Kind.RECORD_LAYOUT,),
        "truncate -s 100 /etc/gpufleet/mig.json",
    ),
    Row(
        "the record of the settings is removed",
        (Kind.RECORD_SETTINGS,),
        "rm /etc/gpufleet/settings.json",
    ),
    Row(
        "the record of sharing is removed",
        (Kind.RECORD_SHARING,),
        "rm /etc/gpufleet/sharing.json",
        pool=MPS,
    ),
    Row(
        "all records are removed",
        (Kind.RECORD_LAYOUT, Kind.RECORD_SETTINGS),
        "rm -rf /etc/gpufleet",
    ),
    Row(
        "the MPS daemon is stopped",
        (Kind.START_MPS_DAEMON,),
        "systemctl stop gpufleet-mps@node.service",
        pool=MPS,
    ),
    Row(
        "the MPS daemon is disabled",
        (Kind.ENABLE_MPS_DAEMON,),
        "systemctl disable gpufleet-mps@node.service",
        pool=MPS,
    ),
    Row(
        "the MPS daemon is masked",
        (Kind.START_MPS_DAEMON,),
        "systemctl mask --now gpufleet-mps@node.service",
        pool=MPS,
    ),
    Row(
        "the parameters of the module are removed",
        (Kind.WRITE_FILE, Kind.RENEW_INITRAMFS, Kind.RELOAD_DRIVER),
        "rm /etc/modprobe.d/gpufleet-nvidia.conf",
    ),
    Row(
        "nvidia-persistenced is disabled and stopped",
        (Kind.START_SERVICE,),
        "systemctl disable --now nvidia-persistenced",
    ),
    Row(
        "nvidia-persistenced is masked",
        (Kind.UNMASK_SERVICE, Kind.START_SERVICE),
        "systemctl mask --now nvidia-persistenced",
    ),
    Row(
        "the driver is unloaded",
        (Kind.LOAD_DRIVER, Kind.START_SERVICE),
        _UNLOAD,
        pool=PLAIN,
    ),
    Row(
        "the module of the running kernel is gone",
        (Kind.BUILD_MODULE,),
        "dkms unbuild nvidia/$(modinfo -F version nvidia) -k $(uname -r)",
    ),
    Row(
        "nouveau is loaded",
        (Kind.BLOCK_KERNEL_MODULE, Kind.RENEW_INITRAMFS, Kind.LOAD_DRIVER, Kind.START_SERVICE),
        f"{_UNLOAD}; virtual-gpu nouveau on",
        pool=PLAIN,
        reboots=True,
    ),
    # What people report of other hosts.
    Row(
        "a GPU is bound to vfio-pci",
        (),
        "virtual-gpu bind --gpu 0 vfio-pci",
        pool=PLAIN,
        refused="gpu_facts_passthrough",
        undo="virtual-gpu bind --gpu 0 nvidia",
    ),
    Row(
        "the kernel loads nova_core",
        (),
        f"{_UNLOAD}; virtual-gpu bind --gpu 0 NovaCore; virtual-gpu bind --gpu 1 NovaCore",
        pool=PLAIN,
        refused="h100-80gb-sxm (0000:18:00.0), h100-80gb-sxm (0000:2a:00.0)",
        undo="virtual-gpu bind --gpu 0 nvidia; virtual-gpu bind --gpu 1 nvidia",
    ),
    Row(
        "a kernel is installed without a module of the driver",
        (Kind.BUILD_MODULE,),
        f"""cp -a /lib/modules/$(uname -r) {_NEXT}; rm -rf {_NEXT}/updates {_NEXT}/build; cp -aL /lib/modules/$(uname -r)/build {_NEXT}/build
sed -i "s/$(uname -r)/{os.path.basename(_NEXT)}/" {_NEXT}/build/include/generated/utsrelease.h; touch /boot/vmlinuz-{os.path.basename(_NEXT)}""",
        pool=PLAIN,
        undo=f"dkms remove nvidia/$(modinfo -F version nvidia) -k {os.path.basename(_NEXT)}; rm -rf {_NEXT} /boot/vmlinuz-{os.path.basename(_NEXT)}",
    ),
    Row(
        "dkms remove --all, and the module is gone",
        (),
        f"dkms remove nvidia/$(modinfo -F version nvidia) --all; {_UNLOAD}",
        pool=PLAIN,
        refused="driver",
        undo=f"{_APT} install --reinstall nvidia-kernel-open-dkms",
    ),
    Row(
        "a kernel is installed whose headers no repository offers",
        (),
        f"""cp -a /lib/modules/$(uname -r) {_NEXT}; rm -rf {_NEXT}/updates {_NEXT}/build; depmod {os.path.basename(_NEXT)}
touch /boot/vmlinuz-{os.path.basename(_NEXT)}; touch --date='1 minute' /var/lib/apt/lists""",
        pool=PLAIN,
        refused="the kernel",
        undo=f"rm -rf {_NEXT} /boot/vmlinuz-{os.path.basename(_NEXT)}",
    ),
    Row(
        "the file of the loaded module cannot be read, and DKMS does not have it",
        (),
        "dkms remove nvidia/$(modinfo -F version nvidia) --all; mount -t tmpfs none /lib/modules",
        pool=PLAIN,
        undo=f"umount /lib/modules; {_APT} install --reinstall nvidia-kernel-open-dkms",
    ),
    Row(
        "the driver comes from the GPU Operator's driver container",
        (),
        f"mkdir -p /run/nvidia/driver/usr/bin; cp /usr/bin/nvidia-smi /run/nvidia/driver/usr/bin; systemctl stop nvidia-persistenced; {_PURGE}",
        pool=PLAIN,
        refused="nvidia_driver_source",
        undo="rm -rf /run/nvidia/driver; rmmod nvidia_uvm nvidia",
    ),
    Row(
        "the driver comes from another vendor's repository",
        (),
        "cp /var/lib/dpkg/status /root/status; sed -i 's/^Maintainer: NVIDIA.*/Maintainer: negativo17.org/' /var/lib/dpkg/status",
        pool=PLAIN,
        refused="nvidia_driver_source",
        undo="cp /root/status /var/lib/dpkg/status",
    ),
    Row(
        "packages of the driver come from another vendor's repository, too",
        (),
        "cp /var/lib/dpkg/status /root/status; "
        "sed -i '/^Package: nvidia-persistenced$/,/^$/s/^Maintainer: .*/Maintainer: negativo17.org/' /var/lib/dpkg/status",
        pool=PLAIN,
        refused="nvidia_driver_source",
        undo="cp /root/status /var/lib/dpkg/status",
    ),
    Row(
        "the driver reports that MIG is not supported",
        (Kind.GENERATE_CDI_SPECIFICATION,),
        "virtual-gpu fail nvmlDeviceGetMigMode NOT_SUPPORTED",
        refused="nvidia_mig_layout[0].devices",
        undo="virtual-gpu fail --clear",
    ),
    Row(
        "an old CDI specification in /etc/cdi",
        (Kind.MOVE_ASIDE,),
        f"mkdir -p /etc/cdi; sed {_OF_ANOTHER_DRIVER} /var/run/cdi/nvidia.yaml >/etc/cdi/nvidia.yaml",
        pool=PLAIN,
    ),
    Row(
        "the CDI specification is of another driver",
        (Kind.GENERATE_CDI_SPECIFICATION,),
        f"sed -i {_OF_ANOTHER_DRIVER} /var/run/cdi/nvidia.yaml",
        pool=PLAIN,
    ),
    Row(
        "the CDI specification has the device numbers of another boot",
        (Kind.GENERATE_CDI_SPECIFICATION,),
        r"sed -i '/^ *major: /d; s|^\( *\)- path: /dev/nvidia-uvm$|&\n\1  major: 511|' /var/run/cdi/nvidia.yaml",
        pool=PLAIN,
    ),
    Row(
        "nvidia_uvm is unloaded",
        (Kind.GENERATE_CDI_SPECIFICATION,),
        "rmmod nvidia_uvm",
        pool=PLAIN,
    ),
    Row(
        "somebody starts an MPS daemon on GPUs that have one",
        (),
        "nvidia-cuda-mps-control -d",
        pool=MPS,
        refused="nvidia_sharing_mps_manager",
        undo="echo quit | nvidia-cuda-mps-control",
    ),
    Row(
        "somebody starts an MPS daemon on GPUs that are shared by time slices",
        (),
        "nvidia-cuda-mps-control -d",
        pool=SLICED,
        refused="nvidia_sharing_mode",
        undo="echo quit | nvidia-cuda-mps-control",
    ),
    Row(
        "the program of the runtime nvidia is removed",
        (),
        "mv /usr/bin/nvidia-container-runtime /root",
        pool=PLAIN,
        refused="/usr/bin/nvidia-container-runtime",
        undo="mv /root/nvidia-container-runtime /usr/bin",
    ),
    Row(
        "containerd 2 takes the place of containerd 1.6",
        (),
        _OTHER_CONTAINERD,
        pool=PLAIN,
        undo=_DEBIANS_CONTAINERD,
        containerd="2.4.2",
    ),
    Row(
        "the options of the runtime nvidia name runc too, in another spelling",
        (Kind.CORRECT_RUNTIME,),
        f"{_SPELLED_TWICE}; {_OTHER_CONTAINERD}",
        pool=PLAIN,
        undo=_DEBIANS_CONTAINERD,
        containerd="2.4.2",
    ),
    Row(
        "the options of the runtime nvidia name runc too, in another spelling, and containerd 1.7 runs",
        (Kind.ENABLE_CDI,),
        f"{_SPELLED_TWICE}; {_OTHER_CONTAINERD}",
        pool=PLAIN,
        undo=_DEBIANS_CONTAINERD,
        containerd="1.7.35",
    ),
    Row(
        "a drop-in of an earlier toolkit keeps containerd from starting",
        (Kind.ENABLE_CDI, Kind.MOVE_ASIDE),
        _DEAD_CONTAINERD,
        pool=PLAIN,
        undo=f"sed -i /^imports/d /etc/containerd/config.toml; {_DEBIANS_CONTAINERD}",
        containerd="1.7.35",
    ),
    Row(
        "a drop-in of an earlier toolkit keeps containerd from starting, and the toolkit is older",
        (*_TOOLKIT_AGAIN, Kind.ENABLE_CDI, Kind.MOVE_ASIDE),
        f"{_APT} install {' '.join(f'{one}=1.19.1-1' for one in _TOOLKIT)}; {_DEAD_CONTAINERD}",
        pool=PLAIN,
        undo=f"sed -i /^imports/d /etc/containerd/config.toml; {_DEBIANS_CONTAINERD}",
        containerd="1.7.35",
    ),
    Row(
        "another tool leaves a template of k3s that has neither the base nor what containerd needs",
        (),
        f"echo '# nvidia' >{_TEMPLATE}",
        pool=K3S,
        refused=_TEMPLATE,
        undo=f"rm {_TEMPLATE}",
    ),
    Row(
        "k3s does not start with a template that another tool left",
        (),
        f"echo '# nvidia' >{_TEMPLATE}; systemctl restart k3s",
        pool=K3S,
        refused=_TEMPLATE,
        undo=f"rm {_TEMPLATE}; systemctl restart k3s",
    ),
    Row(
        "a template of k3s leaves out the runtimes that k3s finds",
        (Kind.CONFIGURE_RUNTIME,),
        f"sed -n '/range/q;p' /usr/local/share/k3s/base.tmpl >{_TEMPLATE}; systemctl restart k3s",
        pool=K3S,
        undo=f"rm {_TEMPLATE}; systemctl restart k3s",
    ),
    Row(
        "the GPU Operator's toolkit is left where k3s looks first",
        (Kind.CORRECT_RUNTIME, Kind.MOVE_ASIDE),
        "mkdir -p /usr/local/nvidia/toolkit; cp /usr/bin/nvidia-container-runtime /usr/local/nvidia/toolkit; systemctl restart k3s",
        pool=K3S,
    ),
    Row(
        "the GPU Operator's toolkit is left where k3s looks first, and a template leaves out the runtimes that k3s finds",
        (Kind.CONFIGURE_RUNTIME, Kind.MOVE_ASIDE),
        "mkdir -p /usr/local/nvidia/toolkit; cp /usr/bin/nvidia-container-runtime /usr/local/nvidia/toolkit; "
        f"sed -n '/range/q;p' /usr/local/share/k3s/base.tmpl >{_TEMPLATE}; systemctl restart k3s",
        pool=K3S,
        undo=f"rm {_TEMPLATE}; systemctl restart k3s",
    ),
    Row(
        "a package of Docker disables containerd's CRI plugin",
        (),
        f"{_KEEP_CONTAINERD}; sed -i '1i disabled_plugins = [\"cri\"]' /etc/containerd/config.toml; systemctl restart containerd",
        pool=PLAIN,
        refused="/etc/containerd/config.toml",
        undo=f"{_KEPT_CONTAINERD}; systemctl restart containerd",
    ),
    Row(
        "the configuration of containerd is cut off in its middle",
        (),
        f"{_KEEP_CONTAINERD}; echo 'root =' >>/etc/containerd/config.toml",
        pool=PLAIN,
        refused="configuration of containerd",
        undo=_KEPT_CONTAINERD,
    ),
    Row(
        "the configuration of the toolkit is cut off in its middle",
        (),
        f"{_KEEP_CONFIG}; echo 'mode =' >>/etc/nvidia-container-runtime/config.toml",
        pool=PLAIN,
        refused="/etc/nvidia-container-runtime/config.toml",
        undo=_KEPT_CONFIG,
    ),
    Row(
        "the toolkit keeps the root of a driver container",
        (),
        f"{_KEEP_CONFIG}; {_CONFIG} nvidia-container-cli.root=/run/nvidia/driver",
        pool=PLAIN,
        refused="/etc/nvidia-container-runtime/config.toml, nvidia-container-cli.root",
        undo=_KEPT_CONFIG,
    ),
    Row(
        "the toolkit is put into the mode of Tegra",
        (),
        f"{_KEEP_CONFIG}; {_CONFIG} nvidia-container-runtime.mode=csv",
        pool=PLAIN,
        refused="/etc/nvidia-container-runtime/config.toml, nvidia-container-runtime.mode",
        undo=_KEPT_CONFIG,
    ),
    # A run of site is cut off by a power cut.
    Row(
        "a power cut while dpkg installs another driver",
        (Kind.CHANGE_DRIVER,),
        pool=PLAIN,
        cut=Cut({"nvidia_driver_branch": "595"}, _STOPPED, _stops("dpkg", "*--configure*")),
    ),
    Row(
        "a power cut while dpkg installs another toolkit",
        _TOOLKIT_AGAIN,
        pool=PLAIN,
        cut=Cut({"nvidia_toolkit_version": "1.19.1"}, _STOPPED, _stops("dpkg", "*--configure*")),
    ),
    Row(
        "a power cut before the runtime restarts",
        pool=PLAIN,
        cut=Cut(
            {},
            _STOPPED,
            f"containerd config default >/etc/containerd/config.toml; {_stops('systemctl', 'restart*containerd*')}",
        ),
    ),
    Row(
        "a power cut before the units of the boot are enabled",
        (Kind.ENABLE_SERVICE, Kind.START_SERVICE, Kind.ENABLE_MIG, Kind.CREATE_GPU_INSTANCE, Kind.SET_POWER_LIMIT),
        cut=Cut(
            {},
            _STOPPED,
            "rm -rf /usr/local/lib/gpufleet /etc/systemd/system/gpufleet-* /etc/systemd/system/*.wants/gpufleet-*; "
            f"systemctl daemon-reload; {_stops('systemctl', 'enable*gpufleet-*')}",
        ),
    ),
    Row(
        "a power cut between the power limits of two GPUs",
        (Kind.SET_POWER_LIMIT, Kind.RECORD_SETTINGS),
        cut=Cut(
            {"nvidia_settings_power_limit": 450},
            """virtual-gpu show | grep -q '"power_limit_mw": 450000'""",
            "virtual-gpu fail nvmlDeviceSetPowerManagementLimit hang:3600 --nth 2",
        ),
    ),
    Row(
        "a power cut between two instances of MIG",
        (Kind.DESTROY_GPU_INSTANCE, Kind.CREATE_GPU_INSTANCE),
        cut=Cut(
            {"nvidia_mig_layout": [{"devices": [0], "instances": {"1g.10gb": 7}}, {"devices": [1], "enabled": False}]},
            "tail -n 1 /var/lib/gpufleet/mig-journal.jsonl | grep -q 'create GPU instance'",
            "virtual-gpu fail nvmlDeviceCreateGpuInstanceWithPlacement hang:3600 --nth 2",
        ),
    ),
    Row(
        "a power cut before an MPS daemon starts",
        (Kind.STOP_MPS_DAEMON, Kind.START_MPS_DAEMON, Kind.RECORD_SHARING),
        pool=MPS,
        cut=Cut({"nvidia_sharing_mps_scope": "gpu"}, _STOPPED, _stops("systemctl", "*start*gpufleet-mps@*")),
    ),
    Row(
        "a power cut while dpkg installs DCGM",
        (Kind.INSTALL_DCGM, Kind.HOLD_PACKAGES, Kind.ENABLE_SERVICE, Kind.START_SERVICE),
        pool=PLAIN,
        cut=Cut({"nvidia_dcgm_state": "present"}, _STOPPED, _stops("dpkg", "*--configure*")),
    ),
)

_OURS = "/etc/slurm/gpufleet"
_KEEP_GRES = f"cp -p {_OURS}/gres.conf /root/gres.conf; sed -i '$d' {_OURS}/gres.conf; systemctl restart slurmd"
#: What is done to the files of Slurm on a node and to its slurmd, beside real daemons: C(tests/lab/test_slurm_lab.py).
SLURM_ROWS: tuple[Row, ...] = (
    Row(
        "a line of gres.conf is lost, and slurmd is restarted",
        (Kind.WRITE_FILE, Kind.RESTART_SERVICE),
        _KEEP_GRES,
    ),
    Row(
        "slurmd was started without a line of gres.conf, which was put back",
        (Kind.RESTART_SERVICE,),
        f"{_KEEP_GRES}; cp -p /root/gres.conf {_OURS}/gres.conf",
        default=True,
    ),
    Row(
        "the lines of nodes in nodes.conf are edited",
        (Kind.WRITE_FILE, Kind.RESTART_SERVICE),
        f"sed -i 's/CPUs=64/CPUs=32/' {_OURS}/nodes.conf",
    ),
    Row(
        "the prolog is edited",
        (Kind.WRITE_FILE,),
        f"echo true >>{_OURS}/task-prolog.sh",
    ),
    Row(
        "a cgroup.conf that is not rendered",
        (Kind.REMOVE_FILE, Kind.RESTART_SERVICE),
        f"echo ConstrainDevices=no >{_OURS}/cgroup.conf",
    ),
    Row(
        "the record of what slurmd was started with is lost",
        (Kind.RESTART_SERVICE,),
        f"rm {_OURS}/applied.json",
    ),
)
