# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The container runtimes, one row each: what is known of a runtime, whoever asks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ._schema import View, has, items, needs, text

CDI, VOLUME_MOUNTS, ENVVAR = "cdi", "volume_mounts", "envvar"


@dataclass(frozen=True)
class ContainerRuntime:
    """A container runtime, or a Kubernetes distribution that brings containerd and a kubelet and generates the configuration of both at every start.

    :param program: which C(--version) is asked of.
    :param units: of systemd, without suffix.
    :param first_with_cdi: the first release that injects the CDI devices which the kubelet names.
    :param agent: of a distribution, the unit that runs a kubelet and no control plane.
    :param first_with_classes: of a distribution, the first Kubernetes of which every release makes the runtime class nvidia.
    :param keeps_containers: whether its containers go on while it restarts, as it is delivered.
    :param shims: where the shims of its containers keep what these were started with, and for which pod; empty where they do not.
    :param first_with_groups: the first release that reads CDI 0.7.0, where a device may belong to a group; empty where all of them do.
    :param injection: what C(auto) is. It depends on nothing that is read from a host, so reading or adding one changes nothing.
    """

    title: str
    program: str
    units: tuple[str, ...]
    first_with_cdi: tuple[int, ...]
    agent: str = ""
    first_with_classes: tuple[int, int] | None = None
    injection: str = CDI
    keeps_containers: bool = True
    shims: str = ""
    first_with_groups: tuple[int, ...] = ()

    @property
    def is_distribution(self) -> bool:
        return bool(self.agent)


@dataclass(frozen=True)
class FileFaultFacts(View):
    """Why nothing can be set up with a file of a runtime as it is. C(kind): a key of the table in C(_runtime/desired.py). C(found): what the file has,
    or lacks.
    """

    kind: str = needs(text(256))
    path: str = needs(text())
    found: tuple[str, ...] = has(items(text(256), 64), ())


@dataclass(frozen=True)
class SeenDistribution:
    """A Kubernetes distribution that is seen and not configured.

    :param units: that it runs as, without suffix.
    :param socket: of its own containerd, which is there where it runs one.
    :param remedy: how that containerd gets the runtime.
    """

    units: tuple[str, ...]
    socket: str
    remedy: str


_TASKS = "containerd/io.containerd.runtime.v2.task"
#: By the name that C(nvidia_toolkit_runtime) has for it. Sources of the first release with CDI: containerd #8519 is in 1.7.2; moby 25.0.0; cri-o#6944 is
#: in 1.28. k3s and RKE2 have their Kubernetes' version, and the kubelet names CDI devices from 1.29 on (KEP-4009, beta). Of the first one with classes:
#: k3s-io/k3s#8700 (v1.29.0, and late releases of older branches); rancher/rke2#7242 and its backports (v1.32.1; of 1.29 to 1.31 late releases only).
#: Of shims: what those of Docker's containers keep says nothing of pods. Of groups: go.mod of containerd v1.7.15 and v1.7.16.
RUNTIMES: Mapping[str, ContainerRuntime] = {
    "containerd": ContainerRuntime(
        "containerd",
        "containerd",
        ("containerd",),
        (1, 7, 2),
        shims=f"/run/{_TASKS}/k8s.io",
        first_with_groups=(1, 7, 16),
    ),
    # docker --gpus gives unprivileged containers nothing where the toolkit refuses the variable (moby#50228).
    "docker": ContainerRuntime("Docker", "dockerd", ("docker",), (25,), injection=ENVVAR, keeps_containers=False),
    "crio": ContainerRuntime("CRI-O", "crio", ("crio",), (1, 28)),
    "k3s": ContainerRuntime(
        "k3s", "k3s", ("k3s", "k3s-agent"), (1, 29), "k3s-agent", (1, 29), shims=f"/run/k3s/{_TASKS}/k8s.io"
    ),
    "rke2": ContainerRuntime(
        "RKE2", "rke2", ("rke2-server", "rke2-agent"), (1, 29), "rke2-agent", (1, 32), shims=f"/run/k3s/{_TASKS}/k8s.io"
    ),
}
DISTRIBUTIONS: Mapping[str, ContainerRuntime] = {name: row for name, row in RUNTIMES.items() if row.is_distribution}
#: A worker of k0s may be told another containerd than its own, and a controller runs no pods. It merges what is in /etc/k0s/containerd.d into the
#: configuration that it generates (docs.k0sproject.io, Runtime [doc]); NVIDIA's operator writes there from v25.10.0 on.
UNCONFIGURED: Mapping[str, SeenDistribution] = {
    "k0s": SeenDistribution(
        ("k0sworker", "k0scontroller"),
        "/run/k0s/containerd.sock",
        "have the GPU Operator (v25.10.0 or later) bring the toolkit with toolkit.env CONTAINERD_CONFIG=/run/k0s/containerd-cri.toml, "
        "RUNTIME_DROP_IN_CONFIG=/etc/k0s/containerd.d/nvidia.toml and CONTAINERD_SOCKET=/run/k0s/containerd.sock",
    ),
}
#: The units of all of them, without suffix.
UNITS = (
    *(unit for row in RUNTIMES.values() for unit in row.units),
    *(unit for row in UNCONFIGURED.values() for unit in row.units),
)
#: Who runs pods on a host that is set up from here, as names of units. They are in the texts of the host's units, which systemd reads again for each other
#: name.
KUBELETS = ("kubelet.service", *(f"{unit}.service" for row in DISTRIBUTIONS.values() for unit in row.units))
#: Who runs pods on any host.
ALL_KUBELETS = (*KUBELETS, *(f"{unit}.service" for row in UNCONFIGURED.values() for unit in row.units))
