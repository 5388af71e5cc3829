"""The catalogue of devices."""

from __future__ import annotations

import pytest

import hetsched as hs
from hetsched.costs import interconnects
from hetsched.costs.devices import CATALOGUE, REPORTED, device, kind_of, machine, names
from hetsched.costs.interconnects import Interconnect


@pytest.mark.parametrize("kind", names())
def test_every_entry_is_complete_and_cites_its_source(kind):
    entry = CATALOGUE[kind]
    made = device(kind)
    assert (made.name, made.kind, made.node) == (kind, kind, "")
    assert made.peak_flops == dict(entry.peak_flops)
    assert "float32" in made.peak_flops
    assert made.memory_bandwidth == entry.memory_bandwidth > 8e10
    assert 8e9 <= made.memory_bytes == entry.memory_bytes < 1e12
    assert 0 < made.launch_overhead < 1e-4
    assert entry.source.startswith(("NVIDIA", "Intel", "AMD", "Apple"))


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
    with pytest.raises(hs.InvalidProblem, match=r"device kind 'tpu' is not in the catalogue \(skylake, .*epyc9654\); choose one of these"):
        device("tpu")


@pytest.mark.parametrize(("name", "kind"), REPORTED.items())
def test_names_that_drivers_report_are_found_with_their_memory(name, kind):
    entry = CATALOGUE[kind]
    assert kind_of(name) == kind_of(name.upper(), entry.memory_bytes * 1.0737) == kind
    assert kind_of(f"{name} Laptop GPU") is None
    if entry.family == "cuda":
        assert kind_of(f"NVIDIA {name}") == kind
        assert kind_of(name, entry.memory_bytes / 2) is None


def test_a_machine_names_its_devices_and_links_them():
    made = machine(["RTX 4090", "rtx3060", "epyc9654", hs.Device("far", node="b")], "nvlink4", network=Interconnect(1e9, 1e-4, "mine"))
    assert made.cluster.names == ("gpu0", "gpu1", "cpu", "far")
    assert (made.cluster.bandwidth[0, 1], made.cluster.bandwidth[0, 3]) == (405e9, 1e9)
    assert (made.cluster.latency[1, 2], made.cluster.latency[3, 2]) == (5e-6, 1e-4)
    assert machine(["skylake", "epyc9654"]).cluster.names == ("cpu0", "cpu1")
    with pytest.raises(hs.InvalidProblem, match="network is None, but the devices are in 2 nodes; choose from pcie3-x8"):
        machine(["t4", hs.Device("far", node="b")])


def test_links_are_slower_than_their_raw_rates_and_cite_what_is_assumed():
    for name, one in interconnects.LINKS.items():
        assert interconnects.link(name) is one
        assert 0 < one.latency <= 3e-3
        assert "payload" in one.source
    assert interconnects.link("pcie5-x8").bandwidth == 2 * interconnects.link("pcie4-x8").bandwidth < 32e9
    assert interconnects.link("1gbe").bandwidth < 125e6
    with pytest.raises(hs.InvalidProblem, match="link is 'usb'; choose from pcie3-x8, .* or give bandwidth and latency as an Interconnect"):
        interconnects.link("usb")
