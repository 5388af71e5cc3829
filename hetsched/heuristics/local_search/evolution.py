"""Evolutionary search with path relinking."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hetsched.arrays import IntArray
from hetsched.heuristics.local_search.tabu import WEIGHT, Walk
from hetsched.problem.problem import Problem
from hetsched.search import Auto, Monitor, batches_given, method

if TYPE_CHECKING:
    from hetsched.heuristics.local_search.search import StateSearch
    from hetsched.heuristics.local_search.state_kernels import SearchState

STOPS = 16
"""States evaluated on the path from one parent to the other."""
FRESH = 2
"""Random changes of a state of the path, so that a second use of the path leads to another state."""
LEAST = 50
"""Minimum number of evaluations of tabu search on a state."""
NEAR = 0.02
"""Distance below which two states count as equal: the share of batches that differ in device or predecessor on the device."""
PARTS = 4
"""The first population takes at most 1 / `PARTS` of all evaluations."""
PATIENCE = 5
"""Generations, in multiples of the population, without a new member after which the population is generated again."""


@dataclass(eq=False)
class Member:
    """A member of the population."""

    makespan: float
    state: SearchState
    places: IntArray
    """[M, 2]: device of each node and the previous node on the device, -1 for none."""


class Population:
    """Good, distinct states, and the search that makes new ones of them.

    Parameters
    ----------
    search : StateSearch
        A search that has started; its start is the first state to be improved.
    size, effort : int
        See `evolution`.
    """

    def __init__(self, search: StateSearch, *, size: int, effort: int) -> None:
        self.search, self.size, self.effort = search, size, effort
        self.walk = Walk(search)
        self.start, self.child = search.states.empty(), search.states.empty()
        self._copy(search.current, self.start)
        self.members: list[Member] = []
        self.most_changes = search.states.problem.n_units
        self.stalled, self.budget = 0, 0
        self.made = self.spent = 0
        """Number of all evaluations, and of those of the state that is being improved."""

    def _copy(self, source: SearchState, target: SearchState) -> None:
        from hetsched.heuristics.local_search import state_kernels

        state_kernels.copy(source, target)

    def advance(self, budget: int) -> None:
        """Continue for `budget` evaluations; those too few for the next step are carried over to the next call."""
        self.budget += budget
        while True:
            left = self._share() - self.spent
            if left >= LEAST and not self.walk.stuck:
                spent = self.walk.run(min(self.budget, left))
                self.budget, self.spent, self.made = self.budget - spent, self.spent + spent, self.made + spent
                if spent == 0:
                    return
                continue
            if self.budget < STOPS + self.most_changes:
                return
            self._join()
            self.budget -= self._next()
            self.walk.begin()
            self.spent = 0

    def _share(self) -> int:
        """Return the number of evaluations per state: less than `effort` if the time does not suffice for `PARTS` populations."""
        progress = self.search.progress
        return self.effort if progress <= 0 else max(LEAST, min(self.effort, int(self.made / progress / (PARTS * self.size))))

    def _join(self) -> None:
        """Add the best state of the walk to the population if it is better than the member that it replaces."""
        self.stalled += 1
        if math.isinf(self.walk.lowest):
            return
        state = self.walk.states.empty()
        self._copy(self.walk.state, state)
        new = Member(self.walk.lowest, state, places(self.walk.states.tables.cell, state))
        near = [member for member in self.members if distance(member, new) < NEAR]
        replaceable = near or (self.members if len(self.members) >= self.size else [])
        if replaceable:
            worst = max(replaceable, key=lambda member: member.makespan)
            if new.makespan >= worst.makespan:
                return
            self.members.remove(worst)
        self.members.append(new)
        self.stalled = 0

    def _next(self) -> int:
        """Make the state to be improved next; return the number of evaluations."""
        from hetsched.heuristics.local_search import relinking_kernels

        search, rng = self.search, self.search.monitor.rng
        if self.stalled > PATIENCE * self.size:
            self.members = [min(self.members, key=lambda member: member.makespan)]
            self.stalled = 0
        if len(self.members) < max(2, self.size) and self.stalled <= self.size:
            self._go_to(self.start)
            return self.walk.shake(self.most_changes)
        one, other = rng.integers(len(self.members), size=2)
        self._go_to(self.members[one].state)
        lowest, _ = relinking_kernels.relink(search.states.tables, search.current, self.members[other].state, self.child, search.log, STOPS)
        if math.isfinite(lowest):
            self._go_to(self.child)
        else:
            self._go_to(self.members[one].state)
        return STOPS + self.walk.shake(min(FRESH, self.most_changes))

    def _go_to(self, state: SearchState) -> None:
        self._copy(state, self.search.current)
        self.search.makespan = self.search.states.settle(self.search.current)


def places(cell: IntArray, state: SearchState) -> IntArray:
    """Return the device of each node and the previous node on the device, [M, 2]; -1 for none."""
    nodes = state.sequence[: state.length[0]]
    device = state.device[cell[nodes]]
    line = nodes[np.argsort(device, kind="stable")]
    rows = np.full((len(cell), 2), -1)
    rows[nodes, 0] = device
    rows[line[1:], 1] = np.where(rows[line[1:], 0] == rows[line[:-1], 0], line[:-1], -1)
    return rows


def distance(one: Member, other: Member) -> float:
    """Return the share of nodes that differ in device or in the previous node on the device."""
    return float((one.places != other.places).any(axis=1).mean())


@method(
    "evolution",
    summary="evolutionary search: path relinking between good schedules, each child improved by tabu search",
    source="scatter search with path relinking (Glover 1998) over tabu search; the path is ours",
    turn=320,
    auto=Auto(when=batches_given),
)
def evolution(problem: Problem, monitor: Monitor, *, size: int = 8, effort: int = 50_000) -> None:
    """Improve `size` different schedules, then repeatedly the best state on a path between two of them.

    The first is the best schedule, or that of HEFT; the others result from it by as many random changes as
    there are tasks. Each is improved by `tabu` for `effort` evaluations, or fewer if the budget is small.
    Then a random member is transformed into another one, task by task in the order of the second; the best
    of 16 states on the path is improved and, if it is better, replaces a member close to it, or else the
    worst. After many steps without a replacement all but the best are generated again. Without a limit it
    ends after 10 s.
    """
    from hetsched.heuristics.local_search.search import StateSearch

    search = StateSearch(monitor)
    if not search.start() or problem.n_tasks == 0:
        return
    population = Population(search, size=size, effort=effort)
    for count in search.bursts(weight=WEIGHT):
        population.advance(count)
