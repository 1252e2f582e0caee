# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A Slurm cluster on lab hosts: slurmctld, slurmd and munge of Debian 12, and the files that the collection renders.

Lab hosts share the network of the machine: each slurmd has a port of its own at an address of the machine that is not loopback. The cgroup of a
lab host has no controllers, so Slurm cannot keep a job from the devices of others: the rendered prolog tells it its own.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time

PACKAGES = "slurmd slurmctld slurm-client munge"
USER = "ada"
#: Both daemons come up with the host, and would fail without a slurm.conf.
INSTALL = f"""
apt-get install -y -qq --no-install-recommends {PACKAGES} >/tmp/apt.log 2>&1 || {{ tail /tmp/apt.log; exit 1; }}
systemctl disable --now slurmctld slurmd 2>/dev/null
useradd --create-home --uid 1500 --shell /bin/bash {USER}
head -c 1024 /dev/zero | tr '\\0' k >/etc/munge/munge.key
install -d -o slurm -g slurm /var/lib/slurm /var/lib/slurm/slurmctld /var/log/slurm
install -d /var/lib/slurm/slurmd /etc/slurm/gpufleet
install -d -m 1777 /var/jobs
"""
CONF = """\
ClusterName=lab
SlurmctldHost={controller}({address})
SlurmctldPort={port}
AuthType=auth/munge
SlurmUser=slurm
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=1
MessageTimeout=3
KillWait=1
TaskProlog=/etc/slurm/gpufleet/task-prolog.sh
Include /etc/slurm/gpufleet/nodes.conf
PartitionName=gpu Nodes=ALL Default=YES State=UP
"""
#: What Slurm offers is compared with the rendered files.
COMPARE = """
- hosts: gpu_hosts
  gather_facts: false
  become: true
  vars: {gpu_slurm_controllers: []}
  roles: [gpufleet.nvidia.gpu_slurm]
"""
#: What of the prolog's names is where is decided by Slurm alone; a job waits for the file that the test makes.
JOB = """#!/bin/bash
echo "$$ $SLURM_JOB_ID $CUDA_VISIBLE_DEVICES" >/var/jobs/$SLURM_JOB_ID.new
nvidia-smi -L >>/var/jobs/$SLURM_JOB_ID.new
mv /var/jobs/$SLURM_JOB_ID.new /var/jobs/$SLURM_JOB_ID
exec sleep 3600
"""
VARIABLES = {
    "nvidia_toolkit_runtime": "none",
    "gpu_kubernetes_cluster": "",
    "gpu_node_kubernetes": False,
    "nvidia_mig_strategy": "mixed",
    "gpu_slurm_cluster": "hpc",
    "gpu_slurm_constrain_devices": False,
}
_PORTS = 17800


class SlurmSite:
    """The cluster C(hpc) of the hosts of a fleet; the controller is on the first."""

    def __init__(self, fleet, pools):
        self.fleet, self.lab = fleet, fleet.lab
        self.pools = pools
        self.hosts = list(pools)
        self.controller = self.hosts[0]
        self.address = _address()
        self.port = _PORTS + min(fleet.ports.values()) % 100 * 10
        (fleet.folder / "compare.yml").write_text(COMPARE, encoding="utf-8")
        conf = CONF.format(controller=self.controller, address=self.address, port=self.port)
        for host in self.hosts:
            self.lab.write(host, "/etc/slurm/slurm.conf", conf)
            self.lab.write(host, "/etc/slurm/gres.conf", "Include /etc/slurm/gpufleet/gres.conf\n")
            # slurmd takes this machine's mixture of both versions for neither; without controllers it makes no difference.
            self.lab.write(host, "/etc/slurm/cgroup.conf", "CgroupPlugin=cgroup/v1\n")
            # Slurm's programs wait a minute for a file that is included and missing.
            self.lab.sh(host, "touch /etc/slurm/gpufleet/nodes.conf /etc/slurm/gpufleet/gres.conf")
            self.lab.write(host, "/usr/local/bin/job", JOB)
            self.lab.sh(host, "chmod 755 /usr/local/bin/job; systemctl restart munge")

    def set_prolog(self, there):
        """Have the site's own slurm.conf name the rendered prolog, or not."""
        for host in self.hosts:
            self.lab.sh(host, f"sed -i 's/^#*TaskProlog/{'' if there else '#'}TaskProlog/' /etc/slurm/slurm.conf")
        self.lab.sh(self.controller, "scontrol reconfigure")

    def variables(self, host):
        """What the inventory says of a host's pool beside its layout."""
        own = {"NodeAddr": self.address, "Port": self.port + 1 + self.hosts.index(host), "CPUs": 64}
        return {**VARIABLES, "gpu_slurm_node_parameters": own, "gpu_slurm_controllers": [self.controller]}

    def describe(self, layouts):
        """Write the inventory: a pool for each host, with its layout."""
        pools = {
            self.pools[host]: {"hosts": [host], "vars": {**self.variables(host), "nvidia_mig_layout": layouts[host]}}
            for host in self.hosts
        }
        self.fleet.describe(pools)

    def partition(self, layouts):
        """Partition the GPUs, render, and bring Slurm the files."""
        self.describe(layouts)
        played = self.play()
        assert played.rc == 0, f"{played.text}\n{self.logs()}"

    def play(self, *options, tags="mig,cluster"):
        """Run site: what of it concerns Slurm."""
        return self.fleet.play("site", "--tags", tags, *options)

    def kill_at(self, step, *command):
        """Run it, or another playbook, and kill it shortly after a task began."""
        line, environment = self.fleet.command(*(command or ("site", "--tags", "mig,cluster")))
        run = subprocess.Popen(
            line, env=environment, cwd=self.fleet.folder, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        seen = any(f": {step}]" in written for written in run.stdout)
        time.sleep(0.3)
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
        assert seen, step

    def daemons(self):
        """The processes that run, by host: slurmd, and on the first slurmctld."""
        return {host: self.lab.sh(host, "systemctl show -P MainPID slurmctld slurmd") for host in self.hosts}

    def logs(self):
        """What the daemons say of why they do not run."""
        script = "systemctl --no-pager status munge slurmctld slurmd; scontrol show node; squeue -l; ls -l /var/jobs; tail -n 20 /var/log/slurm/*.log"
        return "\n".join(self.lab.sh(host, f"{{ {script}; }} 2>&1", check=False) for host in self.hosts)

    def node(self, host):
        """What C(scontrol show node) says of a node; nothing while the controller does not answer."""
        text = self.lab.sh(self.controller, f"scontrol -o show node {host}", check=False)
        return dict(re.findall(r"(\w+)=(.*?)(?=\s+[A-Z]\w*=|\s*$)", text))

    def states(self):
        return {host: self.node(host).get("State") for host in self.hosts}

    def reservations(self):
        return self.lab.sh(self.controller, "scontrol -o show reservation").strip()

    def offered(self, host):
        """How many of each type Slurm has to give."""
        return {
            kind: int(count) for kind, count in re.findall(r"gpu:([^:,()]+):(\d+)", self.node(host).get("Gres", ""))
        }

    def devices(self, host):
        """How many of each profile the hardware has; whole GPUs have none."""
        found = {}
        for gpu in self.show(host):
            for name in [one["profile"] for one in gpu["gpu_instances"]] if gpu["mig"]["current"] else [""]:
                found[name] = found.get(name, 0) + 1
        return found

    def show(self, host):
        return json.loads(self.lab.sh(host, "virtual-gpu show"))["gpus"]

    def compare(self, *options):
        """Run the role that compares what Slurm offers with what was rendered."""
        return self.fleet.play(self.fleet.folder / "compare.yml", *options)

    def submit(self, host, kind):
        """Queue a job of a user for one device of a type, and return its number."""
        done = self.lab.sh(
            self.controller,
            f"sbatch --parsable --uid={USER} --chdir=/var/jobs --output=/dev/null -w {host} --gres=gpu:{kind}:1 /usr/local/bin/job",
        )
        return int(done)

    def seen(self, host, job):
        """What a job printed: its PID, C(CUDA_VISIBLE_DEVICES), and what NVML lists; None while it waits."""
        text = self.lab.sh(host, f"cat /var/jobs/{job}", check=False)
        if not text:
            return None
        first, *listed = text.splitlines()
        pid, _job, device = first.split()
        return int(pid), device, listed

    def end_jobs(self):
        self.lab.sh(self.controller, f"scancel -u {USER}")
        self.wait(lambda: not self.lab.sh(self.controller, "squeue -h").strip())
        for host in self.hosts:
            self.lab.sh(host, "rm -f /var/jobs/*")

    @staticmethod
    def wait(what, logs=str, seconds=30.0):
        end = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < end, f"it did not happen in time\n{logs()}"
            time.sleep(0.2)


def _address():
    """An address of the machine that is not loopback, nor that of a bridge of a lab."""
    listed = json.loads(subprocess.run(["ip", "-j", "-4", "addr"], capture_output=True, check=True).stdout)
    return next(
        one["local"]
        for link in listed
        if link["ifname"] != "lo" and not link["ifname"].startswith("gpulab")
        for one in link["addr_info"]
    )
