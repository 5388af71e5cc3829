"""Tabu search on critical chains."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hetsched.problem.problem import Problem
from hetsched.search import Auto, Monitor, batches_given, method

if TYPE_CHECKING:
    from hetsched.heuristics.local_search.search import StateSearch
    from hetsched.heuristics.local_search.state_kernels import SearchState

TRIALS = 6
"""Places evaluated exactly in each iteration under contention or ``peak`` memory, where values from heads and tails are only estimates."""
PRESSURE = 0.01
"""Initial penalty of a typical unit over the ``peak`` memory, as a share of the makespan."""
PATIENCE = 2000
"""Iterations without a lower makespan after which the search restarts from another state."""
WEIGHT = 4.0
"""Cost of removing a task and evaluating all its places, in passes over all tasks and edges."""
SHARE = 0.5
"""Least tenure where no transfer takes time, in tasks per device; with transfers longer tenures are worse."""
LONGEST = 16
"""Maximum of that least tenure in iterations; 25 is worse than 8 on two devices with 50 tasks each."""
ELITES = 5
"""Maximum number of states kept for restarts."""
SLICE = 500
"""Random changes between two checks of the time; in large graphs one takes a third of a millisecond."""
LARGEST_SHAKE = 16
"""Upper limit of the random changes made to a state at a restart."""


class Walk:
    """A tabu search with restarts.

    Parameters
    ----------
    search : StateSearch
        A search that has started; its `makespan`, `least` and `best` are updated.
    width, groups, tenure : int
        See `tabu`.

    Attributes
    ----------
    state : SearchState
        The best state since `begin`.
    """

    def __init__(self, search: StateSearch, *, width: int = 8, groups: int = 2, tenure: int = 8) -> None:
        from hetsched.heuristics.local_search import disjunctive_kernels, tabu_kernels

        t = search.states.tables
        self.search, self.states = search, search.states
        graph = disjunctive_kernels.new_graph(t)
        if graph.balance > 0.0:
            tenure = max(tenure, min(LONGEST, int(SHARE * search.states.problem.n_tasks / len(t.capacity))))
        self.settings = tabu_kernels.Settings(width, groups, tenure, PATIENCE)
        self.memory = tabu_kernels.TabuState(
            graph,
            disjunctive_kernels.new_candidates(TRIALS if t.arrays.links.contended or t.timed else 1),
            search.log,
            np.zeros((len(t.task), len(t.capacity)), np.int64),
            np.zeros(2, np.int64),
            np.zeros(1),
            np.array([PRESSURE * search.least / self.states.typical_claim]),
        )
        self.state = self.states.empty()
        self.begin()

    def begin(self) -> None:
        """Start from the search's current state with an empty tabu list."""
        from hetsched.heuristics.local_search import state_kernels

        lowest = self.search.makespan if self.search.fits else np.inf
        self.memory.expiry[:], self.memory.counts[:], self.memory.lowest[0] = 0, 0, lowest
        state_kernels.copy(self.search.current, self.state)

    @property
    def lowest(self) -> float:
        """Makespan of the best state since `begin`, in seconds; inf if none has fitted the memory."""
        return float(self.memory.lowest[0])

    @property
    def stuck(self) -> bool:
        """Whether the last `PATIENCE` iterations found no lower makespan."""
        return bool(self.memory.counts[1] >= PATIENCE)

    def run(self, budget: int) -> int:
        """Continue for at most `budget` evaluations, or until `stuck`; return the number of evaluations."""
        from hetsched.heuristics.local_search import state_kernels, tabu_kernels

        search = self.search
        search.makespan, spent = tabu_kernels.search(
            self.states.tables, search.current, self.state, self.memory, self.settings, search.monitor.rng, budget, search.makespan
        )
        if self.lowest < search.least:
            search.least = self.lowest
            state_kernels.copy(self.state, search.best)
        return int(spent)

    def shake(self, changes: int) -> int:
        """Make `changes` random changes of the current state, fewer if the time is up; return the number of evaluations."""
        from hetsched.heuristics.local_search import tabu_kernels

        search, done = self.search, 0
        while done < changes and not (done and search.monitor.deadline.over):
            count = min(SLICE, changes - done)
            search.makespan = tabu_kernels.shake(self.states.tables, search.current, search.log, search.monitor.rng, count, search.makespan)
            done += count
        return done


@method(
    "tabu",
    summary="tabu search: critical tasks to the best places on all devices, found from heads and tails",
    source="Mastrolilli and Gambardella 2000 for the estimate; with transfers, groups and restarts of our own",
    turn=310,
    auto=Auto(when=batches_given),
)
def tabu(problem: Problem, monitor: Monitor, *, width: int = 8, groups: int = 2, tenure: int = 8) -> None:
    """Move critical tasks to their best places repeatedly, from the best schedule or that of HEFT.

    Each iteration removes up to `width` tasks of a critical chain in turn, estimates the makespan of
    each place on each device from heads and tails, and makes the best move, even if the makespan
    increases; under contention the best few places are evaluated exactly. Then it tries to move
    `groups` random groups of connected tasks to other devices. A task may not return to a device for
    `tenure` to 2 `tenure` iterations, except by a move to a new best makespan. If no transfer takes time,
    places of the same makespan are compared by the squared loads of the devices, and `tenure` is at least
    half the tasks per device, up to 16. After many iterations without improvement the search restarts from
    one of the best states, with random changes. The removal of a task counts as one evaluation. Without a
    limit it ends after 10 s.
    """
    from hetsched.heuristics.local_search import state_kernels
    from hetsched.heuristics.local_search.search import StateSearch

    search = StateSearch(monitor)
    if not search.start() or problem.n_tasks == 0:
        return
    walk = Walk(search, width=width, groups=groups, tenure=tenure)
    elites: list[tuple[float, SearchState]] = []
    left = 0  # evaluations too few for an iteration are carried over to the next burst
    for count in search.bursts(weight=WEIGHT):
        left += count
        left -= walk.run(left)
        if walk.stuck and left > LARGEST_SHAKE:
            _keep(elites, walk)
            if elites:
                _, elite = elites[int(monitor.rng.integers(len(elites)))]
                state_kernels.copy(elite, search.current)
            search.makespan = search.states.settle(search.current)
            left -= walk.shake(int(monitor.rng.integers(2, LARGEST_SHAKE)))
            walk.begin()


def _keep(elites: list[tuple[float, SearchState]], walk: Walk) -> None:
    """Add the best state of a walk to the elites, before those of the same makespan."""
    if np.isinf(walk.lowest):
        return
    from hetsched.heuristics.local_search import state_kernels

    state = walk.states.empty()
    state_kernels.copy(walk.state, state)
    elites.insert(0, (walk.lowest, state))
    elites.sort(key=lambda elite: elite[0])
    del elites[ELITES:]
