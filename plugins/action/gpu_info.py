# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The controller's side of M(gpufleet.nvidia.gpu_info): sends pynvml where the host has none."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ansible.errors import AnsibleError
from ansible_collections.gpufleet.nvidia.plugins.module_utils._distributions.distributions import NVIDIA_REPOSITORIES
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.desired import REPOSITORY_NAME
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.documents import read_json
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._printable import printable
from ansible_collections.gpufleet.nvidia.plugins.module_utils._toolkit.packages import IDENTIFIER, KEY_FINGERPRINT
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.host_program import NvmlAction
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.plain import is_true, read_facts
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.slurm_desired import asked_of

#: An escape in JSON that may stand for what is not printable; and a string from its first escape on, its end or that of the text, and what makes it a
#: name. Neither looks at a character twice: the text is a host's.
_UNPRINTABLE = re.compile(r'\\[^nt"\\/]')
_ESCAPED = re.compile(r'\\.?[^"\\]*(?:\\.?[^"\\]*)*(?:"(\s*:)?|\Z)')
#: Of the variables with a repository, the file of its key and the fingerprint, what their names begin with; under which name it is configured; and the
#: fingerprint and the address where none is given. The driver is installed from whatever source has the address, and the toolkit from its own alone.
_KEYS = (
    ("nvidia_driver_repository", REPOSITORY_NAME, "", NVIDIA_REPOSITORIES),
    ("nvidia_toolkit_repository", IDENTIFIER, KEY_FINGERPRINT, ""),
)


class ActionModule(NvmlAction):
    """The host is asked for its facts as one text, which the user gets as such or as data.

    Data is held against the schema of facts here, and a text where it is read (L(read_facts)): whoever has it in a variable reads it so.
    """

    def arguments(self) -> dict[str, Any]:
        asked = {"_key_files": self._keys, **self._slurm}
        given = {name: value for name, value in super().arguments().items() if name not in asked}
        return {**given, "as_text": True, **{name: value for name, value in asked.items() if value}}

    def ask(self, task_vars: dict[str, Any]) -> dict[str, Any]:
        self._keys, self._slurm = self._key_files(task_vars), {"_slurm_directory": "", "_slurm_node": ""}
        # The mistake in a variable is said where it is planned with.
        with suppress(Refused):
            self._slurm = asked_of(task_vars, self._templar.template)
        answer = super().ask(task_vars)
        said: dict[str, Any] = {name: answer.pop(name) for name in ("gpu", "gpu_text") if name in answer}
        if not said:
            return answer
        text = said.get("gpu_text")
        as_text = is_true(self._task.args.get("as_text"))
        # Of most hosts there is nothing to replace, and their text is what is taken.
        clean = isinstance(text, str) and _is_printable_json(text)
        if clean and as_text:
            return {**answer, "gpu_text": str(text)}
        if not clean:
            said = {"gpu": printable(_data_of(said), lines=True, longest=sys.maxsize)}
        facts, _view, unread = read_facts(said)
        if facts is None:
            return {**answer, "failed": True, "msg": f"{task_vars.get('inventory_hostname', 'the host')}: {unread}"}
        if as_text:
            return {**answer, "gpu_text": json.dumps(facts, separators=(",", ":"))}
        return {**answer, "gpu": facts}

    def _key_files(self, task_vars: dict[str, Any]) -> dict[str, list[str]]:
        """Return the variables that name a file of the host with the key of a repository, each with what the host is asked of it."""
        found = {}
        for prefix, identifier, usual, address in _KEYS if self._task.args.get("root", "/") == "/" else ():
            # What cannot be read of the variables is said where they are planned with.
            with suppress(AnsibleError):
                given = [task_vars.get(f"{prefix}_{name}") for name in ("key_file", "key_fingerprint", "url")]
                path, fingerprint, url = (str(self._templar.template(text) or "") if text else "" for text in given)
                if path:
                    found[f"{prefix}_key_file"] = [path, identifier, fingerprint or usual, address and (url or address)]
        return found


def _is_printable_json(text: str) -> bool:
    """Whether nothing in a text of JSON would be replaced: values may have lines, and names may not."""
    if not text.isprintable() or _UNPRINTABLE.search(text):
        return False
    # What has an escape outside of a string is no JSON, which is said where the text is read.
    names = (one[0] for one in _ESCAPED.finditer(text) if one[1])
    return not any("\\n" in name or "\\t" in name for name in names)


def _data_of(said: Mapping[str, Any]) -> Any:
    try:
        return read_json(said["gpu_text"]) if "gpu_text" in said else said["gpu"]
    except (TypeError, ValueError, RecursionError):
        # No facts, which is what L(read_facts) says then.
        return said["gpu_text"]
