# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The collection on this host: its facts, its playbooks, and its tests for real GPUs."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from gpu_evidence.running import Folder, environment, run

HOST = "gpu-host"
_GATHER = ["errors", "health", "holders", "mig_parted", "profiles"]
_REPEATED = 5
_MODULE = "import runpy,sys; runpy.run_module(sys.argv.pop(1), run_name='__main__')"
#: Through Ansible, as a user's task does it: with the archive of pynvml, and by the fork of a worker.
_PLAYBOOK = """
- name: Read the host
  hosts: all
  gather_facts: false
  tasks:
    - name: Read the host
      gpufleet.nvidia.gpu_info:
        gather: [errors, health, holders, mig_parted, profiles]
      register: found
    - name: Keep what it says
      ansible.builtin.copy:
        content: "{{ found | to_json }}"
        dest: "{{ target }}"
        mode: "0644"
"""
#: What one playbook is run with, besides: name, playbook, inventory, options.
_RUNS = (
    ("doctor", "doctor", "bare", ["-e", "gpu_doctor_report={out}/doctor.json"]),
    ("adopt", "adopt", "bare", ["-e", "gpu_adopt_directory={work}/adopted", "-e", "gpu_adopt_report={out}/adopt.json"]),
    ("plan", "plan", "described", ["-e", "gpu_plan_report={out}/plan.json"]),
    ("verify", "verify", "described", ["-e", "gpu_verify_report={out}/verify.json"]),
    (
        "inspect",
        "inspect",
        "described",
        [
            "-e",
            "gpu_inspect_report={out}/inspect.json",
            "-e",
            "gpu_inspect_html={out}/inspect.html",
            "-e",
            "gpu_inspect_wide=true",
        ],
    ),
    ("plan-adopted", "plan", "adopted", ["-e", "gpu_plan_report={out}/plan-adopted.json"]),
    ("verify-adopted", "verify", "adopted", ["-e", "gpu_verify_report={out}/verify-adopted.json"]),
)


def _environment(work: str) -> dict[str, str]:
    # Empty: what the host's own configuration says is no part of the question.
    Path(work, "ansible.cfg").touch()
    return environment(
        ANSIBLE_COLLECTIONS_PATH=f"{work}/collections",
        ANSIBLE_HOME=f"{work}/home/.ansible",
        ANSIBLE_LOCAL_TEMP=f"{work}/tmp",
        ANSIBLE_REMOTE_TEMP=f"{work}/tmp",
        ANSIBLE_CONFIG=f"{work}/ansible.cfg",
        ANSIBLE_NOCOLOR="1",
        ANSIBLE_FORCE_COLOR="0",
        ANSIBLE_LOCALHOST_WARNING="False",
        ANSIBLE_RETRY_FILES_ENABLED="False",
        PYTHONNOUSERSITE="1",
    )


def _ansible(work: str, *words: str, seconds: float = 60.0) -> Any:
    start = "from ansible.cli.playbook import main; main()"
    return run([sys.executable, "-c", start, *words], seconds, _environment(work), cwd=work)


def _inventory(work: str) -> str:
    """This host under a name of its own: what it is called is nobody's business."""
    path = Path(work) / "inventory"
    path.mkdir(exist_ok=True)
    entry = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "ansible_become": False}
    # YAML, which JSON is: the bare one names the host, the other one puts it into the group of GPU hosts.
    (path / "bare.json").write_text(json.dumps({"all": {"hosts": {HOST: entry}}}), encoding="utf-8")
    (path / "described.json").write_text(
        json.dumps({"all": {"children": {"gpu_hosts": {"children": {"pool": {"hosts": {HOST: entry}}}}}}}),
        encoding="utf-8",
    )
    return str(path)


def facts(out: str, work: str) -> int:
    """The document by the module alone several times, then through Ansible."""
    folder, env = Folder(out), _environment(work)
    env["PYTHONPATH"] = os.pathsep.join([env["PYTHONPATH"], f"{work}/collections"])
    module = [sys.executable, "-c", _MODULE, "ansible_collections.gpufleet.nvidia.plugins.modules.gpu_info"]
    seconds: dict[str, list[float]] = {"all": [], "plain": []}
    failures = []
    for kind, gather, times in (("all", _GATHER, 2), ("plain", [], _REPEATED)):
        for index in range(times):
            done = run(module, 40, env, given=json.dumps({"ANSIBLE_MODULE_ARGS": {"gather": gather}}))
            seconds[kind].append(done.seconds)
            folder.keep(f"module-{kind}-{index}", done)
            if not done.ok:
                failures.append(f"gpu_info by itself: {done.said}")
        folder.answer(
            "failed" if failures else "ran", "; ".join(failures) or f"{seconds} by the module itself", seconds=seconds
        )
    inventory = _inventory(work)
    book = Path(work) / "facts.yml"
    book.write_text(_PLAYBOOK, encoding="utf-8")
    target = f"{out}/facts.json"
    done = folder.keep(
        "playbook", _ansible(work, "-vv", "-i", f"{inventory}/bare.json", str(book), "-e", f"target={target}")
    )
    if not done.ok:
        failures.append(f"gpu_info through Ansible: {done.said}")
    found = json.loads(Path(target).read_text(encoding="utf-8")) if os.path.exists(target) else {}
    gpus = (found.get("gpu") or {}).get("gpus")
    said = (
        f"{len(gpus)} GPU(s), by the module alone in {min(seconds['plain']):.2f} to {max(seconds['plain']):.2f} s"
        if gpus
        else "it shows no GPU"
    )
    nvml = (found.get("gpu") or {}).get("nvml") or {}
    if not gpus:
        failures.append(f"{said}: {nvml.get('reason')}")
    return folder.answer(
        "failed" if failures else "ran",
        "; ".join(failures) or said,
        seconds=seconds,
        playbook=done.seconds,
        inside=found.get("seconds"),
    )


def in_use(folder: Folder, name: str, work: str) -> None:
    """The facts document while a program of this run uses the GPU."""
    env = _environment(work)
    env["PYTHONPATH"] = os.pathsep.join([env["PYTHONPATH"], f"{work}/collections"])
    module = [sys.executable, "-c", _MODULE, "ansible_collections.gpufleet.nvidia.plugins.modules.gpu_info"]
    if os.path.isdir(f"{work}/site/ansible"):
        folder.keep(
            f"{name}-facts", run(module, 20, env, given=json.dumps({"ANSIBLE_MODULE_ARGS": {"gather": ["holders"]}}))
        )


def user(out: str, work: str) -> int:
    """The facts and NVML as a user without rights: what such a user is told, and what is said of the rest."""
    if os.geteuid() != 0:
        return Folder(out).answer("absent", "this run is an ordinary user's already")
    folder, env = Folder(out), _environment(work)
    open_to_all = Path(work) / "user"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    env.update(
        PYTHONPATH=os.pathsep.join([env["PYTHONPATH"], f"{work}/collections"]),
        TMPDIR=str(open_to_all),
        HOME=str(open_to_all),
    )
    env.pop("PYTHONPYCACHEPREFIX", None)
    env["PYTHONDONTWRITEBYTECODE"] = "1"
    # What is imported before is there although that user may not read where it is.
    module = "ansible_collections.gpufleet.nvidia.plugins.modules.gpu_info"
    start = f"import runpy, sys, pynvml, gpu_evidence.nvml_values, {module}; from gpu_evidence.cuda import become; become(65534); "
    given = json.dumps({"ANSIBLE_MODULE_ARGS": {"gather": _GATHER, "_ansible_remote_tmp": str(open_to_all)}})
    facts_of = run(
        [sys.executable, "-c", start + _MODULE, "ansible_collections.gpufleet.nvidia.plugins.modules.gpu_info"],
        40,
        env,
        given=given,
    )
    folder.keep("facts", facts_of)
    calls = open_to_all / "calls.jsonl"
    asked = run(
        [sys.executable, "-c", f"{start}runpy.run_module('gpu_evidence.nvml_calls', run_name='__main__')", str(calls)],
        40,
        env,
    )
    folder.keep("calls", asked)
    if calls.exists():
        folder.write(
            "calls.jsonl",
            "".join(
                f"{line}\n"
                for line in calls.read_text(encoding="utf-8").splitlines()
                if not line.startswith('{"begin"')
            ),
        )
    said = f"facts: {facts_of.said}; NVML: {asked.said}"
    return folder.answer("ran" if facts_of.ok and asked.ok else "absent", said)


def playbooks(out: str, work: str) -> int:
    """Those that change nothing. That one ends with a status other than 0 is what it says of this host; that it breaks is not."""
    folder = Folder(out)
    inventory = _inventory(work)
    statuses: dict[str, Any] = {}
    broken = []
    deadline = time.monotonic() + 145
    for name, playbook, where, options in _RUNS:
        source = f"{work}/adopted" if where == "adopted" else f"{inventory}/{where}.json"
        if not os.path.exists(source):
            statuses[name] = "there is no adopted inventory"
            continue
        words = [one.format(out=out, work=work) for one in options]
        if where == "adopted":
            words += [
                "-e",
                "ansible_connection=local",
                "-e",
                f"ansible_python_interpreter={sys.executable}",
                "-e",
                "ansible_become=false",
            ]
        started = time.monotonic()
        done = folder.keep(
            name,
            _ansible(
                work, "-v", "-i", source, f"gpufleet.nvidia.{playbook}", *words, seconds=min(60.0, deadline - started)
            ),
        )
        statuses[name] = done.status
        # 2 is a task that failed, which is how these say that something is wrong; anything else is no verdict.
        if done.status not in (0, 2) or "Traceback" in done.out + done.err or "MODULE FAILURE" in done.out:
            broken.append(f"{name}: {done.said}")
        folder.answer("failed" if broken else "ran", "; ".join(broken) or _words(statuses), statuses=statuses)
        if time.monotonic() > deadline:
            break
    for path in sorted(Path(work, "adopted").rglob("*")) if os.path.isdir(f"{work}/adopted") else ():
        if path.is_file():
            folder.write(
                f"adopted-{'-'.join(path.relative_to(f'{work}/adopted').parts)}", path.read_text(encoding="utf-8")
            )
    return folder.answer("failed" if broken else "ran", "; ".join(broken) or _words(statuses), statuses=statuses)


def _words(statuses: dict[str, Any]) -> str:
    return "exit statuses: " + ", ".join(f"{name} {status}" for name, status in statuses.items())


def tests(out: str, work: str) -> int:
    """tests/gpu with pytest, as a developer runs them on a host with a GPU."""
    folder, env = Folder(out), _environment(work)
    source = f"{os.environ['GPU_EVIDENCE_BUNDLE']}/tests/gpu"
    env["GPUFLEET_COLLECTIONS"] = f"{work}/collections"
    env["PYTHONPATH"] = os.pathsep.join([env["PYTHONPATH"], f"{work}/collections"])
    words = [
        "-p",
        "no:cacheprovider",
        "-q",
        "-rA",
        "--tb=short",
        "-c",
        "/dev/null",
        "--rootdir",
        source,
        f"--junitxml={out}/junit.xml",
        source,
    ]
    done = folder.keep("pytest", run([sys.executable, "-m", "pytest", *words], 95, env, cwd=work))
    last = [line.strip("= ") for line in done.out.splitlines() if line.strip()][-1:]
    said = last[0] if last and done.status in (0, 1) else done.said
    return folder.answer("ran" if done.ok else "failed", said)
