"""Stages on one device as a schedule on lanes, so that all pictures of schedules show them too."""

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
    """Return a problem and its schedule that look as a schedule of stages runs: what every picture of this module takes.

    The groups of a stage lie on lanes, each as long as the stage; the tasks of a group share that time equally, for what each
    takes of it nobody says. A merged stage is on one lane. Nothing is moved: edges have no bytes, and each stage waits for
    the one before.

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
