# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compile what is imported from a zip archive once: once for each import, and not at all where the host has it compiled.

Modules and pynvml come to a host as source in archives, and compiling them is what reading a host spends most of its own time on. Since Python
3.10, C(zipimport) compiles a module to tell the name of its file, throws that away, and compiles it again to run it. A host with the host
program also has the bytecode of its sources, which are those that modules bring. It is found by a hash of the source (as PEP 552 does), so that
other sources, those of another release of the collection, are compiled as ever.
"""

from __future__ import annotations

import marshal
import os
import sys
from importlib.util import MAGIC_NUMBER, source_hash
from types import CodeType, ModuleType
from typing import Any
from zipimport import ZipImportError, zipimporter

#: The bytecode of the host program's sources, for the Python that runs this. Beside the program, so that only root writes it.
COMPILED = f"/usr/local/lib/gpufleet/compiled-{MAGIC_NUMBER.hex()}.zip"


def entry_name(source: bytes) -> str:
    """Return the name that the bytecode of a source has in L(COMPILED)."""
    return source_hash(source).hex()


class _Importer(zipimporter):
    """Imports from an archive of sources, with the bytecode of the archive C(compiled) where the host has one."""

    compiled: zipimporter | None = None

    def get_filename(self, fullname: str) -> str:
        """Tell the name of a module's file, which is source here, without compiling it."""
        path = os.path.join(self.archive, self.prefix, fullname.rpartition(".")[2])
        return os.path.join(path, "__init__.py") if self.is_package(fullname) else f"{path}.py"

    def get_code(self, fullname: str) -> CodeType:
        return self._compiled(fullname) or super().get_code(fullname)

    def _compiled(self, fullname: str) -> CodeType | None:
        if self.compiled is None:
            return None
        try:
            found = marshal.loads(self.compiled.get_data(entry_name(self.get_data(self.get_filename(fullname)))))
        except (OSError, EOFError, ValueError, TypeError):
            # Another source than that of the host program, or a file that somebody cut off.
            return None
        return found if isinstance(found, CodeType) else None

    # Python 3.9 has load_module() alone, which does not ask get_code().
    def create_module(self, _spec: Any) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        exec(self.get_code(module.__name__), module.__dict__)


def compile_once(compiled: str = COMPILED) -> None:
    """Let all imports from archives that follow be compiled at most once. A second call changes nothing."""
    try:
        _Importer.compiled = zipimporter(compiled)
    except ZipImportError:
        _Importer.compiled = None
    if _Importer not in sys.path_hooks:
        sys.path_hooks.insert(0, _Importer)
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter) and not isinstance(finder, _Importer):
            sys.path_importer_cache[path] = _Importer(path)
