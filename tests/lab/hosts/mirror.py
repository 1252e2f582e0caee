# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which Debian mirror the hosts use: the machine's own, with its proxy, certificates and credentials.

The lab never names a mirror of its own unless the machine has none: Debian's public address is the default then.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .commands import environment
from .progress import LabError

SUITE = "bookworm"
COMPONENTS = "main contrib non-free non-free-firmware"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"

_CARRIED_OPTIONS = ("Acquire::http", "Acquire::https", "Acquire::Check-Valid-Until", "Acquire::Check-Date")
_HELPER = "/usr/lib/apt/apt-helper"


@dataclass(frozen=True)
class Source:
    """One line of apt sources: an address, a suite and its components."""

    uri: str
    suite: str

    def line(self) -> str:
        """In the one-line format, verified with Debian's archive key."""
        return f"deb [signed-by={KEYRING}] {self.uri} {self.suite} {COMPONENTS}"


@dataclass(frozen=True)
class Mirror:
    """What a host needs to reach the Debian archive as this machine does."""

    sources: tuple[Source, ...]
    apt_options: str


def machine_sources(root: Path = Path("/")) -> list[tuple[str, str]]:
    """Every (address, suite) that apt of this machine is configured with, in order."""
    directory = root / "etc/apt"
    found: list[tuple[str, str]] = []
    files = [directory / "sources.list", *sorted((directory / "sources.list.d").glob("*"))]
    for path in files:
        if not path.is_file():
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        if path.suffix == ".list":
            found.extend(_one_line_entries(text))
        elif path.suffix == ".sources":
            found.extend(_deb822_entries(text))
    return found


def _one_line_entries(text: str) -> Iterable[tuple[str, str]]:
    for line in text.splitlines():
        match = re.match(r"\s*deb\s+(?:\[[^\]]*\]\s+)?(\S+)\s+(\S+)", line)
        if match:
            yield match.group(1), match.group(2)


def _deb822_entries(text: str) -> Iterable[tuple[str, str]]:
    for stanza in re.split(r"\n\s*\n", text):
        fields: dict[str, str] = {}
        name = ""
        for line in stanza.splitlines():
            if line.startswith("#"):
                continue
            if line[:1].isspace() and name:
                fields[name] += " " + line.strip()
            elif ":" in line:
                name, _, value = line.partition(":")
                name = name.strip().lower()
                fields[name] = value.strip()
        if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes").lower() == "no":
            continue
        for uri in fields.get("uris", "").split():
            for suite in fields.get("suites", "").split():
                yield uri, suite


def choose_addresses(entries: Iterable[tuple[str, str]], codename: str) -> tuple[str | None, str | None]:
    """The addresses of the archive and of the security archive among C(entries) of a machine with C(codename).

    None stands for one that the machine does not name.

    Mirrors carry all releases side by side, so a machine of another Debian release names the right mirror too.
    """
    archive: str | None = None
    security: str | None = None
    for uri, suite in reversed(list(entries)):
        if suite in (codename, SUITE):
            archive = uri.rstrip("/")
        elif suite.endswith("-security") and suite.split("-")[0] in (codename, SUITE):
            security = uri.rstrip("/")
    return archive, security


def _machine_codename() -> str:
    text = Path("/etc/os-release").read_text(encoding="utf-8")
    fields = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    if fields.get("ID", "").strip('"') != "debian":
        return SUITE
    return fields.get("VERSION_CODENAME", SUITE).strip('"')


def find_mirror() -> Mirror:
    """The mirror of this machine, asked for its suites.

    :raises LabError: the machine names none, or it does not answer.
    """
    archive, security = choose_addresses(machine_sources(), _machine_codename())
    if archive is None:
        raise LabError(
            f"Failed to find a Debian archive: /etc/apt of this machine names none for {SUITE}. Add your mirror there, "
            f"such as a line 'deb <mirror> {SUITE} main' in /etc/apt/sources.list.d/debian.list."
        )
    if not _has_suite(archive, SUITE):
        raise LabError(
            f"Failed to reach the Debian archive at {_without_credentials(archive)}: it has no readable "
            f"dists/{SUITE}/InRelease. Check the network, or set a reachable mirror in /etc/apt of this machine."
        )
    wanted = [Source(archive, SUITE)]
    optional = [(archive, f"{SUITE}-updates"), (security, f"{SUITE}-security"), (archive, f"{SUITE}-backports")]
    wanted.extend(Source(uri, suite) for uri, suite in optional if uri and _has_suite(uri, suite))
    return Mirror(tuple(wanted), _apt_options())


def _has_suite(uri: str, suite: str) -> bool:
    """Ask through apt's own downloader, which knows the machine's proxy, certificates and credentials."""
    with tempfile.TemporaryDirectory(prefix="gpufleet-lab-") as directory:
        target = Path(directory) / "InRelease"
        done = subprocess.run(
            [_HELPER, "download-file", f"{uri}/dists/{suite}/InRelease", str(target)],
            capture_output=True,
            env=environment(),
            check=False,
        )
        return done.returncode == 0 and target.exists()


def _apt_options() -> str:
    dump = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, env=environment(), check=False)
    lines = [
        line for line in dump.stdout.splitlines() if line.startswith(_CARRIED_OPTIONS) and not line.endswith('"";')
    ]
    configured = {line.split(" ", 1)[0].lower() for line in lines}
    for scheme in ("http", "https"):
        proxy = os.environ.get(f"{scheme}_proxy")
        if proxy and f"acquire::{scheme}::proxy" not in configured:
            lines.append(f'Acquire::{scheme}::Proxy "{proxy}";')
    # Hosts do not need translated descriptions; without them an update is a few kilobytes.
    lines.append('Acquire::Languages "none";')
    return "".join(f"{line}\n" for line in lines)


def credentials() -> dict[str, str]:
    """The machine's files in /etc/apt/auth.conf.d and /etc/apt/auth.conf, by path; secrets, never printed."""
    candidates = [Path("/etc/apt/auth.conf"), *sorted(Path("/etc/apt/auth.conf.d").glob("*.conf"))]
    return {str(path): path.read_text(encoding="utf-8") for path in candidates if path.is_file()}


def _without_credentials(uri: str) -> str:
    return re.sub(r"//[^/@]*@", "//", uri)
