"""What the terminal says of an answer: while it is looked for, in lines, as JSON, as an exit code."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from hetsched.cli.terminal import INTERRUPTED
from hetsched.report.units import percent, seconds, size

if TYPE_CHECKING:
    from hetsched.problem.problem import Problem
    from hetsched.search import Event
    from hetsched.search.solution import Solution


def outcome(found: Solution) -> int:
    """Return the exit code of a solution: 0 with a schedule, 1 without, another if interrupted."""
    if found.stopped in INTERRUPTED:
        return INTERRUPTED[found.stopped]
    return 0 if found.schedule is not None else 1


class News:
    """What a live line says of a solve: value, bound and gap, and of several methods which of them found the two."""

    def __init__(self, names: list[str], objective: str = "makespan") -> None:
        self.objective = objective
        self.alone = len(names) == 1 and names[0] != "auto"
        self.title = f"{names[0]}: " if len(names) == 1 else ""
        self.incumbent, self.bound = math.inf, 0.0
        self.found_by = self.proved_by = ""

    def __call__(self, event: Event) -> tuple[str, ...]:
        """Return the line in full, and for narrower terminals."""
        if event.incumbent < self.incumbent:
            self.incumbent, self.found_by = event.incumbent, event.source
        if event.bound > self.bound:
            self.bound, self.proved_by = event.bound, event.source
        found, proved = ("", "") if self.alone else (f" ({self.found_by})", f" ({self.proved_by})" if self.proved_by else "")
        makespan = "" if math.isinf(event.incumbent) else seconds(event.incumbent)
        gap = f", gap {percent(event.gap)}" if makespan else ""
        nodes = f", {event.nodes:,} node{'s' if event.nodes > 1 else ''}" if event.nodes and self.alone else ""
        bound = f"bound {seconds(event.bound)}"
        return (
            f"{self.title}{f'{self.objective} {makespan}{found}' if makespan else 'no schedule yet'}, {bound}{proved}{gap}{nodes}",
            f"{self.title}{f'{makespan}{found}' if makespan else 'none yet'}, {bound}{gap}{nodes}",
            f"{makespan or 'none yet'}, {bound}{gap}",
        )


def facts(found: Solution) -> dict[str, Any]:
    """Return what a machine is told about a solution."""
    return {
        "status": str(found.status),
        "objective": found.objective,
        "value": found.value,
        "makespan": found.makespan,
        "period": found.period,
        "throughput": found.throughput,
        "bound": found.bound,
        "bound_name": found.proof.name,
        "bound_evidence": found.proof.evidence,
        "gap": found.gap,
        "method": found.method,
        "seed": found.seed,
        "stopped": found.stopped,
        "messages": list(found.messages),
        "best_effort_bytes_over": None if found.best_effort is None else found.best_effort.bytes_over,
    }


def summary(problem: Problem, found: Solution, broken: str = "") -> list[tuple[str, str]]:
    """Return what is to be said about a solution: labels and facts; `broken` is the first rule its schedule breaks."""
    extent = f"{problem.n_tasks} tasks, {problem.graph.n_edges} edges, {problem.n_devices} devices"
    why = "" if str(found.stopped) == str(found.status) else f" ({found.stopped})"
    status = f"NOT VALID: {broken}" if broken else f"{found.status}{why}"
    rows = [("problem", f"{extent}, {problem.communication} communication"), ("status", status)]
    if found.schedule is not None:
        inputs = "" if problem.inputs == 1 else f" for {problem.inputs} inputs"
        if found.objective == "makespan":
            rows.append(("makespan", f"{seconds(found.makespan)}{inputs}, {found.throughput:.4g} inputs/s"))
        else:
            rows.append((found.objective, f"{seconds(found.value)} per input, {found.throughput:.4g} inputs/s"))
            rows.append(("makespan", f"{seconds(found.makespan)}{inputs}"))
        if not broken:
            rows += [("verified", "yes, by the independent check"), ("gap", percent(found.gap))]
    if found.best_effort is not None:
        effort = found.best_effort
        rows.append(("nearest", f"{seconds(effort.schedule.makespan)}, but {size(effort.bytes_over)} over the memory there is"))
    rows.append(("bound", f"{seconds(found.bound)} by {found.proof.name}: {found.proof.evidence}"))
    return rows
