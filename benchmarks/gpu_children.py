"""What gpu.py measures in processes of its own: torch.compile, and messages by gloo."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

import gpu_tools as tools
import numpy as np
import torch

WARM_UP = 5


def compiled(given: dict[str, Any]) -> None:
    """Print the seconds of a compiled network, on CUDA also within a CUDA graph, and its deviation from the module, a line of JSON each."""
    from gpu_sections import model

    tools.full_precision()
    device = torch.device(given["device"])
    module, x = model(given["network"], given["size"], given["batch"])
    module, x = module.to(device), x.to(device)
    modes = {"torch.compile": "default"} | ({"torch.compile, CUDA graph": "reduce-overhead"} if device.type == "cuda" else {})
    with torch.no_grad():
        expected = module(x)
        for way, mode in modes.items():
            run = torch.compile(module, mode=mode)
            start = time.perf_counter()
            differs = tools.deviation(run(x), expected)
            compiling = time.perf_counter() - start
            watch = tools.Watch()
            times = tools.in_turn({way: lambda run=run: run(x)}, device, given["runs"], WARM_UP)
            told = {"seconds": times[way], "deviation": differs, "compiling": compiling, "stolen": watch.found()["stolen"]}
            print(json.dumps({"way": way, **told}), flush=True)
            torch.compiler.reset()


def messages(rank: int, store: str, sizes: Sequence[int], runs: int, limit: float, told: Connection) -> None:
    """Send messages to and fro by gloo; pass on for each size half the seconds of each round, and the CPU seconds of this end."""
    from torch import distributed

    distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2, timeout=timedelta(seconds=limit))
    torch.set_num_threads(1)
    found = []
    for size in sizes:
        data = torch.zeros(size, dtype=torch.uint8)
        times, cpu = [], []
        for number in range(-3, runs):
            start, before = time.perf_counter(), time.process_time()
            for sender in (0, 1):
                (distributed.send if rank == sender else distributed.recv)(data, 1 - rank)
            if number >= 0:
                times.append((time.perf_counter() - start) / 2)
                cpu.append((time.process_time() - before) / 2)
        found.append((times, float(np.median(cpu))))
    told.send(found)
    distributed.barrier()
