"""Measured or forecast times of a decision: those of one run, and the lengths of its batches and transfers in all runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from os import PathLike
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hetsched import documents
from hetsched.arguments import check_array, checked
from hetsched.arrays import BoolArray, Columns, FloatArray, Frozen, IntArray, readonly, row_starts
from hetsched.costs.machine import Machine
from hetsched.errors import InvalidSchedule
from hetsched.problem.graph import is_text
from hetsched.problem.problem import Problem
from hetsched.schedule.decision import Decision
from hetsched.schedule.schedule import Schedule
from hetsched.schedule.simulate import TimedDecision

DISTURBED = 0.1
"""The part of batches' time without CPU time above which runs support no claim."""


class RunTimes(NamedTuple):
    """The times of one run, in seconds from its start."""

    start: FloatArray
    """[m], of each batch of the decision."""
    finish: FloatArray
    cpu: FloatArray
    """[m], CPU time of the thread that runs the batch; NaN if unknown."""
    waited: FloatArray
    """[m], seconds that the device waited for data right before the batch."""
    posted: FloatArray
    """[sends], when each of the plan's sends was posted."""
    seen: FloatArray
    """[sends], when its receiver, which was waiting, went on; NaN where the value had arrived before."""
    makespan: float
    gathered: FloatArray | None = None
    """[m], seconds that the device put together inputs of several batches for the batch; None if it never did."""


class Timeline(Frozen):
    """The times of a decision as measured in runs, or as forecast.

    Attributes
    ----------
    schedule : Schedule
        The times of one run: of several the one whose makespan is nearest the median. Batches of zero length in the problem
        have none here: they are at their finish. A transfer begins when its value is posted. It ends when its receiver has
        seen it; where the receiver was not waiting for it, it ends when the problem says, at the start of its consumer at the latest.
    cpu, waited : float64 array [m]
        Of each batch: CPU time of its thread, NaN if unknown; seconds that its device waited for data before it.
    gathered : float64 array [m]
        Seconds that its device put together inputs of several batches for it.
    seen : bool array [T]
        Whether the end of each transfer was seen.
    shipment : int64 array [T]
        Transfers with the same number were one message.
    durations, lengths : float64 array [runs, m], [runs, T]
        Seconds of every batch and transfer in each run; NaN for transfers whose end was not seen.
    makespans : float64 array [runs]
        Seconds of each run, which may be longer than its last finish.
    measured : bool
        False for a forecast.
    machine : hetsched.costs.Machine or None
    plan_digest : str
    software : tuple of (name, version)
    clock_error : float
        Seconds by which the clocks of two devices may differ.
    """

    _format = "hetsched-timeline"
    schedule: Schedule
    cpu: FloatArray
    waited: FloatArray
    gathered: FloatArray
    seen: BoolArray
    shipment: IntArray
    durations: FloatArray
    lengths: FloatArray
    makespans: FloatArray
    measured: bool
    machine: Machine | None
    plan_digest: str
    software: tuple[tuple[str, str], ...]
    clock_error: float

    @checked(InvalidSchedule)
    def __init__(
        self,
        schedule: Schedule,
        *,
        cpu: npt.ArrayLike,
        waited: npt.ArrayLike,
        seen: npt.ArrayLike,
        shipment: npt.ArrayLike,
        durations: npt.ArrayLike,
        lengths: npt.ArrayLike,
        makespans: npt.ArrayLike,
        gathered: npt.ArrayLike | None = None,
        measured: bool = True,
        machine: Machine | None = None,
        plan_digest: str = "",
        software: Mapping[str, str] | None = None,
        clock_error: float = 0.0,
    ) -> None:
        m, moves = len(schedule.batches), len(schedule.transfers)
        spans = _column(makespans, "makespans", ("runs",))
        if not len(spans):
            raise InvalidSchedule("a timeline needs the makespan of at least one run")
        count = len(spans)
        names = tuple(sorted((software or {}).items()))
        for text in (plan_digest, *(word for pair in names for word in pair)):
            if not is_text(text):
                raise InvalidSchedule(f"{text!r} is not Unicode text, as the digest and names and versions of software must be")
        if not (math.isfinite(clock_error) and clock_error >= 0):
            raise InvalidSchedule(f"clock_error is {clock_error}; it must be a finite number of seconds, at least 0")
        self._set(
            schedule=schedule,
            cpu=_column(cpu, "cpu", (m,), unknown=True),
            waited=_column(waited, "waited", (m,)),
            gathered=_column(np.zeros(m) if gathered is None else gathered, "gathered", (m,)),
            seen=readonly(check_array(seen, "seen", (moves,), np.bool_, error=InvalidSchedule)),
            shipment=readonly(check_array(shipment, "shipment", (moves,), np.int64, error=InvalidSchedule)),
            durations=_column(durations, "durations", (count, m)),
            lengths=_column(lengths, "lengths", (count, moves), unknown=True),
            makespans=spans,
            measured=measured,
            machine=machine,
            plan_digest=plan_digest,
            software=names,
            clock_error=float(clock_error),
        )

    @classmethod
    @checked(InvalidSchedule)
    def of_runs(
        cls,
        problem: Problem,
        decision: Decision,
        runs: Sequence[RunTimes],
        *,
        carried: Sequence[Sequence[int]],
        machine: Machine | None = None,
        plan_digest: str = "",
        software: Mapping[str, str] | None = None,
        clock_error: float = 0.0,
    ) -> Timeline:
        """Return the timeline of measured runs.

        Parameters
        ----------
        problem : Problem
        decision : Decision
        runs : sequence of RunTimes
            The runs that count; those for warming up left out.
        carried : sequence of sequences of int
            The transfers that each send of the plan carries: ``plan.carried``.
        machine, plan_digest, software, clock_error
            See the attributes.
        """
        if not runs:
            raise InvalidSchedule("there are no runs to make a timeline of; give at least one")
        timing = TimedDecision(problem, decision)
        arcs = timing.arcs
        moving = np.flatnonzero(arcs.moving)
        served: list[list[int]] = [[] for _ in moving]
        for send, rows in enumerate(carried):
            for row in rows:
                if not 0 <= row < len(moving):
                    raise InvalidSchedule(f"carried[{send}] names transfer {row}; the decision has {len(moving)}, from 0")
                served[row].append(send)
        for place, sends in enumerate(served):
            if not sends:
                raise InvalidSchedule(f"no send carries transfer {place}; carried must name all transfers of the decision")
        times = [_checked_run(run, f"runs[{r}]", decision.n_batches, len(carried)) for r, run in enumerate(runs)]
        spans = np.array([run.makespan for run in times])
        shown = times[int(np.abs(spans - np.median(spans)).argmin())]
        lasts = timing.duration > 0
        durations = np.array([np.where(lasts, run.finish - run.start, 0.0) for run in times])
        flat = np.array([send for sends in served for send in sends], np.int64)
        first = row_starts([len(sends) for sends in served])[:-1]

        def ends(run: RunTimes) -> tuple[FloatArray, FloatArray]:
            """Return when the first send of each transfer was posted, and the last one seen; NaN if one was not seen."""
            if not len(first):
                return np.zeros(0), np.zeros(0)
            posted, seen = np.minimum.reduceat(run.posted[flat], first), np.maximum.reduceat(run.seen[flat], first)
            return posted, np.where((seen < posted) & (posted - seen <= clock_error), posted, seen)  # by clocks that differ so much

        lengths = np.array([seen - posted for posted, seen in map(ends, times)])
        start = np.where(lasts, shown.start, shown.finish)
        posted, seen = ends(shown)
        latest = np.maximum(start[arcs.target[moving]], posted)
        arrived = np.where(np.isnan(seen), np.minimum(posted + arcs.seconds[moving], latest), seen)
        batches = Columns(task=decision.task, device=decision.device, start=start, finish=shown.finish, size=decision.sizes)
        columns = {name: getattr(arcs, name)[moving] for name in ("edge", "source", "target")}
        return cls(
            Schedule.of_problem(
                problem.graph.names,
                problem.cluster.names,
                problem.inputs,
                batches,
                decision.item_ptr,
                decision.items,
                Columns(**columns, start=posted, finish=arrived),
            ),
            cpu=shown.cpu,
            waited=shown.waited,
            gathered=shown.gathered,
            seen=~np.isnan(seen),
            shipment=np.array([sends[0] for sends in served], np.int64),
            durations=durations,
            lengths=lengths,
            makespans=spans,
            machine=machine,
            plan_digest=plan_digest,
            software=software,
            clock_error=clock_error,
        )

    def __repr__(self) -> str:
        what = f"{len(self.makespans)} runs, median" if self.measured else "forecast,"
        return f"<Timeline of {len(self.schedule.batches)} batches on {len(self.schedule.devices)} devices, {what} {self.makespan:.6g} s>"

    @checked
    def write(self, path: str | PathLike[str]) -> None:
        """Write the timeline as a JSON document; ``hetsched.read`` reads it back to the bit."""
        documents.write(self, path)

    @cached_property
    def common(self) -> IntArray:
        """Number of inputs of each transfer, those in both of its batches, [T]."""
        schedule = self.schedule
        items = [set(own.tolist()) for own in np.split(schedule.items, schedule.item_ptr[1:-1])]
        moves = zip(schedule.transfers.source.tolist(), schedule.transfers.target.tolist(), strict=True)
        return np.array([len(items[a] & items[b]) for a, b in moves], np.int64)

    @property
    def makespan(self) -> float:
        """Median makespan of the runs in seconds."""
        return float(np.median(self.makespans))

    @property
    def spread(self) -> tuple[float, float]:
        """The quartiles of the runs' makespans in seconds."""
        q25, q75 = np.quantile(self.makespans, [0.25, 0.75]).tolist()
        return q25, q75

    @cached_property
    def quartiles(self) -> Columns:
        """Of each batch, its seconds over all runs: columns `q25`, `median`, `q75`."""
        return Columns(**dict(zip(("q25", "median", "q75"), np.quantile(self.durations, [0.25, 0.5, 0.75], axis=0), strict=True)))

    @cached_property
    def stolen(self) -> float:
        """Part of the time of batches in which their threads did not compute: wall clock less CPU time, of the run that `schedule`
        has; NaN if unknown."""
        wall = self.schedule.batches.finish - self.schedule.batches.start
        known = ~np.isnan(self.cpu) & (wall > 0)
        total = float(wall[known].sum())
        return float(np.maximum(wall[known] - self.cpu[known], 0.0).sum()) / total if total > 0 else float("nan")

    @property
    def disturbed(self) -> bool:
        """Whether so much time was stolen that the runs support no claim."""
        return self.stolen > DISTURBED

    @checked
    def problem(self, problem: Problem) -> Problem:
        """Return a problem with the times of `schedule`: its durations and transfers in place of those of `problem`.

        Communication is ``"delay"``: no engine enforces the order of transfers. What did not run keeps its times. Of several equal
        batches of a task on a device (``batching="free"``) one has its own time, so that the check finds the others to differ.
        ``hetsched.verify(timeline.problem(problem), timeline.schedule)`` checks that a run kept precedence and memory, and ran one
        batch at a time on each device; ``hetsched.runtime.verify_run`` checks the order of batches too.

        Raises
        ------
        InvalidSchedule
            The timeline is of another problem.
        """
        self._check(problem)
        batches = self.schedule.batches
        return self.replayed(problem, batches.finish - batches.start, self.schedule.transfers.finish - self.schedule.transfers.start)

    def replayed(self, problem: Problem, durations: FloatArray, lengths: FloatArray | None = None) -> Problem:
        """Return a problem in which the batches take `durations` [m] and the transfers `lengths` [T] seconds.

        NaN keeps the seconds of `problem`; without `lengths` so do all transfers, under its communication model. A problem has one
        duration for equal batches of a task on a device: that of the last one.
        """
        self._check(problem)
        batches, moves, inputs = self.schedule.batches, self.schedule.transfers, problem.inputs
        table = problem.durations.copy()
        place = np.searchsorted(problem.batch_sizes, batches.size)
        was = table[batches.task, batches.device, place]
        table[batches.task, batches.device, place] = np.where(np.isnan(durations), was, durations)
        if lengths is None:
            return problem.replace(durations=table, batch_sizes=problem.batch_sizes)
        size = problem.n_devices
        edge, h, k = np.ogrid[: problem.graph.n_edges, :size, :size]
        seconds = problem.transfer_times(edge, h, k, inputs) / inputs
        h, k = batches.device[moves.source], batches.device[moves.target]
        seconds[moves.edge, h, k] = np.where(np.isnan(lengths), seconds[moves.edge, h, k], lengths / self.common)
        seconds[np.isinf(seconds)] = np.nan
        return problem.replace(durations=table, batch_sizes=problem.batch_sizes, transfers=seconds, communication="delay")

    def _check(self, problem: Problem) -> None:
        schedule = self.schedule
        same = schedule.tasks == problem.graph.names and schedule.devices == problem.cluster.names
        edge = schedule.transfers.edge
        same = same and (not len(edge) or (0 <= edge.min() and edge.max() < problem.graph.n_edges))
        if not same or schedule.n_inputs != problem.inputs or not np.isin(schedule.batches.size, problem.batch_sizes).all():
            raise InvalidSchedule("the timeline is of another problem; give the one that its decision was made for")


def _column(values: npt.ArrayLike, what: str, shape: tuple[int | str, ...], *, unknown: bool = False) -> FloatArray:
    """Return finite seconds, at least 0; NaN too where they may be `unknown`."""
    column = np.array(check_array(values, what, None, error=InvalidSchedule))
    if not column.size and 0 in shape:
        column = column.reshape(tuple(length for length in shape if isinstance(length, int)))
    check_array(column, what, shape, error=InvalidSchedule)
    valid = (np.isfinite(column) & (column >= 0)) | (np.isnan(column) & unknown)
    if not valid.all():
        known = ", or NaN if unknown" if unknown else ""
        raise InvalidSchedule(f"{what} has {column[~valid][0]}; it must be finite seconds, at least 0{known}")
    return readonly(column)


def _checked_run(run: RunTimes, what: str, m: int, sends: int) -> RunTimes:
    """Return the times of a run as arrays of the lengths needed."""

    def column(name: str, length: int) -> FloatArray:
        return check_array(getattr(run, name), f"{what}.{name}", (length,), error=InvalidSchedule)

    columns = {name: column(name, m) for name in ("start", "finish", "cpu", "waited")}
    columns |= {name: column(name, sends) for name in ("posted", "seen")}
    return RunTimes(**columns, makespan=float(run.makespan), gathered=None if run.gathered is None else column("gathered", m))
