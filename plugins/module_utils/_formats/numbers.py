# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Numbers in text from outside. Pure."""

from __future__ import annotations

import re
from typing import Any

_WHOLE = re.compile("[0-9]{1,18}")


def whole_number(text: Any) -> int | None:
    """Return the number that ASCII digits write; None for any other text, and for one of more than 18 digits.

    C(str.isdigit) and C(\\d) find digits in other scripts, some of which C(int) refuses, as it does texts of more than 4,300 digits.
    """
    return int(text) if isinstance(text, str) and _WHOLE.fullmatch(text) else None
