# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the bundle for real GPUs replaces in what it brings back, how it compares settings, and what is kept of it."""

from __future__ import annotations

import importlib
import json
import random
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._boards.lookup import BOARDS
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.geometry import geometry

from ..real import RECORDINGS, Recording

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools" / "gpu-bundle"))

from gpu_evidence import cdi_reading, change_mig, private, smi

_SOURCES = Path(smi.__file__).parent
_OURS = re.compile(r"ansible_collections\.gpufleet\.nvidia\.plugins[.\w]+")

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)


def cleaned(*texts: str, hosts: tuple[str, ...] = ()) -> list[str]:
    replaced = private.Replacements(hosts)
    for text in texts:
        replaced.learn(text)
    return [replaced.clean(text) for text in texts]


def test_a_uuid_is_the_same_replacement_wherever_it_stands():
    one, other = cleaned("GPU-c0ffee12-cbc5-e1f0-7b1a-0123456789ab", '{"hex": "c0ffee12cbc5e1f07b1a0123456789ab"}')
    assert one == "GPU-00000000-0000-4000-8000-000000000001"
    assert other == '{"hex": "00000000000040008000000000000001"}'


def test_a_uuid_that_a_column_cut_off_is_replaced_too():
    """As C(ps) of nvidia-cuda-mps-control prints it."""
    (text,) = cleaned("1226      1         1228           GPU-c0ffee12-cbc5-e1f0    4026531836")
    assert text == "1226      1         1228           GPU-00000000-0000-4000    4026531836"


def test_a_serial_number_that_json_has_as_a_number_stays_one():
    line = json.dumps(
        {"call": "nvmlDeviceGetPdi", "args": ["gpu0"], "code": 0, "us": 1.0, "value": 14736512345678901234}
    )
    said, shown = cleaned(line, "    GPU PDI    : 0xcc8263f3b3d3aff2")
    assert json.loads(said)["value"] != 14736512345678901234
    assert "cc8263f3b3d3aff2" not in shown


def test_names_addresses_and_homes_are_replaced_and_versions_stay():
    (text,) = cleaned(
        "rack7-gpu3: 10.20.30.40 fe80::1:2:3 /home/jane/x 580.159.04 96.00.A5.00.1A 127.0.0.1", hosts=("rack7-gpu3",)
    )
    assert text == "host-1: 192.0.2.1 2001:db8::1 /home/user/x 580.159.04 96.00.A5.00.1A 127.0.0.1"


def test_cleaning_twice_changes_nothing():
    (once,) = cleaned("GPU-c0ffee12-cbc5-e1f0-7b1a-0123456789ab 10.20.30.40")
    assert cleaned(once) == [once]


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda one: one.name)
def test_a_recording_names_no_board_and_no_host(recording: Recording):
    assert recording.about["settings_changed"] == []
    for name, text in recording.files.items():
        assert not [
            uuid for uuid in _UUID.findall(text) if not uuid.startswith(private.MADE_UUID) and set(uuid) - set("0-")
        ], name
        assert not re.search(r"(?:GPU|MIG)-(?!00000000)[0-9a-f]{8}-[0-9a-f]{4}", text), name
        assert cleaned(text) == [text], name


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda one: one.name)
def test_settings_that_differ_are_found_and_counters_are_none(recording: Recording):
    before = recording.text("before/q.out")
    assert (
        smi.compare(
            before,
            before.replace(
                "GPU Current Temp                               : 39 C",
                "GPU Current Temp                               : 61 C",
            ),
        )
        == []
    )
    changed = before.replace(
        "Persistence Mode                                   : Enabled",
        "Persistence Mode                                   : Disabled",
    )
    (said,) = smi.compare(before, changed)
    assert said.endswith("Persistence Mode: Enabled before, Disabled afterwards")
    assert smi.compare(
        before,
        before.replace(
            "Current Power Limit                            : 700.00 W",
            "Current Power Limit                            : 500.00 W",
            1,
        ),
    )


def test_what_the_bundle_runs_of_the_collection_is_there():
    """It names modules in texts, too, which no linter follows."""
    named = {name for path in _SOURCES.glob("*.py") for name in _OURS.findall(path.read_text(encoding="utf-8"))}
    assert named
    for name in named:
        importlib.import_module(name)


#: Only a host with its libraries elsewhere has the one that was made with their folder named.
_SPECIFICATIONS = [
    pytest.param(recording, name, id=f"{recording.name}-{name}")
    for recording in RECORDINGS
    for name in ("ours-nvml-yaml", "ours-nvml-json", "ours-found-nvml-yaml")
    if name != "ours-found-nvml-yaml" or f"cdi/{name}.out" in recording.files
]


@pytest.mark.parametrize(("recording", "name"), _SPECIFICATIONS)
def test_a_specification_of_a_real_host_is_read_as_of_its_gpus(recording: Recording, name, tmp_path, capsys):
    path, facts = tmp_path / f"spec.{name.rpartition('-')[2]}", tmp_path / "facts.json"
    path.write_text(recording.text(f"cdi/{name}.out"), encoding="utf-8")
    facts.write_text(recording.text("facts/facts.json"), encoding="utf-8")
    cdi_reading.main(str(path), str(facts))
    found = json.loads(capsys.readouterr().out)
    assert (found["missing"], found["stale"], found["kind"]) == ([], [], "nvidia.com/gpu")
    assert "all" in found["devices"] and found["gpus"] >= 1
    assert "/dev/nvidia-uvm" in found["nodes"]


_WITH_MIG = [board for board in BOARDS if board.mig and board.profiles[0].placements]


@pytest.mark.parametrize("board", _WITH_MIG, ids=lambda one: one.key)
def test_what_contradicts_the_table_of_boards_is_found(board):
    assert change_mig.table_differences(board, board.profiles) == []
    first, *others = board.profiles
    # Names and memory differ between releases of the driver, and what one does not tell contradicts nothing.
    same = replace(first, name="1g.1gb", memory_mib=1, decoders=None)
    assert change_mig.table_differences(board, [same, *others]) == []
    other = replace(first, max_instances=first.max_instances + 1, placements=replace(first.placements, starts=(0,)))
    said = change_mig.table_differences(board, [other, *others])
    assert any(one.startswith(f"{first.name}: max_instances is {first.max_instances} in the table") for one in said)
    assert any(one.startswith(f"{first.name}: placements is") for one in said) == (first.placements.starts != (0,))
    assert change_mig.table_differences(board, others) == [f"{first.name}: the driver does not offer it"]
    more = replace(first, nvml_enum=99)
    assert change_mig.table_differences(board, [*board.profiles, more]) == [
        f"{first.name}: the table of boards does not have it"
    ]


@pytest.mark.parametrize("board", _WITH_MIG[:3], ids=lambda one: one.key)
def test_a_journey_goes_through_layouts_that_fit_and_differ(board):
    shape, chooser = geometry(board.profiles), random.Random(1)
    layouts = [change_mig.random_layout(shape, chooser) for _number in range(40)]
    assert len(set(layouts)) > 10
    assert all(shape.layouts_of(shape.request(one.counts)) for one in layouts)
    assert any(len(part.compute) > 1 for one in layouts for part in one.instances)
