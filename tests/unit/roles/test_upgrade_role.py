# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What follows each failure of an upgrade: which record stays, and what is given back."""

from __future__ import annotations

import json

import pytest

from .upgrade_harness import OLD, Site

# Each of them runs a whole playbook.
pytestmark = pytest.mark.slow


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


def test_a_node_is_upgraded_between_drain_and_resume(site):
    done = site.run("upgrade", "--limit", "a")
    assert done.returncode == 0, done.stdout[-3000:]
    assert site.log == [
        "a install (check)",
        "a drain",
        "a driver",
        "a toolkit",
        "a settings",
        "a mig",
        "a sharing",
        "a dcgm",
        "a health",
        "a resume",
    ]
    assert site.record("a")["state"] == "done"


@pytest.mark.parametrize(
    ("playbook", "name", "log"),
    [
        ("upgrade", "upgrade.json", []),
        pytest.param("rollback", "upgrade.json", [], marks=pytest.mark.by_name),
        pytest.param("rollback", "driver-previous.json", [], marks=pytest.mark.by_name),
        ("upgrade", "upgrade-stopped.json", ["a install (check)", "a drain"]),
    ],
)
def test_a_file_of_the_host_that_is_no_json_is_named_with_what_to_do(site, playbook, name, log):
    (site.folder / "a" / name).write_text('{"state": "inst')
    done = site.run(playbook, "--limit", "a")
    assert done.returncode != 0 and site.log[: len(log)] == log and "a driver" not in site.log
    said = " ".join((done.stdout + done.stderr).split())
    assert f"/site/a/{name}" in said or f"/var/lib/gpufleet/{name} cannot be read" in said, said[-3000:]
    assert "emove" in said and "and run again." in said and "b64decode" not in said


@pytest.mark.by_name
@pytest.mark.parametrize("playbook", ["upgrade", "rollback"])
def test_a_file_that_a_host_left_empty_when_it_lost_its_power_is_as_if_it_were_not_there(site, playbook):
    site.services("nvidia-dcgm")
    names = ["upgrade.json", "upgrade-stopped.json", "driver-previous.json"]
    for name in names:
        (site.folder / "a" / name).write_text("")
    done = site.run(playbook, "--limit", "a")
    if playbook == "rollback":
        said = " ".join((done.stdout + done.stderr).split())
        assert done.returncode != 0 and "no previous driver is recorded" in said and site.log == ["a lease absent"]
        return
    assert done.returncode == 0, done.stdout[-3000:]
    assert "a nvidia-dcgm started" in site.log and site.record("a")["state"] == "done"
    assert not (site.folder / "a" / "upgrade-stopped.json").exists()


@pytest.mark.by_name
def test_an_empty_record_of_stopped_services_is_removed_where_none_was_stopped(site):
    (site.folder / "a" / "upgrade-stopped.json").touch()
    done = site.run("upgrade", "--limit", "a")
    assert done.returncode == 0, done.stdout[-3000:]
    assert not (site.folder / "a" / "upgrade-stopped.json").exists()


@pytest.mark.by_name
def test_a_refused_transaction_touches_nothing_not_even_the_other_scheduler(site):
    site.fail(a="install")
    (site.folder / "a" / "driver-previous.json").unlink()
    (site.folder / "a").rmdir()
    done = site.run("upgrade")
    assert done.returncode != 0
    assert site.log == ["a install (check)"], "the host was not drained, so that nobody gives it back"
    assert site.record("a")["state"] == "refused"
    assert "install does not work" in site.record("a")["failed_reason"]
    assert not site.record("b"), "the rollout stops"


def test_a_failed_change_is_rolled_back_and_the_host_stays_away(site):
    site.fail(a="driver")
    site.services("nvidia-dcgm", "sshd")
    done = site.run("upgrade")
    assert done.returncode != 0
    assert site.log[2:] == [
        "a nvidia-dcgm stopped",
        "a driver",
        # It is looked for again: a verification that failed had started it.
        "a nvidia-dcgm stopped",
        "a install",
        "a settings",
        "a mig",
        "a sharing",
        "a dcgm",
        "a nvidia-dcgm started",
        "a health",
    ]
    assert site.record("a")["state"] == "failed"
    assert "driver does not work" in site.record("a")["failed_reason"]
    assert "which works; the node stays cordoned" in site.record("a")["failed_reason"]
    assert "The rollout did not reach this host" in done.stdout


@pytest.mark.by_name
def test_what_works_is_not_rolled_back_because_the_other_scheduler_does_not_take_the_host(site):
    (site.folder / "no-resume").touch()
    done = site.run("upgrade", "--limit", "a")
    assert done.returncode != 0
    assert site.log[-2:] == ["a health", "a resume"]
    assert "a install" not in site.log
    assert site.record("a")["state"] == "failed"
    assert "Return the host to the other scheduler" in site.record("a")["failed_reason"]


@pytest.mark.by_name
def test_a_host_that_cannot_be_given_back_says_both_reasons(site):
    (site.folder / "no-resume").touch()
    site.services("nvidia-dcgm")
    site.fail(a="nvidia-dcgm stopped")
    done = site.run("upgrade")
    assert done.returncode != 0
    record = site.record("a")
    assert record["state"] == "failed"
    assert "nvidia-dcgm stopped does not work" in record["failed_reason"]
    assert "It could not be returned to service: Return the host to the other scheduler" in record["failed_reason"]
    assert not site.record("b")


@pytest.mark.by_name
def test_services_that_a_run_stopped_before_it_was_cut_off_are_started_again(site):
    site.keep("a", state="installing")
    (site.folder / "a" / "upgrade-stopped.json").write_text('["nvidia-dcgm"]')
    done = site.run("upgrade", "--limit", "a")
    assert done.returncode == 0, done.stdout[-3000:]
    assert "a nvidia-dcgm started" in site.log
    assert not (site.folder / "a" / "upgrade-stopped.json").exists()
    assert site.record("a")["from"] == OLD


@pytest.mark.by_name
def test_a_failed_node_that_cannot_even_begin_again_is_still_ours(site):
    site.keep("a", state="failed", failed_reason="old")
    site.fail(a="install")
    done = site.run("upgrade", "--limit", "a", "-e", "gpu_upgrade_retry=true")
    assert done.returncode != 0
    assert site.record("a")["state"] == "failed"
    assert "install does not work" in site.record("a")["failed_reason"]


@pytest.mark.by_name
def test_check_mode_goes_through_all_nodes_and_leaves_nothing(site):
    done = site.run("upgrade", "--check")
    assert done.returncode == 0, done.stdout[-3000:]
    assert {line for line in site.log if not line.endswith("(check)")} == set()
    assert "b driver (check)" in site.log
    assert not site.record("a") and not site.record("b")


@pytest.mark.parametrize(("step", "state"), [("health", "failed"), ("install", "failed")])
@pytest.mark.by_name
def test_a_rollback_by_hand_that_fails_stops_there_with_its_reason(site, step, state):
    site.fail(a=step)
    done = site.run("rollback")
    assert done.returncode != 0
    assert site.record("a")["state"] == state
    assert f"{step} does not work" in site.record("a")["failed_reason"]
    assert "a resume" not in site.log
    assert not [line for line in site.log if line.startswith("b ")], "no other host is touched"


@pytest.mark.by_name
def test_a_host_that_is_lost_in_the_middle_keeps_its_step_and_no_other_is_begun(site):
    site.fail(lost=True, a="driver")
    lost = site.run("upgrade")
    assert lost.returncode == 4, "unreachable"
    assert site.log[-1] == "a driver"
    assert site.record("a")["state"] == "installing"
    assert not site.record("b")
    site.fail()
    again = site.run("upgrade")
    assert again.returncode == 0, again.stdout[-3000:]
    assert "1 cut off earlier (a)" in again.stdout
    assert [site.record(host)["state"] for host in site.hosts] == ["done", "done"]


@pytest.mark.by_name
def test_a_host_without_room_for_its_record_says_both_reasons(site):
    site.fail(a="install")
    (site.folder / "a" / "driver-previous.json").unlink()
    (site.folder / "a").rmdir()
    (site.folder / "a").write_text("no folder")
    done = site.run("upgrade")
    assert done.returncode != 0
    assert "a: failed: install: install does not work It could not be returned to service: " in done.stdout
    assert not site.record("b")


@pytest.mark.by_name
def test_a_node_follows_as_soon_as_another_ends_and_no_node_waits_for_a_slow_one(tmp_path):
    """The first node lasts until the last one is done: in waves, or with tasks that all hosts do together, it would never end."""
    site = Site(tmp_path, "abcd")
    site.wait(a_driver="d resume")
    done = site.run("upgrade", "-f", "3", *_budget(canary=0, max_parallel=2, max_unavailable="100%"))
    assert done.returncode == 0, done.stdout[-3000:]
    assert [site.record(host)["state"] for host in site.hosts] == ["done"] * 4
    assert [site.log.index(f"{host} drain") for host in "cd"] > [site.log.index(f"{host} resume") for host in "bc"]
    assert "run_once" not in done.stderr + done.stdout, "Ansible would warn of it"


@pytest.mark.by_name
def test_a_failure_while_others_are_worked_on_lets_these_end_and_no_other_begin(tmp_path):
    site = Site(tmp_path, "abcd")
    site.fail(b="driver")
    site.wait(a_health="b health")
    done = site.run("upgrade", "-f", "4", *_budget(canary=0, max_parallel=2, max_unavailable="100%"))
    assert done.returncode != 0
    assert [site.record(host).get("state") for host in site.hosts] == ["done", "failed", None, None]
    assert "The rollout stops: 1 failed (b) and at most 0 may" in done.stdout + done.stderr
    assert "left as they were: c, d" in done.stdout


def _budget(**options):
    return [part for name, value in options.items() for part in ("-e", f"gpu_upgrade_{name}={value}")]


BEFORE, AFTER = "6.1.0-50-amd64", "6.1.0-51-amd64"
#: What a node goes through when only its kernel changes, until it is rebooted.
TO_THE_REBOOT = ["prove kernel", f"boot {BEFORE} (check)", "drain", "driver", "prove kernel", "reboot"]


def running(site, host="a"):
    return json.loads(site.kernel(host).read_text())["host"]["kernel"]


def test_a_node_takes_up_its_installed_kernel_between_drain_and_resume(site):
    site.kernels(BEFORE, AFTER)
    done = site.run("upgrade", "--limit", "a")
    assert done.returncode == 0, done.stdout[-3000:]
    after = ["install", "toolkit", "settings", "mig", "sharing", "dcgm", "health", "resume"]
    assert site.log == [f"a {step}" for step in TO_THE_REBOOT + after]
    assert running(site) == AFTER
    record = site.record("a")
    assert (record["state"], record["from_kernel"]) == ("done", BEFORE)
    assert record["to"].endswith(", installed kernel")
    again = site.run("upgrade", "--limit", "a")
    assert again.returncode == 0 and site.log == [], "the node runs it already"


@pytest.mark.by_name
def test_kernels_stay_where_they_are_by_default(site):
    site.kernels(BEFORE, AFTER)
    done = site.run("upgrade", "-e", "gpu_upgrade_kernel=keep")
    assert done.returncode == 0, done.stdout[-3000:]
    assert site.log == [] and running(site) == BEFORE


@pytest.mark.parametrize(
    ("step", "options"),
    [
        ("prove kernel", ()),
        pytest.param(f"boot {BEFORE}", (), marks=pytest.mark.by_name),
        pytest.param("", ("-e", "gpu_upgrade_reboot=false"), marks=pytest.mark.by_name),
    ],
)
def test_a_kernel_that_is_not_proven_or_from_which_no_way_leads_back_is_refused_before_the_drain(site, step, options):
    site.kernels(BEFORE, AFTER)
    site.fail(a=step)
    done = site.run("upgrade", *options)
    assert done.returncode != 0
    assert "a drain" not in site.log and running(site) == BEFORE
    assert site.record("a")["state"] == "refused"
    assert (f"{step} does not work" if step else "gpu_upgrade_reboot is false") in site.record("a")["failed_reason"]
    assert not site.record("b"), "the rollout stops"


@pytest.mark.by_name
def test_the_newest_kernel_is_installed_and_proven_before_the_drain(site):
    site.kernels(BEFORE, AFTER, offered=True)
    done = site.run("upgrade", "--limit", "a")
    assert done.returncode == 0, done.stdout[-3000:]
    after = ["install", "toolkit", "settings", "mig", "sharing", "dcgm", "health", "resume"]
    assert site.log == [f"a {step}" for step in ["install kernel", f"boot {AFTER}", *TO_THE_REBOOT, *after]]
    assert running(site) == AFTER
    record = site.record("a")
    assert (record["state"], record["from_kernel"]) == ("done", BEFORE)
    assert record["to"].endswith(", latest kernel")
    again = site.run("upgrade", "--limit", "a")
    assert again.returncode == 0 and site.log == [], "the node runs it already"


@pytest.mark.parametrize("step", ["install kernel", f"boot {AFTER}"])
@pytest.mark.by_name
def test_a_newest_kernel_without_the_driver_is_refused_before_the_drain_and_not_booted(site, step):
    site.kernels(BEFORE, AFTER, offered=True)
    site.fail(a=step)
    done = site.run("upgrade")
    assert done.returncode != 0
    assert site.log[-1] == f"a boot {BEFORE}" and running(site) == BEFORE
    assert site.record("a")["state"] == "refused"
    assert f"{step} does not work GRUB boots {BEFORE}." in site.record("a")["failed_reason"]
    assert not site.record("b"), "the rollout stops"


@pytest.mark.by_name
def test_no_kernel_is_installed_where_the_host_must_not_be_rebooted(site):
    site.kernels(BEFORE, AFTER, offered=True)
    done = site.run("upgrade", "--limit", "a", "-e", "gpu_upgrade_reboot=false")
    assert done.returncode != 0 and site.log == []
    assert "gpu_upgrade_reboot is false" in site.record("a")["failed_reason"]


@pytest.mark.by_name
def test_where_no_way_back_is_wanted_grub_is_not_asked_for_one(site):
    site.kernels(BEFORE, AFTER)
    done = site.run("upgrade", "--limit", "a", "-e", "gpu_upgrade_rollback=false")
    assert done.returncode == 0, done.stdout[-3000:]
    assert f"a boot {BEFORE} (check)" not in site.log and running(site) == AFTER


@pytest.mark.by_name
def test_a_kernel_whose_driver_does_not_work_is_left_for_the_one_before(site):
    site.kernels(BEFORE, AFTER)
    site.fail(a="toolkit")
    done = site.run("upgrade")
    assert done.returncode != 0
    back = [f"boot {BEFORE}", "reboot", "settings", "mig", "sharing", "dcgm", "health"]
    assert site.log == [f"a {step}" for step in [*TO_THE_REBOOT, "install", "toolkit", *back]]
    assert running(site) == BEFORE
    assert site.record("a")["state"] == "failed"
    assert f"Rolled back to kernel {BEFORE} and driver {OLD}, which works" in site.record("a")["failed_reason"]
    assert not site.record("b")


@pytest.mark.by_name
def test_a_host_that_comes_back_with_another_kernel_is_not_taken_for_upgraded(site):
    site.kernels(BEFORE, AFTER)
    path = site.kernel("a")
    path.write_text(json.dumps({**json.loads(path.read_text()), "boots": "6.1.0-49-amd64"}))
    done = site.run("upgrade", "--limit", "a")
    assert done.returncode != 0
    assert (
        f"GRUB was to boot kernel {AFTER}, and the host came back with 6.1.0-49-amd64"
        in site.record("a")["failed_reason"]
    )
    assert running(site) == BEFORE


@pytest.mark.by_name
def test_a_run_that_was_cut_off_behind_the_reboot_knows_the_kernel_of_before(site):
    site.kernels(BEFORE, AFTER)
    site.fail(lost=True, a="health")
    site.run("upgrade", "--limit", "a")
    assert site.record("a")["state"] == "verifying" and running(site) == AFTER
    site.fail(a="toolkit")
    done = site.run("upgrade", "--limit", "a")
    assert done.returncode != 0
    assert site.record("a")["from_kernel"] == BEFORE and running(site) == BEFORE


@pytest.mark.by_name
def test_a_rollback_by_hand_leaves_the_kernel(site):
    site.kernels(BEFORE, AFTER)
    assert site.run("upgrade", "--limit", "a").returncode == 0
    done = site.run("rollback", "--limit", "a")
    assert done.returncode == 0, done.stdout[-3000:]
    assert "a reboot" not in site.log and running(site) == AFTER
