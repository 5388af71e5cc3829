"""The JSON document of a solution."""

from __future__ import annotations

from typing import Literal, Self

import numpy as np

from hetsched.arrays import Columns, texts
from hetsched.documents import VERSION, Document, Number, Real, Row, Whole, real
from hetsched.schedule.document import SchedulePart
from hetsched.search.solution import BestEffort, Bound, Solution, Trust
from hetsched.stopping import Stop
from hetsched.verification.verify import Violation


class BoundRow(Row):
    """A lower bound in seconds; null as a proof that there is no schedule."""

    value: Number
    name: str
    evidence: str = ""
    trust: Trust = "computed"


class HistoryRow(Row):
    """One improvement; null before the first schedule, or for an infinite bound."""

    time: float
    incumbent: Number
    bound: Number
    source: str


class MethodRow(Row):
    """The work of one method; its makespan (or value, under another objective) is null if it found no valid schedule."""

    method: str
    makespan: Number
    evaluations: Whole
    seconds: float


class ViolationRow(Row):
    """A broken rule of a best effort."""

    rule: str
    message: str
    amount: Real
    tasks: list[str] = []
    devices: list[str] = []
    items: list[int] = []
    times: list[Real] = []


class BestEffortPart(Row):
    """The schedule with the least excess over the memory, and the rules that it breaks."""

    schedule: SchedulePart
    violations: list[ViolationRow]

    @classmethod
    def of(cls, effort: BestEffort) -> BestEffortPart:
        """Return the part for a best effort."""
        rows = [
            ViolationRow(v.rule, v.message, real(v.amount), list(v.tasks), list(v.devices), list(v.items), list(map(real, v.times)))
            for v in effort.violations
        ]
        return cls(SchedulePart.of(effort.schedule), rows)

    def value(self) -> BestEffort:
        """Return the best effort."""
        violations = [
            Violation(v.rule, v.message, float(v.amount), tuple(v.tasks), tuple(v.devices), tuple(v.items), tuple(map(float, v.times)))
            for v in self.violations
        ]
        return BestEffort(self.schedule.value(), tuple(violations))


class SolutionDocument(Document[Solution], kw_only=True, tag="hetsched-solution"):
    """The result of a solve; `status` is derived from the schedule's value and the bound.

    The value of the schedule is its makespan if that is the objective, and explicit otherwise.
    """

    schedule: SchedulePart | None
    objective: Literal["makespan", "period", "max-load"] = "makespan"
    objective_value: Number = None
    status: str
    bound: BoundRow
    method: str
    seed: int
    history: list[HistoryRow] = []
    methods: list[MethodRow] = []
    messages: list[str] = []
    best_effort: BestEffortPart | None = None
    stopped: Stop = Stop.FINISHED

    @classmethod
    def of(cls, value: Solution) -> Self:
        """Return the document of a solution."""
        return cls(
            version=VERSION,
            schedule=None if value.schedule is None else SchedulePart.of(value.schedule),
            status=str(value.status),
            objective=value.objective,  # type: ignore[arg-type]
            objective_value=None if value.objective == "makespan" else _finite(value.value),
            bound=BoundRow(_finite(value.bound), value.proof.name, value.proof.evidence, value.proof.trust),
            method=value.method,
            seed=value.seed,
            history=[HistoryRow(row["time"], _finite(row["incumbent"]), _finite(row["bound"]), row["source"]) for row in value.history],
            methods=[MethodRow(row["method"], _finite(row["makespan"]), row["evaluations"], row["seconds"]) for row in value.methods],
            messages=list(value.messages),
            best_effort=None if value.best_effort is None else BestEffortPart.of(value.best_effort),
            stopped=value.stopped,
        )

    def value(self) -> Solution:
        """Return the solution."""
        rows, runs = self.history, self.methods
        return Solution(
            None if self.schedule is None else self.schedule.value(),
            Bound(_infinite(self.bound.value), self.bound.name, self.bound.evidence, self.objective, self.bound.trust),
            objective=self.objective,
            value=self.objective_value,
            method=self.method,
            seed=self.seed,
            messages=self.messages,
            stopped=self.stopped,
            best_effort=None if self.best_effort is None else self.best_effort.value(),
            history=Columns(
                time=np.array([row.time for row in rows], np.float64),
                incumbent=np.array([_infinite(row.incumbent) for row in rows], np.float64),
                bound=np.array([_infinite(row.bound) for row in rows], np.float64),
                source=texts(row.source for row in rows),
            ),
            methods=Columns(
                method=texts(run.method for run in runs),
                makespan=np.array([_infinite(run.makespan) for run in runs], np.float64),
                evaluations=np.array([run.evaluations for run in runs], np.int64),
                seconds=np.array([run.seconds for run in runs], np.float64),
            ),
        )


def _infinite(value: float | None) -> float:
    return np.inf if value is None else value


def _finite(value: float) -> float | None:
    return None if np.isinf(value) else value
