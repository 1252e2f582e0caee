# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Slices, replicas, MPS limits and N GiB over M GPUs. The limits are those that the real MPS daemon was seen to set."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing import modes


@pytest.mark.parametrize(
    ("text", "mib"),
    [("4GiB", 4096), ("512MiB", 512), (" 4 GiB ", 4096), ("1.5GiB", 1536), ("1TiB", 1048576), ("0.5GiB", 512)],
)
def test_memory(text, mib):
    assert modes.memory_mib(text, "x") == mib


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("4GB", "4GiB?"),
        ("4G", "4GiB?"),
        ("4gb", "4GiB?"),
        ("512M", "512MiB?"),
        ("4", "4GiB?"),
        ("4Gi", "4GiB?"),
        ("four", "4GiB"),
        ("", "4GiB"),
        ("-4GiB", "4GiB"),
        ("0GiB", "4GiB"),
        ("0.3MiB", "4GiB"),
    ],
)
def test_ambiguous_or_impossible_memory_is_refused_with_a_remedy(text, remedy):
    with pytest.raises(Refused) as refusal:
        modes.memory_mib(text, "nvidia_sharing_memory_slice")
    assert refusal.value.thing == "nvidia_sharing_memory_slice"
    assert remedy in refusal.value.remedy


@pytest.mark.parametrize(
    ("total", "replicas", "memory", "threads"),
    [(81920, 4, 20480, 25), (81920, 3, 27306, 33), (81920, 48, 1706, 2), (16384, 17, 963, 5), (81920, 20, 4096, 5)],
)
def test_limits_of_the_real_daemon(total, replicas, memory, threads):
    limits = modes.mps_limits(total, replicas)
    assert (limits.memory_mib, limits.percentage) == (memory, threads)


@pytest.mark.parametrize(
    ("total", "slice_mib", "replicas"), [(46068, 4096, 11), (81559, 4096, 19), (15360, 7168, 2), (40960, 20480, 2)]
)
def test_replicas(total, slice_mib, replicas):
    assert modes.replicas_of(total, slice_mib, "x") == replicas


def test_a_slice_that_does_not_fit_twice_is_refused_with_the_largest_that_does():
    with pytest.raises(Refused, match="7680MiB"):
        modes.replicas_of(15360, 8192, "x")


def test_more_clients_than_there_are_is_refused_with_the_limit():
    modes.refuse_too_many_clients(48, 48, "a GPU", "x")
    with pytest.raises(Refused, match="MPS on a GPU allows at most 48 clients, not 49"):
        modes.refuse_too_many_clients(49, 48, "a GPU", "x")


def test_eight_over_two_is_four_on_each():
    assert modes.share("8GiB", 2, "x").per_gpu_mib == 4096


@pytest.mark.parametrize(
    ("memory", "gpus", "near"), [("9GiB", 2, "8GiB or 10GiB"), ("1GiB", 2, "2GiB"), ("3MiB", 2, "2MiB or 4MiB")]
)
def test_n_not_divisible_by_m_is_refused_in_the_unit_it_is_written_in(memory, gpus, near):
    with pytest.raises(Refused) as refusal:
        modes.share(memory, gpus, "x")
    assert near in refusal.value.remedy


def test_no_gpus_is_no_request():
    with pytest.raises(Refused, match="is not a valid request"):
        modes.share("8GiB", 0, "x")
