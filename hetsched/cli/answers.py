"""A solution in the terminal: progress line, labelled rows, JSON facts and exit code."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from hetsched.cli.terminal import INTERRUPTED
from hetsched.problem.units import percent, seconds, size

if TYPE_CHECKING:
    from hetsched.costs.timeline import Timeline
    from hetsched.problem.problem import Problem
    from hetsched.schedule.schedule import Schedule
    from hetsched.search import Event
    from hetsched.search.solution import Solution
    from hetsched.verification.verify import Violation


def outcome(solution: Solution) -> int:
    """Return the exit code of a solution: 0 with a schedule, 1 without, another if interrupted."""
    if solution.stopped in INTERRUPTED:
        return INTERRUPTED[solution.stopped]
    return 0 if solution.schedule is not None else 1


class News:
    """The progress line of a solve: value, bound and gap, and with several methods the sources of value and bound."""

    def __init__(self, names: list[str], objective: str = "makespan") -> None:
        self.objective = objective
        self.alone = len(names) == 1 and names[0] != "auto"
        self.title = f"{names[0]}: " if len(names) == 1 else ""
        self.incumbent, self.bound = math.inf, 0.0
        self.found_by = self.proved_by = ""

    def __call__(self, event: Event) -> tuple[str, ...]:
        """Return the full line, and shorter ones for narrower terminals."""
        if event.incumbent < self.incumbent:
            self.incumbent, self.found_by = event.incumbent, event.source
        if event.bound > self.bound:
            self.bound, self.proved_by = event.bound, event.source
        source, proved = ("", "") if self.alone else (f" ({self.found_by})", f" ({self.proved_by})" if self.proved_by else "")
        makespan = "" if math.isinf(event.incumbent) else seconds(event.incumbent)
        gap = f", gap {percent(event.gap)}" if makespan else ""
        nodes = f", {event.nodes:,} node{'s' if event.nodes > 1 else ''}" if event.nodes and self.alone else ""
        bound = f"bound {seconds(event.bound)}"
        return (
            f"{self.title}{f'{self.objective} {makespan}{source}' if makespan else 'no schedule yet'}, {bound}{proved}{gap}{nodes}",
            f"{self.title}{f'{makespan}{source}' if makespan else 'none yet'}, {bound}{gap}{nodes}",
            f"{makespan or 'none yet'}, {bound}{gap}",
        )


def facts(solution: Solution) -> dict[str, Any]:
    """Return the fields of a solution that are printed as JSON."""
    return {
        "status": str(solution.status),
        "objective": solution.objective,
        "value": solution.value,
        "makespan": solution.makespan,
        "period": solution.period,
        "throughput": solution.throughput,
        "bound": solution.bound,
        "bound_name": solution.proof.name,
        "bound_evidence": solution.proof.evidence,
        "bound_trust": solution.proof.trust,
        "gap": solution.gap,
        "method": solution.method,
        "seed": solution.seed,
        "stopped": solution.stopped,
        "messages": list(solution.messages),
        "best_effort_bytes_over": None if solution.best_effort is None else solution.best_effort.bytes_over,
    }


def summary(problem: Problem, solution: Solution, broken: str = "") -> list[tuple[str, str]]:
    """Return labels and facts of a solution; `broken` is the message of the first rule that its schedule breaks."""
    why = "" if str(solution.stopped) == str(solution.status) else f" ({solution.stopped})"
    status = f"NOT VALID: {broken}" if broken else f"{solution.status}{why}"
    rows = [("problem", f"{_extent(problem)}, {problem.communication} communication"), ("status", status)]
    if solution.schedule is not None:
        inputs = "" if problem.inputs == 1 else f" for {problem.inputs} inputs"
        if solution.objective == "makespan":
            rows.append(("makespan", f"{seconds(solution.makespan)}{inputs}, {solution.throughput:.4g} inputs/s"))
        else:
            rows.append((solution.objective, f"{seconds(solution.value)} per input, {solution.throughput:.4g} inputs/s"))
            rows.append(("makespan", f"{seconds(solution.makespan)}{inputs}"))
        if not broken:
            rows += [("verified", "yes, by the independent check"), ("gap", percent(solution.gap))]
    if solution.best_effort is not None:
        effort = solution.best_effort
        rows.append(("nearest", f"{seconds(effort.schedule.makespan)}, but {size(effort.bytes_over)} over the available memory"))
    trust = "" if solution.proof.trust == "computed" else f" ({solution.proof.trust})"
    rows.append(("bound", f"{seconds(solution.bound)} by {solution.proof.name}{trust}: {solution.proof.evidence}"))
    return rows


def broken_rules(problem: Problem, result: Schedule | Solution | Timeline) -> list[Violation]:
    """Return the rules that a schedule, or the run of a timeline, breaks."""
    from hetsched import Schedule, verify
    from hetsched.costs.timeline import Timeline
    from hetsched.runtime import verify_run

    if isinstance(result, Timeline):
        return verify_run(problem, result)
    schedule = result if isinstance(result, Schedule) else result.schedule
    assert schedule is not None
    return verify(problem, schedule)


def run_facts(timeline: Timeline) -> dict[str, Any]:
    """Return the fields of a timeline that are printed as JSON."""
    q25, q75 = timeline.spread
    return {
        "measured": timeline.measured,
        "runs": len(timeline.makespans),
        "makespan": timeline.makespan,
        "q25": q25,
        "q75": q75,
        "stolen": None if math.isnan(timeline.stolen) else timeline.stolen,
        "disturbed": timeline.disturbed,
    }


def run_summary(problem: Problem, timeline: Timeline, broken: str = "") -> list[tuple[str, str]]:
    """Return labels and facts of a timeline; `broken` is the message of the first rule that its run breaks."""
    q25, q75 = timeline.spread
    count = len(timeline.makespans)
    runs = f", median of {count} runs; quartiles {seconds(q25)} and {seconds(q75)}" if timeline.measured else ", forecast"
    rows = [
        ("problem", _extent(problem)),
        ("status", f"NOT VALID: {broken}" if broken else "every rule kept, by the independent check"),
        ("makespan", f"{seconds(timeline.makespan)}{runs}"),
    ]
    if timeline.measured:
        stolen = "unknown" if math.isnan(timeline.stolen) else percent(timeline.stolen)
        rows.append(("stolen", stolen + ("; disturbed: these runs support no claim" if timeline.disturbed else "")))
    return rows


def _extent(problem: Problem) -> str:
    return f"{problem.n_tasks} tasks, {problem.graph.n_edges} edges, {problem.n_devices} devices"
