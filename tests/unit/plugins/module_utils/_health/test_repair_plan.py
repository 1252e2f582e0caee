# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is done to a host: faults one by one, two at once, and what was tried before."""

from __future__ import annotations

import datetime

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import AnswerFacts, Sxid, Xid
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.repair_faults import Described
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.repair_plan import (
    Policy,
    plan_repair,
    reason_of,
    reset_together,
    users_of_gpus,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.repair_record import Action, Attempt, RepairRecord
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.report import Evidence
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.xid_catalogue import ALWAYS_FATAL_SXIDS, CATALOGUE
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import seen
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._health.hosts import ADDRESSES, healthy_facts

NOW = datetime.datetime(2026, 11, 23, 12, 0, 0, tzinfo=datetime.timezone.utc)
EARLIER, A_DAY_AGO, LONG_AGO = "2026-11-23T10:00:00Z", "2026-11-22T12:00:00Z", "2026-11-01T10:00:00Z"
#: Without MPS, whose daemons serve all GPUs at once.
FIRST, SECOND = ADDRESSES


def facts_of(spoil=lambda _facts: None, mps=False, architecture="hopper"):
    facts = healthy_facts()
    facts["host"]["boot_id"] = "this-boot"
    for gpu in facts["gpus"]:
        gpu["architecture"] = architecture
    if not mps:
        facts["mps"] = []
        facts["recorded"]["sharing"] = None
    spoil(facts)
    return facts


def plan(
    spoil=lambda _facts: None,
    record=None,
    xids=(),
    sxids=(),
    smi=None,
    described=None,
    mps=False,
    architecture="hopper",
    **policy,
):
    evidence = Evidence(
        seen(facts_of(spoil, mps, architecture)), smi or AnswerFacts(0, "GPU 0"), list(xids), list(sxids)
    )
    return plan_repair(evidence, described or Described(), record or RepairRecord(), Policy(NOW, **policy))


def asks(action, gpu=0):
    def spoil(facts):
        facts["gpus"][gpu]["recovery_action"] = action

    return spoil


def both(*spoils):
    def spoil(facts):
        for one in spoils:
            one(facts)

    return spoil


def silent(facts):
    """The driver tells nothing of recovery actions."""
    for gpu in facts["gpus"]:
        gpu["recovery_action"] = None


def silent_with(**errors):
    def spoil(facts):
        silent(facts)
        facts["gpus"][0]["errors"].update(errors)

    return spoil


def lost(facts):
    facts["gpus"][1] = {"index": 1, "pci_address": SECOND, "lost": True}


def driver(**versions):
    def spoil(facts):
        facts["driver"].update(versions)

    return spoil


def no_nvml(code):
    def spoil(facts):
        facts["nvml"] = {"available": False, "code": code, "reason": "no answer within 60 s"}
        facts["gpus"] = None

    return spoil


def no_mig(facts):
    facts["gpus"][0]["gpu_instances"] = []


def dead_mps(facts):
    facts["mps"] = []


def mute_mps(facts):
    facts["mps"][0]["responds"] = False
    facts["mps"][0]["clients"] = 2


def fabric_down(facts):
    facts["fabric"] = {
        "nvswitches": 4,
        "manager": {"installed": True, "active": False, "version": "580.126.09"},
        "state": "not_started",
    }


def test_nothing_is_done_to_a_healthy_host():
    found = plan(mps=True)
    assert (found.action, found.needed, found.decided) == (Action.NOTHING, False, ())
    assert found.disturbed == () and len(found.untouched) == 2


def test_a_reset_concerns_one_gpu_and_its_devices():
    found = plan(asks("gpu_reset"))
    assert (found.action, found.gpus, found.emptied) == (Action.RESET_GPU, (FIRST,), (FIRST,))
    assert found.disturbed == ("GPU-0", "MIG-0")
    assert found.device_nodes == ("/dev/nvidia0",)
    assert found.untouched == (f"GPU 1 ({SECOND})",)


def test_an_mps_daemon_takes_the_programs_on_all_of_its_gpus_with_it():
    found = plan(asks("gpu_reset"), mps=True)
    assert found.gpus == (FIRST,) and found.emptied == (FIRST, SECOND)
    assert found.untouched == ()


@pytest.mark.parametrize(
    ("spoil", "action", "services"),
    [
        (lost, Action.REBOOT, ()),
        (asks("node_reboot"), Action.REBOOT, ()),
        (asks("drain_p2p"), Action.DRAIN, ()),
        (asks("value_8"), Action.HAND_OVER, ()),
        (driver(on_disk_version="580.178.04", library_version="580.178.04"), Action.RELOAD_DRIVER, ()),
        (driver(loaded_version=None), Action.RELOAD_DRIVER, ()),
        (driver(loaded_version=None, nouveau_loaded=True), Action.REBOOT, ()),
        (no_nvml("no_answer"), Action.REBOOT, ()),
        (no_mig, Action.RESTART_SERVICE, ("gpufleet-mig.service", "gpufleet-cdi.service")),
        (fabric_down, Action.RESTART_SERVICE, ("nvidia-fabricmanager.service",)),
        (lambda facts: facts["gpus"][0]["errors"].update(remap_failed=True), Action.HAND_OVER, ()),
        (lambda facts: facts["gpus"][0]["errors"].update(remap_pending=True), Action.NOTHING, ()),
        # Packages that do not belong together: no reload ends that.
        (driver(library_version="580.178.04"), Action.NOTHING, ()),
        (driver(loaded_version=None, on_disk_version=None), Action.NOTHING, ()),
    ],
)
def test_the_smallest_action(spoil, action, services):
    found = plan(spoil)
    assert (found.action, found.services) == (action, services), found


def test_what_heal_does_not_repair_is_said():
    found = plan(driver(library_version="580.178.04"))
    assert any("Run gpufleet.nvidia.site" in note for note in found.notes)
    pending = plan(lambda facts: facts["gpus"][0]["errors"].update(remap_pending=True))
    assert pending.notes == (f"GPU 0 ({FIRST}) replaces bad memory at its next reset; it can be used until then",)


@pytest.mark.parametrize(("spoil", "emptied"), [(dead_mps, ()), (mute_mps, ADDRESSES)])
def test_only_an_mps_daemon_that_runs_has_clients_that_go(spoil, emptied):
    found = plan(spoil, mps=True)
    assert (found.action, found.services) == (Action.RESTART_SERVICE, ("gpufleet-mps@node.service",))
    assert found.emptied == emptied


def test_an_mps_daemon_that_a_client_told_other_limits_costs_no_other_client_its_gpu():
    found = plan(lambda facts: facts["mps"][0].update(clients=2, limits=["1G", "4G"]), mps=True)
    assert (found.action, found.emptied) == (Action.NOTHING, ())
    (note,) = found.notes
    assert "limit 1G on device 0 in place of 4096 MiB" in note and "gpufleet.nvidia.site" in note


def test_starting_a_fabric_manager_that_does_not_run_disturbs_nobody():
    assert plan(fabric_down).emptied == ()

    def failed(facts):
        fabric_down(facts)
        facts["fabric"]["manager"]["active"] = True

    assert plan(failed).emptied == ADDRESSES


def test_a_hung_nvidia_smi_takes_a_reboot_and_everybody():
    found = plan(smi=AnswerFacts(None, "no answer within 60 s"))
    assert found.action is Action.REBOOT and found.emptied == ADDRESSES and found.untouched == ()


def test_a_gpu_that_another_driver_has_is_no_fault():
    def spoil(facts):
        facts["gpus"] = facts["gpus"][:1]
        facts["pci"][1]["kernel_driver"] = "vfio-pci"

    found = plan(spoil)
    assert found.action is Action.NOTHING and "bound to vfio-pci" in found.notes[0]


def test_a_board_that_is_gone_from_the_bus():
    found = plan(described=Described(gpus=3))
    assert found.action is Action.REBOOT and "2 of 3 GPUs" in str(found.decided[0])


XID = Xid(119, "0000:18:00", "pid=1, name=x, Timeout")


def test_the_driver_itself_goes_before_the_catalogue():
    told = plan(xids=[XID])
    assert told.action is Action.NOTHING and "Xid 119" in told.notes[0]
    found = plan(silent_with(uncorrected=1), xids=[XID])
    assert (found.action, found.gpus, found.errors) == (Action.RESET_GPU, (FIRST,), {119})


def test_an_error_is_acted_on_once():
    confirmed = silent_with(uncorrected=1)
    repaired = RepairRecord(state="done", boot_id="this-boot", dealt_with=plan(confirmed, xids=[XID]).dealt_with)
    assert plan(confirmed, repaired, [XID]).action is Action.NOTHING
    again = Xid(119, "0000:18:00", "pid=2, name=x, Timeout")
    assert plan(confirmed, repaired, [XID, again]).action is Action.RESET_GPU
    other_boot = RepairRecord(state="done", boot_id="another", dealt_with=repaired.dealt_with)
    assert plan(confirmed, other_boot, [XID]).action is Action.RESET_GPU


SXID = Sxid(20034, "0000:05:00.0", "Fatal, Link 30 LTSSM Fault Up")


@pytest.mark.parametrize(
    "given",
    [
        *({"xids": [Xid(number, "0000:18:00", "pid=1, name=x")]} for number in sorted({*CATALOGUE, 999})),
        {"xids": [Xid(154, "0000:18:00", "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)")]},
        # Of a GPU that the host does not have.
        {"xids": [Xid(79, "0000:99:00", "")]},
        *({"sxids": [Sxid(number, "0000:05:00.0", "Fatal")]} for number in sorted({*ALWAYS_FATAL_SXIDS, 20034})),
    ],
    ids=str,
)
def test_a_text_in_the_log_alone_takes_nothing_out_of_service(given):
    found = plan(silent, **given)
    assert (found.action, found.decided, found.needed, found.disturbed) == (Action.NOTHING, (), False, ())


@pytest.mark.parametrize("sign", [{"uncorrected": 1}, {"remap_pending": True}, {"remap_failed": True}], ids=repr)
def test_a_second_sign_of_the_driver_confirms_an_error(sign):
    found = plan(silent_with(**sign), xids=[Xid(48, "0000:18:00", "")])
    assert (FIRST, "xid_48") in found.keys
    other = plan(silent_with(**sign), xids=[Xid(48, "0000:2a:00", "")])
    assert (SECOND, "xid_48") not in other.keys


def test_an_nvidia_smi_that_fails_confirms_an_error():
    assert plan(silent, xids=[XID], smi=AnswerFacts(15, "GPU is lost")).action is Action.RESET_GPU


def _degraded(facts):
    facts["gpus"][1]["fabric"] = {"state": "completed", "status": 0, "degraded": ["bandwidth"], "summary": "unhealthy"}


@pytest.mark.parametrize("sign", [_degraded, lambda facts: facts["fabric"].update(state="in_progress")])
def test_a_fatal_error_of_a_switch_resets_all_gpus_with_it(sign):
    assert "SXid 20034" in " ".join(plan(sxids=[SXID]).notes)
    found = plan(sign, sxids=[SXID])
    assert (found.action, found.gpus, found.emptied) == (Action.RESET_GPU, ADDRESSES, ADDRESSES)
    assert "NVSwitches" in found.together


@pytest.mark.parametrize(
    ("architecture", "name", "nvswitches", "manager", "together"),
    [
        ("hopper", "NVIDIA H100 80GB HBM3", 4, False, False),
        ("blackwell", "NVIDIA B200", 0, True, False),
        ("ampere", "NVIDIA A100-SXM4-80GB", 6, True, False),
        ("ampere", "NVIDIA A100-SXM4-80GB", 6, False, True),
        ("ampere", "NVIDIA A100 80GB PCIe", 0, None, False),
        ("volta", "Tesla V100-SXM2-32GB", 0, None, True),
        ("turing", "Tesla T4", 0, None, False),
        ("", "a board of tomorrow", 0, None, True),
    ],
)
def test_which_gpus_are_reset_together(architecture, name, nvswitches, manager, together):
    def spoil(facts):
        asks("gpu_reset")(facts)
        facts["gpus"][0]["name"] = name
        facts["fabric"] = {
            "nvswitches": nvswitches,
            "manager": {"installed": manager is not None, "active": manager, "version": None},
            "state": "completed",
        }

    found = plan(spoil, architecture=architecture)
    assert found.gpus == (ADDRESSES if together else (FIRST,))
    assert bool(found.together) is together


def test_a_lost_gpu_is_reset_with_no_other():
    facts = {"gpus": [{"pci_address": FIRST, "architecture": "volta"}, {"pci_address": SECOND, "lost": True}]}
    assert reset_together(seen(facts), [FIRST])[0] == (FIRST,)


def test_two_faults_at_once():
    found = plan(both(asks("gpu_reset"), no_mig))
    assert found.action is Action.RESET_GPU and found.gpus == (FIRST,)
    assert found.services == ("gpufleet-mig.service", "gpufleet-cdi.service")
    assert found.untouched == (f"GPU 1 ({SECOND})",)
    two = plan(both(asks("gpu_reset", 0), asks("gpu_reset", 1)))
    assert two.gpus == ADDRESSES
    worst = plan(both(asks("gpu_reset", 0), lost))
    assert (worst.action, worst.services, worst.emptied) == (Action.REBOOT, (), (FIRST,))
    people = plan(both(asks("gpu_reset", 1), lambda facts: facts["gpus"][0]["errors"].update(remap_failed=True)))
    assert people.action is Action.HAND_OVER and people.disturbed == ("GPU-0", "MIG-0")


def attempt(action, outcome, at=EARLIER, faults=((FIRST, "recovery"),), tries=1):
    return Attempt(at, action, faults, outcome, "why", tries)


RESET, REBOOT = Action.RESET_GPU, Action.REBOOT


@pytest.mark.parametrize(
    ("attempts", "action"),
    [
        ((), RESET),
        ((attempt(RESET, "failed"),), REBOOT),
        ((attempt(RESET, "failed"), attempt(REBOOT, "failed")), Action.HAND_OVER),
        # It helped, and the fault came back: once more the same, then it is the board.
        ((attempt(RESET, "repaired"),), RESET),
        ((attempt(RESET, "repaired"), attempt(RESET, "repaired")), Action.HAND_OVER),
        ((attempt(RESET, "repaired", A_DAY_AGO), attempt(RESET, "repaired", A_DAY_AGO)), RESET),
        # What failed goes on failing however long ago it was, until something helped.
        ((attempt(RESET, "failed", LONG_AGO), attempt(REBOOT, "failed", LONG_AGO)), Action.HAND_OVER),
        (
            (attempt(RESET, "failed", LONG_AGO), attempt(REBOOT, "repaired", LONG_AGO)),
            RESET,
        ),
        # Cut off once: taken up again. Twice: it counts.
        ((attempt(RESET, ""),), RESET),
        ((attempt(RESET, "", tries=2),), REBOOT),
        # Of another GPU.
        ((attempt(RESET, "failed", faults=((SECOND, "recovery"),)),), RESET),
    ],
)
def test_what_was_tried_before(attempts, action):
    assert plan(asks("gpu_reset"), RepairRecord(state="failed", attempts=attempts)).action is action


def test_a_gpu_that_was_reset_and_is_lost_now_was_tried_once():
    before = RepairRecord(state="failed", attempts=(attempt(RESET, "failed", faults=((SECOND, "recovery"),)),))
    assert plan(lost, before).action is REBOOT


def test_attempts_against_parts_of_the_host_are_counted_apart():
    tried = tuple(attempt(Action.RESTART_SERVICE, "repaired", faults=(("host", kind),)) for kind in ("mps", "mps"))
    assert plan(no_mig, RepairRecord(state="done", attempts=tried)).action is Action.RESTART_SERVICE


def test_retry_forgets_what_was_tried():
    tried = RepairRecord(
        state="handed-over", attempts=(attempt(RESET, "failed"), attempt(REBOOT, "failed")), reason="broken"
    )
    kept = plan(asks("gpu_reset"), tried)
    assert not kept.needed and kept.handed_over.startswith("broken")
    assert "gpu_heal_retry" not in " ".join(kept.notes)
    # The host may serve on without the first: what the second has by now is said.
    other = plan(asks("gpu_reset", 1), tried)
    assert not other.needed and "gpu_heal_retry" in " ".join(other.notes)
    assert plan(asks("gpu_reset"), tried, retry=True).action is RESET
    proven = plan(record=tried, retry=True)
    assert proven.needed and proven.action is Action.NOTHING


def test_hosts_that_must_not_be_rebooted_are_handed_over():
    assert plan(lost, reboot=False).action is Action.HAND_OVER


@pytest.mark.parametrize("state", ["started", "repairing", "proving", "returning", "failed"])
def test_a_run_that_was_cut_off_is_finished_although_nothing_is_wrong_any_more(state):
    found = plan(record=RepairRecord(state=state))
    assert found.needed and found.resumed and found.action is Action.NOTHING


def test_the_reason_names_fault_and_remedy():
    text = reason_of(plan(lambda facts: facts["gpus"][0]["errors"].update(remap_failed=True)))
    assert text == f"GPU 0 ({FIRST}): it has no spare memory rows left. Have the board replaced."
    assert reason_of(plan(asks("gpu_reset"))) == f"GPU 0 ({FIRST}): its driver asks for a reset (gpu_reset)."


def test_users_of_a_gpu():
    facts = facts_of(mps=True)
    facts["gpus"][0]["processes"] = [{"pid": 7, "name": "python3"}]
    facts["gpus"][0]["allocations"] = [{"pod": "team/evicted", "resource": "nvidia.com/gpu"}]
    facts["gpus"][0]["gpu_instances"][0]["processes"] = [{"pid": 8, "name": None}]
    facts["holders"] = [
        {"pid": 9, "command": "nv-hostengine", "devices": ["/dev/nvidia0", "/dev/nvidiactl"]},
        {"pid": 10, "command": "plugin", "devices": ["/dev/nvidia0"], "pod_uid": "abc"},
        {"pid": 11, "command": "nvidia-persiste", "devices": ["/dev/nvidia0"]},
        {"pid": 12, "command": "other", "devices": ["/dev/nvidia1"]},
        {"pid": facts["mps"][0]["pid"], "command": "nvidia-cuda-mps", "devices": ["/dev/nvidia0"]},
    ]
    expected = ["python3 (PID 7)", "a process (PID 8)", "nv-hostengine (PID 9)", "plugin (PID 10, pod abc)"]
    assert users_of_gpus(seen(facts), [FIRST], mps=True) == expected
    assert len(users_of_gpus(seen(facts), [FIRST])) == 5
    assert users_of_gpus(seen(facts), [SECOND]) == ["other (PID 12)"]
