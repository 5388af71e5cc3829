"""The catalogue of devices."""

from __future__ import annotations

import pytest

import hetsched as hs
from hetsched.costs.devices import device, kind_of, machine, names, sources
from hetsched.problem import interconnects
from hetsched.problem.catalogue import CATALOGUE, REPORTED
from hetsched.problem.interconnects import Interconnect


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
    assert entry.source.startswith(("NVIDIA", "Intel", "AMD", "Apple", "Google"))


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
    with pytest.raises(hs.InvalidProblem, match="device kind 'tpu' is not in the catalogue, which has tpu-v5e; choose one that hetsched"):
        device("tpu")


@pytest.mark.parametrize(("name", "kind"), REPORTED.items())
def test_names_that_drivers_report_are_found_with_their_memory(name, kind):
    entry = CATALOGUE[kind]
    assert kind_of(name) == kind_of(name.upper(), entry.memory_bytes * 1.0737) == kind
    assert kind_of(f"{name} Laptop GPU") is None
    if entry.family == "cuda":
        assert kind_of(f"NVIDIA {name}") == kind
        assert kind_of(name, entry.memory_bytes / 2) is None


def test_a_cluster_takes_names_of_the_catalogue():
    made = hs.Cluster(["T4", "rtx 4060", "t4", "epyc9654"])
    assert made.names == ("t4-0", "rtx4060", "t4-1", "epyc9654")
    assert made.devices[:2] == (device("t4", "t4-0"), device("rtx4060"))
    third, fourth = (interconnects.link(name) for name in ("pcie3-x16", "pcie4-x8"))
    assert (made.bandwidth[0, 2], made.bandwidth[1, 3], made.latency[3, 1]) == (third.bandwidth, fourth.bandwidth, fourth.latency)
    assert hs.Cluster(["t4", "a100"], 5.0).bandwidth[0, 1] == 5.0
    assert hs.Cluster(["t4", "a100"], 5.0).latency[0, 1] == 0.0
    assert hs.Cluster(["t4", hs.Device("x")], 5.0).devices[0] == device("t4")


@pytest.mark.parametrize("names", [["p4", "p5"], ["a10", "cpu"]])
def test_names_are_no_kinds_unless_all_are(names):
    assert hs.Cluster(names, 1.0).devices == tuple(map(hs.Device, names))


@pytest.mark.parametrize("devices", [["epyc9654", "skylake"], ["t4", "apple-m4"], ["t4", hs.Device("x")], ["a", "b"]])
def test_links_are_required_where_no_data_sheet_has_them(devices):
    with pytest.raises(hs.InvalidProblem, match="bandwidth is missing"):
        hs.Cluster(devices)


def test_every_kind_has_a_link_or_none():
    assert {entry.link for entry in CATALOGUE.values()} <= {"", *interconnects.LINKS}
    wanted = "l4 a10 a30 l40s h200 b200 rtx3060 rtx5090 mi250x mi300x jetson-agx-orin apple-m2 apple-m4-max xeon8480 epyc7763 tpu-v5e"
    assert set(wanted.split()) <= set(CATALOGUE)


# Peaks as the vendors print them: Ada white paper, Jetson data sheets (half of the sparse figures), AMD's data sheets.
@pytest.mark.parametrize(
    ("kind", "dtype", "teraflops"),
    [
        ("rtx4080", "float32", 48.7),
        ("rtx4070ti", "float32", 40.1),
        ("rtx4080", "int8", 389.9),
        ("rtx3080", "float32", 29.8),
        ("rtx3070", "float16", 40.6),
        ("rtx5080", "float16", 112.6),
        ("rtx5070", "float32", 30.9),
        ("jetson-agx-orin", "int8", 85),
        ("jetson-orin-nano", "int8", 33.5),
        ("jetson-orin-nx", "float32", 1.88),
        ("xeon8380", "float64", 2.944),
        ("epyc7763", "float64", 2.509),
    ],
)
def test_derived_peaks_agree_with_printed_ones(kind, dtype, teraflops):
    assert CATALOGUE[kind].peak_flops[dtype] == pytest.approx(teraflops * 1e12, rel=0.005)


# Of a GPU: the boost clock in GHz, float32 operations and those of float16 products a clock in each multiprocessor, and the bits and Gbit/s
# a pin of its memory. The tensor cores of an H100 are stated at another clock.
CLOCKS = {
    "p100": (1.48, 128, 256, 4096, 1.43),
    "v100": (1.53, 128, 1024, 4096, 1.755),
    "t4": (1.59, 128, 1024, 256, 10),
    "rtx2080ti": (1.545, 128, 512, 352, 14),
    "a10": (1.695, 256, 1024, 384, 12.5),
    "a30": (1.44, 128, 2048, 3072, 2.43),
    "a100": (1.41, 128, 2048, 5120, 2.43),
    "a100-80gb": (1.41, 128, 2048, 5120, 3.186),
    "rtxa6000": (1.8, 256, 1024, 384, 16),
    "rtx3060": (1.777, 256, 512, 192, 15),
    "rtx3060ti": (1.665, 256, 512, 256, 14),
    "rtx3070": (1.725, 256, 512, 256, 14),
    "rtx3070ti": (1.77, 256, 512, 256, 19),
    "rtx3080": (1.71, 256, 512, 320, 19),
    "rtx3080ti": (1.665, 256, 512, 384, 19),
    "rtx3090": (1.695, 256, 512, 384, 19.5),
    "rtx3090ti": (1.86, 256, 512, 384, 21),
    "l4": (2.04, 256, 1024, 192, 12.5),
    "l40s": (2.52, 256, 1024, 384, 18),
    "rtx4060": (2.46, 256, 512, 128, 17),
    "rtx4060ti": (2.535, 256, 512, 128, 18),
    "rtx4070": (2.475, 256, 512, 192, 21),
    "rtx4070super": (2.475, 256, 512, 192, 21),
    "rtx4070ti": (2.61, 256, 512, 192, 21),
    "rtx4070tisuper": (2.61, 256, 512, 256, 21),
    "rtx4080": (2.505, 256, 512, 256, 22.4),
    "rtx4080super": (2.55, 256, 512, 256, 23),
    "rtx4090": (2.52, 256, 512, 384, 21),
    "h100": (1.98, 256, 4096 * 1.83 / 1.98, 5120, 5.235),
    "h200": (1.98, 256, 4096 * 1.83 / 1.98, 6144, 6.25),
    "b200": (1.98, 256, 8192 * 1.856 / 1.98, 8192, 7.52),
    "rtx5060": (2.497, 256, 512, 128, 28),
    "rtx5060ti": (2.572, 256, 512, 128, 28),
    "rtx5070": (2.512, 256, 512, 192, 28),
    "rtx5070ti": (2.452, 256, 512, 256, 28),
    "rtx5080": (2.617, 256, 512, 256, 30),
    "rtx5090": (2.407, 256, 512, 512, 28),
    "jetson-agx-orin": (1.3, 256, 2048, 256, 6.4),
    "jetson-orin-nx": (0.918, 256, 2048, 128, 6.4),
    "jetson-orin-nano": (1.02, 256, 2048, 128, 6.4),
    "mi250x": (1.7, 128, 1024, 8192, 3.2),
    "mi300x": (2.1, 256, 2048, 8192, 5.2),
}
CACHE = {"rtx30": 0.5, "rtx40": 8, "rtx50": 8}
"""Mebibytes of the last cache for each memory controller of 32 bits, if no part of it is off."""


@pytest.mark.parametrize("kind", CLOCKS)
def test_figures_are_those_of_units_clocks_and_memory(kind):
    clock, plain, products, bits, rate = CLOCKS[kind]
    entry = CATALOGUE[kind]
    assert entry.peak_flops["float32"] == pytest.approx(entry.units * plain * clock * 1e9, rel=0.01)
    assert entry.peak_flops["float16"] == pytest.approx(entry.units * products * clock * 1e9, rel=0.02)
    assert entry.memory_bandwidth == pytest.approx(bits * rate / 8 * 1e9, rel=0.01)
    if kind[:5] in CACHE:
        whole = bits / 32 * CACHE[kind[:5]] * 2**20
        assert entry.cache_bytes <= whole if kind[:5] != "rtx30" else entry.cache_bytes == whole


def test_all_gpus_of_data_sheets_have_a_clock_to_compare():
    assert {kind for kind, entry in CATALOGUE.items() if entry.family in ("cuda", "rocm")} - set(CLOCKS) == {"p4"}  # it states a range


@pytest.mark.parametrize("kind", names())
def test_each_figure_has_a_source(kind):
    told = sources(kind)
    figures = CATALOGUE[kind].figures
    stated = {*figures.pop("peak_flops"), *(name for name, value in figures.items() if value is not None)} - {"family"}
    assert set(told) == stated
    assert all(told.values())


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
