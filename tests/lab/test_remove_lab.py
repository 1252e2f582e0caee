# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The way out: hosts after site and remove, file by file as they were before site.

One host gives everything back, driver and toolkit included; one keeps both, and had a MIG layout of its own before. The tests run in order:
each begins with what the one before left.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host.leftovers import RemovedWith
from ansible_collections.gpufleet.nvidia.tests.lab import host_files
from ansible_collections.gpufleet.nvidia.tests.traces import trace_of

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="the lab needs root: run this as root"),
]

#: Gives all back; MPS at first, so that both kinds of daemons and layouts are taken off.
BARE = "remove-bare"
#: Keeps driver and toolkit.
KEEPS = "remove-keeps"
SHARED = {
    "nvidia_sharing_mode": "mps",
    "nvidia_sharing_memory_slice": "4GiB",
    "nvidia_sharing_mps_manager": "host",
    "gpu_remove_toolkit": True,
    "gpu_remove_driver": True,
}
TRAINING = {
    "nvidia_mig_strategy": "mixed",
    "nvidia_mig_layout": [{"devices": "all", "instances": {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}}],
    "nvidia_health_metrics": True,
    "nvidia_health_metrics_directory": "/srv/metrics",
}
POOLS = {"shared": {"hosts": [BARE], "vars": SHARED}, "training": {"hosts": [KEEPS], "vars": TRAINING}}
#: What was on the first GPU of C(KEEPS) before site.
BY_HAND = {"layout": [{"devices": [0], "instances": {"3g.40gb": 2}}], "strategy": "mixed", "record": False}
#: The package of the persistence daemon makes an account for it, and leaves it, as Debian's packages do.
ACCOUNTS = re.compile(r"/etc/(?:passwd|group|shadow|gshadow)-?")


class Before:
    """What the hosts were before site."""

    def __init__(self, fleet):
        self.files = {host: host_files.read(fleet.lab, host) for host in (BARE, KEEPS)}
        self.packages = {host: packages(fleet, host) for host in (BARE, KEEPS)}
        self.accounts = accounts(fleet)
        self.layout = layout(fleet)


def packages(fleet, host):
    return set(fleet.lab.sh(host, "dpkg-query -W -f '${Package} ${db:Status-Abbrev}\\n'").splitlines())


def accounts(fleet):
    return set(fleet.lab.sh(BARE, "cat /etc/passwd /etc/group").splitlines())


def layout(fleet):
    gpus = json.loads(fleet.lab.sh(KEEPS, "virtual-gpu show"))["gpus"]
    return [(gpu["mig"]["current"], sorted(one["profile"] for one in gpu["gpu_instances"])) for gpu in gpus]


def shown_by_containerd(fleet, host):
    return fleet.lab.sh(host, "containerd config dump")


@pytest.fixture(scope="module")
def fleet(make_fleet):
    made = make_fleet(
        "faults-remove",
        {"name": BARE, "group": "shared", "boards": [{"board": "l40s", "count": 2}]},
        {
            "name": KEEPS,
            "group": "training",
            "boards": [{"board": "h100-80gb-sxm", "count": 2}],
            "driver": "installed",
        },
    )
    made.describe(POOLS)
    return made


@pytest.fixture(scope="module")
def before(fleet):
    assert fleet.module(KEEPS, "mig", BY_HAND)["changed"]
    # Partitioned by hand: the host knows nothing of the collection.
    fleet.lab.sh(KEEPS, "rm -r /var/lib/gpufleet")
    fleet.lab.sh(KEEPS, "mkdir /srv/metrics")
    fleet.lab.sh(BARE, "sed -i '1i # of the site' /etc/containerd/config.toml")
    found = Before(fleet)
    assert found.layout == [(True, ["3g.40gb", "3g.40gb"]), (False, [])]
    run = fleet.play("site")
    assert run.rc == 0, run.text
    return found


def test_everything_that_site_puts_on_a_host_is_in_the_table(fleet, before):
    own = {}
    for host in (BARE, KEEPS):
        of_packages = set(fleet.lab.sh(host, "cat /var/lib/dpkg/info/*.list").splitlines())
        # Folders that are there for a file of the table, and what the packages' scripts make.
        made = re.compile(
            r"/etc/systemd/system/multi-user\.target\.wants/nvidia-(?:persistenced|cdi-refresh)\.\w+|/var/lib/dkms/.*"
            r"|/usr/lib/modules/[^/]+/updates.*|/etc/nvidia-container-runtime"
        )
        for path in host_files.differences(before.files[host], host_files.read(fleet.lab, host)):
            usr_merged = path[len("/usr") :] if path.startswith("/usr/lib") else path
            if not {path, usr_merged} & of_packages and not made.fullmatch(path) and not ACCOUNTS.fullmatch(path):
                own[path] = trace_of(path)
    assert len(own) > 12 and "/etc/systemd/system/gpufleet-metrics.timer" in own
    assert [path for path, trace in own.items() if trace is None] == []


def touched(fleet, before, host):
    """Return what is different on a host, but for the file that a timer writes every minute."""
    found = host_files.differences(before[host], host_files.read(fleet.lab, host))
    return {path: text for path, text in found.items() if path != "/srv/metrics/gpufleet.prom"}


@pytest.mark.usefixtures("before")
def test_check_mode_shows_the_plan_and_touches_nothing(fleet):
    now = {host: host_files.read(fleet.lab, host) for host in (BARE, KEEPS)}
    run = fleet.play("remove", "--check")
    assert run.rc == 0, run.text
    text = re.sub(r"\s+", " ", run.text)
    for line in (
        "stop MPS daemon node",
        "remove /etc/gpufleet/sharing.json",
        "change /etc/containerd/config.toml",
        "remove driver 580.178.04",
        "remove repository nvidia-container-toolkit",
        "destroy GPU instance GPU 1",
        "release nvidia-container-toolkit",
        "remove /var/lib/gpufleet and what is in it",
        "Take remove-bare, remove-keeps out of the inventory.",
    ):
        assert line in text, line
    for host in (BARE, KEEPS):
        assert touched(fleet, now, host) == {}
    assert layout(fleet) == [(True, ["1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"])] * 2
    assert fleet.facts(BARE)["mps"][0]["responds"]


@pytest.mark.usefixtures("before")
def test_a_gpu_in_use_on_one_host_is_refused_and_no_host_is_touched(fleet):
    fleet.lab.sh(KEEPS, "systemd-run --quiet --unit=job sleep 3600")
    pid = fleet.lab.sh(KEEPS, "systemctl show --value --property=MainPID job").strip()
    instance = json.loads(fleet.lab.sh(KEEPS, "virtual-gpu show"))["gpus"][1]["gpu_instances"][0]
    fleet.lab.sh(KEEPS, f"virtual-gpu run --gpu 1 --gi {instance['id']} --ci 0 --pid {pid} --memory 100")
    now = {host: host_files.read(fleet.lab, host) for host in (BARE, KEEPS)}
    try:
        run = fleet.play("remove")
    finally:
        fleet.lab.sh(KEEPS, f"virtual-gpu end --pid {pid} || true; systemctl stop job")
    assert run.rc != 0
    text = re.sub(r"\s+", " ", run.text)
    assert f"{KEEPS}: GPU 1 (0000:2a:00.0): it is in use by " in text and f"(PID {pid})" in text, run.text
    assert "nvidia_mig_disruption: force" in text and "Nothing is removed from any host." in text
    assert not any(counters["changed"] for counters in run.recap.values()), run.text
    for host in (BARE, KEEPS):
        assert touched(fleet, now, host) == {}
    assert fleet.facts(BARE)["mps"][0]["responds"]


@pytest.mark.usefixtures("before")
def test_a_run_that_is_killed_is_finished_by_the_next(fleet):
    line, environment = fleet.command("remove")
    player = subprocess.Popen(
        line,
        env=environment,
        cwd=fleet.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        assert player.stdout is not None
        real = False
        for said in player.stdout:
            real = real or "PLAY [Remove what the collection put on the hosts]" in said
            if real and "Remove the container toolkit" in said:
                break
        time.sleep(1.5)
    finally:
        os.killpg(player.pid, signal.SIGKILL)
        player.wait()
    assert real
    run = fleet.play("remove")
    assert run.rc == 0, run.text
    again = fleet.play("remove")
    assert again.rc == 0, again.text
    assert again.quiet(BARE) and again.quiet(KEEPS), again.text


def test_the_host_that_gives_all_back_is_file_by_file_as_it_was(fleet, before):
    found = host_files.differences(before.files[BARE], host_files.read(fleet.lab, BARE))
    assert {path: text for path, text in found.items() if not ACCOUNTS.fullmatch(path)} == {}
    assert {line.split(":")[0] for line in accounts(fleet) ^ before.accounts} == {"nvpd"}
    assert packages(fleet, BARE) == before.packages[BARE]
    assert fleet.lab.sh(BARE, "apt-mark showhold").split() == []
    # What is not compared file by file, because it is not on the disk or among logs.
    assert fleet.lab.status(BARE, "test -e /var/log/nvidia-mps || test -e /var/run/cdi/nvidia.yaml") == 1
    driver = fleet.facts(BARE)["driver"]
    assert (driver["loaded_version"], driver["on_disk_version"], driver["packages"]) == (None, None, {})
    assert "nvidia" not in shown_by_containerd(fleet, BARE)
    assert fleet.lab.sh(BARE, "systemctl list-units --all --plain --no-legend 'gpufleet*' '*nvidia*'").strip() == ""
    assert fleet.lab.sh(BARE, "systemctl is-active containerd").strip() == "active"


def test_the_host_that_keeps_driver_and_toolkit_has_its_layout_and_nothing_of_ours(fleet, before):
    assert layout(fleet) == before.layout
    assert "nvidia-container-runtime" not in shown_by_containerd(fleet, KEEPS)
    found = host_files.differences(before.files[KEEPS], host_files.read(fleet.lab, KEEPS))
    toolkits_own = "/etc/nvidia-container-runtime"
    traces = {path: trace_of(path) for path in found if not path.startswith(toolkits_own)}
    stayed = (RemovedWith.WITH_TOOLKIT, RemovedWith.WITH_DRIVER)
    assert {path: found[path] for path, trace in traces.items() if trace and trace.goes not in stayed} == {}
    for name in ("/etc/gpufleet", "/var/lib/gpufleet", "/usr/local/lib/gpufleet"):
        assert not any(path.startswith(name) for path in found)
    assert "accept-nvidia-visible-devices-envvar-when-unprivileged = false" not in fleet.lab.sh(
        KEEPS, "cat /etc/nvidia-container-runtime/config.toml"
    )
    assert fleet.lab.sh(KEEPS, "apt-mark showhold").split() == []
    facts = fleet.facts(KEEPS)
    assert facts["toolkit"]["version"] == "1.20.2" and facts["driver"]["loaded_version"]
    assert not any(facts["recorded"].values())


@pytest.mark.by_name
@pytest.mark.usefixtures("before")
def test_site_brings_all_back_once_more(fleet):
    run = fleet.play("site")
    assert run.rc == 0, run.text
    assert fleet.facts(BARE)["mps"][0]["responds"]
    assert layout(fleet) == [(True, ["1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"])] * 2
