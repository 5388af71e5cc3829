"""Stages on one device: the schedules of IOS, as immutable columns."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from functools import cached_property
from os import PathLike
from typing import Protocol

import numpy as np
import numpy.typing as npt

from hetsched import documents
from hetsched.arguments import check_array, check_count, checked, shown
from hetsched.arrays import Columns, FloatArray, Frozen, IntArray, readonly, row_starts, texts
from hetsched.errors import InvalidSchedule
from hetsched.problem.graph import is_text, plural, unique_names

STRATEGIES = ("concurrent", "merge")
"""How the tasks of one stage run: their groups concurrently, or all as one operator."""


class StageCost(Protocol):
    """Callable that returns the seconds of a stage of tasks, in topological order, under a strategy; inf if it is impossible.

    A cost, or a bound, may also have a method ``table(names, parent, last)`` that evaluates all S stages of a block in one
    call, which is much faster. Stage 0 is empty; stage s consists of the tasks of stage ``parent[s] < s`` followed by
    ``names[last[s]]``. The method returns float64 seconds of shape [S, 2]: concurrent, and merged. The values of stage 0 and
    of merged stages of one task are ignored.
    """

    def __call__(self, tasks: tuple[str, ...], strategy: str, /) -> float: ...


class StageSchedule(Frozen):
    """An ordered partition of the tasks into stages that run in sequence on one device.

    Attributes
    ----------
    tasks : tuple of str
        The names that the indices below refer to.
    stages : Columns (strategy, latency)
        One row for each stage, in running order: ``"concurrent"`` or ``"merge"``, and seconds.
    group_ptr : int64 array [stages + 1]
        The groups of stage s are ``group_ptr[s]`` to ``group_ptr[s + 1]``.
    member_ptr, members : int64 arrays
        The tasks of group g are ``members[member_ptr[g]:member_ptr[g + 1]]``, in running order.
    latency : float
        The stated latency of the schedule in seconds.
    asked, possible : int or None
        Number of stage costs that the search computed, and the number without lower bounds; None if
        unknown.
    bound : float or None
        Lower bound in seconds on the latency of all stage schedules within the search's limits; None if unknown.
    messages : tuple of str
        Notes of the search, for instance on blocks that it had to divide.

    Notes
    -----
    ``hetsched.stages`` returns them. `StageSchedule.from_groups` builds one from stages computed by other code,
    which ``hetsched.verify_stages`` can check.
    """

    _format = "hetsched-stages"
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
        """Build a schedule from stages; only its shape and names are checked.

        Parameters
        ----------
        tasks : sequence of str
            All tasks of the graph.
        groups : iterable
            The groups of each stage; each group is the names of its tasks in running order.
        strategies, latencies : sequences
            One for each stage.
        latency : float, optional
            Default: the sum of the latencies.

        Raises
        ------
        InvalidSchedule
            A name is unknown, a strategy or message is not Unicode text, or the numbers of stages differ.
        """
        tasks = unique_names(tasks, "task")
        index = {name: i for i, name in enumerate(tasks)}
        try:
            stages = [[list(group) for group in stage] for stage in groups]
        except TypeError:
            raise InvalidSchedule(f"groups is {shown(groups)}; it must be stages of groups of task names") from None
        unknown = [name for stage in stages for group in stage for name in group if not isinstance(name, str) or name not in index]
        if unknown:
            raise InvalidSchedule(f"{shown(unknown[0])} is no task of the schedule")
        seconds = check_array(latencies, "latencies", error=InvalidSchedule)
        if seconds.shape != (len(stages),) or len(strategies) != len(stages):
            raise InvalidSchedule(
                f"{plural(len(stages), 'stage')}, {len(strategies)} strategies and {seconds.size} latencies; give as many of each"
            )
        for text in (*strategies, *(messages := tuple(messages))):
            if not is_text(text):
                raise InvalidSchedule(f"{shown(text)} is not Unicode text, as strategies and messages must be")
        flat = [group for stage in stages for group in stage]
        schedule = cls.__new__(cls)
        schedule._set(
            tasks=tasks,
            stages=Columns(strategy=texts(strategies), latency=seconds),
            group_ptr=_starts(stages),
            member_ptr=_starts(flat),
            members=readonly([index[name] for group in flat for name in group], np.int64),
            latency=float(_total(seconds) if latency is None else latency),
            asked=asked,
            possible=possible,
            bound=bound,
            messages=messages,
        )
        return schedule

    def __repr__(self) -> str:
        return f"<StageSchedule of {plural(len(self.tasks), 'task')} in {plural(len(self), 'stage')}, {self.latency:.6g} s>"

    def __len__(self) -> int:
        return len(self.stages)

    @checked
    def write(self, path: str | PathLike[str]) -> None:
        """Write the schedule as a JSON document; ``hetsched.read`` reads it back to the bit."""
        documents.write(self, path)

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
        """The stage of each task, shape [n]; -1 if it is in none."""
        table = np.full(len(self.tasks), -1)
        group = np.repeat(np.arange(len(self.group_ptr) - 1), np.diff(self.group_ptr))
        table[self.members] = np.repeat(group, np.diff(self.member_ptr))
        return readonly(table)

    @cached_property
    def start(self) -> FloatArray:
        """Start of each stage in seconds, shape [stages]."""
        return readonly(np.concatenate([[0.0], np.cumsum(self.stages.latency)])[:-1])


def _starts(rows: Sequence[Sequence[object]]) -> IntArray:
    return readonly(row_starts([len(row) for row in rows]))


def _total(seconds: FloatArray) -> float:
    """Return the sum of latencies; NaN, like other sums, if they have inf and -inf."""
    return math.nan if {math.inf, -math.inf} <= set(seconds.tolist()) else math.fsum(seconds)
