"""List schedulers with dynamic priorities, which compare all ready tasks at each step: ETF, DLS, BIL, Min-Min, Max-Min, Sufferage.

The option `contention` is that of `plans`, except that by default BIL, Max-Min and Sufferage plan transfers of small graphs only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from hetsched.arrays import FloatArray, IntArray
from hetsched.heuristics.list_scheduling.offers import in_slices, list_problem, offer
from hetsched.heuristics.list_scheduling.static import static_level
from hetsched.problem.problem import Problem
from hetsched.search import Auto, Kind, Monitor, Role, Supports, always, method

if TYPE_CHECKING:
    from hetsched.heuristics.list_scheduling.kernels import Placed
    from hetsched.heuristics.list_scheduling.pair_kernels import PairOrder, Pairs
    from hetsched.heuristics.list_scheduling.transfer_kernels import Transfers

MANY = "the choice among many ready tasks"
FEW, FOR_EACH, LASTING, PART = 32, 2, 16, 4
"""Where more tasks than `FEW`, and than `FOR_EACH` device, are ready, a look at each takes longer than ``pair_kernels``; `LASTING`
times as many for Min-Min, under which the best devices of few tasks change in a step; never more than 1 / `PART` of all tasks."""
MOST_PAIRS = 20_000_000
"""The most pairs of a task and a device for ``pair_kernels``, which needs up to 50 bytes for each."""
MOST_PLANNED = 2000
"""The most tasks for which BIL, Max-Min and Sufferage, which need the transfers of all ready tasks in each step, plan them unasked."""
_NO_LEVEL, _NO_MEDIAN = np.empty((0, 0)), np.empty(0)


def _by_choice(
    problem: Problem,
    monitor: Monitor,
    rule: int,
    order: Callable[[], PairOrder] | None = None,
    level: FloatArray = _NO_LEVEL,
    median: FloatArray = _NO_MEDIAN,
    contention: bool | None = None,
) -> None:
    """Offer the placement of a rule of ``dynamic_kernels``; `order` returns the order of arrived tasks, None for a rule without one."""
    from hetsched.heuristics.list_scheduling import dynamic_kernels, pair_kernels

    n, size = problem.n_tasks, problem.n_devices
    choice = dynamic_kernels.Choice(rule, np.array(level), np.array(median))
    few = n
    if order is not None and n * size <= MOST_PAIRS:
        few = min(max(FEW, FOR_EACH * size) * (LASTING if rule == dynamic_kernels.MIN_MIN else 1), n // PART)
    known = None if order is None else cache(order)

    def place(need: FloatArray, transfers: Transfers | None) -> Placed:
        data, preferences = list_problem(problem, need), dynamic_kernels.Preferences.begin(n, size)
        pairs: Pairs | None = None

        def work(state: dynamic_kernels.Choosing, most: int) -> int:
            nonlocal pairs
            if transfers is not None:
                return dynamic_kernels.by_planned_choice(data, choice, state, preferences, transfers, most)
            if pairs is None:
                result = dynamic_kernels.by_choice(data, choice, state, preferences, few, most)
                if result != dynamic_kernels.WIDE:
                    return result
                pairs = pair_kernels.Pairs.begin(problem.unit, need, size)
            assert known is not None
            return pair_kernels.by_pairs(data, choice, known(), state, preferences, pairs, most)

        return in_slices(work, dynamic_kernels.Choosing.begin(n, size, len(need)), monitor.deadline, MANY)

    if contention is None and n > MOST_PLANNED and rule not in (dynamic_kernels.ETF, dynamic_kernels.DLS, dynamic_kernels.MIN_MIN):
        contention = False
    offer(monitor, place, contention, again=True)


def one_order(priority: FloatArray, n_devices: int, *, waits: bool) -> PairOrder:
    """Return the order of arrived tasks, the same on all devices, by descending `priority` [n], ties to the lower task.

    `waits` says whether tasks of length zero wait for an idle device.
    """
    from hetsched.heuristics.list_scheduling.pair_kernels import PairOrder

    n = len(priority)
    order = np.argsort(-priority, kind="stable")
    place = np.empty(n, np.int64)
    place[order] = np.arange(n)
    row = np.zeros(n_devices, np.int64)
    return PairOrder(row, order[None], place[None], np.zeros((1, n)), np.full((1, n), n), place, order, 0.0, waits)


def orders(row: IntArray, key: FloatArray, terms: Sequence[FloatArray], scale: float) -> PairOrder:
    """Return the orders of arrived tasks by descending columns of `key` [n, R], ties to the lower task.

    `row` [K] is the column of each device. A key is the sum of `terms` [n, R] or [n, 1], the absolute values of which sum to at
    most `scale`.
    """
    from hetsched.heuristics.list_scheduling.pair_kernels import PairOrder

    n, size = key.shape
    columns = np.ascontiguousarray(key.T)
    order = np.argsort(-columns, axis=1, kind="stable")
    place, end = np.empty((size, n), np.int64), np.empty((size, n), np.int64)
    for r in range(size):
        place[r, order[r]] = np.arange(n)
        differs = np.zeros(max(n - 1, 0), np.bool_)
        for term in terms:
            sorted_term = term[order[r], min(r, term.shape[1] - 1)]
            differs |= sorted_term[1:] != sorted_term[:-1]
        last = np.append(np.flatnonzero(differs) + 1, n)
        end[r] = np.repeat(last, np.diff(last, prepend=0))
    index = np.arange(n)
    return PairOrder(np.array(row), order, place, np.take_along_axis(columns, order, axis=1), end, index, index, scale, False)


@method(
    "etf",
    summary="earliest time first: the ready pair that starts first, then static level",
    source="Hwang et al. 1989",
    kind=Kind.CONSTRUCTIVE,
    supports=Supports(inputs="whole"),
    turn=60,
    auto=Auto(),
)
def etf(problem: Problem, monitor: Monitor, *, contention: bool | None = None) -> None:
    """Place the (task, device) pair of earliest start; ties go to the higher static level, the lower task, the lower device."""
    from hetsched.heuristics.list_scheduling import dynamic_kernels

    level = static_level(problem)

    def order() -> PairOrder:
        return one_order(level, problem.n_devices, waits=False)

    _by_choice(problem, monitor, dynamic_kernels.ETF, order, level[:, None], contention=contention)


@method(
    "dls",
    summary="dynamic level scheduling: the ready pair of highest dynamic level",
    source="Sih and Lee 1993",
    kind=Kind.CONSTRUCTIVE,
    roles={Role.UPPER: always},
    supports=Supports(inputs="whole"),
    turn=70,
    auto=Auto(),
)
def dls(problem: Problem, monitor: Monitor, *, contention: bool | None = None) -> None:
    """Place the pair of highest dynamic level: static level - start + (median duration - duration on the device)."""
    from hetsched.heuristics.list_scheduling import dynamic_kernels

    median = _median_durations(problem.whole_durations)
    level = static_level(problem, median)[:, None]

    def order() -> PairOrder:
        gain = median[:, None] - problem.class_whole_durations
        scale = (level + np.where(np.isfinite(gain), np.abs(gain), 0.0)).max(initial=0.0)
        return orders(problem.device_class, level + gain, (level, gain), float(scale))

    _by_choice(problem, monitor, dynamic_kernels.DLS, order, level, median, contention=contention)


def _median_durations(durations: FloatArray) -> FloatArray:
    """Return the adjusted median duration over all devices, [n]: the largest finite one where the median is inf (Sih and Lee 1993)."""
    size = durations.shape[1]
    ascending = np.sort(durations, axis=1)
    median = 0.5 * (ascending[:, (size - 1) // 2] + ascending[:, size // 2])
    return np.where(np.isinf(median), np.where(np.isinf(durations), -np.inf, durations).max(axis=1), median)


@method(
    "bil",
    summary="best imaginary level: by the level a task would have were its device always free",
    source="Oh and Ha 1996",
    kind=Kind.CONSTRUCTIVE,
    roles={Role.UPPER: always},
    supports=Supports(inputs="whole"),
    turn=80,
    auto=Auto(),
)
def bil(problem: Problem, monitor: Monitor, *, contention: bool | None = None) -> None:
    """Place the ready task of largest k-th smallest basic imaginary makespan on the device of least revised one.

    k is the number of ready tasks, or of devices if there are fewer of these. The revised makespan adds the task's duration,
    times (ready tasks / devices - 1), if there are more ready tasks than devices.
    """
    from hetsched.analysis import ranking_kernels
    from hetsched.heuristics.list_scheduling import dynamic_kernels

    level = ranking_kernels.imaginary_levels(problem.arrays, problem.graph.topological_order, problem.whole_durations)

    def order() -> PairOrder:
        key = np.where(np.isfinite(level), level, -np.inf)
        return orders(np.arange(problem.n_devices), key, (level,), float(key.max(initial=0.0)))

    _by_choice(problem, monitor, dynamic_kernels.BIL, order, level, contention=contention)


@method(
    "min-min",
    summary="the ready task that can finish first, where it does",
    source="Ibarra and Kim 1977",
    kind=Kind.CONSTRUCTIVE,
    supports=Supports(inputs="whole"),
    turn=150,
    auto=Auto(),
)
def min_min(problem: Problem, monitor: Monitor, *, contention: bool | None = None) -> None:
    """Place the ready task of least minimum completion time."""
    from hetsched.heuristics.list_scheduling import dynamic_kernels

    def order() -> PairOrder:
        durations = problem.class_whole_durations
        return orders(problem.device_class, -durations, (durations,), float(durations.max(initial=0.0, where=np.isfinite(durations))))

    _by_choice(problem, monitor, dynamic_kernels.MIN_MIN, order, contention=contention)


@method(
    "max-min",
    summary="the ready task that finishes last at best, where it finishes first",
    source="Ibarra and Kim 1977",
    kind=Kind.CONSTRUCTIVE,
    supports=Supports(inputs="whole"),
    turn=160,
    auto=Auto(),
)
def max_min(problem: Problem, monitor: Monitor, *, contention: bool | None = None) -> None:
    """Place the ready task of largest minimum completion time."""
    from hetsched.heuristics.list_scheduling import dynamic_kernels

    _by_choice(problem, monitor, dynamic_kernels.MAX_MIN, contention=contention)


@method(
    "sufferage",
    summary="the ready task that would suffer most from its second-best device",
    source="Maheswaran et al. 1999",
    kind=Kind.CONSTRUCTIVE,
    supports=Supports(inputs="whole"),
    turn=170,
    auto=Auto(),
)
def sufferage(problem: Problem, monitor: Monitor, *, contention: bool | None = None) -> None:
    """Place the ready task of largest difference between its second-least and least completion times."""
    from hetsched.heuristics.list_scheduling import dynamic_kernels

    _by_choice(problem, monitor, dynamic_kernels.SUFFERAGE, contention=contention)
