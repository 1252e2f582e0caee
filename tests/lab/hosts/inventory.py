# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The inventory of a lab: how to reach the hosts and where packages are, not what the hosts should be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .paths import LabPaths
from .spec import HostSpec

#: What containerd 1.6 of Debian, on most hosts, leaves no choice of: it cannot inject CDI devices.
_OF_1_6 = "nvidia_toolkit_device_injection: volume_mounts"


def inventory_text(
    paths: LabPaths, hosts: Sequence[HostSpec], ports: Mapping[str, int], variables: Mapping[str, str]
) -> str:
    """The inventory as YAML: every host in its pool, the pools below gpu_hosts.

    :param variables: where the lab's package repository is; a site's inventory refers to them.
    """
    newer = any(host.node == "containerd-2.4" for host in hosts)

    def entry(host: HostSpec) -> str:
        own = f", {_OF_1_6}" if newer and host.node != "containerd-2.4" else ""
        return f"{host.name}: {{ansible_port: {ports[host.name]}{own}}}"

    lines = [
        "# Written by the lab: how to reach the hosts and where packages are. What the pools should be comes from",
        "# the inventory that is used beside it.",
        "all:",
        "  vars:",
        "    ansible_host: 127.0.0.1",
        "    ansible_user: root",
        "    ansible_python_interpreter: /usr/bin/python3",
        f"    ansible_ssh_private_key_file: {paths.key}",
        "    ansible_ssh_common_args: >-",
        f"      -o UserKnownHostsFile={paths.known_hosts} -o StrictHostKeyChecking=yes -o IdentitiesOnly=yes",
        *(f"    {name}: {value}" for name, value in variables.items()),
        *([f"    {_OF_1_6}"] if not newer else []),
        "  children:",
        "    gpu_hosts:",
    ]
    direct = [host for host in hosts if host.group == "gpu_hosts"]
    if direct:
        lines.append("      hosts:")
        lines.extend(f"        {entry(host)}" for host in direct)
    groups = sorted({host.group for host in hosts if host.group != "gpu_hosts"})
    if groups:
        lines.append("      children:")
    for group in groups:
        lines.extend((f"        {group}:", "          hosts:"))
        lines.extend(f"            {entry(host)}" for host in hosts if host.group == group)
    return "\n".join(lines) + "\n"


def ssh_config_text(paths: LabPaths, ports: Mapping[str, int]) -> str:
    """The configuration with which C(ssh -F) reaches the hosts by name."""
    blocks = [
        f"Host {name}\n  HostName 127.0.0.1\n  Port {port}\n  User root\n  IdentityFile {paths.key}\n"
        f"  IdentitiesOnly yes\n  UserKnownHostsFile {paths.known_hosts}\n  StrictHostKeyChecking yes\n"
        for name, port in ports.items()
    ]
    return "\n".join(blocks)
