"""One offline HTML file about a solution: interactive charts, tables, bound and verification."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from os import PathLike
from typing import Any

import numpy as np

from hetsched.analysis.critical_chain import critical_chain
from hetsched.arguments import checked
from hetsched.arrays import Columns
from hetsched.documents import write_bytes
from hetsched.problem.problem import Problem
from hetsched.report import require
from hetsched.report.groups import groups, labels
from hetsched.report.offline import rendered
from hetsched.report.pairs import Against, paired
from hetsched.report.tables import device_table, method_table, schedule_of
from hetsched.schedule import memory
from hetsched.schedule.schedule import Schedule
from hetsched.search.solution import Solution
from hetsched.verification.verify import Violation, verify

MOST_STEPS = 500  # of the critical chain, in its table
MOST_VIOLATIONS = 50
WAITED = {"start": "nothing", "data": "its data", "device": "its device", "link": "its channel or port"}


@checked
def html(problem: Problem, solution: Solution | Schedule, *, against: Against | None = None, colour_by: str | Sequence[str] = "op") -> str:
    """Return a self-contained page about a solution, or about a schedule alone.

    It holds an interactive Gantt chart, the methods that ran, utilisation, transfers and memory of the
    devices, memory over time, the critical chain, incumbent and bound over the time of the solve, and
    the result of the independent check, which is run again.

    Parameters
    ----------
    problem : Problem
    solution : Solution or Schedule
        A solution without a schedule makes a page about its status.
    against : Schedule, Solution or Timeline, optional
        A second schedule, for instance the forecast of a run: a paler row below that of each device in the chart.
    colour_by : "op", "module", "cut" or a sequence of str
        Meaning of the colours, as in `gantt`.

    Raises
    ------
    MissingDependency
        plotly or jinja2 is not installed.
    UnsupportedFeature
        `colour_by` is not one of these.
    """
    require("html")
    nothing = isinstance(solution, Solution) and solution.schedule is None
    schedule = None if nothing else schedule_of(problem, solution)
    values = _facts(problem, solution if isinstance(solution, Solution) else None)
    if schedule is not None:
        values |= _of_schedule(problem, schedule, against, colour_by)
    return rendered("page.html.jinja", problem=problem, schedule=schedule, **values)


@checked
def write_html(
    problem: Problem,
    solution: Solution | Schedule,
    path: str | PathLike[str],
    *,
    against: Against | None = None,
    colour_by: str | Sequence[str] = "op",
) -> None:
    """Write the page of `html` to a file."""
    write_bytes(html(problem, solution, against=against, colour_by=colour_by).encode(), path)


def _facts(problem: Problem, solution: Solution | None) -> dict[str, Any]:
    """Return the fields of the page about the problem and the solve."""
    from hetsched.report.figures import progress_figure

    recorded = solution is not None and bool((np.isfinite(solution.history.incumbent) | (solution.history.bound > 0)).any())
    recorded = recorded and solution is not None and not np.isinf(solution.bound)
    return {
        "solution": solution,
        "methods": method_table(solution) if solution is not None else None,
        "progress": progress_figure(solution.history) if solution is not None and recorded else None,
        "ccr": _ccr(problem),
        "counted": f"{_count(problem.n_tasks, 'task')} on {_count(problem.n_devices, 'device')}",
    }


def _of_schedule(problem: Problem, schedule: Schedule, against: Against | None, colour_by: str | Sequence[str]) -> dict[str, Any]:
    """Return the fields of the page about a schedule; chain and memory only if it is valid."""
    from hetsched.report.figures import gantt_figure, left_out, memory_figure

    violations: list[Violation] = verify(problem, schedule)
    chain = None if violations else critical_chain(problem, schedule)
    pair = None if against is None else paired(problem, schedule, against)
    drawn = schedule if pair is None else pair.schedule
    return {
        "pair": pair,
        "violations": violations[:MOST_VIOLATIONS],
        "n_violations": len(violations),
        "left_out": left_out(drawn),
        "gantt": gantt_figure(problem, drawn, groups(problem, schedule, colour_by), chain, pair is not None),
        "devices": device_table(problem, schedule),
        "memory": None if violations else memory_figure(problem, schedule, memory.profile(problem, schedule)),
        "chain": None if chain is None else list(_steps(problem, schedule, chain)),
        "most_steps": MOST_STEPS,
        "shares": [] if chain is None else list(_shares(schedule, chain)),
    }


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _ccr(problem: Problem) -> float:
    """Return the mean transfer time of all edges divided by the mean duration of all tasks; NaN without edges.

    The communication-to-computation ratio of Celeritas, equation (1).
    """
    graph, every = problem.graph, np.arange(problem.n_devices)
    if not graph.n_edges or problem.n_devices < 2:
        return float("nan")
    times = problem.transfer_times(np.arange(graph.n_edges)[:, None, None], every[:, None], every)
    apart = times[:, every[:, None] != every]
    single = problem.durations[:, :, 0] / problem.batch_sizes[0]
    work = np.nanmean(single)
    moved = apart[np.isfinite(apart)]
    return float(moved.mean() * graph.n_edges / (work * problem.n_tasks)) if len(moved) and work > 0 else float("nan")


def _steps(problem: Problem, schedule: Schedule, chain: Columns) -> Iterator[dict[str, Any]]:
    """Yield the steps of the critical chain, with names."""
    batches, moves, names = schedule.batches, schedule.transfers, labels(schedule)
    for row in chain:
        if row["batch"] >= 0:
            what = names[row["batch"]]
            where = schedule.devices[int(batches.device[row["batch"]])]
        else:
            source, target = int(moves.source[row["transfer"]]), int(moves.target[row["transfer"]])
            what = f"transfer of {schedule.tasks[int(batches.task[source])]} to {schedule.tasks[int(batches.task[target])]}"
            where = f"{schedule.devices[int(batches.device[source])]} to {schedule.devices[int(batches.device[target])]}"
        yield {**row, "what": what, "where": where, "waited_for": WAITED[row["waited_for"]]}


def _shares(schedule: Schedule, chain: Columns) -> Iterator[tuple[str, float]]:
    """Yield the parts of the makespan along the critical chain: computing per device, transfers, waiting."""
    length = chain.finish - chain.start
    of_batch = chain.batch >= 0
    device = schedule.batches.device[chain.batch[of_batch]]
    busy = np.bincount(device, length[of_batch], len(schedule.devices))
    for k in np.argsort(-busy, kind="stable").tolist():
        if busy[k] > 0:
            yield f"computing on {schedule.devices[k]}", float(busy[k])
    moving = float(length[~of_batch].sum())
    waiting = schedule.makespan - float(length.sum())
    if moving > 0:
        yield "transfers", moving
    if waiting > 1e-9 * schedule.makespan:
        yield "waiting without a cause", waiting
