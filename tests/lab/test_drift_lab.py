# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is done by hand to hosts after C(site) (C(tests/drift.py)): C(plan), C(verify) and C(doctor) say the same of it, and C(site) mends it and then
has nothing more to do; or all refuse it in the same words, and nothing is touched. Nothing is restarted twice for it: C(restarts.py) counts what the host's
journal has.

Rows share their hosts and the runs of the playbooks: as many as there are hosts at a time.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest
from ansible_collections.gpufleet.nvidia.tests import drift, verdicts
from ansible_collections.gpufleet.nvidia.tests.lab import container_tools, host_files, rancher_host, restarts

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="the lab needs root: run this as root"),
]

HOSTS = tuple(f"drift-{number}" for number in range(1, 7))
#: The kind of `test_converged_lab`.
_BOARDS = [{"board": "h100-80gb-sxm", "count": 2}]
#: Seconds until a run of site is in the middle of a stage, and what is written where it was.
_PATIENCE = 300
_IN_ITS_MIDDLE = "in its middle"


@dataclass
class Story:
    """What happened to the host of a row.

    :param ready: whether it was as described before.
    :param by_hand: what was written while it was done.
    :param asked: what C(plan), C(verify) and C(doctor) said of it then, and at the end.
    :param failing: what a run of C(site) said of it that cannot mend it, and what that left half done.
    :param site: what the run of C(site) said of it, and whether it failed there.
    :param touched: files and state that it changed although it refused.
    :param restarted: how often that run rebooted the host and restarted each of its runtimes and kubelets.
    :param again: whether a second run changed nothing.
    """

    host: str
    ready: bool = False
    by_hand: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    failing: tuple[str, str] = ("", "")
    site: str = ""
    failed: bool = False
    touched: list[str] = field(default_factory=list)
    restarted: dict[str, int] = field(default_factory=dict)
    again: bool = False


class Hosts:
    """The hosts of the lab, and what is asked about all of them at once."""

    def __init__(self, fleet: Any) -> None:
        self.fleet = fleet
        self._pools: dict[str, str] = {}
        self._variables: dict[str, dict[str, Any]] = {}

    def describe(self, pools: Mapping[str, str], variables: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        """Write the inventory.

        :param pools: host to pool.
        :param variables: what single hosts have besides.
        """
        self._pools = dict(pools)
        self._variables = {host: dict(found) for host, found in (variables or {}).items()}
        members = {pool: [host for host, its in pools.items() if its == pool] for pool in dict.fromkeys(pools.values())}
        self.fleet.describe(
            {pool: {"hosts": hosts, "vars": {**drift.COMMON, **drift.POOLS[pool]}} for pool, hosts in members.items()},
            self._variables,
        )

    def ask(self) -> dict[str, dict[str, Any]]:
        """Return what C(plan), C(verify) and C(doctor) say of each host."""
        reports = {}
        for name in ("plan", "verify", "doctor"):
            path = self.fleet.folder / f"{name}.json"
            played = self.fleet.play(name, "-e", f"gpu_{name}_report={path}")
            assert path.exists(), played.text
            reports[name] = {
                "rc": played.rc,
                "text": played.text,
                "hosts": json.loads(path.read_text(encoding="utf-8")),
            }
            path.unlink()
        reports["plan"]["hosts"] = reports["plan"]["hosts"]["hosts"]
        return {
            host: {name: {**found, "host": found["hosts"][host]} for name, found in reports.items()}
            for host in self._pools
        }

    def facts(self, host: str) -> dict[str, Any]:
        """Return all that can be read of a host."""
        return dict(self.fleet.module(host, "gpu_info", {"gather": ["errors", "health", "holders"]})["gpu"])

    def prepare(self, host: str, row: drift.Row) -> None:
        """Bring what a row finds on its host beside what C(site) does."""
        if row.pool == drift.K3S:
            rancher_host.install(self.fleet.lab, host)
        if row.containerd:
            self.fleet.lab.write(host, "/opt/containerd", container_tools.containerd(row.containerd).read_bytes())

    def by_hand(self, host: str, row: drift.Row) -> str:
        """Do to a host what a row says, and return what was written; a program that failed is seen by what comes after."""
        if row.cut:
            return self.cut(host, row)
        done = self.fleet.lab.execute(host, "bash", "-xc", row.by_hand)
        return f"{done.stdout}\n{done.stderr}"

    def site(self, *hosts: str) -> Any:
        return self.fleet.play("site", "--limit", ",".join(hosts))

    def counted_site(self, *hosts: str) -> tuple[Any, dict[str, dict[str, int]]]:
        """Run C(site), and return with it what it restarted on each host."""
        since = {host: restarts.now(self.fleet.lab, host) for host in hosts}
        ran = self.site(*hosts)
        return ran, {host: restarts.since(self.fleet.lab, host, moment) for host, moment in since.items()}

    def state(self, host: str) -> dict[str, str]:
        """Return the files of a host, its packages, and what its GPUs are."""
        found = host_files.read(self.fleet.lab, host)
        found["the packages"] = self.fleet.lab.sh(host, "dpkg-query -W; apt-mark showhold")
        found["the GPUs"] = self.fleet.lab.sh(host, "virtual-gpu show")
        return found

    def cut(self, host: str, row: drift.Row) -> str:
        """Start C(site) on a host, cut its power in the middle of the stage, and return what was written until then."""
        assert row.cut is not None
        self.fleet.lab.sh(host, row.cut.before)
        line, environment = self.fleet.command("site", "--limit", host)
        written = self.fleet.folder / f"cut-{host}.txt"
        with written.open("w") as output:
            run = subprocess.Popen(
                line, env=environment, cwd=self.fleet.folder, stdout=output, stderr=subprocess.STDOUT
            )
            try:
                end = time.monotonic() + _PATIENCE
                while self.fleet.lab.status(host, row.cut.seen) and run.poll() is None and time.monotonic() < end:
                    time.sleep(0.1)
                seen = run.poll() is None and time.monotonic() < end
                self.fleet.lab.run("power-cut", host)
            finally:
                run.kill()
                run.wait()
        return f"{_IN_ITS_MIDDLE if seen else 'it never came to its middle'}: {written.read_text(encoding='utf-8')}"


@pytest.fixture(scope="module")
def stories(request, converged_fleet) -> dict[str, Story]:
    """Do to the hosts what the rows that this run has chosen say, and return what happened, by row."""
    chosen = {
        item.callspec.params["row"].what
        for item in request.session.items
        if item.path == request.path and "row" in item.fixturenames
    }
    rows = sorted((row for row in drift.ROWS if row.what in chosen), key=lambda row: [*drift.POOLS].index(row.pool))
    names = HOSTS[: len(rows)]
    hosts = Hosts(converged_fleet("drift", *({"name": name, "group": "whole", "boards": _BOARDS} for name in names)))
    found: dict[str, Story] = {}
    for first in range(0, len(rows), len(names)):
        found |= _live_through(hosts, dict(zip(names, rows[first : first + len(names)])))
    return found


def _live_through(hosts: Hosts, rows: Mapping[str, drift.Row]) -> dict[str, Story]:
    """Do what the rows say, each to its host.

    :param rows: host to row.
    """
    for host, row in rows.items():
        restarts.keep(hosts.fleet.lab, host)
        hosts.prepare(host, row)
    hosts.describe({host: row.pool for host, row in rows.items()})
    stories = {host: Story(host) for host in rows}
    # What the rows before left of a host is their failure, and this one's.
    hosts.site(*rows)
    for host, asked in hosts.ask().items():
        stories[host].ready = asked["plan"]["host"]["verdict"] == verdicts.AS_DESCRIBED
    recorded = {host: hosts.facts(host) for host in rows} if os.environ.get("RECORD_DRIFT") else {}
    _by_hand(hosts, rows, stories)
    for host, asked in hosts.ask().items():
        stories[host].asked.append(asked)
    for host, before in recorded.items():
        drift.record(rows[host], before, hosts.facts(host))
    refused = [host for host, row in rows.items() if row.refused]
    if refused:
        with ThreadPoolExecutor() as pool:
            before = dict(zip(refused, pool.map(hosts.state, refused)))
            ran, restarted = hosts.counted_site(*refused)
            after = dict(zip(refused, pool.map(hosts.state, refused)))
        for host in refused:
            stories[host].site, stories[host].failed = ran.text, ran.rc != 0
            stories[host].restarted = restarted[host]
            stories[host].touched = [
                f"{path}: {text}" for path, text in host_files.differences(before[host], after[host]).items()
            ]
            hosts.fleet.lab.sh(host, rows[host].undo)
    failing = {host: row.fails for host, row in rows.items() if row.fails}
    begun = {host: restarts.now(hosts.fleet.lab, host) for host in failing}
    if failing:
        ran = hosts.site(*failing)
        for host, failure in failing.items():
            left = hosts.fleet.lab.sh(host, f"ls -A {failure.empty}") if failure.empty else ""
            stories[host].failing = ran.said_of(host), left
            hosts.fleet.lab.sh(host, failure.mended)
    ran, restarted = hosts.counted_site(*rows)
    # Both runs together restart no more than one would.
    restarted |= {host: restarts.since(hosts.fleet.lab, host, moment) for host, moment in begun.items()}
    for host, row in rows.items():
        if not row.refused:
            stories[host].restarted = restarted[host]
            counted = ran.recap[host]
            stories[host].site, stories[host].failed = ran.text, bool(counted["failed"] or counted["unreachable"])
    again = hosts.site(*rows)
    for host, asked in hosts.ask().items():
        stories[host].again = again.quiet(host)
        stories[host].asked.append(asked)
    for host, row in rows.items():
        if not row.refused:
            hosts.fleet.lab.sh(host, row.undo)
        if row.pool == drift.K3S:
            rancher_host.remove(hosts.fleet.lab, host)
    return {rows[host].what: story for host, story in stories.items()}


def _by_hand(hosts: Hosts, rows: Mapping[str, drift.Row], stories: Mapping[str, Story]) -> None:
    cut = {host: row.cut.variables for host, row in rows.items() if row.cut}
    if cut:
        hosts.describe({host: row.pool for host, row in rows.items()}, cut)
    with ThreadPoolExecutor() as pool:
        for host, written in zip(rows, pool.map(hosts.by_hand, rows, rows.values())):
            stories[host].by_hand = written


@pytest.mark.parametrize(
    "row",
    [pytest.param(row, id=row.what, marks=() if row.default else pytest.mark.by_name) for row in drift.ROWS],
)
def test_it_is_named_and_mended_or_refused_and_nothing_is_touched(stories, row):
    story = stories[row.what]
    assert story.ready, "the host was not as described before"
    assert not row.cut or story.by_hand.startswith(_IN_ITS_MIDDLE), story.by_hand
    asked, end = story.asked
    plan, verified, diagnosed = (asked[name]["host"] for name in ("plan", "verify", "doctor"))
    said = [story.by_hand, *verdicts.said(plan, every=True)]
    stages = plan["stages"].values()
    assert {step["kind"] for stage in stages for step in stage["steps"]} == {kind.key for kind in row.steps}, said
    assert {refusal["thing"] for stage in stages for refusal in stage["refusals"]} == {row.refused} - {""}, said
    wanted = "impossible" if row.refused else "to change" if row.steps else verdicts.AS_DESCRIBED
    assert plan["verdict"] == wanted
    assert asked["plan"]["rc"] == 2 or wanted == verdicts.AS_DESCRIBED, asked["plan"]["text"]
    assert list(verdicts.differences(plan, verified, diagnosed)) == []
    assert verified["healthy"] or wanted != verdicts.AS_DESCRIBED, verified
    if row.refused:
        assert story.failed
        reasons = [refusal["reason"] for stage in stages for refusal in stage["refusals"]]
        assert [text for text in reasons if text not in " ".join(story.site.split())] == [], story.site
        assert (story.touched, story.restarted) == ([], {})
    else:
        if row.fails:
            said, left = story.failing
            assert [text for text in row.fails.says if text not in " ".join(said.split())] == [], said
            assert left == ""
        assert not story.failed, story.site
        assert story.restarted == row.restarted, story.site
    plan, verified, diagnosed = (end[name]["host"] for name in ("plan", "verify", "doctor"))
    assert plan["verdict"] == diagnosed["verdict"] == verdicts.AS_DESCRIBED, [*verdicts.said(plan, every=True)]
    assert verified["healthy"], verified
    assert story.again
