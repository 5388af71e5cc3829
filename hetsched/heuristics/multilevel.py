"""Multilevel search: coarsen, solve the small graph, and search on at each level on the way back."""

from __future__ import annotations

import importlib.util
import math

import numpy as np

from hetsched.coarsening.coarse import Coarsening
from hetsched.coarsening.matching import hierarchy
from hetsched.errors import InvalidProblem, MissingDependency, UnsupportedFeature
from hetsched.heuristics.effort import SECONDS
from hetsched.heuristics.offering import check_whole
from hetsched.heuristics.placement import fused, listed
from hetsched.problem.graph import IntArray
from hetsched.problem.problem import Problem
from hetsched.schedule.decision import Decision
from hetsched.search import Monitor, method, registered

RIVALS = (
    "best-device",
    "heft",
    "celeritas",
    "order-place",
    "m-topo",
    "dsc",
    "linear-clustering",
    "repartition",
    "m-etf",
    "block",
    "metis",
    "m-sct",
)
"""Methods that answer at once; `multilevel` is never worse than any of them that its time allows."""
AT_ONCE = 0.25
"""The share of the time that they get."""
FIRST = 0.3
"""The share of a cycle's time for the coarsest graph."""
CYCLE, LAST = 0.5, 0.1
"""A cycle takes this share of the time left; there is none in the last part of the whole."""


@method(
    "multilevel", summary="coarsens along heavy edges, solves the small graph by auto, and searches on level by level, again and again",
    source="Karypis and Kumar 1998; Walshaw 2004; for schedules ours", deterministic=False,
    supports="any problem; graphs of 1,000 tasks and more gain most",
)  # fmt: skip
def multilevel(problem: Problem, monitor: Monitor, *, tasks: int = 200, cycles: int | None = None) -> None:
    """Offer what quick methods of placement find, then search level by level.

    A first cycle coarsens freely, and searches Celeritas' coarse graph too; those that follow merge only tasks that the best
    schedule has on one device, each in another random order, so that they start from it. Without any limit it ends after 10 s.

    Parameters
    ----------
    tasks : int
        The size of graph at which coarsening ends.
    cycles : int, optional
        How often to go down and up again, at most; default: as often as time allows.
    """
    for what, value in (("tasks", tasks), ("cycles", cycles)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise UnsupportedFeature(f"{what} is {value!r}; it must be a whole number, at least 1")
    check_whole(problem)
    _Search(problem, monitor, tasks).run(math.inf if cycles is None else cycles)


class _Search:
    def __init__(self, problem: Problem, monitor: Monitor, tasks: int) -> None:
        self.problem, self.monitor, self.tasks = problem, monitor, tasks
        unlimited = math.isinf(monitor.time_left) and monitor.budget.evaluations is None
        self.end = monitor.elapsed + SECONDS if unlimited else math.inf
        self.evaluations = monitor.budget.evaluations

    @property
    def left(self) -> float:
        """Seconds left; inf where evaluations are limited."""
        return min(self.monitor.time_left, self.end - self.monitor.elapsed)

    @property
    def over(self) -> bool:
        return self.monitor.should_stop or self.left <= 0

    def run(self, cycles: float) -> None:
        """Run the quick methods, then cycles of half of what is left each, and search the graph itself in the end."""
        whole = self.left
        self._rivals()
        done = 0
        while done < cycles and not self.over and (done == 0 or self.left > LAST * whole or math.isinf(whole)):
            self._cycle(first=done == 0)
            done += 1
        if not self.over and done < cycles and self.monitor.best is not None:
            self.monitor.run("annealing")

    def _rivals(self) -> None:
        """Run the quick methods while they take a part of the time."""
        end = self.monitor.elapsed + AT_ONCE * self.left
        for name in RIVALS:
            if self.monitor.best is not None and (self.over or self.monitor.elapsed >= end):
                return
            if name not in registered() or (name == "metis" and importlib.util.find_spec("pymetis") is None):
                continue
            if name == "m-sct" and self.problem.n_tasks > 2000:  # its linear program takes longer than a search
                continue
            try:
                self.monitor.run(name)
            except (UnsupportedFeature, MissingDependency, InvalidProblem) as refusal:
                self.monitor.note(f"{name}: {refusal}")

    def _cycle(self, *, first: bool) -> None:
        """Go down to a small graph and up again."""
        monitor = self.monitor
        best = None if first or monitor.best is None else monitor.best
        within = None if best is None else _devices(self.problem, best.decision)
        levels = list(hierarchy(self.problem, tasks=self.tasks, within=within, rng=None if first else monitor.rng))
        coarsest = levels[-1].coarse if levels else self.problem
        start = None if within is None or not levels else listed(coarsest, _carried(levels, within))
        budget = _Budget(self, CYCLE)
        decision = self._solve(coarsest, "auto", start, budget.part(FIRST))
        if not levels and decision is not None:
            self.monitor.offer(decision)
        if first and levels:
            self._other(budget)
        steps = levels[::-1]
        for number, level in enumerate(steps):
            if self.over:
                return
            decision = self._up(level, decision, budget.part((1 - FIRST) / max(1, len(steps))), last=number == len(steps) - 1)

    def _other(self, budget: _Budget) -> None:
        """Search Celeritas' coarse graph."""
        found = fused(self.problem, self.monitor)
        if 1 < found.coarse.n_tasks < self.problem.n_tasks and not self.over:
            decision = self._solve(found.coarse, "auto", None, budget.part(FIRST / 2))
            if decision is not None:
                self._offer(found, decision)

    def _offer(self, found: Coarsening, decision: Decision) -> Decision:
        """Offer a lifted decision, and the same devices in the order of upward ranks; return the better one."""
        lifted = found.lift(decision)
        again = listed(found.problem, _devices(found.problem, lifted))
        if found.problem is not self.problem:
            return self._better(found.problem, lifted, again)
        value = self.monitor.offer(lifted)
        return lifted if again is None or self.monitor.offer(again) >= value else again

    def _better(self, problem: Problem, one: Decision, other: Decision | None) -> Decision:
        trial = Monitor(problem, objective=self.monitor.objective)
        value = trial.offer(one)
        return one if other is None or trial.offer(other) >= value else other

    def _up(self, level: Coarsening, decision: Decision | None, budget: tuple[float | None, int | None], *, last: bool) -> Decision | None:
        """Carry a decision to a finer graph and search on there."""
        start = None if decision is None else self._offer(level, decision)
        if not last:
            return self._solve(level.problem, "annealing", start, budget)
        if self.monitor.best is not None:
            start = self.monitor.best.decision
        found = self._solve(level.problem, "annealing", start, budget)
        if found is not None:
            self.monitor.offer(found)
        return found

    def _solve(self, problem: Problem, name: str, start: Decision | None, budget: tuple[float | None, int | None]) -> Decision | None:
        seconds, evaluations = budget
        found = self.monitor.subsolve(problem, name, time_limit=seconds, evaluations=evaluations, start=start)
        return None if found.schedule is None else found.schedule.decision


class _Budget:
    """What a cycle may spend, in seconds or in evaluations."""

    def __init__(self, search: _Search, share: float) -> None:
        self.seconds = share * search.left
        left = None if search.evaluations is None else search.evaluations - search.monitor.evaluations
        self.evaluations = None if left is None else share * left

    def part(self, share: float) -> tuple[float | None, int | None]:
        """Return a share of it."""
        seconds = None if math.isinf(self.seconds) else share * self.seconds
        return seconds, None if self.evaluations is None else max(1, int(share * self.evaluations))


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
