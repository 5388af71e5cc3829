"""`hetsched devices`: the catalogue, and what this machine has of it."""

from __future__ import annotations

import json

import hetsched as hs
from tests.cli.test_machine import TWO, system  # noqa: F401


def test_it_lists_this_machine_before_the_catalogue(run, system):  # noqa: F811
    system(None)
    assert run("devices").stdout.startswith("cpu       AMD EPYC 9654 96-Core Processor, 67.11 GB: epyc9654")
    system(TWO, processor="Some CPU")
    lines = run("devices").stdout.splitlines()
    assert lines[:3] == [
        "gpu0      NVIDIA GeForce RTX 4090, 25.76 GB: rtx4090 (nvidia-smi)",
        "gpu1      NVIDIA GeForce RTX 3060, 12.88 GB: rtx3060 (nvidia-smi)",
        "cpu       Some CPU, 67.11 GB: not in the list (/proc/meminfo)",
    ]
    assert [line.split()[0] for line in lines[4:]] == [*hs.costs.devices.names(), *hs.costs.interconnects.names()]
    facts = json.loads(run("devices", "--json").stdout)
    assert [one["kind"] for one in facts["here"]] == ["rtx4090", "rtx3060", None]
    assert facts["devices"]["t4"]["source"].startswith("NVIDIA T4 data sheet")
    assert facts["devices"]["t4"]["sources"] == hs.costs.devices.sources("t4")


def test_each_figure_of_a_kind_has_its_source(run):
    lines = run("devices", "RTX 4090").stdout.splitlines()
    told = hs.costs.devices.sources("rtx4090")
    assert [line.split()[0] for line in lines] == list(told)
    assert all(line.endswith(f"({source})") for line, source in zip(lines, told.values(), strict=True))
    assert lines[0].split()[1:3] == ["8.26e+13", "FLOP/s"]
    facts = json.loads(run("devices", "rtx4090", "--json").stdout)
    assert facts["figures"]["memory_bandwidth"] == {"value": 1008e9, "source": told["memory_bandwidth"]}
    assert "device kind 'rtx4095' is not in the catalogue, which has rtx4090" in run("devices", "rtx4095").stderr
