"""Results of a solve: status, bound, solution."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from os import PathLike
from typing import Literal, NamedTuple

from hetsched import documents
from hetsched.arguments import TEXT, checked
from hetsched.arrays import Columns, Frozen, deferred
from hetsched.errors import HetschedError, Infeasible, InvalidProblem, InvalidSchedule
from hetsched.lazy import later
from hetsched.schedule.schedule import Schedule
from hetsched.stopping import Stop
from hetsched.verification.verify import Violation

OPTIMALITY_GAP = 1e-6
Trust = Literal["checked", "computed", "solver"]
"""Who vouches for a bound: the certificate checker, which needs no code of ours; code of ours, which subtracts its rounding; a solver."""


class Status(StrEnum):
    """The status at the end of a solve."""

    OPTIMAL = "optimal"
    """A schedule whose gap to the bound is at most 1e-6."""
    FEASIBLE = "feasible"
    """A schedule with a larger gap."""
    INFEASIBLE = "infeasible"
    """A proof that there is no schedule, in the bound's evidence."""
    UNKNOWN = "unknown"
    """No schedule found, and no proof that there is none."""


def _unicode(message: str) -> str:
    """Return a message of a solver, a file system or a plug-in as text that a document can hold."""
    return TEXT.check(message, "a message").encode("utf-8", "backslashreplace").decode()  # type: ignore[no-any-return]


@checked
@dataclass(frozen=True)
class Bound:
    """A lower bound on the optimum of a problem.

    Attributes
    ----------
    value : float
        Seconds; inf as a proof that there is no schedule.
    name : str
        Name of the bound.
    evidence : str
        Its evidence, in a line.
    objective : str
        The objective that it bounds: "makespan", "period" or "max-load".
    trust : str
        "checked": the checker accepted a certificate of it, see `hetsched.certify`; "computed": by code of this package, its
        rounding subtracted; "solver": it rests on the word of a solver.
    """

    value: float
    name: str
    evidence: str = ""
    objective: str = "makespan"
    trust: Trust = "computed"

    def __post_init__(self) -> None:
        if not self.value > -math.inf:
            raise InvalidProblem(f"bound {self.name!r} is {self.value}; it must be seconds, or inf as a proof that there is no schedule")
        for what in ("name", "evidence"):
            object.__setattr__(self, what, _unicode(getattr(self, what)))


NO_BOUND = Bound(0.0, "none", "no schedule ends before it starts")


class BestEffort(NamedTuple):
    """The schedule with the least excess over the memory, if no schedule within it was found; it is not a valid answer."""

    schedule: Schedule
    violations: tuple[Violation, ...]
    """The violations by `hetsched.verify`: the devices over capacity, and the bytes."""

    @property
    def bytes_over(self) -> float:
        """Bytes over capacity, summed over devices."""
        return sum(violation.amount for violation in self.violations)


def relative_gap(value: float, bound: float) -> float:
    """Return (value - bound) / value; 0 for an empty schedule, 1 without a schedule."""
    if math.isinf(value):
        return 1.0
    return max(0.0, (value - bound) / value) if value > 0 else 0.0


class Solution(Frozen):
    """The result of a solve.

    Attributes
    ----------
    schedule : Schedule or None
    objective : str
        The objective: "makespan", "period" or "max-load".
    value : float
        The schedule's value under it in seconds, inf without a schedule.
    proof : Bound
        The best lower bound, with its name, evidence and trust. After a single constructive method without `on_progress`, and if a
        time limit left no time to compile their kernels, the bounds are computed when `proof`, or what follows from it, is
        first read; they are then not part of `history`. With less than 10 s of the limit left they are so only if no kernel
        has to be compiled for them; `evidence` says if one had to be.
    status : Status
    method : str
        The method that found the schedule, or without one the method requested.
    seed : int
    history : Columns (time, incumbent, bound, source)
        Every improvement, in seconds since the start; incumbents are values.
    methods : Columns (method, makespan, evaluations, seconds)
        Every method that ran: the best value of its valid schedules (the makespan unless the objective is
        another; inf if it found none), the number of schedules it evaluated, and its seconds without
        those of the methods it called.
    messages : tuple of str
        Notes of the methods, for instance why one found no schedule.
    best_effort : BestEffort or None
        Without a schedule: the schedule with the least excess over the memory.
    stopped : Stop
        The reason of the end.
    """

    _format = "hetsched-solution"
    schedule: Schedule | None
    objective: str
    value: float
    proof: Bound = deferred()
    method: str
    seed: int
    history: Columns
    methods: Columns
    messages: tuple[str, ...]
    best_effort: BestEffort | None
    stopped: Stop = deferred()

    @checked
    def __init__(
        self,
        schedule: Schedule | None,
        proof: Bound | Callable[[], Bound],
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
        self._set(
            schedule=schedule,
            objective=objective,
            value=float(value),
            method=_unicode(method),
            seed=int(seed),
            history=history,
            methods=methods,
            messages=tuple(map(_unicode, messages)),
            best_effort=best_effort,
        )
        if isinstance(proof, Bound):
            self._set(proof=proof, stopped=stopped)
        else:
            self._defer(proof=proof, stopped=lambda: Stop.OPTIMAL if self.status is Status.OPTIMAL else stopped)

    def __repr__(self) -> str:
        result = "no schedule" if self.schedule is None else f"{self.objective} {self.value:.6g} s, gap {self.gap:.2%}"
        return f"<Solution by {self.method}: {self.status}, {result}>"

    _repr_html_ = later("hetsched.report.notebook:solution_html")

    @property
    def status(self) -> Status:
        """The status: optimal, feasible, infeasible or unknown."""
        if self.schedule is not None:
            return Status.OPTIMAL if self.gap <= OPTIMALITY_GAP else Status.FEASIBLE
        return Status.INFEASIBLE if math.isinf(self.bound) else Status.UNKNOWN

    @property
    def makespan(self) -> float:
        """Makespan of the schedule in seconds, inf without one."""
        return math.inf if self.schedule is None else self.schedule.makespan

    @property
    def period(self) -> float:
        """Seconds per input of a stream of inputs, inf without a schedule: the value, or makespan / L if the objective is the
        makespan and schedules follow one another."""
        if self.objective != "makespan" or self.schedule is None:
            return self.value
        return self.makespan / self.schedule.n_inputs

    @property
    def throughput(self) -> float:
        """Inputs per second, 0 without a schedule: L / makespan, or 1 / period if that is the objective."""
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
        """Raise `Infeasible` if no schedule exists, `HetschedError` if none was found."""
        if self.status is Status.INFEASIBLE:
            raise Infeasible(f"the problem has no valid schedule: {self.proof.evidence}")
        if self.schedule is None:
            notes = "; ".join(self.messages) or "no message"
            if self.best_effort is not None:
                notes += f"; solution.best_effort is {self.best_effort.bytes_over:.6g} bytes over the available memory"
            raise HetschedError(f"{self.method} found no valid schedule ({self.stopped}): {notes}")

    @checked
    def write(self, path: str | PathLike[str]) -> None:
        """Write the solution as a JSON document; ``hetsched.read`` restores it to the bit."""
        documents.write(self, path)
