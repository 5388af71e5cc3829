"""Multilevel search: coarsen, solve the coarsest graph, and improve the schedule at each level of uncoarsening."""

from __future__ import annotations

import math

import numpy as np

from hetsched.arguments import check_count
from hetsched.arrays import IntArray
from hetsched.coarsening.coarse import Coarsening
from hetsched.coarsening.matching import hierarchy
from hetsched.errors import InvalidProblem, UnsupportedFeature
from hetsched.heuristics.pacing import SECONDS
from hetsched.heuristics.placement.offers import carried_back, fused, listed, main_devices
from hetsched.problem.problem import Problem
from hetsched.schedule.decision import Decision
from hetsched.search import Kind, Monitor, Role, Supports, method, select
from hetsched.stopping import Stop

AT_ONCE = 0.25
"""Share of the time for the baselines."""
CYCLE, COARSEST, OTHER = 0.5, 0.3, 0.15
"""Shares of the remaining time for a cycle, and of the cycle's time for the coarsest graph and for Celeritas' coarse graph."""
HOPELESS, WORTH = 1.15, 0.01
"""A cycle ends if its coarse schedule is longer than the best by this factor; another follows if the last improved by this share."""


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
    """Run the baselines, then multilevel cycles while they improve the schedule, then auto on the whole graph.

    The first cycle coarsens freely, and also searches Celeritas' coarse graph. Each later cycle starts from the best schedule
    and merges, in a new random order, only tasks on one device in it. Without a limit it ends after 10 s.

    Parameters
    ----------
    tasks : int
        Number of tasks at which coarsening ends.
    cycles : int, optional
        Maximum number of cycles; default: until one gains too little.
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
        """Run the baselines, cycles of half the remaining time each while they improve the schedule, and auto."""
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
        """Run the baselines within their share of the time."""
        end = self.monitor.elapsed + AT_ONCE * self.left
        for baseline in select(role=Role.BASELINE, problem=self.problem):
            late = self.over or self.monitor.elapsed >= end
            if late and (self.monitor.best is not None or self.monitor.stopped not in (Stop.NONE, Stop.TIME_LIMIT)):
                return
            self.monitor.attempt(baseline.name)

    def _cycle(self, *, first: bool) -> None:
        """Coarsen, solve the coarsest graph, and search level by level."""
        monitor, budget = self.monitor, _Budget(self)
        best = None if first else monitor.best
        within = None if best is None else main_devices(self.problem, best.decision)
        try:
            levels = list(hierarchy(self.problem, tasks=self.tasks, within=within, rng=None if first else monitor.rng))
        except InvalidProblem as refusal:  # clusters without a path between them
            monitor.note(f"the graph is searched without coarsening, because its coarse problem is invalid: {refusal}")
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
        coarsening = fused(self.problem, self.monitor)
        if 1 < coarsening.coarse.n_tasks < self.problem.n_tasks and not self.over:
            decision = self._solve(coarsening.coarse, "auto", None, budget.part(OTHER))
            if decision is not None:
                self._offer(coarsening, decision)

    def _offer(self, coarsening: Coarsening, decision: Decision) -> float:
        """Offer the two decisions of `carried_back`; return the better value."""
        return min(self.monitor.offer(finer) for finer in carried_back(coarsening, decision))

    def _better(self, level: Coarsening, decision: Decision) -> Decision:
        """Return the better of the two decisions of `carried_back`."""
        trial = Monitor(level.problem, objective=self.monitor.objective)
        return min(carried_back(level, decision), key=trial.offer)

    def _solve(self, problem: Problem, name: str, start: Decision | None, budget: tuple[float | None, int | None]) -> Decision | None:
        seconds, evaluations = budget
        solution = self.monitor.subsolve(problem, name, time_limit=seconds, evaluations=evaluations, start=start)
        return None if solution.schedule is None else solution.schedule.decision


class _Budget:
    """The budget of a cycle in seconds or evaluations."""

    def __init__(self, search: MultilevelSearch) -> None:
        monitor, evaluations = search.monitor, search.monitor.budget.evaluations
        self.seconds = CYCLE * search.left
        self.evaluations = None if evaluations is None else CYCLE * (evaluations - monitor.evaluations)

    def part(self, share: float) -> tuple[float | None, int | None]:
        """Return a share of the budget as (seconds, evaluations)."""
        seconds = None if math.isinf(self.seconds) else share * self.seconds
        return seconds, None if self.evaluations is None else max(1, int(share * self.evaluations))


def _carried(levels: list[Coarsening], device: IntArray) -> IntArray:
    """Return the device of each task of the coarsest graph; all members of a cluster are on one device."""
    for level in levels:
        coarse = np.empty(level.coarse.n_tasks, np.int64)
        coarse[level.cluster] = device
        device = coarse
    return device
