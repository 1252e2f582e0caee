# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A text that is rendered is a text for the Go programs that read it: Helm, Argo CD, Flux, the device plugin and Kubernetes' own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.emit import yaml_text
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.plugin_utils.render.scalars import SCALARS
from hypothesis import given, settings
from hypothesis import strategies as st
from real_tools.install import QUICKLY

from tests.whole import examples

HERE = Path(__file__).parent
#: One of the modules that need all four libraries.
MODULE = HERE.parent / "lab" / "real_tools" / "modules" / "dra-driver-nvidia-gpu"
#: Each was taken for something else by one of them when it stood bare.
KNOWN = ["0X1F", "0B11", "0O17", "1e_3", "-0X1F", "0x_1f", "12e5", "08", "y", "N", "2026-1-2", "1_000", "on", "~"]


@pytest.fixture(scope="module")
def readers(tmp_path_factory):
    """Return what each library reads in a list of texts as it is rendered; None for what it takes for no text."""
    folder = tmp_path_factory.mktemp("readers")
    shutil.copytree(MODULE, folder, dirs_exist_ok=True)
    shutil.copyfile(HERE / "yaml_readers.go", folder / "main.go")
    command = ["go", "build", "-mod=readonly", *QUICKLY, "-o", "readers", "main.go"]
    subprocess.run(command, cwd=folder, env={**os.environ, "GOWORK": "off", "GOFLAGS": ""}, check=True)

    def read(text):
        done = subprocess.run([folder / "readers"], input=text, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    return read


def test_what_is_taken_for_something_else_is_known(readers):
    """Or the test below shows nothing."""
    for text in KNOWN:
        assert any(found != [text] for found in readers(f"- {text}\n").values()), text


def test_a_text_that_is_rendered_stays_one(readers):
    assert set(map(tuple, readers(yaml_text(KNOWN)).values())) == {tuple(KNOWN)}


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(SCALARS, min_size=50, max_size=100))
def test_any_text_that_is_rendered_stays_one(readers, texts):
    for library, found in readers(yaml_text(texts)).items():
        wrong = [(text, one) for text, one in zip(texts, found, strict=True) if text != one]
        assert not wrong, (library, wrong)
