# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Say of hosts that were read what they are, what is wrong with them, and what site would do."""

from __future__ import annotations

from typing import Any

from ...module_utils._health.checks import judged
from ...module_utils._health.software import AUTO
from ...module_utils._printable import amount
from ..action_options import takes
from ..descriptions import hosts_of
from ..driver_advisories import ages, driver_security
from ..fleet.verification import Diagnosis, of_host
from ..host_facts import ControllerAction
from ..plain import write_report
from ..slurm_desired import slurm_checks


class ActionModule(ControllerAction):
    OPTIONS = takes("fleet", "report", needs="hosts")

    def act(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        diagnoses, described = {}, []
        # A host that is in no pool is planned as if it were alone in one: nobody has to have described it.
        for one in hosts_of(arguments["hosts"], task_vars, alone=True):
            host, facts, unread, description = one.name, one.facts, one.unread, one.description
            checks = None
            if facts is not None and facts.health is not None:
                secure = driver_security(facts, description.variables)
                found = judged(facts, cuda_check=(AUTO,)).checks
                checks = [*found, *secure, *slurm_checks(host, one.variables, facts)]
            elif facts is not None:
                facts, unread = None, "its facts lack the subset health, which the checks need"
            described.append(description.variables)
            stages = description.stages(facts)
            diagnoses[host] = Diagnosis(host, facts, of_host(checks, unread or ""), stages)
        for diagnosis in diagnoses.values():
            self._display.display("\n".join([*([] if diagnosis.found.unread else [""]), *diagnosis.lines()]))
        judged_by, stale = ages(described)
        self._display.display(judged_by)
        for warning in stale:
            self._display.display(warning, color="yellow")
        document = {host: diagnosis.as_dict() for host, diagnosis in diagnoses.items()}
        if arguments["report"]:
            write_report(arguments["report"], document, 0o600)
        bad = [host for host, diagnosis in diagnoses.items() if not diagnosis.found.healthy]
        message = (
            f"Something is wrong with {len(bad)} of {len(diagnoses)} hosts: {', '.join(bad)}."
            if bad
            else f"Nothing is wrong with any of {amount(len(diagnoses), 'host')}."
        )
        return {"hosts": document, "healthy": not bad, "msg": message}
