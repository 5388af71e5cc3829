"""The catalogue of devices."""

from __future__ import annotations

import pytest

import hetsched as hs
from hetsched.costs.devices import CATALOGUE, device, names


@pytest.mark.parametrize("kind", names())
def test_every_entry_is_complete_and_cites_its_source(kind):
    entry = CATALOGUE[kind]
    made = device(kind)
    assert (made.name, made.kind, made.node) == (kind, kind, "")
    assert made.peak_flops == dict(entry.peak_flops)
    assert "float32" in made.peak_flops
    assert made.memory_bandwidth == entry.memory_bandwidth > 1e11
    assert 8e9 <= made.memory_bytes == entry.memory_bytes < 1e12
    assert 0 < made.launch_overhead < 1e-4
    assert entry.source.startswith(("NVIDIA", "Intel"))


def test_peaks_are_consistent_between_dtypes():
    for kind in names():
        peak = CATALOGUE[kind].peak_flops
        width = [peak[dtype] for dtype in ("float64", "float32", "float16") if dtype in peak]
        assert width == sorted(width), kind
        assert peak.get("bfloat16", peak.get("float16")) == peak.get("float16")


def test_kinds_are_found_as_people_write_them_and_figures_can_be_replaced():
    assert device("RTX 2080 Ti") == device("rtx2080ti") == device("rtx-2080_ti")
    made = device("A100", "gpu0", "host1", memory_bytes=80e9, launch_overhead=0.0)
    assert (made.name, made.kind, made.node, made.memory_bytes, made.launch_overhead) == ("gpu0", "a100", "host1", 80e9, 0.0)


def test_unknown_kind():
    with pytest.raises(hs.InvalidProblem, match=r"device kind 'tpu' is not in the catalogue \(skylake, .*h200\); choose one of these"):
        device("tpu")
