# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What can be done about a fault, from the mildest to the strongest, and what each error asks for. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, unique

from .._facts_view import Sxid, Xid
from .xid import bucket_of, recovery_after, severity_of_sxid
from .xid_catalogue import ALWAYS_FATAL_SXIDS, Bucket


@unique
class Action(Enum):
    """A repair, in the order of what it disturbs."""

    NOTHING = "nothing"
    RESTART_SERVICE = "restart_service"
    #: End the programs that use the GPUs, and no more.
    DRAIN = "drain"
    RESET_GPU = "reset_gpu"
    RELOAD_DRIVER = "reload_driver"
    REBOOT = "reboot"
    #: Nothing that a program can do helps: out of service, for people.
    HAND_OVER = "hand_over"

    @property
    def rank(self) -> int:
        return list(Action).index(self)

    @property
    def whole_host(self) -> bool:
        """Whether no program can use any GPU of the host meanwhile."""
        return self in (Action.RELOAD_DRIVER, Action.REBOOT)


def strongest(actions: Sequence[Action]) -> Action:
    return max(actions, key=lambda action: action.rank, default=Action.NOTHING)


#: What is tried after an action that did not help. A reboot brings MIG, sharing and all services back in their order.
STRONGER: Mapping[Action, Action] = {
    Action.RESTART_SERVICE: Action.REBOOT,
    Action.DRAIN: Action.RESET_GPU,
    Action.RESET_GPU: Action.REBOOT,
    Action.RELOAD_DRIVER: Action.REBOOT,
    Action.REBOOT: Action.HAND_OVER,
    Action.HAND_OVER: Action.HAND_OVER,
}

#: What the driver asks for (NVML's recovery action), by its name in the facts. What is not here is newer than this release, and for people:
#: a value that is not known is not "none". An IMEX domain is of several hosts, and the baseboard is not reached by a reboot.
_BY_RECOVERY = {
    "none": Action.NOTHING,
    "gpu_reset": Action.RESET_GPU,
    "node_reboot": Action.REBOOT,
    "drain_p2p": Action.DRAIN,
    "drain_and_reset": Action.RESET_GPU,
    "recover_imex_domain": Action.HAND_OVER,
    "bus_reset": Action.REBOOT,
    "system_reboot": Action.HAND_OVER,
}

#: What NVIDIA's catalogue asks for, as far as a program can do it. A driver and firmware that do not belong together (C(UPDATE_SWFW)) and
#: errors for which the catalogue names nothing are for people to read, and no reason to take a GPU out of service.
_BY_BUCKET = {
    Bucket.IGNORE: Action.NOTHING,
    Bucket.RESTART_APP: Action.NOTHING,
    Bucket.WORKFLOW_XID_45: Action.NOTHING,
    Bucket.UPDATE_SWFW: Action.NOTHING,
    Bucket.NONE: Action.NOTHING,
    Bucket.RESET_GPU: Action.RESET_GPU,
    Bucket.WORKFLOW_XID_48: Action.RESET_GPU,
    Bucket.WORKFLOW_NVLINK_ERR: Action.RESET_GPU,
    Bucket.WORKFLOW_NVLINK5_ERR: Action.RESET_GPU,
    Bucket.CHECK_UVM: Action.RESET_GPU,
    Bucket.RESTART_VM: Action.REBOOT,
    Bucket.RESTART_BM: Action.REBOOT,
    Bucket.CONTACT_SUPPORT: Action.HAND_OVER,
    Bucket.CHECK_MECHANICALS: Action.HAND_OVER,
}


def of_recovery(name: str) -> Action:
    return _BY_RECOVERY.get(name, Action.HAND_OVER)


def of_xid(error: Xid) -> Action:
    """Return what NVIDIA's catalogue asks for after an Xid error, where the driver itself does not say. An Xid that is not in the catalogue is not
    harmless but unknown, and so for people.
    """
    bucket = bucket_of(error)
    if bucket is Bucket.XID_154:
        return of_recovery(recovery_after(error.text))
    return Action.HAND_OVER if bucket is None else _BY_BUCKET[bucket]


def of_sxid(error: Sxid) -> Action:
    """Return what to do after an error of an NVSwitch: a fatal one asks for the reset of all GPUs with their switches, or for a reboot."""
    if error.number in ALWAYS_FATAL_SXIDS:
        return Action.REBOOT
    return Action.RESET_GPU if severity_of_sxid(error) == "fatal" else Action.NOTHING
