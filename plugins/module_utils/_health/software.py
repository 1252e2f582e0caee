# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether what serves GPUs to containers and clients works: the container runtime, MPS, CUDA by a program or by DCGM, and DCGM's own diagnostic. Pure.

Facts: host.md, sections 7 to 9. What C(dcgmi diag -j) says: nvvs/include/NvvsJsonStrings.h and testing/python3/dcgm_diag_schema.json of NVIDIA/DCGM
(version 4), its issue 139 (version 3, where results have a C(gpu_id) in place of an entity), and dcgmlib/dcgm_errors.h for the severities.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .._facts_view import AnswerFacts, Facts, MpsDaemonFacts
from .._formats.documents import read_json
from .._users import users_of
from .report import FAILED, DcgmRun, Evidence, Outcome, failed, passed, skipped, unproven, warning

#: What the first version and all since have around the tests.
_ROOTS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")
#: DCGM_ERROR_CONFIG: "This error can be configured". Persistence mode that is off is one.
_CONFIGURABLE = 5
_DIAG_BY_HAND = "Run it by hand on the host (dcgmi diag -r LEVEL), and keep its output for the vendor of the board"
#: The value of nvidia_health_cuda_check that takes what is there.
AUTO = "auto"
#: Programs of the CUDA samples that end with 0 where CUDA works; the first one also computes. NVIDIA's packages cuda-demo-suite have them for x86_64
#: (docs.nvidia.com/cuda/demo-suite [doc]), the others are where people build or put them.
PROGRAMS = ("vectorAdd", "deviceQuery")
DEMO_SUITE = "/usr/local/cuda/extras/demo_suite"
_NEXT = "Give a program (nvidia_health_cuda_check), or set nvidia_dcgm_state: present"
_CUDA_BY_HAND = "Run it by hand on the host; 802 means that the fabric is not ready"


def runtime(evidence: Evidence) -> Outcome:
    """Every container runtime with the NVIDIA runtime runs, or one of them at least."""
    runtimes = evidence.facts.runtimes or {}
    configured = {name: facts for name, facts in runtimes.items() if facts.nvidia}
    if not configured:
        return skipped("no container runtime has the NVIDIA runtime")
    running = {name: facts for name, facts in configured.items() if facts.active is not False}
    if not running:
        names = ", ".join(configured)
        return failed(f"{names} does not run", f"Start {names} and look into its journal")
    versions = [f"{name} {facts.version or 'of unknown version'}" for name, facts in running.items()]
    if len(running) < len(configured):
        names = ", ".join(sorted(configured.keys() - running.keys()))
        return warning(
            f"{names} does not run; {', '.join(versions)} does", f"Start {names} where containers are to run in it"
        )
    return passed(", ".join(versions))


def mps(evidence: Evidence) -> Outcome:
    """Every MPS daemon of the host answers."""
    running = mps_of_host(evidence.facts)
    dead = [str(daemon.pid) for daemon in running if daemon.responds is False]
    if dead:
        remedy = "Look into control.log in its log directory; restarting it ends its clients"
        return failed(f"the MPS daemon with pid {', '.join(dead)} does not answer", remedy)
    unsure = [str(daemon.pid) for daemon in running if daemon.responds is None]
    if unsure:
        reason = f"whether the MPS daemon with pid {', '.join(unsure)} answers is unknown"
        return warning(reason, "Run as root on the host")
    return passed(f"{len(running)} MPS daemons answer") if running else skipped("no MPS daemon of the host runs")


def mps_of_host(facts: Facts) -> list[MpsDaemonFacts]:
    """Return the MPS daemons that are not in a container, as the device plugin's is: nothing is recorded of that."""
    return [daemon for daemon in facts.mps or [] if not daemon.in_container]


class UnreadableDiagnosis(Exception):
    """What dcgmi wrote is no result of a diagnostic."""


@dataclass(frozen=True)
class DiagnosticResult:
    """What a test says of one GPU, or of another part of the host. C(configurable): whether all that it found is a matter of configuration."""

    test: str
    subject: str
    status: str
    warnings: tuple[str, ...] = ()
    configurable: bool = False


def parse(text: str) -> tuple[str, list[DiagnosticResult]]:
    """Return the version of DCGM, empty where it does not tell, and the results of what C(dcgmi diag -j) wrote; lines before and after the document
    are left out. Raises UnreadableDiagnosis: it is none, or DCGM could not run the tests.
    """
    document = text[text.find("{") : text.rfind("}") + 1]
    try:
        read = read_json(document)
    except ValueError:
        raise UnreadableDiagnosis(_last_line(text)) from None
    root = next((read[name] for name in _ROOTS if isinstance(read.get(name), Mapping)), None)
    if root is None:
        raise UnreadableDiagnosis("its output has no results")
    if root.get("runtime_error"):
        raise UnreadableDiagnosis(str(root["runtime_error"]))
    results = list(_results(root))
    if not results:
        raise UnreadableDiagnosis("its output has no results")
    version = (read.get("metadata") or {}).get("version") or root.get("version")
    return str(version or ""), results


def _results(root: Mapping[str, Any]) -> Iterator[DiagnosticResult]:
    for category in root.get("test_categories") or ():
        for test in category.get("tests") or ():
            for result in test.get("results") or ():
                written = result.get("warnings") or []
                listed = written if isinstance(written, list) else [written]
                found = [one if isinstance(one, Mapping) else {"warning": one} for one in listed]
                configurable = bool(found) and all(one.get("error_severity") == _CONFIGURABLE for one in found)
                texts = tuple(str(one.get("warning")) for one in found)
                yield DiagnosticResult(
                    str(test.get("name")), _subject(result), str(result.get("status")), texts, configurable
                )


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no output")


def _subject(result: Mapping[str, Any]) -> str:
    if "entity_id" in result:
        return f"{result.get('entity_group', 'entity')} {result['entity_id']}"
    number = result.get("gpu_id", result.get("gpu_ids"))
    return "the host" if number is None else f"GPU {number}"


def dcgm(evidence: Evidence) -> Outcome:
    """NVIDIA's own diagnostic finds nothing, at the level that the pool asks for."""
    asked: DcgmRun | None = evidence.dcgm
    if asked is None:
        if evidence.owed:
            found = "the site playbook changed this host, and dcgmi diag at nvidia_health_dcgm_level has not accepted it since"
            return failed(found, "Run gpufleet.nvidia.site with --limit and this host")
        return skipped("DCGM was not run: no level was given (nvidia_health_dcgm_level)")
    return judge(asked, evidence.facts)


def accepts(asked: DcgmRun | None, facts: Facts) -> bool:
    """Return whether the diagnostic ran at the level that was asked for, and not a lower one beside somebody's programs, and found no failure."""
    return asked is not None and not asked.why and judge(asked, facts).status != FAILED


def judge(asked: DcgmRun, facts: Facts) -> Outcome:
    if not asked.installed:
        return failed(f"level {asked.level} is requested, but dcgmi is not installed", _packages(facts))
    if asked.answer.rc is None:
        return failed(f"dcgmi did not end: {asked.answer.text}", "Raise nvidia_health_dcgm_timeout, or lower the level")
    try:
        version, results = parse(asked.answer.text)
    except UnreadableDiagnosis as error:
        return failed(f"dcgmi ended with {asked.answer.rc}: {error}", "See systemctl status nvidia-dcgm.service")
    broken = [one for one in results if one.status == "Fail" and not one.configurable]
    if broken:
        return failed("; ".join(map(_words, broken)), _DIAG_BY_HAND)
    doubtful = [one for one in results if one.status in ("Fail", "Warn")]
    if doubtful:
        return warning("; ".join(map(_words, doubtful)), "See what it names")
    done = sorted({one.test for one in results if one.status == "Pass"})
    left = sorted({one.test for one in results} - set(done))
    text = f"level {asked.level} of DCGM {version or 'of unknown version'}: {', '.join(done) or 'nothing'} passed"
    text += f", {', '.join(left)} skipped" if left else ""
    if asked.why:
        return warning(f"{text}; {asked.why}", "Run the requested level when no program uses a GPU")
    return passed(text) if done else warning(text, "DCGM skips tests for boards that it does not know, and with MIG")


def _words(one: DiagnosticResult) -> str:
    said = f": {' '.join(one.warnings)}" if one.warnings else ""
    how = "failed on" if one.status == "Fail" else "has a warning for"
    return f"{one.test} {how} {one.subject}{said}"


def _packages(facts: Facts) -> str:
    """The packages have the same names in all repositories of NVIDIA: cmake/packaging.cmake of NVIDIA/DCGM, and host.md, section 6."""
    cuda = str(facts.nvml.cuda_version or "").partition(".")[0]
    package = f"datacenter-gpu-manager-4-cuda{cuda if cuda in ('11', '12', '13') else '-all'}"
    return f"Set nvidia_dcgm_state: present, or install {package} from NVIDIA's repository and start nvidia-dcgm.service, or set nvidia_health_dcgm_level to 0"


def is_auto(command: Sequence[str]) -> bool:
    return list(command) == [AUTO]


def obstacle(facts: Facts) -> str:
    """Return why a CUDA program that knows nothing of the host would fail on it or disturb somebody, though CUDA works; empty for nothing. Samples
    take the first GPU as a whole: they find none that is exclusive or MPS's, and no device where MIG is on without an instance.
    """
    gpus = facts.gpus or ()
    if not gpus:
        return "NVML shows no GPU"
    if facts.mps:
        return "MPS serves the GPUs"
    for gpu in gpus:
        if gpu.compute_mode != "default":
            return f"GPU {gpu.index} is in compute mode {gpu.compute_mode}"
        if gpu.mig.current and not gpu.gpu_instances:
            return f"GPU {gpu.index} has MIG on and no instance"
        if users_of(gpu).everybody:
            return f"GPU {gpu.index} is in use"
    return ""


def reason_unproven(facts: Facts) -> str:
    """Return why nothing shows that CUDA works, by facts alone."""
    program = facts.health and facts.health.cuda_program
    there = program or (facts.dcgm and facts.dcgm.dcgmi)
    if there:
        why = program and obstacle(facts)
        return f"{there} was not run" + (f", because {why}" if why else " for this check")
    return f"the host has neither {' nor '.join(PROGRAMS)} of the CUDA samples (in PATH or {DEMO_SUITE}) nor dcgmi"


def cuda(evidence: Evidence) -> Outcome:
    """A CUDA program ends with 0, or DCGM finds CUDA's software right. nvidia-smi works where CUDA does not (fabric, MPS)."""
    if evidence.cuda is not None:
        return _by_program(evidence.cuda)
    asked = evidence.cuda_by_dcgm
    if asked is not None:
        try:
            parse(asked.answer.text)
        except UnreadableDiagnosis as error:
            # Somebody installed DCGM and does not run its host engine: no fault of CUDA's.
            return unproven(f"CUDA is not proven: dcgmi could not say: {error}", _NEXT)
        found = judge(asked, evidence.facts)
        if found.status == FAILED and asked is evidence.dcgm:
            # Said once, by the check that was asked for it: what it found need not be CUDA's.
            return unproven("CUDA is not proven: dcgmi found a failure", "See the check dcgm")
        return Outcome(found.status, f"by dcgmi: {found.evidence}", found.next_step)
    if evidence.cuda_unproven:
        return unproven(f"CUDA is not proven: {evidence.cuda_unproven}", _NEXT)
    return skipped("CUDA is not proven: no command was given (nvidia_health_cuda_check)")


def _by_program(answer: AnswerFacts) -> Outcome:
    last = _last_line(answer.text)
    if answer.rc == 0:
        return passed(last)
    how = "did not end" if answer.rc is None else f"ended with {answer.rc}"
    return failed(f"the CUDA command {how}: {last}", _CUDA_BY_HAND)
