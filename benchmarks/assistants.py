"""A device slows down during a run: the share of the loss that run-time assistants recover, compared with re-solving and no policy.

    python benchmarks/assistants.py [--quick]
    python benchmarks/assistants.py --real [--quick]

The busiest device of a good schedule takes twice as long from half of the iterations on; then each other one. Every decision of
a policy is verified.

With --real a network runs on two CPU workers, each on a core of its own, while another process computes on one of these cores for
a part of the iterations. This needs torch and two cores.
"""

from __future__ import annotations

import functools
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import figures
import numpy as np
import truth

import hetsched as hs
from hetsched.costs.timeline import DISTURBED
from hetsched.runtime import Assistants, Interference, Observation, Policy, Resolve, Run, Scenario, SlowDown, Static, iterate

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
POLICIES = ("static", "assistants", "assistants, gamma 0.5", "re-solve")
OTHERS = ("static", "assistants", "re-solve")
"""The policies where another device than the busiest becomes slow."""
LEAST_LOSS = 0.01
"""Relative loss below which no share of it is given."""


def policy(name: str, evaluations: int) -> Policy:
    """Return a policy by its name in the tables."""
    if name == "static":
        return Static()
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
        self.others: dict[str, dict[str, Run]] = {}
        for device, busy in zip(problem.cluster.names, schedule.busy_time.tolist(), strict=True):
            if busy > 0 and device != self.slow:
                other = Scenario([SlowDown(device, FACTOR, self.change)], noise=NOISE)
                self.others[device] = {name: self.run(policy(name, evaluations), iterations, other) for name in OTHERS}
        self.steady = [self.run(policy("assistants", 0), 5 * iterations, Scenario(noise=noise)) for noise in noises]
        shared = Scenario(noise=NOISE, interference=Interference(rate=0.01, share=0.5, length=20))
        self.shared = {name: self.run(policy(name, evaluations), 5 * iterations, shared) for name in POLICIES[:2]}

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
            "steady": [run.moved.tolist() for run in self.steady],
            "others": {device: {name: level(run) for name, run in runs.items()} for device, runs in self.others.items()},
            "shared": {name: float(run.seconds.mean()) for name, run in self.shared.items()},
        }


def levels(races: Mapping[str, Race]) -> str:
    """Return the table of iteration times, and of the share of the loss recovered."""
    rows = []
    for name, race in races.items():
        times = [figures.number(1e3 * seconds) for seconds in (race.before(), *(race.after(policy) for policy in POLICIES))]
        rows.append([name, race.slow, *times, *(f"{race.recovered(policy):.2f}" for policy in POLICIES[1:3])])
    head = ["graph", "slow device", "before, ms", *(f"{name}, ms" for name in POLICIES), "recovered", "recovered, gamma 0.5"]
    return figures.table(head, rows)


def others(races: Mapping[str, Race]) -> str:
    """Return the table of iteration times where a device that is not the busiest is slow."""
    rows = []
    for name, race in races.items():
        for device, runs in race.others.items():
            static, own, solved = (level(runs[policy]) for policy in OTHERS)
            share = f"{(static - own) / (static - solved):.2f}" if static > solved * (1 + LEAST_LOSS) else "-"
            times = [figures.number(1e3 * seconds) for seconds in (race.before(), static, own, solved)]
            rows.append([name, device, *times, share, str(runs["assistants"].migrations)])
    return figures.table(["graph", "slow device", "before, ms", *(f"{name}, ms" for name in OTHERS), "recovered", "migrations"], rows)


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
    """Return the table of migrations by the assistants without a change of speeds, and of the cost of other load."""
    rows = []
    for name, race in races.items():
        halves = [(run.moved[: len(run.moved) // 2].sum(), run.moved[len(run.moved) // 2 :].sum()) for run in race.steady]
        shared = race.shared["assistants"]
        ratio = shared.seconds.mean() / race.shared["static"].seconds.mean()
        rows.append([name, *(f"{first} + {second}" for first, second in halves), str(shared.migrations), f"{ratio:.3f}"])
    return figures.table(["graph", *(f"noise {noise:g}" for noise in noises), "other load", "time over static"], rows)


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
    iterations, evaluations = (40, 5_000) if arguments.quick else (200, 500_000)
    noises = (0.0, 0.05, 0.2)
    hs.solve(GRAPHS["googlenet, diviml"](), "annealing", evaluations=100)  # compiles the kernels
    races = {}
    for name in list(GRAPHS)[-2 if arguments.quick else 0 :]:
        races[name] = Race(GRAPHS[name](), iterations, evaluations, noises)
        text = ", ".join(f"{policy} {1e3 * races[name].after(policy):.3f}" for policy in POLICIES)
        print(f"{name}: {text} ms", flush=True)
    parts = [
        f"Taken on: {figures.machine()}. {iterations} iterations, the change after {iterations // 2}; "
        f"{figures.number(evaluations)} evaluations a solve.",
        levels(races),
        f"![Iteration time of each policy around the change, relative to before](images/{REGION}.svg)",
        "### Devices that are not the busiest",
        others(races),
        "### What it costs",
        costs(races),
        "### Without a change",
        calm(races, noises),
    ]
    figures.publish(arguments, REGION, "\n\n".join(parts), {name: race.figures() for name, race in races.items()})
    if arguments.docs is not None:
        plot(races, arguments.docs / "images" / f"{REGION}.svg")


if __name__ == "__main__":
    main()
