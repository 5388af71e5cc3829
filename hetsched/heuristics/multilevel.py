"""Multilevel search: coarsen, solve the coarsest graph, and improve the schedule at each level of uncoarsening."""

from __future__ import annotations

import math

from hetsched.arguments import check_count
from hetsched.arrays import IntArray
from hetsched.coarsening.coarse import Coarsening
from hetsched.coarsening.matching import hierarchy
from hetsched.errors import InvalidProblem, UnsupportedFeature
from hetsched.heuristics.pacing import SECONDS
from hetsched.heuristics.placement.offers import carried_back, fused, main_devices
from hetsched.problem.problem import Problem
from hetsched.schedule.decision import Decision
from hetsched.search import Kind, Monitor, Role, Supports, method, select
from hetsched.stopping import Stop

AT_ONCE = 0.25
"""Share of the time for the baselines."""
COARSEST, OTHER = 0.15, 0.05
"""Shares of the remaining time for the coarsest graph and for Celeritas' coarse graph."""
CYCLE, CYCLES, WORTH = 0.3, 0.5, 0.002
"""Shares of the remaining time for a cycle, and for all but those that follow one that improved the schedule by the third share."""
LEVELS, FINER, MOST = 3, 1.5, 10
"""The most levels of a cycle; the least factor between the units of two; the most units of one, as a multiple of `tasks`."""


@method(
    "multilevel",
    summary="coarsens along heavy edges, solves the small graph by auto, and moves ever smaller clusters, then single tasks",
    source="Karypis and Kumar 1998; Walshaw 2004; for schedules ours",
    kind=Kind.SEARCH,
    deterministic=False,
    supports=Supports(inputs="whole"),
    turn=360,
)
def multilevel(problem: Problem, monitor: Monitor, *, tasks: int = 200, cycles: int | None = None) -> None:
    """Run the baselines, solve coarse graphs, then run cycles while they improve the schedule, then auto on the whole graph.

    A cycle starts from the best schedule. It merges, in a random order, only tasks on one device in it, and searches on the whole graph
    with the clusters of a level co-located, from the coarsest level on: a move is that of a cluster, and is evaluated
    task by task, with contention. Without a limit the method ends after 10 s.

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
    def _amount(self) -> float:
        """Seconds left, or evaluations where they alone are limited."""
        return self.left if math.isfinite(self.left) else (self.monitor.budget.evaluations or 0) - self.monitor.evaluations

    @property
    def over(self) -> bool:
        return self.monitor.should_stop or self.left <= 0

    def run(self, cycles: float) -> None:
        """Run the baselines, solve coarse graphs, and run cycles while they improve the schedule, and auto."""
        self._baselines()
        levels = self._levels()
        if levels:
            self._coarse(levels[0], COARSEST)
        self._coarse(fused(self.problem, self.monitor), OTHER)
        rest, done, gains = (1 - CYCLES) * self._amount, 0, True
        while done < cycles and (gains or self._amount > rest) and not self.over and self.monitor.best is not None:
            before = self.monitor.incumbent
            if not self._cycle(self.monitor.best.decision):
                break
            done, gains = done + 1, self.monitor.incumbent < before * (1 - WORTH)
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

    def _levels(self, within: IntArray | None = None) -> list[Coarsening]:
        """Return the levels of coarsening from the coarsest on; in a random order, and only of tasks on one device, if that is given."""
        levels, coarsening = [], Coarsening.through(self.problem, ())
        try:
            for level in hierarchy(self.problem, tasks=self.tasks, within=within, rng=None if within is None else self.monitor.rng):
                coarsening = coarsening.then(level)
                levels.append(coarsening)
        except InvalidProblem as refusal:  # clusters without a path between them
            self.monitor.note(f"the graph is searched without coarsening, because its coarse problem is invalid: {refusal}")
            return []
        return levels[::-1]

    def _coarse(self, coarsening: Coarsening, share: float) -> None:
        """Search a coarse graph, and offer the two decisions of `carried_back`."""
        if 1 < coarsening.coarse.n_tasks < self.problem.n_tasks and not self.over:
            decision = self._solve(coarsening.coarse, "auto", None, share)
            for finer in [] if decision is None else carried_back(coarsening, decision):
                self.monitor.offer(finer)

    def _cycle(self, best: Decision) -> bool:
        """Search with co-located clusters of tasks that are on one device in the best schedule, from the coarsest level on.

        Returns whether there was a level and time for all.
        """
        problems: list[Problem] = []
        for level in self._levels(main_devices(self.problem, best)):
            units = level.coarse.n_units
            if len(problems) < LEVELS and units <= MOST * self.tasks and (not problems or units >= FINER * problems[-1].n_units):
                problems.append(level.colocated)
        decision: Decision | None = best
        for problem in problems:
            if self.over:
                return False
            decision = self._solve(problem, "annealing", decision, CYCLE / len(problems))
            if decision is not None:
                self.monitor.offer(decision)
        return bool(problems)

    def _solve(self, problem: Problem, name: str, start: Decision | None, share: float) -> Decision | None:
        """Solve a problem within a share of the seconds, or evaluations, left."""
        budget, seconds = self.monitor.budget.evaluations, share * self.left
        solution = self.monitor.subsolve(
            problem,
            name,
            time_limit=seconds if math.isfinite(seconds) else None,
            evaluations=None if budget is None else max(1, int(share * (budget - self.monitor.evaluations))),
            start=start,
        )
        return None if solution.schedule is None else solution.schedule.decision
