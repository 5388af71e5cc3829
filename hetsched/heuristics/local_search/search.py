"""Common parts of searches over states: their start, and when they offer schedules."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

from hetsched.heuristics.local_search import edit_kernels, excess_kernels, state_kernels
from hetsched.heuristics.local_search.states import States
from hetsched.heuristics.local_search.unloading import unload
from hetsched.heuristics.pacing import bursts, progress
from hetsched.schedule.decision import Decision
from hetsched.schedule.schedule import Schedule
from hetsched.search import Monitor, Role, select
from hetsched.stopping import Stop


class StateSearch:
    """A running search: its current and best states, and its offers to the monitor.

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
        self._offered_at, self._offer_seconds = -math.inf, 0.0
        self.states = States(monitor.problem)
        self.current, self.best = self.states.empty(), self.states.empty()
        self.log = edit_kernels.new_log(self.states.tables)

    @property
    def fits(self) -> bool:
        """Whether the current state is within the ``peak`` memory."""
        t = self.states.tables
        return not t.timed or bool(excess_kernels.excess(t, self.current) == 0.0)

    @property
    def progress(self) -> float:
        """Share of the budget that has been used, from 0 to 1."""
        return progress(self.monitor, *self._began)

    def start(self) -> bool:
        """Start from the best schedule, if necessary one of list schedulers or of `unload`; return False if there is none."""
        monitor = self.monitor
        if monitor.best is None:
            self._run_starts()
        if monitor.best is None and not monitor.should_stop:
            unload(monitor)
        if monitor.best is None or monitor.should_stop:
            return False
        if self.restart(monitor.best):
            return True
        for start in select(role=Role.START, problem=monitor.problem):  # no state can represent the batches of the best schedule
            schedule = monitor.subsolve(monitor.problem, start.name).schedule
            if schedule is not None:
                self.restart(schedule)
        if self._valid is None:
            monitor.note("no start was found whose batches are intervals of inputs, alike for co-located tasks")
        return self._valid is not None

    def _run_starts(self) -> None:
        monitor = self.monitor
        for role in (Role.START, Role.PACKING):
            for start in select(role=role, problem=monitor.problem):
                if monitor.stopped not in (Stop.NONE, Stop.TIME_LIMIT):
                    return
                if monitor.best is None or (role is Role.START and not monitor.should_stop):
                    monitor.attempt(start.name)

    def restart(self, schedule: Schedule) -> bool:
        """Continue from a schedule; return False if no state can represent it."""
        makespan = self.states.load(self.current, schedule)
        if math.isinf(makespan):
            return False
        self.makespan = makespan
        least = makespan if self.fits else schedule.makespan  # transfers in another order may need more memory
        if least < self.least:
            self._valid, self.least = schedule, least
            state_kernels.copy(self.current, self.best)
        return True

    def return_to_best(self) -> None:
        """Continue from the best state."""
        state_kernels.copy(self.best, self.current)
        self.makespan = self.states.settle(self.current)

    def bursts(self, *, weight: float = 1.0) -> Iterator[int]:
        """Yield the number of changes to try next, until the search has to end; offer improved states in between.

        The caller keeps `makespan`, `least` and `best` up to date.
        """
        offered = self.least
        for count in bursts(self.monitor, weight=weight * self.states.tables.slots):
            yield count
            self.monitor.evaluated(count)
            if self.least < offered and self._may_offer():
                offered = self._offer()
        if self.least < offered:
            self._offer()

    def _may_offer(self) -> bool:
        """Return whether offers take at most a third of the time; always true under an evaluation limit, for determinism."""
        limited = self.monitor.budget.evaluations is not None
        return limited or self.monitor.elapsed - self._offered_at >= 2 * self._offer_seconds

    def _offer(self) -> float:
        """Offer the best state; return its makespan, or that of the last valid one if it does not fit the memory."""
        began = time.perf_counter()
        monitor, decision = self.monitor, self.states.decision(self.best)
        fits = math.isfinite(monitor.offer(decision))
        if fits and decision.transfer_order is not None:
            plain = Decision(decision.task, decision.device, decision.item_ptr, decision.items)
            monitor.offer(plain)  # first come, first served transfers may be better
        self._offer_seconds, self._offered_at = time.perf_counter() - began, monitor.elapsed
        if fits:
            if monitor.best is not None and monitor.best.makespan <= self.least:
                self._valid = monitor.best
            return self.least
        assert self._valid is not None
        self.least = math.inf
        self.restart(self._valid)
        return self.least
