# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Moments as records and annotations keep them: in UTC, to the second, as Kubernetes writes them."""

from __future__ import annotations

import datetime

_FORMAT = "%Y-%m-%dT%H:%M:%SZ"


def text_of(moment: datetime.datetime) -> str:
    """Return a moment in UTC as a text."""
    return moment.strftime(_FORMAT)


def now() -> str:
    """Return this moment as a text."""
    return text_of(datetime.datetime.now(datetime.timezone.utc))


def moment_of(text: object) -> datetime.datetime | None:
    """Return the moment that a text names, or None where it names none."""
    try:
        return datetime.datetime.strptime(str(text), _FORMAT).replace(tzinfo=datetime.timezone.utc)
    except ValueError:
        return None
