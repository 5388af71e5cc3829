"""The independent check of stages on one device."""

from __future__ import annotations

import math

from hetsched.arguments import checked
from hetsched.errors import InvalidSchedule
from hetsched.problem.graph import TaskGraph, named, plural
from hetsched.schedule.stages import STRATEGIES, StageCost, StageSchedule
from hetsched.verification.facts import TOLERANCE
from hetsched.verification.verify import Violation

STAGE_RULES = {
    "coverage": "every task is in exactly one group, and no stage or group is empty (amount: tasks, or empty ones)",
    "ending": "no task reads a task of a later stage (amount: stages it comes too early)",
    "groups": "the groups of a stage are its connected components (amount: tasks in a wrong group)",
    "order": "a task comes after those of its group that it reads (amount: places too early)",
    "group-limit": "a stage has at most as many groups as allowed (amount: groups too many)",
    "size-limit": "a group has at most as many tasks as allowed (amount: tasks too many)",
    "strategy": "a stage is concurrent or merge (amount: 1)",
    "latency": "the latency of a stage is finite, not negative, and what the cost says (amount: seconds off, or inf)",
    "total": "the stated latency is the sum over the stages (amount: seconds off)",
}
"""The rules of `verify_stages`, in order, with the unit of ``Violation.amount``."""


@checked
def verify_stages(
    graph: TaskGraph, schedule: StageSchedule, *, groups: int | None = None, group_size: int | None = None, cost: StageCost | None = None
) -> list[Violation]:
    """Return every violation of the rules of stages; an empty list if the schedule is valid.

    It shares no code with the construction of stages.

    Parameters
    ----------
    graph : TaskGraph
    schedule : StageSchedule
        A schedule of any origin.
    groups, group_size : int, optional
        Its limits: groups of a stage, tasks of a group. None checks no limit.
    cost : StageCost, optional
        The cost with which latencies are compared, with a tolerance of 1e-9 of their sum. It must be a pure
        function, not a measurement.

    Raises
    ------
    InvalidSchedule
        The schedule has other tasks than the graph.
    """
    if graph.names != schedule.tasks:
        strange = sorted(set(schedule.tasks) ^ set(graph.names))
        which = f"; they differ in {named(range(len(strange)), strange)}" if strange else ", in another order"
        raise InvalidSchedule(f"the schedule has {plural(len(schedule.tasks), 'task')}, the graph {len(graph.names)}{which}")
    tasks_of_groups = [[[graph.index[name] for name in group] for group in schedule.groups(s)] for s in range(len(schedule))]
    result = [*_coverage(graph, tasks_of_groups), *_ending(graph, tasks_of_groups)]
    for s, own in enumerate(tasks_of_groups):
        result += [*_groups(graph, s, own), *_limits(graph, s, own, groups, group_size)]
    return result + _times(graph, schedule, tasks_of_groups, cost)


def _coverage(graph: TaskGraph, tasks_of_groups: list[list[list[int]]]) -> list[Violation]:
    times = [0] * graph.n_tasks
    result = []
    for s, own in enumerate(tasks_of_groups):
        hollow = sum(not group for group in own) or int(not own)
        if hollow:
            result.append(Violation("coverage", f"stage {s} is empty or has an empty group", float(hollow)))
        for group in own:
            for i in group:
                times[i] += 1
    for i, count in enumerate(times):
        if count != 1:
            message = f"task {graph.names[i]!r} is in {'no stage' if not count else f'{count} groups'}"
            result.append(Violation("coverage", message, float(abs(count - 1)), (graph.names[i],)))
    return result


def _ending(graph: TaskGraph, tasks_of_groups: list[list[list[int]]]) -> list[Violation]:
    stage = {i: s for s, own in enumerate(tasks_of_groups) for group in own for i in group}
    result = []
    for i, j in graph.edges.tolist():
        if i in stage and j in stage and stage[i] > stage[j]:
            a, b = graph.names[i], graph.names[j]
            message = f"{b!r} in stage {stage[j]} reads {a!r}, which runs in stage {stage[i]}"
            result.append(Violation("ending", message, float(stage[i] - stage[j]), (a, b)))
    return result


def _groups(graph: TaskGraph, s: int, own: list[list[int]]) -> list[Violation]:
    """Check that no edge joins two groups, that each is connected, and its order."""
    names = graph.names
    where = {i: g for g, group in enumerate(own) for i in group}
    place = {i: x for group in own for x, i in enumerate(group)}
    neighbours: dict[int, list[int]] = {i: [] for i in where}
    result = []
    for i in where:
        for j in graph.succ[graph.succ_ptr[i] : graph.succ_ptr[i + 1]].tolist():
            if j not in where:
                continue
            neighbours[i].append(j)
            neighbours[j].append(i)
            if where[i] != where[j]:
                message = f"{names[i]!r} and {names[j]!r} are joined by an edge but in different groups of stage {s}"
                result.append(Violation("groups", message, 1.0, (names[i], names[j])))
            elif place[i] > place[j]:
                message = f"{names[j]!r} runs before {names[i]!r}, which it reads, in a group of stage {s}"
                result.append(Violation("order", message, float(place[i] - place[j]), (names[i], names[j])))
    for group in own:
        reached = set(group[:1])
        todo = list(reached)
        while todo:
            for j in neighbours[todo.pop()]:
                if j not in reached and where[j] == where[group[0]]:
                    reached.add(j)
                    todo.append(j)
        apart = sorted(set(group) - reached)
        if apart:
            message = f"{named(apart, names)} and {names[group[0]]!r} are in one group of stage {s}, but nothing in it joins them"
            result.append(Violation("groups", message, float(len(apart)), tuple(names[i] for i in apart)))
    return result


def _limits(graph: TaskGraph, s: int, own: list[list[int]], groups: int | None, group_size: int | None) -> list[Violation]:
    result = []
    if groups is not None and len(own) > groups:
        result.append(Violation("group-limit", f"stage {s} has {len(own)} groups; {groups} are allowed", float(len(own) - groups)))
    for group in own:
        if group_size is not None and len(group) > group_size:
            message = f"a group of stage {s} has {len(group)} tasks; {group_size} are allowed"
            tasks = tuple(graph.names[i] for i in group)
            result.append(Violation("size-limit", message, float(len(group) - group_size), tasks))
    return result


def _times(graph: TaskGraph, schedule: StageSchedule, tasks_of_groups: list[list[list[int]]], cost: StageCost | None) -> list[Violation]:
    seconds, strategies = schedule.stages.latency.tolist(), schedule.stages.strategy.tolist()
    total = math.fsum(seconds) if all(map(math.isfinite, seconds)) else math.inf
    slack = TOLERANCE * (abs(total) if math.isfinite(total) else 1.0)
    order = {int(i): x for x, i in enumerate(graph.topological_order)}
    result = []
    for s, (stated, strategy) in enumerate(zip(seconds, strategies, strict=True)):
        if strategy not in STRATEGIES:
            result.append(Violation("strategy", f"stage {s} is {strategy!r}; choose one of {', '.join(STRATEGIES)}", 1.0))
        if not (math.isfinite(stated) and stated >= 0):
            amount = -stated if -math.inf < stated < 0 else math.inf
            result.append(Violation("latency", f"stage {s} takes {stated} s", amount, times=(stated,)))
        elif cost is not None and strategy in STRATEGIES:
            tasks = sorted({i for group in tasks_of_groups[s] for i in group}, key=order.__getitem__)
            expected = float(cost(tuple(graph.names[i] for i in tasks), strategy))
            if not abs(expected - stated) <= slack:
                message = f"stage {s} takes {stated} s, but the cost says {expected} s"
                result.append(Violation("latency", message, abs(expected - stated), times=(stated, expected)))
    if not abs(schedule.latency - total) <= slack:
        message = f"the stated latency is {schedule.latency} s, the stages sum to {total} s"
        amount = abs(schedule.latency - total)
        result.append(Violation("total", message, math.inf if math.isnan(amount) else amount, times=(schedule.latency, total)))
    return result
