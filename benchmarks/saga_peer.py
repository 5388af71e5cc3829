"""Measure anrg-saga's schedulers on one instance; run by the Python of a venv that has anrg-saga.

    python saga_peer.py INSTANCE.json REPEATS [SCHEDULER ...]

prints a JSON object {scheduler: {"cpu_s": ..., "makespan": ...}}.
"""

from __future__ import annotations

import importlib
import json
import logging
import sys
import time

CLASSES = {
    "heft": "saga.schedulers.heft.HeftScheduler",
    "cpop": "saga.schedulers.cpop.CpopScheduler",
    "etf": "saga.schedulers.etf.ETFScheduler",
    "min-min": "saga.schedulers.minmin.MinMinScheduler",
    "max-min": "saga.schedulers.maxmin.MaxMinScheduler",
    "sufferage": "saga.schedulers.sufferage.SufferageScheduler",
}


def main(path: str, repeats: int, names: list[str]) -> None:
    """Print the least CPU time of `repeats` runs and the makespan of each scheduler."""
    logging.disable(logging.WARNING)
    from saga import Network, TaskGraph
    from saga.schedulers import cpop

    with open(path) as file:
        data = json.load(file)
    size = data["m"]
    links = [(f"d{h}", f"d{k}", data["bw"][h][k]) for h in range(size) for k in range(h + 1, size)]
    network = Network.create([(f"d{k}", data["speed"][k]) for k in range(size)], links)
    arcs = [(f"t{i}", f"t{j}", amount) for (i, j), amount in zip(data["edges"], data["size"], strict=True)]
    graph = TaskGraph.create([(f"t{i}", cost) for i, cost in enumerate(data["cost"])], arcs)
    result = {}
    for name in names:
        module, _, cls = CLASSES[name].rpartition(".")
        scheduler = getattr(importlib.import_module(module), cls)()
        times = []
        for _ in range(repeats):
            cpop.upward_rank.cache_clear()  # it keeps the ranks of the last call; every call should pay for its own
            started = time.process_time()
            schedule = scheduler.schedule(network, graph)
            times.append(time.process_time() - started)
        result[name] = {"cpu_s": min(times), "makespan": schedule.makespan}
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:] or list(CLASSES))
