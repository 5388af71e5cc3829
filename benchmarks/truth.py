"""Forecasts beside runs: networks placed on two CPU threads, and what the error of the forecast consists of.

    python benchmarks/truth.py [--quick] [--networks googlenet squeezenet] [--batches 1 4]

Each network is profiled task by task, placed on two workers of one thread each, and run; the profile of the table and the runs
alternate, and so do runs on one worker. Some run by a schedule of least period on a stream of inputs too, and some in two processes
that exchange values by gloo. A session in which more than 10 % of the time of tasks was other processes' is repeated, at most five
times in all; a row of a session that remains so says "disturbed". Needs torch and two cores.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import figures
import networkx as nx
import numpy as np
from figures import percent

import hetsched as hs

REGION = "truth"
SIZES = {"googlenet": 224, "squeezenet": 224, "inception_v3": 299, "randwire": 224}
"""Height and width of the images."""
STREAMS = ("squeezenet", "googlenet", "inception_v3")
"""The networks that run on a stream of inputs too."""
APART = ("squeezenet", "googlenet", "inception_v3")
"""The networks that run in two processes too."""
QUICK = 64
SESSIONS = 5
"""The most sessions until one is not disturbed."""
WIRING = (32, 4, 0.75)
"""Nodes, neighbours and rewiring probability of the three random graphs of randwire, as in its paper's larger networks."""
SECONDS = 10.0
"""Time limit of the solve."""
HAND_OFFS = 2000


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
    plan: float
    compare: float
    """Seconds to make the plan, and the comparison."""

    @property
    def stolen(self) -> float:
        """Part of the time of tasks that was other processes'."""
        return float(self.comparison.stolen)


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


class Apart(NamedTuple):
    """What was measured of two processes."""

    one: float
    """Median seconds on one worker."""
    messages: int
    plain: float
    """Makespan by the forecast in which messages cost the processors nothing; the links have all of their time."""
    comparison: Any
    """With the time of the processors."""
    equal: bool
    """Whether the results without folding are those of the module to the bit."""

    @property
    def stolen(self) -> float:
        """Part of the time of tasks that was other processes'."""
        return float(self.comparison.stolen)


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
    from hetsched import runtime
    from hetsched.runtime.profiling import dispatch_of, with_dispatch

    module, x, program, devices, problem = profiled(name, size, batch, runs)
    solution = hs.solve(problem, time_limit=limit)
    schedule = solution.schedule
    assert schedule is not None  # memory is not limited
    alone = on_one_device(problem)
    with one_thread(), torch().no_grad():
        expected = module(x)
    start = time.perf_counter()
    runtime.Plan(problem, schedule.decision)
    planned = time.perf_counter() - start
    with (
        runtime.Executor(program, None, schedule, devices=devices, problem=problem) as placed,
        runtime.Executor(program, None, alone, devices=devices, problem=problem) as single,
        runtime.Executor(program, None, schedule, devices=devices, problem=problem, fold=False) as exact,
    ):
        equal = torch().equal(exact(x), expected)
        deviation = float((placed(x) - expected).abs().max() / expected.abs().max())
        before = single.measure(x, runs=runs, profile=False)
        timeline = placed.measure(x, runs=runs, machine=with_dispatch(hs.costs.Machine(), dict.fromkeys(devices, dispatch_of(before))))
        after = single.measure(x, runs=runs, profile=False)
        own = placed.profiled(problem)
    start = time.perf_counter()
    comparison = runtime.compare(own, schedule.decision, timeline)
    compared = time.perf_counter() - start
    one = float(np.median(np.concatenate([before.makespans, after.makespans])))
    return Session(program.graph.n_tasks, one, comparison, deviation, equal, planned, compared)


Found = TypeVar("Found", Session, Streamed, Apart)


def undisturbed(take: Callable[[], Found]) -> Found:
    """Return the first session that was not disturbed, or the last of several."""
    from hetsched.costs.timeline import DISTURBED

    for _ in range(SESSIONS):
        found = take()
        if not found.stolen > DISTURBED:
            break
    return found


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
        "yes" if found.equal else "no",
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
]


def stream(name: str, size: int, batch: int, runs: int, limit: float) -> Streamed:
    """Profile, solve for the period, and run streams in turn with runs on one worker."""
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
        before = alone.measure(x, runs=runs, profile=False).makespans
        timeline = placed.measure(x, runs=runs)
        times = placed.measure_stream(x, inputs=max(2 * runs, 30))
        own = placed.profiled(problem)
        by_makespan = single.measure(x, runs=runs, profile=False).makespan
        after = alone.measure(x, runs=runs, profile=False).makespans
    forecast = batch * period(own, hs.simulate(own, schedule.decision))
    one = float(np.median(np.concatenate([before, after])))
    return Streamed(forecast, times, one, by_makespan, timeline.stolen, equal)


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
        ("disturbed" if found.stolen > DISTURBED else f"{found.one / times.period:.2f}") + ("" if found.equal else ", results differ"),
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
]


def apart(name: str, size: int, batch: int, runs: int, limit: float, ranks: Any) -> Apart:
    """Profile, measure messages, solve, and run in two processes in turn with runs on one worker."""
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
        before = alone.measure(x, runs=runs, profile=False)
        timeline = placed.measure(x, runs=runs, machine=with_dispatch(machine, dict.fromkeys(devices, dispatch_of(before))))
        after = alone.measure(x, runs=runs, profile=False).makespans
        own = placed.profiled(problem)
        messages = len(placed.plan.sends)
    plain = runtime.forecast(machine.problem(own), decision).makespan
    comparison = runtime.compare(own, decision, timeline)
    return Apart(float(np.median(np.concatenate([before.makespans, after]))), messages, plain, comparison, equal)


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
        judged + ("" if found.equal else ", results differ"),
    ]


def dispatch(names: Sequence[str], quick: bool) -> str:
    """Return the time that compiled tasks take more than the module itself, per task, in one thread."""
    from hetsched import runtime
    from hetsched.runtime.code import Compiled

    lines = []
    for name in names:
        module, x = network(name, QUICK if quick else SIZES[name], 1)
        program = runtime.Program(module, x)
        start = time.perf_counter()
        compiled = Compiled(program, fold=False)
        made = time.perf_counter() - start

        def tasks(program: Any = program, compiled: Any = compiled, x: Any = x) -> None:
            compiled.run(compiled.start(program.inputs((x,), {})))

        with one_thread(), torch().no_grad():
            eager, own = in_turn(functools.partial(module, x), tasks, 5 if quick else 40)
        lines.append([name, str(program.graph.n_tasks), milliseconds(eager), milliseconds(own)])
        lines[-1] += [f"{1e6 * (own - eager) / program.graph.n_tasks:+.2f}", milliseconds(made)]
    return figures.table(["network", "tasks", "module, ms", "tasks, ms", "difference, us a task", "making the functions, ms"], lines)


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


def main(words: Sequence[str] | None = None) -> None:
    """Measure every network and publish the tables."""
    from hetsched import runtime

    parser = figures.parser(__doc__)
    parser.add_argument("--networks", nargs="+", choices=SIZES, help="default: all; with --quick squeezenet")
    parser.add_argument("--batches", nargs="+", type=int, help="default: 1 and 4; with --quick 1")
    parser.add_argument("--runs", type=int, help="runs that count (default: 30; with --quick 3)")
    arguments: argparse.Namespace = figures.parse(parser, words, region=REGION)
    quick = arguments.quick
    if len(cores()) < 2:
        parser.error("the two workers need two cores; this process has one")
    names = arguments.networks or (["squeezenet"] if quick else [*SIZES])
    runs = arguments.runs or (3 if quick else 30)
    lines, numbers = [], []
    for batch in arguments.batches or ([1] if quick else [1, 4]):
        for name in names:
            take = functools.partial(session, name, QUICK if quick else SIZES[name], batch, runs, 1.0 if quick else SECONDS)
            found = undisturbed(take)
            lines.append(row(name, batch, found))
            numbers.append(
                {
                    "network": name,
                    "batch": batch,
                    "one": found.one,
                    "plan": found.plan,
                    "compare": found.compare,
                    **{key: getattr(found.comparison, key) for key in ("forecast", "run", "q25", "q75", "error", "engine", "stolen")},
                    "replays": found.comparison.replays.makespan.tolist(),
                }
            )
            print(" | ".join(lines[-1]), flush=True)
    clear = [one for one, line in zip(numbers, lines, strict=True) if "disturbed" not in line]
    said = [f"Taken on: {figures.where('torch')}, {figures.machine().rpartition(', ')[2]}. {runs} runs of each."]
    if clear:
        errors, engines = ([abs(one[key]) for one in clear] for key in ("error", "engine"))
        said.append(
            f"Of {len(clear)} rows that are not disturbed: error of the forecast, median {percent(statistics.median(errors))}, largest "
            f"{percent(max(errors))}; engine, median {percent(statistics.median(engines))}, largest {percent(max(engines))}. "
            f"The longest plan took {milliseconds(max(one['plan'] for one in numbers))} ms, the longest comparison "
            f"{milliseconds(max(one['compare'] for one in numbers))} ms. "
        )
    said.append(f"A hand-off between two threads: {1e6 * hand_off():.1f} us, median of {HAND_OFFS}.")
    streams = []
    for name in arguments.networks or STREAMS[: 1 if quick else None]:
        follow = functools.partial(stream, name, QUICK if quick else SIZES[name], 1, runs, 1.0 if quick else SECONDS)
        flowed = undisturbed(follow)
        streams.append(stream_row(name, 1, flowed))
        numbers.append({"stream": name, **flowed._asdict(), "times": flowed.times._asdict()})
        print(" | ".join(streams[-1]), flush=True)
    processes = []
    with runtime.Ranks(2) as ranks:
        for name in arguments.networks or APART[: 1 if quick else None]:
            divide = functools.partial(apart, name, QUICK if quick else SIZES[name], 1, runs, 1.0 if quick else SECONDS, ranks)
            divided = undisturbed(divide)
            processes.append(apart_row(name, 1, divided))
            own = {key: getattr(divided.comparison, key) for key in ("forecast", "run", "q25", "q75", "error", "engine", "stolen")}
            numbers.append({"processes": name, "one": divided.one, "messages": divided.messages, "plain": divided.plain, **own})
            print(" | ".join(processes[-1]), flush=True)
    tables = [figures.table(HEAD, lines), "### Streams of inputs", figures.table(STREAM_HEAD, streams)]
    tables += ["### Two processes, by gloo", figures.table(APART_HEAD, processes)]
    text = "\n\n".join([*said, *tables, "### Compiled tasks", dispatch(names, quick)])
    figures.publish(arguments, REGION, text, numbers)


if __name__ == "__main__":
    main()
