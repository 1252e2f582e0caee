# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The one name under which the collection writes labels and annotations of Kubernetes objects, and the names that it leaves to others."""

from __future__ import annotations

import re

from ...module_utils._plan import Refused

LABEL_PREFIX = "gpufleet.github.io"
POOL_LABEL = f"{LABEL_PREFIX}/pool"
CONFIGURATION_LABEL = f"{LABEL_PREFIX}/configuration"
#: The label by which the GPU Operator's MIG manager chooses a layout, and the one in which it says how far it is.
MIG_CONFIG_LABEL = "nvidia.com/mig.config"
MIG_STATE_LABEL = "nvidia.com/mig.config.state"
#: Not ours to relax. Kubernetes reserves names that begin with kube- for itself, and everybody's pods without a namespace are in default
#: (kubernetes.io/docs/concepts/overview/working-with-objects/namespaces). The others have GitOps controllers, which may do all in a cluster.
_OTHERS = ("default", "argocd", "flux-system")


def label_value(text: str) -> str:
    """Return C(text) as the value of a label."""
    return text[:63].strip("-_.")


def refuse_namespace(name: str) -> None:
    """Refuse a namespace for the releases that is not theirs alone: it is rendered with Pod Security privileged, and exempt from the policies."""
    if name in _OTHERS or name.startswith("kube-"):
        raise Refused(
            "gpu_kubernetes_namespace",
            f"pods of {name} could do everything on the nodes: the namespace of the releases is labelled pod-security.kubernetes.io/enforce: "
            "privileged, and is exempt from the policies",
            "Give the releases a namespace of their own, such as nvidia-gpu.",
        )
    if len(name) > 63 or not re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", name):
        remedy = "Use at most 63 lower-case letters, digits and '-', such as nvidia-gpu."
        raise Refused("gpu_kubernetes_namespace", f"{name!r} is not a valid namespace name", remedy)


def refuse_operator_version(version: str) -> None:
    """Refuse what is no version of a chart: it becomes the name of a Git tag.

    :raises Refused: it is none. Empty stands for the pinned version.
    """
    if version and not re.fullmatch(r"v?([0-9]{1,4}\.){2}[0-9]{1,4}(-[0-9A-Za-z.-]{1,64})?", version):
        remedy = "Write it as helm list shows it, such as v25.10.1."
        raise Refused(
            "gpu_kubernetes_operator_version", f"{version!r} is not a version of the chart gpu-operator", remedy
        )


def refuse_node(host: str, name: str) -> None:
    """Refuse a name that no node has: a rule of Node Feature Discovery for it matches nothing, and the API server takes no object of it.

    :raises Refused: it is no DNS subdomain (kubernetes.io/docs/concepts/overview/working-with-objects/names).
    """
    part = "[a-z0-9]([a-z0-9-]*[a-z0-9])?"
    if len(name) > 253 or not re.fullmatch(rf"{part}(\.{part})*", name):
        lower = re.sub(r"[-.]*[.][-.]*", ".", re.sub(r"[^a-z0-9.-]", "-", name.lower())).strip("-.")[:253]
        raise Refused(
            f"{host}: gpu_node_name",
            f"Kubernetes has no node of the name {name!r}: names of nodes have lower-case letters, digits, '-' and '.'",
            f"Set gpu_node_name to what kubectl get nodes shows, such as {lower}.",
        )


def refuse_runtime_class(name: str) -> None:
    """Refuse the name of a runtime class that Kubernetes does not allow: it is written into the expressions of the policies."""
    if len(name) > 253 or not re.fullmatch(r"([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?", name):
        remedy = "Use at most 253 lower-case letters, digits, '-' and '.', such as nvidia."
        raise Refused("gpu_kubernetes_runtime_class", f"{name!r} is not a valid name of a runtime class", remedy)
