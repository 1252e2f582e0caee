# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plain text tables: columns as wide as their widest cell, or as the terminal has room for; equal neighbours folded into ranges; and the one
name under which the collection writes labels and annotations of Kubernetes objects.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from itertools import zip_longest

from ...module_utils._plan import Refused

_GAP = "  "


def table(header: Sequence[str], rows: Sequence[Sequence[str]], width: int = 0) -> str:
    """Return C(rows) under C(header), every column left-aligned, without trailing blanks.

    :param width: columns of the terminal. Cells that have no room are written over several lines, and never cut off. 0 for no limit.
    """
    lines = [header, *rows]
    widths = _fitting(lines, width)
    return "\n".join(text for line in lines for text in _wrapped(line, widths)) + "\n"


def blocks(rows: Sequence[Sequence[str]], width: int = 0) -> list[str]:
    """Return rows of the same length as lines; columns that have no room are put below the others, under the first column again."""
    widths = _widths(rows)
    groups: list[list[int]] = [[0]]
    for column in range(1, len(widths)):
        used = sum(widths[one] + len(_GAP) for one in groups[-1])
        if width and used + widths[column] > width and len(groups[-1]) > 1:
            groups.append([0])
        groups[-1].append(column)
    lines: list[str] = []
    for group in groups:
        lines += [""] if lines else []
        lines += [_GAP.join(row[one].ljust(widths[one]) for one in group).rstrip() for row in rows]
    return lines


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]


def _fitting(lines: Sequence[Sequence[str]], width: int) -> list[int]:
    """Return the widths of the columns; the widest give way first, down to their longest word."""
    widths = _widths(lines)
    if not width:
        return widths
    least = [
        max(len(word) for line in lines for word in (line[column].split() or [""])) for column in range(len(widths))
    ]
    room = width - len(_GAP) * (len(widths) - 1)
    while sum(widths) > room:
        column = max(range(len(widths)), key=lambda one: (widths[one] > least[one], widths[one]))
        if widths[column] <= least[column]:
            break
        widths[column] -= 1
    return widths


def _wrapped(line: Sequence[str], widths: Sequence[int]) -> list[str]:
    cells = [
        textwrap.wrap(cell, wide, break_long_words=False, break_on_hyphens=False) if len(cell) > wide else [cell]
        for cell, wide in zip(line, widths)
    ]
    return [
        _GAP.join(part.ljust(wide) for part, wide in zip(parts, widths)).rstrip()
        for parts in zip_longest(*cells, fillvalue="")
    ]


def ranges(numbers: Sequence[int]) -> str:
    """Return ascending C(numbers) with runs folded: C([0, 1, 2, 5]) becomes C(0-2,5)."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def counted(resources: Mapping[str, int]) -> str:
    """Return how many there are of each, by name; empty for nothing."""
    return ", ".join(f"{name}: {count}" for name, count in sorted(resources.items()))


def gib(mib: int) -> str:
    """Return an amount of memory in GiB, with one decimal where it has one."""
    return f"{mib / 1024:.1f}".rstrip("0").rstrip(".") + " GiB"


def shortened(names: Sequence[str], most: int = 5) -> str:
    """Return the first C(names) in a sentence, and how many more there are."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


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
