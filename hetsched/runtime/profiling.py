"""The profile of a module on devices of this machine: times and memory of its tasks, hand-offs, and the time of dispatching."""

from __future__ import annotations

import itertools
import math
import os
import threading
import time
from _thread import allocate_lock
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from hetsched.arguments import check_count, checked
from hetsched.arrays import FloatArray
from hetsched.costs.communication import SIZES
from hetsched.costs.machine import Machine, Overhead
from hetsched.costs.measurements import CopyTime, Network
from hetsched.costs.profile import Profile
from hetsched.costs.recording import Recorder
from hetsched.costs.timeline import Timeline
from hetsched.errors import InvalidProblem
from hetsched.problem.cluster import Cluster, Device
from hetsched.problem.problem import Problem
from hetsched.runtime.digests import Computations
from hetsched.runtime.executor import Executor
from hetsched.runtime.places import Place, Where
from hetsched.runtime.profiler import ModuleProfiler
from hetsched.runtime.program import Program
from hetsched.schedule.decision import Decision

PINGS = 500
"""Hand-offs of which the median is taken."""
PAUSE = 1e-4
"""Seconds before each hand-off, in which the receiver begins to wait."""
CEILING = 1024
"""Rows and columns of the matrices whose product shows the peak of a CPU."""
COPIED = 2**24
"""Numbers of four bytes whose copy shows the bandwidth of its memory."""
ATTEMPTS = 5
DISPATCHES = 10
"""Runs of all tasks on one device, from which the time of dispatching them is taken."""
GATHERED, GATHERS = (2**12, 2**22), 30
"""Bytes of the values whose putting together is measured, and how often."""


@checked(InvalidProblem)
def profile(
    module: torch.nn.Module | Program,
    example_args: tuple[Any, ...] | torch.Tensor,
    *,
    devices: Mapping[str, Where] | None = None,
    batch_sizes: Iterable[int] | None = None,
    example_kwargs: Mapping[str, Any] | None = None,
    dynamic_batch: bool = True,
    fuse: bool = False,
    fold: bool = True,
    warmup: int = 5,
    runs: int = 30,
    known: Profile | None = None,
    on_progress: Callable[[str, int], object] | None = None,
) -> Profile:
    """Measure the tasks of a module on devices of this machine.

    All tasks run on each device in turn, as one batch of each size; what they take is pooled by what they compute. CPU devices share
    their memory: between them a hand-off is measured instead of copies. A run of all tasks tells the time of dispatching one. Of the
    other overheads of a `Machine` only `gather` of CPU devices is measured.

    Parameters
    ----------
    module : torch.nn.Module or Program
    example_args : tuple (or one tensor)
        Arguments of a call; their items are repeated for batches of other sizes.
    devices : mapping of name to int, sequence of int or str, optional
        As for `ModuleProfiler`.
    batch_sizes : iterable of int, optional
        Default: that of the example.
    example_kwargs, dynamic_batch, fuse, fold, warmup
        As for `ModuleProfiler`.
    runs : int
        Number of runs that count, of which medians and quartiles are taken.
    known : Profile, optional
        Former measurements, which are part of the result. A device and batch size for which it has all tasks, on such a device
        with the same software, is not measured again.
    on_progress : callable, optional
        Called with a device and a batch size before their measurement.

    Raises
    ------
    InvalidProblem, UnsupportedFeature
        As for `ModuleProfiler`.

    Examples
    --------
    >>> import torch
    >>> module, x = torch.nn.Linear(4, 4), torch.ones(1, 4)
    >>> measured = profile(module, x, devices={"cpu0": 1, "cpu1": 1}, runs=3)
    >>> measured.problem()
    <Problem: 2 tasks on cpu0, cpu1, 1 inputs, batching once, communication delay>
    """
    profiler = ModuleProfiler(
        module,
        example_args,
        example_kwargs=example_kwargs,
        devices=devices,
        dynamic_batch=dynamic_batch,
        fuse=fuse,
        fold=fold,
        warmup=warmup,
        repeats=runs,
    )
    recorder = Recorder(profiler)
    before = Profile() if known is None else known
    sizes = [profiler.batch] if batch_sizes is None else [check_count(size, "batch size", error=InvalidProblem) for size in batch_sizes]
    overheads = {}
    for device in profiler.devices:
        lacking = [size for size in sizes if not _has(before, recorder, device.name, size)]
        for size in lacking:
            if on_progress is not None:
                on_progress(device.name, size)
            recorder.measure(size, device.name)
        if lacking:
            overheads[device.name] = Overhead(dispatch=_dispatch(profiler, device.name), gather=_gather(profiler, device.name))
    copies = [
        row
        for source, target in itertools.permutations(profiler.devices, 2)
        if not _has_copies(before, recorder, source.name, target.name)
        for row in _copies(profiler, source.name, target.name, recorder.session)
    ]
    made = recorder.profile
    used = [*overheads, *(name for row in copies for name in (row.source, row.target))]
    described = []
    for name in dict.fromkeys(used):
        row = profiler.described(name, recorder.session)
        if row.device.family == "cpu":
            row = row._replace(device=ceilings(profiler, row.device))
        described.append(row._replace(overhead=overheads.get(name, Overhead())))
    return before.merge(Profile(described, made.operators, made.times, (), copies, made.networks))


@checked(InvalidProblem)
def network(
    module: torch.nn.Module | Program,
    example_args: tuple[Any, ...] | torch.Tensor | None = None,
    *,
    example_kwargs: Mapping[str, Any] | None = None,
    dynamic_batch: bool = True,
    fuse: bool = False,
) -> Network:
    """Return the graph of a module with the digests of what its tasks compute; nothing is run.

    Parameters
    ----------
    module : torch.nn.Module or Program
    example_args : tuple (or one tensor), optional
        Arguments of a call; a program can do without.
    example_kwargs, dynamic_batch, fuse
        As for `Program`.
    """
    if not isinstance(module, Program):
        if example_args is None:
            raise InvalidProblem("example_args is None, which only a Program can do without; give arguments of a call")
        module = Program(module, example_args, example_kwargs=example_kwargs, dynamic_batch=dynamic_batch, fuse=fuse)
    return Network(module.graph, tuple(operator.digest for operator in Computations(module).operators))


def _has(known: Profile, recorder: Recorder, device: str, batch: int) -> bool:
    """Return whether all tasks were measured on such a device, with a device of its name."""
    if device not in known.names or known.device(device).pool != recorder.described(device).pool:
        return False
    digests = {operator.digest for operator in known.operators}
    own = {operator.digest for operator in recorder.operators}
    return own <= digests and all(known.pooled(digest, device, batch) is not None for digest in own)


def _has_copies(known: Profile, recorder: Recorder, source: str, target: str) -> bool:
    same = all(name in known.names and known.device(name).pool == recorder.described(name).pool for name in (source, target))
    return same and any((row.source, row.target) == (source, target) for row in known.copies)


def _copies(profiler: ModuleProfiler, source: str, target: str, session: str) -> list[CopyTime]:
    """Return the rows of copies from one device to another, or of a hand-off if they share their memory."""
    giver, taker = profiler.place(source), profiler.place(target)
    if giver.device.type == taker.device.type == "cpu":
        seconds = hand_offs(giver, taker)
        q25, median, q75 = np.quantile(seconds, [0.25, 0.5, 0.75]).tolist()
        return [CopyTime(source, target, 0, session, 0, len(seconds), median, q25, q75)]
    return [CopyTime(source, target, size, session, median=profiler.transfer(size, source, target)) for size in SIZES]


def ceilings(profiler: ModuleProfiler, device: Device) -> Device:
    """Return a CPU device with the peaks that it reaches: of a product of matrices, a copy, and the smallest operator."""
    many = torch.ones(CEILING, CEILING)
    source, target, one = torch.ones(COPIED), torch.empty(COPIED), torch.ones(1)

    def best(run: Callable[[], object], times: int) -> float:
        def measure() -> float:
            least = math.inf
            for _ in range(ATTEMPTS):
                begin = time.perf_counter()
                for _ in range(times):
                    run()
                least = min(least, (time.perf_counter() - begin) / times)
            return least

        return profiler.call(device.name, measure)

    return replace(
        device,
        peak_flops={"float32": 2.0 * CEILING**3 / best(lambda: torch.mm(many, many), 1)},
        memory_bandwidth=2.0 * 4 * COPIED / best(lambda: target.copy_(source), 1),
        launch_overhead=best(lambda: torch.relu(one), 1000),
    )


def _dispatch(profiler: ModuleProfiler, name: str) -> float:
    """Return the median seconds between two tasks of a device, in runs of all tasks on it; 0 for a module that is not on the CPU.

    A GPU that has its next task before it ends one takes none.
    """
    own = profiler.place(name)
    program, args, kwargs = profiler.example(name)
    if program.device.type != "cpu":  # which is what an executor runs
        return 0.0
    with whole(program, own, inputs=profiler.batch, fold=profiler.fold) as executor:
        return dispatch_of(executor.measure(*args, runs=DISPATCHES, profile=False, **kwargs))


def _gather(profiler: ModuleProfiler, name: str) -> tuple[float, float]:
    """Return the seconds, and seconds per byte, that a CPU device takes to put a value of two batches together; 0 of other devices."""
    if profiler.place(name).device.type != "cpu":
        return 0.0, 0.0

    def measured(size: int) -> float:
        half, spent = torch.zeros(size // 8), []
        for _ in range(GATHERS):
            begin = time.perf_counter()
            torch.cat([half, half])
            spent.append(time.perf_counter() - begin)
        return float(np.median(spent))

    small, large = GATHERED
    least, most = (profiler.call(name, lambda size=size: measured(size)) for size in GATHERED)  # type: ignore[misc]
    slope = max(most - least, 0.0) / (large - small)
    return max(least - slope * small, 0.0), slope


def dispatch_of(runs: Timeline) -> float:
    """Return the median seconds between two tasks, of runs of all tasks on one device."""
    lasting = int((runs.durations > 0).any(axis=0).sum())
    between = runs.makespans - runs.durations.sum(axis=1)
    return max(float(np.median(between)) / lasting, 0.0) if lasting else 0.0


def with_dispatch(machine: Machine, seconds: Mapping[str, float]) -> Machine:
    """Return a machine with devices on which dispatching a task takes these seconds."""
    return Machine({name: replace(machine.of(name), dispatch=one) for name, one in seconds.items()}, once=machine.once)


def whole(program: Program, where: Place, *, inputs: int, fold: bool = True) -> Executor:
    """Return an executor of all tasks of a program on one device."""
    n = program.graph.n_tasks
    cluster = Cluster([where.name], bandwidth=math.inf)
    problem = Problem(program.graph, cluster, durations=np.ones((n, 1, 1)), batch_sizes=[inputs], inputs=inputs)
    decision = Decision.whole(problem, np.zeros(n, np.int64), program.graph.topological_order)
    own: Where = where.threads if where.cores is None else sorted(where.cores)
    devices: dict[str, Where] = {where.name: own if where.device.type == "cpu" else str(where.device)}
    return Executor(program, None, decision, devices=devices, problem=problem, fold=fold)


def hand_offs(giver: Place, taker: Place, count: int = PINGS) -> FloatArray:
    """Return seconds from a release of a lock by the thread of one CPU device until that of another, which waits for it, goes on."""
    there, back = allocate_lock(), allocate_lock()
    there.acquire()
    back.acquire()
    released, took = [0.0] * count, np.zeros(count)

    def give() -> None:
        _pin(giver)
        for number in range(count):
            time.sleep(PAUSE)  # until the other waits
            released[number] = time.perf_counter()
            there.release()
            back.acquire()

    def take() -> None:
        _pin(taker)
        for number in range(count):
            there.acquire()
            took[number] = time.perf_counter() - released[number]
            back.release()

    threads = [threading.Thread(target=target, daemon=True) for target in (give, take)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return took


def _pin(own: Place) -> None:
    if own.cores is not None:
        os.sched_setaffinity(0, own.cores)
