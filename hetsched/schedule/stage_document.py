"""The JSON document of stages on one device."""

from __future__ import annotations

from typing import Self

import numpy as np

from hetsched.documents import VERSION, Document, Real, Row, real, reals
from hetsched.schedule.stages import StageSchedule


class StageRow(Row):
    """One stage: "concurrent" or "merge", its groups as names of tasks in running order, and its latency in seconds."""

    strategy: str
    groups: list[list[str]]
    latency: Real


class StagesPart(Row, kw_only=True):
    """Stages in running order; if known, how many costs were computed, how many would be without lower bounds, and a bound.

    `messages` are the notes of the search.
    """

    tasks: list[str]
    stages: list[StageRow]
    latency: Real
    asked: int | None = None
    possible: int | None = None
    bound: Real | None = None
    messages: list[str] = []

    @classmethod
    def of(cls, schedule: StageSchedule) -> StagesPart:
        """Return the document part of a stage schedule."""
        columns = zip(schedule.stages.strategy.tolist(), reals(schedule.stages.latency), strict=True)
        rows = [StageRow(strategy, [list(g) for g in schedule.groups(s)], seconds) for s, (strategy, seconds) in enumerate(columns)]
        counts = {"asked": schedule.asked, "possible": schedule.possible}
        bound = None if schedule.bound is None else real(schedule.bound)
        messages = list(schedule.messages)
        return cls(tasks=list(schedule.tasks), stages=rows, latency=real(schedule.latency), bound=bound, messages=messages, **counts)

    def value(self) -> StageSchedule:
        """Return the schedule, with indices in place of names."""
        return StageSchedule.from_groups(
            self.tasks,
            [row.groups for row in self.stages],
            [row.strategy for row in self.stages],
            np.array([row.latency for row in self.stages], np.float64),
            latency=float(self.latency),
            asked=self.asked,
            possible=self.possible,
            bound=None if self.bound is None else float(self.bound),
            messages=self.messages,
        )


class StagesDocument(Document[StageSchedule], kw_only=True, tag="hetsched-stages"):
    """Stages on one device; ``hetsched.verify_stages`` also needs their graph."""

    stages: StagesPart

    @classmethod
    def of(cls, value: StageSchedule) -> Self:
        """Return the document of a stage schedule."""
        return cls(version=VERSION, stages=StagesPart.of(value))

    def value(self) -> StageSchedule:
        """Return the stage schedule."""
        return self.stages.value()
