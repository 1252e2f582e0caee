# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pynvml
import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._boards.board import (
    ARCHITECTURES,
    Placements,
    is_at_least,
    kernel_modules,
    mps_clients,
    mps_clients_of_device_plugin,
    mps_has_multi_user,
    name_of,
    parse_placements,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._boards.cards import cards_on_bus, gpus_on_bus
from ansible_collections.gpufleet.nvidia.plugins.module_utils._boards.lookup import (
    BOARDS,
    FIRST_DRIVERS,
    board,
    described_board,
    find_board,
    first_driver,
    normalize_device_id,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._boards.sources import SOURCES
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import view_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.driver_versions import driver_key
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused

MIG = [one for one in BOARDS if one.mig]
EACH = pytest.mark.parametrize("one", MIG, ids=lambda one: one.key)


def test_keys_names_and_devices_are_unique():
    assert len({one.key for one in BOARDS}) == len(BOARDS)
    devices = [device for one in BOARDS for device in one.pci_device_ids]
    assert len(set(devices)) == len(devices)
    names = [name.lower() for one in BOARDS for name in one.product_names]
    assert len(set(names)) == len(names)


def test_the_table_has_all_boards_and_rows_of_the_research():
    # 17 boards with 120 rows, of which PG506-232 is a board of its own here (an Ampere chip) with six rows.
    assert len(MIG) >= 18
    assert sum(len(one.profiles) for one in MIG) >= 120 + 6
    assert sum(profile.placements is not None for one in MIG for profile in one.profiles) >= 66


@EACH
def test_every_row_has_its_sources(one):
    assert one.architecture in ARCHITECTURES
    for profile in one.profiles:
        assert profile.source in SOURCES
        assert (profile.placements is None) == (profile.placements_source is None)
        assert profile.placements_source is None or profile.placements_source in SOURCES


@EACH
def test_rows_agree_with_their_names_and_grid(one):
    for profile in one.profiles:
        assert profile.name.startswith(f"{profile.gpu_slices}g.")
        assert profile.max_instances >= 1
        if profile.placements is not None:
            ends = [start + profile.placements.size for start in profile.placements.starts]
            assert max(ends) <= one.placement_grid_units
            assert profile.max_instances <= len(ends)
        if profile.memory_mib is not None and one.total_memory_mib is not None:
            assert profile.memory_mib * profile.max_instances <= one.total_memory_mib
    ids = [profile.profile_id for profile in one.profiles if profile.profile_id is not None]
    assert len(set(ids)) == len(ids)


def test_boards_without_mig_have_sources_and_architectures():
    for one in BOARDS:
        if not one.mig:
            assert one.source in SOURCES
            assert one.architecture in ARCHITECTURES


@pytest.mark.parametrize("one", BOARDS, ids=lambda one: one.key)
def test_memory_has_a_source_and_is_no_more_than_the_label_says(one):
    assert (one.total_memory_mib is None) == (one.memory_source is None)
    assert one.memory_source is None or one.memory_source in SOURCES
    assert one.total_memory_mib is None or one.total_memory_mib <= one.most_memory_mib


@pytest.mark.parametrize(
    ("key", "reported"),
    [
        # As nvidia-smi prints it, with ECC as the board is delivered; the labels say 16, 24, 48 and 80 GB.
        ("t4-16gb", 15360),
        ("a10", 23028),
        ("l4", 23034),
        ("a40", 46068),
        ("l40", 46068),
        ("l40s-48gb", 46068),
        ("rtx-6000-ada", 49140),
        ("v100-16gb", 16384),
        ("a100-80gb", 81920),
        ("h100-80gb-sxm", 81559),
        ("h200-141gb", 143771),
        ("b200-180gb", 183359),
    ],
)
def test_memory_is_what_drivers_report(key, reported):
    assert board(key).total_memory_mib == reported


@pytest.mark.parametrize(
    ("device_id", "key"),
    [
        ("0x2330", "h100-80gb-sxm"),
        ("2330", "h100-80gb-sxm"),
        ("0x233010DE", "h100-80gb-sxm"),
        ("0x233010de", "h100-80gb-sxm"),
        ("0x20b7", "a30-24gb"),
        ("0x20b6", "pg506-96gb"),
        ("0x1eb8", "t4-16gb"),
        ("0x1e07", "rtx-2080-ti"),
    ],
)
def test_find_by_device_id(device_id, key):
    assert find_board(device_id=device_id).key == key


@pytest.mark.parametrize(
    ("name", "memory", "key"),
    [
        ("NVIDIA H100 80GB HBM3", 81559, "h100-80gb-sxm"),
        ("nvidia h100 80gb hbm3", None, "h100-80gb-sxm"),
        ("A100-SXM4-40GB", 40536, "a100-40gb"),
        ("Tesla T4", 15360, "t4-16gb"),
        ("Tesla T4", 15109, "t4-16gb"),  # before driver 510
        ("NVIDIA L40S", 49140, "l40s-48gb"),  # ECC off
        ("GeForce RTX 2080 Ti", 11019, "rtx-2080-ti"),
        ("NVIDIA H100 80GB HBM3", 40000, None),
        ("NVIDIA X1000", None, None),
        (None, None, None),
    ],
)
def test_find_by_name_and_memory(name, memory, key):
    found = find_board(product_name=name, memory_mib=memory)
    assert (found.key if found else None) == key


def test_the_device_id_comes_before_the_name():
    assert find_board("0x20b7", "NVIDIA H100 80GB HBM3").key == "a30-24gb"
    assert find_board("0xffff", "NVIDIA A30").key == "a30-24gb"
    assert find_board("not an id") is None


def test_device_ids_of_other_vendors_are_none():
    assert normalize_device_id("0x12348086") is None


@pytest.mark.parametrize(
    ("device_id", "version", "with_mig"),
    [
        ("0x20B2", "450.00", "450.80.02"),
        ("0x20B710DE", "450.00", "460.73.01"),
        ("0x2330", "525.00", "525.85.12"),
        ("0x2329", "525.00", "535.161.07"),
        # It runs with 535, without MIG.
        ("0x2335", "525.00", "550.90.07"),
        ("0x2901", "570.133.20", "570.133.20"),
        ("0x2941", "570.00", "570.133.20"),
        ("0x3182", "570.00", "580.82.07"),
        ("0x2bb1", "570.00", "575.51.03"),
        ("0x2BB5", "575.57.08", "575.57.08"),
        ("0x2BB3", "570.00", "575.57.08"),
        ("0x2C31", "570.00", "575.64"),
        # The guide's GB300 is the DGX Station; that of racks has MIG with older drivers.
        ("0x31C2", "570.00", None),
        ("0x2342", None, None),
        ("0xffff", None, None),
    ],
)
def test_the_first_driver_is_that_of_the_device(device_id, version, with_mig):
    assert (first_driver(device_id), first_driver(device_id, mig=True)) == (version, with_mig)


def test_first_drivers_are_versions_of_devices_in_the_table():
    for device, (version, with_mig) in FIRST_DRIVERS.items():
        assert find_board(device[:6])
        assert version or with_mig
        assert not (version and with_mig) or driver_key(version) <= driver_key(with_mig)


def test_unknown_key():
    with pytest.raises(KeyError):
        board("h100")


def test_placements_are_read_as_nvidia_smi_prints_them():
    assert parse_placements("{0,3,6,9}:3") == Placements((0, 3, 6, 9), 3)
    for text in ("0,3:3", "{0,3}", ""):
        with pytest.raises(ValueError, match="placements are written"):
            parse_placements(text)


def test_architectures_have_the_numbers_of_nvml():
    for name in (*ARCHITECTURES, "kepler", "rubin"):
        assert name_of(getattr(pynvml, f"NVML_DEVICE_ARCH_{name.upper()}")) == name
    assert name_of(99) == "99"


def test_kernel_modules():
    assert kernel_modules("volta") == ("proprietary",)
    assert kernel_modules("turing") == ("open", "proprietary")
    assert kernel_modules("hopper", "0x2330") == ("open", "proprietary")
    assert kernel_modules("hopper", "0x234210DE") == ("open",)
    assert kernel_modules("blackwell") == ("open",)
    with pytest.raises(KeyError):
        kernel_modules("fermi")


@pytest.mark.parametrize(
    ("architecture", "branch", "slices", "clients"),
    [
        ("hopper", 580, None, 48),
        ("hopper", 590, None, 60),
        # Nothing is refused for a driver that is not known.
        ("hopper", None, None, 60),
        ("volta", 535, None, 48),
        ("pascal", 580, None, 16),
        ("pascal", 590, None, 16),
        ("rubin", 580, None, 48),
        (None, 580, None, 48),
        # On a MIG device in proportion to its compute slices.
        ("hopper", 580, (1, 7), 6),
        ("hopper", 580, (3, 7), 20),
        ("hopper", 580, (7, 7), 48),
        ("ampere", 580, (1, 4), 12),
        ("hopper", 595, (1, 7), 8),
    ],
)
def test_clients_of_mps(architecture, branch, slices, clients):
    assert mps_clients(architecture, branch, *(slices or (None, None))) == clients


def test_the_daemon_of_the_device_plugin_has_limits_of_its_own():
    assert [mps_clients_of_device_plugin(name) for name in ("pascal", "volta", "turing", "hopper", None)] == [
        16,
        16,
        48,
        48,
        48,
    ]
    assert [mps_has_multi_user(name) for name in ("maxwell", "pascal", "volta", "hopper", None)] == [
        False,
        False,
        True,
        True,
        True,
    ]


def test_order_of_architectures():
    assert is_at_least("hopper", "ampere")
    assert is_at_least("ampere", "ampere")
    assert not is_at_least("ada", "hopper")
    for pair in (("fermi", "ampere"), ("ampere", "fermi")):
        with pytest.raises(KeyError):
            is_at_least(*pair)


@pytest.mark.parametrize(
    ("written", "remedy"),
    [
        ("a100-pcie-40gb", "Did you mean a100-40gb (NVIDIA A100-PCIE-40GB)?"),
        ("A100 80GB PCIe", "Did you mean a100-80gb (NVIDIA A100 80GB PCIe)?"),
        ("a100-pcie", "Did you mean a100-40gb (NVIDIA A100-PCIE-40GB) or a100-80gb (NVIDIA A100 80GB PCIe)?"),
        ("NVIDIA L40S", "Did you mean l40s-48gb (NVIDIA L40S)?"),
        ("h100", "Did you mean h100-80gb-sxm or h100-80gb-pcie or h100-nvl-94gb or h100-96gb-gh200?"),
        ("l40x", "Did you mean l40 or "),
    ],
)
def test_a_board_that_is_written_otherwise_is_refused_with_its_key(written, remedy):
    with pytest.raises(Refused) as caught:
        described_board(written, "gpu_facts_gpus[0].board")
    assert str(caught.value).startswith(f"gpu_facts_gpus[0].board: the table of boards has no {written!r}. {remedy}")


def test_the_gpus_of_a_host_without_a_driver_are_numbered_as_nvml_will():
    def card(address, **fields):
        return {"address": address, "kind": "gpu", "board": None, "device_id": None, **fields}

    facts = {
        "pci": [
            card("0000:2a:00.0", device_id="0x2330"),
            {"address": "0000:03:00.0", "kind": "nvswitch"},
            card("0000:18:00.0", board="h100-80gb-pcie"),
            card("0000:99:00.0", device_id="0xffff"),
        ]
    }
    assert [card.address for card in cards_on_bus(view_of(facts))] == [
        "0000:18:00.0",
        "0000:2a:00.0",
        "0000:99:00.0",
    ]
    found = gpus_on_bus(view_of(facts))
    assert [(gpu.index, gpu.pci_address, gpu.board) for gpu in found] == [
        (0, "0000:18:00.0", "h100-80gb-pcie"),
        (1, "0000:2a:00.0", "h100-80gb-sxm"),
        (2, "0000:99:00.0", None),
    ]
    assert [gpu.memory_mib is None for gpu in found] == [False, False, True]
    assert gpus_on_bus(view_of({"pci": None})) == cards_on_bus(view_of({})) == []
