# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a host differs from what was recorded on it: the planners of C(site) over the records, for nobody describes the host there. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._health.records import cdi_difference, record_differences
from .plan import Present
from .plan import plan as plan_boot


def drift(facts: Mapping[str, Any]) -> dict[str, bool]:
    """Return whether there is something to do, by what was recorded, as in L(record_differences); and C(boot), the units that restore it, and
    C(cdi), the CDI specification of the devices.

    What is not recorded, or cannot be compared because NVML does not answer, is missing. A record that cannot be used differs.
    """
    found = {record: bool(text) for record, text in record_differences(facts).items()}
    cdi = cdi_difference(facts)
    if cdi is not None:
        found["cdi"] = bool(cdi)
    present = Present.from_facts(facts.get("host_program") or {})
    if present.units is not None and present.sha256 and present.version:
        found["boot"] = plan_boot(present, present.version, present.sha256).changes
    return found
