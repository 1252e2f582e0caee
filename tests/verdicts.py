# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What C(plan), C(verify) and C(doctor) say of one host, held against each other, from their reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

AS_DESCRIBED = "as described"


def differences(plan: Mapping[str, Any], verified: Mapping[str, Any], diagnosed: Mapping[str, Any]) -> Iterator[str]:
    """Return where C(verify) or C(doctor) say something else of a host than C(plan)."""
    verdict = plan["verdict"]
    failed = failed_checks(verified)
    if diagnosed["verdict"] != verdict:
        yield f"plan says {verdict}, doctor {diagnosed['verdict']}"
    if bool(failed) != (verdict != AS_DESCRIBED):
        yield f"plan says {verdict}, verify {failed or AS_DESCRIBED}"
    evidence = "\n".join(text for _name, text in failed)
    yield from (f"verify does not say: {text}" for text in said(plan) if text not in evidence)


def failed_checks(verified: Mapping[str, Any], group: str = "description") -> list[tuple[str, str]]:
    """Return name and evidence of the failed checks of C(verify)."""
    checks = [check for check in verified["checks"] if check["group"] == group and check["status"] == "failed"]
    return [(check["name"], check["evidence"]) for check in checks]


def said(host: Mapping[str, Any], every: bool = False) -> Iterator[str]:
    """Return the words in which C(plan) says what is to do on a host.

    :param every: what is done alike to several GPUs, too, which is one line of C(verify).
    """
    for name, stage in host["stages"].items():
        steps = [step for step in stage["steps"] if every or "index" not in step["data"]]
        yield from (step["text"].rstrip(".") for step in steps)
        yield from (refusal["reason"] for refusal in stage["refusals"])
        yield from (
            reason.rstrip(".") for reason in (stage["unread"], stage["unknown"]) if reason and not stage["refusals"]
        )
        assert stage["needed"] == bool(stage["steps"] or stage["refusals"] or stage["unread"] or stage["unknown"]), name
