# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is to be done about the CDI specifications of a host, by its facts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .._facts_view import CdiFacts, Facts, view_of
from .._printable import printable
from .cdi import DEFAULT_PATH, GPU_KIND


@dataclass(frozen=True)
class CdiState:
    """The specifications of a host.

    :param stale: why the collection's own has to be written anew; empty when it is right, or nothing can be compared.
    :param leftovers: specifications of the GPUs beside it that describe what is not there; C(doubles) those of which runtimes take neither.
    """

    stale: str = ""
    leftovers: tuple[str, ...] = ()
    doubles: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()


def specifications(read: Sequence[Mapping[str, Any]]) -> Sequence[CdiFacts]:
    """Return what was read of the files just now as the part C(cdi) of the facts."""
    return view_of({"cdi": printable(read)}).cdi or ()


def state_of(files: Iterable[CdiFacts], divided_by_others: bool = False) -> CdiState:
    """Return the state of a host with GPUs.

    :param files: the part C(cdi) of the facts.
    :param divided_by_others: whether MIG instances come and go without the host's doing, after C(nvidia-cdi-refresh) has run at boot.
    """
    found = [one for one in files if one.kind in (GPU_KIND, None)]
    # Facts of an earlier release do not say which is the collection's.
    own = next((one for one in found if (one.own if one.says("own") else one.path == DEFAULT_PATH)), None)
    others = [one for one in found if one is not own]
    leftovers = [one for one in others if one.stale or one.differs]
    doubles = [one for one in others if one.double and one not in leftovers]
    right = [one for one in others if one.kind and one not in (*leftovers, *doubles) and not one.missing]
    return CdiState(
        # A host that somebody set up with one elsewhere has what it needs.
        _stale(own, not divided_by_others) if own else "" if right else "there is none",
        tuple(one.path for one in leftovers),
        tuple(one.path for one in doubles),
        tuple(one.path for one in others if not one.kind),
    )


def cdi_of(facts: Facts) -> CdiState:
    """Return what facts tell. Without a driver there is nothing to describe: its stage makes the toolkit's run again."""
    # The operator's MIG manager, or mig-parted, in a cluster: their instances reach pods by the specification of the device plugin alone.
    others = (
        facts.kubelet.installed is True
        and facts.recorded.mig is None
        and any(gpu.mig.current for gpu in facts.gpus or ())
    )
    return state_of(facts.cdi or (), others) if facts.gpus else CdiState()


def describes_others(one: CdiFacts) -> bool:
    """Return whether a specification lacks a device of the host, or has one that is not there."""
    return bool(one.missing or one.stale)


def _stale(own: CdiFacts, devices: bool) -> str:
    if not own.kind:
        return f"{own.path} cannot be read"
    if devices and describes_others(own):
        return f"{own.path} describes other devices"
    return f"{own.path} {', '.join(own.differs)}" if own.differs else ""
