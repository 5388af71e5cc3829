"""Tabu search on critical chains."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hetsched.problem.problem import Problem
from hetsched.search import Auto, Monitor, method

if TYPE_CHECKING:
    from hetsched.heuristics.local_search.search import StateSearch
    from hetsched.heuristics.local_search.state_kernels import SearchState

TRIALS = 6
"""Places tried out in each iteration where transfers contend, so that values are only guides."""
PATIENCE = 2000
"""Iterations without a lower makespan before the search goes on elsewhere."""
WEIGHT = 4.0
"""What taking one task out and finding all its places costs, in walks over all tasks and edges."""
ELITES = 5
"""States to go on from."""
SLICE = 500
"""Random changes between two looks at the clock; of large graphs they take a third of a millisecond each."""
LARGEST_SHAKE = 16
"""Most random changes made to one of them before it is improved again."""


class Walk:
    """A tabu search from one state after another.

    Parameters
    ----------
    search : StateSearch
        With a start; its `makespan`, `least` and `best` are kept up to date.
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
        self.settings = tabu_kernels.Settings(width, groups, tenure, PATIENCE)
        self.memory = tabu_kernels.TabuState(
            disjunctive_kernels.new_graph(t),
            disjunctive_kernels.new_candidates(TRIALS if t.arrays.links.contended else 1),
            search.log,
            np.zeros((len(t.task), len(t.capacity)), np.int64),
            np.zeros(2, np.int64),
            np.zeros(1),
        )
        self.state = self.states.empty()
        self.begin()

    def begin(self) -> None:
        """Begin at the search's current state, with nothing tabu."""
        from hetsched.heuristics.local_search import state_kernels

        self.memory.expiry[:], self.memory.counts[:], self.memory.lowest[0] = 0, 0, self.search.makespan
        state_kernels.copy(self.search.current, self.state)

    @property
    def lowest(self) -> float:
        """Makespan of the best state since `begin`, in seconds."""
        return float(self.memory.lowest[0])

    @property
    def stuck(self) -> bool:
        """Whether it went on for long without a lower makespan."""
        return bool(self.memory.counts[1] >= PATIENCE)

    @property
    def outdated(self) -> bool:
        """Whether the search goes by other tables now."""
        return self.search.states is not self.states

    def run(self, budget: int) -> int:
        """Go on for so many evaluations at most, or until stuck; return how many there were."""
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
        """Make random changes of the current state, or as many as there is time for; return how many evaluations that took."""
        from hetsched.heuristics.local_search import tabu_kernels

        search, done = self.search, 0
        while done < changes and not (done and search.monitor.deadline.over):
            part = min(SLICE, changes - done)
            search.makespan = tabu_kernels.shake(self.states.tables, search.current, search.log, search.monitor.rng, part, search.makespan)
            done += part
        return done


@method(
    "tabu",
    summary="tabu search: critical tasks to the best places on all devices, found from heads and tails",
    source="Mastrolilli and Gambardella 2000 for the estimate; with transfers, groups and restarts of our own",
    turn=310,
    auto=Auto(),
)
def tabu(problem: Problem, monitor: Monitor, *, width: int = 8, groups: int = 2, tenure: int = 8) -> None:
    """Move critical tasks to their best places, again and again, from the best schedule known or HEFT.

    Each iteration takes up to `width` tasks of a critical chain out, one after another, finds what
    each place on each device would make of the makespan from heads and tails, and goes to the best
    place, even if that is worse than where it was; where transfers contend, the best few are tried out.
    Then it tries to put `groups` random groups of connected tasks on other devices. A task may not
    return to a device for `tenure` to twice as many iterations, unless that leads to a new best.
    Where this finds nothing better for long, it goes on from one of the best states so far, shaken.
    A task taken out counts as one evaluation. Without any limit it ends after 10 s.
    """
    from hetsched.heuristics.local_search import state_kernels
    from hetsched.heuristics.local_search.search import StateSearch

    search = StateSearch(monitor)
    if not search.start() or problem.n_tasks == 0:
        return
    walk = Walk(search, width=width, groups=groups, tenure=tenure)
    elites: list[tuple[float, SearchState]] = []
    left = 0  # what is too little for an iteration is kept for the next time
    for count in search.bursts(weight=WEIGHT):
        if walk.outdated:
            walk, elites = Walk(search, width=width, groups=groups, tenure=tenure), []
        left += count
        left -= walk.run(left)
        if walk.stuck and left > LARGEST_SHAKE:
            _keep(elites, walk)
            _, chosen = elites[int(monitor.rng.integers(len(elites)))]
            state_kernels.copy(chosen, search.current)
            search.makespan = search.states.settle(search.current)
            left -= walk.shake(int(monitor.rng.integers(2, LARGEST_SHAKE)))
            walk.begin()


def _keep(elites: list[tuple[float, SearchState]], walk: Walk) -> None:
    """Put the best state of a walk among the elites, of which no two have the same makespan."""
    if any(makespan == walk.lowest for makespan, _ in elites):
        return
    from hetsched.heuristics.local_search import state_kernels

    state = walk.states.empty()
    state_kernels.copy(walk.state, state)
    elites.append((walk.lowest, state))
    elites.sort(key=lambda elite: elite[0])
    del elites[ELITES:]
