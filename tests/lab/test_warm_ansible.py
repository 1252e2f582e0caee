# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A call of Ansible by the process that is forked says and returns what one says that is started as usual."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ..warm_ansible import WarmAnsible

pytestmark = pytest.mark.lab

TOOLS = Path(__file__).resolve().parents[2] / ".venv" / "bin"
LOCAL = [
    str(TOOLS / "ansible"),
    "-i",
    "localhost,",
    "-c",
    "local",
    "-e",
    f"ansible_python_interpreter={sys.executable}",
]


@pytest.fixture(scope="module")
def environment():
    return {**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_DEVEL_WARNING": "0"}


@pytest.fixture(scope="module")
def warm(environment):
    made = WarmAnsible(TOOLS, environment)
    yield made
    made.close()


@pytest.mark.parametrize(
    "words",
    [
        ("localhost", "-m", "ansible.builtin.command", "-a", "pwd"),
        ("localhost", "-m", "ansible.builtin.command", "-a", "false"),
        ("localhost", "-m", "ansible.builtin.no_such_module"),
        ("--no-such-option",),
    ],
)
def test_it_says_and_returns_the_same(warm, environment, tmp_path, words):
    line = [*LOCAL, *words]
    usual = subprocess.run(line, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    found = warm.run(line, environment, tmp_path, 300)
    # When a command ran is in its output.
    assert found.returncode == usual.returncode
    assert (found.stdout.splitlines()[:1], len(found.stdout)) == (usual.stdout.splitlines()[:1], len(usual.stdout))
    assert found.stderr == usual.stderr


def test_the_environment_is_that_of_the_call_and_another_setting_counts(warm, environment, tmp_path):
    line = [*LOCAL, "localhost", "-m", "ansible.builtin.shell", "-a", "echo $GPUFLEET_PROBE"]
    told = {**environment, "GPUFLEET_PROBE": "of-this-call"}
    assert "of-this-call" in warm.run(line, told, tmp_path, 300).stdout
    as_json = warm.run(
        line, {**told, "ANSIBLE_CALLBACK_RESULT_FORMAT": "yaml", "ANSIBLE_LOAD_CALLBACK_PLUGINS": "1"}, tmp_path, 300
    )
    assert as_json.returncode == 0 and "of-this-call" in as_json.stdout


def test_calls_go_on_side_by_side_and_one_that_takes_too_long_is_ended(warm, environment, tmp_path):
    slow = [*LOCAL, "localhost", "-m", "ansible.builtin.command", "-a", "sleep 40"]
    quick = [*LOCAL, "localhost", "-m", "ansible.builtin.ping"]
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(warm.run, slow, environment, tmp_path, 20)
        time.sleep(0.2)
        assert warm.run(quick, environment, tmp_path, 300).returncode == 0
        with pytest.raises(subprocess.TimeoutExpired):
            late.result()
