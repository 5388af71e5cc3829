"""Devices, links and memory change during a run: run-time assistants compared with re-solving and no policy.

    python benchmarks/assistants.py [--quick]
    python benchmarks/assistants.py --real [--quick]

The busiest device of a good schedule takes twice as long from half of the iterations on. Then each device, several of them and each
link become slower, each device loses memory, and a device recovers: the iterations ten after each change, relative to re-solving.
Every decision of a policy is verified.

With --real a network runs on two CPU workers, each on a core of its own, while another process computes on one of these cores for
a part of the iterations. This needs torch and two cores.
"""

from __future__ import annotations

import functools
import itertools
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import figures
import numpy as np
import truth

import hetsched as hs
from hetsched.costs.timeline import DISTURBED
from hetsched.runtime import (
    Assistants,
    Interference,
    LessMemory,
    Observation,
    Policy,
    Resolve,
    Run,
    Scenario,
    SearchingAssistants,
    SlowDown,
    SlowLink,
    Static,
    iterate,
)

REGION = "assistants"
REAL = "assistants_real"
FACTOR = 2.0
NOISE = 0.05
SETTLED = 0.05
"""Relative distance from its last level within which an iteration time has settled."""
Graphs = Mapping[str, Callable[[], hs.Problem]]


def _problem(graph: hs.TaskGraph, cluster: hs.Cluster) -> hs.Problem:
    return hs.Problem(graph, cluster, costs=hs.costs.Roofline())


GRAPHS: Graphs = {
    "rwnn er, diviml": lambda: _problem(hs.workloads.rwnn("er", 32), hs.workloads.clusters.diviml()),
    "rwnn ws, diviml": lambda: _problem(hs.workloads.rwnn("ws", 32), hs.workloads.clusters.diviml()),
    "rwnn ba, diviml": lambda: _problem(hs.workloads.rwnn("ba", 32), hs.workloads.clusters.diviml()),
    "rwnn er, moirai_intra": lambda: _problem(hs.workloads.rwnn("er", 32), hs.workloads.clusters.moirai_intra()),
    "googlenet, diviml": lambda: _problem(hs.workloads.networks.load("googlenet"), hs.workloads.clusters.diviml()),
    "inception_v3, diviml": lambda: _problem(hs.workloads.networks.load("inception_v3"), hs.workloads.clusters.diviml()),
}
POLICIES = ("static", "assistants", "assistants, gamma 0.5", "searching", "re-solve")
MOVING = POLICIES[1:-1]
CHANGE, SOON, LATER = 10, 10, 20
"""The iteration of a change; those from then until a policy is compared; those until a device recovers."""
EMPTIED, CONGESTED = 20.0, 5.0
"""The factors of a device that is to lose all its tasks, and of a link."""


def equal_tasks() -> hs.Problem:
    """Return 40 equal tasks for four equal devices."""
    tasks = hs.TaskGraph([f"task{i}" for i in range(40)])
    return hs.Problem(tasks, hs.Cluster(["a", "b", "c", "d"], bandwidth=1e9), durations=np.full((40, 4), 1e-3))


def policy(name: str, evaluations: int) -> Policy:
    """Return a policy by its name in the tables."""
    if name == "static":
        return Static()
    if name == "searching":
        return SearchingAssistants()
    return Resolve("annealing", evaluations=evaluations) if name == "re-solve" else Assistants(gamma=0.5 if "0.5" in name else 0.9)


def level(run: Run) -> float:
    """Return the mean seconds of the last quarter of the iterations."""
    return float(run.makespan[-len(run.makespan) // 4 :].mean())


class Race:
    """All policies on one graph, with the same first decision and the same noise."""

    def __init__(self, problem: hs.Problem, iterations: int, evaluations: int, noises: Sequence[float]) -> None:
        schedule = hs.solve(problem, "annealing", evaluations=evaluations).schedule
        self.problem, self.decision, self.change = problem, schedule.decision, iterations // 2
        self.slow = problem.cluster.names[int(schedule.busy_time.argmax())]
        scenario = Scenario([SlowDown(self.slow, FACTOR, self.change)], noise=NOISE)
        self.runs = {name: self.run(policy(name, evaluations), iterations, scenario) for name in POLICIES}
        self.steady = {
            name: [self.run(policy(name, 0), 5 * iterations, Scenario(noise=noise)) for noise in noises]
            for name in ("assistants", "searching")
        }
        shared = Scenario(noise=NOISE, interference=Interference(rate=0.01, share=0.5, length=20))
        self.shared = {name: self.run(policy(name, evaluations), 5 * iterations, shared) for name in ("static", *self.steady)}

    def run(self, policy: Policy, iterations: int, scenario: Scenario) -> Run:
        """Run a policy, and verify all its decisions."""
        run = iterate(self.problem, self.decision, iterations, policy=policy, scenario=scenario)
        for decision in run.decisions.values():
            broken = hs.verify(self.problem, hs.simulate(self.problem, decision))
            assert not broken, broken[0].message
        return run

    def before(self) -> float:
        """Return the mean seconds of an iteration before the change, under `Static`."""
        return float(self.runs["static"].makespan[: self.change].mean())

    def after(self, name: str) -> float:
        """Return the mean seconds of the last quarter of the iterations."""
        return level(self.runs[name])

    def recovered(self, name: str) -> float:
        """Return the share of the loss that is recovered: 0 for static, 1 for re-solving."""
        static = self.after("static")
        return (static - self.after(name)) / (static - self.after("re-solve"))

    def settled(self, name: str) -> int:
        """Return the iterations from the change until the iteration time stays at its last level."""
        away = np.flatnonzero(np.abs(self.runs[name].makespan[self.change :] / self.after(name) - 1) > SETTLED)
        return int(away.max(initial=-1)) + 1

    def figures(self) -> dict[str, Any]:
        """Return the figures."""
        return {
            "slow": self.slow,
            "before": self.before(),
            "after": {name: self.after(name) for name in POLICIES},
            "recovered": {name: self.recovered(name) for name in POLICIES[1:]},
            "settled": {name: self.settled(name) for name in POLICIES[1:]},
            "migrations": {name: run.migrations for name, run in self.runs.items()},
            "pause": {name: float(run.pause.sum()) for name, run in self.runs.items()},
            "thinking": {name: float(run.thinking[1:].max()) for name, run in self.runs.items()},
            "steady": {name: [run.moved.tolist() for run in runs] for name, runs in self.steady.items()},
            "shared": {name: float(run.seconds.mean()) for name, run in self.shared.items()},
        }


def levels(races: Mapping[str, Race]) -> str:
    """Return the table of iteration times, and of the share of the loss recovered."""
    rows = []
    for name, race in races.items():
        times = [figures.number(1e3 * seconds) for seconds in (race.before(), *(race.after(policy) for policy in POLICIES))]
        rows.append([name, race.slow, *times, *(f"{race.recovered(policy):.2f}" for policy in MOVING)])
    head = ["graph", "slow device", "before, ms", *(f"{name}, ms" for name in POLICIES), *(f"recovered, {name}" for name in MOVING)]
    return figures.table(head, rows)


def costs(races: Mapping[str, Race]) -> str:
    """Return the table of the costs of the policies that move tasks."""
    rows = []
    for name, race in races.items():
        for policy in POLICIES[1:]:
            run = race.runs[policy]
            rows.append(
                [
                    f"{name}: {policy}",
                    str(run.migrations),
                    str(int(run.moved[: race.change].sum())),
                    figures.number(1e3 * run.pause.sum()),
                    str(race.settled(policy)),
                    figures.number(1e3 * run.thinking.max()),
                    figures.number(float(run.thinking.max() / race.after("static")), 2),
                ]
            )
    head = ["graph: policy", "migrations", "before the change", "pauses, ms", "settled after", "longest thought, ms", "that in iterations"]
    return figures.table(head, rows)


def calm(races: Mapping[str, Race], noises: Sequence[float]) -> str:
    """Return the table of migrations without a change of speeds, and of the cost of other load."""
    rows = []
    for name, race in races.items():
        for policy, runs in race.steady.items():
            halves = [(run.moved[: len(run.moved) // 2].sum(), run.moved[len(run.moved) // 2 :].sum()) for run in runs]
            shared = race.shared[policy]
            ratio = shared.seconds.mean() / race.shared["static"].seconds.mean()
            moves = [f"{first} + {second}" for first, second in halves]
            rows.append([f"{name}: {policy}", *moves, str(shared.migrations), f"{ratio:.3f}"])
    return figures.table(["graph: policy", *(f"noise {noise:g}" for noise in noises), "other load", "time over static"], rows)


# ---------------------------------------------------------------------- every change


class Change(NamedTuple):
    """One change of a problem, and the iteration in which policies are compared."""

    kind: str
    where: str
    scenario: Scenario
    at: int = CHANGE + SOON


class Result(NamedTuple):
    """What the policies have made of a change; seconds of an iteration without noise."""

    kind: str
    where: str
    seconds: dict[str, float]
    """NaN for a decision that does not fit the memory."""
    cpu: dict[str, list[float]]
    """CPU seconds of each decision after the change, or of the solve."""
    migrations: dict[str, int]

    def ratio(self, name: str) -> float:
        """Return the seconds of an iteration relative to re-solving."""
        return self.seconds[name] / self.seconds["re-solve"]


class Timed:
    """A policy with the CPU time of its decisions."""

    def __init__(self, policy: Policy) -> None:
        self.policy, self.cpu = policy, list[float]()

    def begin(self, problem: hs.Problem, decision: hs.Decision) -> None:
        """Begin."""
        self.policy.begin(problem, decision)

    def observe(self, observation: Observation) -> hs.Decision | None:
        """Observe, and add the CPU time."""
        before = time.thread_time()
        decision = self.policy.observe(observation)
        self.cpu.append(time.thread_time() - before)
        return decision


def changes(problem: hs.Problem, schedule: hs.Schedule) -> Iterator[Change]:
    """Yield every change of devices that have tasks, of links that have transfers, and of memory in use."""
    names, capacity = problem.cluster.names, problem.cluster.memory_bytes
    assert schedule.static_memory is not None
    used = [name for name, busy in zip(names, schedule.busy_time.tolist(), strict=True) if busy > 0]
    for name, factor in itertools.product(used, (2.0, 3.0)):
        yield Change("one device, x 2 or 3", f"{name} x {factor:g}", Scenario([SlowDown(name, factor, CHANGE)], noise=NOISE))
    for rest in used:
        slow = [SlowDown(name, 2.0, CHANGE) for name in used if name != rest]
        yield Change("all devices but one, x 2", f"all but {rest}", Scenario(slow, noise=NOISE))
    for first in range(len(used)):
        slow = [SlowDown(name, 1 + (first + place) % len(used), CHANGE) for place, name in enumerate(used)]
        yield Change("all devices, x 1, 2, 3 ...", f"from {used[first]}", Scenario(slow, noise=NOISE))
    device, moves = schedule.batches.device, schedule.transfers
    for h, k in sorted({*zip(device[moves.source].tolist(), device[moves.target].tolist(), strict=True)}):
        slow_link = SlowLink(names[h], names[k], CONGESTED, CHANGE)
        yield Change(f"one link, x {CONGESTED:g}", f"{names[h]} to {names[k]}", Scenario(noise=NOISE, slow_links=[slow_link]))
    for k, size in enumerate(schedule.static_memory.tolist()):
        if size > 0 and np.isfinite(capacity[k]):
            less = LessMemory(names[k], float(capacity[k]) - size / 2, CHANGE)
            yield Change("memory for half", names[k], Scenario(noise=NOISE, less_memory=[less]))
    for name in used:
        yield Change(f"one device, x {EMPTIED:g}", name, Scenario([SlowDown(name, EMPTIED, CHANGE)], noise=NOISE))
        passing = Scenario([SlowDown(name, EMPTIED, CHANGE, CHANGE + LATER)], noise=NOISE)
        yield Change("recovered from that", name, passing, CHANGE + LATER + SOON)


def result(problem: hs.Problem, start: hs.Decision, change: Change, evaluations: int) -> Result:
    """Run the policies on a change, and solve the problem as it is then."""
    present = change.scenario.problem(problem, change.at)
    seconds, cpu, migrations = {}, {}, {}
    for name in ("static", "assistants", "searching"):
        timed = Timed(policy(name, evaluations))
        run = iterate(problem, start, change.at + 1, policy=timed, scenario=change.scenario)
        last = hs.simulate(present, run.decisions[max(run.decisions)])
        for decision in run.decisions.values():
            assert not hs.verify(problem, hs.simulate(problem, decision))
        seconds[name] = float("nan") if hs.verify(present, last) else last.makespan
        cpu[name], migrations[name] = timed.cpu[CHANGE + 1 : change.at], run.migrations
    before = time.thread_time()
    fits = not hs.verify(present, hs.simulate(present, start))
    solved = hs.solve(present, "annealing", evaluations=evaluations, start=start if fits else None).schedule
    cpu["re-solve"] = [time.thread_time() - before]
    assert solved is not None  # half of the memory in use suffices for half of the tasks, and the others have more
    seconds["re-solve"] = solved.makespan
    return Result(change.kind, change.where, seconds, cpu, migrations)


def compared(results: Mapping[str, Sequence[Result]]) -> str:
    """Return the table of iteration times relative to re-solving: the mean and the worst of each kind of change of a graph."""
    rows = []
    for name, own in results.items():
        for kind in dict.fromkeys(result.kind for result in own):
            some = [result for result in own if result.kind == kind]
            ratios = [np.array([result.ratio(policy) for result in some]) for policy in ("static", "assistants", "searching")]
            texts = ["does not fit" if np.isnan(ratio).any() else f"{ratio.mean():.2f}, {ratio.max():.2f}" for ratio in ratios]
            worst = max(some, key=lambda result: result.ratio("searching"))
            rows.append([name, kind, str(len(some)), *texts, worst.where])
    return figures.table(["graph", "change", "cases", "static", "assistants", "searching", "its worst case"], rows)


def decisions(results: Mapping[str, Sequence[Result]], iterations: Mapping[str, float]) -> str:
    """Return the table of CPU time of decisions in the ten iterations after a change; `iterations` are seconds before it."""
    rows = []
    for name, own in results.items():
        row = [name, figures.number(1e3 * iterations[name])]
        for policy in ("assistants", "searching"):
            spent = np.concatenate([result.cpu[policy] for result in own if result.migrations[policy]] or [np.zeros(1)])
            row += [figures.number(1e3 * float(spent.mean())), figures.number(1e3 * float(spent.max()))]
        rows.append([*row, figures.number(1e3 * float(np.mean([result.cpu["re-solve"] for result in own])))])
    head = ["graph", "iteration before", "assistants, mean", "longest", "searching, mean", "longest", "re-solve, mean"]
    return figures.table(head, rows)


def plot(races: Mapping[str, Race], path: Path) -> None:
    """Draw the iteration times around the change, relative to those before."""
    import matplotlib.pyplot as plt

    columns = min(3, len(races))
    rows = -(-len(races) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(3.3 * columns, 2.4 * rows), squeeze=False, sharex=True)
    for ax in axes.flat[len(races) :]:
        ax.set_visible(False)
    for ax, (name, race) in zip(axes.flat, races.items(), strict=False):
        for policy, colour in zip(POLICIES, figures.COLOURS, strict=False):
            seconds = race.runs[policy].seconds / race.before()
            ax.plot(np.arange(len(seconds)) - race.change, seconds, color=colour, linewidth=1.2, label=policy)
        ax.set_xlim(-0.2 * race.change, 0.6 * race.change)
        ax.set_ylim(bottom=0.9)
        ax.set_title(name, loc="left", fontsize=10)
        ax.spines[["top", "right"]].set_visible(False)
    for ax in axes[-1]:
        ax.set_xlabel("iterations after the change")
    for ax in axes[:, 0]:
        ax.set_ylabel("time, 1 = before")
    figure.tight_layout()
    figures.legend_below(figure, axes[0, 0])
    figures.save(figure, path)
    plt.close(figure)


# ---------------------------------------------------------------------- on real workers


class Scale(NamedTuple):
    """The size of a session with real workers."""

    network: str
    size: int
    iterations: int
    start: int
    stop: int
    """The other process computes from iteration `start` until before `stop`."""
    warm: int
    """The first iterations, which do not count."""
    rounds: int
    evaluations: int
    limit: float
    """Seconds of a solve in advance."""

    @property
    def phases(self) -> dict[str, slice]:
        """The iterations before, with the other process, the last third of them, and after it."""
        settled = self.stop - (self.stop - self.start) // 3
        return {
            "before": slice(self.warm, self.start),
            "with it": slice(self.start, self.stop),
            "settled": slice(settled, self.stop),
            "after": slice(self.stop, self.iterations),
        }


FULL = Scale("googlenet", 224, 100, 30, 60, 5, 3, 100_000, 10.0)
QUICK = Scale("squeezenet", 64, 24, 6, 15, 2, 1, 2_000, 1.0)


class Spinner:
    """A process that computes on one core while it is on."""

    def __init__(self, core: int) -> None:
        code = f"import os\nos.sched_setaffinity(0, [{core}])\nprint(flush=True)\nwhile True: pass"
        self.process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        self.process.stdout.readline()
        self.switch(False)

    def switch(self, on: bool) -> None:
        """Let it compute, or not."""
        self.process.send_signal(signal.SIGCONT if on else signal.SIGSTOP)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.process.kill()
        self.process.communicate()


class ByHand:
    """Two decisions for a scenario that is known: from `start` until before `stop` the second one."""

    def __init__(self, usual: hs.Decision, slow: hs.Decision, start: int, stop: int) -> None:
        self._from = {start - 1: slow, stop - 1: usual}

    def begin(self, problem: hs.Problem, decision: hs.Decision) -> None:
        """Do nothing."""

    def observe(self, observation: Observation) -> hs.Decision | None:
        """Return the decision that begins with the next iteration."""
        return self._from.get(observation.iteration)


class Recorder:
    """A runner that keeps the timelines, and the largest deviation from the expected result."""

    def __init__(self, placed: Any, problem: hs.Problem, expected: Any) -> None:
        self.placed, self.problem, self.expected = placed, problem, expected
        self.timelines: list[hs.costs.Timeline] = []
        self.deviation = 0.0

    def replace(self, decision: hs.Decision) -> None:
        """Run by another decision."""
        self.placed.replace(decision)

    def timed(self, *args: Any) -> tuple[Any, hs.costs.Timeline]:
        """Run once."""
        result, timeline = self.placed.timed(*args)
        self.timelines.append(timeline)
        self.deviation = max(self.deviation, float((result - self.expected).abs().max() / self.expected.abs().max()))
        return result, timeline


class Lap(NamedTuple):
    """One run of all iterations under a policy."""

    run: Run
    wall: Any
    """Seconds of the tasks of each device in each iteration, [I, K]."""
    cpu: Any
    """CPU seconds of them."""
    deviation: float


class RealRace(NamedTuple):
    """All policies on real workers."""

    scale: Scale
    tasks: int
    slow: int
    """The device on whose core the other process computes."""
    laps: dict[str, list[Lap]]

    def pooled(self, name: str, phase: str) -> Any:
        """Return the seconds of the iterations of a phase, of all rounds."""
        return np.concatenate([lap.run.makespan[self.scale.phases[phase]] for lap in self.laps[name]])

    def median(self, name: str, phase: str) -> float:
        """Return the median seconds of the iterations of a phase."""
        return float(np.median(self.pooled(name, phase)))

    @property
    def stolen(self) -> float:
        """Part of the time of tasks that was taken by what is not part of the scenario, in all laps."""
        wall, cpu = (sum(self._outside(lap, part) for laps in self.laps.values() for lap in laps) for part in ("wall", "cpu"))
        return 1 - cpu / wall

    @property
    def spun(self) -> float:
        """Part of the time of tasks that the other process took on its core while it computed."""
        there = self.scale.phases["with it"], self.slow
        wall, cpu = (sum(getattr(lap, part)[there].sum() for laps in self.laps.values() for lap in laps) for part in ("wall", "cpu"))
        return float(1 - cpu / wall)

    def _outside(self, lap: Lap, part: str) -> float:
        """Return the seconds of tasks, but for those beside the other process and in the first iterations."""
        seconds = getattr(lap, part).copy()
        seconds[self.scale.phases["with it"], self.slow] = 0.0
        return float(seconds[self.scale.warm :].sum())

    def recovered(self, name: str) -> float:
        """Return the share of the loss that is recovered: 0 for static, 1 by hand."""
        static, best = self.median("static", "settled"), self.median("by hand", "settled")
        return (static - self.median(name, "settled")) / (static - best)


def lap(recorder: Recorder, decision: hs.Decision, policy: Policy, scale: Scale, spinner: Spinner, x: Any) -> Lap:
    """Run all iterations under a policy."""

    def items() -> Iterator[Any]:
        for t in range(scale.iterations):
            if t in (scale.start, scale.stop):
                spinner.switch(t == scale.start)
            yield x

    recorder.timelines, recorder.deviation = [], 0.0
    run = iterate(recorder, decision, scale.iterations, policy=policy, items=items())
    size = recorder.problem.n_devices
    batches = [(timeline.schedule.batches, timeline.cpu) for timeline in recorder.timelines]
    wall = np.array([np.bincount(own.device, own.finish - own.start, size) for own, _ in batches])
    cpu = np.array([np.bincount(own.device, np.minimum(spent, own.finish - own.start), size) for own, spent in batches])
    return Lap(run, wall, cpu, recorder.deviation)


def real_race(scale: Scale) -> RealRace:
    """Profile a network on two workers, place it, and run it under each policy in turn."""
    from hetsched import runtime

    case = truth.profiled(scale.network, scale.size, 1, max(5, scale.warm))
    first = hs.solve(case.problem, time_limit=scale.limit).schedule
    assert first is not None  # memory is not limited
    with truth.one_thread(), truth.torch().no_grad():
        expected = case.module(case.x)
    with runtime.Executor(case.program, None, first, devices=case.devices, problem=case.problem) as placed:
        placed.measure(case.x, runs=20)
        problem = placed.profiled(case.problem)
        usual = hs.solve(problem, time_limit=scale.limit, start=first.decision).schedule
        assert usual is not None
        slow = int(usual.busy_time.argmax())
        durations = problem.durations.copy()
        durations[:, slow] *= FACTOR
        slowed = hs.solve(problem.replace(durations=durations), time_limit=scale.limit, start=usual.decision).schedule
        assert slowed is not None
        makers: dict[str, Callable[[], Policy]] = {
            "static": Static,
            "assistants": Assistants,
            "searching": SearchingAssistants,
            "re-solve": lambda: Resolve("annealing", evaluations=scale.evaluations),
            "by hand": lambda: ByHand(usual.decision, slowed.decision, scale.start, scale.stop),
        }
        laps: dict[str, list[Lap]] = {name: [] for name in makers}
        recorder = Recorder(placed, problem, expected)
        (core,) = case.devices[problem.cluster.names[slow]]
        for _ in range(scale.rounds):
            for name, make in makers.items():
                with Spinner(core) as spinner:
                    laps[name].append(lap(recorder, usual.decision, make(), scale, spinner, case.x))
    return RealRace(scale, problem.n_tasks, slow, laps)


def real_table(race: RealRace) -> str:
    """Return the table of the policies on real workers."""
    rows = []
    for name, laps in race.laps.items():
        quantiles = [np.quantile(race.pooled(name, phase), [0.5, 0.25, 0.75]) for phase in race.scale.phases]
        times = [
            f"{truth.milliseconds(median)} ({truth.milliseconds(low)} to {truth.milliseconds(high)})" for median, low, high in quantiles
        ]
        share = "disturbed" if race.stolen > DISTURBED else f"{race.recovered(name):.2f}"
        rows.append(
            [
                name,
                *times,
                share,
                figures.number(float(np.median([lap.run.seconds.sum() for lap in laps]))),
                figures.number(float(np.median([lap.run.thinking.sum() for lap in laps]))),
                "; ".join(str(lap.run.migrations) for lap in laps),
                truth.milliseconds(max(float(lap.run.pause.max()) for lap in laps)),
            ]
        )
    phases = [f"{phase}, ms" for phase in race.scale.phases]
    head = ["policy", *phases, "recovered", "all iterations, s", "policy, s", "migrations", "longest pause, ms"]
    return figures.table(head, rows)


def real(arguments: Any) -> None:
    """Run all policies on real workers and publish the table."""
    scale = QUICK if arguments.quick else FULL
    race = truth.undisturbed(functools.partial(real_race, scale))
    deviation = max(lap.deviation for laps in race.laps.values() for lap in laps)
    ratio = np.concatenate([lap.wall[scale.phases["with it"], race.slow] for lap in race.laps["static"]])
    usual = np.concatenate([lap.wall[scale.phases["before"], race.slow] for lap in race.laps["static"]])
    text = (
        f"Taken on: {figures.where('torch')}, {figures.machine().rpartition(', ')[2]}. {scale.network}, {scale.size} x {scale.size}, "
        f"{race.tasks} tasks; {scale.iterations} iterations, with the other process from {scale.start} until before {scale.stop}; "
        f"{scale.rounds} runs of each policy, in turn.\n\n"
        f"Tasks beside the other process took {np.median(ratio) / np.median(usual):.2f} times as long under `static`, and it had "
        f"{figures.percent(race.spun)} of their time. Of the time of all other tasks {figures.percent(race.stolen)} was stolen"
        + (", so that the session was disturbed and supports no claim" if race.stolen > DISTURBED else "")
        + f". Largest deviation of a result: {deviation:.1e}."
    )
    numbers = {
        name: {
            **{phase: race.pooled(name, phase).tolist() for phase in scale.phases},
            "seconds": [float(lap.run.seconds.sum()) for lap in laps],
            "thinking": [lap.run.thinking.tolist() for lap in laps],
            "moved": [lap.run.moved.tolist() for lap in laps],
            "pause": [lap.run.pause.tolist() for lap in laps],
        }
        for name, laps in race.laps.items()
    }
    figures.publish(arguments, REAL, f"{text}\n\n{real_table(race)}", {"stolen": race.stolen, "spun": race.spun, **numbers})


def main(words: Sequence[str] | None = None) -> None:
    """Run all policies on all graphs and publish tables and picture."""
    parser = figures.parser(__doc__)
    parser.add_argument("--real", action="store_true", help="only the section on real CPU workers")
    if parser.parse_args(words).real:
        if len(truth.cores()) < 2:
            parser.error("the two workers need two cores; this process has one")
        real(figures.parse(parser, words, region=REAL))
        return
    arguments = figures.parse(parser, words, region=REGION, plot=True)
    iterations, evaluations = (40, 5_000) if arguments.quick else (200, 200_000)
    noises = (0.0, 0.05, 0.2)
    hs.solve(GRAPHS["googlenet, diviml"](), "annealing", evaluations=100)  # compiles the kernels
    hs.solve(GRAPHS["googlenet, diviml"](), "tabu", evaluations=100)
    races, results, first = {}, {}, {}
    for name in list(GRAPHS)[-2 if arguments.quick else 0 :]:
        races[name] = Race(GRAPHS[name](), iterations, evaluations, noises)
        text = ", ".join(f"{policy} {1e3 * races[name].after(policy):.3f}" for policy in POLICIES)
        print(f"{name}: {text} ms", flush=True)
        problem, start = races[name].problem, races[name].decision
        schedule = hs.simulate(problem, start)
        first[name] = schedule.makespan
        results[name] = [result(problem, start, change, evaluations) for change in changes(problem, schedule)]
        print(f"{name}: {max(result.ratio('searching') for result in results[name]):.3f} of re-solving at most", flush=True)
    problem = equal_tasks()
    schedule = hs.simulate(problem, hs.Decision.whole(problem, np.arange(40) % 4, range(40)))
    first["40 equal tasks"] = schedule.makespan
    results["40 equal tasks"] = [result(problem, schedule.decision, change, evaluations) for change in changes(problem, schedule)]
    parts = [
        f"Taken on: {figures.machine()}. {iterations} iterations, the change after {iterations // 2}; "
        f"{figures.number(evaluations)} evaluations a solve.",
        levels(races),
        f"![Iteration time of each policy around the change, relative to before](images/{REGION}.svg)",
        "### Every change",
        compared(results),
        "### CPU time of a decision in milliseconds",
        decisions(results, first),
        "### What it costs",
        costs(races),
        "### Without a change",
        calm(races, noises),
    ]
    numbers = {name: race.figures() for name, race in races.items()}
    cases = {name: [result._asdict() for result in own] for name, own in results.items()}
    figures.publish(arguments, REGION, "\n\n".join(parts), {"races": numbers, "changes": cases})
    if arguments.docs is not None:
        plot(races, arguments.docs / "images" / f"{REGION}.svg")


if __name__ == "__main__":
    main()
