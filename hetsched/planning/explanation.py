"""What limits a plan, and what more memory, faster links and other speeds would change: each answer solves changed problems again."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from hetsched.arguments import checked, number
from hetsched.errors import OutOfTime, UnsupportedFeature
from hetsched.planning.allowance import Allowance, OutOfWork
from hetsched.planning.planner import ModelPlan
from hetsched.planning.sensitivity import STEPS, Best, MemoryStep
from hetsched.stopping import NEVER, Deadline

T = TypeVar("T")
NOTHING = Best(math.inf, None)
MORE = 1e9
"""Bytes of memory that are added to a device."""
MOST_WORK = 1e8
"""Steps of dynamic programs that an explanation may take, about a second: what takes more is left out unless it is asked for."""
WITHOUT = 3
"""About how many times as long a solve for the throughput takes without a good placement that is known."""
MEMORY = 1.5
"""What more memory gives may take as many times more."""


MEMORY_CHANGE, LINK_CHANGE = "more memory", "faster links"
"""What a solve each can tell, so that it is found by local search where too many devices differ for exact search."""


@dataclass(frozen=True)
class DeviceLimit:
    """What a device of a plan, one of those that may change places, limits.

    Attributes
    ----------
    device : str
    with_more : Best
        The best value and placement with a gigabyte more; inf and None if that is not known.
    step_bytes : float
        The least bytes more with which the value falls; inf if none do, nan if that is not known.
    step : Best
        The best value and placement then.
    factors : (float, float)
        Factors of the device's times between which the plan stays the best, from 1/16 to 16; nan unless the regime is latency and no
        chunks of a prompt overlap.
    """

    device: str
    with_more: Best = NOTHING
    step_bytes: float = math.nan
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
        Steps of the dynamic programs that it may take, of about 10 ns, and `MEMORY` times as many more for the memory of devices;
        `left_out` names what would take more. math.inf: all. Where too many devices differ for exact search, what faster links and more
        memory give is found by local search, and nothing else is answered.
    deadline : Deadline, optional
        When it ends; `left_out` names what was not computed before.
    """
    plan = plan.within(deadline)
    allowance = plan.question.allowance
    budget = _Budget(allowance, plan.question.work_of(plan.problems))
    context = budget.answer("the most context", 0, plan.most_context)
    sequences = budget.answer("the most sequences", 0, plan.most_sequences)
    bits = budget.answer("the most bits", 0, plan.most_bits)
    if plan.placement is None or plan.regime == "fit":
        return Explanation(context, sequences, bits, left_out=tuple(budget.left_out), out_of_time=budget.out_of_time)
    problem, groups = plan.problem, int(plan.problem.groups.max()) + 1
    own = [*(stage.device for stage in plan.placement.stages), *(holder for _, holder in plan.placement.offloaded)]
    of_group = {problem.groups[k]: problem.devices[k] for k in reversed(own)}
    used = sorted(of_group.values(), key=problem.devices.index)
    allowance.left = most_work
    without_hops = budget.answer(LINK_CHANGE, 1, plan.without_hops)
    allowance.left += 0.0 if budget.out_of_time else MEMORY * most_work
    unchanged = DeviceLimit("", Best(plan.value, plan.placement), math.inf)
    enough = _without_need(plan, used, budget)
    limits = [replace(unchanged, device=name) if name in enough else _memory_limit(plan, name, budget) for name in used]
    allowance.left = min(allowance.left, most_work)
    bare = 1 if plan.regime == "latency" else WITHOUT  # the placement is none of the problems that are solved
    second = budget.answer("the next best order of devices", bare * (len(plan.placement) + 1), plan.second_best)
    regret = budget.answer("wrong times", 2 * groups, plan.regret)
    if plan.regime == "latency" and not any(one.overlapped_seconds.any() for one in plan.problems):
        factors = budget.answer(
            "the times of a device alone", len(used) * 2 * STEPS, lambda: {name: plan.break_even(name) for name in used}
        )
        limits = [replace(limit, factors=(factors or {}).get(limit.device, limit.factors)) for limit in limits]
    return Explanation(
        context,
        sequences,
        bits,
        tuple(limits),
        math.nan if without_hops is None else without_hops.value,
        second or NOTHING,
        math.nan if regret is None else regret,
        tuple(budget.left_out),
        budget.out_of_time,
    )


def _without_need(plan: ModelPlan, names: list[str], budget: _Budget) -> list[str]:
    """Return devices with room of which no memory, of all of them together and so of none alone, changes anything.

    None are returned where it is not so, or where the work for each device alone would not be left.
    """
    names = [name for name in names if name in plan._with_room()]
    enough = (2 * len(names) + 1) * budget.each <= budget.allowance.left
    return names if len(names) > 1 and enough and budget.answer(MEMORY_CHANGE, 1, lambda: plan._needs_no_memory(names)) else []


def _memory_limit(plan: ModelPlan, name: str, budget: _Budget) -> DeviceLimit:
    """Return what more memory of a device gives."""
    bare = float(plan.problem.memory_bytes[plan.problem.devices.index(name)])
    more = budget.answer(MEMORY_CHANGE, 1, lambda: plan.with_memory(name, MORE))
    if more is None:
        budget.leave_out("the next step of memory")
        return DeviceLimit(name)
    nothing = MemoryStep(math.inf, NOTHING)
    step = budget.answer("the next step of memory", 1, lambda: plan._next_memory_step(name, MemoryStep(bare + MORE, more)) or nothing)
    return DeviceLimit(name, more) if step is None else DeviceLimit(name, more, step.memory_bytes - bare, step.best)


class _Budget:
    """Answers within an allowance, of which each solve takes about as much; those that it does not suffice for are noted."""

    def __init__(self, allowance: Allowance, each: float) -> None:
        self.allowance, self.each = allowance, each
        self.left_out: list[str] = []
        self.out_of_time = False

    def answer(self, what: str, solves: int, function: Callable[[], T]) -> T | None:
        """Return the result of a function that takes at least so many solves; None, which is noted, if work or time do not suffice."""
        if solves * self.each <= self.allowance.left:
            try:
                return function()
            except OutOfWork:
                pass
            except OutOfTime:
                self.out_of_time, self.allowance.left = True, -1.0
            except UnsupportedFeature:  # too many different devices for exact search
                pass
        self.leave_out(what)
        return None

    def leave_out(self, what: str) -> None:
        """Note that something is not answered."""
        if what not in self.left_out:
            self.left_out.append(what)
