"""Cases measured in separate processes, of this machine or by the workers of a dask client."""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
import json
import math
import os
import pickle
import platform
import queue
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

import numpy as np

from hetsched.arguments import COUNT, checked, rule, shown
from hetsched.errors import InvalidArgument
from hetsched.experiments.results import Case, Results, Row, key, machine
from hetsched.processes import Channel, Peer, ProcessDied, Ready, Start, in_process
from hetsched.remote import processes
from hetsched.search import cores
from hetsched.search.solution import Solution

MAIN = "hetsched.experiments.runner:serve"
GRACE = 30.0
"""Seconds that a case may take beyond twice its limit."""
PREPARING = 600.0
"""Seconds that the preparation of a case may take: imports, and kernels that are not compiled yet."""
LOSSES = 2
"""How often a case is begun again because its worker was lost."""
LONGEST = 3600.0  # seconds without a look at the clock
LATE = object()  # in place of a message
CLIENT = rule("a client of dask.distributed", lambda given: hasattr(given, "get_executor") and hasattr(given, "nthreads"))


class Job(NamedTuple):
    """A case and the work that measures it, which another process can import."""

    case: Case
    work: Callable[[Case], Row]
    prepare: Callable[[Case], object] | None = None
    """Called before the measurement, and outside its limit."""
    limit: float | None = None
    """Seconds; the process is killed after twice as many and `GRACE`."""


@dataclass(frozen=True)
class Progress:
    """A case has ended; `done` counts those of earlier runs too."""

    done: int
    total: int
    case: Mapping[str, Any]
    says: str
    """The result in a few words."""
    failed: bool = False

    def __str__(self) -> str:
        return f"{self.done} of {self.total}: {title(self.case)}: {self.says}"


@checked(jobs=COUNT, client=CLIENT.or_none)
def run(
    cases: Iterable[Any],
    work: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None,
    *,
    results: Results | str | os.PathLike[str] | None = None,
    jobs: int = 1,
    client: Any = None,
    fresh: bool = False,
    prepare: Callable[[Mapping[str, Any]], object] | None = None,
    limit: Callable[[Mapping[str, Any]], float | None] | None = None,
    on_progress: Callable[[Progress], object] | None = None,
) -> Results:
    """Measure the cases that have no result yet, each in one thread, and store every record at once.

    A case that raises an error, whose process dies, or that takes more than twice its limit and 30 s, is recorded as a failure, and the
    others go on; the next run tries it again. If a worker of `client` is lost, its case is measured on another one, twice at most.

    Parameters
    ----------
    cases : iterable of SolveCase, or of mappings with `work`
        What to measure, see `hetsched.experiments.cases`. Equal cases are measured once.
    work : callable, optional
        Measures a case, given as a mapping of JSON values, and returns a mapping of JSON values; of a module that other processes can
        import. The text under "says", if any, is told as progress.
    results : Results or path, optional
        Where records are kept, and found by a later run. Default: they are kept for this call only.
    jobs : int
        Cases measured at once; more than there are free cores disturbs the times.
    client : dask.distributed.Client, optional
        Its workers measure the cases, as many at once as they have threads, in processes beside them.
    fresh : bool
        Measure all cases again; the new records replace those there are.
    prepare : callable, optional
        With `work`: called in the same process before it, and not measured.
    limit : callable, optional
        With `work`: returns the limit of a case in seconds, or None.
    on_progress : callable, optional
        Called with a `Progress` after each case.

    Returns
    -------
    Results

    Raises
    ------
    InvalidArgument
        A case is none, or `work` cannot be imported by other processes.
    """
    store = results if isinstance(results, Results) else Results(results)
    every = {key(job.case): job for job in _jobs(cases, work, prepare, limit)}
    left = [job for job in every.values() if fresh or job.case not in store]
    done = len(every) - len(left)
    executor = None if client is None else client.get_executor()
    with processes(executor) as start:
        for job, reply in _apart(left, jobs if executor is None else cores(executor), start):
            store.add(job.case, **reply)
            done += 1
            if on_progress is not None:
                failure = reply.get("failure")
                says = f"{failure['status']}: {failure['error']}" if failure else str(reply["result"].get("says", "measured"))
                on_progress(Progress(done, len(every), job.case, says, failure is not None))
    return store


def _jobs(cases: Iterable[Any], work: Any, prepare: Any, limit: Any) -> Iterator[Job]:
    if work is None and not (prepare is None and limit is None):
        raise InvalidArgument("prepare and limit are given without work; cases to be solved have their own")
    for function in (work, prepare):
        plain = function
        while isinstance(plain, functools.partial):
            plain = plain.func
        if getattr(plain, "__module__", "") == "__main__":
            raise InvalidArgument(f"{plain.__name__!r} is a function of a script, which other processes cannot import; move it to a module")
    for case in cases:
        if work is None and isinstance(made := getattr(case, "job", None), Job):
            yield made
        elif work is not None and isinstance(case, Mapping):
            yield Job(dict(case), work, prepare, None if limit is None else limit(case))
        else:
            expected = "a SolveCase, which hetsched.experiments.cases makes" if work is None else "a mapping of JSON values for `work`"
            raise InvalidArgument(f"a case is {shown(case)}; it must be {expected}")


def _pickled(job: Job) -> bytes:
    try:
        return pickle.dumps(job)
    except Exception as error:
        raise InvalidArgument(f"{title(job.case)} cannot be sent to another process: {error}; use functions of modules") from None


class _Task(NamedTuple):
    """A job under way in a process, which is killed at `end`."""

    process: Peer
    job: Job
    end: float
    allowed: str
    """The time until then in words."""
    begun: bool
    """Whether the process was seen to be started, so that the time counts."""


def _apart(left: list[Job], jobs: int, start: Start) -> Iterator[tuple[Job, Row]]:
    """Measure jobs in processes, and yield each with its record."""
    waiting = left[::-1]
    inbox: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
    busy: dict[int, _Task] = {}
    numbers = itertools.count()
    losses = collections.Counter[str]()

    def begin(number: int, process: Peer | None = None) -> None:
        """Begin the next job in a process, by default a new one."""
        process = process or start(MAIN, lambda message: inbox.put((number, message)))
        job = waiting.pop()
        busy[number] = _Task(process, job, time.monotonic() + PREPARING, f"{PREPARING:g} s of preparation", process.begun)
        process.send(pickle.dumps(_pickled(job)))  # twice a pickle, so that an error of the inner one is a failure of the job

    try:
        for _ in range(min(jobs, len(waiting))):
            begin(next(numbers))
        while busy:
            number = min(busy, key=lambda number: busy[number].end)
            message: Any = LATE
            with contextlib.suppress(queue.Empty):
                number, message = inbox.get(timeout=min(max(0.0, busy[number].end - time.monotonic()), LONGEST))
            if number not in busy or (message is LATE and busy[number].end > time.monotonic()):
                continue  # the end of a process that was killed, or an hour has passed
            process, job, _, allowed, begun = busy[number]
            if message is LATE and not begun:
                busy[number] = busy[number]._replace(begun=process.begun, end=time.monotonic() + PREPARING)
                continue
            if isinstance(message, Ready):
                seconds = math.inf if job.limit is None else 2 * job.limit + GRACE
                allowed = "" if job.limit is None else f"twice its limit of {job.limit:g} s and {GRACE:g} s"
                busy[number] = _Task(process, job, time.monotonic() + seconds, allowed, begun=True)
                continue
            del busy[number]
            alive = isinstance(message, dict)
            lost = isinstance(message, ProcessDied) and message.exit_code is None and losses[key(job.case)] < LOSSES
            if lost:
                losses[key(job.case)] += 1
                waiting.insert(0, job)
            elif message is LATE:
                message = {"failure": {"status": "late", "error": f"its process was ended after {allowed}"}}
            elif not alive:
                message = {"failure": {"status": "failed", "error": f"its process {message}"}}
            if not alive or not waiting:
                process.kill()
            if waiting:
                begin(number, process) if alive else begin(next(numbers))
            if not lost:
                yield job, message
    finally:
        for task in busy.values():
            task.process.kill()


def serve(log: int) -> NoReturn:
    """Measure case after case in a process of `Process`."""
    channel = Channel(log)
    while True:
        channel.send(perform(channel.requests.get(), lambda: channel.send(Ready())))


def perform(message: bytes, begin: Callable[[], object] = lambda: None) -> Row:
    """Return the record of a pickled job: its result, or its failure; `begin` is called after its preparation."""
    before = in_process.set(True)  # solvers too: the CPU time is this process's
    try:
        job: Job = pickle.loads(message)
        if job.prepare is not None:
            job.prepare(job.case)
        begin()
        record: Row = {"result": json.loads(json.dumps(dict(job.work(job.case))))}
    except (Exception, SystemExit) as error:
        record = {"failure": {"status": "failed", "error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}}
    finally:
        in_process.reset(before)
    return {**record, "host": platform.node(), "where": machine()}


def timed(call: Callable[[], Any]) -> tuple[Any, Row]:
    """Return the result of a call, and its wall-clock seconds and CPU seconds of all threads and of processes that have ended."""
    wall, cpu = time.perf_counter(), _cpu_seconds()
    result = call()
    return result, {"wall_s": time.perf_counter() - wall, "cpu_s": _cpu_seconds() - cpu}


def _cpu_seconds() -> float:
    """Return the CPU seconds of this process, and of those that it has started and that have ended."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def improvements(solution: Solution) -> list[list[float]]:
    """Return the seconds at which a solve found each better schedule, and its makespan."""
    times, values = solution.history.time, solution.history.incumbent
    better = np.flatnonzero(values < np.concatenate([[np.inf], values[:-1]]))
    return [[round(float(times[x]), 4), float(values[x])] for x in better]


def title(case: Case) -> str:
    """Return the values of a case on one line, without the digest of a problem."""
    values = [value for name, value in case.items() if name not in ("digest", "family")]
    return " ".join(_words(value) for value in values if value not in ({}, ""))


def _words(value: Any) -> str:
    return ",".join(f"{name}={part}" for name, part in value.items()) if isinstance(value, Mapping) else str(value)
