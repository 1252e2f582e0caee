# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Moments as records and annotations keep them: in UTC, to the second, as Kubernetes writes them."""

from __future__ import annotations

import datetime
from collections.abc import Mapping

_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
#: By how much the clocks may differ of what writes a moment and what reads it.
_SKEW = datetime.timedelta(minutes=5)


def text_of(moment: datetime.datetime) -> str:
    return moment.strftime(_FORMAT)


def now() -> str:
    return text_of(datetime.datetime.now(datetime.timezone.utc))


def moment_of(text: object) -> datetime.datetime | None:
    try:
        return datetime.datetime.strptime(str(text), _FORMAT).replace(tzinfo=datetime.timezone.utc)
    except ValueError:
        return None


def is_future(moment: datetime.datetime, now: datetime.datetime) -> bool:
    """Whether a moment cannot have been written by anybody yet: hosts and nodes say what they like, and such a record would count for ever."""
    return moment > now + _SKEW


def lately(moment: datetime.datetime | None, now: datetime.datetime, seconds: int) -> bool:
    """Whether a moment was within the last C(seconds). One that is none, or lies in the future, was not."""
    return moment is not None and not is_future(moment, now) and now - moment < datetime.timedelta(seconds=seconds)


def in_future(stamps: Mapping[str, object], now: datetime.datetime) -> list[str]:
    """Return the names of what has a moment of the future, for a warning. C(stamps): name to the text of a moment."""
    moments = {name: moment_of(text) for name, text in stamps.items()}
    return [name for name, moment in moments.items() if moment is not None and is_future(moment, now)]
