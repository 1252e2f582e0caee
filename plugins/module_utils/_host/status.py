# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the host program tells of itself."""

from __future__ import annotations

import json

from .._adapters.files import read_text
from .._formats.documents import read_json
from .._mig.journal import Journal
from .output import say
from .units import RECORDED_MIG, RECORDED_SETTINGS, RECORDED_SHARING


def status(journal: Journal | None = None) -> int:
    """Say, as JSON, what is recorded and how the last change of MIG ended."""
    last = (journal or Journal()).last()
    say(
        json.dumps(
            {
                "recorded": {
                    "mig": _recorded(RECORDED_MIG),
                    "sharing": _recorded(RECORDED_SHARING),
                    "settings": _recorded(RECORDED_SETTINGS),
                },
                "last_mig_change": None if last is None else last.as_dict(),
            },
            indent=2,
            sort_keys=True,
        )
    )
    return 0


def _recorded(path: str) -> object:
    text = read_text(path, links=False)
    try:
        return None if text is None else read_json(text)
    except ValueError:
        return "unreadable"
