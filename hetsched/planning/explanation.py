"""What limits a plan, and what more memory, faster links and other speeds would change: each answer solves changed problems again."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from hetsched.arguments import checked, number
from hetsched.chain.problem import ChainProblem
from hetsched.errors import OutOfTime
from hetsched.planning.planner import ModelPlan
from hetsched.planning.sensitivity import STEPS, Best
from hetsched.planning.tables import Tables
from hetsched.stopping import NEVER, Deadline

T = TypeVar("T")
NOTHING = Best(math.inf, None)
CAPS = 10
"""About how many caps on overlapped times are tried."""
MORE = 1e9
"""Bytes of memory that are added to a device."""
SEARCH = 1e6
"""Steps of the search for offloaded items that do not depend on their number."""
MOST_WORK = 1e8
"""Steps of dynamic programs that an explanation may take, about a second: what takes more is left out unless it is asked for."""
PROBLEM, LEVEL = 2e5, 1e4
"""Steps that each problem takes beside those of the states, and each group on each level of them."""


@dataclass(frozen=True)
class DeviceLimit:
    """What a device of a plan, one of those that may change places, limits.

    Attributes
    ----------
    device : str
    with_more : Best
        The best value and placement with a gigabyte more.
    step_bytes : float
        The least bytes more with which the value falls; inf if none do.
    step : Best
        The best value and placement then.
    factors : (float, float)
        Factors of the device's times between which the plan stays the best, from 1/16 to 16; nan unless the regime is latency and no
        chunks of a prompt overlap.
    """

    device: str
    with_more: Best
    step_bytes: float = math.inf
    step: Best = NOTHING
    factors: tuple[float, float] = (math.nan, math.nan)


@dataclass(frozen=True)
class Explanation:
    """What a plan depends on.

    Attributes
    ----------
    most_context, most_sequences : int or None
        The most tokens of a sequence, and the most sequences, with which any placement fits; 0 if none does, None if the time ended before.
    most_bits : float or None
        The most bits per parameter with which any placement fits, all weights scaled alike; 0 if none does, None if the time ended before.
    devices : tuple of DeviceLimit
        Of the devices with a stage, or that hold weights of others.
    without_hops : float
        The best value if links took no time; nan without a placement.
    second_best : Best
        The best placement with another order of devices.
    regret : float
        By which share of the best value the plan is worse at most, if all times of one device are off by a fifth; nan without one.
    left_out : tuple of str
        What would take long, and was not asked for, or for which the time did not suffice.
    out_of_time : bool
        Whether the time did not suffice.
    """

    most_context: int | None
    most_sequences: int | None
    most_bits: float | None
    devices: tuple[DeviceLimit, ...] = ()
    without_hops: float = math.nan
    second_best: Best = NOTHING
    regret: float = math.nan
    left_out: tuple[str, ...] = ()
    out_of_time: bool = False


@checked(most_work=number(0))
def explain(plan: ModelPlan, *, most_work: float = MOST_WORK, deadline: Deadline = NEVER) -> Explanation:
    """Return what a plan depends on.

    Parameters
    ----------
    plan : ModelPlan
    most_work : float
        Steps of the dynamic programs that it may take, of about 10 ns; `left_out` names what would take more. math.inf: all.
    deadline : Deadline, optional
        When it ends; `left_out` names what was not computed before.
    """
    plan = plan.within(deadline)
    budget = _Budget(solve_work(plan), most_work)
    context = budget.answer("the most context", 0, plan.most_context)
    sequences = budget.answer("the most sequences", 0, plan.most_sequences)
    bits = budget.answer("the most bits", 0, plan.most_bits)
    if plan.placement is None or plan.regime == "fit":
        return Explanation(context, sequences, bits, left_out=tuple(budget.left_out), out_of_time=budget.left < 0)
    problem, groups = plan.problem, int(plan.problem.groups.max()) + 1
    own = [*(stage.device for stage in plan.placement.stages), *(holder for _, holder in plan.placement.offloaded)]
    of_group = {problem.groups[k]: problem.devices[k] for k in reversed(own)}
    used = sorted(of_group.values(), key=problem.devices.index)

    def of_each(function: Callable[[str], T]) -> Callable[[], dict[str, T]]:
        return lambda: {name: function(name) for name in used}

    without_hops = budget.answer("faster links", 1, plan.without_hops)
    second = budget.answer("the next best order of devices", len(plan.placement) + 1, plan.second_best)
    regret = budget.answer("wrong times", 2 * groups, plan.regret)
    more = budget.answer("more memory", len(used), of_each(lambda name: plan.with_memory(name, MORE))) or {}
    amounts = problem.n_items**2 if plan.question.offloads is None else plan.card.total_bytes
    bisections = math.ceil(math.log2(amounts)) + 1
    steps = budget.answer("the next step of memory", len(used) * bisections, of_each(plan.next_memory_step)) or {}
    factors = None
    if plan.regime == "latency" and not any(one.overlapped_seconds.any() for one in plan.problems):
        factors = budget.answer("the times of a device alone", len(used) * 2 * STEPS, of_each(plan.break_even))
    limits = []
    for name in used:
        step, bare = steps.get(name), float(problem.memory_bytes[problem.devices.index(name)])
        limits.append(
            DeviceLimit(
                name,
                more.get(name, NOTHING),
                math.inf if step is None else step.memory_bytes - bare,
                NOTHING if step is None else step.best,
                (factors or {}).get(name, (math.nan, math.nan)),
            )
        )
    return Explanation(
        context,
        sequences,
        bits,
        tuple(limits),
        math.nan if without_hops is None else without_hops.value,
        second or NOTHING,
        math.nan if regret is None else regret,
        tuple(budget.left_out),
        budget.left < 0,
    )


class _Budget:
    """The work that is left, where each solve takes as much."""

    def __init__(self, each: float, left: float) -> None:
        self.each, self.left = each, left
        self.left_out: list[str] = []

    def answer(self, what: str, solves: int, function: Callable[[], T]) -> T | None:
        """Return the result of a function that takes a number of solves; None, which is noted, if work or time do not suffice."""
        if solves * self.each <= self.left:
            try:
                result = function()
            except OutOfTime:
                self.left = -1.0
            else:
                self.left -= solves * self.each
                return result
        self.left_out.append(what)
        return None


def solve_work(plan: ModelPlan) -> float:
    """Return about how many steps a solve takes: of the dynamic program, for several caps where times overlap, and of its problems."""
    tables = Tables(plan.problems[0])
    states = (0.6 * tables.n_states * plan.problem.n_items + LEVEL * (plan.problem.n_devices + 1)) * len(tables.size)
    solves = CAPS if plan.problems[-1].overlapped_seconds.any() else 1 if plan.regime == "latency" else 2
    return PROBLEM * len(plan.problems) + states * solves + sum(map(_search_work, plan.problems))


def _search_work(problem: ChainProblem) -> float:
    if problem.offloading is None:
        return 0.0
    from hetsched.planning.offloading import work  # with kernels

    return SEARCH + work(problem)
