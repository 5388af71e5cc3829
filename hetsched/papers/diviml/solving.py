"""A problem solved by one of the paper's methods or of ours, or bounded, in one thread."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

import hetsched as hs
from hetsched.arrays import IntArray
from hetsched.bounds.modular import modular
from hetsched.experiments.runner import improvements, timed
from hetsched.papers.diviml.judging import unless_most
from hetsched.papers.items import Claim, Row
from hetsched.stopping import Deadline

SPLIT_SECONDS, MILP_SECONDS = 600.0, 7200.0
"""The paper's limits for several inputs; for one it names none."""
SAME = 1e-6
"""By what share makespans differ by rounding."""
DONE = 0.98
"""The share of its limit before which a method ended by itself."""
BASELINES = {1: ("met", "greedy", "heft", "ea", "sa"), 2: ("bmet", "bgreedy", "bheft", "ea", "sa")}
"""The paper's heuristics, for one input and for several."""
MILP = ("milp", "cpsat")
"""The paper's MILP of the whole, solved by SCIP and by CP-SAT."""
SPLIT, WINDOWS, RECURSION, BOUND = "milp-split", "split", "recursion", "bound"
BOUNDS = (RECURSION, BOUND)
"""The paper's lower bound as printed, for one input, and the best of ours."""
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    **{name: {"improve": False} for name in MILP},
    SPLIT: {"improve": False, "windows": False},
    WINDOWS: {"improve": False},
}
"""Options: the MILP without a search before it; `split` as the paper's dynamic program alone, and with the windows that are ours."""
OURS = (WINDOWS, "annealing", "auto")
HEAD = (
    *("best device", "MET", "Greedy", "HEFT", "(1+1) EA", "SA", "MILP", "MILP by CP-SAT", "MILP-SPLIT"),
    *(f"ours: {name}" for name in OURS),
)
"""Heads of the columns of `methods` but the bound; bMET, bGreedy and bHEFT for several inputs."""
METHODS = (
    "MILP is the paper's model with its rows tightened, solved by SCIP, and again by CP-SAT; up to 100 tasks of one input SCIP bounds and "
    "branches by rules of this package, not by linear programs. MILP-SPLIT is the dynamic program over "
    "modules alone (`split` with `windows=False, improve=False`). That windows of its schedule are solved again is ours: `split` with "
    "`improve=False`, which with several inputs begins with HEFT's schedule and takes longer ones in between, as annealing does. The "
    "MILPs begin with the best schedule of best-device, HEFT, PEFT, DLS and BIL, for several inputs of bHEFT too, without the search that "
    "follows by default (`improve=False`), MILP-SPLIT with that of best-device, HEFT and bHEFT. The paper names no solver, gives for "
    "throughput two hours to its MILP and 600 s to everything else, and for latency no limit: in its Table III the split ends within 15 s, "
    "the MILP within 98 minutes. The bound is `hs.bound`."
)
"""What is said once of the methods of all items."""


def limits(seconds: float, seeds: Sequence[int], but: str = "") -> str:
    """Return what is said of the limit and the seeds of an item, and of a method with another limit."""
    return f"Every method{but} has the same {seconds:g} s in one thread, on the instances of seeds {', '.join(map(str, seeds))}."


def baselines(inputs: int) -> tuple[str, ...]:
    """Return the paper's heuristics for a number of inputs."""
    return BASELINES[min(inputs, 2)]


def methods(inputs: int) -> tuple[str, ...]:
    """Return all methods for a number of inputs, the paper's, ours, and the bound."""
    return ("best-device", *baselines(inputs), *MILP, SPLIT, *OURS, BOUND)


def solved(problem: hs.Problem, case: Mapping[str, Any], options: Mapping[str, Any] | None = None, modules: IntArray | None = None) -> Row:
    """Solve a problem by ``case["method"]`` within ``case["limit"]`` seconds with ``case["seed"]``.

    `options` are more of `split`, `modules` are the tasks of each module for the paper's recursion.

    Returns
    -------
    dict
        ``makespan`` in seconds (of the bound: its value; None without a schedule), ``history`` of the seconds and makespans of
        improvements, ``proven``, ``wall_s``, ``cpu_s``.
    """
    method, limit = case["method"], case["limit"]
    prepare(method, problem.inputs)
    if method in BOUNDS:
        bound, spent = timed(lambda: _bound(problem, method, limit, modules))
        return {
            "makespan": bound.value,
            "history": [],
            "proven": False,
            **spent,
            "says": f"{bound.value * 1e3:.6g} ms by {bound.name}: {bound.evidence}",
        }
    given = {**OPTIONS.get(method, {}), **((options or {}) if _solver(method) == WINDOWS else {})}
    solution, spent = timed(lambda: hs.solve(problem, _solver(method), time_limit=limit, seed=case["seed"], threads=1, options=given))
    made = None if solution.schedule is None else solution.makespan
    says = f"{solution.status}, {solution.makespan * 1e3:.6g} ms, {spent['wall_s']:.1f} s"
    return {"makespan": made, "history": improvements(solution), "proven": solution.status == hs.Status.OPTIMAL, **spent, "says": says}


def _solver(method: str) -> str:
    """Return the name of the method of the package that a column shows."""
    return WINDOWS if method == SPLIT else method


def _bound(problem: hs.Problem, name: str, limit: float, modules: IntArray | None) -> hs.Bound:
    if name == RECURSION:
        return modular(problem, literal=True, modules=modules, deadline=Deadline.after(limit))
    return hs.bound(problem, time_limit=limit)


@functools.cache
def prepare(method: str, inputs: int) -> None:
    """Import modules and compile kernels before the first measurement."""
    from hetsched.papers.diviml.stacks import profiled
    from hetsched.portfolio.prepare import prepare_bounds, prepare_methods

    small = profiled(4, 2, inputs=min(inputs, 4))
    if method in BOUNDS:
        prepare_bounds()
    elif method in (*OPTIONS, "auto"):
        hs.solve(small, _solver(method), time_limit=2.0, threads=1)
    else:
        prepare_methods([method], small)


def after(row: Row, seconds: float) -> float:
    """Return the makespan that a solve had after some seconds; inf if none."""
    return min((value for time, value in row["history"] if time <= seconds), default=np.inf)


def chosen(rows: Sequence[Row], **fields: object) -> list[Row]:
    """Return the rows whose fields have these values."""
    return [row for row in rows if all(row[name] == value for name, value in fields.items())]


def by(rows: Sequence[Row], key: Callable[[Row], Any]) -> dict[Any, dict[str, Row]]:
    """Return the rows of each instance, which `key` identifies, by method."""
    grouped: dict[Any, dict[str, Row]] = {}
    for row in rows:
        grouped.setdefault(key(row), {})[row["method"]] = row
    return grouped


def least(rows: Mapping[str, Row], names: Sequence[str]) -> float:
    """Return the least makespan of some methods on one instance; inf if none made a schedule."""
    return min((rows[name]["makespan"] for name in names if name in rows and rows[name]["makespan"] is not None), default=np.inf)


def best(rows: Mapping[str, Row]) -> float:
    """Return the least makespan of all methods on one instance."""
    return least(rows, [name for name in rows if name not in BOUNDS])


def against_milp(claim: Claim, stacks: Iterable[Mapping[str, Row]]) -> Claim:
    """Return a claim on a comparison with the MILP of the whole, which cannot be seen where no solver improves its start."""
    solves = [[stack[name] for name in MILP if name in stack] for stack in stacks]
    known = [rows for rows in solves if rows]
    starts = sum(all(len(row["history"]) <= 1 and not row["proven"] for row in rows) for rows in known)
    return unless_most(claim, starts, len(known), "instances no solver of the MILP improves the list schedule that it begins with")


def finished(row: Row) -> bool:
    """Return whether a method ended before its limit."""
    return bool(row["proven"] or row["wall_s"] < DONE * row["limit"])


def against_split(claim: Claim, stacks: Iterable[Mapping[str, Row]]) -> Claim:
    """Return a claim on the paper's split, which cannot be seen where a limit that is not the paper's stops the dynamic program."""
    rows = [stack[SPLIT] for stack in stacks if SPLIT in stack]
    stopped = [row for row in rows if not finished(row) and (row["inputs"] == 1 or row["limit"] < SPLIT_SECONDS)]
    paper = "ends in the paper" if all(row["inputs"] == 1 for row in rows) else f"has {SPLIT_SECONDS:g} s in the paper"
    return unless_most(claim, len(stopped), len(rows), f"instances the limit stops the dynamic program, which {paper}")


def against_both(claim: Claim, stacks: Sequence[Mapping[str, Row]]) -> Claim:
    """Return a claim that compares the paper's split with the MILP of the whole, which cannot be seen where either shows nothing."""
    return against_split(against_milp(claim, stacks), stacks)
