# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter C(gpufleet.nvidia.device_plugin_lint)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Callable

from ansible.errors import AnsibleFilterError
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.lint.finding import OF_A_CONFIGURATION
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.lint.lint import lint_files
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.plain import plain


def device_plugin_lint(text: Any, facts: Any = None) -> dict[str, Any]:
    """Return C(findings), C(effective) and C(not_checked) for the text of a file, or for texts by path.

    C(effective) is that of a device plugin configuration alone; C(not_checked) has the kind of what the linter does not know, by its place.
    """
    # What was parsed already is no files by path.
    texts = text if isinstance(text, dict) and not OF_A_CONFIGURATION & set(text) else {"": text}
    wrong = [one for one in texts.values() if not isinstance(one, str)]
    if wrong:
        raise AnsibleFilterError(
            f"device_plugin_lint takes the text of a file, or texts by path, not {type(wrong[0]).__name__}. "
            "Read it with lookup('ansible.builtin.file', path), or render it with to_yaml."
        )
    try:
        verdicts = lint_files({str(plain(path)): plain(one) for path, one in texts.items()}, plain(facts))
    except Refused as refused:
        raise AnsibleFilterError(f"device_plugin_lint: {refused.message}") from refused
    if list(verdicts) == [""]:
        return {**verdicts[""].as_dict(), "not_checked": {}}
    findings = [
        {**asdict(finding), "path": f"{name} {finding.path}".strip()}
        for name, verdict in verdicts.items()
        for finding in verdict.findings
    ]
    not_checked = {name: verdict.not_checked for name, verdict in verdicts.items() if verdict.not_checked}
    return {"findings": findings, "effective": None, "not_checked": not_checked}


class FilterModule:
    """Filters of the collection that check device plugin configuration."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"device_plugin_lint": device_plugin_lint}
