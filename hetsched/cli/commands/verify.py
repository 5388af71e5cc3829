"""`verify`: the independent check of a schedule."""

from __future__ import annotations

import typer

from hetsched.cli.answers import broken_rules
from hetsched.cli.files import read_problem, read_result
from hetsched.cli.options import JSON, ProblemFile, ResultFile
from hetsched.cli.terminal import Working, say, say_json
from hetsched.errors import InvalidSchedule, one_line
from hetsched.problem.units import seconds


def verify(problem: ProblemFile, schedule: ResultFile, json: JSON = False) -> None:
    """Verify a schedule by the independent check.

    The check shares no code with the schedulers. Exit code 0 if the schedule is valid, 1 with one line per broken rule if not. The
    times of a timeline are its own: checked are the order of tasks, precedence and memory.

    Example: [bold]hetsched verify problem.json schedule.json[/bold]
    """
    from hetsched import Schedule

    instance, result = read_problem(problem), read_result(schedule)
    final = result if isinstance(result, Schedule) else result.schedule
    if final is None:
        raise InvalidSchedule(f"{schedule} holds a solution without a schedule; there is nothing to verify")
    with Working("checking"):
        violations = broken_rules(instance, result)
    if json:
        fields = ("rule", "message", "amount", "tasks", "devices")
        records = [{name: getattr(violation, name) for name in fields} for violation in violations]
        say_json({"valid": not violations, "makespan": final.makespan, "violations": records})
    elif violations:
        say(*(f"{violation.rule}: {one_line(violation.message)}" for violation in violations))
    else:
        say(f"valid: {len(final.batches)} batches and {len(final.transfers)} transfers keep every rule, makespan {seconds(final.makespan)}")
    raise typer.Exit(1 if violations else 0)
