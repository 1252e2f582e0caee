# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Replace what names a host, a board or a place in the network, the same by the same, and leave everything else as it is."""

from __future__ import annotations

import contextlib
import getpass
import ipaddress
import os
import platform
import re
import socket
from pathlib import Path
from typing import Callable, Iterable

_HEX = "[0-9a-fA-F]"
_UUID = re.compile(
    rf"(?<!{_HEX}){_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}(?!{_HEX})|(?<![\w]){_HEX}{{32}}(?![\w])"
)
#: As nvidia-cuda-mps-control prints them in a column: cut off behind the third or fourth group.
_CUT_UUID = re.compile(rf"(?<=GPU-|MIG-){_HEX}{{8}}(?:-{_HEX}{{4}}){{1,3}}(?![\w-])")
MADE_UUID = "00000000-0000-4000-8000-"
_MADE_SERIAL = re.compile(rf"SERIAL\d+|(?:0x)?90{{4,}}{_HEX}+")
_LONG = re.compile(rf"(?<!\w){_HEX}{{64}}(?!\w)")
_MAC = re.compile(rf"(?<![\w:]){_HEX}{{2}}(?::{_HEX}{{2}}){{5}}(?![\w:])")
_IPV4 = re.compile(
    r"(?<![\w.-])(?:(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)\.){3}(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(?![\w-]|\.\d)"
)
_IPV6 = re.compile(rf"(?<![\w:.]){_HEX}{{0,4}}(?::{_HEX}{{0,4}}){{2,7}}(?![\w:.])")
_HOME = re.compile(r"/home/[^/\s\"':]+")
#: Where tools and NVML write what is of one board alone: the value is then replaced wherever it stands.
_SERIAL = (
    re.compile(
        r"(?:Serial Number|Chassis Serial Number|GPU PDI|GPU Fabric GUID|Board Serial|Rack Serial\w*|Host ID GUID|IB GUID)\s*:\s*(\S+)"
    ),
    re.compile(
        r"<(?:serial|gpu_pdi|pdi|gpu_fabric_guid|chassis_serial_number|rack_serial_number|board_serial)>\s*([^<\s]+)\s*<"
    ),
    re.compile(r'"call": "nvmlDeviceGet(?:Serial|Pdi)"[^\n]*"value": "?(\w+)"?'),
    re.compile(r'"(?:ibGuid|rackGuid|chassisSerialNumber|serial)": (?:\{"hex": )?"(\w+)"'),
)
#: Names of hosts that name none, and that stand in other words' places.
_COMMON = {
    "localhost",
    "localhost.localdomain",
    "gpu",
    "host",
    "node",
    "cuda",
    "nvidia",
    "linux",
    "ubuntu",
    "debian",
    "root",
    "main",
    "none",
    "container",
}


class Replacements:
    """What stands for what, kept over all texts of one report."""

    def __init__(self, hosts: Iterable[str] | None = None) -> None:
        """Replace the names in C(hosts); without them, those of this host."""
        self._known: dict[str, dict[str, str]] = {}
        self._serials: set[str] = set()
        own = {name for name in (_own_names() if hosts is None else hosts) if name}
        self._hosts = {name for name in own if len(name) > 3 and name.lower() not in _COMMON}
        #: They are words, too: replaced where they are a whole value.
        self._words = own - self._hosts

    def learn(self, text: str) -> None:
        """Take up the serial numbers in C(text); they are replaced in every text afterwards."""
        for pattern in _SERIAL:
            for value in pattern.findall(text):
                # 0 and [N/A] are said of boards that have none.
                if len(value) >= 6 and value.strip("0x") and not _MADE_SERIAL.fullmatch(value):
                    self._serials.add(value)
                    if value.isdigit():
                        self._serials.add(hex(int(value)))
                    elif re.fullmatch(r"0x[0-9a-fA-F]+", value):
                        self._serials.add(str(int(value, 16)))

    def clean(self, text: str) -> str:
        for value in sorted(self._serials, key=len, reverse=True):
            text = re.sub(
                rf"(?<!\w){re.escape(value)}(?!\w)", self._as("serial", value.lower(), self._like(value)), text
            )
        text = _LONG.sub(lambda found: self._as("id", found[0].lower(), lambda n: f"{n:064x}"), text)
        text = _UUID.sub(self._uuid, text)
        text = _CUT_UUID.sub(lambda found: MADE_UUID[: len(found[0])], text)
        text = _MAC.sub(
            lambda found: (
                found[0]
                if set(found[0]) <= set("0:") or found[0].startswith("02:00:00:00:00:")
                else self._as("mac", found[0].lower(), lambda n: f"02:00:00:00:00:{n % 256:02x}")
            ),
            text,
        )
        text = _IPV6.sub(self._ipv6, text)
        text = _IPV4.sub(self._ipv4, text)
        for name in sorted(self._hosts, key=len, reverse=True):
            text = re.sub(
                rf"(?<![\w-]){re.escape(name)}(?![\w-])", self._as("host", name.lower(), lambda n: f"host-{n}"), text
            )
        for name in self._words:
            text = re.sub(
                rf'(?<=["])({re.escape(name)})(?=\\?["])', self._as("host", name.lower(), lambda n: f"host-{n}"), text
            )
        return _HOME.sub("/home/user", text)

    @staticmethod
    def _like(value: str) -> Callable[[int], str]:
        """A number stays a number: it may stand in JSON without quotes."""
        if value.isdigit():
            return lambda n: str(9 * 10 ** (len(value) - 1) + n)
        if value.lower().startswith("0x"):
            return lambda n: f"0x{9 * 16 ** (len(value) - 3) + n:x}"
        return lambda n: f"SERIAL{n:06d}"

    @property
    def counts(self) -> dict[str, int]:
        return {kind: len(known) for kind, known in sorted(self._known.items())}

    def _as(self, kind: str, value: str, make: Callable[[int], str]) -> str:
        known = self._known.setdefault(kind, {})
        if value not in known:
            known[value] = make(len(known) + 1)
        return known[value]

    def _uuid(self, found: re.Match[str]) -> str:
        digits = found[0].replace("-", "").lower()
        made_here = digits.startswith(MADE_UUID.replace("-", ""))
        if made_here or not digits.strip("0") or not digits.strip("f"):
            return found[0]
        made = self._as("uuid", digits, lambda n: f"{MADE_UUID}{n:012x}")
        return made if "-" in found[0] else made.replace("-", "")

    def _ipv4(self, found: re.Match[str]) -> str:
        address = ipaddress.ip_address(found[0])
        if address.is_loopback or address.is_unspecified or found[0].startswith(("255.", "192.0.2.")):
            return found[0]
        return self._as("address", found[0], lambda n: f"192.0.2.{n % 256}")

    def _ipv6(self, found: re.Match[str]) -> str:
        try:
            address = ipaddress.IPv6Address(found[0])
        except ValueError:
            return found[0]
        if address.is_loopback or address.is_unspecified or str(address).startswith("2001:db8::"):
            return found[0]
        return self._as("address6", str(address), lambda n: f"2001:db8::{n:x}")


def _own_names() -> set[str]:
    names = {platform.node(), socket.gethostname(), os.environ.get("HOSTNAME", "")}
    with contextlib.suppress(OSError, UnicodeDecodeError):
        names.add(Path("/etc/hostname").read_text(encoding="utf-8").strip())
    if os.geteuid() >= 1000:
        with contextlib.suppress(KeyError, OSError):
            names.add(getpass.getuser())
    return {part for name in names if name for part in (name, name.split(".")[0])}
