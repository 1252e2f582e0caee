# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.metrics import (
    COUNTER,
    METRICS,
    Metrics,
    Sample,
    expose,
)
from hypothesis import strategies as st

from ....mutation import examples_of, property_of

GPUS, GPU = Metrics.GPUS.value, Metrics.GPU.value


def test_the_format():
    text = expose([Sample(GPUS, 8.0, ("pci",)), Sample(GPUS, 7, ("nvml",)), Sample(Metrics.RUN_DURATION.value, 0.25)])
    assert text == (
        "# HELP gpufleet_last_run_duration_seconds How long reading the host took, in seconds.\n"
        "# TYPE gpufleet_last_run_duration_seconds gauge\n"
        "gpufleet_last_run_duration_seconds 0.25\n"
        "# HELP gpufleet_gpus How many GPUs the PCI bus shows and NVML can reach.\n"
        "# TYPE gpufleet_gpus gauge\n"
        'gpufleet_gpus{seen_by="nvml"} 7\n'
        'gpufleet_gpus{seen_by="pci"} 8\n'
    )


def test_labels_are_escaped_and_what_is_not_known_is_empty():
    text = expose([Sample(GPU, 1, ("0", None, 'a"b', "c\\d", "e\nf"))])
    assert r'{gpu="0",uuid="",pci_address="a\"b",board="c\\d",name="e\nf"} 1' in text
    assert text.count("\n") == 3


def test_a_number_that_does_not_fit_into_a_whole_one_keeps_its_parts():
    assert expose([Sample(Metrics.LAST_RUN.value, 1795404000)]).endswith(" 1795404000\n")


def test_a_sample_with_other_labels_than_its_metric_is_refused():
    with pytest.raises(ValueError, match="gpufleet_gpus"):
        expose([Sample(GPUS, 1)])


_SAMPLES = st.lists(
    st.builds(
        Sample,
        st.just(Metrics.MPS_CLIENTS.value),
        st.integers(0, 99),
        st.tuples(st.text(st.characters(categories=None), max_size=3)),
    )
)


@examples_of()
def test_whatever_users_call_things_each_series_has_one_value(examples):
    @property_of(_SAMPLES, examples)
    def check(samples):
        lines = expose(samples).encode().decode().removesuffix("\n").split("\n")[2:]
        assert len({line.rpartition(" ")[0] for line in lines}) == len(lines)
        assert sum(int(line.rpartition(" ")[2]) for line in lines) == sum(sample.value for sample in samples)


def test_the_table_follows_prometheus_conventions():
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    for metric in METRICS:
        assert re.fullmatch(r"gpufleet_[a-z]+(_[a-z]+)*", metric.name)
        assert metric.name.endswith("_total") == (metric.kind == COUNTER), metric.name
        assert metric.help.endswith(".") and "\n" not in metric.help
        assert all(re.fullmatch(r"[a-z_]+", label) for label in metric.labels)
