"""torch.compile for one network, in a process of its own."""

from __future__ import annotations

import json
import time
from typing import Any

import gpu_tools as tools
import torch
from gpu_sections import model

WARM_UP = 5


def answer(given: dict[str, Any]) -> None:
    """Print the seconds of a compiled network, and its deviation from the module, as JSON."""
    tools.full_precision()
    device = torch.device(given["device"])
    module, x = model(given["network"], given["size"], given["batch"])
    module, x = module.to(device), x.to(device)
    with torch.no_grad():
        expected = module(x)
        run = torch.compile(module)
        start = time.perf_counter()
        differs = tools.deviation(run(x), expected)
        compiling = time.perf_counter() - start
        watch = tools.Watch()
        times = tools.in_turn({"torch.compile": lambda: run(x)}, device, given["runs"], WARM_UP)
    print(json.dumps({"seconds": times["torch.compile"], "deviation": differs, "compiling": compiling, "stolen": watch.found()["stolen"]}))
