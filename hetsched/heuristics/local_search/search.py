"""What searches over states have in common: where they start, and what they offer when."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

import numpy as np

from hetsched.heuristics.local_search import edit_kernels, state_kernels
from hetsched.heuristics.local_search.states import States
from hetsched.heuristics.local_search.unloading import unload
from hetsched.heuristics.pacing import bursts, progress
from hetsched.schedule.decision import Decision
from hetsched.schedule.schedule import Schedule
from hetsched.schedule.simulate import simulate
from hetsched.search import Monitor, Role, select
from hetsched.stopping import Stop

_STEP = 0.02
"""What is claimed more, at the least, after an offer that did not fit the ``peak`` memory."""


class StateSearch:
    """A running search: where it is, the best it came to, and its talk with the monitor.

    Attributes
    ----------
    states : States
    current, best : SearchState
    makespan, least : float
        Makespans of the two in seconds.
    log : edit_kernels.Log
        For changes of `current`.
    """

    def __init__(self, monitor: Monitor) -> None:
        self.monitor = monitor
        self.makespan = self.least = math.inf
        self._began = (monitor.elapsed, monitor.evaluations)
        self._valid: Schedule | None = None
        self._held = 0.0
        self._offered_at, self._offer_seconds = -math.inf, 0.0
        self._prepare()

    def _prepare(self) -> None:
        self.states = States(self.monitor.problem, held=self._held)
        self.current, self.best = self.states.empty(), self.states.empty()
        self.log = edit_kernels.new_log(self.states.tables)

    @property
    def progress(self) -> float:
        """Share of the budget that is used up, 0 to 1."""
        return progress(self.monitor, *self._began)

    def start(self) -> bool:
        """Begin at the best schedule there is, made by list schedulers or from one over capacity if need be; False without any."""
        monitor = self.monitor
        if monitor.best is None:
            self._run_starts()
        if monitor.best is None and not monitor.should_stop:
            unload(monitor)
        if monitor.best is None or monitor.should_stop:
            return False
        if self.restart(monitor.best):
            return True
        for start in select(role=Role.START, problem=monitor.problem):  # the best known has batches that no state can hold
            found = monitor.subsolve(monitor.problem, start.name).schedule
            if found is not None:
                self.restart(found)
        if self._valid is None:
            monitor.note("no start was found whose batches are intervals of inputs, alike for co-located tasks")
        return self._valid is not None

    def _run_starts(self) -> None:
        monitor = self.monitor
        for role in (Role.START, Role.PACKING):
            for each in select(role=role, problem=monitor.problem):
                if monitor.stopped not in (Stop.NONE, Stop.TIME_LIMIT):
                    return
                if monitor.best is None or (role is Role.START and not monitor.should_stop):
                    monitor.attempt(each.name)

    def restart(self, schedule: Schedule) -> bool:
        """Go on from a schedule; False if no state can hold it."""
        makespan = self.states.load(self.current, schedule)
        if math.isinf(makespan):
            return False
        self.makespan = makespan
        if makespan < self.least:
            self._valid, self.least = schedule, makespan
            state_kernels.copy(self.current, self.best)
        return True

    def return_to_best(self) -> None:
        """Go on from the best state."""
        state_kernels.copy(self.best, self.current)
        self.makespan = self.states.settle(self.current)

    def bursts(self, *, weight: float = 1.0) -> Iterator[int]:
        """Yield how many changes to try until the search has to end; what they found is offered in between.

        The caller keeps `makespan`, `least` and `best` up to date.
        """
        known = self.least
        for count in bursts(self.monitor, weight=weight * self.states.tables.slots):
            yield count
            self.monitor.evaluated(count)
            if self.least < known and self._may_offer():
                known = self._offer()
        if self.least < known:
            self._offer()

    def _may_offer(self) -> bool:
        """Spend at most a third of the time on offers, unless what is done must not depend on time."""
        limited = self.monitor.budget.evaluations is not None
        return limited or self.monitor.elapsed - self._offered_at >= 2 * self._offer_seconds

    def _offer(self) -> float:
        """Offer the best state; return its makespan, or that of the last valid one if it does not fit the memory."""
        began = time.perf_counter()
        monitor, decision = self.monitor, self.states.decision(self.best)
        fits = math.isfinite(monitor.offer(decision))
        if fits and decision.transfer_order is not None:
            plain = Decision(decision.task, decision.device, decision.item_ptr, decision.items)
            monitor.offer(plain)  # transfers first come first served may do better
        self._offer_seconds, self._offered_at = time.perf_counter() - began, monitor.elapsed
        if fits:
            if monitor.best is not None and monitor.best.makespan <= self.least:
                self._valid = monitor.best
            return self.least
        if self._held < 1:
            self._held = min(1.0, max(self._held + _STEP, self._held_at_once(decision)))
            self._prepare()
        assert self._valid is not None
        self.least = math.inf
        self.restart(self._valid)
        return self.least

    def _held_at_once(self, decision: Decision) -> float:
        """Return the most that a device holds at a time of what it could ever hold in the best state, weights left out."""
        problem = self.monitor.problem
        peak = simulate(problem, decision).peak_memory
        assert peak is not None
        weights, all_of_it = (States(problem, held=held).claims(self.best) for held in (0.0, 1.0))
        most = all_of_it - weights
        return float(((peak - weights) / np.where(most > 0, most, np.inf)).max(initial=0.0))
