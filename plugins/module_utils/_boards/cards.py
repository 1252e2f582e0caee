# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The boards of a host, by its facts. Apart from L(lookup), which what reads a host loads without the views of facts. Pure."""

from __future__ import annotations

from .._facts_view import CardFacts, Facts
from .._gpu_facts import GpuFacts
from .board import NVLINK5, NVSWITCH, SWITCHES_IN_HOST, SWITCHES_IN_RACK, Board
from .lookup import MACHINE_DRIVERS, find_board, keyed, nvlink5_switches


def board_of(gpu: GpuFacts) -> Board | None:
    """Return the board of a GPU, or None when the table does not have it."""
    found = keyed(gpu.board)
    return found or find_board(gpu.device_id, gpu.name, gpu.memory_mib)


def all_cards(facts: Facts) -> list[CardFacts]:
    """Return those entries of C(pci) of the facts that are GPUs, by address, whoever drives them."""
    return sorted((card for card in facts.pci or () if card.kind == "gpu"), key=lambda card: card.address)


def cards_on_bus(facts: Facts) -> list[CardFacts]:
    """Return the GPUs that are the host's own, in the order in which NVML numbers them: not those that virtual machines have."""
    return [card for card in all_cards(facts) if card.kernel_driver not in MACHINE_DRIVERS]


def own_switches(facts: Facts) -> str | None:
    """Return which NVLink switches the host has itself, L(NVSWITCH) or L(NVLINK5), so that a fabric manager has to run on it; None for none, as in a
    rack. The bus says it first. That boards have switches of NVLink 5 is true of their baseboard, and not of a virtual machine that was given the GPUs
    alone: the host that it is on manages their fabric, if they have one (Fabric Manager User Guide, shared NVSwitch virtualization model).
    """
    fabric = facts.fabric
    boards = {card.board for card in cards_on_bus(facts)} | {gpu.board for gpu in facts.gpus or () if not gpu.lost}
    places = set(map(nvlink5_switches, boards))
    if SWITCHES_IN_RACK in places:
        return None
    if fabric.switch_ports or (SWITCHES_IN_HOST in places and not _is_managed_elsewhere(facts)):
        return NVLINK5
    return NVSWITCH if fabric.nvswitches else None


def _is_managed_elsewhere(facts: Facts) -> bool:
    fabric, manager = facts.fabric, facts.fabric.manager
    # No baseboard with NVLink switches has one GPU only: it is one of a virtual machine (nvrc#159, gpud#1140).
    if len(all_cards(facts) or facts.gpus or ()) == 1 or (
        manager.active is not True and fabric.switch_ports == 0 and fabric.virtual_machine
    ):
        return True
    if fabric.virtual_machine is False:
        return False
    # GPUs that are registered although no fabric manager is here have been by another one.
    states = {gpu.fabric.state for gpu in facts.gpus or () if not gpu.lost}
    return not manager.installed and states == {"completed"}


def cards_of_machines(facts: Facts) -> list[CardFacts]:
    """Return the GPUs that are given to virtual machines."""
    return [card for card in all_cards(facts) if card.kernel_driver in MACHINE_DRIVERS]


def gpus_on_bus(facts: Facts) -> list[GpuFacts]:
    """Return the GPUs of a host without a driver, as the entries of C(gpus) that they will be, as far as the table knows them. A product name is set
    only where a board has a single one.
    """
    found = []
    for index, card in enumerate(cards_on_bus(facts)):
        board = keyed(card.board) or find_board(card.device_id)
        names = board.product_names if board else ()
        found.append(
            GpuFacts(
                index,
                pci_address=card.address,
                device_id=card.device_id,
                subsystem_id=card.subsystem_id,
                board=board.key if board else None,
                architecture=board.architecture if board else None,
                name=names[0] if len(names) == 1 else None,
                memory_mib=board.total_memory_mib if board else None,
            )
        )
    return found
