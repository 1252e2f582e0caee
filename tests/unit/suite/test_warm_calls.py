# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Calls of Ansible by the process that is forked know nothing of one another."""

from __future__ import annotations

import os
import re
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ... import warm_ansible

#: Each call starts ansible.
pytestmark = pytest.mark.slow

#: The lookup of Ansible's that is for this makes another temporary folder when it is asked for one.
LOOKUP = """
from ansible import constants
from ansible.plugins.lookup import LookupBase

class LookupModule(LookupBase):
    def run(self, terms, variables=None, **options):
        return [str(getattr(constants, term)) for term in terms]
"""


@pytest.fixture(scope="module")
def setting(tmp_path_factory):
    """What a call in a folder has as the value of a setting of Ansible's."""
    plugins = tmp_path_factory.mktemp("plugins")
    (plugins / "constant.py").write_text(LOOKUP)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")},
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_DEVEL_WARNING": "0",
        "ANSIBLE_LOOKUP_PLUGINS": str(plugins),
    }
    call = [Path(sys.executable).with_name("ansible"), "-i", "localhost,", "-c", "local", "localhost", "-m", "debug"]

    def value(name, folder, **settings):
        line = [*call, "-a", f"msg=<{{{{ lookup('constant', '{name}') }}}}>"]
        done = warm_ansible.run(line, {**environment, **settings}, folder)
        assert done.returncode == 0, done.stdout + done.stderr
        return re.search("<(.*)>", done.stdout).group(1)

    return value


def test_each_call_has_a_temporary_folder_that_goes_with_it(setting, tmp_path):
    folders = {setting("DEFAULT_LOCAL_TMP", tmp_path) for _call in range(2)}
    assert len(folders) == 2 and not any(Path(folder).exists() for folder in folders)


def test_the_ansible_cfg_of_the_calls_folder_counts_and_no_other(setting, tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    for folder, forks in ((tmp_path, 7), (elsewhere, 8)):
        folder.mkdir(exist_ok=True)
        (folder / "ansible.cfg").write_text(f"[defaults]\nforks = {forks}\n")
    (without := tmp_path / "without").mkdir()
    monkeypatch.chdir(elsewhere)
    # A setting of its own, so that the process begins here.
    found = [setting("DEFAULT_FORKS", folder, ANSIBLE_TIMEOUT="11") for folder in (tmp_path, without)]
    assert found == ["7", "5"]


def test_a_call_with_other_settings_ends_no_process_that_gets_an_order(setting, tmp_path, monkeypatch):
    send = socket.send_fds

    def send_late(*arguments):
        time.sleep(0.5)
        return send(*arguments)

    monkeypatch.setattr(socket, "send_fds", send_late)
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(setting, "DEFAULT_TIMEOUT", tmp_path, ANSIBLE_TIMEOUT=value) for value in ("12", "13")]
        assert [call.result() for call in calls] == ["12", "13"]
