# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The metrics stage of C(site): whether the host has the timer that writes metrics, as its pool says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._health.metric_units import METRICS_TIMER, refused_directory
from .._plan import Refused, StagePlan, Step
from .._steps import Kind

STAGE = "metrics"


def metrics_directory(desired: Mapping[str, Any]) -> str:
    """Return where the host writes its metrics; empty where it writes none.

    :param desired: C(nvidia_health_metrics) and C(nvidia_health_metrics_directory).
    :raises Refused: no unit file can name the directory.
    """
    if not desired.get("nvidia_health_metrics"):
        return ""
    directory = str(desired.get("nvidia_health_metrics_directory") or "")
    reason = refused_directory(directory)
    if reason:
        raise Refused(
            "nvidia_health_metrics_directory",
            f"{directory!r} cannot be written to: {reason}",
            "Set it to the directory that node_exporter is started with (--collector.textfile.directory).",
        )
    return directory


def stage(facts: Mapping[str, Any], desired: Mapping[str, Any]) -> StagePlan:
    """Plan whether the timer is installed or removed.

    :param facts: the facts document of M(gpufleet.nvidia.gpu_info).
    :raises Refused: the directory cannot be used.
    """
    directory = metrics_directory(desired)
    present = (facts.get("host_program") or {}).get("metrics_directory") or ""
    if directory == present:
        return StagePlan(STAGE, needed=False)
    if not directory:
        step = Step(Kind.DISABLE_SERVICE, METRICS_TIMER, "nvidia_health_metrics is false")
    else:
        why = f"it writes to {present}" if present else f"nothing writes to {directory}"
        step = Step(Kind.ENABLE_SERVICE, METRICS_TIMER, why)
    return StagePlan(STAGE, needed=True, steps=(step,))
