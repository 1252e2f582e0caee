# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The controller's pynvml (the package nvidia-ml-py), which hosts get from the controller and from nowhere else."""

from __future__ import annotations

import importlib.util
import io
import zipfile
from functools import lru_cache
from pathlib import Path

# A fixed time and plain storage: the same input gives the same bytes on every controller, whatever its zlib.
_EPOCH = (1980, 1, 1, 0, 0, 0)
_MODE = 0o100644 << 16


class PynvmlNotOnController(Exception):
    """The controller has no pynvml that it could send."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"Failed to send pynvml to the host: {reason}. Install the Python package nvidia-ml-py into the "
            "environment that runs ansible on the controller (it is among the requirements of the collection)"
        )


@lru_cache(maxsize=1)
def pynvml_source() -> bytes:
    """Return the source of the controller's pynvml, one file of pure Python.

    :raises PynvmlNotOnController: it is not installed, or it is another package of that name.
    """
    found = importlib.util.find_spec("pynvml")
    if found is None or found.origin is None:
        raise PynvmlNotOnController("the controller does not have it")
    origin = Path(found.origin)
    if origin.name != "pynvml.py":
        # The inactive package "pynvml" shadows the real one with a folder.
        raise PynvmlNotOnController(f"{origin} is not the one of nvidia-ml-py")
    return origin.read_bytes()


def pack(files: dict[str, bytes], compress: bool = False) -> bytes:
    """Return a zip archive of C(files): the same bytes for the same input, unless C(compress) is set."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, date_time=_EPOCH)
            entry.external_attr = _MODE
            entry.create_system = 3
            entry.compress_type = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
            archive.writestr(entry, files[name])
    return buffer.getvalue()


def pynvml_archive() -> bytes:
    """Return a zip archive with pynvml in it, to be sent to a host for one call.

    :raises PynvmlNotOnController: there is none on the controller.
    """
    return pack({"pynvml.py": pynvml_source()}, compress=True)
