"""The comparison of a run with its forecast: how far off, and from what."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from hetsched.analysis.critical_chain import critical_chain
from hetsched.arguments import checked
from hetsched.arrays import BoolArray, Columns, FloatArray, Frozen, IntArray, texts
from hetsched.costs.timeline import DISTURBED, Timeline
from hetsched.errors import InvalidSchedule, printable
from hetsched.problem.problem import Problem
from hetsched.runtime.forecast import forecast
from hetsched.schedule.decision import Decision
from hetsched.schedule.schedule import Schedule
from hetsched.schedule.simulate import TimedDecision
from hetsched.search.solution import Solution
from hetsched.verification.verify import Violation, verify

SHOWN = 10
"""The number of tasks and of transfers that the text has."""
BETWEEN_CLOCKS = ("precedence", "transfer-early", "order")
"""The rules that compare times of two clocks."""
Table = Literal["replays", "devices", "tasks", "transfers"]


class Comparison(Frozen):
    """A forecast beside what was measured, see `compare`; seconds.

    Attributes
    ----------
    forecast : float
        Makespan by ``forecast(problem, answer, measured)``, with the machine's overheads if the timeline has them.
    run, q25, q75 : float
        Median makespan of the runs, and the quartiles.
    runs : int
    replays : Columns (name, durations, transfers, makespan, difference, tells)
        Makespans by `simulate` with forecast and with measured times; each difference to the row before is one part of the error.
    devices : Columns (device, batches, forecast, busy, slower, waiting, gathering, dispatch, end)
        Seconds of the run shown by the timeline: in batches, as forecast and measured, and the quotient of these; waiting for
        data; putting together inputs of several batches; between batches; after the last one.
    tasks : Columns (task, device, forecast, measured, deviation, critical, cost)
        Medians, the costliest first; the cost of a deviation is itself if the task is on the critical chain of the run, else 0.
    transfers : Columns (source, target, sender, receiver, forecast, measured, deviation, seen, critical, cost)
        The same; `seen` is the number of runs in which the end was seen, without which `measured` is NaN.
    together : int
        Transfers of the problem that went with another one in one message.
    saved : float
        Seconds that the problem has for them.
    stolen : float
        Part of the time of batches in which their threads did not compute; NaN if unknown.
    violations : tuple of Violation
        The rules that the run broke, by `verify_run`; the critical chain is then unknown.
    """

    forecast: float
    run: float
    q25: float
    q75: float
    runs: int
    replays: Columns
    devices: Columns
    tasks: Columns
    transfers: Columns
    together: int
    saved: float
    stolen: float
    violations: tuple[Violation, ...]

    def __init__(self) -> None:
        raise TypeError("comparisons are made by hetsched.runtime.compare(problem, schedule, timeline)")

    @property
    def error(self) -> float:
        """Forecast minus run, as a part of the run; 0 if both are 0."""
        return _part(self.forecast - self.run, self.run)

    @property
    def engine(self) -> float:
        """What no replay explains, as a part of the run: dispatch, interpreters, hand-offs."""
        return _part(float(self.replays.difference[-1]), self.run)

    @property
    def disturbed(self) -> bool:
        """Whether so much time was stolen that the runs support no claim."""
        return self.stolen > DISTURBED

    def __repr__(self) -> str:
        return f"<Comparison: forecast {self.forecast:.6g} s, run {self.run:.6g} s, {_signed(self.error)}>"

    def __str__(self) -> str:
        unit, scale = next((pair for pair in (("s", 1.0), ("ms", 1e-3)) if self.run >= pair[1]), ("us", 1e-6))

        def shown(seconds: float) -> str:
            return "-" if np.isnan(seconds) else f"{seconds / scale:.3f}"

        def share(value: float) -> str:
            return "-" if np.isnan(value) else f"{value:.3f}"

        stolen = "unknown" if np.isnan(self.stolen) else f"{self.stolen:.1%}".replace("%", " %")
        lines = [
            f"forecast {shown(self.forecast)} {unit}, run {shown(self.run)} {unit} (median of {self.runs}; quartiles {shown(self.q25)} and "
            f"{shown(self.q75)}), error {_signed(self.error)}",
            f"stolen {stolen}" + ("; disturbed: these runs support no claim" if self.disturbed else ""),
        ]
        if self.together:
            went = f"{self.together} of {len(self.transfers)} transfers went with another one"
            lines.append(f"edges saved: {went}; the problem has {shown(self.saved)} {unit} for them")
        rows = [
            [row["name"], row["durations"], row["transfers"], shown(row["makespan"]), shown(row["difference"]), row["tells"]]
            for row in self.replays
        ]
        rows[-1][-1] += f", {_signed(self.engine)} of the run"
        lines += ["", *_table(["replay", "durations", "transfers", unit, "difference", "from"], rows, "lllrrl")]
        names = ["forecast", "busy", "slower", "waiting", *(["gathering"] if self.devices.gathering.any() else []), "dispatch", "end"]
        rows = [
            [row["device"], str(row["batches"]), *(share(row[name]) if name == "slower" else shown(row[name]) for name in names)]
            for row in self.devices
        ]
        lines += ["", *_table(["device", "batches", *names], rows, "lr" + "r" * len(names))]
        for what, table, ends in (("task", self.tasks, ("device",)), ("transfer", self.transfers, ("target", "sender", "receiver"))):
            rows = [
                [row.get("task", row.get("source")), *(row[end] for end in ends)]
                + [shown(row[name]) for name in ("forecast", "measured", "deviation")]
                + ["yes" if row["critical"] else ""]
                for row in list(table)[:SHOWN]
            ]
            head = [what if what == "task" else "transfer of", *({"target": "to"}.get(end, end) for end in ends)]
            if rows:
                lines += ["", *_table([*head, f"forecast, {unit}", "run", "difference", "critical"], rows, "l" * len(head) + "rrrl")]
        count = len(self.violations)
        broken = [f"{violation.rule}: {violation.message}" for violation in self.violations[:SHOWN]]
        if broken:
            lines += ["", f"the run broke {count} rule{'' if count == 1 else 's'}{'' if count <= SHOWN else ', for instance'}:", *broken]
        return "\n".join(map(printable, lines))

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as numbers, texts and lists of rows; None for what is unknown."""
        names = ("forecast", "run", "q25", "q75", "runs", "error", "engine", "stolen", "disturbed", "together", "saved")
        plain = {name: _known(getattr(self, name)) for name in names}
        for name in ("replays", "devices", "tasks", "transfers"):
            plain[name] = [{key: _known(value) for key, value in row.items()} for row in getattr(self, name)]
        plain["violations"] = [
            {
                "rule": broken.rule,
                "message": broken.message,
                "amount": broken.amount,
                "tasks": [*broken.tasks],
                "devices": [*broken.devices],
            }
            for broken in self.violations
        ]
        return plain

    @checked
    def to_dataframe(self, table: Table = "tasks") -> Any:
        """Return one of the tables as a ``pandas.DataFrame``; raise `MissingDependency` without pandas."""
        return getattr(self, table).to_dataframe()


@checked
def compare(problem: Problem, answer: Decision | Schedule | Solution, measured: Timeline) -> Comparison:
    """Compare the times measured in runs of a decision with those of its problem.

    The error of the forecast is split by replays, each the makespan by `simulate` of the same decision:

    ====== ============== ============== =======================================================================
    replay durations      transfers      the difference to the row before
    ====== ============== ============== =======================================================================
    R0     of the problem of the problem
    R1     medians        of the problem error of durations
    R2     of each run    of the problem chance: the longest of paths that vary is longer than that of medians
    R3     of each run    where seen     error of transfers
    run    \\-             \\-             the engine: dispatch, interpreters, hand-offs
    ====== ============== ============== =======================================================================

    R2 and R3 are medians over the runs.

    Parameters
    ----------
    problem : Problem
        The one that the decision was made for.
    answer : Decision, Schedule or Solution
    measured : Timeline
        Of runs of this decision.

    Raises
    ------
    InvalidSchedule
        The timeline is of another problem or decision; the solution has no schedule.
    """
    schedule = answer.schedule if isinstance(answer, Solution) else answer
    if schedule is None:
        raise InvalidSchedule("the solution has no schedule to compare with; see solution.status and solution.messages")
    decision = schedule if isinstance(schedule, Decision) else schedule.decision
    shown = measured.problem(problem)  # raises for another problem
    timing = TimedDecision(problem, decision)
    row = _rows(problem, decision, timing.duration > 0, measured)
    expected = forecast(problem, decision, measured)
    lengths = measured.lengths
    replays = _replays(problem, decision, measured, timing, row)
    broken = _broken(problem, measured)
    chain = None
    if {violation.rule for violation in broken} <= {"memory"}:
        chain = critical_chain(shown, measured.schedule)
    together, saved = _together(problem, measured)
    made = Comparison.__new__(Comparison)
    made._set(
        forecast=expected.makespan,
        run=measured.makespan,
        q25=measured.spread[0],
        q75=measured.spread[1],
        runs=len(measured.makespans),
        replays=replays,
        devices=_devices(measured, timing.duration[np.argsort(row)]),
        tasks=_tasks(problem, measured, timing.duration[np.argsort(row)], None if chain is None else chain.batch[chain.batch >= 0]),
        transfers=_transfers(problem, measured, lengths, None if chain is None else chain.transfer[chain.transfer >= 0]),
        together=together,
        saved=saved,
        stolen=measured.stolen,
        violations=_counted(broken, measured),
    )
    return made


@checked
def verify_run(problem: Problem, measured: Timeline) -> list[Violation]:
    """Return the rules that a run broke; empty if it kept all of them.

    These are the violations that `hetsched.verify` finds against ``measured.problem(problem)``, and those of the order of batches: on each
    device they must have started in the order of the timeline's rows, that of the decision (rule ``"order"``, amount in seconds).
    A batch or a transfer that begins too early by no more than ``measured.clock_error`` breaks no rule.

    Raises
    ------
    InvalidSchedule
        The timeline is of another problem.
    """
    return list(_counted(_broken(problem, measured), measured))


def _counted(broken: Sequence[Violation], measured: Timeline) -> tuple[Violation, ...]:
    """Return the violations that are not explained by clocks that differ."""
    return tuple(found for found in broken if found.rule not in BETWEEN_CLOCKS or found.amount > measured.clock_error)


def _broken(problem: Problem, measured: Timeline) -> list[Violation]:
    """Return the rules that a run broke if all devices have one clock."""
    violations = verify(measured.problem(problem), measured.schedule)
    batches, names = measured.schedule.batches, problem.graph.names
    lasting = batches.finish > batches.start
    for k, device in enumerate(problem.cluster.names):
        own = np.flatnonzero(lasting & (batches.device == k))
        early = batches.start[own[:-1]] - batches.start[own[1:]]
        for place in np.flatnonzero(early > 0).tolist():
            first, second = (names[int(batches.task[row])] for row in own[place : place + 2])
            times = tuple(batches.start[own[place : place + 2]].tolist())
            message = f"on {device!r} {second!r} started {float(early[place]):.6g} s before {first!r}, which comes first in the decision"
            violations.append(Violation("order", message, float(early[place]), (first, second), (device,), times=times))
    return violations


def _rows(problem: Problem, decision: Decision, lasting: BoolArray, measured: Timeline) -> IntArray:
    """Return the row in the timeline's schedule of each batch of the decision, [m]; those that are not `lasting` may be in any order."""
    schedule = measured.schedule
    row = schedule.batch_of[decision.task, decision.items[decision.item_ptr[:-1]]]
    same = len(row) == len(schedule.batches) and (row >= 0).all() and (schedule.batches.device[row] == decision.device).all()
    if not same or not np.array_equal(
        schedule.batch_of[np.repeat(decision.task, decision.sizes), decision.items], np.repeat(row, decision.sizes)
    ):
        raise InvalidSchedule("the timeline is of another decision: tasks ran on other devices; give the schedule that was run")
    if (np.diff(row[lasting]) < 0).any():
        raise InvalidSchedule("the timeline is of another decision: tasks of a device are in another order; give the schedule that was run")
    return row


class _Replay(NamedTuple):
    name: str
    durations: str
    transfers: str
    makespan: float
    tells: str


def _replays(problem: Problem, decision: Decision, measured: Timeline, timing: TimedDecision, row: IntArray) -> Columns:
    """Return the table of replays; `row` [m] has the row in the timeline of each batch of the decision."""
    durations = measured.durations[:, row]

    def length(timed: TimedDecision, seconds: FloatArray) -> float:
        return float((timed.starts(seconds)[0] + seconds).max(initial=0.0))

    own = [length(timing, seconds) for seconds in durations]
    # Without contention, as in `Timeline.problem`, and with the seconds of each run in turn.
    transfers = []
    replaced = TimedDecision(measured.replayed(problem, np.full(decision.n_batches, np.nan), measured.lengths[0]), decision)
    arcs, moves = replaced.arcs, measured.schedule.transfers
    place = {ends: x for x, ends in enumerate(zip(moves.edge.tolist(), moves.source.tolist(), moves.target.tolist(), strict=True))}
    moving = np.flatnonzero(arcs.moving)
    ends = zip(arcs.edge[moving].tolist(), row[arcs.source[moving]].tolist(), row[arcs.target[moving]].tolist(), strict=True)
    order = np.array([place[own] for own in ends], np.int64)
    for seconds, moved in zip(durations, measured.lengths, strict=True):
        taken = timing.arcs.seconds.copy()
        own_lengths = moved[order]
        taken[moving] = np.where(np.isnan(own_lengths), taken[moving], own_lengths)
        replaced.arcs = arcs._replace(seconds=taken)
        transfers.append(length(replaced, seconds))
    rows = [
        _Replay("R0", "forecast", "forecast", length(timing, timing.duration), ""),
        _Replay("R1", "medians", "forecast", length(timing, np.median(durations, axis=0)), "error of durations"),
        _Replay("R2", "each run's", "forecast", float(np.median(own)), "chance"),
        _Replay("R3", "each run's", "where seen", float(np.median(transfers)), "error of transfers"),
        _Replay("run", "", "", measured.makespan, "engine"),
    ]
    makespans = np.array([row.makespan for row in rows])
    return Columns(
        name=texts(row.name for row in rows),
        durations=texts(row.durations for row in rows),
        transfers=texts(row.transfers for row in rows),
        makespan=makespans,
        difference=np.diff(makespans, prepend=np.nan),
        tells=texts(row.tells for row in rows),
    )


def _devices(measured: Timeline, expected: FloatArray) -> Columns:
    """Return the table of devices; `expected` [m] are the durations by the problem, in the order of the timeline."""
    batches, count = measured.schedule.batches, len(measured.schedule.devices)
    busy = np.bincount(batches.device, batches.finish - batches.start, count)
    own = np.bincount(batches.device, expected, count)
    waiting = np.bincount(batches.device, measured.waited, count)
    gathering = np.bincount(batches.device, measured.gathered, count)
    last = np.zeros(count)
    np.maximum.at(last, batches.device, batches.finish)
    span = max(float(batches.finish.max(initial=0.0)), 0.0)
    return Columns(
        device=texts(measured.schedule.devices),
        batches=np.bincount(batches.device, minlength=count),
        forecast=own,
        busy=busy,
        slower=np.divide(busy, own, out=np.full(count, np.nan), where=own > 0),
        waiting=waiting,
        gathering=gathering,
        dispatch=np.maximum(last - busy - waiting - gathering, 0.0),
        end=span - last,
    )


def _costliest(columns: dict[str, Any], deviation: FloatArray, critical: IntArray | None) -> Columns:
    """Return a table with the cost of each row's deviation, the largest first."""
    on_chain = np.zeros(len(deviation), bool)
    if critical is not None:
        on_chain[critical] = True
    known = np.nan_to_num(deviation)
    cost = np.where(on_chain, known, 0.0)
    order = np.lexsort((-np.abs(known), -np.abs(cost)))
    table = Columns(**columns, deviation=deviation, critical=on_chain, cost=cost)
    return Columns(**{name: table[name][order] for name in table.names})


def _tasks(problem: Problem, measured: Timeline, expected: FloatArray, critical: IntArray | None) -> Columns:
    batches = measured.schedule.batches
    median = measured.quartiles.median
    columns = {
        "task": texts(problem.graph.names)[batches.task],
        "device": texts(problem.cluster.names)[batches.device],
        "forecast": expected,
        "measured": median,
    }
    return _costliest(columns, median - expected, critical)


def _transfers(problem: Problem, measured: Timeline, lengths: FloatArray, critical: IntArray | None) -> Columns:
    batches, moves = measured.schedule.batches, measured.schedule.transfers
    sender, receiver = batches.device[moves.source], batches.device[moves.target]
    expected = _seconds(problem, measured)
    seen = (~np.isnan(lengths)).sum(axis=0)
    median = np.array([np.median(own[~np.isnan(own)]) if (~np.isnan(own)).any() else np.nan for own in lengths.T], np.float64)
    tasks, devices = texts(problem.graph.names), texts(problem.cluster.names)
    columns = {
        "source": tasks[batches.task[moves.source]],
        "target": tasks[batches.task[moves.target]],
        "sender": devices[sender],
        "receiver": devices[receiver],
        "forecast": expected,
        "measured": median,
        "seen": seen,
    }
    return _costliest(columns, median - expected, critical)


def _seconds(problem: Problem, measured: Timeline) -> FloatArray:
    """Return the seconds that the problem has for each transfer, [T]."""
    device, moves = measured.schedule.batches.device, measured.schedule.transfers
    if not len(moves):
        return np.zeros(0)
    return problem.transfer_times(moves.edge, device[moves.source], device[moves.target], measured.common)


def _together(problem: Problem, measured: Timeline) -> tuple[int, float]:
    """Return how many transfers went with another one, and the seconds that the problem has for them beside the longest."""
    seconds = _seconds(problem, measured)
    shipments, which = np.unique(measured.shipment, return_inverse=True)
    longest = np.zeros(len(shipments))
    np.maximum.at(longest, which, seconds)
    return len(seconds) - len(shipments), max(float(seconds.sum() - longest.sum()), 0.0)


def _part(amount: float, whole: float) -> float:
    return amount / whole if whole > 0 else 0.0


def _signed(part: float) -> str:
    return f"{part:+.1%}".replace("%", " %")


def _known(value: Any) -> Any:
    return None if isinstance(value, float) and np.isnan(value) else value


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], align: str) -> list[str]:
    """Return rows of text with a head, aligned left ("l") or right ("r")."""
    cells = [list(head), *map(list, rows)]
    widths = [max(len(row[c]) for row in cells) for c in range(len(head))]
    pad = [str.ljust if side == "l" else str.rjust for side in align]
    return ["  ".join(pad[c](row[c], widths[c]) for c in range(len(head))).rstrip() for row in cells]
