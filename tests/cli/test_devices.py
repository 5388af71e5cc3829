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
