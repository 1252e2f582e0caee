# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A migration from the GPU Operator's containers to the hosts and back: the order on a node, what follows a failure, and how a run is continued."""

from __future__ import annotations

import json

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.host_names import UPGRADE_STEPS

from ..host_documents import FROM_OPERATOR as TO_HOST
from ..host_documents import TO_OPERATOR as BACK
from .upgrade_harness import OLD, Site

# Each of them runs a whole playbook.
pytestmark = pytest.mark.slow

TARGET = "driver and container toolkit of the host"
ON_A_HOST = ["a settings", "a mig", "a sharing", "a dcgm"]
PROOF = ["a install (check)", "a drain"]
FORWARD = [*PROOF, "a brought by host", "a reboot", "a driver", "a toolkit", *ON_A_HOST, "a health", "a resume"]
STEPS = [state for state in UPGRADE_STEPS if state != "rolling-back"]


def to_be_moved(folder, hosts):
    found = Site(folder, hosts)
    for host in found.hosts:
        # The driver that the containers had is still loaded: no package has it.
        found.kernel(host).write_text(json.dumps({"host": {"kernel": "6.1"}, "driver": {"source": "outside"}}))
    describe(found, **TO_HOST)
    return found


@pytest.fixture
def site(tmp_path):
    return to_be_moved(tmp_path, "ab")


def describe(site, **variables):
    inventory = yaml.safe_load((site.folder / "inventory.yml").read_text())
    inventory["gpu_hosts"]["vars"].update(variables)
    (site.folder / "inventory.yml").write_text(yaml.safe_dump(inventory))


def left_behind(site):
    """What containers leave that are killed."""
    (site.folder / "a" / "mounted").mkdir()
    (site.folder / "a" / "nvidia" / "toolkit").mkdir(parents=True)
    (site.folder / "a" / "nvidia" / "toolkit" / "nvidia-container-runtime").touch()


def test_the_containers_leave_before_the_host_is_changed_and_what_they_left_is_moved_aside(site):
    left_behind(site)
    (site.folder / "a" / "nvidia" / "toolkit.disabled-by-gpufleet").mkdir()
    done = site.run("migrate", "--limit", "a")
    assert done.returncode == 0, done.stdout[-3000:]
    assert site.log == FORWARD
    assert (site.record("a")["state"], site.record("a")["to"]) == ("done", TARGET)
    assert not (site.folder / "a" / "mounted").exists()
    folder, aside = site.folder / "a" / "nvidia", "toolkit.disabled-by-gpufleet"
    assert {path.name for path in folder.iterdir()} == {aside, f"{aside}.~1~"}, "an earlier one is kept"
    assert (folder / aside / "nvidia-container-runtime").exists()


@pytest.mark.by_name
def test_a_module_that_is_gone_with_its_container_needs_no_reboot_and_the_toolkit_can_move_alone(site):
    describe(site, nvidia_driver_migrate_from="")
    left_behind(site)
    done = site.run("migrate", "--limit", "a")
    assert done.returncode == 0, done.stdout[-3000:]
    assert site.log == [step for step in FORWARD if step not in ("a install (check)", "a reboot")]
    assert (site.folder / "a" / "mounted").exists(), "the driver is not what moves"


@pytest.mark.by_name
@pytest.mark.parametrize("source", ["nvidia", pytest.param("container", marks=pytest.mark.by_name)])
def test_on_the_way_back_the_host_is_bare_before_the_containers_come(site, source):
    """A run that was cut off after the driver container came back is continued, and removes nothing of that; what else is named like a driver counts for
    nothing."""
    driver = {"loaded_version": OLD, "on_disk_version": OLD, "source": source, "packages": {"nvidia-vaapi-driver": "1"}}
    describe(site, **BACK, stub_found={"driver": driver, "toolkit": {"version": ""}, "host": {"kernel": "6.1"}})
    done = site.run("migrate", "--limit", "a")
    assert done.returncode == 0, done.stdout[-3000:]
    removed = ["a install", "a brought by host"] if source == "nvidia" else ["a brought by host", "a reboot"]
    assert site.log == ["a drain", "a toolkit away", *removed, "a brought by gpu_operator", *ON_A_HOST, "a resume"]
    assert site.record("a")["to"] == "driver and container toolkit of the GPU Operator"


@pytest.mark.parametrize(
    "state", [pytest.param(one, marks=[] if one == "installing" else pytest.mark.by_name) for one in STEPS]
)
def test_a_run_that_was_cut_off_at_any_step_is_continued(site, state):
    site.keep("a", state=state, to=TARGET)
    # As its labels say, unless it was cut off before they were written.
    describe(site, stub_moved=STEPS.index(state) > STEPS.index("installing"))
    done = site.run("migrate", "--limit", "a")
    assert done.returncode == 0, done.stdout[-3000:]
    assert site.log == FORWARD and site.record("a")["state"] == "done"


@pytest.mark.by_name
def test_a_canary_whose_pods_do_not_leave_stays_cordoned_and_a_run_that_tries_again_moves_all_nodes(tmp_path):
    site = to_be_moved(tmp_path, "abc")
    site.fail(a="brought by host")
    done = site.run("migrate")
    assert done.returncode != 0
    assert site.log == [*PROOF, "a brought by host"], "nothing is rolled back, and no other node is started"
    assert (
        site.record("a")["state"] == "failed" and "brought by host does not work" in site.record("a")["failed_reason"]
    )
    site.fail()
    assert site.run("migrate", "--limit", "a").returncode != 0 and site.log == []
    # Two at a time: the first one works on until the second one does.
    site.wait(a_driver="b driver")
    budget = {"retry": "true", "canary": 0, "max_parallel": 2, "max_unavailable": "100%"}
    options = [part for name, value in budget.items() for part in ("-e", f"gpu_upgrade_{name}={value}")]
    done = site.run("migrate", "-f", "3", *options)
    assert done.returncode == 0, done.stdout[-3000:]
    for host in site.hosts:
        own = [step for step in site.log if step.startswith(f"{host} ")]
        assert own == [f"{host} {step[2:]}" for step in FORWARD] and site.record(host)["state"] == "done"
    first_done = min(site.log.index(f"{host} resume") for host in "ab")
    assert site.log.index("c drain") > first_done, "the third one begins when one of them has ended"


def test_packages_that_cannot_be_had_touch_nothing(site):
    site.fail(a="install")
    assert site.run("migrate").returncode != 0
    assert site.log == ["a install (check)"] and site.record("a")["state"] == "refused"


def test_a_host_whose_record_is_no_json_is_left_alone_and_said_so(site):
    (site.folder / "a" / "upgrade.json").write_text('{"state": "inst')
    done = site.run("migrate", "--limit", "a")
    assert done.returncode != 0 and site.log == []
    assert "a is left out: its record in /var/lib/gpufleet/upgrade.json cannot be read" in " ".join(
        done.stdout.split() + done.stderr.split()
    )


@pytest.mark.by_name
def test_what_fails_before_the_host_is_changed_leaves_the_node_in_service(site):
    site.services("nvidia-dcgm")
    site.fail(a="nvidia-dcgm stopped")
    assert site.run("migrate").returncode != 0
    assert site.log == [*PROOF, "a nvidia-dcgm stopped", "a nvidia-dcgm started", "a resume"]
    assert site.record("a")["state"] == "refused"


@pytest.mark.by_name
@pytest.mark.parametrize("step", ["driver", "toolkit", "mig", "health"])
def test_what_fails_once_the_containers_have_left_is_not_rolled_back(site, step):
    site.fail(a=step)
    assert site.run("migrate").returncode != 0
    assert site.log == FORWARD[: FORWARD.index(f"a {step}") + 1]
    assert site.record("a")["state"] == "failed" and not site.record("b")


@pytest.mark.by_name
def test_a_host_that_must_not_be_rebooted_says_what_is_still_loaded(site):
    done = site.run("migrate", "--limit", "a", "-e", "gpu_upgrade_reboot=false")
    assert done.returncode != 0 and site.log == [*PROOF, "a brought by host"]
    assert "Driver 580.126.09 is still loaded after what brought it has left" in site.record("a")["failed_reason"]


@pytest.mark.by_name
def test_check_mode_changes_nothing_on_the_host(site):
    left_behind(site)
    done = site.run("migrate", "--limit", "a", "--check")
    assert done.returncode == 0, done.stdout[-3000:]
    assert (site.folder / "a" / "mounted").exists() and (site.folder / "a" / "nvidia" / "toolkit").exists()
    assert all(step.endswith("(check)") for step in site.log) and not site.record("a")


@pytest.mark.by_name
@pytest.mark.parametrize("playbook", ["upgrade", "rollback", "repartition"])
def test_a_node_whose_migration_was_cut_off_is_touched_by_no_other_playbook(site, playbook):
    site.keep("a", state="installing", to=TARGET)
    recorded = {"upgrade_state": "installing", "upgrade_to": TARGET}
    described = {"schema": 1, "driver": {"loaded_version": OLD}, "recorded": recorded}
    before = site.record("a")
    describe(site, nvidia_driver_migrate_from="", nvidia_toolkit_migrate_from="", stub_found=described)
    done = site.run(playbook, "--limit", "a")
    assert done.returncode != 0 and "gpufleet.nvidia.migrate continues it" in done.stdout + done.stderr
    assert site.log in ([], ["a lease absent"]) and site.record("a") == before
