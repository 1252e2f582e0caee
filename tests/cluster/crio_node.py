# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node of a lab whose kubelet works with CRI-O in place of containerd.

Real are CRI-O and its pinns, built from its module, and Debian's conmon, skopeo and runc (below the lab's wrapper).
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from demo import LAB, Demo
from nodes import programs
from real_tools import install

SOCKET = "/run/crio/crio.sock"
#: On the disk on which containerd has its images: a lab host's own is an overlay, over which no other can lie.
_STORE = "/var/lib/containerd/containers"
_IMAGES = "/usr/lib/gpufleet-lab/images"
#: As upstream's packages have it (cri-o/packaging): the runtime and its monitor by their paths. A lab host has no controllers of cgroups.
_CONFIGURATION = f"""
[crio]
root = "{_STORE}"
storage_driver = "overlay"
[crio.image]
pause_image = "registry.k8s.io/pause:3.6"
[crio.network]
network_dir = "/etc/cni/net.d"
plugin_dirs = ["/usr/lib/cni"]
[crio.runtime]
cgroup_manager = "cgroupfs"
conmon_cgroup = "pod"
default_runtime = "runc"
pinns_path = "/usr/local/bin/pinns"
[crio.runtime.runtimes.runc]
runtime_path = "/usr/local/sbin/runc"
runtime_root = "/run/runc"
monitor_path = "/usr/bin/conmon"
"""
_UNIT = """
[Unit]
Description=Container Runtime Interface for OCI (CRI-O)
After=network-online.target lab-node.service
[Service]
Type=notify
ExecStart=/usr/local/bin/crio
ExecReload=/bin/kill -s HUP $MAINPID
KillMode=process
Delegate=yes
[Install]
WantedBy=multi-user.target
"""
_INSTALL = (
    "apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends conmon skopeo"
)
_IMPORT = f"""
for archive in {_IMAGES}/*.tar; do
    for name in $(tar -xOf $archive manifest.json | python3 -c 'import json, sys; print(*json.load(sys.stdin)[0]["RepoTags"])'); do
        skopeo copy --quiet docker-archive:$archive:$name "containers-storage:[overlay@{_STORE}+/run/containers/storage]$name"
    done
done
"""
#: Every pod of containerd is gone before the kubelet asks CRI-O for its own.
_SWITCH = f"""
systemctl disable --now kubelet containerd lab-images
sed -i 's,unix:///run/containerd/containerd.sock,unix://{SOCKET},' /etc/kubernetes/kubelet.yaml
sed -i 's/containerd.service/crio.service/g; s/ lab-images.service//' /usr/lib/systemd/system/kubelet.service
systemctl daemon-reload
systemctl enable --now crio kubelet
"""


def use_crio(demo: Demo, host: str) -> None:
    """Have the kubelet of a lab host, which has no pods of its own yet, work with CRI-O."""
    crio = install.install(install.TOOLS["crio"])
    _sh(demo, host, _INSTALL)
    with tempfile.TemporaryDirectory() as folder:
        for program in (crio, _pinns(Path(folder))):
            _write(demo, host, f"/usr/local/bin/{program.name}", program.read_bytes())
    _sh(demo, host, "chmod 755 /usr/local/bin/* && mkdir -p /etc/crio/crio.conf.d")
    _write(demo, host, "/etc/crio/crio.conf.d/10-crio.conf", _CONFIGURATION.encode())
    _write(demo, host, "/etc/systemd/system/crio.service", _UNIT.encode())
    _sh(demo, host, _IMPORT)
    _sh(demo, host, _SWITCH)


def _pinns(folder: Path) -> Path:
    """Build CRI-O's program that keeps the namespaces of a pod."""
    source = programs.source("crio") / "pinns" / "src"
    program = folder / "pinns"
    subprocess.run(["gcc", "-O2", "-std=c99", "-static", "-o", program, *source.glob("*.c")], check=True)
    return program


def _sh(demo: Demo, host: str, script: str) -> str:
    return demo.lab("exec", host, "--", "bash", "-euo", "pipefail", "-c", script)


def _write(demo: Demo, host: str, path: str, content: bytes) -> None:
    command = [LAB, "exec", "--name", demo.name, host, "--", "tee", path]
    subprocess.run(command, input=content, stdout=subprocess.DEVNULL, check=True)
