"""Bounds through the model layer: the linear relaxation of a formulation, and what a solver proves of it in the time given."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from hetsched.analysis.model_size import columns
from hetsched.arguments import checked
from hetsched.arrays import FloatArray
from hetsched.errors import OutOfTime, UnsupportedFeature
from hetsched.modeling.lowering import Matrix, linear
from hetsched.models.formulation import SLACK, Formulation
from hetsched.models.methods import formulate
from hetsched.problem.cluster import Cluster, Device
from hetsched.problem.problem import Problem
from hetsched.search import Budget, Monitor
from hetsched.solution import Bound, Solution
from hetsched.stopping import NEVER, Deadline

LARGEST = 1000
"""The most columns, before orders of tasks come in, of a model worth making for its bound."""


@checked
def fits(problem: Problem) -> bool:
    """Return whether a formulation of the problem, is small enough, and bounds it.

    A formulation has one batch of a task on a device, so for several inputs and ``batching="free"`` there is none.
    """
    one_batch = problem.inputs == 1 or problem.batching == "once"
    return one_batch and 0 < columns(problem) <= LARGEST


@checked
def every(problem: Problem, *, deadline: Deadline = NEVER) -> Iterator[Bound]:
    """Yield the linear relaxation, then the dual bound by SCIP.

    Parameters
    ----------
    problem : Problem
        One that `fits`.
    deadline : Deadline
        Kept to half a second; what cannot be done by then is left out.
    """
    with contextlib.suppress(OutOfTime):
        said = formulate(sayable(problem), symmetry="tasks", deadline=deadline)
        yield linear_relaxation(said, deadline=deadline)
        if not deadline.over:
            yield said.solve("scip", time_limit=deadline.limit).proof


@checked
def split(problem: Problem, *, deadline: Deadline = NEVER) -> Solution:
    """Solve the modules of a problem that falls apart; its proof is the optimum but for what joins modules."""
    from hetsched.bounds import methods  # noqa: F401  # it registers them

    return Monitor(sayable(problem), Budget(deadline.limit), clock=deadline.clock).run_alone("split")


@checked
def sayable(problem: Problem) -> Problem:
    """Return the problem without what no formulation can say: peak memory, contention of several inputs. It is no harder."""
    if problem.inputs > 1 and problem.batching == "free":
        raise UnsupportedFeature("formulations have one batch of a task on a device; for batching='free' their bounds do not hold")
    if problem.memory == "peak":
        cluster = problem.cluster
        devices = [Device(device.name, kind=device.kind, node=device.node) for device in cluster.devices]
        roomy = Cluster(devices, bandwidth=cluster.bandwidth, latency=cluster.latency)
        problem = problem.replace(memory="static", cluster=roomy)
    if problem.inputs > 1 and problem.links.contended:
        problem = problem.replace(communication="delay")
    return problem


@checked
def linear_relaxation(said: Formulation, *, deadline: Deadline = NEVER) -> Bound:
    """Return the least makespan if tasks may be in fractions on several devices, each before and after the other.

    The linear program is solved by HiGHS; the value is that of its Lagrangian at the prices found, with
    rounding subtracted, so it does not rest on the solver's tolerance.

    Parameters
    ----------
    said : Formulation
        Of the problem, or of one that is no harder.
    deadline : Deadline
        Past it the bound is 0.
    """
    from scipy.optimize import linprog

    name, evidence = "linear relaxation", f"prices of the rows of {said.model!r}"
    try:
        lowered = linear(said.model.program, deadline=deadline)
    except OutOfTime:
        return Bound(0.0, name, "no time was left")
    rows = lowered.rows(len(lowered.row_lower))
    above, below = np.isfinite(lowered.row_lower), np.isfinite(lowered.row_upper)
    program: Any = {"c": lowered.cost, "bounds": np.column_stack([lowered.program.lower, lowered.program.upper])}
    if above.any() or below.any():
        from scipy.sparse import vstack

        program["A_ub"] = vstack([rows[below], -rows[above]])
        program["b_ub"] = np.concatenate([lowered.row_upper[below], -lowered.row_lower[above]])
    found = linprog(method="highs", options={} if (limit := deadline.limit) is None else {"time_limit": limit}, **program)
    if found.status == 2:  # no fraction of a schedule is as short as the upper bound
        return Bound(said.upper / (1 + SLACK), name, f"{evidence}: nothing is shorter than a schedule known")
    if found.status != 0:
        return Bound(0.0, name, "no time was left")
    prices = np.zeros(len(lowered.row_lower))
    marginals = np.minimum(found.ineqlin.marginals, 0.0) if "A_ub" in program else np.zeros(0)
    prices[below] += marginals[: below.sum()]
    prices[above] -= marginals[below.sum() :]
    value = _lagrangian(lowered, rows, prices) / said.second
    return Bound(float(max(0.0, min(value, said.upper / (1 + SLACK)))), name, evidence)


def _lagrangian(lowered: Matrix, rows: Any, prices: FloatArray) -> float:
    """Return the least of cost and priced violations over the box of the columns; -inf where that has no least."""
    reduced = lowered.cost - rows.T @ prices
    size = np.abs(lowered.cost) + abs(rows).T @ np.abs(prices)
    error = np.finfo(float).eps * (np.diff(rows.tocsc().indptr) + 4.0) * size
    lower, upper = lowered.program.lower, lowered.program.upper
    with np.errstate(invalid="ignore"):
        at_lower, at_upper = (np.where(reduced == 0.0, 0.0, reduced * bound) for bound in (lower, upper))
    least = np.minimum(at_lower, at_upper)
    room = np.maximum(np.abs(lower), np.abs(upper))
    sides = np.where(prices > 0, lowered.row_lower, lowered.row_upper)
    paid = np.where(prices == 0.0, 0.0, prices * np.where(prices == 0.0, 0.0, sides))
    total = float(least.sum() + paid.sum()) + lowered.offset
    terms = float(np.abs(least).sum() + np.abs(paid).sum()) + abs(lowered.offset)
    margin = float((error * room).sum()) + 4 * np.finfo(float).eps * (len(least) + len(paid)) * terms
    value = total - margin
    return value if math.isfinite(value) else -math.inf
