# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NVIDIA's advisories: the shape is that of 2026/5861/5861.json in NVIDIA/product-security, cut down to what is read."""

from __future__ import annotations

import json

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.gpufleet.nvidia.plugins.filter.driver_advisories import FilterModule
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.desired import from_options
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.floors import (
    FLOORS,
    not_judged,
    shortfall,
    with_advisories,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.driver_advisories import read_folder, rows_of
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.role_variables import collect
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.stages import plan_stages
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import seen

read = FilterModule().filters()["driver_advisories"]


def system(name, *versions):
    """One C(architecture) of the tree, with the products of its driver: fixed, and everything before."""
    products = []
    for version in versions:
        for product in (version, f"All driver versions prior to {version}"):
            identifier = f"{name}_tesla_{product}".lower().replace(" ", "_").replace(".", "_")
            products.append(
                {"category": "product_version", "name": "Tesla", "product": {"name": product, "product_id": identifier}}
            )
    return {"category": "architecture", "name": name, "branches": products}


def fixed(name, version):
    return f"{name}_tesla_{version}".lower().replace(".", "_")


def bulletin(number="5990", date="2026-12-01", fixes=(("Linux(R580)", "580.200.01"), ("Linux(R595)", "595.120.02"))):
    systems = [system(name, version) for name, version in fixes]
    other = {"category": "product_version", "name": "GeForce"}
    product = {"name": "580.999.99", "product_id": "geforce"}
    systems[0]["branches"].append({**other, "product": product})
    names = [fixed(name, version) for name, version in fixes]
    return {
        "document": {
            "category": "csaf_security_advisory",
            "csaf_version": "2.0",
            "tracking": {"id": number, "current_release_date": f"{date}T00:00:00Z"},
        },
        "product_tree": {"branches": [{"category": "vendor", "name": "NVIDIA", "branches": systems}]},
        "vulnerabilities": [
            {
                "cve": "CVE-2026-1",
                "product_status": {"fixed": [*names, "geforce", "windowsr580_tesla_582_99"]},
                "scores": [{"cvss_v3": {"baseScore": 5.5}}],
            },
            {
                "cve": "CVE-2026-2",
                "product_status": {"fixed": names[:1]},
                "scores": [{"cvss_v3": {"baseScore": 8.8}}],
            },
        ],
    }


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "2026/5990"
    place.mkdir(parents=True)
    (place / "5990.json").write_text(json.dumps(bulletin()))
    (place / "CVE-2026-1.json").write_text('{"dataType": "CVE_RECORD"}')
    (place / "5990.json.sha256").write_text("no JSON")
    return tmp_path


def test_the_rows_of_the_data_centre_driver_for_linux(folder):
    rows = read(str(folder))
    assert [(row["branch"], row["version"]) for row in rows] == [(580, "580.200.01"), (595, "595.120.02")]
    assert (rows[0]["bulletin"], rows[0]["date"]) == ("5990", "2026-12-01")
    assert rows[0]["source"].endswith("2026/5990/5990.json")
    assert rows[0]["reason"] == "CVE-2026-2 (8.8), CVE-2026-1 (5.5)"
    assert read("") == []


def test_a_changed_file_is_read_again(folder):
    assert read(str(folder))[0]["version"] == "580.200.01"
    path = folder / "2026/5990/5990.json"
    path.write_text(json.dumps(bulletin(fixes=(("Linux(R580)", "580.201.03"),))))
    assert [row["version"] for row in read(str(folder))] == ["580.201.03"]


def test_a_newer_bulletin_decides_alone_on_the_branches_up_to_its_newest(folder):
    floors = with_advisories(read(str(folder)))
    reason, replacement = shortfall("580.178.04", floors)
    assert "580.200.01 of bulletin 5990 of 2026-12-01" in reason
    assert replacement == "580.200.01"
    assert shortfall("580.200.01", floors) is None
    # Newer branches are those of the bulletin before it.
    assert floors[610] == FLOORS[610]
    assert shortfall("615.10.01", floors) is not None
    assert not_judged(620, floors) is not None
    moved = with_advisories(rows_of(bulletin(fixes=(("Linux(R595)", "595.120.02"),)), "x"))
    assert "no longer gets security fixes" in shortfall("580.178.04", moved)[0]


def test_an_older_bulletin_changes_nothing():
    old = rows_of(bulletin("5821", "2026-05-21", (("Linux(R535)", "535.309.01"), ("Linux(R580)", "580.159.03"))), "x")
    assert with_advisories(old) == dict(FLOORS)
    assert with_advisories([]) == dict(FLOORS)


def test_a_branch_that_a_newer_bulletin_names_is_judged():
    floors = with_advisories(rows_of(bulletin(fixes=(("Linux(R620)", "620.40.01"),)), "x"))
    assert not_judged(620, floors) is None
    assert shortfall("620.10.01", floors)[1] == "620.40.01"


def test_the_module_and_the_plan_use_them(folder):
    assert from_options({"advisories": read(str(folder))}).floors[580].version == "580.200.01"
    facts = {
        "host": {
            "kernel": "6.1.0-50-amd64",
            "architecture": "x86_64",
            "distribution": {"id": "debian", "version": "12"},
        },
        "pci": [{"address": "0", "device_id": "0x2330", "kind": "gpu", "architecture": "hopper"}],
    }
    desired = {"nvidia_driver_version": "580.178.04", "nvidia_driver_advisories": str(folder)}
    (refusal,) = plan_stages(seen(facts), collect(desired, lambda value: value))["driver"].refusals
    assert "below the security floor 580.200.01" in refusal.message
    missing = plan_stages(seen(facts), {"nvidia_driver_advisories": "/nowhere"})
    assert list(missing) == ["driver"]
    assert "/nowhere is not a folder on the controller" in missing["driver"].refusals[0].message


_UNDATED = bulletin()
del _UNDATED["document"]["tracking"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "cannot be read"),
        (json.dumps(_UNDATED), "no tracking id"),
        # A day that does not exist, which the ages of what hosts are judged by would be reckoned from.
        (json.dumps(bulletin(date="2026-13-45")), "no day as current_release_date"),
        (json.dumps(bulletin(date="2027-02-29")), "no day as current_release_date"),
    ],
)
def test_files_that_are_no_advisories(tmp_path, text, reason):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(Refused, match=reason) as refusal:
        read_folder(str(tmp_path))
    assert refusal.value.thing == "nvidia_driver_advisories"
    assert str(tmp_path / "a.json") in refusal.value.reason
    with pytest.raises(AnsibleFilterError, match=reason):
        read(str(tmp_path))
    with pytest.raises(AnsibleFilterError, match="path of a folder"):
        read(["x"])
