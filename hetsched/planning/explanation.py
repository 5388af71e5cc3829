"""What limits a plan, and what more memory, faster links and other speeds would change: each answer solves changed problems again."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hetsched.arguments import checked, number
from hetsched.planning.offloading import work
from hetsched.planning.planner import ModelPlan
from hetsched.planning.sensitivity import STEPS, Best
from hetsched.planning.tables import Tables

NOTHING = Best(math.inf, None)
CAPS = 10
"""About how many caps on overlapped times are tried."""
MORE = 1e9
"""Bytes of memory that are added to a device."""
SEARCH = 1e6
"""Steps of the search for offloaded items that do not depend on their number."""
MOST_WORK = 3e7
"""Steps of dynamic programs that an explanation may take, about a third of a second: what takes more is left out unless it is asked for."""


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
    most_context, most_sequences : int
        The most tokens of a sequence, and the most sequences, with which any placement fits; 0 if none does.
    most_bits : float
        The most bits per parameter with which any placement fits, all weights scaled alike; 0 if none does.
    devices : tuple of DeviceLimit
        Of the devices with a stage, or that hold weights of others.
    without_hops : float
        The best value if links took no time; nan without a placement.
    second_best : Best
        The best placement with another order of devices.
    regret : float
        By which share of the best value the plan is worse at most, if all times of one device are off by a fifth; nan without one.
    left_out : tuple of str
        What would take long, and was not asked for.
    """

    most_context: int
    most_sequences: int
    most_bits: float
    devices: tuple[DeviceLimit, ...] = ()
    without_hops: float = math.nan
    second_best: Best = NOTHING
    regret: float = math.nan
    left_out: tuple[str, ...] = ()


@checked(most_work=number(0))
def explain(plan: ModelPlan, *, most_work: float = MOST_WORK) -> Explanation:
    """Return what a plan depends on.

    Parameters
    ----------
    plan : ModelPlan
    most_work : float
        Steps of the dynamic programs that it may take, of about 10 ns; `left_out` names what would take more. math.inf: all.
    """
    context, sequences, bits = plan.most_context(), plan.most_sequences(), plan.most_bits()
    if plan.placement is None or plan.regime == "fit":
        return Explanation(context, sequences, bits)
    budget = _Budget(solve_work(plan), most_work)
    problem = plan.problem
    own = [*(stage.device for stage in plan.placement.stages), *(holder for _, holder in plan.placement.offloaded)]
    of_group = {problem.groups[k]: problem.devices[k] for k in reversed(own)}
    used = sorted(of_group.values(), key=problem.devices.index)
    without_hops = plan.without_hops().value if budget.allows("faster links", 1) else math.nan
    second = plan.second_best() if budget.allows("the next best order of devices", len(plan.placement) + 1) else NOTHING
    regret = plan.regret() if budget.allows("wrong times", 2 * (int(problem.groups.max()) + 1)) else math.nan
    more = {name: plan.with_memory(name, MORE) for name in used} if budget.allows("more memory", len(used)) else {}
    amounts = problem.n_items**2 if plan.question.offloads is None else plan.card.total_bytes
    bisections = math.ceil(math.log2(amounts)) + 1
    steps = {name: plan.next_memory_step(name) for name in used} if budget.allows("the next step of memory", len(used) * bisections) else {}
    factors = {}
    overlap = any(one.overlapped_seconds.any() for one in plan.problems)
    if plan.regime == "latency" and not overlap and budget.allows("the times of a device alone", len(used) * 2 * STEPS):
        factors = {name: plan.break_even(name) for name in used}
    limits = []
    for name in used:
        step, bare = steps.get(name), float(problem.memory_bytes[problem.devices.index(name)])
        limits.append(
            DeviceLimit(
                name,
                more.get(name, NOTHING),
                math.inf if step is None else step.memory_bytes - bare,
                NOTHING if step is None else step.best,
                factors.get(name, (math.nan, math.nan)),
            )
        )
    return Explanation(context, sequences, bits, tuple(limits), without_hops, second, regret, tuple(budget.left_out))


class _Budget:
    """The work that is left, where each solve takes as much."""

    def __init__(self, each: float, left: float) -> None:
        self.each, self.left = each, left
        self.left_out: list[str] = []

    def allows(self, what: str, solves: int) -> bool:
        """Return whether a number of solves is within the budget, and take it; what is not is noted."""
        if solves * self.each > self.left:
            self.left_out.append(what)
            return False
        self.left -= solves * self.each
        return True


def solve_work(plan: ModelPlan) -> float:
    """Return about how many steps a solve takes: those of the dynamic program, for each number of stages and cap of a throughput."""
    tables = Tables(plan.problems[0])
    searches = sum(SEARCH + work(problem) for problem in plan.problems if problem.offloading is not None)
    steps = float(tables.n_states * len(tables.size) ** 2 * plan.problem.n_items)
    if plan.problems[-1].overlapped_seconds.any():
        return searches + steps * CAPS
    steps += searches
    return steps if plan.regime == "latency" else steps * len(plan.problems) * math.log2(plan.problem.n_items**2)
