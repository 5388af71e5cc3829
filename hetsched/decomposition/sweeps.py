"""Sweeps over the windows of a schedule: each is solved by branch and bound within the schedule, until none is shorter."""

from __future__ import annotations

import concurrent.futures
import importlib
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from hetsched.arrays import IntArray
from hetsched.decomposition.windows import Window, window
from hetsched.modeling.jobs import Jobs
from hetsched.problem.problem import Problem
from hetsched.schedule.decision import Decision
from hetsched.search import Budget, Monitor, find_method
from hetsched.stopping import Deadline

METHOD = "branch"
"""The method that solves a window."""
NODES = (300, 3000)
"""Nodes of one refutation in a window, of the first sweeps and of those after them."""
WIDTHS = (1, 2, 3)
"""Consecutive modules of a window."""
FREE = 36
"""The most free tasks of a window, but one module may have more."""
MOST = 300
"""The most tasks of a window's problem."""
PART = 1 / 20
"""The part of the time left that a window may take."""
BETTER = 1e-9
"""Relative difference of makespans that counts."""


class Place(NamedTuple):
    """The place of a window."""

    by_modules: bool
    """Whether it consists of modules, else of as many tasks in the order of their starts."""
    width: int
    first: int
    """The first module, or the number of half modules before the first task."""


class Arranged(NamedTuple):
    """The result of a window."""

    decision: Decision | None
    """That of a schedule shorter than the start."""
    evaluations: int
    closed: bool
    """Whether there is proven to be no shorter one."""


@dataclass(frozen=True)
class Arrange:
    """Solves a window for a schedule shorter than a given one; may be sent to another process, where it has no monitor."""

    problem: Problem
    start: Decision
    shorter: float
    """The makespan to be undercut."""
    nodes: int
    budget: Budget
    seed: int
    monitor: Monitor | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "monitor": None, "home": find_method(METHOD).function.__module__}

    def __setstate__(self, state: dict[str, Any]) -> None:
        importlib.import_module(state.pop("home"))  # the import registers the method
        self.__dict__.update(state)

    def __call__(self) -> Arranged:
        monitor = Monitor(self.problem, self.budget, seed=self.seed, parent=self.monitor)
        options = {"upper": self.shorter, "nodes": self.nodes, "search": False}
        solution = monitor.run_alone(METHOD, self.start, options)
        better = solution.schedule is not None and solution.makespan < self.shorter * (1 - BETTER)
        closed = solution.bound >= min(self.shorter, solution.makespan) * (1 - BETTER)
        return Arranged(solution.schedule.decision if better and solution.schedule is not None else None, monitor.evaluations, closed)


class _Job(NamedTuple):
    """A window that is being solved."""

    place: Place
    window: Window
    arrange: Arrange


class Sweeps:
    """The sweeps of one solve over the best schedule of its monitor, for one input.

    A window has one to three consecutive modules, or as many tasks in the order of their starts. Windows are solved one after
    another, or several at a time; one that finds a schedule shorter than the best makes it the best.

    Parameters
    ----------
    problem : Problem
    monitor : Monitor
        It has a best schedule.
    modules : list of int arrays
        The tasks of each module.
    executor : concurrent.futures.Executor, optional
        Solves windows at the same time.
    parallel : int
        The most windows at a time.
    deadline : Deadline
    """

    def __init__(
        self,
        problem: Problem,
        monitor: Monitor,
        modules: list[IntArray],
        executor: concurrent.futures.Executor | None,
        parallel: int,
        deadline: Deadline,
    ) -> None:
        self.problem, self.monitor, self.modules, self.deadline = problem, monitor, modules, deadline
        self.parallel = parallel
        self.jobs: Jobs[_Job] = Jobs(executor, self._learn, monitor.note)
        self.settled: dict[Place, tuple[float, float]] = {}
        """The makespan for which a window found nothing shorter, and the nodes it had; inf where it was closed."""

    def run(self) -> None:
        """Sweep until no window is shorter, or the solve has to stop."""
        try:
            for nodes in NODES:
                before = math.inf
                while self.monitor.incumbent < before * (1 - BETTER) and not self._over:
                    before = self.monitor.incumbent
                    for width, by_modules in itertools.product(WIDTHS, (True, False)):
                        self._sweep(self._places(by_modules, width), nodes)
        finally:
            self.jobs.cancel()

    @property
    def _over(self) -> bool:
        return self.monitor.should_stop or self.deadline.over

    def _places(self, by_modules: bool, width: int) -> Iterator[Place]:
        """Yield the windows of a sweep."""
        count = len(self.modules) - width + 1 if by_modules else self.problem.n_tasks // self._step
        for x in range(max(1, count)):
            if not by_modules or width == 1 or sum(map(len, self.modules[x : x + width])) <= FREE:
                yield Place(by_modules, width, x)

    @cached_property
    def _step(self) -> int:
        """Half of the tasks of the mean module, and at most a sixth of those of a window."""
        return min(math.ceil(self.problem.n_tasks / len(self.modules) / 2), FREE // 6)

    def _tasks(self, place: Place) -> IntArray:
        """Return the free tasks of a window of the best schedule."""
        if place.by_modules:
            return np.concatenate(self.modules[place.first : place.first + place.width])
        assert self.monitor.best is not None
        batches = self.monitor.best.batches
        order = batches.task[np.lexsort((self.problem.graph.rank[batches.task], batches.start))]
        return order[self._step * place.first :][: self._step * (1 + place.width)]

    def _sweep(self, places: Iterator[Place], nodes: int) -> None:
        for place in places:
            makespan, most = self.settled.get(place, (math.inf, 0.0))
            if self._over or (makespan == self.monitor.incumbent and most >= nodes):
                continue
            self._submit(place, nodes)
            while len(self.jobs) >= self.parallel and not self._over:
                self.jobs.collect(self.deadline)
        while self.jobs and not self._over:
            self.jobs.collect(self.deadline)

    def _submit(self, place: Place, nodes: int) -> None:
        """Have a window of the best schedule solved."""
        monitor, schedule = self.monitor, self.monitor.best
        assert schedule is not None
        chosen = window(self.problem, schedule, self._tasks(place))
        if chosen.problem.n_tasks > MOST:
            return
        limit = monitor.budget.evaluations
        budget = Budget(self.deadline.part(PART).limit, None if limit is None else max(1, limit - monitor.evaluations))
        seed = int(monitor.rng.integers(2**31))
        job = _Job(place, chosen, Arrange(chosen.problem, chosen.start, schedule.makespan, nodes, budget, seed, monitor))
        self.jobs.submit(job, job.arrange)

    def _learn(self, job: _Job, found: Arranged) -> None:
        """Offer the joint decision of a window that is shorter, or record that it is not."""
        self.monitor.evaluated(found.evaluations)
        before = self.monitor.incumbent
        if found.decision is not None and not self.monitor.should_stop:
            self.monitor.offer(job.window.joined(found.decision))
        if found.decision is None or (job.arrange.shorter == before == self.monitor.incumbent):
            self.settled[job.place] = job.arrange.shorter, math.inf if found.closed else job.arrange.nodes
