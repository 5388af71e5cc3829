"""List schedulers with dynamic priorities, which compare all ready tasks at each step: ETF, DLS, BIL, Min-Min, Max-Min, Sufferage."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hetsched.arrays import FloatArray
from hetsched.heuristics.list_scheduling.offers import in_slices, list_problem, offer
from hetsched.heuristics.list_scheduling.static import static_level
from hetsched.problem.problem import Problem
from hetsched.search import Auto, Kind, Monitor, Role, Supports, always, method

if TYPE_CHECKING:
    from hetsched.heuristics.list_scheduling.kernels import Placed

_NO_LEVEL, _NO_MEDIAN = np.empty((0, 0)), np.empty(0)


def _by_choice(problem: Problem, monitor: Monitor, rule: int, level: FloatArray = _NO_LEVEL, median: FloatArray = _NO_MEDIAN) -> None:
    from hetsched.heuristics.list_scheduling import dynamic_kernels

    n, size = problem.whole_durations.shape
    choice = dynamic_kernels.Choice(rule, np.array(level), np.array(median))

    def place(need: FloatArray) -> Placed:
        data, preferences = list_problem(problem, need), dynamic_kernels.Preferences.begin(n, size)

        def work(state: dynamic_kernels.Choosing, most: int) -> int:
            return dynamic_kernels.by_choice(data, choice, state, preferences, most)

        return in_slices(work, dynamic_kernels.Choosing.begin(n, size, len(need)), monitor.deadline, "the choice among many ready tasks")

    offer(monitor, place)


@method(
    "etf",
    summary="earliest time first: the ready pair that starts first, then static level",
    source="Hwang et al. 1989",
    kind=Kind.CONSTRUCTIVE,
    growth=2,
    supports=Supports(inputs="whole"),
    turn=60,
    auto=Auto(),
)
def etf(problem: Problem, monitor: Monitor) -> None:
    """Place the (task, device) pair of earliest start; ties go to the higher static level, the lower task, the lower device."""
    from hetsched.heuristics.list_scheduling import dynamic_kernels

    _by_choice(problem, monitor, dynamic_kernels.ETF, static_level(problem)[:, None])


@method(
    "dls",
    summary="dynamic level scheduling: the ready pair of highest dynamic level",
    source="Sih and Lee 1993",
    kind=Kind.CONSTRUCTIVE,
    roles={Role.UPPER: always},
    growth=2,
    supports=Supports(inputs="whole"),
    turn=70,
    auto=Auto(),
)
def dls(problem: Problem, monitor: Monitor) -> None:
    """Place the pair of highest dynamic level: static level - start + (median duration - duration on the device)."""
    from hetsched.heuristics.list_scheduling import dynamic_kernels

    median = _median_durations(problem.whole_durations)
    _by_choice(problem, monitor, dynamic_kernels.DLS, static_level(problem, median)[:, None], median)


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
    growth=2,
    supports=Supports(inputs="whole"),
    turn=80,
    auto=Auto(),
)
def bil(problem: Problem, monitor: Monitor) -> None:
    """Place the ready task of largest k-th smallest basic imaginary makespan on the device of least revised one.

    k is the number of ready tasks, or of devices if there are fewer of these. The revised makespan adds the task's duration,
    times (ready tasks / devices - 1), if there are more ready tasks than devices.
    """
    from hetsched.analysis import ranking_kernels
    from hetsched.heuristics.list_scheduling import dynamic_kernels

    level = ranking_kernels.imaginary_levels(problem.arrays, problem.graph.topological_order, problem.whole_durations)
    _by_choice(problem, monitor, dynamic_kernels.BIL, level)


@method(
    "min-min",
    summary="the ready task that can finish first, where it does",
    source="Ibarra and Kim 1977",
    kind=Kind.CONSTRUCTIVE,
    supports=Supports(inputs="whole"),
    turn=150,
    auto=Auto(),
)
def min_min(problem: Problem, monitor: Monitor) -> None:
    """Place the ready task of least minimum completion time."""
    from hetsched.heuristics.list_scheduling import dynamic_kernels

    _by_choice(problem, monitor, dynamic_kernels.MIN_MIN)


@method(
    "max-min",
    summary="the ready task that finishes last at best, where it finishes first",
    source="Ibarra and Kim 1977",
    kind=Kind.CONSTRUCTIVE,
    supports=Supports(inputs="whole"),
    turn=160,
    auto=Auto(),
)
def max_min(problem: Problem, monitor: Monitor) -> None:
    """Place the ready task of largest minimum completion time."""
    from hetsched.heuristics.list_scheduling import dynamic_kernels

    _by_choice(problem, monitor, dynamic_kernels.MAX_MIN)


@method(
    "sufferage",
    summary="the ready task that would suffer most from its second-best device",
    source="Maheswaran et al. 1999",
    kind=Kind.CONSTRUCTIVE,
    supports=Supports(inputs="whole"),
    turn=170,
    auto=Auto(),
)
def sufferage(problem: Problem, monitor: Monitor) -> None:
    """Place the ready task of largest difference between its second-least and least completion times."""
    from hetsched.heuristics.list_scheduling import dynamic_kernels

    _by_choice(problem, monitor, dynamic_kernels.SUFFERAGE)
