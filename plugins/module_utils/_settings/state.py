# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A GPU and its settings, as the facts document has them and as the planner takes them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .._gpu_settings import GpuSettings
from .._schema import check, of
from .._steps import gpu_title
from .._users import User, users_of

_SETTINGS = of(GpuSettings)


@dataclass(frozen=True)
class ObservedGpu:
    """One GPU as it was read.

    :param divided: whether it has GPU instances.
    :param supported: the graphics clocks of each memory clock that it takes as application clocks; None where they were not asked for.
    :param no_reset: why it cannot be reset now; None where nothing stands against it, or nobody has looked.
    """

    index: int
    pci_address: str | None
    uuid: str | None
    name: str | None
    settings: GpuSettings
    users: tuple[User, ...] = ()
    divided: bool = False
    supported: Mapping[int, Sequence[int]] | None = None
    no_reset: str | None = None

    @property
    def title(self) -> str:
        return gpu_title(self.data)

    @property
    def data(self) -> dict[str, Any]:
        """What a step says of its GPU."""
        return {"index": self.index, "pci_address": self.pci_address, "uuid": self.uuid}


def observed(gpu: Mapping[str, Any]) -> ObservedGpu:
    """Return one entry of C(gpus) of the facts."""
    settings = gpu.get("settings")
    if not isinstance(settings, GpuSettings):
        settings = check(_SETTINGS, settings or {})
    identity = gpu["index"], gpu.get("pci_address"), gpu.get("uuid"), gpu.get("name")
    return ObservedGpu(*identity, settings, users_of(gpu).everybody, bool(gpu.get("gpu_instances")))
