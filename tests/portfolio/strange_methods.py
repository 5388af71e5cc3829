"""Methods registered when this module is imported, also by worker processes, and a problem for them."""

from __future__ import annotations

import os
import sys

import numpy as np

import hetsched as hs
from hetsched.search import Monitor


def tangle(n: int = 60, devices: int = 3) -> hs.Problem:
    """Return a problem that takes any exact method long."""
    rng = np.random.default_rng(0)
    edges = sorted({(int(i), j) for j in range(1, n) for i in rng.integers(max(0, j - 10), j, 2)})
    graph = hs.TaskGraph([f"t{i}" for i in range(n)], np.array(edges), edge_bytes=rng.random(len(edges)))
    return hs.Problem(graph, hs.Cluster([f"d{k}" for k in range(devices)], bandwidth=1.0), durations=rng.random((n, devices)) + 0.1)


@hs.method("crashes", summary="offers all on the first device, then its process ends", source="a test")
def crashes(problem: hs.Problem, monitor: Monitor) -> None:
    monitor.run("olb")
    sys.stdout.flush()
    os._exit(3)


@hs.method("prints", summary="prints all over standard output, then offers", source="a test")
def prints(problem: hs.Problem, monitor: Monitor) -> None:
    print("noise " * 1000, flush=True)  # noqa: T201
    os.write(1, b"\x80\x05more noise\n")
    monitor.run("heft")


@hs.method("raises", summary="finds something, then fails", source="a test")
def raises(problem: hs.Problem, monitor: Monitor) -> None:
    monitor.run("olb")
    raise RuntimeError("out of luck")


@hs.method("exits", summary="finds something, then asks the process to end", source="a test")
def exits(problem: hs.Problem, monitor: Monitor) -> None:
    monitor.run("olb")
    raise SystemExit(4)


@hs.method("tells-pid", summary="notes in which process it ran", source="a test")
def tells_pid(problem: hs.Problem, monitor: Monitor) -> None:
    monitor.note(f"ran in {os.getpid()}")
    monitor.run("heft")


@hs.method("wanders", summary="moves a task at a time to a random device until it is stopped", source="a test")
def wanders(problem: hs.Problem, monitor: Monitor) -> None:
    order = problem.graph.topological_order
    device = monitor.rng.integers(0, problem.n_devices, problem.n_tasks)
    if monitor.best is not None:
        device[monitor.best.decision.task] = monitor.best.decision.device
    best = np.inf
    for _ in monitor:
        trial = device.copy()
        trial[monitor.rng.integers(problem.n_tasks)] = monitor.rng.integers(problem.n_devices)
        makespan = monitor.offer(hs.Decision.whole(problem, trial, order))
        if makespan <= best:
            device, best = trial, makespan
