# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compile what is imported from a zip archive once.

Modules and pynvml come to a host as source in archives. Since Python 3.10, C(zipimport) compiles a module to tell the name of its file, throws
that away, and compiles it again to run it: a quarter of the time that reading a host took.
"""

from __future__ import annotations

import os
import sys
from zipimport import zipimporter


class _Importer(zipimporter):
    """Tells the name of a module's file, which is source here, without compiling it."""

    def get_filename(self, fullname: str) -> str:
        path = os.path.join(self.archive, self.prefix, fullname.rpartition(".")[2])
        return os.path.join(path, "__init__.py") if self.is_package(fullname) else f"{path}.py"


def compile_once() -> None:
    """Let all imports from archives that follow be compiled once. A second call changes nothing."""
    if _Importer not in sys.path_hooks:
        sys.path_hooks.insert(0, _Importer)
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter) and not isinstance(finder, _Importer):
            sys.path_importer_cache[path] = _Importer(path)
