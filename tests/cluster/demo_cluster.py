# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The last part of C(make demo-cluster): the rendered tree is pushed, Argo CD syncs it, and pods get their slices.

demo_cluster.py LAB FOLDER      (tools/demo-cluster.sh calls it)
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True

import yaml
from gitops import GitOps
from pod_slices import pod_slice, table

_START = time.monotonic()
_SYNCED_WITHIN = 600.0


def say(text: str) -> None:
    print(f"[{time.monotonic() - _START:5.0f} s] {text}", flush=True)


def sync(demo: GitOps, commit: str) -> None:
    """Wait until Argo CD has done it; say what every Application is at, as it changes."""
    before: dict[str, str] = {}
    while True:
        now = {**dict.fromkeys(demo.expected(), ""), **demo.unfinished(commit)}
        for name in sorted(now):
            if now[name] != before.get(name):
                say(f"  {name}: {now[name][:150] or 'Synced, Healthy'}")
        if not any(now.values()):
            return
        if time.monotonic() - _START > _SYNCED_WITHIN:
            raise SystemExit(f"Argo CD did not finish within {_SYNCED_WITHIN:.0f} s; see the lines above.")
        before = now
        time.sleep(1)


def wait_for_capacity(demo: GitOps) -> None:
    expected = {name: node["resources"] for name, node in demo.capacity["nodes"].items()}
    while demo.offered() != expected:
        if time.monotonic() - _START > _SYNCED_WITHIN:
            raise SystemExit(f"The nodes offer {demo.offered()}, and capacity.json says {expected}.")
        time.sleep(1)
    for node, resources in sorted(expected.items()):
        say(f"  {node}: " + ", ".join(f"{count} x {name}" for name, count in sorted(resources.items())))


def run_examples(demo: GitOps) -> str:
    """Run every rendered example as it is, to its end; return the table."""
    folder = str(demo.tree / "examples")
    demo.kubectl("delete", "-f", folder, "--ignore-not-found", "--wait")
    demo.kubectl("apply", "-f", folder)
    names = [yaml.safe_load(path.read_text())["metadata"]["name"] for path in (demo.tree / "examples").glob("*.yaml")]
    until = time.monotonic() + 180
    phases: dict[str, str] = {}
    while any(phases.get(name) not in ("Succeeded", "Failed") for name in names) and time.monotonic() < until:
        now = {pod["metadata"]["name"]: pod["status"]["phase"] for pod in demo.get("pods")["items"]}
        for name in sorted(names):
            if now.get(name) != phases.get(name):
                say(f"  {name}: {now.get(name)}")
        phases = now
        time.sleep(1)
    slices = [pod_slice(demo.get("pod", name), demo.kubectl("logs", name)) for name in sorted(names)]
    bad = [name for name in names if phases.get(name) != "Succeeded"]
    if bad:
        raise SystemExit(f"{table(slices)}\nNot completed: {', '.join(bad)}")
    return table(slices)


def main(lab: str, folder: str) -> int:
    demo = GitOps(lab, Path(folder).resolve())
    say("Pushing the rendered tree, as a commit and a push:")
    print(demo.lab("publish", str(demo.folder / "gitops")), end="", flush=True)
    commit = demo.head
    say("Argo CD syncs it: a root Application, and what it finds below argocd/")
    sync(demo, commit)
    say("Every node offers what capacity.json says:")
    wait_for_capacity(demo)
    say("The rendered examples, as they are; each prints what it was given:")
    print(f"\n{run_examples(demo)}\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
