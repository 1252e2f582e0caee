# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documents that were changed at random, and what has to hold for each of them."""

from __future__ import annotations

import copy
import functools
import re
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ..whole import examples

QUICK, ALL = 25, examples(10_000, 250)


def examples_of(tests=1):
    """Return the marker of a test over examples: some, and in the slow tier its part of what each kind of document gets: 250, and 10,000 in a whole run.

    :param tests: over how many tests, or parameters of one, those of its kind are spread.
    """
    return pytest.mark.parametrize("examples", [QUICK, pytest.param(ALL // tests, marks=pytest.mark.slow)])


_ESCAPE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def paths(value, path=()):
    """Yield the path of every value in a document."""
    yield path
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in pairs:
        yield from paths(item, (*path, name))


VALUES = st.one_of(
    st.sampled_from(
        [None, True, False, 0, 1, -1, 10**9, 2**70, 1.5, float("nan"), float("inf"), "", "x", "0", "\x1b[2J", "a\nb"]
        + ["\ud800", "\u202e", "9" * 5000, "1g.10gb", "7g.80gb", "a100-40gb", "580", "../../x", "{{ 1 }}", "--", "::"]
        + [[], {}, [None], [[]], [{}], {"": None}, {"\x1b": 1}, {"index": 0}, ["x"], [1], ["x"] * 20000],
    ),
    st.text(max_size=8),
    st.integers(-(2**33), 2**33),
)


@st.composite
def mutated(draw, document):
    """Return a document of which one to three values were replaced, taken out or doubled."""
    found = copy.deepcopy(document)
    for _number in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(list(paths(found))))
        verb = draw(st.sampled_from(["replace", "replace", "delete", "double"]))
        if not path:
            if verb == "replace":
                return copy.deepcopy(draw(VALUES))
            continue
        place = found
        for name in path[:-1]:
            place = place[name]
        if verb == "replace":
            place[path[-1]] = copy.deepcopy(draw(VALUES))
        elif verb == "delete":
            del place[path[-1]]
        elif isinstance(place, list):
            place.append(copy.deepcopy(place[path[-1]]))
        if not isinstance(found, (dict, list)):
            return found
    return found


def property_of(strategy, examples):
    """Return a decorator that runs a function over that many examples, each within the time of `_time_of_long_lists` and 200 MiB."""

    def decorate(function):
        def within_limits(drawn):
            # Writing 5 resets the peak: proc(5). What Hypothesis needs to draw is none of the example's.
            Path("/proc/self/clear_refs").write_text("5")
            before, began = _memory_kib("VmRSS"), time.thread_time()
            function(drawn)
            took, used = time.thread_time() - began, (_memory_kib("VmHWM") - before) // 1024
            assert took < _time_of_long_lists(), f"{took:.1f} s of a processor, more than {_time_of_long_lists():.1f} s"
            assert used < 200, f"{used} MiB more than before"

        settings(max_examples=examples, deadline=None, derandomize=True, database=None, suppress_health_check=[])(
            given(strategy)(within_limits)
        )()

    return decorate


@functools.cache
def _time_of_long_lists():
    """Return how many seconds of a processor this machine takes to read fifty lists of 20,000 values, the longest of `VALUES`.

    Three of them fit into a document, and the linter takes ten times as long over a value as libyaml alone. What takes longer by the
    square of their length takes a thousand times as long.
    """
    text = yaml.safe_dump(["x"] * 20000)
    began = time.thread_time()
    for _list in range(5):
        yaml.load(text, Loader=yaml.CSafeLoader)
    return (time.thread_time() - began) * 10


def _memory_kib(name):
    status = Path("/proc/self/status").read_text()
    return int(re.search(rf"^{name}:\s+(\d+) kB$", status, re.MULTILINE)[1])


def shown(text):
    """Assert that a text can be shown on a terminal and written into a file."""
    assert not _ESCAPE.search(text), repr(text)
    text.encode()
