"""Bounds by the model layer: the linear relaxation of a formulation, and the dual bound of a solver within a time limit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hetsched.analysis.levels import Levels
from hetsched.analysis.model_size import assignments, columns
from hetsched.analysis.modules import falls_apart
from hetsched.arguments import checked
from hetsched.arrays import FloatArray
from hetsched.errors import OutOfTime, UnsupportedFeature
from hetsched.modeling.lowering import Matrix, linear
from hetsched.modeling.model import Model
from hetsched.models.formulation import SLACK, Formulation
from hetsched.models.methods import formulate
from hetsched.problem.cluster import Cluster, Device
from hetsched.problem.problem import Problem
from hetsched.search import Budget, Monitor
from hetsched.search.solution import NO_BOUND, Bound, Status
from hetsched.stopping import NEVER, Deadline


class Optimum(Bound):
    """A bound that equals the optimum."""


LARGEST = 1000
"""The most columns, without those for orders of tasks, of a model that is made for its bound."""


@checked
def small(problem: Problem) -> bool:
    """Return whether a formulation of the problem is small enough, bounds it, and is not better solved module by module.

    A formulation has one batch of a task on a device, so for several inputs and ``batching="free"`` there is none.
    """
    one_batch = problem.inputs == 1 or problem.batching == "once"
    size = columns(problem) if problem.inputs == 1 else assignments(problem)  # contention of several inputs may be omitted
    return one_batch and 0 < size <= LARGEST and not falls_apart(problem)


@checked
def split_modules(problem: Problem, *, levels: Levels | None = None, best: Bound = NO_BOUND, deadline: Deadline = NEVER) -> Bound:
    """Solve the modules of a problem in series, without what no formulation states.

    A schedule of the problem is one of what is solved, so what is proven of the latter bounds both. The bound is an `Optimum` if nothing
    was left out and the method proves its schedule optimal.
    """
    modelable = relax_to_modelable(problem)
    monitor = Monitor(modelable, Budget(deadline.limit), clock=deadline.clock)
    solution = monitor.run_alone("split")
    if modelable is problem and solution.status in (Status.OPTIMAL, Status.INFEASIBLE):
        return Optimum(solution.proof.value, solution.proof.name, solution.proof.evidence)
    return solution.proof


@checked
def linear_relaxation(problem: Problem, *, levels: Levels | None = None, best: Bound = NO_BOUND, deadline: Deadline = NEVER) -> Bound:
    """Return the least makespan if tasks may be in fractions on several devices, each before and after the other.

    Every schedule is a solution of the formulation's rows, and of their linear relaxation, with its makespan as objective. The linear
    program is solved by HiGHS; the value is that of its Lagrangian at the prices found, with rounding subtracted, so it does not rest on
    the solver's tolerance. Raises `OutOfTime` if the model cannot be made by the deadline.
    """
    return relax(formulate(relax_to_modelable(problem), symmetry="tasks", deadline=deadline), deadline)


@checked
def dual_bound(problem: Problem, *, levels: Levels | None = None, best: Bound = NO_BOUND, deadline: Deadline = NEVER) -> Bound:
    """Return what SCIP proves of a formulation by the deadline; raises `OutOfTime` if the model cannot be made by then.

    A schedule is a solution of the formulation (see `hetsched.models.formulation`) of the problem or of one that is no harder, and its
    makespan the objective, so a dual bound of the solver is a bound on the makespan as far as the solver is right.
    """
    formulation = formulate(relax_to_modelable(problem), symmetry="tasks", deadline=deadline)
    return formulation.solve("scip", time_limit=deadline.limit).proof


@checked
def relax_to_modelable(problem: Problem) -> Problem:
    """Return the problem without what no formulation states, peak memory, and without contention of several inputs in a large one.

    It is no harder.
    """
    if problem.inputs > 1 and problem.batching == "free":
        raise UnsupportedFeature("formulations have one batch of a task on a device; for batching='free' their bounds do not hold")
    if problem.memory == "peak":
        cluster = problem.cluster
        devices = [Device(device.name, kind=device.kind, node=device.node) for device in cluster.devices]
        roomy = Cluster(devices, bandwidth=cluster.bandwidth, latency=cluster.latency)
        problem = problem.replace(memory="static", cluster=roomy)
    if problem.inputs > 1 and problem.links.contended and columns(problem) > LARGEST:
        problem = problem.replace(communication="delay")
    return problem


@checked
def relax(formulation: Formulation, deadline: Deadline = NEVER) -> Bound:
    """Return the bound of the linear relaxation of a formulation of the problem, or of one that is no harder; 0 past the deadline."""
    name, evidence = "linear relaxation", f"prices of the rows of {formulation.model!r}"
    most = formulation.upper / (1 + SLACK)
    value = relaxed(formulation.model, deadline)[0] / formulation.second
    if value == math.inf:  # no fraction of a schedule is as short as the upper bound
        return Bound(most, name, f"{evidence}: nothing is shorter than a schedule known", trust="solver")
    return Bound(float(max(0.0, min(value, most))), name, evidence if value > -math.inf else "no time was left")


@checked
def relaxed(model: Model, deadline: Deadline = NEVER) -> tuple[float, FloatArray]:
    """Return a lower bound on the least objective of a model, and the solution of its linear relaxation by HiGHS.

    The bound is the Lagrangian at the prices found, with rounding subtracted; inf if the solver finds no solution possible, -inf if it
    was stopped. The solution is empty without one.
    """
    from scipy.optimize import linprog

    try:
        lowered = linear(model.program, deadline=deadline)
    except OutOfTime:
        return -math.inf, np.zeros(0)
    rows = lowered.rows(len(lowered.row_lower))
    above, below = np.isfinite(lowered.row_lower), np.isfinite(lowered.row_upper)
    program: Any = {"c": lowered.cost, "bounds": np.column_stack([lowered.program.lower, lowered.program.upper])}
    if above.any() or below.any():
        from scipy.sparse import vstack

        program["A_ub"] = vstack([rows[below], -rows[above]])
        program["b_ub"] = np.concatenate([lowered.row_upper[below], -lowered.row_lower[above]])
    solution = linprog(method="highs", options={} if (limit := deadline.limit) is None else {"time_limit": limit}, **program)
    if solution.status:
        return math.inf if solution.status == 2 else -math.inf, np.zeros(0)
    prices = np.zeros(len(lowered.row_lower))
    marginals = np.minimum(solution.ineqlin.marginals, 0.0) if "A_ub" in program else np.zeros(0)
    prices[below] += marginals[: below.sum()]
    prices[above] -= marginals[below.sum() :]
    return _lagrangian(lowered, rows, prices), np.asarray(solution.x)


def _lagrangian(lowered: Matrix, rows: Any, prices: FloatArray) -> float:
    """Return the least of cost and priced violations over the box of the columns; -inf where that has no least."""
    reduced = lowered.cost - rows.T @ prices
    size = np.abs(lowered.cost) + abs(rows).T @ np.abs(prices)
    error = np.finfo(float).eps * (np.diff(rows.tocsc().indptr) + 4.0) * size
    lower, upper = lowered.program.lower, lowered.program.upper
    with np.errstate(invalid="ignore"):
        at_lower, at_upper = (np.where(reduced == 0.0, 0.0, reduced * bound) for bound in (lower, upper))
    lowest = np.minimum(at_lower, at_upper)
    room = np.maximum(np.abs(lower), np.abs(upper))
    sides = np.where(prices > 0, lowered.row_lower, lowered.row_upper)
    paid = np.where(prices == 0.0, 0.0, prices * np.where(prices == 0.0, 0.0, sides))
    total = float(lowest.sum() + paid.sum()) + lowered.offset
    terms = float(np.abs(lowest).sum() + np.abs(paid).sum()) + abs(lowered.offset)
    margin = float((error * room).sum()) + 4 * np.finfo(float).eps * (len(lowest) + len(paid)) * terms
    value = total - margin
    return value if math.isfinite(value) else -math.inf
