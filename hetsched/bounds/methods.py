"""Lower bounds as methods, so that `auto` and others can run them with a share of the budget."""

from __future__ import annotations

import math

from hetsched.analysis.packing import LARGEST
from hetsched.analysis.symmetry import exchanges
from hetsched.bounds import best, branch_and_bound
from hetsched.bounds.bin_completion import alike
from hetsched.bounds.bin_completion import bin_completion as pack
from hetsched.problem.problem import Problem
from hetsched.search import ALL, Auto, Kind, Monitor, Supports, method

FEW = 60
"""The most tasks for which `auto` runs branch and bound."""


@method(
    "bounds",
    summary="every lower bound from cheap to expensive; finds no schedule",
    source="those of hetsched.bounds",
    kind=Kind.BOUND,
    objectives=ALL,
    turn=410,
    auto=Auto(),
)
def bounds(problem: Problem, monitor: Monitor, *, quick: bool = False) -> None:
    """Raise the bound by all bounds without solvers, one after another, until the time limit.

    Parameters
    ----------
    quick : bool
        Whether to use only bounds that take milliseconds, and `destructive`.
    """
    for proof in best.every(problem, objective=monitor.objective, deadline=monitor.deadline, expensive=not quick, models=False):
        monitor.raise_bound(proof)
        if monitor.should_stop:
            return


def _worth_branching(problem: Problem) -> bool:
    """Return whether `auto` tries branch and bound: on few tasks, where devices can be exchanged: solvers see that least."""
    return problem.n_tasks <= FEW and bool(exchanges(problem))


@method(
    "branch",
    summary="branch and bound over devices and orders; proves optima of some dozen tasks",
    source="P. Brucker, B. Jurisch, B. Sievers 1994; R. Klein, A. Scholl 1999",
    kind=Kind.EXACT,
    supports=Supports(inputs="one", besides=f"more than {branch_and_bound.LARGEST} tasks"),
    turn=500,
    auto=Auto(when=_worth_branching),
)
def branch(
    problem: Problem, monitor: Monitor, *, upper: float | None = None, nodes: int = branch_and_bound.NODES[-1], search: bool = True
) -> None:
    """Shorten the best schedule and raise the bound until they meet, or for about ten seconds.

    A node of the search has the possible devices of tasks and their earliest starts if the makespan is
    less than some horizon, by heads, tails, loads, and pairs of tasks with only one possible order.
    Branches are the devices of a task, then the orders of two tasks. Transfers are independent here: if
    they contend, the bound is that without contention.

    Parameters
    ----------
    upper : float, optional
        Seconds; only shorter schedules are searched for.
    nodes : int
        The most nodes of one refutation; with 1 there are no branches, and no search for schedules.
    search : bool
        Whether list schedulers and a short search find schedules first; otherwise it begins with that of the start.
    """
    branch_and_bound.branch(problem, monitor, math.inf if upper is None else upper, nodes, search)


@method(
    "bin-completion",
    summary="the most even load of identical devices, exactly; proves optima of independent tasks",
    source="R. E. Korf 2002; E. L. Schreiber, R. E. Korf, M. D. Moffitt 2018",
    kind=Kind.EXACT,
    supports=Supports(inputs="one", besides=f"devices that are not alike, more than {LARGEST} tasks"),
    turn=405,
    auto=Auto(when=alike),
)
def bin_completion(problem: Problem, monitor: Monitor) -> None:
    """Pack tasks into bins, one for each device, as evenly as that can be done.

    Every task takes the same time on all devices. All sets of tasks that start after one time and end before another are packed, those
    first from which most can be proven. For independent tasks the packing of all is an optimal schedule; with precedence the bound is that
    of `head_tail_load`, but for whole tasks, and schedules are better if most of the work is between one fork and its join.
    """
    pack(problem, monitor)
