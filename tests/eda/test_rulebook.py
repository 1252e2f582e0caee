# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An alert becomes a repair: a real Alertmanager with the configuration of docs/heal.md, the real ansible-rulebook, and the real playbook.

The hosts cannot be reached, so that the playbook ends with saying so: which hosts it was started for is what is tested here.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render import addons

pytestmark = pytest.mark.eda

REPOSITORY = Path(__file__).resolve().parents[2]
PROGRAMS = REPOSITORY / ".venv-eda" / "bin"
COLLECTIONS = REPOSITORY / "build" / "collections"
TOKEN = "word-of-the-test"
HOSTS = ("gpu-1", "gpu-2", "gpu-3")
UNREACHABLE = {"ansible_host": "127.0.0.1", "ansible_port": 1}
BY_NAME = {alert.name: alert for alert in addons.ALERTS}


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def documented():
    """The configuration of Alertmanager that docs/heal.md gives."""
    text = (REPOSITORY / "docs" / "heal.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```yaml\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    (found,) = (yaml.safe_load(block) for block in blocks if "receivers:" in block)
    return found


class Pair:
    """Alertmanager and ansible-rulebook.

    :ivar log: of ansible-rulebook, with what the playbook printed.
    """

    def __init__(self, folder: Path, token: str | None = TOKEN, rulebook: str = "heal") -> None:
        self.token, self.folder, self.log, self.rulebook = token, folder, folder / "rulebook.log", rulebook
        self.webhook, self.api, self.processes = free_port(), free_port(), []

    def start(self) -> None:
        self.start_rulebook()
        (self.folder / "token").write_text(TOKEN)
        configuration = documented()
        (hook,) = configuration["receivers"][-1]["webhook_configs"]
        hook["url"] = hook["url"].replace(":5001/", f":{self.webhook}/")
        hook["http_config"]["authorization"]["credentials_file"] = str(self.folder / "token")
        for route in configuration["route"]["routes"]:
            route["group_wait"] = "2s"
        (self.folder / "alertmanager.yml").write_text(yaml.safe_dump(configuration))
        program = subprocess.run(
            [REPOSITORY / "tests/eda/alertmanager.sh"], check=True, stdout=subprocess.PIPE, text=True
        ).stdout.strip()
        self._run(
            [program, "--config.file=alertmanager.yml", f"--storage.path={self.folder}/data", "--cluster.listen-address=",
             f"--web.listen-address=127.0.0.1:{self.api}"], "alertmanager.log"
        )  # fmt: skip
        self.wait(lambda: answers(f"http://127.0.0.1:{self.api}/-/ready"))

    def start_rulebook(self) -> None:
        inventory = {"gpu_hosts": {"hosts": dict.fromkeys(HOSTS, UNREACHABLE), "vars": {"gpu_node_kubernetes": False}}}
        (self.folder / "inventory.yml").write_text(yaml.safe_dump(inventory))
        (self.folder / "rulebook.yml").write_text(yaml.safe_dump({"gpufleet_webhook_port": self.webhook}))
        self._run(
            [str(PROGRAMS / "ansible-rulebook"), "--rulebook", f"gpufleet.nvidia.{self.rulebook}", "--inventory", "inventory.yml",
             "--vars", "rulebook.yml", *(["--env-vars", "GPUFLEET_WEBHOOK_TOKEN"] if self.token else []), "--verbose"], self.log.name
        )  # fmt: skip
        self.wait(lambda: answers(f"http://127.0.0.1:{self.webhook}/") == 401)

    def _run(self, line, log) -> None:
        environment = {
            **os.environ,
            "PATH": f"{PROGRAMS}:{os.environ['PATH']}",
            "ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS),
            "ANSIBLE_LOCALHOST_WARNING": "false",
            "ANSIBLE_LOG_PATH": str(self.folder / "ansible.log"),
            **({"GPUFLEET_WEBHOOK_TOKEN": self.token} if self.token else {}),
        }
        with open(self.folder / log, "w") as output:
            self.processes.append(
                subprocess.Popen(line, cwd=self.folder, env=environment, stdout=output, stderr=subprocess.STDOUT)
            )

    def wait(self, for_it, seconds=120):
        until = time.monotonic() + seconds
        while not (found := for_it()):
            ended = [process.args[0] for process in self.processes if process.poll() is not None]
            assert not ended and time.monotonic() < until, (ended, self.log.read_text()[-4000:])
            time.sleep(0.3)
        return found

    def stop(self) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def fire(self, name, instance, **labels) -> None:
        """Send an alert to Alertmanager as Prometheus does: the labels of the series, and those of the rule with their templates filled."""
        rule = addons.rule(BY_NAME[name])
        # What Prometheus' template does with the instance; promtool fires the real one in tests/charts.
        host = instance.partition(":")[0]
        own = {key: host if key == "host" else value for key, value in rule["labels"].items()}
        body = [
            {"labels": {"alertname": name, "instance": instance, **labels, **own}, "annotations": rule["annotations"]}
        ]
        assert answers(f"http://127.0.0.1:{self.api}/api/v2/alerts", body) == 200

    def shown(self):
        """What the playbook printed, from Ansible's own log: ansible-rulebook prints the output of a run that failed twice."""
        log = self.folder / "ansible.log"
        return re.sub(r"(?m)^.*?\| ", "", log.read_text()) if log.exists() else ""

    def repaired(self):
        """The hosts of every run of the playbook so far, in order."""
        # The line of the host itself is printed after the heading.
        runs = re.split(r"^PLAY RECAP .*$", self.shown(), flags=re.MULTILINE)[1:]
        return [sorted(set(re.findall(r"^(\S+)\s+: ok=", run, flags=re.MULTILINE))) for run in runs]


def answers(url, body=None, headers=None):
    """The status of the answer, or None where nobody answers."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **(headers or {})})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    made = Pair(tmp_path_factory.mktemp("eda"))
    try:
        made.start()
        yield made
    finally:
        made.stop()


def told(host, status="firing", repair="heal"):
    """A notification of Alertmanager, as far as the rulebook looks at it."""
    return {"status": status, "commonLabels": {"host": host, "repair": repair}, "alerts": []}


def test_an_alert_starts_the_repair_of_its_host_and_of_no_other(pair):
    pair.fire("GpufleetRecoveryNeeded", "gpu-2:9100", gpu="0", uuid="GPU-0", action="gpu_reset")
    pair.wait(lambda: any(pair.repaired()))
    assert pair.repaired() == [["gpu-2"]]
    assert "gpu-2: the host: it could not be read" in " ".join(pair.shown().split())


def test_alerts_of_one_host_together_start_one_repair(pair):
    before = len(pair.repaired())
    pair.fire("GpufleetGpuLost", "gpu-1:9100", seen_by="nvml")
    pair.fire("GpufleetXid", "gpu-1:9100", pci_address="0000:18:00", xid="79", action="restart_bm")
    # Nothing can be repaired there by a program.
    pair.fire("GpufleetRemapPending", "gpu-1:9100", gpu="0", uuid="GPU-0")
    pair.wait(lambda: any(pair.repaired()[before:]))
    time.sleep(8)
    assert pair.repaired()[before:] == [["gpu-1"]]


def test_who_has_no_token_and_what_is_no_single_host_starts_nothing(pair):
    before = pair.repaired()
    url, bearer = f"http://127.0.0.1:{pair.webhook}/alerts", {"Authorization": f"Bearer {TOKEN}"}
    assert answers(url, told("gpu-3")) == 401
    assert answers(url, told("gpu-3"), {"Authorization": "Bearer another"}) == 401
    bad = ["all", "ungrouped", "gpu-*", "gpu-1,gpu-3", "!gpu-1", "@/etc/passwd", "~gpu", "gpu-1 gpu-3", "gpu-[1:3]", ""]
    for host in bad:
        assert answers(url, told(host), bearer) == 200
    assert answers(url, told("gpu-3", status="resolved"), bearer) == 200
    assert answers(url, told("gpu-3", repair=""), bearer) == 200
    # Once within ten minutes, however often Alertmanager repeats it.
    assert answers(url, told("gpu-1"), bearer) == 200
    time.sleep(10)
    assert pair.repaired() == before
    # The rulebook was not busy with something else.
    assert answers(url, told("gpu-3"), bearer) == 200
    pair.wait(lambda: any(pair.repaired()[len(before) :]))
    assert pair.repaired()[-1] == ["gpu-3"]


def test_the_name_of_a_group_is_no_host(pair):
    url, bearer = f"http://127.0.0.1:{pair.webhook}/alerts", {"Authorization": f"Bearer {TOKEN}"}
    before = len(pair.shown())
    assert answers(url, told("gpu_hosts"), bearer) == 200
    pair.wait(lambda: "PLAY RECAP" in pair.shown()[before:])
    shown = " ".join(pair.shown()[before:].split())
    assert "gpu_hosts: gpu_heal_host is to be the only host of this run" in shown
    assert "TASK [Read the host]" not in shown


def test_without_a_token_nobody_is_let_in(tmp_path):
    bare = Pair(tmp_path, token=None)
    try:
        bare.start_rulebook()
        for token in ("", "None", "{{ GPUFLEET_WEBHOOK_TOKEN }}"):
            # It compares with a variable that there is not, which some tokens end with an error of the server.
            bearer = {"Authorization": f"Bearer {token}"}
            assert answers(f"http://127.0.0.1:{bare.webhook}/alerts", told("gpu-1"), bearer) in (401, 500)
        assert "Read all hosts" not in bare.shown()
    finally:
        bare.stop()


def test_pods_that_wait_start_one_recommendation(tmp_path):
    one = Pair(tmp_path, rulebook="recommend")
    try:
        one.start_rulebook()
        url, bearer = f"http://127.0.0.1:{one.webhook}/alerts", {"Authorization": f"Bearer {TOKEN}"}
        others = [told("gpu-1"), told("", status="resolved", repair="recommend")]
        # However often Alertmanager repeats it.
        for notification in [*others, told("", repair="recommend"), told("", repair="recommend")]:
            assert answers(url, notification, bearer) == 200
        one.wait(lambda: any(one.repaired()))
        time.sleep(8)
        assert len(one.repaired()) == 1 and "TASK [Find and show the layouts]" in one.shown()
    finally:
        one.stop()
