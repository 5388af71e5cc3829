"""The relaxed instance of a problem: in the checker's whole numbers, and in the arrays of the kernels of branch and bound."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from fractions import Fraction
from functools import cached_property

import numpy as np

from hetsched import checker, documents
from hetsched.analysis.task_subsets import GivenTasks, RefutationBudget, TaskSubset
from hetsched.arrays import FloatArray, IntArray
from hetsched.problem.problem import Problem
from hetsched.stopping import Deadline

FINE = 40
"""The span of a schedule has about 2^40 units: sums of them are exact in float64, and rounding costs next to nothing."""
SMALLEST, LARGEST = Fraction(1, 2**255), Fraction(2**255)
"""Units that a certificate can write in 80 characters."""
NODES = (300, 3000, 30_000, 300_000, 3_000_000)
"""Nodes of one refutation in each pass of the search for the optimum."""
Log = list[tuple[int, int, int, int]]
"""The nodes of a refutation, first branches first; see `RefutationBudget.log`."""
CLOSE = 1e-9
"""What a claim is lowered by, relative, where times are no multiples of the unit."""


class Relaxation:
    """The relaxed instance of a problem; see `hetsched.checker`.

    Parameters
    ----------
    problem : Problem
    span : float
        Seconds; about the makespan, 0 if unknown.

    Attributes
    ----------
    exact : bool
        Whether every time of the problem is a multiple of the unit.
    heads : dict
        Least starts of (task, device) that lemmas have proven.
    """

    def __init__(self, problem: Problem, span: float = 0.0) -> None:
        self.problem = checker.Problem(documents.encode(problem))
        self.unit, self.exact = unit(self.problem, span)
        self.instance = checker.Instance(self.problem, self.unit)
        self.n, self.size = self.problem.tasks, self.problem.devices
        self.heads: dict[tuple[int, int], int] = {}
        self.units = np.array(self.problem.unit, np.int64)
        possible = np.zeros((self.n, self.size), bool)
        for i, u in enumerate(self.problem.unit):
            possible[i, list(self.instance.devices[u])] = True
        self.least = np.where(possible, _floats(self.instance.p).reshape(self.n, self.size), np.inf)
        """[n, K]: units of time, inf where a task cannot run."""
        room = np.array([math.inf if room is None else float(room) for room in self.instance.capacity])
        self.room = np.where(self.bits(self.problem.inputs).sum() > room, room, np.inf)
        """[K]: bits; inf where there is room for everything."""

    @cached_property
    def every(self) -> FloatArray:
        """What all inputs of a task take on a device, [n, K] units of time; inf where it cannot run."""
        return _floats([share * self.problem.inputs for share in self.instance.share]).reshape(self.n, self.size)

    def bits(self, inputs: int) -> FloatArray:
        """Return the bits of a task and its inputs, [n]."""
        return np.array([float(weight + inputs * one) for weight, one in self.instance.bits])

    @cached_property
    def lag(self) -> FloatArray:
        """Transfer times in units between devices, [E, K, K]; inf where there is no way, or the tasks are co-located."""
        lag = np.array([_floats([way for row in table for way in row]) for table in self.instance.c])
        return lag.reshape(-1, self.size, self.size)

    @cached_property
    def ends(self) -> IntArray:
        """Source and target of each edge, [E, 2]."""
        return np.array(self.problem.edges, np.int64).reshape(-1, 2)

    def claim(self, seconds: float) -> int:
        """Return a claim in units, a little lower than `seconds` where rounding down the times of a path may cost that."""
        if math.isinf(seconds):
            return checker.INFINITE
        if self.exact:
            return math.ceil(Fraction(seconds) / self.unit)
        count = math.floor(Fraction(seconds) / self.unit)
        return max(0, count - max(2 * self.n, math.ceil(CLOSE * count)))


class Window:
    """The tasks of a lemma, or all, with the least starts that lemmas before it have proven.

    Parameters
    ----------
    relaxation : Relaxation
    tasks : list of int, optional
        Default all.
    at : (int, int), optional
        The task and the device whose start is bounded; default: the lemma bounds the makespan.
    """

    def __init__(self, relaxation: Relaxation, tasks: list[int] | None = None, at: tuple[int, int] | None = None) -> None:
        self.relaxation, self.at, self.given = relaxation, at, tasks
        inside = np.ones(relaxation.n, bool) if tasks is None else np.isin(np.arange(relaxation.n), tasks)
        order = np.array(relaxation.problem.order, np.int64)
        self.tasks = order[inside[order]]
        """In topological order, as in the checker's states."""
        self.heads = {(i, k): level for (i, k), level in relaxation.heads.items() if inside[i]}

    def root(self, end: int) -> checker.State:
        """Return the propagated root state of the lemma that no schedule of the window is shorter than `end`."""
        root = checker.State(self.relaxation.instance, end, self.given, (self.heads, {}), self.at, every=self.at is None)
        root.propagate()
        return root

    @cached_property
    def subset(self) -> TaskSubset:
        """The tasks as the kernels see them, in the same order."""
        whole, tasks = self.relaxation, self.tasks
        given = GivenTasks(whole.least[tasks], whole.units[tasks], whole.bits(1)[tasks], whole.room)
        place = np.full(whole.n, -1)
        place[tasks] = np.arange(len(tasks))
        source, target = place[whole.ends].T
        kept = (source >= 0) & (target >= 0)
        return TaskSubset.of_given(given, source[kept], target[kept], np.ascontiguousarray(whole.lag[kept]))

    @cached_property
    def node(self) -> FloatArray:
        """The root for the kernels, [3, m, K]."""
        place = {task: x for x, task in enumerate(self.tasks.tolist())}
        release = np.zeros((len(self.tasks), self.relaxation.size))
        for (i, k), level in self.heads.items():
            release[place[i], k] = level
        return self.subset.node(release, pins=[] if self.at is None else [(place[self.at[0]], self.at[1])])

    def refutation(self, end: int, deadline: Deadline, nodes: int = checker.MOST_NODES // 2) -> Log | None:
        """Return the log of a refutation of all schedules shorter than `end`, with the problem's numbers of tasks, or None."""
        log: Log = []
        horizon = math.inf if end >= checker.INFINITE else float(end - 1)
        if self.subset.refute(self.node, horizon, RefutationBudget(nodes, deadline, log=log)) is not True:
            return None
        from hetsched.analysis import branch_and_bound_kernels as kernels

        task = self.tasks.tolist()
        return [(kind, task[i], other if kind == kernels.DEVICE else task[other], k) for kind, i, other, k in log]

    def targets(self, deadline: Deadline) -> Iterator[int]:
        """Yield lengths of which the largest that can be refuted is wanted: by branch and bound, the best first."""
        low, best = 0.0, math.inf
        budget = RefutationBudget(deadline=deadline)

        def found(subset: TaskSubset) -> None:
            nonlocal best
            place, start = subset.schedule()
            best = min(best, float((start + self.relaxation.least[self.tasks, place]).max(initial=0.0)))

        budget.found = found
        for budget.nodes in NODES:
            budget.open = 0
            low = self.subset.least([self.node], budget, low, best)
            if not budget.open or budget.over:
                break
        if math.isfinite(best) and low >= best * (1 - 1e-6):
            yield math.ceil(best)
        if math.isfinite(low):
            yield math.ceil(low)


def unit(problem: checker.Problem, span: float) -> tuple[Fraction, bool]:
    """Return a unit of time, and whether every time of the problem is a multiple of it.

    It is the greatest common divisor of all times if that is not too small for exact sums in float64, else a power of two.
    """
    shortest = [min((float(t) for cell in row for t in cell if t is not None), default=0.0) for row in problem.durations]
    whole = max(Fraction(sum(shortest)), Fraction(span if math.isfinite(span) else 0.0))
    divisor = Fraction(0)
    fine = Fraction(2) ** -FINE
    for time in _times(problem):
        divisor = _common(divisor, time)
        whole = whole or divisor
        if divisor and (divisor < whole * fine or len(str(divisor)) > 60):
            power = Fraction(2) ** (math.frexp(float(whole))[1] - FINE)
            return min(max(power, SMALLEST), LARGEST), False
    return divisor or Fraction(1), True


def _times(problem: checker.Problem) -> Iterator[Fraction]:
    """Yield every distinct time of one input."""
    used = {t for row in problem.durations for cell in row for t in cell if t}
    yield from map(Fraction, used)
    seen: set[object] = set()
    for e, carried in enumerate(problem.carried):
        if problem.transfers is None and carried in seen:
            continue
        seen.add(carried)
        for h in range(problem.devices):
            for k in range(problem.devices):
                way = problem.transfer(e, h, k)
                if way:
                    yield way


def _common(a: Fraction, b: Fraction) -> Fraction:
    """Return the greatest common divisor of two rationals, one of which may be 0."""
    return Fraction(math.gcd(a.numerator * b.denominator, b.numerator * a.denominator), a.denominator * b.denominator)


def _floats(numbers: Iterable[int | Fraction]) -> FloatArray:
    return np.array([math.inf if number >= checker.INFINITE else float(number) for number in numbers])
