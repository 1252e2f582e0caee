# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# ruff: noqa: RUF009 (the functions declare fields)

"""One declaration checks a document, says what it holds, and is written back by the same fields."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._schema import (
    Unfit,
    View,
    boolean,
    check,
    encode,
    has,
    items,
    mapping,
    needs,
    number,
    of,
    one_of,
    row,
    taken,
    text,
)
from hypothesis import given
from hypothesis import strategies as st


class Color(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Inner:
    name: str = needs(text(8))
    share: float = has(number(0, 1, real=True), 0.0, called="part-of")


@dataclass(frozen=True)
class Outer:
    pair: tuple[int, int] = needs(items(number(0, 9), 2, least=2))
    color: Color = has(one_of(Color), Color.RED)
    on: bool = has(boolean, False)
    inner: tuple[Inner, ...] = has(items(of(Inner), 3), ())
    named: dict[str, int] | None = has(mapping(number()))
    counts: tuple[tuple[str, int], ...] = has(items(row(text(8), number(0, 9))), ())


OUTER = of(Outer, 1)
_inner = st.builds(Inner, st.text("abc", max_size=8), st.floats(0, 1))
_outer = st.builds(
    Outer,
    st.tuples(st.integers(0, 9), st.integers(0, 9)),
    st.sampled_from(Color),
    st.booleans(),
    st.lists(_inner, max_size=3).map(tuple),
    st.dictionaries(st.text("xyz", min_size=1), st.integers(0, 10)),
    st.lists(st.tuples(st.text("abc", max_size=8), st.integers(0, 9))).map(tuple),
)


@given(_outer)
def test_what_was_written_is_read_as_it_was(value):
    assert check(OUTER, json.loads(json.dumps({"schema": 1, **encode(value)}))) == value


def test_what_is_missing_or_null_has_its_default_and_what_is_not_known_is_left_out():
    assert check(OUTER, {"schema": 1, "pair": [1, 2], "color": None, "newer": {"x": [1]}}) == Outer((1, 2))
    assert taken(OUTER, {"schema": 2, "pair": [1, 2]}) is None


def test_a_field_can_have_another_name_in_documents():
    found = check(OUTER, {"schema": 1, "pair": [1, 2], "inner": [{"name": "a", "part-of": 0.5, "share": 1}]})
    assert found.inner == (Inner("a", 0.5),) and encode(found.inner) == [{"name": "a", "part-of": 0.5}]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"schema": 1}, "pair: it is missing"),
        ({"pair": [1, 2]}, "schema: it is missing"),
        ({"pair": [1]}, "pair: the list has 1 entries, and must have at least 2"),
        ({"pair": [1, 2, 3]}, "pair: the list has 3 entries, and may have at most 2"),
        ({"pair": [1, None]}, r"pair\[1\]: an entry must not be null"),
        ({"pair": [1, 2], "color": "green"}, "color: 'green' is not of the form red|blue"),
        ({"pair": [1, 2], "inner": [{"name": "a"}, {"share": 1}]}, r"inner\[1\].name: it is missing"),
        ({"pair": [1, 2], "on": "yes"}, "on: 'yes' must be true or false"),
        ({"pair": [1, 2], "counts": [["a"]]}, r"counts\[0\]: the list has 1 entries, and must have at least 2"),
        ({"pair": [1, 2], "counts": [["a", "b"]]}, r"counts\[0\]\[1\]: 'b' must be an integer"),
        ({"pair": [1, 2], "schema": 2}, "schema: 2 is not between 1 and 1"),
        ({"pair": [1, 2], "newer": "\x1b[2J"}, "newer: .* has control characters"),
        ([], "must be a mapping"),
        (None, "it must not be null"),
    ],
)
def test_what_does_not_fit_is_named_by_its_path(document, message):
    with pytest.raises(Unfit, match=message):
        check(
            OUTER,
            {"schema": 1, **document} if document and "pair" in document and message[:6] != "schema" else document,
        )


@dataclass(frozen=True)
class Card(View):
    address: str = needs(text(8))
    kind: str | None = has(text(8))
    slots: tuple[int, ...] = has(items(number()), ())


def test_a_view_is_typed_and_knows_what_the_document_says():
    document = {"address": "a", "slots": None, "of_another_release": 1}
    card = check(of(Card), document)
    assert (card.address, card.kind, card.slots) == ("a", None, ())
    # What is null is told from what is missing only by who asks for it.
    assert card.says("slots") and not card.says("kind") and encode(card) == {"address": "a", "slots": []}
    changed = card.but(kind="gpu")
    assert encode(changed) == {"address": "a", "slots": [], "kind": "gpu"} and card.kind is None
    assert encode(Card("a", slots=(1,))) == {"address": "a", "slots": [1]}
    for unfit, path in (({"kind": "gpu"}, "address"), ({"address": "a", "slots": ["x"]}, r"slots\[0\]")):
        with pytest.raises(Unfit, match=f"^{path}: "):
            check(of(Card), unfit)
