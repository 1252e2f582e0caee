# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Parameters of the kernel module: what can be one, the file, what the loaded module shows, and the plan."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._distributions.distributions import DISTRIBUTIONS
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.desired import (
    coherent_refusals,
    from_options,
    read,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.running import other_build
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.stage import stage as stage_of_facts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.state import Host
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats import module_parameters
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import by_document

stage = by_document(stage_of_facts)

CDMM = (("NVreg_CoherentGPUMemoryMode", "driver"),)


def test_what_is_wanted_is_written_and_read_again():
    wanted = read({"NVreg_EnableStreamMemOPs": True, "NVreg_RegistryDwords": "PeerMappingOverride=1;"}, "driver")
    assert wanted == (
        ("NVreg_CoherentGPUMemoryMode", "driver"),
        ("NVreg_EnableStreamMemOPs", "1"),
        ("NVreg_RegistryDwords", "PeerMappingOverride=1;"),
    )
    text = module_parameters.text_of(wanted)
    assert "options nvidia NVreg_EnableStreamMemOPs=1\n" in text
    assert module_parameters.configured(text) == dict(wanted)
    assert module_parameters.text_of(()) is None and module_parameters.configured(None) == {}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"EnableMSI": 1}, "begin with NVreg_"),
        ({"NVreg_Enable MSI": 1}, "begin with NVreg_"),
        ({"NVreg_X": "1 softdep"}, "not allowed in a parameter"),
        ({"NVreg_X": "1\ninstall nvidia /bin/sh"}, "not allowed in a parameter"),
        ({"NVreg_X": '"'}, "not allowed in a parameter"),
        ({"NVreg_RegistryDwords": "RmConfidentialCompute=1"}, "confidential computing"),
    ],
)
def test_what_cannot_be_a_parameter_is_refused(given, why):
    with pytest.raises(Refused, match=why):
        from_options({"module_parameters": given})


def test_two_ways_of_saying_the_same_are_refused():
    with pytest.raises(Refused, match="sets NVreg_CoherentGPUMemoryMode too"):
        read({"NVreg_CoherentGPUMemoryMode": "driver"}, "driver")


def test_memory_is_coherent_on_the_boards_of_grace_and_from_580_on():
    assert coherent_refusals(CDMM, 580, {"GPU 0": "gb200-186gb"}) == []
    assert "from branch 580 on" in coherent_refusals(CDMM, 570, {"GPU 0": "gb200-186gb"})[0].reason
    for board in ("h100-80gb-sxm", None):
        assert "GPU 0 has no memory that is coherent" in coherent_refusals(CDMM, 580, {"GPU 0": board})[0].reason
    assert coherent_refusals((), 570, {"GPU 0": "h100-80gb-sxm"}) == []


SHOWN = 'EnableMSI: 1\nEnableStreamMemOPs: 0\nDeviceFileMode: 438\nRmMsg: ""\nCoherentGPUMemoryMode: "driver"\nBig: 4294967295\n'


@pytest.mark.parametrize(
    ("name", "value", "same"),
    [
        ("NVreg_EnableMSI", "1", True),
        ("NVreg_EnableMSI", "0x1", True),
        ("NVreg_EnableStreamMemOPs", "1", False),
        ("NVreg_DeviceFileMode", "0x1b6", True),
        ("NVreg_Big", "-1", True),
        ("NVreg_RmMsg", "", True),
        ("NVreg_CoherentGPUMemoryMode", "driver", True),
        ("NVreg_CoherentGPUMemoryMode", "other", False),
        ("NVreg_NoSuchThing", "1", False),
    ],
)
def test_the_loaded_module_is_compared_as_it_shows_its_parameters(name, value, same):
    shown = module_parameters.loaded(SHOWN, [name])
    assert (module_parameters.differences([(name, value)], shown) == []) is same


def test_parameters_that_nobody_sets_are_warned_of():
    unmanaged = {"nvidia_driver_state": "unmanaged"}
    assert stage({}, unmanaged).warnings == ()
    for options in ({"nvidia_driver_module_parameters": {"NVreg_X": 1}}, {"nvidia_driver_coherent_memory": "driver"}):
        (warning,) = stage({}, {**unmanaged, **options}).warnings
        assert "module parameters are not set" in warning


def test_a_driver_that_is_gone_back_to_may_lack_a_parameter():
    host = Host(DISTRIBUTIONS["debian", "12"], "x86_64", "6.1.0-50-amd64", loaded="570.1")
    given = {"module_parameters": {"NVreg_New": 1}, "persistence": False}
    host = replace(host, configured_parameters={"NVreg_New": "1"})
    assert any("no parameter NVreg_New" in one for one in other_build(host, from_options(given)))
    assert other_build(host, from_options({**given, "state": "previous"})) == []
