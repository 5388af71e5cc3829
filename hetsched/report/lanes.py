"""Stages on one device as a schedule on lanes, which every picture of schedules can show."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from hetsched.arguments import checked
from hetsched.errors import InvalidSchedule
from hetsched.problem.cluster import Cluster
from hetsched.problem.graph import TaskGraph
from hetsched.problem.problem import Problem
from hetsched.schedule.decision import Decision
from hetsched.schedule.schedule import Schedule
from hetsched.schedule.simulate import simulate
from hetsched.schedule.stages import StageSchedule
from hetsched.verification.stages import verify_stages


@checked
def lanes(graph: TaskGraph, schedule: StageSchedule) -> tuple[Problem, Schedule]:
    """Return a problem and a schedule of it that represent a schedule of stages, for every picture of this module.

    Each group of a stage has a lane for the duration of the stage, and its tasks share that time equally, for their own
    durations are not known. A merged stage has one lane. Edges have no bytes, and each stage starts at the end of the one
    before.

    Parameters
    ----------
    graph : TaskGraph
    schedule : StageSchedule

    Raises
    ------
    InvalidSchedule
        The schedule is not valid for the graph.
    """
    violations = verify_stages(graph, schedule)
    if violations:
        raise InvalidSchedule(f"the stages cannot be drawn: {violations[0].message}")
    stages = [schedule.groups(s) for s in range(len(schedule))]
    for s, strategy in enumerate(schedule.stages.strategy.tolist()):
        if strategy == "merge":
            stages[s] = [tuple(name for group in stages[s] for name in group)]
    seconds, lane, order = np.zeros(graph.n_tasks), np.zeros(graph.n_tasks, np.int64), []
    for groups, latency in zip(stages, schedule.stages.latency.tolist(), strict=True):
        for k, group in enumerate(groups):
            own = [graph.index[name] for name in group]
            seconds[own], lane[own] = latency / len(own), k
            order += own
    barriers = [(a[-1], b[0]) for before, after in pairwise(stages) for a in before for b in after]
    edges = {tuple(edge) for edge in graph.edges.tolist()} | {(graph.index[a], graph.index[b]) for a, b in barriers}
    cluster = Cluster([f"lane {k + 1}" for k in range(max(map(len, stages), default=1))], bandwidth=1.0)
    drawn = TaskGraph(graph.names, np.array(sorted(edges), np.int64).reshape(-1, 2), op=graph.op)
    problem = Problem(drawn, cluster, durations=np.repeat(seconds[:, None], cluster.n_devices, axis=1))
    return problem, simulate(problem, Decision.whole(problem, lane, order))
