"""Multilevel search: coarsen, solve the small graph, and search on at each level on the way back."""

from __future__ import annotations

import math

import numpy as np

from hetsched.arguments import check_count
from hetsched.arrays import IntArray
from hetsched.coarsening.coarse import Coarsening
from hetsched.coarsening.matching import hierarchy
from hetsched.errors import InvalidProblem, UnsupportedFeature
from hetsched.heuristics.pacing import SECONDS
from hetsched.heuristics.placement.celeritas import fused, listed
from hetsched.problem.problem import Problem
from hetsched.schedule.decision import Decision
from hetsched.search import Kind, Monitor, Role, Supports, method, select
from hetsched.stopping import Stop

AT_ONCE = 0.25
"""The share of the time that they get."""
CYCLE, COARSEST, OTHER = 0.5, 0.3, 0.15
"""A cycle takes this share of the time left; of that the coarsest graph gets so much, and Celeritas' coarse graph."""
HOPELESS, WORTH = 1.15, 0.01
"""A cycle ends where its coarse answer is this many times worse than the best; there is another after one that gained as much."""


@method(
    "multilevel",
    summary="coarsens along heavy edges, solves the small graph by auto, and searches on level by level, then as a whole",
    source="Karypis and Kumar 1998; Walshaw 2004; for schedules ours",
    kind=Kind.SEARCH,
    deterministic=False,
    supports=Supports(inputs="whole"),
    turn=360,
)
def multilevel(problem: Problem, monitor: Monitor, *, tasks: int = 200, cycles: int | None = None) -> None:
    """Offer what quick methods of placement find, search level by level while that gains, then the graph itself by auto.

    A first cycle coarsens freely, and searches Celeritas' coarse graph too; those that follow merge only tasks that the best
    schedule has on one device, each in another random order, and start from it. Without any limit it ends after 10 s.

    Parameters
    ----------
    tasks : int
        The size of graph at which coarsening ends.
    cycles : int, optional
        How often to go down and up again, at most; default: as often as it gains.
    """
    for what, value in (("tasks", tasks), ("cycles", cycles)):
        if value is not None:
            check_count(value, what, error=UnsupportedFeature)
    MultilevelSearch(problem, monitor, tasks).run(math.inf if cycles is None else cycles)


class MultilevelSearch:
    def __init__(self, problem: Problem, monitor: Monitor, tasks: int) -> None:
        self.problem, self.monitor, self.tasks = problem, monitor, tasks
        unlimited = math.isinf(monitor.time_left) and monitor.budget.evaluations is None
        self.end = monitor.elapsed + SECONDS if unlimited else math.inf

    @property
    def left(self) -> float:
        """Seconds left; inf where evaluations are limited."""
        return min(self.monitor.time_left, self.end - self.monitor.elapsed)

    @property
    def over(self) -> bool:
        return self.monitor.should_stop or self.left <= 0

    def run(self, cycles: float) -> None:
        """Run the quick methods, cycles of half of what is left each while they gain, and auto in the end."""
        self._baselines()
        done, gains = 0, True
        while done < cycles and gains and not self.over:
            before = self.monitor.incumbent
            self._cycle(first=done == 0)
            done += 1
            gains = self.monitor.incumbent < before * (1 - WORTH)
        if not self.over:
            self.monitor.run("auto", {"seconds": self.left} if math.isfinite(self.left) else {})

    def _baselines(self) -> None:
        """Run the quick methods while they take a part of the time."""
        end = self.monitor.elapsed + AT_ONCE * self.left
        for baseline in select(role=Role.BASELINE, problem=self.problem):
            late = self.over or self.monitor.elapsed >= end
            if late and (self.monitor.best is not None or self.monitor.stopped not in (Stop.NONE, Stop.TIME_LIMIT)):
                return
            self.monitor.attempt(baseline.name)

    def _cycle(self, *, first: bool) -> None:
        """Go down to a small graph and up again."""
        monitor, budget = self.monitor, _Budget(self)
        best = None if first else monitor.best
        within = None if best is None else _devices(self.problem, best.decision)
        try:
            levels = list(hierarchy(self.problem, tasks=self.tasks, within=within, rng=None if first else monitor.rng))
        except InvalidProblem as refusal:  # clusters that no path joins
            monitor.note(f"the graph is searched as it is, for a coarse one is no problem: {refusal}")
            return
        if not levels:
            return
        start = None if within is None else listed(levels[-1].coarse, _carried(levels, within))
        decision = self._solve(levels[-1].coarse, "auto", start, budget.part(COARSEST))
        if first:
            self._other(budget)
        if decision is not None and self._offer(Coarsening.through(self.problem, levels), decision) > HOPELESS * monitor.incumbent:
            return
        part = budget.part((1 - COARSEST - OTHER) / len(levels))
        for level in levels[::-1]:
            if self.over:
                return
            start = None if decision is None else self._better(level, decision)
            if level.problem is self.problem and monitor.best is not None:
                start = monitor.best.decision
            decision = self._solve(level.problem, "annealing", start, part)
        if decision is not None:
            monitor.offer(decision)

    def _other(self, budget: _Budget) -> None:
        """Search Celeritas' coarse graph."""
        found = fused(self.problem, self.monitor)
        if 1 < found.coarse.n_tasks < self.problem.n_tasks and not self.over:
            decision = self._solve(found.coarse, "auto", None, budget.part(OTHER))
            if decision is not None:
                self._offer(found, decision)

    def _offer(self, found: Coarsening, decision: Decision) -> float:
        """Offer a decision carried back to the graph itself, and its devices in the order of upward ranks; return the better value."""
        return min(self.monitor.offer(each) for each in _carried_back(found, decision))

    def _better(self, level: Coarsening, decision: Decision) -> Decision:
        """Return the better one of the two ways to carry a decision to a finer graph."""
        trial = Monitor(level.problem, objective=self.monitor.objective)
        return min(_carried_back(level, decision), key=trial.offer)

    def _solve(self, problem: Problem, name: str, start: Decision | None, budget: tuple[float | None, int | None]) -> Decision | None:
        seconds, evaluations = budget
        found = self.monitor.subsolve(problem, name, time_limit=seconds, evaluations=evaluations, start=start)
        return None if found.schedule is None else found.schedule.decision


class _Budget:
    """What a cycle may spend, in seconds or in evaluations."""

    def __init__(self, search: MultilevelSearch) -> None:
        monitor, evaluations = search.monitor, search.monitor.budget.evaluations
        self.seconds = CYCLE * search.left
        self.evaluations = None if evaluations is None else CYCLE * (evaluations - monitor.evaluations)

    def part(self, share: float) -> tuple[float | None, int | None]:
        """Return a share of it."""
        seconds = None if math.isinf(self.seconds) else share * self.seconds
        return seconds, None if self.evaluations is None else max(1, int(share * self.evaluations))


def _carried_back(found: Coarsening, decision: Decision) -> list[Decision]:
    """Return a decision on the finer graph: the members of each cluster in its place, and the same devices by upward ranks."""
    lifted = found.lift(decision)
    again = listed(found.problem, _devices(found.problem, lifted))
    return [lifted] if again is None else [lifted, again]


def _devices(problem: Problem, decision: Decision) -> IntArray:
    """Return a device for each task, [n]: the one that runs most of its inputs."""
    work = np.zeros((problem.n_tasks, problem.n_devices))
    np.add.at(work, (decision.task, decision.device), np.diff(decision.item_ptr))
    return np.asarray(work.argmax(axis=1))


def _carried(levels: list[Coarsening], device: IntArray) -> IntArray:
    """Return the device of each task of the coarsest graph, all members being on one."""
    for level in levels:
        coarse = np.empty(level.coarse.n_tasks, np.int64)
        coarse[level.cluster] = device
        device = coarse
    return device
