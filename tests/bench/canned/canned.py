# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A connection to a host that answers at once, so that what is measured is the controller."""

from __future__ import annotations

import json
import os
from pathlib import Path

from ansible.errors import AnsibleError
from ansible.plugins.connection import ConnectionBase

DOCUMENTATION = """
name: canned
short_description: Answers at once what a real host once said
description:
  - M(ansible.builtin.ping) is answered as every host does, M(gpufleet.nvidia.gpu_info) with the facts in the file that O(facts) names.
  - Any other module is an error, since a host without work is asked nothing else; but the files that O(empty_files) is about.
extends_documentation_fragment: [connection_pipelining]
options:
  facts:
    description: File with the facts of the host as JSON.
    type: path
    vars:
      - name: bench_canned_facts
  empty_files:
    description: Whether the files that M(ansible.builtin.slurp) asks for have an empty object.
    type: bool
    default: false
    vars:
      - name: bench_canned_empty_files
"""


class Connection(ConnectionBase):
    transport = "canned"
    has_pipelining = True

    def _connect(self) -> Connection:
        self._connected = True
        return self

    def exec_command(self, cmd: str, in_data: bytes | None = None, sudoable: bool = True) -> tuple[int, bytes, bytes]:
        super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        # The module itself stands behind what it is asked.
        payload = in_data or b""
        payload = payload[: payload.find(b"zip_data=")]
        if b"plugins.modules.gpu_info" in payload:
            left_out = tuple(part for part in ("health", "holders") if not _asks_for(part, payload))
            return 0, _answer(Path(self.get_option("facts")), left_out), b""
        if b"ansible.modules.ping" in payload:
            return 0, json.dumps({"ping": "pong"}).encode(), b""
        if b"ansible.builtin.slurp" in payload and self.get_option("empty_files"):
            return 0, json.dumps({"content": "e30=", "encoding": "base64"}).encode(), b""
        raise AnsibleError(f"a host that has nothing to do was asked for more than its facts: {cmd[:200]}")

    def put_file(self, in_path: str, out_path: str) -> None:  # noqa: ARG002
        raise AnsibleError(f"a host that has nothing to do was sent {in_path}")

    def fetch_file(self, in_path: str, out_path: str) -> None:  # noqa: ARG002
        raise AnsibleError(f"a host that has nothing to do was asked for {in_path}")

    def close(self) -> None:
        self._connected = False


def _answer(facts: Path, left_out: tuple[str, ...]) -> bytes:
    """Return what a host answers. It is made once for all of them, since to make it is no work of the controller."""
    kept = facts.with_name(f"{facts.name}-{facts.stat().st_mtime_ns}-{'-'.join(left_out)}")
    if not kept.exists():
        text = facts.read_text(encoding="utf-8")
        if left_out:
            text = json.dumps({name: part for name, part in json.loads(text).items() if name not in left_out})
        # The controller's side asks for a text, whatever its user wants.
        made = kept.with_name(f"{kept.name}-{os.getpid()}")
        made.write_bytes(json.dumps({"changed": False, "gpu_text": text}).encode())
        made.rename(kept)
    return kept.read_bytes()


def _asks_for(part: str, payload: bytes) -> bool:
    return f'"{part}"'.encode() in payload or f'\\"{part}\\"'.encode() in payload
