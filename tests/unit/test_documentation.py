# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What pages of docs/ say of the code, held against it, and the programs that build the site."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.versions import CHARTS
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.role_variables import names_of_all_roles

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
MODULES = sorted(path.stem for path in (ROOT / "plugins" / "modules").glob("*.py"))
#: Modules that people call. All others are of the collection's own playbooks and roles, and are not among them in the documentation.
USERS = (
    *(
        "container_runtime",
        "container_toolkit",
        "dcgm",
        "driver",
        "gpu_info",
        "gpu_settings",
        "health",
        "mig",
        "mig_info",
        "mps",
    ),
    "render",
)


def program(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / "site" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_charts_of_a_closed_site_are_those_that_are_rendered():
    rows = re.findall(r"^\| ([\w-]+) \| (v?[\d.]+) \|", (DOCS / "air-gap.md").read_text(encoding="utf-8"), re.M)
    assert dict(rows) == {chart.name: chart.version for chart in CHARTS.values()}


@pytest.mark.parametrize("page", ["getting-started", "air-gap", "migration", "scenarios/mig", "scenarios/mps"])
def test_pages_name_variables_that_there_are(page):
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\b((?:nvidia_(?:driver|toolkit|mig|sharing)|gpu_(?:facts|kubernetes))_\w+)(?=: |`)", text))
    registered_elsewhere = {"nvidia_driver_skip_reboot"}
    assert named and named - names_of_all_roles() - registered_elsewhere == set()


def test_the_readme_can_be_read_at_once_and_leads_to_every_page():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 130
    # Found from the pages that it leads to.
    further = {"compatibility", "lab", "testing-your-pools"}
    assert {page.stem for page in DOCS.glob("*.md")} - set(re.findall(r"\(docs/([\w-]+)\.md\)", text)) == further


def test_a_site_without_the_page_that_a_link_names_is_noticed(tmp_path):
    (tmp_path / "a.html").write_text(
        '<h1 id="top"></h1><a href="b.html#there">b</a><a href="https://example.com/x">x</a>'
    )
    (tmp_path / "b.html").write_text(
        '<h2 id="there"></h2><a href="#gone">up</a><img src="no.png"><a href="a.html#top">a</a>'
    )
    assert program("check_links").broken(tmp_path) == [
        "b.html: #gone: there is no such heading",
        "b.html: no.png: there is no such file",
    ]


def test_the_pages_of_the_site_are_gathered_and_links_out_of_them_go_to_the_repository(tmp_path):
    target = tmp_path / "source"
    (target / "collection").mkdir(parents=True)
    reference = target / "collection" / "index.rst"
    reference.write_text("".join(f"* :ansplugin:`{name} module <x>` -- y\n    {name}_module\n" for name in MODULES))
    program("prepare").main(ROOT, target)
    users = {name for name in MODULES if f"    {name}_module\n" in reference.read_text()}
    assert users == set(USERS) == set(re.findall(r"`(\w+) module <", reference.read_text()))
    internal = (target / "internal.md").read_text(encoding="utf-8")
    assert set(re.findall(r"collection/(\w+)_module", internal)) == set(MODULES) - users
    plan = (target / "playbooks" / "plan.md").read_text(encoding="utf-8")
    assert "| `gpu_plan_offline` | bool |" in plan and "What site.yml would change" in plan
    assert {path.stem for path in (target / "playbooks").iterdir()} == {
        path.stem for path in (ROOT / "playbooks").iterdir()
    }
    index = (target / "index.md").read_text(encoding="utf-8")
    assert all(page.stem in index for page in DOCS.glob("*.md"))
    security = (target / "migration.md").read_text(encoding="utf-8")
    assert "blob/main/roles/nvidia_driver/README.md#the-security-floor" in security
    assert "- [Runbooks](runbooks.html)" in (tmp_path / "extra" / "llms.txt").read_text(encoding="utf-8")


def test_a_link_to_a_file_that_is_not_there_ends_the_build(tmp_path):
    docs = tmp_path / "docs"
    docs.mkdir()
    page = docs / "a.md"
    page.write_text("# A\n\n[gone](../gone.md)\n")
    with pytest.raises(SystemExit, match=r"the link \.\./gone\.md leads to nothing"):
        program("prepare")._links(page.read_text(), page, tmp_path)


def test_the_plan_in_the_readme_is_what_plan_prints():
    block = re.search(
        r"```console\n(\$ .*? gpufleet\.nvidia\.plan\n.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S
    )
    printed = (DOCS / "transcripts" / "plan.ansi").read_text(encoding="utf-8").splitlines()
    assert [line for line in block[1].splitlines() if line not in [*printed, "  ..."]] == []
