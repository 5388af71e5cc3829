"""`compare`: a run beside its forecast."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hetsched.cli.files import Outputs, check_writable, read_answer, read_problem, read_timeline
from hetsched.cli.options import JSON, Gantt, ProblemFile, ScheduleFile
from hetsched.cli.pictures import Pictures
from hetsched.cli.terminal import Working, say, say_json

RunFile = Annotated[Path, typer.Argument(help="A timeline document of runs of the schedule.", metavar="RUN")]


def compare(problem: ProblemFile, schedule: ScheduleFile, run: RunFile, gantt: Gantt = None, json: JSON = False) -> None:
    """Compare runs of a schedule with its forecast.

    Replays of the schedule with measured times split the error. The run is verified too: exit code 1 if it broke a rule. With --gantt
    each device has a row of the run and one of the forecast.

    Example: [bold]hetsched compare problem.json schedule.json run.json[/bold]
    """
    from hetsched.runtime import compare, forecast

    check_writable(gantt, sources=[problem, schedule, run])
    Pictures(None, None, gantt, "op").check()
    instance, answer, measured = read_problem(problem), read_answer(schedule), read_timeline(run)
    with Working("comparing"):
        comparison = compare(instance, answer, measured)
    outputs = Outputs()
    if gantt is not None:
        from hetsched.report import write_gantt

        expected = forecast(instance, measured.schedule, measured.machine)
        outputs.write(gantt, lambda path: write_gantt(instance, measured.schedule, path, against=expected))
    if json:
        say_json({**comparison.to_dict(), "written": outputs.written})
    else:
        kept = [] if comparison.violations else ["", "valid: the run kept every rule"]
        say(*str(comparison).splitlines(), *kept, *(f"wrote {name}" for name in outputs.written))
    outputs.finish()
    raise typer.Exit(1 if comparison.violations else 0)
