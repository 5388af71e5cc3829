"""Cases measured in separate processes."""

from __future__ import annotations

import pickle
import queue
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from hetsched.errors import HetschedError
from hetsched.papers.items import Case, Paper, Row
from hetsched.papers.registry import find_paper
from hetsched.papers.results import Results
from hetsched.processes import Channel, Process, ProcessDied, in_process
from hetsched.search.solution import Solution

MAIN = "hetsched.papers.measuring:serve"


@dataclass(frozen=True)
class Progress:
    """A case was measured; `done` counts the stored results too."""

    done: int
    total: int
    case: Case
    says: str

    def __str__(self) -> str:
        return f"{self.done} of {self.total}: {title(self.case)}: {self.says}"


def measure(
    paper: Paper,
    cases: Sequence[Case],
    results: Results,
    *,
    jobs: int = 1,
    data: Path | None = None,
    on_progress: Callable[[Progress], object] | None = None,
) -> None:
    """Measure the cases without a result, `jobs` at a time, each worker in one thread; every result is stored at once.

    Raises
    ------
    HetschedError
        A case failed, or its process died; the results of the others are stored.
    """
    waiting = [case for case in cases if case not in results][::-1]
    total, done = len(cases), len(cases) - len(waiting)
    inbox: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
    workers: list[Process] = []
    busy: dict[int, Case] = {}

    def give(worker: int) -> None:
        if waiting:
            busy[worker] = waiting.pop()
            workers[worker].send(pickle.dumps((paper.name, busy[worker], data)))

    try:
        for worker in range(min(jobs, len(waiting))):
            workers.append(Process(MAIN, lambda message, worker=worker: inbox.put((worker, message))))  # type: ignore[misc]
            give(worker)
        while busy:
            worker, message = inbox.get()
            case = busy.pop(worker)
            if not isinstance(message, dict):
                ended = f"its process {message}" if isinstance(message, ProcessDied) else message
                raise HetschedError(f"{title(case)} failed: {ended}; what was measured before it is kept, so correct it and run again")
            results.add(case, message)
            done += 1
            if on_progress is not None:
                on_progress(Progress(done, total, case, str(message.get("says", "measured"))))
            give(worker)
    finally:
        for process in workers:
            process.kill()


def serve(log: int) -> NoReturn:
    """Measure case after case in a process of `Process`."""
    channel = Channel(log)
    in_process.set(True)  # solvers too: the CPU time is this process's
    while True:
        name, case, data = channel.requests.get()
        try:
            channel.send(find_paper(name).measure(case, data))
        except Exception as error:
            traceback.print_exc()
            channel.send(f"{type(error).__name__}: {error}")


def timed(call: Callable[[], Any]) -> tuple[Any, Row]:
    """Return the result of a call, and its wall-clock seconds and CPU seconds of all threads."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = call()
    return result, {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}


def improvements(solution: Solution) -> list[list[float]]:
    """Return the seconds at which a solve found each better schedule, and its makespan."""
    times, values = solution.history.time, solution.history.incumbent
    better = np.flatnonzero(values < np.concatenate([[np.inf], values[:-1]]))
    return [[round(float(times[x]), 4), float(values[x])] for x in better]


def title(case: Case) -> str:
    """Return the values of a case on one line."""
    return " ".join(str(value) for value in case.values())
