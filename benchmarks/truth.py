"""Forecasts beside runs: networks placed on two CPU threads, and what the error of the forecast consists of.

    python benchmarks/truth.py [--quick] [--networks googlenet squeezenet] [--batches 1 4]

Each network is profiled task by task, placed on two workers of one thread each, and run; the profile of the table and the runs
alternate, and so do runs on one worker. They run by a schedule of least period on a stream of inputs too, and in two processes that
exchange values by gloo; some by a decision with several batches of a task, whose results are put together. The first table has what
was to be reached beside what is. A session in which more than 10 % of the time of tasks was other processes' is repeated, at most five
times in all; a row of a session that remains so says "disturbed". Needs torch and two cores.
"""

from __future__ import annotations

import argparse
import copy
import functools
import importlib
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import figures
import networkx as nx
import numpy as np
from figures import percent

import hetsched as hs

REGION = "truth"
SIZES = {"googlenet": 224, "squeezenet": 224, "inception_v3": 299, "randwire": 224}
"""Height and width of the images."""
PARTS = ("squeezenet", "googlenet")
"""The networks that run by several batches of a task too."""
ALIKE = ("squeezenet", "googlenet", "inception_v3")
"""The networks of which each operator is measured twice."""
DEPTHS = {"ResNet-50": (3, 4, 6, 3), "ResNet-101": (3, 4, 23, 3)}
"""Bottlenecks of each size, as in He et al., Deep Residual Learning for Image Recognition, 2016, Table 1."""
SHALLOW = {"ResNet-14": (1, 1, 1, 1), "ResNet-17": (1, 1, 2, 1)}
RESULTS = Path(__file__).parent / "results" / f"{REGION}.jsonl"
QUICK = 64
SESSIONS = 5
"""The most sessions until one is not disturbed."""
WIRING = (32, 4, 0.75)
"""Nodes, neighbours and rewiring probability of the three random graphs of randwire, as in its paper's larger networks."""
SECONDS = 10.0
"""Time limit of the solve."""
HAND_OFFS = 2000
SHORT, LARGE = 100e-6, 600
"""The least seconds of a task, and the tasks of a large graph, in the table of goals."""


class Session(NamedTuple):
    """What was measured for one network and batch."""

    tasks: int
    one: float
    """Median seconds on one worker."""
    comparison: Any
    fold: float
    """Largest deviation from the module's result, as a part of its largest number."""
    equal: bool
    """Whether the results without folding are those of the module to the bit."""
    planted: float
    """Deviation by a change of one weight."""
    rounding: float
    """Deviation of the module's result from what it returns in float64."""
    plan: float
    compare: float
    """Seconds to make the plan, and the comparison."""


class Streamed(NamedTuple):
    """What was measured of a stream of inputs."""

    forecast: float
    times: Any
    one: float
    """Median seconds of an input on one worker."""
    single: float
    """The same by the schedule of least makespan, one input at a time."""
    stolen: float
    equal: bool
    """Whether the results without folding are those of the module to the bit."""
    fold: float
    verified: bool
    """Whether the runs of single inputs by the schedule kept every rule."""


class Apart(NamedTuple):
    """What was measured of two processes."""

    tasks: int
    one: float
    """Median seconds on one worker."""
    messages: int
    plain: float
    """Makespan by the forecast in which messages cost the processors nothing; the links have all of their time."""
    comparison: Any
    """With the time of the processors."""
    equal: bool
    """Whether the results without folding are those of the module to the bit."""
    fold: float


class Parted(NamedTuple):
    """What was measured of a decision with several batches of a task."""

    batches: int
    gathered: float
    """Seconds of a run in which values are put together."""
    plain: float
    """Makespan by the forecast without these."""
    comparison: Any
    exact: float
    """Deviation without folding: a batch of two is not computed as two of one are."""
    fold: float


def torch() -> Any:
    """Return torch, which takes seconds to import."""
    return importlib.import_module("torch")


def network(name: str, size: int, batch: int) -> tuple[Any, Any]:
    """Return a module with weights, and a random batch of images."""
    vision = importlib.import_module("hetsched.workloads.vision")
    torch().manual_seed(0)
    if name == "randwire":
        nodes, near, rewired = WIRING
        graphs = [nx.connected_watts_strogatz_graph(nodes, near, rewired, seed=seed) for seed in range(3)]
        module = vision.randwire([sorted((min(edge), max(edge)) for edge in graph.edges) for graph in graphs])
    else:
        module = getattr(vision, name)()
    calibrate(module, size)
    return module, torch().randn(batch, 3, size, size)


def calibrate(module: Any, size: int) -> None:
    """Set the statistics of batch norms to those of random images, so that no value vanishes or overflows on its way."""
    norms = [layer for layer in module.modules() if isinstance(layer, torch().nn.modules.batchnorm._BatchNorm)]
    for layer in norms:
        layer.train()
        layer.momentum = None  # the plain mean
    with torch().no_grad():
        module(torch().randn(4, 3, size, size))
    module.eval()


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch in one thread within the context."""
    before = torch().get_num_threads()
    torch().set_num_threads(1)
    try:
        yield
    finally:
        torch().set_num_threads(before)


class Case(NamedTuple):
    """A network, and the problem of its profile."""

    module: Any
    x: Any
    program: Any
    devices: dict[str, list[int]]
    problem: hs.Problem


def profiled(name: str, size: int, batch: int, runs: int) -> Case:
    """Profile a network on two workers."""
    from hetsched import runtime
    from hetsched.runtime.checking import HAND_OFF

    module, x = network(name, size, batch)
    program = runtime.Program(module, x)
    devices = {"cpu0": [cores()[0]], "cpu1": [cores()[1]]}
    profiler = runtime.ModuleProfiler(module, x, devices={"cpu0": 1, "cpu1": 1}, warmup=2, repeats=max(3, runs // 3))
    seconds = np.stack([profiler.measure(batch, device).seconds for device in devices], axis=1)
    cluster = hs.Cluster(list(devices), bandwidth=float("inf"), latency=HAND_OFF)
    problem = hs.Problem(program.graph, cluster, durations=seconds[:, :, None], batch_sizes=[batch], inputs=batch)
    return Case(module, x, program, devices, problem)


def on_one_device(problem: hs.Problem) -> hs.Schedule:
    """Return the schedule of all tasks on the first device."""
    return hs.simulate(problem, hs.Decision.whole(problem, np.zeros(problem.n_tasks, np.int64), problem.graph.topological_order))


def session(name: str, size: int, batch: int, runs: int, limit: float) -> Session:
    """Profile, solve, run and compare."""
    from gpu_tools import deviation, planted

    from hetsched import runtime
    from hetsched.runtime.profiling import dispatch_of, with_dispatch

    module, x, program, devices, problem = profiled(name, size, batch, runs)
    solution = hs.solve(problem, time_limit=limit)
    schedule = solution.schedule
    assert schedule is not None  # memory is not limited
    alone = on_one_device(problem)
    with one_thread(), torch().no_grad():
        expected = module(x)
        seen = planted(module, x, expected)
        rounding = deviation(expected, copy.deepcopy(module).double()(x.double()))
    start = time.perf_counter()
    runtime.Plan(problem, schedule.decision)
    planned = time.perf_counter() - start
    with (
        runtime.Executor(program, None, schedule, devices=devices, problem=problem) as placed,
        runtime.Executor(program, None, alone, devices=devices, problem=problem) as single,
        runtime.Executor(program, None, schedule, devices=devices, problem=problem, fold=False) as exact,
    ):
        equal = torch().equal(exact(x), expected)
        differs = deviation(placed(x), expected)
        before = single.measure(x, runs=runs, profile=False)
        timeline = placed.measure(x, runs=runs, machine=with_dispatch(hs.costs.Machine(), dict.fromkeys(devices, dispatch_of(before))))
        after = single.measure(x, runs=runs, profile=False)
        own = placed.profiled(problem)
    start = time.perf_counter()
    comparison = runtime.compare(own, schedule.decision, timeline)
    compared = time.perf_counter() - start
    one = float(np.median(np.concatenate([before.makespans, after.makespans])))
    return Session(program.graph.n_tasks, one, comparison, differs, equal, seen, rounding, planned, compared)


Found = TypeVar("Found", Session, Streamed, Apart, Parted)


def undisturbed(take: Callable[[], Found]) -> Found:
    """Return the first session that was not disturbed, or the last of several."""
    from hetsched.costs.timeline import DISTURBED

    for _ in range(SESSIONS):
        found = take()
        if not stolen(found) > DISTURBED:
            break
    return found


def stolen(found: Any) -> float:
    """Return the part of the time of tasks that was other processes'."""
    return float(getattr(found, "comparison", found).stolen)


def kept(found: Any) -> bool:
    """Return whether the runs kept every rule."""
    return found.verified if isinstance(found, Streamed) else not found.comparison.violations


def yes(good: bool) -> str:
    """Return "yes" or "no"."""
    return "yes" if good else "no"


def cores() -> list[int]:
    """Return the cores of this process."""
    return sorted(os.sched_getaffinity(0))


def milliseconds(seconds: float) -> str:
    """Return a time in ms."""
    return figures.number(1e3 * seconds, 4)


def row(name: str, batch: int, found: Session) -> list[str]:
    """Return the row of a session."""
    comparison = found.comparison
    replay = comparison.replays.makespan[3]
    said = "disturbed" if comparison.disturbed else f"{found.one / comparison.run:.2f}"
    return [
        name,
        str(batch),
        str(found.tasks),
        milliseconds(found.one),
        milliseconds(comparison.forecast),
        f"{milliseconds(comparison.run)} ({milliseconds(comparison.q25)})",
        f"{100 * comparison.error:+.1f} %",
        milliseconds(replay),
        f"{100 * comparison.engine:+.1f} %",
        percent(comparison.stolen),
        said,
        yes(kept(found)),
        yes(found.equal),
        f"{found.fold:.1e}",
    ]


HEAD = [
    "network",
    "batch",
    "tasks",
    "one worker, ms",
    "forecast",
    "run, median (25 %)",
    "error of the forecast",
    "replay R3",
    "engine",
    "stolen",
    "speed-up",
    "verified",
    "equal without folding",
    "deviation with it",
]


STREAM_HEAD = [
    "network",
    "batch",
    "in progress",
    "period, forecast, ms",
    "stream (quartiles)",
    "error of the forecast",
    "latency",
    "one worker",
    "the schedule for one input",
    "stolen",
    "speed-up",
    "verified",
    "equal without folding",
    "deviation with it",
]


def stream(name: str, size: int, batch: int, runs: int, limit: float) -> Streamed:
    """Profile, solve for the period, and run streams in turn with runs on one worker."""
    from gpu_tools import deviation

    from hetsched import runtime
    from hetsched.schedule.objectives import period

    module, x, program, devices, problem = profiled(name, size, batch, runs)
    schedule = hs.solve(problem, objective="period", time_limit=limit).schedule
    fastest = hs.solve(problem, time_limit=limit).schedule
    assert schedule is not None  # memory is not limited
    assert fastest is not None
    others = [torch().randn_like(x) for _ in range(4)]
    with one_thread(), torch().no_grad():
        expected = [module(one) for one in others]
    with (
        runtime.Executor(program, None, schedule, devices=devices, problem=problem) as placed,
        runtime.Executor(program, None, on_one_device(problem), devices=devices, problem=problem) as alone,
        runtime.Executor(program, None, fastest, devices=devices, problem=problem) as single,
        runtime.Executor(program, None, schedule, devices=devices, problem=problem, fold=False) as exact,
    ):
        equal = all(torch().equal(made, one) for made, one in zip(exact.stream(others), expected, strict=True))
        differs = max(deviation(made, one) for made, one in zip(placed.stream(others), expected, strict=True))
        before = alone.measure(x, runs=runs, profile=False).makespans
        timeline = placed.measure(x, runs=runs)
        times = placed.measure_stream(x, inputs=max(2 * runs, 30))
        own = placed.profiled(problem)
        by_makespan = single.measure(x, runs=runs, profile=False).makespan
        after = alone.measure(x, runs=runs, profile=False).makespans
    forecast = batch * period(own, hs.simulate(own, schedule.decision))
    one = float(np.median(np.concatenate([before, after])))
    return Streamed(forecast, times, one, by_makespan, timeline.stolen, equal, differs, not runtime.verify_run(own, timeline))


def stream_row(name: str, batch: int, found: Streamed) -> list[str]:
    """Return the row of a stream."""
    from hetsched.costs.timeline import DISTURBED

    times = found.times
    return [
        name,
        str(batch),
        str(times.depth),
        milliseconds(found.forecast),
        f"{milliseconds(times.period)} ({milliseconds(times.q25)} to {milliseconds(times.q75)})",
        f"{100 * (found.forecast / times.period - 1):+.1f} %",
        milliseconds(times.latency),
        milliseconds(found.one),
        milliseconds(found.single),
        percent(found.stolen),
        "disturbed" if found.stolen > DISTURBED else f"{found.one / times.period:.2f}",
        yes(kept(found)),
        yes(found.equal),
        f"{found.fold:.1e}",
    ]


APART_HEAD = [
    "network",
    "batch",
    "messages",
    "one worker, ms",
    "forecast",
    "error",
    "with the CPU of messages",
    "error",
    "run, median (25 %)",
    "replay R3",
    "engine",
    "stolen",
    "speed-up",
    "verified",
    "equal without folding",
    "deviation with it",
]


def apart(name: str, size: int, batch: int, runs: int, limit: float, ranks: Any) -> Apart:
    """Profile, measure messages, solve, and run in two processes in turn with runs on one worker."""
    from gpu_tools import deviation

    from hetsched import runtime
    from hetsched.runtime.profiling import dispatch_of, with_dispatch

    module, x, program, devices, shared = profiled(name, size, batch, runs)
    links, machine = ranks.messages({device: rank for rank, device in enumerate(devices)})
    problem = shared.replace(cluster=links)
    schedule = hs.solve(machine.problem(problem), time_limit=limit).schedule
    assert schedule is not None  # memory is not limited
    decision = schedule.decision
    with one_thread(), torch().no_grad():
        expected = module(x)
    with (
        runtime.Executor(program, None, decision, devices=devices, problem=problem, engine=ranks) as placed,
        runtime.Executor(program, None, decision, devices=devices, problem=problem, engine=ranks, fold=False) as exact,
        runtime.Executor(program, None, on_one_device(shared), devices=devices, problem=shared) as alone,
    ):
        equal = torch().equal(exact(x), expected)
        differs = deviation(placed(x), expected)
        before = alone.measure(x, runs=runs, profile=False)
        timeline = placed.measure(x, runs=runs, machine=with_dispatch(machine, dict.fromkeys(devices, dispatch_of(before))))
        after = alone.measure(x, runs=runs, profile=False).makespans
        own = placed.profiled(problem)
        messages = len(placed.plan.sends)
    plain = runtime.forecast(machine.problem(own), decision).makespan
    comparison = runtime.compare(own, decision, timeline)
    one = float(np.median(np.concatenate([before.makespans, after])))
    return Apart(program.graph.n_tasks, one, messages, plain, comparison, equal, differs)


def apart_row(name: str, batch: int, found: Apart) -> list[str]:
    """Return the row of two processes."""
    comparison = found.comparison
    judged = "disturbed" if comparison.disturbed else f"{found.one / comparison.run:.2f}"
    return [
        name,
        str(batch),
        str(found.messages),
        milliseconds(found.one),
        milliseconds(found.plain),
        f"{100 * (found.plain / comparison.run - 1):+.1f} %",
        milliseconds(comparison.forecast),
        f"{100 * comparison.error:+.1f} %",
        f"{milliseconds(comparison.run)} ({milliseconds(comparison.q25)})",
        milliseconds(comparison.replays.makespan[3]),
        f"{100 * comparison.engine:+.1f} %",
        percent(comparison.stolen),
        judged,
        yes(kept(found)),
        yes(found.equal),
        f"{found.fold:.1e}",
    ]


PART_HEAD = [
    "network",
    "inputs",
    "batches",
    "forecast",
    "error",
    "with putting together",
    "error",
    "run, median (25 %)",
    "of which putting together",
    "replay R3",
    "engine",
    "stolen",
    "verified",
    "deviation without folding",
    "deviation with it",
]


def in_parts(problem: hs.Problem) -> hs.Decision:
    """Return a decision: the devices run the first half of the tasks for an input each, and the first one the others for both."""
    names = [problem.graph.names[task] for task in problem.graph.topological_order]
    first, other = problem.cluster.names
    halves = [(name, device, [item]) for name in names[: len(names) // 2] for item, device in enumerate((first, other))]
    return hs.Decision.from_batches(problem, [*halves, *((name, first, [0, 1]) for name in names[len(names) // 2 :])])


def parted(name: str, size: int, runs: int) -> Parted:
    """Profile batches of one and of two inputs, and run the decision of `in_parts`."""
    from gpu_tools import deviation

    from hetsched import runtime
    from hetsched.runtime.profiling import with_dispatch

    module, x = network(name, size, 2)
    devices = {"cpu0": [cores()[0]], "cpu1": [cores()[1]]}
    program = runtime.Program(module, x)
    profile = runtime.profile(program, x, devices=devices, batch_sizes=[1, 2], warmup=2, runs=max(3, runs // 3))
    problem, machine = profile.problem(2, batch_sizes=[1, 2]), profile.machine()
    decision = in_parts(problem)
    with one_thread(), torch().no_grad():
        expected = module(x)
    with (
        runtime.Executor(program, None, decision, devices=devices, problem=problem) as placed,
        runtime.Executor(program, None, decision, devices=devices, problem=problem, fold=False) as exact,
    ):
        differ = deviation(exact(x), expected), deviation(placed(x), expected)
        timeline = placed.measure(x, runs=runs, machine=machine)
        own = placed.profiled(problem)
    dispatch = {name: one.dispatch for name, one in machine.devices}
    plain = runtime.forecast(own, decision, with_dispatch(hs.costs.Machine(), dispatch)).makespan
    comparison = runtime.compare(own, decision, timeline)
    return Parted(decision.n_batches, float(timeline.gathered.sum()), plain, comparison, *differ)


def parted_row(name: str, found: Parted) -> list[str]:
    """Return the row of several batches."""
    comparison = found.comparison
    return [
        name,
        "2",
        str(found.batches),
        milliseconds(found.plain),
        f"{100 * (found.plain / comparison.run - 1):+.1f} %",
        milliseconds(comparison.forecast),
        f"{100 * comparison.error:+.1f} %",
        f"{milliseconds(comparison.run)} ({milliseconds(comparison.q25)})",
        milliseconds(found.gathered),
        milliseconds(comparison.replays.makespan[3]),
        f"{100 * comparison.engine:+.1f} %",
        percent(comparison.stolen),
        yes(kept(found)),
        f"{found.exact:.1e}",
        f"{found.fold:.1e}",
    ]


REPEAT_HEAD = ["network", "different operators", "median difference", "90 %"]


def repeated(name: str, size: int, runs: int) -> tuple[int, float, float]:
    """Profile a network twice on one core; return its different operators, and the median and 90 % of how much their times differ."""
    from hetsched import runtime

    module, x = network(name, size, 1)
    program = runtime.Program(module, x)
    one, other = (runtime.profile(program, x, devices={"cpu0": [cores()[0]]}, warmup=2, runs=runs) for _ in range(2))
    times = [{row.digest: row.median for row in profile.times if row.median} for profile in (one, other)]
    differ = [abs(times[1][digest] / seconds - 1.0) for digest, seconds in times[0].items() if digest in times[1]]
    return len(one.operators), float(np.median(differ)), float(np.quantile(differ, 0.9))


def resnet(blocks: Sequence[int]) -> Any:
    """Return a residual network of bottlenecks."""
    nn = torch().nn

    def normed(inputs: int, outputs: int, kernel: int, stride: int = 1) -> list[Any]:
        return [nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outputs)]

    class Bottleneck(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, inputs: int, width: int, stride: int) -> None:
            super().__init__()
            self.path = nn.Sequential(
                *normed(inputs, width, 1), nn.ReLU(), *normed(width, width, 3, stride), nn.ReLU(), *normed(width, 4 * width, 1)
            )
            same = inputs == 4 * width and stride == 1
            self.short = nn.Identity() if same else nn.Sequential(*normed(inputs, 4 * width, 1, stride))

        def forward(self, x: Any) -> Any:
            return (self.path(x) + self.short(x)).relu()

    layers, inputs = [*normed(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
    for level, count in enumerate(blocks):
        for place in range(count):
            layers.append(Bottleneck(inputs, 64 << level, 2 if level and not place else 1))
            inputs = 256 << level
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000)).eval()


def shared(depths: dict[str, tuple[int, ...]], size: int) -> tuple[int, int, int]:
    """Return the tasks of the second, deeper network, those that compute what a task of the first one does, and its digests."""
    from hetsched import runtime

    small, large = (runtime.network(resnet(blocks), torch().zeros(1, 3, size, size)).digests for blocks in depths.values())
    return len(large), sum(digest in set(small) for digest in large), len(set(large))


def profiling(size: int, runs: int) -> tuple[int, float]:
    """Return the tasks of RandWire, and the seconds of its profile on two CPU devices."""
    from hetsched import runtime

    program = runtime.Program(*network("randwire", size, 1))
    start = time.perf_counter()
    runtime.profile(program, torch().randn(1, 3, size, size), devices={"cpu0": [cores()[0]], "cpu1": [cores()[1]]}, runs=runs)
    return program.graph.n_tasks, time.perf_counter() - start


class Functions(NamedTuple):
    """What compiled tasks take in one thread beside the module itself, in seconds."""

    tasks: int
    module: float
    compiled: float
    made: float
    """To make the functions."""

    @property
    def more(self) -> float:
        """Seconds that a task takes more."""
        return (self.compiled - self.module) / self.tasks


def functions(name: str, size: int, repeats: int) -> Functions:
    """Compile the tasks of a network, and run them in turn with the module."""
    from hetsched import runtime
    from hetsched.runtime.code import Compiled

    module, x = network(name, size, 1)
    program = runtime.Program(module, x)
    start = time.perf_counter()
    compiled = Compiled(program, fold=False)
    made = time.perf_counter() - start
    with one_thread(), torch().no_grad():
        eager, own = in_turn(lambda: module(x), lambda: compiled.run(compiled.start(program.inputs((x,), {}))), repeats)
    return Functions(program.graph.n_tasks, eager, own, made)


FUNCTIONS_HEAD = ["network", "tasks", "module, ms", "tasks, ms", "difference, us a task", "making the functions, ms"]


def functions_row(name: str, found: Functions) -> list[str]:
    """Return the row of compiled tasks."""
    times = [milliseconds(seconds) for seconds in (found.module, found.compiled)]
    return [name, str(found.tasks), *times, f"{1e6 * found.more:+.2f}", milliseconds(found.made)]


def in_turn(one: Callable[[], object], other: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Return the median CPU seconds of two functions called in turn."""
    spent: tuple[list[float], list[float]] = ([], [])
    for number in range(repeats + 2):
        for call, times in zip((one, other), spent, strict=True):
            start = time.thread_time()
            call()
            if number >= 2:
                times.append(time.thread_time() - start)
    return statistics.median(spent[0]), statistics.median(spent[1])


def hand_off() -> float:
    """Return the median seconds from a release of a lock until a thread on another core that waits for it goes on."""
    from hetsched.runtime.places import place
    from hetsched.runtime.profiling import hand_offs

    first, second, *_ = cores()
    return float(np.median(hand_offs(place("first", [first]), place("second", [second]), HAND_OFFS)))


class Measured(NamedTuple):
    """All that was measured, by network, and of sessions by batch too."""

    sessions: dict[tuple[str, int], Session]
    streams: dict[str, Streamed]
    processes: dict[str, Apart]
    parts: dict[str, Parted]
    functions: dict[str, Functions]
    repeats: dict[str, tuple[int, float, float]]
    hand_off: float
    profiled: tuple[int, float] | None


def goals(found: Measured) -> str:
    """Return the table of what was to be reached beside what is, without what was not measured; disturbed runs support no row."""
    every = [*found.sessions.values(), *found.streams.values(), *found.processes.values(), *found.parts.values()]
    equal = [own.equal for own in every if not isinstance(own, Parted)]
    fold = max(own.fold for own in every)
    good = [kept(own) for own in every]
    clear = {key: own for key, own in found.sessions.items() if not own.comparison.disturbed}
    errors = [abs(own.comparison.error) for own in clear.values() if own.one / own.tasks >= SHORT]
    engines = [abs(own.comparison.engine) for own in clear.values()]
    apart = [own for own in found.processes.values() if not own.comparison.disturbed]
    late = [abs(own.comparison.error) for own in apart]
    late_long = [abs(own.comparison.error) for own in apart if own.one / own.tasks >= SHORT]
    rows: list[tuple[str, str, str, bool]] = [
        ("outputs without folding", "equal to the bit", f"{sum(equal)} of {len(equal)}", all(equal)),
        ("deviation of outputs with folding", "1e-05", f"{fold:.1e} at most", fold <= 1e-5),
        ("runs that kept every rule", "all", f"{sum(good)} of {len(good)}", all(good)),
    ]

    def at_most(what: str, limit: float, values: Sequence[float], shown: Callable[[float], str], how: str = "") -> None:
        if values:
            worst = statistics.median(values) if how == "median" else max(values)
            rows.append((what, shown(limit), f"{shown(worst)}{how and f', {how} of {len(values)}'}", worst <= limit))

    at_most("engine, threads", 0.03, engines, percent, "median")
    at_most("engine, gloo", 0.05, [abs(own.comparison.engine) for own in apart], percent, "median")
    at_most(f"error of the forecast, threads, tasks of {1e6 * SHORT:.0f} us or more", 0.1, errors, percent, "median")
    at_most("the same", 0.2, errors, percent, "largest")
    at_most("error of the forecast, gloo, with the CPU of messages", 0.12, late, percent, "largest")
    at_most(f"the same, tasks of {1e6 * SHORT:.0f} us or more", 0.12, late_long, percent, "largest")
    at_most("dispatching a compiled task, more than in the module", 1e-6, [own.more for own in found.functions.values()], micro, "largest")
    at_most("hand-off between two threads", 10e-6, [found.hand_off], micro)
    at_most("functions of GoogLeNet's tasks", 20e-3, [own.made for name, own in found.functions.items() if name == "googlenet"], milli)
    large = [own for own in found.sessions.values() if own.tasks >= LARGE]
    at_most(f"plan of {LARGE} tasks or more", 50e-3, [own.plan for own in large], milli, "largest")
    at_most(f"comparison of {LARGE} tasks or more", 1.0, [own.compare for own in large], milli, "largest")
    if found.profiled is not None:
        at_most(f"profile of {found.profiled[0]} tasks on two devices", 60.0, [found.profiled[1]], lambda seconds: f"{seconds:.1f} s")
    at_most("operators measured again, median of a network", 0.05, [own[1] for own in found.repeats.values()], percent, "largest")
    for name, limit in (("googlenet", 1.2), ("inception_v3", 1.35)):
        own = clear.get((name, 1))
        if own is not None:
            gain = own.one / own.comparison.run
            rows.append((f"{name} on two threads against one worker", f"{limit:.2f} times", f"{gain:.2f} times", gain >= limit))
    return figures.table(["what", "to reach", "here", "reached"], [[*cells, yes(reached)] for *cells, reached in rows])


def micro(seconds: float) -> str:
    """Return a time in us."""
    return f"{1e6 * seconds:.1f} us"


def milli(seconds: float) -> str:
    """Return a time in ms."""
    return f"{milliseconds(seconds)} ms"


def main(words: Sequence[str] | None = None) -> None:
    """Measure every network and publish the tables."""
    from hetsched import runtime

    parser = figures.parser(__doc__)
    parser.add_argument("--networks", nargs="+", choices=SIZES, help="default: all; with --quick squeezenet")
    parser.add_argument("--batches", nargs="+", type=int, help="default: 1 and 4; with --quick 1")
    parser.add_argument("--runs", type=int, help="runs that count (default: 30; with --quick 3)")
    parser.add_argument("--results", type=Path, help=f"file of the figures (default: {RESULTS}; with --quick none)")
    arguments: argparse.Namespace = figures.parse(parser, words, region=REGION)
    quick = arguments.quick
    if len(cores()) < 2:
        parser.error("the two workers need two cores; this process has one")
    names = arguments.networks or (["squeezenet"] if quick else [*SIZES])
    runs, limit = arguments.runs or (3 if quick else 30), 1.0 if quick else SECONDS
    sizes = dict.fromkeys(SIZES, QUICK) if quick else SIZES
    found = Measured({}, {}, {}, {}, {}, {}, hand_off(), None if quick else profiling(sizes["randwire"], runs))
    tables: dict[str, list[list[str]]] = {"": []}

    def told(table: str, row: list[str]) -> None:
        tables.setdefault(table, []).append(row)
        print(" | ".join(row), flush=True)

    for batch in arguments.batches or ([1] if quick else [1, 4]):
        for name in names:
            own = found.sessions[name, batch] = undisturbed(functools.partial(session, name, sizes[name], batch, runs, limit))
            told("", row(name, batch, own))
    for name in names:
        found.streams[name] = undisturbed(functools.partial(stream, name, sizes[name], 1, runs, limit))
        told("Streams of inputs", stream_row(name, 1, found.streams[name]))
    with runtime.Ranks(2) as ranks:
        for name in names:
            found.processes[name] = undisturbed(functools.partial(apart, name, sizes[name], 1, runs, limit, ranks))
            told("Two processes, by gloo", apart_row(name, 1, found.processes[name]))
    for name in (one for one in names if one in PARTS):
        found.parts[name] = undisturbed(functools.partial(parted, name, sizes[name], runs))
        told("Several batches of a task", parted_row(name, found.parts[name]))
    for name in names:
        found.functions[name] = functions(name, sizes[name], 5 if quick else 40)
        told("Compiled tasks", functions_row(name, found.functions[name]))
    for name in (one for one in names if one in ALIKE):
        count, median, most = found.repeats[name] = repeated(name, sizes[name], runs)
        told("Operators measured twice", [name, str(count), percent(median), percent(most)])
    heads = [HEAD, STREAM_HEAD, APART_HEAD, PART_HEAD, FUNCTIONS_HEAD, REPEAT_HEAD]
    text = [f"Taken on: {figures.where('torch')}, {figures.machine().rpartition(', ')[2]}. {runs} runs of each.", goals(found)]
    text.append(f"A hand-off between two threads: {micro(found.hand_off)}, median of {HAND_OFFS}.")
    seen, own = min(one.planted for one in found.sessions.values()), max(one.rounding for one in found.sessions.values())
    text.append(
        f"One weight changed makes the outputs deviate by {seen:.1e} at least; the modules' own outputs deviate from those that they "
        f"return in float64 by up to {own:.1e}."
    )
    for head, (title, rows) in zip(heads, tables.items(), strict=False):
        text += [f"### {title}", figures.table(head, rows)] if title else [figures.table(head, rows)]
    if found.repeats:
        depths = SHALLOW if quick else DEPTHS
        small, large = depths
        tasks, alike, digests = shared(depths, sizes["googlenet"])
        text.append(f"Of the {tasks} tasks of {large}, {digests} of them different, {alike} compute what a task of {small} does.")
    figures.publish(arguments, REGION, "\n\n".join(text), plain(found))
    results = arguments.results or (None if quick else RESULTS)
    if results is not None:
        rows = [{"where": figures.machine(), "table": table, "of": name, "figures": own} for table, name, own in listed(plain(found))]
        results.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        print(f"written to {results}")


def listed(found: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield the table, the network and batch, and the figures of each row."""
    for table, rows in found.items():
        for name, own in rows.items() if isinstance(rows, dict) else [("", rows)]:
            yield table, name, own


def plain(value: Any) -> Any:
    """Return figures as JSON has them; of a comparison the numbers, not its tables."""
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, dict):
        return {" ".join(map(str, key)) if isinstance(key, tuple) else key: plain(own) for key, own in value.items()}
    if isinstance(value, list | tuple):
        return [plain(own) for own in value]
    if hasattr(value, "replays"):
        names = ("forecast", "run", "q25", "q75", "error", "engine", "stolen")
        return {**{name: getattr(value, name) for name in names}, "replays": value.replays.makespan.tolist()}
    return value


if __name__ == "__main__":
    main()
