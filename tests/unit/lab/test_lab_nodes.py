# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The parts of a lab's cluster that need neither root nor a host."""

from __future__ import annotations

import hashlib
import io
import ipaddress
import json
import sys
import tarfile
from itertools import combinations
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "lab"))

from hosts.progress import LabError
from nodes import network
from nodes.images import Image, write_archive
from nodes.network import Network, free_number


def test_two_clusters_share_no_address() -> None:
    parts = [
        ipaddress.ip_network(text)
        for number in range(64)
        for text in (Network(number).services, Network(number).nodes, Network(number).pods)
    ]
    assert not [pair for pair in combinations(parts, 2) if pair[0].overlaps(pair[1])]


def test_every_address_is_in_its_range_and_no_two_nodes_give_out_the_same() -> None:
    found = Network(5)
    assert ipaddress.ip_address(found.api) == ipaddress.ip_network(found.services)[1]
    assert ipaddress.ip_address(found.gateway) in ipaddress.ip_network(found.pods)
    assert len({found.node(index) for index in range(16)}) == 16
    ranges = [tuple(map(ipaddress.ip_address, found.pod_range(index))) for index in range(16)]
    assert all(before[1] < after[0] for before, after in zip(ranges, ranges[1:]))
    assert all(address in ipaddress.ip_network(found.pods) for pair in ranges for address in pair)
    assert ipaddress.ip_address(found.gateway) < ranges[0][0]


@pytest.fixture
def machine(monkeypatch):
    """Return a function that says what addresses and routes the machine has."""

    def has(addresses=(), routes=()):
        monkeypatch.setattr(network, "_addresses", lambda _device=None: list(addresses))
        monkeypatch.setattr(network, "_routes", lambda: list(routes))

    has()
    return has


def test_a_lab_gets_the_first_number_that_is_free(machine) -> None:
    assert free_number([]) == 0
    assert free_number([0, 2]) == 1
    machine(addresses=["10.97.0.3"], routes=["10.129.4.0/24"])
    assert free_number([]) == 2


def test_a_machine_that_is_in_all_of_it_is_refused(machine) -> None:
    machine(routes=["10.0.0.0/8"])
    with pytest.raises(LabError, match=r"Failed to find a network for the cluster: .* Take a lab down"):
        free_number([])


def test_an_image_is_an_archive_that_names_what_is_in_it(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"program")
    names = ("registry.example/one:1", "registry.example/two:2")
    image = Image(names, {"bin/program": program}, ["/bin/program"], {"A": "b"}, user="65534", shell=False)
    write_archive(image, tmp_path / "image.tar", tmp_path, tmp_path)
    with tarfile.open(tmp_path / "image.tar") as archive:
        files = {member.name: archive.extractfile(member).read() for member in archive.getmembers()}
    (manifest,) = json.loads(files["manifest.json"])
    assert manifest["RepoTags"] == list(names)
    settings = json.loads(files[manifest["Config"]])
    assert settings["config"]["Entrypoint"] == ["/bin/program"]
    assert settings["config"]["User"] == "65534"
    assert "A=b" in settings["config"]["Env"]
    (layer,) = manifest["Layers"]
    assert settings["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(files[layer]).hexdigest()}"]
    with tarfile.open(fileobj=io.BytesIO(files[layer])) as inside:
        member = inside.getmember("bin/program")
        assert member.mode == 0o755
        assert inside.extractfile(member).read() == b"program"
