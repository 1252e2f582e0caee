# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Texts that some reader of YAML takes for something else, and mutations of them."""

from __future__ import annotations

from hypothesis import strategies as st

#: What numbers, dates, booleans and nulls are written with.
_PARTS = st.sampled_from(
    [
        *"0123456789+-._:eExXoObBpPyYnNaAfFtTzZ~=<",
        " ",
        "0x",
        "0B",
        "0o",
        "inf",
        ".Inf",
        "NaN",
        "true",
        "No",
        "off",
        "null",
        "2026-1-2",
    ]
)
SCALARS = st.lists(_PARTS, min_size=1, max_size=8).map("".join) | st.text(
    st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Zs"]), max_size=12
)
