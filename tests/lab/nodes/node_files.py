# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files that make one lab host this node of this cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from .control_plane import ControlPlane
from .layer import CONTAINERD_1_6
from .network import Network

_CRI_1_6 = """version = 2

[plugins]
  [plugins."io.containerd.grpc.v1.cri"]
    restrict_oom_score_adj = true
    disable_cgroup = true
    [plugins."io.containerd.grpc.v1.cri".cni]
      bin_dir = "/usr/lib/cni"
      conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.internal.v1.opt"]
    path = "/var/lib/containerd/opt"
"""
_CRI_2 = """version = 3
imports = ["/etc/containerd/conf.d/*.toml"]

[plugins]
  [plugins."io.containerd.cri.v1.runtime"]
    restrict_oom_score_adj = true
"""


def node_files(runtime: str, name: str, index: int, network: Network, plane: ControlPlane) -> dict[str, str]:
    """Path in the host to text.

    :param index: the host's number in its lab.
    """
    address = network.node(index)
    return {
        "etc/containerd/config.toml": _CRI_1_6 if runtime == CONTAINERD_1_6 else _CRI_2,
        "etc/cni/net.d/10-lab.conflist": json.dumps(_cni(index, network), indent=1),
        "etc/kubernetes/kubelet.yaml": json.dumps(_kubelet(address, plane.gates), indent=1),
        "etc/kubernetes/kubelet.conf": plane.node_kubeconfig(name),
        "etc/kubernetes/pki/ca.crt": (plane.data / "certificates" / "ca.crt").read_text(encoding="ascii"),
        "etc/default/kubelet": f"KUBELET_EXTRA_ARGS=--hostname-override={name} --node-ip={address}\n",
    }


def write_node_files(root: Path, files: dict[str, str]) -> None:
    """Write them below C(root), and make the directory of static pods."""
    (root / "etc/kubernetes/manifests").mkdir(parents=True)
    for path, text in files.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        target.chmod(0o600 if path.endswith(".conf") else 0o644)


def _cni(index: int, network: Network) -> dict[str, object]:
    first, last = network.pod_range(index)
    return {
        "cniVersion": "1.0.0",
        "name": "lab",
        "plugins": [
            {
                "type": "bridge",
                "bridge": network.bridge,
                # The bridge has its address already; a gateway would have forwarding switched on for the whole machine.
                "isGateway": False,
                "ipMasq": False,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": network.pods, "rangeStart": first, "rangeEnd": last}]],
                    "routes": [{"dst": "0.0.0.0/0", "gw": network.gateway}],
                    # Gone after a power cut, as the pods' interfaces are.
                    "dataDir": "/run/cni",
                },
            },
        ],
    }


def _kubelet(address: str, gates: Mapping[str, bool]) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "featureGates": dict(gates),
        "address": address,
        "healthzBindAddress": address,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": "/etc/kubernetes/pki/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "staticPodPath": "/etc/kubernetes/manifests",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        # The cgroup of a lab host has no controllers.
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "singleProcessOOMKill": True,
        "localStorageCapacityIsolation": False,
        "failSwapOn": False,
        # Six settings of the kernel are looked at and not written (prepare-node), and no packet filter is touched.
        "protectKernelDefaults": True,
        "makeIPTablesUtilChains": False,
        # The disk is the machine's: how full it is is no reason to send pods away, or to remove images that no registry has.
        "evictionHard": {},
        "imageGCHighThresholdPercent": 100,
    }
