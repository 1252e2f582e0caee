# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the collection reads in a CDI specification: cdi_reading.py FILE [FACTS]. In a process of its own, which has the collection unpacked."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats import cdi


def main(path: str, facts_path: str = "") -> None:
    facts = json.loads(Path(facts_path).read_text(encoding="utf-8")) if facts_path else {}
    gpus = (facts.get("gpu") or {}).get("gpus") or []
    read = cdi.parse_specification(path, Path(path).read_text(encoding="utf-8"))
    missing, stale = cdi.compare(read.devices, gpus)
    found = {"kind": read.kind, "version": read.version, "devices": read.devices, "missing": missing, "stale": stale}
    found |= {"drivers": read.drivers, "nodes": dict(read.nodes), "hooks": read.hooks, "gpus": len(gpus)}
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
