"""Moirai's formulation on a smaller graph, for graphs that are too large for a solver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hetsched.coarsening.coarse import Coarsening, components, contract, memory_share, settled
from hetsched.coarsening.matching import hierarchy
from hetsched.compiled import NotCompiled, kernels_in_time
from hetsched.errors import InvalidProblem, OutOfTime
from hetsched.heuristics.placement.offers import carried_back
from hetsched.models.formulation import quick
from hetsched.problem.problem import Problem
from hetsched.search import Kind, Monitor, select

SHARE = 0.5
"""Share of the time for the formulation if a search follows."""
MEMORY = 0.25
"""The most static memory of a coarse task, as a share of the smallest device's."""


def solve_coarse(problem: Problem, monitor: Monitor, tasks: int, options: Mapping[str, Any], *, improve: bool) -> None:
    """Run list schedulers, solve the formulation of a graph of about `tasks` tasks by ``moirai``, and offer its schedule, carried back."""
    start = quick(problem, monitor.deadline)
    if start.schedule is not None:
        with monitor.as_source(start.method):
            monitor.offer(start.schedule.decision)
    if monitor.should_stop:
        return
    try:
        with kernels_in_time(monitor.time_left):
            coarsening = fewer(problem, tasks)
    except NotCompiled:
        raise OutOfTime("there was no time to compile the kernels of coarsening; `hetsched prepare` does it once for all") from None
    limit = monitor.time_limit(SHARE if improve else 1.0)
    solution = monitor.subsolve(coarsening.coarse, "moirai", time_limit=limit, options=options)
    if solution.schedule is None:
        monitor.note(f"the graph of {coarsening.coarse.n_tasks} tasks has no schedule: {'; '.join(solution.messages) or solution.stopped}")
    else:
        best = min(map(monitor.offer, carried_back(coarsening, solution.schedule.decision)))
        monitor.note(
            f"the graph of {coarsening.coarse.n_tasks} tasks takes {solution.makespan:.6g} s by {solution.method!r}, {solution.status}; "
            f"carried back {best:.6g} s"
        )
    if improve and not monitor.should_stop:
        monitor.run(select(kind=Kind.SEARCH, objective=monitor.objective, auto=True)[0].name)


def fewer(problem: Problem, tasks: int) -> Coarsening:
    """Return a coarsening that merges chains and, while more than `tasks` tasks are left, tasks along heavy edges.

    A chain is a path of edges that are the only one from their source and the only one to their target: its tasks could run at the
    same time as others, but never as one another. Heavy edges merge tasks that could.
    """
    if problem.n_tasks <= tasks:
        return Coarsening.through(problem, ())
    graph = problem.graph
    alone = (np.diff(graph.succ_ptr)[graph.source] == 1) & (np.diff(graph.pred_ptr)[graph.target] == 1)
    chain = components(graph.source[alone], graph.target[alone], problem.n_tasks, "weak")
    try:
        chains = contract(problem, settled(problem, chain, memory_share(problem, MEMORY)))
        return chains.then(Coarsening.through(chains.coarse, hierarchy(chains.coarse, tasks=tasks, memory=MEMORY)))
    except InvalidProblem as refusal:  # merged tasks without a path between them
        raise InvalidProblem(f"the graph cannot be made smaller: {refusal}; leave tasks out") from None
