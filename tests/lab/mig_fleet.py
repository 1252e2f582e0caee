# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts whose role nvidia_mig is run, and what their hardware shows of it."""

from __future__ import annotations

import json
import subprocess
import time

import yaml

JOURNAL = "/var/lib/gpufleet/mig-journal.jsonl"


#: The role, and its answer as a file on the controller: the module's, or of what failed.
PLAYBOOK = """
- hosts: gpu_hosts
  gather_facts: false
  become: true
  tasks:
    - block:
        - ansible.builtin.import_role:
            name: gpufleet.nvidia.nvidia_mig
      rescue:
        - ansible.builtin.set_fact:
            refused: "{{ ansible_failed_result }}"
      always:
        - ansible.builtin.copy:
            content: "{{ refused | default(nvidia_mig_result) | to_json }}"
            dest: "{{ answer }}"
            mode: "0600"
          delegate_to: localhost
          become: false
          check_mode: false
          diff: false
          changed_when: false
    - ansible.builtin.fail:
        msg: "{{ refused.msg }}"
      when: refused is defined
"""


def layout(*, devices="all", **counts):
    """An entry of a layout: `layout(p3g_40gb=1)` is one 3g.40gb on all GPUs."""
    return {
        "devices": devices,
        "instances": {name[1:].replace("_", "."): count for name, count in counts.items()},
    }


class Running:
    """A run of the role that goes on while the test does something."""

    def __init__(self, fleet, host, number, variables, options):
        self.answer = fleet.folder / f"{host}-{number}.json"
        self.text = ""
        given = {"nvidia_mig_strategy": "mixed", **variables, "answer": str(self.answer)}
        line, environment = fleet.command(
            fleet.folder / "mig.yml", "--limit", host, "-e", json.dumps(given), "-v", *options
        )
        self.process = subprocess.Popen(
            line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=fleet.folder
        )

    def end(self):
        """The answer of the run; it may have failed."""
        self.text, _none = self.process.communicate(timeout=1200)
        assert self.answer.exists(), self.text
        found = json.loads(self.answer.read_text(encoding="utf-8"))
        assert bool(self.process.returncode) is bool(found.get("failed")), self.text
        return found


class Mig:
    """The role on the hosts of a lab."""

    def __init__(self, fleet):
        self.fleet = fleet
        self.lab = fleet.lab
        self.runs = 0
        (fleet.folder / "mig.yml").write_text(PLAYBOOK, encoding="utf-8")

    def start(self, host, desired, *options, **variables):
        self.runs += 1
        return Running(self.fleet, host, self.runs, {"nvidia_mig_layout": desired, **variables}, options)

    def run(self, host, desired, *options, **variables):
        """Run the role to its end; it must not fail."""
        found = self.start(host, desired, *options, **variables).end()
        assert not found.get("failed"), found["msg"]
        return found

    def refused(self, host, desired, **variables):
        """Run the role to its end; it must fail."""
        found = self.start(host, desired, **variables).end()
        assert found.get("failed"), found
        return found

    def settled(self, host, desired, **variables):
        """Run the role, see that a second run calls no module at all, and return the answer of the first."""
        found = self.run(host, desired, **variables)
        assert self.run(host, desired, **variables).get("skipped"), "the facts do not say that nothing is to do"
        return found

    def gpus(self, host):
        return json.loads(self.lab.sh(host, "virtual-gpu show"))["gpus"]

    def instances(self, host, index=0):
        """Profile, place and UUID of every instance of a GPU, in the order of their places."""
        return [
            (one["profile"], one["start"], one["compute_instances"][0]["uuid"])
            for one in sorted(self.gpus(host)[index]["gpu_instances"], key=lambda one: one["start"])
        ]

    def counts(self, host, index=0):
        found = {}
        for profile, _start, _uuid in self.instances(host, index):
            found[profile] = found.get(profile, 0) + 1
        return found

    def modes(self, host):
        return [gpu["mig"]["current"] for gpu in self.gpus(host)]

    def occupy(self, host, name, index=0, profile=None, start=None):
        """Start a process, put it on a GPU or on the instance of a profile at a place, and return its pid."""
        self.lab.sh(host, f"systemd-run --quiet --unit={name} sleep 3600")
        pid = int(self.lab.sh(host, f"systemctl show --value --property=MainPID {name}"))
        place = f"--gpu {index}"
        if profile is not None:
            one = next(
                one
                for one in self.gpus(host)[index]["gpu_instances"]
                if one["profile"] == profile and start in (None, one["start"])
            )
            place += f" --gi {one['id']} --ci {one['compute_instances'][0]['id']}"
        self.lab.sh(host, f"virtual-gpu run {place} --pid {pid} --memory 100")
        return pid

    def leave(self, host, name):
        self.lab.sh(host, f"systemctl stop {name}")

    def journal(self, host):
        """The head of the journal, the steps that were begun, and how the run ended: None when it was cut off."""
        lines = [json.loads(line) for line in self.lab.sh(host, f"cat {JOURNAL}").splitlines()]
        ends = [line["outcome"] for line in lines if "outcome" in line]
        return lines[0], [line["step"] for line in lines if "step" in line], ends[-1] if ends else None

    def hang(self, host, call, nth=1):
        """Let a call of NVML hang until C(clear), so that a run can be met in the middle of its change."""
        self.lab.sh(host, f"virtual-gpu fail {call} hang:3600 --nth {nth}")

    def clear(self, host):
        """No call fails or hangs any more."""
        self.lab.sh(host, "virtual-gpu fail --clear")

    def middle(self, host, step):
        """Wait until a run hangs in a step, and return the pid of who holds the lock."""
        wait(lambda: self.lab.status(host, f"tail -n 1 {JOURNAL} | grep -qF {step!r}") == 0)
        return int(self.lab.sh(host, "cat /run/gpufleet/lock"))

    def cdi(self, host):
        """The MIG devices that the CDI specification names by UUID, and those that the host has."""
        text = yaml.safe_load(self.lab.sh(host, "cat /var/run/cdi/nvidia.yaml"))
        named = {device["name"] for device in text["devices"] if device["name"].startswith("MIG-")}
        present = {uuid for index in range(len(self.gpus(host))) for *_place, uuid in self.instances(host, index)}
        return named, present


def wait(what, seconds=600.0):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.5)
