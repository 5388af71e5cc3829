"""Sweeps over the windows of a schedule: each is solved by branch and bound within the schedule, until none is shorter."""

from __future__ import annotations

import concurrent.futures
import time
from dataclasses import dataclass, field
from itertools import islice, product
from typing import Any, NamedTuple

import numpy as np

from hetsched.analysis.task_subsets import RefutationBudget
from hetsched.arrays import BoolArray, FloatArray, IntArray
from hetsched.decomposition.windows import BETTER, Batches, Window, WindowOfBatches
from hetsched.errors import InvalidSchedule
from hetsched.modeling.jobs import Jobs
from hetsched.problem.problem import Problem
from hetsched.schedule.schedule import Schedule
from hetsched.schedule.simulate import simulate
from hetsched.search import Monitor
from hetsched.stopping import Deadline

LEVELS = ((8, 30), (12, 100), (20, 300), (36, 3000))
"""The most tasks of a window and nodes of one refutation, of the first windows and of those after them."""
LARGEST = LEVELS[-1][0]
"""The most tasks of a window, unless given."""
PATIENCE = 4
"""Windows for each task, one after another, that are not shorter at the end of a level."""
AT_ONCE = 0.5
"""Share of the windows of tasks that start one after another; the others have connected tasks."""
MOST_DEVICES = 64
"""The most devices with windows, whose transfer times are stored for all pairs."""
DIVIDED = 2
"""The most tasks of a window whose batches change; with several inputs at least one does."""
ALIKE = 0.5
"""Share of the changed batches that have the inputs of those of a parent or child."""
WHOLE = 0.4
"""Share of the other changed batches that are one of all inputs."""
MOST_BATCHES, MOST_DIVISIONS = 3, 1000
"""The most batches of a task after a change, and the most changes of each number of them."""
HOT, COLD = 1e-3, 1e-4
"""Temperatures at the beginning and at the end where batches change, relative to the makespan."""
PRICES = 1
"""Improvements of prices in each node of a window; with 4 of them fewer windows are solved, and schedules are longer."""
PART = 1 / 20
"""The part of the time left that a window may take."""


class Arranged(NamedTuple):
    """The result of a window."""

    found: tuple[IntArray, FloatArray] | None
    """Devices and starts of a shorter schedule."""
    closed: bool
    """Whether there is proven to be no shorter one."""


@dataclass(frozen=True)
class Arrange:
    """Solves a window for a schedule shorter than a given one; may be sent to another process, where it has no monitor."""

    window: Window
    shorter: float
    """The makespan to be undercut, in seconds."""
    nodes: int
    seconds: float | None
    monitor: Monitor | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "monitor": None}

    def __call__(self) -> Arranged:
        monitor = self.monitor
        deadline = Deadline.after(self.seconds, time.monotonic if monitor is None else monitor.clock)
        stop = None if monitor is None else lambda: monitor.should_stop
        budget = RefutationBudget(nodes=self.nodes, deadline=deadline, stop=stop, prices=PRICES)
        found = self.window.shorter(self.shorter, budget)
        return Arranged(found, found is None and not budget.open)


class _Job(NamedTuple):
    """A window that is being solved."""

    key: bytes
    """The free tasks, if their batches are those of the schedule."""
    window: WindowOfBatches
    arrange: Arrange
    longer: float
    """The relative excess over the present makespan up to which a schedule is taken."""


class Sweeps:
    """The sweeps of one solve over a schedule.

    The free tasks of a window start one after another, or are connected. With several inputs one or two of them are divided
    into other batches. Windows are drawn at random and solved one after another, or several at a time; a shorter schedule
    takes the place of the one before. From level to level windows have more tasks and are solved with more nodes.

    With other batches, and a limit of time or evaluations, this is simulated annealing until the limit: a schedule is taken if it
    is at most T ln(1/u) longer, u uniform on (0, 1], where T falls geometrically from `HOT` to `COLD`.

    Parameters
    ----------
    problem : Problem
    monitor : Monitor
    schedule : Schedule
        The first schedule; it need not be the best of the monitor.
    executor : concurrent.futures.Executor, optional
        The executor that solves windows; without one this process does.
    parallel : int
        The most windows solved at a time.
    deadline : Deadline
    evaluations : int, optional
        The most evaluations: one for each window, and one for each shorter schedule.
    largest : int, optional
        The most tasks of a window.
    """

    def __init__(
        self,
        problem: Problem,
        monitor: Monitor,
        schedule: Schedule,
        executor: concurrent.futures.Executor | None,
        parallel: int,
        deadline: Deadline,
        evaluations: int | None = None,
        largest: int = LARGEST,
    ) -> None:
        self.problem, self.monitor, self.parallel, self.deadline, self.largest = problem, monitor, parallel, deadline, largest
        self.last = np.inf if evaluations is None else monitor.evaluations + evaluations
        self.limits = np.array(self._left)
        self.jobs = Jobs[_Job](executor, self._learn, monitor.note)
        self.divisions = _divisions(problem)
        self.settled: set[bytes] = set()
        """Windows that have no shorter schedule."""
        self.failures = 0
        self.makespan = np.inf
        """The shortest makespan, in seconds."""
        self._take(schedule)

    def _take(self, schedule: Schedule) -> None:
        self.batches, self.present = Batches(self.problem, schedule), schedule.makespan
        self.order = self.batches.tasks_by_start()
        self.settled.clear()
        if self.present < self.makespan * (1 - BETTER):
            self.makespan, self.failures = self.present, 0

    def run(self) -> None:
        """Run sweeps until no window is shorter, or with a temperature to the limit, or the solve has to stop."""
        try:
            before, count = np.inf, -1
            while not self._over and (self.makespan < before * (1 - BETTER) or (self._temperature and self.monitor.evaluations > count)):
                before, count = self.makespan, self.monitor.evaluations
                for most, nodes in LEVELS:
                    if self._over or self.largest < most > LEVELS[0][0]:
                        break
                    self._level(min(most, self.largest), nodes)
                    self.settled.clear()
        finally:
            self.jobs.cancel()

    @property
    def _over(self) -> bool:
        return self.monitor.should_stop or self.deadline.over or self.monitor.evaluations >= self.last

    @property
    def _left(self) -> tuple[float, float]:
        """The seconds and the evaluations that are left; inf without a limit."""
        return self.deadline.left, self.last - self.monitor.evaluations

    @property
    def _temperature(self) -> float:
        """The present temperature; 0 where schedules have to be shorter."""
        limited = np.isfinite(self.limits) & (self.limits > 0)
        if not (self.divisions and limited.any()):
            return 0.0
        share = float((np.array(self._left)[limited] / self.limits[limited]).min())
        return float(COLD * (HOT / COLD) ** max(0.0, share))

    def _level(self, most: int, nodes: int) -> None:
        """Solve windows of a level until none of many is shorter."""
        self.failures = 0
        while self.failures < PATIENCE * self.problem.n_tasks and not self._over:
            self._submit(most, nodes)
            while len(self.jobs) >= self.parallel and not self._over:
                self.jobs.collect(self.deadline)
        while self.jobs and not self._over:
            self.jobs.collect(self.deadline)

    def _submit(self, most: int, nodes: int) -> None:
        """Have a window solved, unless it is known to have no shorter schedule, or has very many batches."""
        tasks = self._tasks(most)
        divided = self._divided(tasks)
        key = b"" if divided else np.sort(tasks).tobytes()
        window = None if key in self.settled else self.batches.window(tasks, divided)
        if window is None:
            self.failures += 1
            return
        longer = -self._temperature * float(np.log(1.0 - self.monitor.rng.random())) if divided else 0.0
        arrange = Arrange(window.window, self.present * (1 + longer), nodes, self.deadline.part(PART).limit, self.monitor)
        self.jobs.submit(_Job(key, window, arrange, longer), arrange)

    def _tasks(self, most: int) -> IntArray:
        """Draw the free tasks of a window."""
        rng, n = self.monitor.rng, len(self.order)
        most = min(most, n)
        size = int(rng.integers(min(3, most), most + 1))
        first = int(rng.integers(n))
        if rng.random() < AT_ONCE:
            return self.order[min(max(0, first - size // 2), n - size) :][:size]
        tasks = [int(self.order[first])]
        for _ in range(4 * size):
            near = self._neighbours(tasks[rng.integers(len(tasks))])
            if len(near) and (other := int(near[rng.integers(len(near))])) not in tasks:
                tasks.append(other)
            if len(tasks) == size:
                break
        return np.array(tasks)

    def _neighbours(self, task: int) -> IntArray:
        graph = self.problem.graph
        before = graph.pred[graph.pred_ptr[task] : graph.pred_ptr[task + 1]]
        return np.concatenate([before, graph.succ[graph.succ_ptr[task] : graph.succ_ptr[task + 1]]])

    def _divided(self, tasks: IntArray) -> dict[int, BoolArray]:
        """Draw other batches for some tasks of a window."""
        if not self.divisions:
            return {}
        rng, result = self.monitor.rng, {}
        for task in rng.choice(tasks, min(len(tasks), 1 + int(rng.integers(DIVIDED))), replace=False).tolist():
            if self.problem.graph.colocation[task] is not None:
                continue
            near = self._neighbours(task)
            if len(near) and rng.random() < ALIKE:
                division = self.batches.inputs[self.batches.task == near[rng.integers(len(near))]]
            else:
                division = self.divisions[0 if rng.random() < WHOLE else int(rng.integers(len(self.divisions)))]
            if self._possible(task, division):
                result[task] = division
        return result

    def _possible(self, task: int, division: BoolArray) -> bool:
        """Return whether some device runs each batch of a task."""
        sizes = np.searchsorted(self.problem.batch_sizes, division.sum(axis=1))
        return bool(np.isfinite(self.problem.usable_durations[task][:, sizes]).any(axis=0).all())

    def _learn(self, job: _Job, arranged: Arranged) -> None:
        """Take the joint decision of a window if it is shorter, or not much longer, or record that there is none."""
        self.monitor.evaluated(1)
        self.failures += 1
        decision = None if arranged.found is None else job.window.joined(*arranged.found)
        if decision is not None:
            try:
                makespan = self.monitor.offer(decision)
            except InvalidSchedule:  # batches that became one wait for one another
                return
            if makespan < self.present * (1 + job.longer - BETTER):
                best = self.monitor.best
                self._take(best if best is not None and makespan == self.monitor.incumbent else simulate(self.problem, decision))
        elif arranged.closed and job.key and job.arrange.shorter == self.present:
            self.settled.add(job.key)


def evaluations_left(monitor: Monitor, share: float = 1.0) -> int | None:
    """Return a share of the evaluations left, None without a limit."""
    return None if monitor.budget.evaluations is None else int(share * (monitor.budget.evaluations - monitor.evaluations))


def _divisions(problem: Problem) -> list[BoolArray]:
    """Return divisions of several inputs into batches, of consecutive inputs; that into one batch of all, if there is one, first."""
    if problem.inputs == 1:
        return []
    sizes = [size for size in problem.batch_sizes.tolist() if size <= problem.inputs]
    chosen = [
        (*first, last)
        for count in range(1, MOST_BATCHES + 1)
        for first in islice(product(sizes, repeat=count - 1), MOST_DIVISIONS)
        if (last := problem.inputs - sum(first)) in sizes
    ]
    return [np.repeat(np.arange(len(counts)), counts) == np.arange(len(counts))[:, None] for counts in chosen]
