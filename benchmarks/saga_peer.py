"""Measure anrg-saga's schedulers on one instance; run by the Python of a venv that has anrg-saga.

    python saga_peer.py INSTANCE.json LIMIT SCHEDULER...

prints a line {"name": ..., "cpu_s": ..., "makespan": ...} for each scheduler class that this version
has, first one named "build" for making SAGA's network and task graph. A call of more than LIMIT seconds
of CPU time is interrupted, and its makespan is null.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
import time
from typing import Any

REPEATS, SECONDS = 5, 1.0
"""A scheduler is called again until it has had this number of calls or of seconds."""


class OverTime(BaseException):
    """The time limit was exceeded."""


def _over_time(*_: object) -> None:
    raise OverTime


def build(data: dict[str, Any]) -> tuple[Any, Any]:
    """Return SAGA's network and task graph of an instance."""
    from saga import Network, TaskGraph

    size = data["m"]
    links = [(f"d{h}", f"d{k}", data["bw"][h][k]) for h in range(size) for k in range(h + 1, size)]
    network = Network.create([(f"d{k}", data["speed"][k]) for k in range(size)], links)
    arcs = [(f"t{i}", f"t{j}", amount) for (i, j), amount in zip(data["edges"], data["size"], strict=True)]
    return network, TaskGraph.create([(f"t{i}", cost) for i, cost in enumerate(data["cost"])], arcs)


def measure(scheduler: Any, network: Any, graph: Any, limit: float) -> tuple[float, float | None]:
    """Return the least CPU time of some calls and the makespan, or the limit and None."""
    from saga.schedulers import cpop

    signal.signal(signal.SIGPROF, _over_time)
    times: list[float] = []
    while len(times) < REPEATS and sum(times) < SECONDS:
        for ranks in (cpop.upward_rank, cpop.cpop_ranks):  # they cache results, which every call should compute
            ranks.cache_clear()
        signal.setitimer(signal.ITIMER_PROF, limit)
        try:
            started = time.thread_time()  # process_time counts in ticks while such a timer runs
            schedule = scheduler.schedule(network, graph)
            times.append(time.thread_time() - started)
        except OverTime:
            return limit, None
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    return min(times), schedule.makespan


def main(path: str, limit: float, names: list[str]) -> None:
    """Print a line for each scheduler as it is done."""
    logging.disable(logging.WARNING)
    with open(path) as file:
        data = json.load(file)
    from saga import schedulers  # before the clock starts

    started = time.thread_time()
    network, graph = build(data)
    print(json.dumps({"name": "build", "cpu_s": time.thread_time() - started, "makespan": None}), flush=True)
    for name in names:
        if hasattr(schedulers, name):
            seconds, makespan = measure(getattr(schedulers, name)(), network, graph, limit)
            print(json.dumps({"name": name, "cpu_s": seconds, "makespan": makespan}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), sys.argv[3:])
