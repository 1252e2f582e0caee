# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the playbooks cost the controller with many hosts that are as described, beside C(ansible -m ping) on the same hosts in the same run.

The hosts answer at once (C(canned/canned.py)) what the demo's three lab hosts said in this run, so that all that is measured is the
controller. C(make bench-fleet) does it with 10,000 hosts: C(bench_fleet.py HOSTS [PLAYBOOK...]).
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import yaml
from demo_lab import FLEET, OUTPUT, Cost, demo_lab, nothing_changed, timed

HOSTS = 200
#: The pools of the demo, with the host of each.
POOLS = {"training": "gpu-training-1", "batch": "gpu-batch-1", "shared": "gpu-shared-1"}
PLAYBOOKS = ("site", "plan", "verify", "inspect", "render")
#: Five for each of two cores: hosts that answer at once leave nothing to wait for, and each fork holds its own copy of what a run grows to.
FORKS = 10
CANNED = {
    "ANSIBLE_FORKS": str(FORKS),
    "ANSIBLE_CONNECTION_PLUGINS": str(Path(__file__).resolve().parent / "canned"),
    "ANSIBLE_PIPELINING": "true",
}
#: Hosts of the comparison of slices, and the slices: two controllers, each of which knows the whole inventory.
_SLICED = 12
_SLICES = ("gpu_hosts[0:4]", "gpu_hosts[5:11]")


def run() -> dict[str, object]:
    """Compare processor seconds with 200 hosts."""
    costs = measure(HOSTS)
    _slices_make_one_tree(OUTPUT / "fleet")
    ping = costs["ping"].processor_seconds
    found: dict[str, object] = {
        f"{name}.controller_cpu_ratio_to_ping_{HOSTS}_hosts": costs[name].processor_seconds / ping
        for name in PLAYBOOKS
        if name != "render"
    }
    # Of the playbook without: what it costs to write the plan, and to hold a run to it.
    for name, without in (("plan_saved", "plan"), ("site_held", "site")):
        ratio = costs[name].processor_seconds / costs[without].processor_seconds
        found[f"{name}.cpu_ratio_to_{without}_{HOSTS}_hosts"] = ratio
    memory = {f"{name}.memory_mib_{HOSTS}_hosts": cost.memory_mib for name, cost in costs.items()}
    return {**found, **memory, f"site.ping_cpu_seconds_{HOSTS}_hosts": ping}


def measure(
    hosts: int,
    tell: Callable[[str, Cost, Cost], None] = lambda _name, _cost, _ping: None,
    playbooks: Sequence[str] = PLAYBOOKS,
) -> dict[str, Cost]:
    """Return what C(ping) and each playbook cost with so many hosts.

    :param tell: is called with each of them as soon as it is known, and with what C(ping) cost.
    """
    inventory = _inventory(hosts)
    directory = f"gpu_kubernetes_output_directory={OUTPUT / 'fleet-gitops'}"

    def cost(program: str, *arguments: str) -> Cost:
        return timed(program, "-i", str(inventory), *arguments, with_memory=True, **CANNED)

    def play(name: str, *arguments: str) -> Cost:
        return cost("ansible-playbook", "-e", directory, *arguments, f"gpufleet.nvidia.{name}")

    # The tree and the facts that are recorded in it are written once, before anything is compared.
    first = play("site")
    ping = cost("ansible", "gpu_hosts", "-m", "ansible.builtin.ping")
    costs = {"ping": ping}
    tell("ping", ping, ping)
    tell("first site", first, ping)
    plan = OUTPUT / "fleet" / "plan.json"
    with_plan = {"plan": ("plan_saved", f"gpu_plan_out={plan}"), "site": ("site_held", f"gpu_plan_apply={plan}")}
    for name in playbooks:
        costs[name] = play(name)
        nothing_changed(costs[name].output)
        tell(name, costs[name], ping)
    for name, (title, option) in with_plan.items():
        if with_plan.keys() <= set(playbooks):
            costs[title] = play(name, "-e", option)
            nothing_changed(costs[title].output)
            tell(title, costs[title], ping)
    return costs


def _inventory(hosts: int) -> Path:
    """Write an inventory of hosts in the demo's pools, each of which answers what the pool's lab host said."""
    folder = OUTPUT / "fleet"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(FLEET / "group_vars", folder / "inventory" / "group_vars")
    with demo_lab("bench") as path:
        lab = ["-i", str(FLEET), "-i", str(path)]
        timed(
            "ansible-playbook",
            *lab,
            "-e",
            f"gpu_kubernetes_output_directory={OUTPUT / 'gitops'}",
            "gpufleet.nvidia.site",
        )
        asked = ["-b", "-m", "gpufleet.nvidia.gpu_info", "-a", json.dumps({"gather": ["errors", "health", "holders"]})]
        for pool, host in POOLS.items():
            said = timed(
                "ansible", *lab, host, *asked, ANSIBLE_LOAD_CALLBACK_PLUGINS="true", ANSIBLE_STDOUT_CALLBACK="json"
            )
            (task,) = json.loads(said.output)["plays"][0]["tasks"]
            (folder / f"{pool}.json").write_text(json.dumps(task["hosts"][host]["gpu"]), encoding="utf-8")
        described = yaml.safe_load(path.read_text(encoding="utf-8"))["all"]["vars"]
    kept = {name: value for name, value in described.items() if name.startswith("nvidia_")}
    _write_inventory(folder, folder / "inventory", hosts, kept)
    return folder / "inventory"


def _write_inventory(folder: Path, inventory: Path, hosts: int, variables: dict[str, object]) -> None:
    pools = {}
    for number, pool in enumerate(POOLS):
        count = hosts // len(POOLS) + (number < hosts % len(POOLS))
        pools[pool] = {
            "hosts": {f"{pool}-{index:05}": None for index in range(count)},
            "vars": {"bench_canned_facts": str(folder / f"{pool}.json")},
        }
    connection = {"ansible_connection": "canned", "ansible_python_interpreter": "/usr/bin/python3"}
    document = {"gpu_hosts": {"children": pools, "vars": {**variables, **connection}}}
    (inventory / "inventory.yml").write_text(yaml.safe_dump(document), encoding="utf-8")


def _slices_make_one_tree(folder: Path) -> None:
    """Hold the tree that one run over all hosts writes against the one of several controllers, each with a slice of them.

    :param folder: with the inventory of L(_inventory), and what its hosts answer.
    :raises RuntimeError: the trees, or the facts of hosts that are recorded in them, differ.
    """
    inventory = folder / "sliced"
    shutil.rmtree(inventory, ignore_errors=True)
    shutil.copytree(folder / "inventory", inventory)
    described = yaml.safe_load((inventory / "inventory.yml").read_text(encoding="utf-8"))["gpu_hosts"]["vars"]
    _write_inventory(folder, inventory, _SLICED, described)
    trees = {}
    for name, limits in (("whole", ("gpu_hosts",)), ("slices", _SLICES)):
        tree = folder / f"tree-{name}"
        shutil.rmtree(tree, ignore_errors=True)
        for limit in limits:
            option = f"gpu_kubernetes_output_directory={tree}"
            timed(
                "ansible-playbook",
                "-i",
                str(inventory),
                "-e",
                option,
                "gpufleet.nvidia.site",
                "--limit",
                limit,
                **CANNED,
            )
        trees[name] = {
            str(path.relative_to(tree)): path.read_bytes() for path in sorted(tree.rglob("*")) if path.is_file()
        }
    names = {name for tree in trees.values() for name in tree}
    differing = sorted(name for name in names if trees["whole"].get(name) != trees["slices"].get(name))
    if differing or not names:
        raise RuntimeError(f"slices wrote another tree than one run: {', '.join(differing) or 'there is none'}")


def main(hosts: int, playbooks: Sequence[str]) -> None:
    print(f"{hosts} hosts, {FORKS} forks; seconds are for 1,000 hosts, memory is for all of them:")
    print(f"{'':10} {'SECONDS':>8} {'CPU SECONDS':>12} {'BESIDE PING':>12} {'MIB':>8} {'MIB PER 1,000':>14}")
    measure(hosts, lambda name, cost, ping: print(_row(name, cost, ping, hosts / 1000), flush=True), playbooks)


def _row(name: str, cost: Cost, ping: Cost, share: float) -> str:
    return (
        f"{name:10} {cost.seconds / share:8.1f} {cost.processor_seconds / share:12.1f} "
        f"{cost.processor_seconds / ping.processor_seconds:12.2f} {cost.memory_mib:8.0f} {cost.memory_mib / share:14.0f}"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:] or PLAYBOOKS)
