# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.emit import yaml_text


@pytest.mark.parametrize(
    "text",
    # A content hash may look like the first ones.
    ["12e5", "1e3", "1e+3", "08", "0o17", "y", "N", "580", "1.", ".5", "-1E4", "on", "null", "~", "0x1f", "1_000"],
)
def test_a_text_stays_one_for_every_reader(text):
    assert yaml_text({"name": text}) == f"name: '{text}'\n"
    assert yaml_text({text: 1}) == f"'{text}': 1\n"
    assert yaml.safe_load(yaml_text([text])) == [text]


@pytest.mark.parametrize("text", ["580.126.09", "1g.10gb", "8GiB", "1e3x", "year", "nvidia.com/gpu", "v1"])
def test_other_texts_stay_bare(text):
    assert yaml_text({"name": text}) == f"name: {text}\n"
