"""Run-time assistants that find their moves by a local search, in portions between the iterations."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from hetsched.arguments import checked, whole
from hetsched.arrays import FloatArray
from hetsched.errors import InvalidProblem
from hetsched.heuristics.repair import repair
from hetsched.problem.problem import Problem
from hetsched.runtime.assistants import Assistants
from hetsched.runtime.iterations import Observation, expected_makespan, fits, migration
from hetsched.schedule.decision import Decision
from hetsched.schedule.simulate import simulate
from hetsched.search import Monitor
from hetsched.solving import solve

if TYPE_CHECKING:
    from hetsched.heuristics.local_search.search import StateSearch

LISTS = ("heft", "peft")
"""List schedulers whose answers for the new estimates a search may begin with."""
HOT, COLD = 0.003, 0.0001
"""First and last temperature of annealing, shares of the makespan: low, because it starts from a decision that was good."""
CHANGES = 8
"""Changes of annealing that take as long as an evaluation of tabu search, about."""


class SearchingAssistants(Assistants):
    """Assistants whose moves are found by a local search instead of out-boxes: ours, not those of the paper.

    When the estimate of a device or a link changes, or the memory of a device, a search begins for the problem as it is now.
    It continues for `rounds` iterations, with `evaluations` after each, and the best decision so far is used once it saves
    enough. In the first half of the rounds, annealing starts from the current decision and tabu search from the shortest of the current
    and the first decision and those of two list schedulers; in the second half, tabu search goes on from the better of the two. A
    decision that no longer fits the memory is replaced by one that does, whatever its time. As long as nothing changes nothing is
    searched, so that noise below `drift` moves no task.

    Parameters
    ----------
    evaluations : int
        Of tabu search after each iteration: each removes a task and looks at all its places, in time proportional to the tasks and
        edges. Annealing makes several changes in the time of one.
    rounds : int
        Iterations.
    gain : float
        The share of the estimated iteration that a new decision must save.
    repay : int
        Iterations in which it must save more than its migration takes.
    probe : int
        Iterations after which a device that was slow and has lost all its nodes gets one, as a probe of its speed; see `Assistants`.
        By the estimate, probes take no more than 1 / `probe` of the time.
    window, drift
        As for `Assistants`.
    seed : int
        Of the search.

    Notes
    -----
    Devices are observed as by `Assistants`, links likewise; the memory as far as an observation has it.
    """

    @checked(InvalidProblem, evaluations=whole(1), rounds=whole(1), repay=whole(1), probe=whole(1), seed=whole(0))
    def __init__(
        self,
        *,
        evaluations: int = 500,
        rounds: int = 10,
        gain: float = 0.005,
        repay: int = 10,
        probe: int = 5,
        window: int = 3,
        drift: float = 0.1,
        seed: int = 0,
    ) -> None:
        super().__init__(gain=gain, cooldown=repay, window=window, drift=drift)
        self.evaluations, self.rounds, self.seed, self._period = evaluations, rounds, seed, probe

    @checked
    def begin(self, problem: Problem, decision: Decision) -> None:
        """Reset the state, estimate the problem's durations, and compile or load the kernels of the search."""
        super().begin(problem, decision)
        self._searched = problem
        self._search: _Search | None = None
        rehearsal = self._new_search(decision, self._conditions.speeds.seconds)  # has the kernels compiled before they are needed
        if rehearsal is not None and rehearsal.rounds:
            rehearsal.advance(2)

    def _rebalanced(self, observation: Observation, before: float, seconds: FloatArray) -> Decision | None:
        """Return the best decision of the search so far if it is worth its migration, else None."""
        problem, current = self._conditions.problem, observation.decision
        if problem is not self._searched:
            self._searched, self._search = problem, self._new_search(current, seconds)
        if self._search is None or self._search.rounds == 0:
            return None
        if not fits(problem, current):
            before = math.inf
        found = {}
        for proposal in self._search.advance(self.evaluations):
            after = self._worthwhile(current, proposal, before, seconds)
            if after is not None:
                found[after] = proposal
        return found[min(found)] if found else None

    def _new_search(self, current: Decision, seconds: FloatArray) -> _Search | None:
        """Return a search for the present problem, or None if no decision is found that fits it."""
        problem = self._conditions.problem
        answers = [solve(problem, name).schedule for name in LISTS]
        starts = [current, self._home, *(schedule.decision for schedule in answers if schedule is not None)]
        if not fits(problem, current):
            near = repair(problem, current)
            starts += [near] if near is not None else []
        costs = [self._cost(current, start, seconds) for start in starts]
        if math.isinf(min(costs)):
            found = solve(problem, "tabu", evaluations=self.evaluations, seed=self.seed).schedule
            return None if found is None else _Search(problem, found.decision, found.decision, self.rounds, self.seed)
        best = starts[int(np.argmin(costs))]
        return _Search(problem, best if math.isinf(costs[0]) else current, best, self.rounds, self.seed)

    def _cost(self, current: Decision, other: Decision, seconds: FloatArray) -> float:
        """Return the seconds of an iteration by another decision, and its share of the migration; inf if it does not fit."""
        problem = self._conditions.problem
        if not fits(problem, other):
            return math.inf
        return expected_makespan(problem, other, seconds) + migration(problem, current, other)[0] / self.cooldown

    def _probed(self, observation: Observation, before: float, seconds: FloatArray) -> Decision | None:
        batches = simulate(self._conditions.problem, observation.decision).batches
        self._sequence = batches.task[np.lexsort((self._problem.graph.rank[batches.task], batches.start))]
        return super()._probed(observation, before, seconds)


class _Search:
    """Annealing from one decision beside tabu search from another, then tabu search from the better state.

    Attributes
    ----------
    rounds : int
        Rounds that are left.
    """

    def __init__(self, problem: Problem, first: Decision, second: Decision, rounds: int, seed: int) -> None:
        from hetsched.heuristics.local_search.tabu import Walk

        self.rounds, self._half = rounds, rounds - rounds // 2
        one, two = _begun(problem, first, seed), _begun(problem, second, seed + 1)
        if one is None or two is None:  # an iteration takes no time
            self.rounds = 0
            return
        self._annealing: _Annealing | None = _Annealing(one, rounds // 2)
        self._walk = Walk(two)

    def advance(self, evaluations: int) -> list[Decision]:
        """Search for a round; return the best decision so far, under contention with and without its order of transfers."""
        if self.rounds == self._half:
            self._join()
        self.rounds -= 1
        best = self._walk.search
        if self._annealing is None:
            self._walk.run(evaluations)
        else:
            self._walk.run(evaluations // 2)
            self._annealing.run(evaluations // 2)
            best = min(best, self._annealing.search, key=lambda search: search.least)
        found = best.states.decision(best.best)
        if found.transfer_order is None:
            return [found]
        return [found, Decision(found.task, found.device, found.item_ptr, found.items)]

    def _join(self) -> None:
        """End the annealing, and let tabu search go on from the better of the two best states."""
        from hetsched.heuristics.local_search import state_kernels

        assert self._annealing is not None
        annealed, search = self._annealing.search, self._walk.search
        if annealed.least < search.least:
            state_kernels.copy(annealed.best, search.best)
            search.least = annealed.least
        search.return_to_best()
        self._walk.begin()
        self._annealing = None


class _Annealing:
    """Annealing over a number of rounds, each colder than the one before."""

    def __init__(self, search: StateSearch, rounds: int) -> None:
        self.search, self._rounds, self._done = search, rounds, 0
        self._pressure = HOT * search.least / search.states.typical_claim

    def run(self, evaluations: int) -> None:
        """Anneal for a round."""
        from hetsched.heuristics.local_search.annealing_kernels import Course, anneal

        search = self.search
        hot, cold = (search.least * HOT * (COLD / HOT) ** ((self._done + end) / self._rounds) for end in (0, 1))
        self._done += 1
        course = Course(CHANGES * evaluations, hot, cold, self._pressure, search.makespan, search.least)
        made = anneal(search.states.tables, search.current, search.best, search.log, search.monitor.rng, course)
        search.makespan, search.least, self._pressure = made


def _begun(problem: Problem, start: Decision, seed: int) -> StateSearch | None:
    """Return a search that has started from a decision, or None if that takes no time."""
    from hetsched.heuristics.local_search.search import StateSearch

    monitor = Monitor(problem, seed=seed)
    monitor.offer(start)
    search = StateSearch(monitor)
    return search if search.start() else None
