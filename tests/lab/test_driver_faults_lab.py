# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Faults while the driver's packages change: a server that dies, a locked package database, a full disk, kill -9.

After each the next run completes, and the host is as if nothing had happened: one driver version, all of it held, one pin,
a whole package database, and the way back to the driver before. One host; every test brings what it needs.
"""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from concurrent.futures import Future, ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

pytestmark = pytest.mark.lab

HOST = "driver-faults"
OLD, NEW = "580.178.04", "595.91.07"
#: Seconds for one run of the module: builds and package scripts of a machine that does many things at once.
PATIENCE = 1800

#: Waits for a process whose command line matches, and kills those that match the other pattern, parents first, and the
#: module where that is wanted: it has no name of its own, but holds the lock. The patterns are in a file: in its own command
#: line, or that of whoever starts it, they would match themselves.
KILLER = """
import json, os, re, signal, sys, time
with open("/run/killer.json") as handle:
    order = json.load(handle)
seen, killed = re.compile(order["seen"]), re.compile(order["killed"] or "(?!)")
def processes():
    for name in sorted(filter(str.isdigit, os.listdir("/proc")), key=int):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as handle:
                yield int(name), handle.read().replace(b"\\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue
deadline = time.monotonic() + 900
while not any(seen.search(line) for _pid, line in processes()):
    if time.monotonic() > deadline:
        sys.exit("no process was seen that matches")
    time.sleep(0.02)
with open("/run/gpufleet/lock") as handle:
    module = int(handle.read()) if order["module"] else 0
for pid, line in list(processes()):
    if pid == module or killed.search(line):
        print("the module" if pid == module else line)
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
"""


class DyingServer:
    """The lab's package repository on another loopback port, which can stop in the middle of a package.

    :param origin: the lab's own server, with the same files.
    """

    def __init__(self, origin: str) -> None:
        self.dies = False
        #: Paths that were asked for and cut off.
        self.cut: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                with urllib.request.urlopen(f"{origin}{self.path}") as answer:
                    content = answer.read()
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                if outer.dies and self.path.endswith(".deb"):
                    outer.cut.append(self.path)
                    self.wfile.write(content[: len(content) // 2])
                    self.close_connection = True
                    return
                self.wfile.write(content)

            def log_message(self, *_words: Any) -> None:
                """Say nothing."""

            def handle(self) -> None:
                try:
                    super().handle()
                except OSError:
                    # apt hung up: that is its right.
                    return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


class Host:
    """The lab host and the module driver on it."""

    def __init__(self, fleet: Any) -> None:
        self.fleet = fleet
        self.repository = {
            "url": fleet.variables["nvidia_driver_repository_url"],
            "key_file": fleet.variables["nvidia_driver_repository_key_file"],
            "key_fingerprint": fleet.variables["nvidia_driver_repository_key_fingerprint"],
        }

    def sh(self, script: str) -> str:
        return str(self.fleet.lab.sh(HOST, script))

    def driver(self, **arguments: Any) -> dict[str, Any]:
        repository = {**self.repository, **arguments.pop("repository", {})}
        return dict(self.fleet.module(HOST, "driver", {"repository": repository, **arguments}, timeout=PATIENCE))

    def kill(self, seen: str, killed: str, *, module: bool) -> str:
        """Wait until a process runs whose command line matches C(seen), and kill those that match C(killed).

        :param module: whether the module is killed too.
        :returns: what was killed, a line each.
        """
        self.fleet.lab.write(HOST, "/run/killer.py", KILLER)
        self.fleet.lab.write(HOST, "/run/killer.json", json.dumps({"seen": seen, "killed": killed, "module": module}))
        return self.sh("python3 /run/killer.py")

    def bring(self, **arguments: Any) -> dict[str, Any]:
        answer = self.driver(**arguments)
        assert "reboot_required" in answer, answer.get("msg", answer)
        return answer

    def driver_packages(self) -> dict[str, str]:
        """The installed packages with a version of the driver."""
        shown = self.sh("dpkg-query -W -f '${db:Status-Status} ${Package} ${Version}\\n'")
        words = [line.split() for line in shown.splitlines() if line.startswith("installed ")]
        return {name: version for _, name, version in words if version.startswith(("580.", "595."))}

    def prove(self, version: str) -> None:
        """Nothing is half installed and nothing half pinned."""
        packages = self.driver_packages()
        assert packages
        assert set(packages.values()) == {f"{version}-1"}
        assert self.sh("dpkg --audit") == ""
        held = set(self.sh("apt-mark showhold").split())
        assert {name for name in packages if "pinning" not in name} <= held
        moved = self.sh("apt-get -s dist-upgrade").splitlines()
        assert [line for line in moved if line.startswith(("Inst ", "Remv ")) and "nvidia" in line] == []
        loaded = self.sh("cat /sys/module/nvidia/version; modinfo -F version nvidia; nvidia-smi -L | wc -l").split()
        assert loaded == [version, version, "1"]
        assert not self.driver(version=version)["changed"]


@pytest.fixture(scope="module")
def host(make_fleet):
    return Host(make_fleet("driver-faults", {"name": HOST, "group": "g", "boards": [{"board": "l40s", "count": 1}]}))


@pytest.fixture
def at_old(host):
    """The host with the older driver, sound and held."""
    if host.driver_packages().get("libcuda1") != f"{OLD}-1":
        host.bring(version=OLD)
    return host


@pytest.fixture
def server(host):
    made = DyingServer(host.fleet.variables["lab_repository_url"])
    yield made
    made.close()


def meanwhile(host: Host, **arguments: Any) -> Future[dict[str, Any]]:
    """Start a run of the module and return before it ends."""
    return ThreadPoolExecutor(1).submit(host.driver, **arguments)


@pytest.mark.by_name
@pytest.mark.proves("driver", "nvidia", rows=["debian-12"], note="faults")
def test_a_server_that_dies_in_the_middle_of_a_package(at_old, server):
    host = at_old
    path = host.repository["url"].partition("/repository/")[2]
    repository = {"url": f"{server.url}/{path}"}
    host.bring(version=OLD, repository=repository)
    host.sh("apt-get clean")
    server.dies = True
    failed = host.driver(version=NEW, repository=repository)
    assert server.cut, "no package was fetched at all"
    assert "Failed to fetch" in failed["msg"]
    # What was there is whole, and nothing may move it until somebody runs this again.
    assert set(host.driver_packages().values()) == {f"{OLD}-1"}
    moved = host.sh("apt-get -s dist-upgrade").splitlines()
    assert [line for line in moved if line.startswith("Inst ") and "nvidia" in line] == []
    server.dies = False
    host.bring(version=NEW, repository=repository)
    host.bring(version=NEW)
    host.prove(NEW)
    host.bring(state="previous")
    host.prove(OLD)


def test_a_locked_package_database_is_waited_for(at_old):
    host = at_old
    lock = (
        "import fcntl, time; handle = open('/var/lib/dpkg/lock-frontend', 'w'); "
        "fcntl.lockf(handle, fcntl.LOCK_EX); open('/run/locked', 'w').close(); time.sleep(3600)"
    )
    host.sh(
        f'rm -f /run/locked; systemd-run --unit=locker python3 -c "{lock}"; until test -e /run/locked; do sleep 0.1; done'
    )
    try:
        run = meanwhile(host, version=NEW)
        host.sh("for round in $(seq 3000); do pgrep -x apt-get > /dev/null && exit; sleep 0.2; done; exit 1")
        # apt waits now, and goes on waiting.
        time.sleep(5)
        assert not run.done()
        assert host.driver_packages()["libcuda1"] == f"{OLD}-1"
    finally:
        host.sh("systemctl stop locker")
    assert "reboot_required" in run.result(timeout=PATIENCE)
    host.prove(NEW)


@pytest.mark.proves("driver", "nvidia", rows=["debian-12"], note="faults")
def test_a_full_disk_is_refused_before_anything_is_touched(at_old):
    host = at_old
    before = host.driver_packages()
    host.sh("mkdir -p /boot && mount -t tmpfs -o size=8m tmpfs /boot")
    try:
        refused = host.driver(version=NEW)
    finally:
        host.sh("umount /boot")
    assert "8 MiB are free" in refused["msg"]
    assert host.driver_packages() == before
    host.prove(OLD)


@pytest.fixture
def small_disk(at_old):
    """The host with what DKMS keeps on a file system of its own, full to the last block."""
    host = at_old
    host.sh(
        "rm -rf /root/dkms && cp -a /var/lib/dkms /root/dkms && mount -t tmpfs -o size=8m tmpfs /var/lib/dkms && "
        "cp -a /root/dkms/. /var/lib/dkms/ && ! cat /dev/zero > /var/lib/dkms/filler 2> /dev/null"
    )
    yield host
    host.sh(
        "rm -rf /root/dkms /var/lib/dkms/filler && cp -a /var/lib/dkms /root/dkms && umount /var/lib/dkms && "
        "find /var/lib/dkms -mindepth 1 -delete && cp -a /root/dkms/. /var/lib/dkms/"
    )


@pytest.mark.by_name
@pytest.mark.proves("driver", "nvidia", rows=["debian-12"], note="faults")
def test_a_disk_that_fills_up_in_the_middle(small_disk):
    host = small_disk
    # /var has room, as the check before the start sees; the file system of the builds has not.
    failed = host.driver(version=NEW)
    assert "reboot_required" not in failed, failed
    host.sh("rm /var/lib/dkms/filler")
    host.bring(version=NEW)
    host.prove(NEW)


@pytest.mark.proves("driver", "nvidia", rows=["debian-12"], note="faults")
@pytest.mark.parametrize(
    ("seen", "killed", "module"),
    [
        pytest.param("dpkg .*--unpack", "apt-get|dpkg", False, marks=pytest.mark.by_name),
        pytest.param("dkms (build|install)", "apt-get|dpkg|dkms", False, marks=pytest.mark.by_name),
        pytest.param("dpkg .*--configure|dkms build", "apt-get|dpkg|dkms", True, marks=pytest.mark.by_name),
    ],
    ids=["apt-while-it-unpacks", "apt-while-dkms-builds", "the-module-and-all-it-started"],
)
def test_kill_in_the_middle_of_a_transaction(at_old, seen, killed, module):
    host = at_old
    run = meanwhile(host, version=NEW)
    gone = host.kill(seen, killed, module=module)
    assert "apt-get" in gone
    assert ("the module" in gone) is module
    failed = run.result(timeout=PATIENCE)
    assert "reboot_required" not in failed, failed
    host.bring(version=NEW)
    host.prove(NEW)
    host.bring(state="previous")
    assert set(host.driver_packages().values()) == {f"{OLD}-1"}


@pytest.mark.by_name
@pytest.mark.proves("driver", "nvidia", rows=["debian-12"], note="faults")
def test_the_module_alone_is_killed_and_apt_goes_on(at_old):
    host = at_old
    run = meanwhile(host, version=NEW)
    assert host.kill("dpkg .*--unpack", "", module=True) == "the module\n"
    again = host.driver(version=NEW)
    assert "reboot_required" in again, again.get("msg", again)
    # The first call has no answer: its module is gone.
    run.exception(timeout=PATIENCE)
    host.prove(NEW)
