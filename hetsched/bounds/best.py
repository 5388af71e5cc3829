"""All lower bounds, from cheap to expensive, and the best of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from hetsched.analysis.levels import Levels
from hetsched.analysis.modules import falls_apart
from hetsched.analysis.time_divisor import rounded_up, time_divisor
from hetsched.arguments import checked
from hetsched.bounds.branch_and_bound import few, orders
from hetsched.bounds.combinatorial import critical_path, head_tail_load, load, memory, quick_head_tail_load
from hetsched.bounds.destructive import destructive
from hetsched.bounds.in_series import in_large_modules, in_series
from hetsched.bounds.intervals import path_of_intervals
from hetsched.bounds.load_around import load_around
from hetsched.bounds.mean_input import batched, few_batches, mean_input, whole_batches
from hetsched.bounds.memory_path import path_within_memory, scarce
from hetsched.bounds.modular import modular
from hetsched.bounds.relaxation import Optimum, dual_bound, linear_relaxation, small, split_modules
from hetsched.bounds.set_partition import set_partitioning, streams
from hetsched.bounds.steady_state import largest_unit, load_per_input, priced_load
from hetsched.errors import OutOfTime
from hetsched.problem.problem import Problem
from hetsched.schedule.objectives import find_objective
from hetsched.search import ALL, LOADS, MAKESPAN, When, always
from hetsched.search.solution import NO_BOUND, Bound
from hetsched.stopping import NEVER, Deadline


class BoundFunction(Protocol):
    """A lower bound: a pure function whose docstring proves it, tested by `hetsched.testing.bounds.BoundSuite`.

    It returns a `Bound` on the makespan (or on the loads), by the deadline or soon after; `levels` are those of the
    problem, if the caller has them; `best` is the best bound so far, from which it may start.
    """

    __name__: str

    def __call__(self, problem: Problem, *, levels: Levels | None = None, best: Bound = NO_BOUND, deadline: Deadline = NEVER) -> Bound: ...


class Cost(IntEnum):
    """The cost class of a bound."""

    QUICK = 1
    """Milliseconds."""
    CHEAP = 2
    """A linear program."""
    EXPENSIVE = 3
    """Refutations of supposed makespans."""
    MODEL = 4
    """A solver, only under a time limit."""


@checked
@dataclass(frozen=True)
class Entry:
    """A bound in the list of all bounds."""

    bound: BoundFunction
    cost: Cost
    weight: float = 1.0
    """Relative share of the time left, among this and the later expensive bounds."""
    fits: When = always
    """Whether it is useful for a problem."""
    objectives: frozenset[str] = MAKESPAN


BOUNDS = (
    Entry(memory, Cost.QUICK, objectives=ALL),
    Entry(critical_path, Cost.QUICK),
    Entry(quick_head_tail_load, Cost.QUICK),
    Entry(path_within_memory, Cost.QUICK, fits=scarce),
    Entry(load, Cost.CHEAP),
    Entry(head_tail_load, Cost.CHEAP),
    Entry(load_around, Cost.EXPENSIVE),
    Entry(path_of_intervals, Cost.EXPENSIVE, weight=2, fits=lambda problem: not falls_apart(problem)),
    Entry(mean_input, Cost.EXPENSIVE, weight=3, fits=batched),
    Entry(split_modules, Cost.MODEL, weight=7, fits=falls_apart),
    Entry(in_series, Cost.EXPENSIVE, weight=14, fits=in_large_modules),
    Entry(modular, Cost.EXPENSIVE, weight=3),
    Entry(orders, Cost.EXPENSIVE, weight=0.5, fits=few),
    Entry(destructive, Cost.EXPENSIVE, weight=2),
    Entry(linear_relaxation, Cost.MODEL, fits=small),
    Entry(dual_bound, Cost.MODEL, weight=5, fits=small),
    Entry(whole_batches, Cost.MODEL, weight=5, fits=few_batches),
    Entry(largest_unit, Cost.QUICK, fits=lambda problem: problem.inputs == 1, objectives=LOADS),
    Entry(priced_load, Cost.QUICK, objectives=LOADS),
    Entry(load_per_input, Cost.CHEAP, objectives=LOADS),
    Entry(set_partitioning, Cost.EXPENSIVE, fits=streams, objectives=frozenset({"max-load"})),
)
"""All bounds, in the order in which they are computed."""


@checked
def quick(problem: Problem, objective: str = "makespan") -> Iterator[Bound]:
    """Yield the bounds that need neither search nor a linear program.

    If memory alone excludes every schedule, that proof (value inf) is the only one. 50,000 tasks on three
    devices take less than a second, a module of 32 tasks some milliseconds.
    """
    find_objective(objective)
    yield from _walk(problem, objective, [entry for entry in BOUNDS if entry.cost is Cost.QUICK], NEVER)


@checked
def every(
    problem: Problem, *, objective: str = "makespan", deadline: Deadline = NEVER, expensive: bool = True, models: bool = True
) -> Iterator[Bound]:
    """Yield all bounds of `BOUNDS` that fit the problem, from cheap to expensive.

    All except the first are omitted or shortened if time is too short; a proof that there is no
    schedule (value inf), or an optimum, is the last.

    Parameters
    ----------
    problem : Problem
    objective : "makespan", "period" or "max-load"
    deadline : Deadline
        The end.
    expensive : bool
        If False, only those of `quick`, and `destructive`.
    models : bool
        Whether to use a solver too, if there is a deadline and a model is small.
    """
    find_objective(objective)
    costs = {Cost.QUICK, Cost.CHEAP, Cost.EXPENSIVE} if expensive else {Cost.QUICK}
    if expensive and models and math.isfinite(deadline.end):
        costs.add(Cost.MODEL)
    chosen = [entry for entry in BOUNDS if entry.cost in costs or (entry.bound is destructive and not expensive)]
    yield from _walk(problem, objective, chosen, deadline)


def _walk(problem: Problem, objective: str, entries: list[Entry], deadline: Deadline) -> Iterator[Bound]:
    """Yield the bounds of the entries that fit the problem, each expensive one within its share of the time left."""
    levels, best = Levels(problem), NO_BOUND
    divisor = time_divisor(problem) if objective in MAKESPAN or problem.inputs == 1 else 0.0  # loads of one input are sums of times
    for entry, until in _timed(problem, [entry for entry in entries if objective in entry.objectives], deadline):
        try:
            proof = entry.bound(problem, levels=levels, best=best, deadline=until)
        except OutOfTime:
            continue
        if entry.bound is memory and not math.isinf(proof.value):
            continue
        last = isinstance(proof, Optimum) or math.isinf(proof.value)
        value = rounded_up(proof.value, divisor)
        more = f"; every time is a multiple of {divisor:g} s" if value > proof.value else ""
        proof = Bound(value, proof.name, proof.evidence + more, objective, proof.trust)
        best = proof if best is NO_BOUND or proof.value > best.value else best
        yield proof
        if last or deadline.over:
            return


def _timed(problem: Problem, entries: list[Entry], deadline: Deadline) -> Iterator[tuple[Entry, Deadline]]:
    """Yield the entries that fit the problem, each with its deadline."""
    yield from ((entry, deadline) for entry in entries if entry.cost < Cost.EXPENSIVE and entry.fits(problem))
    expensive = [entry for entry in entries if entry.cost >= Cost.EXPENSIVE and entry.fits(problem)]
    for number, entry in enumerate(expensive):
        yield entry, deadline.part(entry.weight / sum(other.weight for other in expensive[number:]))


@checked
def bound(problem: Problem, *, objective: str = "makespan", time_limit: float | None = None) -> Bound:
    """Return the best lower bound on the makespan, or on another objective.

    Parameters
    ----------
    problem : Problem
    objective : "makespan", "period" or "max-load"
    time_limit : float, optional
        Seconds of wall-clock time; see `every` for the order of the bounds.

    Returns
    -------
    Bound
        Its value is inf if no schedule exists; the evidence has the reason.
    """
    return max(every(problem, objective=objective, deadline=Deadline.after(time_limit)), key=lambda candidate: candidate.value)
