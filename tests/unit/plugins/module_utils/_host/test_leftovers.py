# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the last step of a removal takes away, and the table of all that is put on a host."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host import leftovers
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host.leftovers import ARTIFACTS, Leftovers, RemovedWith
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import NotInEffect, Refused, carry_out
from ansible_collections.gpufleet.nvidia.plugins.module_utils._toolkit import config
from ansible_collections.gpufleet.nvidia.plugins.module_utils._toolkit.packages import PACKAGES
from ansible_collections.gpufleet.nvidia.tests.unit.package_manager import PackageManager

from .....traces import trace_of

COLLECTION = Path(leftovers.__file__).parents[3]
DRIVER = {"nvidia-open": "580.126.09-1", "libcuda1": "580.126.09-1", "nvidia-driver-pinning-580": "580.126.09-1"}
TOOLKIT = dict.fromkeys(PACKAGES, "1.20.2-1")
STAYING = Leftovers({**DRIVER, **TOOLKIT, "vim": "9"}, (*DRIVER, *TOOLKIT, "vim"))


@pytest.fixture
def host(tmp_path, monkeypatch):
    """A host whose folders and settings are in the temporary directory."""
    own = [tmp_path / name for name in ("records", "journals")]
    for folder in own:
        (folder / "deep").mkdir(parents=True)
        (folder / "deep" / "file").write_text("x")
    settings = tmp_path / "config.toml"
    settings.write_text(config.edit("# of the site\ndisable-require = false\n", False, False))
    settings.chmod(0o640)
    monkeypatch.setattr(leftovers, "folders", lambda: tuple(map(str, own)))
    monkeypatch.setattr(leftovers, "TOOLKIT_SETTINGS", str(settings))
    monkeypatch.setattr(leftovers, "UPGRADE_RECORD", str(own[1] / "upgrade.json"))
    monkeypatch.setattr(leftovers, "_UNFINISHED", (str(own[1] / "upgrade-stopped.json"),))
    return tmp_path, PackageManager(STAYING.packages, STAYING.holds)


def kinds(plan):
    return [step.kind.key for step in plan.steps]


def test_what_stays_is_nobodys_to_hold_and_has_its_settings_back(host):
    folder, manager = host
    present = leftovers.read(manager)
    plan = leftovers.plan(present, toolkit=False, driver=False)
    assert kinds(plan) == [
        "release_packages",
        "change_file",
        "release_packages",
        "uninstall_packages",
        "remove_folder",
        "remove_folder",
    ]
    leftovers.apply(plan, manager, present)
    assert manager.held == {"vim"}
    assert "nvidia-open" in manager.packages and "nvidia-driver-pinning-580" not in manager.packages
    settings = folder / "config.toml"
    assert settings.read_text() == "# of the site\ndisable-require = false\n"
    assert settings.stat().st_mode & 0o7777 == 0o640
    assert sorted(path.name for path in folder.iterdir()) == ["config.toml"]
    assert not leftovers.plan(leftovers.read(manager), toolkit=False, driver=False).changes


def test_what_goes_with_its_own_module_is_left_to_it():
    assert kinds(leftovers.plan(STAYING, toolkit=True, driver=True)) == []
    toolkit_stays = leftovers.plan(STAYING, toolkit=False, driver=True)
    assert [step.data["packages"] for step in toolkit_stays.steps] == [list(PACKAGES)]


def test_dcgm_that_stays_is_held_no_more():
    held = Leftovers({"datacenter-gpu-manager-4-core": "1:4.6.0-1"}, ("datacenter-gpu-manager-4-core", "vim"))
    (step,) = leftovers.plan(held, toolkit=True, driver=True, dcgm=False).steps
    assert (step.kind.key, step.data["packages"]) == ("release_packages", ["datacenter-gpu-manager-4-core"])
    assert not leftovers.plan(held, toolkit=True, driver=True, dcgm=True).changes


def test_a_step_that_did_not_stick_is_a_failure(host):
    _folder, manager = host
    manager.unhold = lambda _names: None
    present = leftovers.read(manager)
    planned = leftovers.plan(present, False, False)
    with pytest.raises(NotInEffect, match=r"Failed to remove what is left: .* still needed: release"):
        carry_out(
            "remove what is left",
            planned,
            lambda steps: leftovers.apply(steps, manager, present),
            lambda: leftovers.plan(leftovers.read(manager), False, False),
        )


@pytest.mark.parametrize(
    ("name", "text", "refused"),
    [
        ("upgrade-stopped.json", '["nvidia-dcgm.service"]', True),
        ("upgrade.json", '{"state": "installing"}', True),
        ("upgrade.json", '{"state": ', True),
        ("upgrade.json", '{"state": "done"}', False),
        ("upgrade.json", '{"state": "failed"}', False),
    ],
)
def test_the_record_of_a_run_that_was_cut_off_is_not_thrown_away(host, name, text, refused):
    folder, manager = host
    (folder / "journals" / name).write_text(text)
    present = leftovers.read(manager)
    if not refused:
        assert leftovers.plan(present, False, False).changes
        return
    with pytest.raises(Refused, match=f"{name}: an upgrade, a rollback, a repair or a change of layout was cut off"):
        leftovers.plan(present, False, False)


def test_the_own_folders_are_the_last_to_go():
    """Their journals say how far a run came that was cut off."""
    assert kinds(
        leftovers.plan(Leftovers(STAYING.packages, STAYING.holds, True, None, ("/var/lib/gpufleet",)), False, False)
    )[-1] == ("remove_folder")
    assert leftovers.folders() == ("/etc/gpufleet", "/var/lib/gpufleet", "/usr/local/lib/gpufleet")


def test_every_remover_is_a_module_and_every_path_has_one():
    modules = {path.stem for path in (COLLECTION / "plugins" / "modules").glob("*.py")}
    assert {trace.remover for trace in ARTIFACTS} - modules == {"nothing"}
    assert {trace.goes for trace in ARTIFACTS if trace.remover == "nothing"} == {RemovedWith.WITH_BOOT}
    assert {trace.remover for trace in ARTIFACTS if trace.goes is RemovedWith.WITH_DRIVER} == {"driver"}


def test_files_are_found_in_the_table():
    assert trace_of("/var/lib/gpufleet/upgrade.json").remover == "host_remains"
    assert trace_of("/etc/systemd/system/gpufleet-mps@node.service.d/shm.conf").remover == "mps"
    assert trace_of("/etc/systemd/system/multi-user.target.wants/gpufleet-mig.service").remover == "host_program"
    assert trace_of("/etc/passwd") is None


def literals():
    """Every path below /etc, /var and /usr/local in the code that runs on hosts, with where it stands."""
    for path in sorted((COLLECTION / "plugins" / "module_utils").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for found in re.findall(r"^/(?:etc|var|usr/local)/\S*gpufleet\S*$", node.value):
                    yield found, path.name


def test_no_path_of_the_collections_own_is_missing_in_the_table():
    found = dict(literals())
    assert len(found) > 8
    assert {path: where for path, where in found.items() if trace_of(path) is None} == {}


def test_the_documentation_has_every_row():
    page = (COLLECTION / "docs" / "remove.md").read_text(encoding="utf-8")
    assert [trace.path for trace in ARTIFACTS if f"`{trace.path}`" not in page] == []
