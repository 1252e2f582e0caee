# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The bytecode of the host program's sources, which C(_adapters/zip_imports.py) reads."""

from __future__ import annotations

import io
import marshal
import os
import zipfile
from glob import glob

from .._adapters.files import remove, write_whole
from .._adapters.zip_imports import COMPILED, entry_name


def write_compiled(program: bytes, path: str) -> None:
    """Compile the sources of a host program with the Python that runs this, and keep nothing that another one made.

    :param path: where the program is, or will be. The bytecode is put beside it.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(program)) as sources, zipfile.ZipFile(buffer, "w") as compiled:
        # Sources that are alike, as empty ones are, have one entry.
        names = {entry_name(sources.read(name)): name for name in sources.namelist() if name.endswith(".py")}
        for entry, name in names.items():
            code = compile(sources.read(name), os.path.join(path, name), "exec", dont_inherit=True)
            compiled.writestr(entry, marshal.dumps(code))
    folder = os.path.dirname(path)
    remove_compiled(folder)
    write_whole(os.path.join(folder, os.path.basename(COMPILED)), buffer.getvalue())


def remove_compiled(folder: str) -> None:
    """Remove the bytecode, that for other Pythons too."""
    for path in glob(os.path.join(folder, "compiled-*.zip")):
        remove(path)
