# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which packages with headers of later kernels the host's repositories did not offer when the driver's stage last asked them.

Facts ask no repository. Without this record a host whose repositories lack such a package would be planned to change in every run, and no run
would change it. It counts for the kernel that ran then: with another one the repositories are asked again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from .._formats.documents import read_json

PATH = "/var/lib/gpufleet/driver-not-offered.json"
_SCHEMA = 1
_MOST = 64


def as_text(kernel: str, names: Sequence[str]) -> str:
    """Return the record of what was not offered while C(kernel) ran."""
    document = {"schema": _SCHEMA, "kernel": kernel, "packages": sorted(names)}
    return json.dumps(document, indent=2, sort_keys=True) + "\n"


def parse(text: str | None, kernel: str) -> list[str]:
    """Return the names in the record, none where it is of another kernel or is not such a record."""
    try:
        document: Any = read_json(text or "")
    except ValueError:
        return []
    if not isinstance(document, dict) or (document.get("schema"), document.get("kernel")) != (_SCHEMA, kernel):
        return []
    names = document.get("packages")
    return [str(name) for name in names[:_MOST]] if isinstance(names, list) else []
