"""Outcomes: status, bound, solution."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from os import PathLike
from typing import NamedTuple

from hetsched import documents
from hetsched.arguments import TEXT, checked
from hetsched.arrays import Columns, Frozen
from hetsched.errors import HetschedError, Infeasible, InvalidProblem, InvalidSchedule
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
