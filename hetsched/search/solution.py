"""Outcomes: status, bound, solution, and the JSON document of a solution."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from os import PathLike
from typing import Literal, NamedTuple, Self

import numpy as np

from hetsched import documents
from hetsched.arguments import TEXT, checked
from hetsched.arrays import Columns, Frozen, texts
from hetsched.documents import VERSION, Document, Number, Real, Row, Whole, real
from hetsched.errors import HetschedError, Infeasible, InvalidProblem, InvalidSchedule
from hetsched.schedule.document import SchedulePart
from hetsched.schedule.schedule import Schedule
from hetsched.stopping import Stop
from hetsched.verification.verify import Violation

OPTIMALITY_GAP = 1e-6


class Status(StrEnum):
    """What is known at the end of a solve."""

    OPTIMAL = "optimal"
    """A schedule whose gap to the bound is at most 1e-6."""
    FEASIBLE = "feasible"
    """A schedule."""
    INFEASIBLE = "infeasible"
    """Proven to have no schedule; the bound's evidence says why."""
    UNKNOWN = "unknown"
    """No schedule found, none excluded."""


def _unicode(message: str) -> str:
    """Return what a solver, a file system or a plug-in said as text that a document can hold."""
    return TEXT.check(message, "a message").encode("utf-8", "backslashreplace").decode()  # type: ignore[no-any-return]


@checked
@dataclass(frozen=True)
class Bound:
    """A number proven to be at most the optimum of one problem.

    Attributes
    ----------
    value : float
        Seconds; inf if it is proven that there is no schedule.
    name : str
        Which bound.
    evidence : str
        What it rests on, in a line.
    objective : str
        What it bounds: "makespan", "period" or "max-load".
    """

    value: float
    name: str
    evidence: str = ""
    objective: str = "makespan"

    def __post_init__(self) -> None:
        if not self.value > -math.inf:
            raise InvalidProblem(f"bound {self.name!r} is {self.value}; it must be seconds, or inf as a proof that there is no schedule")
        for what in ("name", "evidence"):
            object.__setattr__(self, what, _unicode(getattr(self, what)))


NO_BOUND = Bound(0.0, "none", "no schedule ends before it starts")


class BestEffort(NamedTuple):
    """The schedule that comes nearest to the memory there is, where none within it was found: no answer, for no device can hold it."""

    schedule: Schedule
    violations: tuple[Violation, ...]
    """What `hetsched.verify` says of it: by how many bytes which device is over its capacity."""

    @property
    def bytes_over(self) -> float:
        """Bytes over capacity, all devices together."""
        return sum(each.amount for each in self.violations)


def relative_gap(value: float, bound: float) -> float:
    """Return (value - bound) / value, 0 for an empty schedule, 1 for none."""
    if math.isinf(value):
        return 1.0
    return max(0.0, (value - bound) / value) if value > 0 else 0.0


class Solution(Frozen):
    """The outcome of a solve; every method returns this.

    Attributes
    ----------
    schedule : Schedule or None
    objective : str
        What was minimised: "makespan", "period" or "max-load".
    value : float
        The schedule's value under it in seconds, inf without a schedule.
    proof : Bound
        The best lower bound, its name and what it rests on.
    status : Status
    method : str
        The method that found the schedule, or was asked if there is none.
    seed : int
    history : Columns (time, incumbent, bound, source)
        Every improvement, in seconds since the start; incumbents are values.
    methods : Columns (method, makespan, evaluations, seconds)
        Every method that ran: the best value of its valid schedules, that is the makespan unless there
        was another objective (inf if it found none), the schedules it evaluated and its seconds,
        without those of the methods it called.
    messages : tuple of str
        What methods had to say, for instance why one found nothing.
    best_effort : BestEffort or None
        Where there is no schedule: the decision offered that was least over the memory there is, and by how much.
    stopped : Stop
        Why it ended.
    """

    _format = "hetsched-solution"
    schedule: Schedule | None
    objective: str
    value: float
    proof: Bound
    status: Status
    method: str
    seed: int
    history: Columns
    methods: Columns
    messages: tuple[str, ...]
    best_effort: BestEffort | None
    stopped: Stop

    @checked
    def __init__(
        self,
        schedule: Schedule | None,
        proof: Bound,
        *,
        method: str,
        seed: int,
        history: Columns,
        methods: Columns,
        messages: Iterable[str] = (),
        stopped: Stop = Stop.FINISHED,
        objective: str = "makespan",
        value: float | None = None,
        best_effort: BestEffort | None = None,
    ) -> None:
        if objective == "makespan" or schedule is None:
            value = math.inf if schedule is None else schedule.makespan
        if value is None or (objective != "makespan" and schedule is not None and not math.isfinite(value)):
            raise InvalidSchedule(f"a solution for the objective {objective!r} needs the value of its schedule in seconds, not {value}")
        if schedule is not None:
            gap = relative_gap(value, proof.value)
            status = Status.OPTIMAL if gap <= OPTIMALITY_GAP else Status.FEASIBLE
        else:
            status = Status.INFEASIBLE if math.isinf(proof.value) else Status.UNKNOWN
        self._set(
            schedule=schedule,
            objective=objective,
            value=float(value),
            proof=proof,
            status=status,
            method=_unicode(method),
            seed=int(seed),
            history=history,
            methods=methods,
            messages=tuple(map(_unicode, messages)),
            best_effort=best_effort,
            stopped=stopped,
        )

    def __repr__(self) -> str:
        found = "no schedule" if self.schedule is None else f"{self.objective} {self.value:.6g} s, gap {self.gap:.2%}"
        return f"<Solution by {self.method}: {self.status}, {found}>"

    @property
    def makespan(self) -> float:
        """Makespan of the schedule in seconds, inf without one."""
        return math.inf if self.schedule is None else self.schedule.makespan

    @property
    def period(self) -> float:
        """Seconds per input when inputs stream through, inf without a schedule: the value, or makespan / L where the makespan was
        minimised and schedules follow one another."""
        if self.objective != "makespan" or self.schedule is None:
            return self.value
        return self.makespan / self.schedule.n_inputs

    @property
    def throughput(self) -> float:
        """Inputs per second, 0 without a schedule: L / makespan, or 1 / period where that was minimised."""
        if self.schedule is None:
            return 0.0
        if self.objective == "makespan":
            return self.schedule.throughput
        return 1.0 / self.period if self.period > 0 else math.inf

    @property
    def bound(self) -> float:
        """The best lower bound on the optimal value, in seconds."""
        return self.proof.value

    @property
    def gap(self) -> float:
        """(value - bound) / value; 1 without a schedule."""
        return relative_gap(self.value, self.bound)

    def raise_for_status(self) -> None:
        """Raise `Infeasible` if it is proven that there is no schedule, `HetschedError` if none was found."""
        if self.status is Status.INFEASIBLE:
            raise Infeasible(f"the problem has no valid schedule: {self.proof.evidence}")
        if self.schedule is None:
            said = "; ".join(self.messages) or "no message"
            if self.best_effort is not None:
                said += f"; solution.best_effort is {self.best_effort.bytes_over:.6g} bytes over the memory there is"
            raise HetschedError(f"{self.method} found no valid schedule ({self.stopped}): {said}")

    @checked
    def write(self, path: str | PathLike[str]) -> None:
        """Write the solution as a JSON document; ``hetsched.read`` reads it back to the bit."""
        documents.write(self, path)


class BoundRow(Row):
    """A lower bound in seconds; null if it is proven that there is no schedule."""

    value: Number
    name: str
    evidence: str = ""


class HistoryRow(Row):
    """One improvement; null before the first schedule, or for an infinite bound."""

    time: float
    incumbent: Number
    bound: Number
    source: str


class MethodRow(Row):
    """What one method did; its makespan (or value, under another objective) is null if it found no valid schedule."""

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
    """The schedule nearest to the memory there is, and the rules it breaks."""

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
        found = [
            Violation(v.rule, v.message, float(v.amount), tuple(v.tasks), tuple(v.devices), tuple(v.items), tuple(map(float, v.times)))
            for v in self.violations
        ]
        return BestEffort(self.schedule.value(), tuple(found))


class SolutionDocument(Document[Solution], kw_only=True, tag="hetsched-solution"):
    """The outcome of a solve; `status` is derived from the schedule's value and the bound.

    The value of the schedule is its makespan where that is the objective, and given otherwise.
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
            bound=BoundRow(_finite(value.bound), value.proof.name, value.proof.evidence),
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
            Bound(_infinite(self.bound.value), self.bound.name, self.bound.evidence, self.objective),
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
