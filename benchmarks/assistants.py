"""A device slows down during a run: the share of the loss that run-time assistants recover, compared with re-solving and no policy.

    python benchmarks/assistants.py [--quick]

The busiest device of a good schedule takes twice as long from half of the iterations on. Every decision of a policy is
verified.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import figures
import numpy as np

import hetsched as hs
from hetsched.runtime import Assistants, Interference, Policy, Resolve, Run, Scenario, SlowDown, Static, iterate

REGION = "assistants"
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
POLICIES = ("static", "assistants", "assistants, gamma 0.9", "re-solve")


def policy(name: str, evaluations: int) -> Policy:
    """Return a policy by its name in the tables."""
    if name == "static":
        return Static()
    return Resolve("annealing", evaluations=evaluations) if name == "re-solve" else Assistants(gamma=0.9 if "0.9" in name else 0.5)


class Race:
    """All policies on one graph, with the same first decision and the same noise."""

    def __init__(self, problem: hs.Problem, iterations: int, evaluations: int, noises: Sequence[float]) -> None:
        schedule = hs.solve(problem, "annealing", evaluations=evaluations).schedule
        self.problem, self.decision, self.change = problem, schedule.decision, iterations // 2
        self.slow = problem.cluster.names[int(schedule.busy_time.argmax())]
        scenario = Scenario([SlowDown(self.slow, FACTOR, self.change)], noise=NOISE)
        self.runs = {name: self.run(policy(name, evaluations), iterations, scenario) for name in POLICIES}
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
        makespan = self.runs[name].makespan
        return float(makespan[-len(makespan) // 4 :].mean())

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
            "shared": {name: float(run.seconds.mean()) for name, run in self.shared.items()},
        }


def levels(races: Mapping[str, Race]) -> str:
    """Return the table of iteration times, and of the share of the loss recovered."""
    rows = []
    for name, race in races.items():
        times = [figures.number(1e3 * seconds) for seconds in (race.before(), *(race.after(policy) for policy in POLICIES))]
        rows.append([name, race.slow, *times, *(f"{race.recovered(policy):.2f}" for policy in POLICIES[1:3])])
    head = ["graph", "slow device", "before, ms", *(f"{name}, ms" for name in POLICIES), "recovered", "recovered, gamma 0.9"]
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


def main(words: Sequence[str] | None = None) -> None:
    """Run all policies on all graphs and publish tables and picture."""
    arguments = figures.parse(figures.parser(__doc__), words, region=REGION, plot=True)
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
