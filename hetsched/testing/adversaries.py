"""Adversaries: small problems on which a scheduler is as far from the optimum as a search can find, each ratio exact."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Literal, TypeAlias, cast

import numpy as np

from hetsched.analysis.task_subsets import RefutationBudget, SingleInputProblem, TaskSubset
from hetsched.arguments import COUNT, checked, number, whole
from hetsched.arrays import IntArray
from hetsched.certificates import Certificate, certify
from hetsched.errors import InvalidArgument, InvalidSchedule
from hetsched.problem.cluster import Cluster
from hetsched.problem.graph import TaskGraph, plural
from hetsched.problem.problem import Problem
from hetsched.schedule.decision import Decision
from hetsched.schedule.schedule import Schedule
from hetsched.schedule.simulate import simulate
from hetsched.solving import solve
from hetsched.stopping import Deadline
from hetsched.verification.verify import verify

Scheduler: TypeAlias = str | Callable[[Problem], Schedule]
Edge: TypeAlias = tuple[int, int]

SPEEDS = (1, 2, 4)
"""Seconds of a unit of work on a related device."""
NODES = 20_000
"""The most nodes of a refutation; a problem that needs more is left out."""
RESTART = 1000
"""Evaluations between two restarts of the annealing."""
TEMPERATURES = (0.1, 0.003)
"""The first and the last temperature of the logarithm of the ratio."""
DENSITY = 0.3
"""Probability of an edge of the first problem."""


@checked(tasks=whole(1, 10), devices=whole(1, 4), largest=COUNT)
@dataclass(frozen=True)
class Family:
    """Limits of problems, without which a ratio has no meaning; all durations and transfer times are whole seconds.

    Attributes
    ----------
    tasks, devices : int
        At most 10 and 4. A problem that was made simpler has fewer tasks.
    kind : "identical", "related" or "unrelated"
        Related devices take 1, 2 or 4 seconds for a unit of work.
    communication : bool
        Whether edges have bytes; a transfer between two devices takes a second for each.
    graph : "free", "chains", "out-tree", "fork-join" or "independent"
        In "chains" a task has one parent and one child at most, in "out-tree" one parent at most; in "fork-join" the tasks between
        the first and the last have no edges between them.
    largest : int
        The most seconds of a task on the fastest device, from 1, and of a transfer, from 0.
    """

    tasks: int = 8
    devices: int = 3
    kind: Literal["identical", "related", "unrelated"] = "unrelated"
    communication: bool = True
    graph: Literal["free", "chains", "out-tree", "fork-join", "independent"] = "free"
    largest: int = 20


@checked
@dataclass(frozen=True)
class Adversary:
    """A problem on which a scheduler takes `ratio` times the optimum.

    Attributes
    ----------
    ratio : Fraction
        Exact: the makespan of `schedule` by that of `optimal`.
    problem : Problem
    schedule : Schedule
        That of the scheduler.
    optimal : Schedule
        A shortest one; that none is shorter was proven by branch and bound.
    evaluations : int
        How many problems were given to the scheduler.
    open : int
        How many problems were left out, as their optimum was not proven within `NODES` nodes.
    """

    ratio: Fraction
    problem: Problem
    schedule: Schedule
    optimal: Schedule
    evaluations: int
    open: int

    @cached_property
    def certificate(self) -> Certificate | None:
        """Proof, accepted by the checker, that no schedule is shorter than `optimal`; made at first use, None if 60 s do not suffice."""
        return certify(self.problem, self.optimal.makespan)


@checked(evaluations=COUNT, seed=whole(0), time_limit=number(above=0).or_none)
def adversary(
    scheduler: Scheduler,
    family: Family = Family(),
    *,
    evaluations: int = 5000,
    seed: int = 0,
    time_limit: float | None = None,
    on_progress: Callable[[Adversary], object] | None = None,
) -> Adversary:
    """Return the worst problem for a scheduler that annealing finds in a family, made simpler as long as it stays as bad.

    One task, edge, size or speed is changed at a time. A change is judged by one refutation: it is accepted if there is a schedule
    that is shorter than the scheduler's by the ratio that is asked for, and only then the optimum is computed. Numbers of tasks
    count as ties do: some schedulers depend on them.

    Parameters
    ----------
    scheduler : str or callable
        A name from `hetsched.methods`, or a function from a problem to its schedule.
    family : Family
    evaluations : int
        How often the scheduler is called in the search; making the problem simpler comes on top, some hundred calls.
    seed : int
    time_limit : float, optional
        Seconds after which the search ends.
    on_progress : callable, optional
        Called with every worse problem, as it was found; returning True ends the search.

    Raises
    ------
    InvalidArgument
        The scheduler raised an error.
    InvalidSchedule
        The scheduler returned a schedule that breaks a rule of its problem.

    Notes
    -----
    After PISA (Coleman and Krishnamachari 2024, arXiv 2403.07120), which compares two schedulers; here the other one is the optimum.

    Examples
    --------
    >>> found = adversary("olb", Family(tasks=3, devices=2, communication=False), evaluations=300)
    >>> found.ratio > 2
    True
    """
    rng = np.random.default_rng(seed)
    search, deadline = _Search(scheduler), Deadline.after(time_limit)
    first, last = TEMPERATURES
    worst: tuple[_Draft, Adversary] | None = None

    def ends() -> bool:
        return worst is not None and (search.evaluations >= evaluations or deadline.over)

    while not ends():
        current, ratio = _Draft.drawn(family, rng), Fraction(0)
        for step in range(RESTART):
            changed = current.changed(rng)
            temperature = first * (last / first) ** (step / min(RESTART, evaluations))
            found = search.judged(changed, ratio * Fraction(rng.random() ** temperature))
            if found is not None:
                current, ratio = changed, found.ratio
                if worst is None or ratio > worst[1].ratio:
                    worst = changed, found
                    if on_progress is not None and on_progress(found) is True:
                        return search.simplest(*worst)
            if ends():
                break
    assert worst is not None
    return search.simplest(*worst)


# ---------------------------------------------------------------------- problems of a family


@dataclass(frozen=True)
class _Draft:
    """A problem of a family as whole numbers; an edge is from a task to a later one."""

    family: Family
    work: IntArray
    """[n, K] seconds on unrelated devices, else units of work, [n, 1]."""
    speed: IntArray
    """[K] seconds of a unit of work."""
    sizes: dict[Edge, int]
    """Bytes of each edge."""

    @classmethod
    def drawn(cls, family: Family, rng: np.random.Generator) -> _Draft:
        """Draw a problem."""
        n, columns = family.tasks, family.devices if family.kind == "unrelated" else 1
        work = rng.integers(1, family.largest + 1, (n, columns))
        speed = rng.choice(SPEEDS, family.devices) if family.kind == "related" else np.ones(family.devices, np.int64)
        draft = cls(family, work, speed, {})
        for i, j in itertools.combinations(range(n), 2):
            if draft._admits(i, j) and (family.graph == "fork-join" or rng.random() < DENSITY):
                draft.sizes[i, j] = draft._size(rng)
        return draft

    def _size(self, rng: np.random.Generator) -> int:
        return int(rng.integers(0, self.family.largest + 1)) if self.family.communication else 0

    def _admits(self, i: int, j: int) -> bool:
        """Return whether the graph may have a further edge from task i to task j."""
        parents, children = any(b == j for _, b in self.sizes), any(a == i for a, _ in self.sizes)
        return (i, j) not in self.sizes and {
            "free": True,
            "chains": not parents and not children,
            "out-tree": not parents,
            "fork-join": (i == 0) != (j == len(self.work) - 1),
            "independent": False,
        }[self.family.graph]

    def changed(self, rng: np.random.Generator) -> _Draft:
        """Draw a problem that differs in one number or edge."""
        n, family = len(self.work), self.family
        shaped = family.graph in ("fork-join", "independent")
        new = [] if shaped else [edge for edge in itertools.combinations(range(n), 2) if self._admits(*edge)]
        edges = list(self.sizes)
        kinds = ["work", "work"]
        kinds += ["size"] * bool(edges and family.communication) + ["less"] * bool(edges and not shaped)
        kinds += ["more"] * bool(new) + ["speed"] * (family.kind == "related")
        match rng.choice(kinds):
            case "work":
                place = tuple(rng.integers(self.work.shape).tolist())
                return self._with_work(place, self._near(int(self.work[place]), 1, rng))
            case "speed":
                speed = self.speed.copy()
                speed[rng.integers(len(speed))] = rng.choice(SPEEDS)
                return replace(self, speed=speed)
            case "size":
                edge = edges[rng.integers(len(edges))]
                return self._with_size(edge, self._near(self.sizes[edge], 0, rng))
            case "less":
                return self._without_edge(edges[rng.integers(len(edges))])
            case _:
                return self._with_size(new[rng.integers(len(new))], self._size(rng))

    def _near(self, value: int, least: int, rng: np.random.Generator) -> int:
        """Draw a new number: half the time any, else one next to it."""
        if rng.random() < 0.5:
            return int(rng.integers(least, self.family.largest + 1))
        return min(max(value + (1 if rng.random() < 0.5 else -1), least), self.family.largest)

    def _without_edge(self, edge: Edge) -> _Draft:
        return replace(self, sizes={other: size for other, size in self.sizes.items() if other != edge})

    def _without_task(self, task: int) -> _Draft:
        sizes = {(i - (i > task), j - (j > task)): size for (i, j), size in self.sizes.items() if task not in (i, j)}
        return replace(self, work=np.delete(self.work, task, axis=0), sizes=sizes)

    def simpler(self) -> list[_Draft]:
        """Return problems of the family with a task or an edge less, a lower number, or all numbers divided."""
        joined, n = self.family.graph == "fork-join", len(self.work)
        drafts = [self._without_task(task) for task in range(joined, n - joined if n > 1 else 0)]
        drafts += [self._without_edge(edge) for edge in self.sizes if not joined]
        numbers = [*self.work.ravel().tolist(), *self.sizes.values()]
        drafts += [self._divided(by) for by in {2, math.gcd(*numbers)} if by > 1 and max(numbers) > 1]
        drafts += [self._with_size(edge, less) for edge, size in self.sizes.items() for less in _lower(size, 0)]
        return drafts + [self._with_work(x, less) for x in np.ndindex(*self.work.shape) for less in _lower(int(self.work[x]), 1)]

    def _with_work(self, place: tuple[int, ...], value: int) -> _Draft:
        work = self.work.copy()
        work[place] = value
        return replace(self, work=work)

    def _with_size(self, edge: Edge, size: int) -> _Draft:
        return replace(self, sizes={**self.sizes, edge: size})

    def _divided(self, divisor: int) -> _Draft:
        sizes = {edge: size // divisor for edge, size in self.sizes.items()}
        return replace(self, work=np.maximum(self.work // divisor, 1), sizes=sizes)

    def problem(self) -> Problem:
        """Return the problem."""
        n, size = len(self.work), len(self.speed)
        edges = np.array(sorted(self.sizes), np.int64).reshape(-1, 2)
        sizes = [float(self.sizes[edge]) for edge in sorted(self.sizes)]
        graph = TaskGraph([f"t{i}" for i in range(n)], edges, edge_bytes=sizes)
        cluster = Cluster([f"d{k}" for k in range(size)], bandwidth=1.0)
        return Problem(graph, cluster, durations=(self.work * self.speed).astype(float))


def _lower(value: int, least: int) -> list[int]:
    """Return numbers below a value, the least first."""
    return sorted({low for low in (least, value // 2, value - 1) if least <= low < value})


# ---------------------------------------------------------------------- ratios


class _Search:
    """A scheduler against the optimum."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler, self.evaluations, self.open = scheduler, 0, 0

    def judged(self, draft: _Draft, least: Fraction) -> Adversary | None:
        """Return the problem with its ratio; None if that is less than `least`, or open."""
        problem = draft.problem()
        schedule = self._schedule(problem)
        self.evaluations += 1
        length = Fraction(schedule.makespan)
        optimal = self._optimal(problem, math.floor(length / max(least, Fraction(1))))
        if optimal is None:
            return None
        return Adversary(length / Fraction(optimal.makespan), problem, schedule, optimal, self.evaluations, self.open)

    def _schedule(self, problem: Problem) -> Schedule:
        """Return the scheduler's schedule, verified."""
        if isinstance(self.scheduler, str):
            solution = solve(problem, self.scheduler)
            if solution.schedule is None:
                solution.raise_for_status()
            return cast("Schedule", solution.schedule)
        try:
            schedule = self.scheduler(problem)
        except Exception as error:  # of the user's function
            what = f"a problem of {plural(problem.n_tasks, 'task')} on {plural(problem.n_devices, 'device')}"
            raise InvalidArgument(f"the scheduler fails on {what}: {type(error).__name__}: {error}; it must return a Schedule") from error
        if violations := verify(problem, schedule):
            raise InvalidSchedule(f"the scheduler returned a schedule that breaks a rule of its problem: {violations[0]}")
        return simulate(problem, schedule.decision)  # whole times, and nothing starts later than its decision needs

    def _optimal(self, problem: Problem, most: int) -> Schedule | None:
        """Return a shortest schedule; None if none has at most so many seconds, or if that is open. All times are whole seconds."""
        n, size = problem.n_tasks, problem.graph.n_edges
        subset, budget = TaskSubset(SingleInputProblem(problem), np.arange(n), np.arange(size)), RefutationBudget(NODES)
        node, decision = subset.node(), None
        while (answer := subset.refute(node, most, budget)) is not True:
            if answer is False:
                self.open += 1
                return None
            device, start = subset.schedule()
            order = np.argsort(start, kind="stable")
            decision, most = Decision(subset.tasks[order], device[order]), round(answer) - 1
        return simulate(problem, decision) if decision is not None else None

    def simplest(self, draft: _Draft, found: Adversary) -> Adversary:
        """Return a problem that is as bad, and of which everything simpler is less bad."""
        place = failed = 0
        while failed < len(simpler := draft.simpler()):
            place %= len(simpler)
            other = self.judged(simpler[place], found.ratio)
            if other is None:
                place, failed = place + 1, failed + 1
            else:
                draft, found, failed = simpler[place], other, 0
        return replace(found, evaluations=self.evaluations, open=self.open)
