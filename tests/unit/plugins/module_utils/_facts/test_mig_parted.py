# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts.environment import (
    MIG_PARTED_FOLDER,
    MIG_PARTED_SERVICE,
    read_mig_parted,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._printable import LONGEST_OUTPUT

DROP_INS = f"/etc/systemd/system/{MIG_PARTED_SERVICE}.d"
#: As mig-parted's utils.sh writes it.
OVERRIDE = '[Service]\nEnvironment="MIG_PARTED_SELECTED_CONFIG={}"\n'


def test_a_host_without_it_has_none(tree):
    assert read_mig_parted(tree.source()) is None
    assert tree.calls == []


def test_file_selection_and_whether_it_is_applied_at_boot(tree):
    tree.write(f"{MIG_PARTED_FOLDER}/config.yaml", "version: v1\n")
    tree.write(f"{DROP_INS}/override.conf", OVERRIDE.format("all-balanced"))
    tree.write(f"/etc/systemd/system/multi-user.target.wants/{MIG_PARTED_SERVICE}", "")
    assert read_mig_parted(tree.source()) == {
        "config_path": f"{MIG_PARTED_FOLDER}/config.yaml",
        "config": "version: v1",
        "selected": "all-balanced",
        "enabled": True,
    }


def test_a_later_drop_in_wins_and_names_another_file_and_comments_say_nothing(tree):
    tree.write(f"{DROP_INS}/10.conf", OVERRIDE.format("first") + "# MIG_PARTED_SELECTED_CONFIG=comment\n")
    tree.write(
        f"{DROP_INS}/20.conf",
        "[Service]\nEnvironment=MIG_PARTED_SELECTED_CONFIG=last MIG_PARTED_CONFIG_FILE=/srv/mig.yaml\n",
    )
    tree.write("/srv/mig.yaml", "version: v1\n")
    found = read_mig_parted(tree.source())
    assert (found["config_path"], found["selected"], found["enabled"]) == ("/srv/mig.yaml", "last", False)
    assert found["config"] == "version: v1"


def test_what_cannot_be_known_is_noted(tree):
    tree.write(f"{MIG_PARTED_FOLDER}/config.yaml", "x" * (LONGEST_OUTPUT + 1))
    source = tree.source(local=False)
    found = read_mig_parted(source)
    assert (found["config"], found["enabled"]) == (None, False)
    assert "longer than" in source.unknown["mig_parted.config"]
