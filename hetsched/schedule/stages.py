"""Stages on one device: the schedules of IOS, as immutable columns, and their independent check."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from functools import cached_property
from os import PathLike
from typing import Protocol

import numpy as np
import numpy.typing as npt

from hetsched.arguments import check_array, check_count, checked, shown
from hetsched.arrays import Columns, FloatArray, Frozen, IntArray, readonly, row_starts, texts
from hetsched.errors import InvalidSchedule
from hetsched.problem.graph import TaskGraph, named, plural, unique_names
from hetsched.verification.facts import TOLERANCE
from hetsched.verification.verify import Violation

STRATEGIES = ("concurrent", "merge")
"""How the tasks of one stage run: their groups side by side, or all as one operator."""

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
"""Every rule `verify_stages` checks, in its order, with what it asks and the unit of ``Violation.amount``."""


class StageCost(Protocol):
    """What a stage of tasks, named in topological order, takes under a strategy: seconds, inf if it cannot be done.

    A cost, or a bound, that is an object may also have a method ``table(names, parent, last)`` that says it of all stages of a
    block at once, which is faster by far. Stage 0 is empty; stage s, [S], is stage ``parent[s] < s`` and after its tasks
    ``names[last[s]]``. It returns float64 seconds of shape [S, 2]: concurrent, and merged; stage 0 does not count, nor do
    merged stages of one task.
    """

    def __call__(self, tasks: tuple[str, ...], strategy: str, /) -> float: ...


class StageSchedule(Frozen):
    """An ordered partition of the tasks into stages that run one after another on one device.

    Attributes
    ----------
    tasks : tuple of str
        The names the indices below refer to.
    stages : Columns (strategy, latency)
        One row a stage, in running order: ``"concurrent"`` or ``"merge"``, and seconds.
    group_ptr : int64 array [stages + 1]
        The groups of stage s are ``group_ptr[s]`` to ``group_ptr[s + 1]``.
    member_ptr, members : int64 arrays
        The tasks of group g are ``members[member_ptr[g]:member_ptr[g + 1]]``, in running order.
    latency : float
        The stated latency of the whole in seconds.
    asked, possible : int or None
        How many stage costs the search that made it asked for, and how many it would ask for without
        lower bounds; None if nobody counted.
    bound : float or None
        Seconds that no stages under the search's limits take less than; None if nobody looked for one.
    messages : tuple of str
        What the search has to say, such as blocks that it had to cut.

    Notes
    -----
    ``hetsched.stages`` makes them; `StageSchedule.from_groups` wraps stages that come from elsewhere, which
    ``hetsched.verify_stages`` then judges.
    """

    tasks: tuple[str, ...]
    stages: Columns
    group_ptr: IntArray
    member_ptr: IntArray
    members: IntArray
    latency: float
    asked: int | None
    possible: int | None
    bound: float | None
    messages: tuple[str, ...]

    def __init__(self) -> None:
        raise TypeError("stage schedules are made by hetsched.stages(graph, cost), hetsched.read(path) or StageSchedule.from_groups(...)")

    @classmethod
    @checked
    def from_groups(
        cls,
        tasks: Sequence[str],
        groups: Iterable[Iterable[Iterable[str]]],
        strategies: Sequence[str],
        latencies: npt.ArrayLike,
        *,
        latency: float | None = None,
        asked: int | None = None,
        possible: int | None = None,
        bound: float | None = None,
        messages: Iterable[str] = (),
    ) -> StageSchedule:
        """Return a schedule of the stages given, unchecked but for its shape.

        Parameters
        ----------
        tasks : sequence of str
            All tasks of the graph.
        groups : iterable
            For each stage its groups, for each group the names of its tasks in running order.
        strategies, latencies : sequences
            One for each stage.
        latency : float, optional
            Default: the sum of the latencies.

        Raises
        ------
        InvalidSchedule
            A name is unknown, or the numbers of stages differ.
        """
        tasks = unique_names(tasks, "task")
        index = {name: i for i, name in enumerate(tasks)}
        try:
            stages = [[list(group) for group in stage] for stage in groups]
        except TypeError:
            raise InvalidSchedule(f"groups is {shown(groups)}; it must be stages of groups of task names") from None
        strange = [name for stage in stages for group in stage for name in group if not isinstance(name, str) or name not in index]
        if strange:
            raise InvalidSchedule(f"{shown(strange[0])} is no task of the schedule")
        seconds = check_array(latencies, "latencies", error=InvalidSchedule)
        if seconds.shape != (len(stages),) or len(strategies) != len(stages):
            raise InvalidSchedule(
                f"{plural(len(stages), 'stage')}, {len(strategies)} strategies and {seconds.size} latencies; give as many of each"
            )
        flat = [group for stage in stages for group in stage]
        schedule = cls.__new__(cls)
        schedule._set(
            tasks=tasks,
            stages=Columns(strategy=texts(strategies), latency=seconds),
            group_ptr=_starts(stages),
            member_ptr=_starts(flat),
            members=readonly([index[name] for group in flat for name in group], np.int64),
            latency=float(math.fsum(seconds) if latency is None else latency),
            asked=asked,
            possible=possible,
            bound=bound,
            messages=tuple(messages),
        )
        return schedule

    def __repr__(self) -> str:
        return f"<StageSchedule of {plural(len(self.tasks), 'task')} in {plural(len(self), 'stage')}, {self.latency:.6g} s>"

    def __len__(self) -> int:
        return len(self.stages)

    @checked
    def write(self, path: str | PathLike[str]) -> None:
        """Write the schedule as a JSON document; ``hetsched.read`` reads it back to the bit."""
        from hetsched.schedule import stage_document

        stage_document.write(self, path)

    @checked
    def groups(self, stage: int) -> list[tuple[str, ...]]:
        """Return the names of the tasks of each group of a stage, in running order."""
        check_count(stage, "stage", 0, len(self.stages) - 1, InvalidSchedule)
        names = self.tasks
        first, last = self.group_ptr[stage : stage + 2].tolist()
        rows = itertools.pairwise(self.member_ptr[first : last + 1].tolist())
        return [tuple(names[i] for i in self.members[begin:end].tolist()) for begin, end in rows]

    @cached_property
    def stage_of(self) -> IntArray:
        """The stage of each task, shape [n]; -1 where it is in none."""
        table = np.full(len(self.tasks), -1)
        group = np.repeat(np.arange(len(self.group_ptr) - 1), np.diff(self.group_ptr))
        table[self.members] = np.repeat(group, np.diff(self.member_ptr))
        return readonly(table)

    @cached_property
    def start(self) -> FloatArray:
        """When each stage starts, in seconds, shape [stages]."""
        return readonly(np.concatenate([[0.0], np.cumsum(self.stages.latency)])[:-1])


def _starts(rows: Sequence[Sequence[object]]) -> IntArray:
    return readonly(row_starts([len(row) for row in rows]))


@checked
def verify_stages(
    graph: TaskGraph, schedule: StageSchedule, *, groups: int | None = None, group_size: int | None = None, cost: StageCost | None = None
) -> list[Violation]:
    """Return every violation of the rules of stages; an empty list if the schedule is valid.

    It shares no code with what makes such schedules.

    Parameters
    ----------
    graph : TaskGraph
    schedule : StageSchedule
        From anywhere.
    groups, group_size : int, optional
        The limits it was made under: groups of a stage, tasks of a group. None checks no limit.
    cost : StageCost, optional
        The latencies are compared with what it says, with a tolerance of 1e-9 of the whole. For a pure
        function only: a measurement is never the same twice.

    Raises
    ------
    InvalidSchedule
        The schedule is about other tasks than the graph's.
    """
    if graph.names != schedule.tasks:
        strange = sorted(set(schedule.tasks) ^ set(graph.names))
        which = f"; they differ in {named(range(len(strange)), strange)}" if strange else ", in another order"
        raise InvalidSchedule(f"the schedule has {plural(len(schedule.tasks), 'task')}, the graph {len(graph.names)}{which}")
    found = [[[graph.index[name] for name in group] for group in schedule.groups(s)] for s in range(len(schedule))]
    result = [*_coverage(graph, found), *_ending(graph, found)]
    for s, own in enumerate(found):
        result += [*_groups(graph, s, own), *_limits(graph, s, own, groups, group_size)]
    return result + _times(graph, schedule, found, cost)


def _coverage(graph: TaskGraph, found: list[list[list[int]]]) -> list[Violation]:
    times = [0] * graph.n_tasks
    result = []
    for s, own in enumerate(found):
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


def _ending(graph: TaskGraph, found: list[list[list[int]]]) -> list[Violation]:
    stage = {i: s for s, own in enumerate(found) for group in own for i in group}
    result = []
    for i, j in graph.edges.tolist():
        if i in stage and j in stage and stage[i] > stage[j]:
            a, b = graph.names[i], graph.names[j]
            message = f"{b!r} in stage {stage[j]} reads {a!r}, which runs in stage {stage[i]}"
            result.append(Violation("ending", message, float(stage[i] - stage[j]), (a, b)))
    return result


def _groups(graph: TaskGraph, s: int, own: list[list[int]]) -> list[Violation]:
    """Check that no edge joins two groups, that each hangs together, and the order in it."""
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


def _times(graph: TaskGraph, schedule: StageSchedule, found: list[list[list[int]]], cost: StageCost | None) -> list[Violation]:
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
            tasks = sorted({i for group in found[s] for i in group}, key=order.__getitem__)
            said = float(cost(tuple(graph.names[i] for i in tasks), strategy))
            if not abs(said - stated) <= slack:
                message = f"stage {s} takes {stated} s, but the cost says {said} s"
                result.append(Violation("latency", message, abs(said - stated), times=(stated, said)))
    if not abs(schedule.latency - total) <= slack:
        message = f"the stated latency is {schedule.latency} s, the stages sum to {total} s"
        amount = abs(schedule.latency - total)
        result.append(Violation("total", message, math.inf if math.isnan(amount) else amount, times=(schedule.latency, total)))
    return result
