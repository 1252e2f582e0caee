# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A GPU and its settings, as the planner takes them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .._gpu_facts import GpuFacts
from .._gpu_settings import GpuSettings


@dataclass(frozen=True)
class GpuWithSettings:
    """One GPU as it was read.

    :param supported: the graphics clocks of each memory clock that it takes as application clocks; None where they were not asked for.
    :param no_reset: why it cannot be reset now; None where nothing stands against it, or nobody has looked.
    """

    facts: GpuFacts
    supported: Mapping[int, Sequence[int]] | None = None
    no_reset: str | None = None

    @property
    def settings(self) -> GpuSettings:
        return self.facts.settings or GpuSettings()

    @property
    def model(self) -> str:
        """The GPU and its product, for people."""
        return f"{self.facts.title}, {self.facts.name},"
