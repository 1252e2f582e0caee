# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every file can be imported where there is ansible-core and nothing else, without a warning or a word: what C(ansible-test sanity) asks file by file.

The tier C(sanity) asks it of the oldest Python; of the newest, only in a whole run.
"""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import importlib, pathlib, sys, warnings
from importlib.metadata import requires
from ansible.utils.collection_loader._collection_finder import _AnsibleCollectionFinder
import ansible.template, yaml

collections, plugins = map(pathlib.Path, sys.argv[1:])
names = {"ansible", "ansible_collections", "yaml", "_yaml", *sys.stdlib_module_names}
names |= {line.partition(">")[0].partition(" ")[0].lower() for line in requires("ansible-core")} | {"markupsafe"}


class NothingElse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in names:
            raise ModuleNotFoundError(f"{name} is not there", name=name)


_AnsibleCollectionFinder(paths=[str(collections)])._install()
sys.meta_path.insert(0, NothingElse())
warnings.simplefilter("error")
for file in sorted(plugins.rglob("*.py")):
    parts = file.relative_to(plugins).with_suffix("").parts
    importlib.import_module(".".join(("ansible_collections.gpufleet.nvidia.plugins", *parts)).removesuffix(".__init__"))
"""


def test_every_file_is_imported_with_ansible_core_alone_without_a_warning():
    from ..conftest import COLLECTIONS, REPOSITORY

    line = [sys.executable, "-c", PROGRAM, COLLECTIONS, REPOSITORY / "plugins"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
