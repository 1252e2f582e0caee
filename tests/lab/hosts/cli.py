# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The command line of the lab."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from nodes.charts import Charts
from nodes.programs import KUBERNETES, OLDEST_KUBERNETES
from nodes.publication import Publication

from .lab import Lab, all_labs, purge
from .progress import LabError, Progress
from .spec import DEMO, DEMO_NODES, as_nodes, read_spec


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="lab", description="A lab of virtual GPU hosts on this machine.")
    actions = parser.add_subparsers(dest="action", required=True)

    def add(name: str, text: str, *, host: bool = False) -> argparse.ArgumentParser:
        action = actions.add_parser(name, help=text, description=text)
        action.add_argument("--name", default="demo", help="the name of the lab (default: demo)")
        if host:
            action.add_argument("host", help="a host of the lab")
        return action

    up = add("up", "Bring a lab up; a second time it switches on what is off.")
    up.add_argument("--spec", type=Path, help="a file that lists the hosts (default: the three hosts of the demo)")
    up.add_argument("--nodes", action="store_true", help="make the hosts nodes of a Kubernetes cluster")
    up.add_argument(
        "--kubernetes",
        default=KUBERNETES,
        choices=(KUBERNETES, OLDEST_KUBERNETES),
        help="the version of the cluster (default: %(default)s)",
    )
    down = add("down", "Remove every process, mount and directory of the lab; the cache stays.")
    down.add_argument("--purge", action="store_true", help="remove the cache too")
    add("status", "Say what the hosts of all labs are doing.")
    inventory = add("inventory", "Print the path of the lab's inventory.")
    inventory.add_argument("--show", action="store_true", help="print the inventory itself")
    execute = add("exec", "Run a program in a host, without ssh.", host=True)
    execute.add_argument("command", nargs=argparse.REMAINDER, help="-- program and its arguments")
    add("kubeconfig", "Print the path of the cluster's kubeconfig, where the hosts are nodes.")
    kubectl = add("kubectl", "Run kubectl as the cluster's administrator.")
    kubectl.add_argument("command", nargs=argparse.REMAINDER, help="-- kubectl's arguments")
    charts = add("charts", "Install a rendered tree into the cluster, with the projects' own charts.")
    charts.add_argument("tree", type=Path, help="the cluster's directory in the rendered tree")
    charts.add_argument("--set", action="append", default=[], help="KEY=VALUE of the device plugin's chart")
    add("argocd", "Start Argo CD beside the cluster and print the URL of the git repository that it syncs.")
    publish = add("publish", "Commit a rendered tree, push it and let Argo CD sync the cluster's directory of it.")
    publish.add_argument("tree", type=Path, help="the output directory of render, with clusters/ in it")
    publish.add_argument("--message", default="Render the clusters", help="of the commit")
    add("reboot", "Reboot a host in order and wait until it is back.", host=True)
    add("power-cut", "End every process of a host at once, boot it and wait until it is back.", host=True)
    add("stop", "Shut a host down in order; it stays off.", host=True)
    add("start", "Switch a host on and wait until it is there.", host=True)
    repository = add("repository", "Switch the lab's package repository on or off.")
    repository.add_argument("switch", choices=("on", "off"))
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status is 1 with one sentence per reason when it cannot be done."""
    options = _parser().parse_args(arguments)
    progress = Progress()
    try:
        return _run(options, Lab(options.name, progress), progress)
    except LabError as error:
        sys.stdout.flush()
        sys.stderr.write(f"{error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted. Run the same command again, or 'lab down' to remove what is there.\n")
        return 130


def _run(options: argparse.Namespace, lab: Lab, progress: Progress) -> int:
    action = options.action
    if action == "up":
        if options.nodes:
            specs = as_nodes(read_spec(options.spec)) if options.spec else DEMO_NODES
        else:
            specs = read_spec(options.spec) if options.spec else DEMO
        lab.up(specs, options.kubernetes)
    elif action == "down":
        if not lab.down() and not options.purge:
            progress.say(f"there is no lab '{lab.name}'")
        if options.purge:
            purge(progress)
    elif action == "status":
        _status(progress)
    elif action == "inventory":
        if options.show:
            lab.hosts()
        # The path alone can be asked for before the lab is up.
        print(lab.paths.inventory.read_text(encoding="utf-8") if options.show else lab.paths.inventory)
    elif action in ("kubeconfig", "kubectl", "charts", "argocd", "publish"):
        return _in_cluster(options, lab, progress)
    elif action == "repository":
        lab.repository(options.switch == "on")
        progress.say(f"the package repository of '{lab.name}' is {options.switch}")
    else:
        return _on_host(options, lab, progress)
    return 0


def _in_cluster(options: argparse.Namespace, lab: Lab, progress: Progress) -> int:
    cluster = lab.cluster()
    if cluster is None:
        raise LabError(
            f"Failed to find the cluster of the lab '{lab.name}': no host of it is a node. Bring it up with 'lab up --nodes'."
        )
    if options.action == "kubeconfig":
        print(cluster.plane.kubeconfig)
    elif options.action == "charts":
        Charts(cluster.plane, options.tree, progress).install(options.set)
    elif options.action == "argocd":
        cluster.argocd.up()
        print(cluster.argocd.git_url)
    elif options.action == "publish":
        Publication(cluster.argocd, cluster.plane, progress).publish(options.tree, options.message)
    else:
        words = options.command[1:] if options.command[:1] == ["--"] else options.command
        return subprocess.run(
            [cluster.plane.folder / "kubectl", f"--kubeconfig={cluster.plane.kubeconfig}", *words]
        ).returncode
    return 0


def _on_host(options: argparse.Namespace, lab: Lab, progress: Progress) -> int:
    action = options.action
    host = lab.host(options.host)
    if action == "exec":
        command = options.command[1:] if options.command[:1] == ["--"] else options.command
        if not command:
            raise LabError(
                f"Failed to run a program in {host.name}: none was named. Write: lab exec {host.name} -- <program>."
            )
        return host.execute(command).returncode
    if action == "stop":
        host.power_off()
        host.wait_until_off()
        progress.say(f"{host.name}: off")
        return 0
    previous = host.leader()
    if action == "start":
        host.start()
        previous = None
    elif action == "reboot":
        host.execute(["systemctl", "reboot"], capture=True)
    else:
        host.power_cut()
    seconds = host.wait_until_running(previous)
    progress.say(f"{host.name}: {host.state()} ({seconds:.1f} s)")
    return 0


def _status(progress: Progress) -> None:
    labs = all_labs(progress)
    if not labs:
        print("no lab is up")
    for lab in labs:
        server = "on" if lab.repository_server() else "off"
        print(f"{lab.name}: package repository {server}, inventory {lab.paths.inventory}")
        for host in lab.hosts():
            hardware = ", ".join(f"{boards.count} x {boards.board}" for boards in host.spec.boards) or "no GPU"
            print(f"  {host.name:24} {host.state() or 'off':10} 127.0.0.1:{host.port}  {hardware}")
