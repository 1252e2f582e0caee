# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import datetime
import http.server
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from typing import ClassVar

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils import cluster_lease, lease_renewal
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.cluster_lease import Holder, may_take, release, take
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.upgrade import is_half_way

NOW = datetime.datetime(2026, 11, 21, 7, 0, tzinfo=datetime.timezone.utc)
SPACE = cluster_lease._space()
ME = Holder("root@here", f"1-2-{SPACE}")


def lease(holder, seconds_ago=10, duration=60):
    renewed = (NOW - datetime.timedelta(seconds=seconds_ago)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {"spec": {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": duration}}


@pytest.mark.parametrize(
    ("present", "force", "allowed"),
    [
        (None, False, True),
        ({"spec": {}}, False, True),
        (lease(f"root@here/1-2-{SPACE}"), False, True),
        (lease("root@there/9-9"), False, False),
        (lease("root@there/9-9"), True, True),
        (lease("root@there/9-9", seconds_ago=61), False, True),
        (lease(f"root@here/999999999-1-{SPACE}"), False, True),
        # Alive in another container, or of an earlier release: nobody knows.
        (lease("root@here/999999999-1-000000000000"), False, False),
        (lease("root@here/999999999-1"), False, False),
        ({"spec": {"holderIdentity": "root@there/1-1"}}, False, True),
        # Of the future, and for ever.
        (lease("root@there/9-9", seconds_ago=-86400), False, True),
        (lease("root@there/9-9", seconds_ago=90000, duration=2**31 - 1), False, True),
    ],
)
def test_who_may_take_it(present, force, allowed):
    assert (may_take(present, ME, NOW, force) is None) == allowed


def test_a_run_on_this_machine_that_is_alive_keeps_it():
    process = f"{os.getpid()}-{cluster_lease._start_of(os.getpid())}-{SPACE}"
    refusal = may_take(lease(f"root@here/{process}"), ME, NOW, False)
    assert refusal.startswith(f"root@here/{process} has held the fleet lock")


def test_this_run_is_a_process_that_is_alive():
    found = cluster_lease.this_run()
    assert not cluster_lease.is_gone(str(found), found)


def _ask_after_the_end(path):
    while os.getppid() == multiprocessing.parent_process().pid:
        time.sleep(0.01)
    try:
        said = str(cluster_lease.this_run())
    except Failure as error:
        said = str(error)
    path.with_suffix(".new").write_text(said)
    path.with_suffix(".new").rename(path)


def _run_that_is_killed(path):
    multiprocessing.get_context("fork").Process(target=_ask_after_the_end, args=(path,)).start()
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_outlives_its_run_does_not_take_the_lease_as_somebody_elses_child(tmp_path):
    run = multiprocessing.get_context("fork").Process(target=_run_that_is_killed, args=(tmp_path / "said",))
    run.start()
    run.join()
    until = time.monotonic() + 30
    while not (tmp_path / "said").exists():
        assert time.monotonic() < until
        time.sleep(0.05)
    assert "has ended" in (tmp_path / "said").read_text()


class FakeCluster:
    """A lease store that checks versions as the API server does, and changes under the caller's feet if asked."""

    def __init__(self, conflicts=0):
        self.stored, self.version, self.conflicts, self.now = None, 0, conflicts, NOW

    def clock(self, _namespace):
        return self.now

    def lease(self, _namespace, _name):
        return (
            None if self.stored is None else {"metadata": {"resourceVersion": str(self.version)}, "spec": self.stored}
        )

    def write_lease(self, _namespace, _name, spec, version):
        if self.conflicts:
            self.conflicts -= 1
            return False
        assert version == (str(self.version) if self.stored is not None else None)
        self.stored, self.version = dict(spec), self.version + 1
        return True


def test_taking_renewing_and_giving_back():
    cluster = FakeCluster(conflicts=1)
    take(cluster, "default", ME, 60, False)
    first = cluster.stored["acquireTime"]
    take(cluster, "default", ME, 60, False)
    assert cluster.stored["acquireTime"] == first
    with pytest.raises(Failure, match="gpu_node_lease_take_over=true"):
        take(cluster, "default", Holder("other@there", "5-5"), 60, False)
    release(cluster, "default", Holder("other@there", "5-5"))
    assert cluster.stored["holderIdentity"] == str(ME)
    release(cluster, "default", ME)
    take(cluster, "default", Holder("other@there", "5-5"), 60, False)


def test_the_api_servers_clock_says_when_a_lease_ends_whatever_the_machines_think():
    cluster = FakeCluster()
    take(cluster, "default", Holder("other@there", "5-5"), 60, False)
    assert cluster.stored["renewTime"].startswith("2026-11-21T07:00:00")
    cluster.now = NOW + datetime.timedelta(seconds=59)
    with pytest.raises(Failure, match="Only one rollout"):
        take(cluster, "default", ME, 60, False)
    cluster.now = NOW + datetime.timedelta(seconds=61)
    take(cluster, "default", ME, 60, False)
    assert cluster.stored["holderIdentity"] == str(ME)


def test_a_lease_that_changes_all_the_time_is_given_up():
    with pytest.raises(Failure, match="keep changing it"):
        take(FakeCluster(conflicts=99), "default", ME, 60, False)


def other_run(process):
    found = cluster_lease.this_run()
    return Holder(found.where, f"{process.pid}-{cluster_lease._start_of(process.pid)}-{SPACE}")


@pytest.fixture
def run():
    """A process that lives for as long as a test wants, as a run of ansible-playbook."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process


def test_a_lease_is_renewed_while_its_run_lives_and_no_longer(run):
    cluster, holder = FakeCluster(), other_run(run)
    take(cluster, "default", holder, 0, False)

    class Ends(FakeCluster):
        """The run ends after some renewals."""

        def write_lease(self, *arguments):
            written = cluster.write_lease(*arguments)
            if cluster.version == 4:
                run.kill()
                run.wait()
            return written

        def lease(self, *arguments):
            return cluster.lease(*arguments)

    lease_renewal.renew(Ends(), "default", holder, 0, 0.01)
    assert cluster.version == 4
    assert cluster.stored["holderIdentity"] == str(holder), "who died is to be seen"


def test_a_lease_that_is_anothers_by_now_is_left_to_it(run):
    cluster, holder = FakeCluster(), other_run(run)
    take(cluster, "default", Holder("other@there", "5-5"), 60, False)
    before = dict(cluster.stored)
    lease_renewal.renew(cluster, "default", holder, 0, 0.01)
    assert cluster.stored == before


def kubeconfig_of(folder, name, server="https://127.0.0.1:1"):
    path = folder / name
    document = {
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
        "users": [{"name": "u", "user": {}}],
    }
    path.write_text(json.dumps(document))
    return path


def processes(kubeconfig):
    found = subprocess.run(["pgrep", "-f", str(kubeconfig)], capture_output=True, text=True, check=False)
    return found.stdout.split()


def wait_until(said):
    until = time.monotonic() + 90
    while not said() and time.monotonic() < until:
        time.sleep(0.2)
    assert said()


def test_a_run_starts_one_process_for_each_of_its_leases_that_ends_with_it(run, tmp_path):
    """The program itself: without a cluster that answers it waits for the run's end."""
    first, second = (kubeconfig_of(tmp_path, name) for name in ("first", "second"))
    for kubeconfig in (first, second) * 3:
        lease_renewal.start(str(kubeconfig), "", "default", other_run(run), 3600, str(tmp_path))
    wait_until(lambda: [len(processes(one)) for one in (first, second)] == [1, 1])
    run.kill()
    run.wait()
    wait_until(lambda: not processes(first) and not processes(second))


class Api(http.server.BaseHTTPRequestHandler):
    """A Lease that somebody has, and what becomes of it."""

    written: ClassVar[list] = []
    holder = ""
    annotations: ClassVar[dict] = {}

    def _answer(self, document):
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path.startswith("/api/v1/nodes"):
            # The cache of this server is behind what the run wrote last.
            notes = {} if "resourceVersion=0" in self.path else self.annotations
            self._answer({"items": [{"metadata": {"name": "a", "annotations": notes}}]})
            return
        self._answer({"metadata": {"resourceVersion": "7"}, "spec": {"holderIdentity": self.holder}})

    def do_PUT(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.written.append(body["spec"].get("holderIdentity"))
        self._answer(body)

    def log_message(self, *_arguments):
        pass


@pytest.mark.parametrize(
    ("in_order", "annotations", "released"),
    [
        (True, {}, True),
        (False, {}, False),
        # Interrupted (Ctrl-C): Ansible removes its folder, and tasks on hosts go on.
        (True, {"upgrade-state": "installing"}, False),
        # A node that another run was killed on.
        (True, {"upgrade-state": "installing", "upgrade-operator": "me@gone/1-1-0"}, True),
    ],
)
def test_a_run_that_ends_with_no_node_half_way_gives_its_lease_back_whatever_it_did_not_come_to(
    run, tmp_path, in_order, annotations, released
):
    """As where every host of a cluster was lost; a killed one has left its folder, and maybe a worker at a host."""
    Api.holder = str(other_run(run))
    Api.written.clear()
    recorded = {"upgrade-operator": Api.holder, **annotations}
    Api.annotations = {f"gpufleet.github.io/{name}": value for name, value in recorded.items()}
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Api) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        kubeconfig = kubeconfig_of(tmp_path, "kubeconfig", f"http://127.0.0.1:{server.server_port}")
        folder = tmp_path / "local"
        folder.mkdir()
        lease_renewal.start(str(kubeconfig), "", "default", other_run(run), 3600, str(folder))
        time.sleep(3)
        if in_order:
            shutil.rmtree(folder)
        run.kill()
        run.wait()
        wait_until(lambda: not processes(kubeconfig))
        server.shutdown()
    assert Api.written == ([None] if released else [])


@pytest.mark.parametrize(
    ("annotations", "half_way"),
    [
        ({"upgrade-state": "verifying"}, True),
        ({"upgrade-state": "rolling-back", "upgrade-wave": "x"}, True),
        ({"upgrade-state": "done", "heal-state": "repairing"}, True),
        ({"repartition-state": "started"}, True),
        ({"upgrade-state": "installing", "upgrade-operator": "me@gone/1-1-0"}, False),
        ({"upgrade-state": "done", "heal-state": "repairing", "heal-operator": "me@gone/1-1-0"}, False),
        ({"upgrade-state": "failed", "heal-state": "handed-over", "repartition-state": "refused"}, False),
        ({}, False),
    ],
)
def test_a_node_is_half_way_while_its_record_names_a_step_of_this_run(annotations, half_way):
    ours = {f"{work}-operator": "me@here/2-2-0" for work in ("upgrade", "heal", "repartition")}
    notes = {f"gpufleet.github.io/{name}": value for name, value in {**ours, **annotations}.items()}
    assert is_half_way({"metadata": {"name": "a", "annotations": notes}}, "me@here/2-2-0") is half_way
