# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Unpack the bundle for one run: wheels for this Python, the collection, the programs. No pip, no venv: neither need be there.

python3 -m gpu_evidence.unpack WORK
"""

from __future__ import annotations

import glob
import json
import lzma
import os
import sys
import tarfile
import zipfile
from pathlib import Path


def fits(wheel: str, version: str) -> bool:
    """Whether a wheel is for this Python: the bundle has compiled ones for each, and of each kind one that is for all."""
    python, abi, _platform = wheel[: -len(".whl")].split("-")[-3:]
    own = f"cp{version.replace('.', '')}"
    return abi in ("none", "abi3") or own == abi or (own in python.split(".") and abi == own)


def main(work: str) -> int:
    bundle = Path(os.environ["GPU_EVIDENCE_BUNDLE"])
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    names: list[str] = sorted(os.path.basename(path) for path in glob.glob(str(bundle / "wheels" / "*.whl")))
    pythons = json.loads((bundle / "bundle.json").read_text(encoding="utf-8"))["pythons"]
    product = (
        ""
        if version in pythons
        else f"this is Python {version}, and the collection's controller needs one of {', '.join(pythons)}"
    )
    # pynvml is one file that every Python from 3.8 on reads; without it there is no evidence of NVML.
    wanted = [name for name in names if (fits(name, version) if not product else name.startswith("nvidia_ml_py-"))]
    for name in wanted:
        with zipfile.ZipFile(bundle / "wheels" / name) as wheel:
            wheel.extractall(f"{work}/site")
    collections = f"{work}/collections/ansible_collections/gpufleet/nvidia"
    os.makedirs(collections)
    for archive in glob.glob(str(bundle / "gpufleet-nvidia-*.tar.gz")):
        with tarfile.open(archive) as packed:
            packed.extractall(collections, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    programs = f"{work}/programs"
    os.makedirs(programs)
    for path in glob.glob(str(bundle / "programs" / "*.xz")):
        target = f"{programs}/{os.path.basename(path)[: -len('.xz')]}"
        with lzma.open(path) as packed, open(target, "wb") as file:
            file.write(packed.read())
        os.chmod(target, 0o755)
    print(json.dumps({"wheels": len(wanted), "programs": sorted(os.listdir(programs)), "product": product}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
