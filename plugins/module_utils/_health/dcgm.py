# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What C(dcgmi diag -j) says, and the check of it. Pure.

Sources: nvvs/include/NvvsJsonStrings.h and testing/python3/dcgm_diag_schema.json of NVIDIA/DCGM (version 4), its issue 139 (version 3, where results
have a C(gpu_id) in place of an entity), and dcgmlib/dcgm_errors.h for the severities.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .._formats.documents import read_json
from .report import FAILED, Diagnosis, Evidence, Outcome, failed, passed, skipped, warning

#: What the first version and all since have around the tests.
_ROOTS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")
#: DCGM_ERROR_CONFIG: "This error can be configured". Persistence mode that is off is one.
_CONFIGURABLE = 5
_BY_HAND = "Run it by hand on the host (dcgmi diag -r LEVEL), and keep its output for the vendor of the board"


class Unreadable(Exception):
    """What dcgmi wrote is no result of a diagnostic."""


@dataclass(frozen=True)
class Result:
    """What a test says of one GPU, or of another part of the host.

    :param status: C(Pass), C(Fail), C(Warn), C(Skip) or C(Not Run).
    :param configurable: whether all that it found is a matter of configuration.
    """

    test: str
    subject: str
    status: str
    warnings: tuple[str, ...] = ()
    configurable: bool = False


@dataclass(frozen=True)
class DiagResult:
    """The results of a run.

    :param version: of DCGM; empty where it does not tell.
    """

    version: str
    results: tuple[Result, ...]


def parse(text: str) -> DiagResult:
    """Read what C(dcgmi diag -j) wrote; lines before and after the document are left out.

    :raises Unreadable: it is none, or DCGM could not run the tests.
    """
    document = text[text.find("{") : text.rfind("}") + 1]
    try:
        read = read_json(document)
    except ValueError:
        last = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no output")
        raise Unreadable(last) from None
    root = next((read[name] for name in _ROOTS if isinstance(read.get(name), Mapping)), None)
    if root is None:
        raise Unreadable("its output has no results")
    if root.get("runtime_error"):
        raise Unreadable(str(root["runtime_error"]))
    results = tuple(_results(root))
    if not results:
        raise Unreadable("its output has no results")
    version = (read.get("metadata") or {}).get("version") or root.get("version")
    return DiagResult(str(version or ""), results)


def _results(root: Mapping[str, Any]) -> Iterator[Result]:
    for category in root.get("test_categories") or ():
        for test in category.get("tests") or ():
            for result in test.get("results") or ():
                found = [
                    one if isinstance(one, Mapping) else {"warning": one} for one in _listed(result.get("warnings"))
                ]
                severities = [one.get("error_severity") for one in found]
                yield Result(
                    str(test.get("name")),
                    _subject(result),
                    str(result.get("status")),
                    tuple(str(one.get("warning")) for one in found),
                    bool(found) and all(severity == _CONFIGURABLE for severity in severities),
                )


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _subject(result: Mapping[str, Any]) -> str:
    if "entity_id" in result:
        return f"{result.get('entity_group', 'entity')} {result['entity_id']}"
    number = result.get("gpu_id", result.get("gpu_ids"))
    return "the host" if number is None else f"GPU {number}"


def dcgm(evidence: Evidence) -> Outcome:
    """NVIDIA's own diagnostic finds nothing, at the level that the pool asks for."""
    asked: Diagnosis | None = evidence.dcgm
    if asked is None:
        if evidence.owed:
            return failed(
                "the site playbook changed this host, and dcgmi diag at nvidia_health_dcgm_level has not accepted it since",
                "Run gpufleet.nvidia.site with --limit and this host",
            )
        return skipped("DCGM was not run: no level was given (nvidia_health_dcgm_level)")
    return judge(asked, evidence.facts)


def accepts(asked: Diagnosis | None, facts: Mapping[str, Any]) -> bool:
    """Return whether the diagnostic ran at the level that was asked for, and not a lower one beside somebody's programs, and found no failure."""
    return asked is not None and not asked.why and judge(asked, facts).status != FAILED


def judge(asked: Diagnosis, facts: Mapping[str, Any]) -> Outcome:
    """Return what a run of the diagnostic shows."""
    if not asked.installed:
        return failed(f"level {asked.level} is requested, but dcgmi is not installed", _packages(facts))
    if asked.answer.rc is None:
        return failed(f"dcgmi did not end: {asked.answer.text}", "Raise nvidia_health_dcgm_timeout, or lower the level")
    try:
        found = parse(asked.answer.text)
    except Unreadable as error:
        return failed(f"dcgmi ended with {asked.answer.rc}: {error}", "See systemctl status nvidia-dcgm.service")
    broken = [one for one in found.results if one.status == "Fail" and not one.configurable]
    if broken:
        return failed("; ".join(map(_words, broken)), _BY_HAND)
    doubtful = [one for one in found.results if one.status in ("Fail", "Warn")]
    if doubtful:
        return warning("; ".join(map(_words, doubtful)), "See what it names")
    done = sorted({one.test for one in found.results if one.status == "Pass"})
    left = sorted({one.test for one in found.results} - set(done))
    text = f"level {asked.level} of DCGM {found.version or 'of unknown version'}: {', '.join(done) or 'nothing'} passed"
    text += f", {', '.join(left)} skipped" if left else ""
    if asked.why:
        return warning(f"{text}; {asked.why}", "Run the requested level when no program uses a GPU")
    return passed(text) if done else warning(text, "DCGM skips tests for boards that it does not know, and with MIG")


def _words(one: Result) -> str:
    said = f": {' '.join(one.warnings)}" if one.warnings else ""
    how = "failed on" if one.status == "Fail" else "has a warning for"
    return f"{one.test} {how} {one.subject}{said}"


def _packages(facts: Mapping[str, Any]) -> str:
    """The packages have the same names in all repositories of NVIDIA: cmake/packaging.cmake of NVIDIA/DCGM, and host.md, section 6."""
    cuda = str((facts.get("nvml") or {}).get("cuda_version") or "").partition(".")[0]
    package = (
        f"datacenter-gpu-manager-4-cuda{cuda}" if cuda in ("11", "12", "13") else "datacenter-gpu-manager-4-cuda-all"
    )
    return f"Set nvidia_dcgm_state: present, or install {package} from NVIDIA's repository and start nvidia-dcgm.service, or set nvidia_health_dcgm_level to 0"
