"""`compare`: a run beside its forecast, or one profile beside another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hetsched.cli.files import Outputs, check_writable, read_answer, read_problem, read_profile, read_timeline
from hetsched.cli.options import JSON, Gantt
from hetsched.cli.pictures import Pictures
from hetsched.cli.terminal import Working, say, say_json

First = Annotated[Path, typer.Argument(help="The problem that the schedule was made for; or the old profile.", metavar="PROBLEM")]
Second = Annotated[Path, typer.Argument(help="A schedule or solution document; or the new profile.", metavar="SCHEDULE")]
RunFile = Annotated[Path | None, typer.Argument(help="A timeline document of runs of the schedule.", metavar="[RUN]")]


def compare(problem: First, schedule: Second, run: RunFile = None, gantt: Gantt = None, json: JSON = False) -> None:
    """Compare runs of a schedule with its forecast, or a new profile with an old one.

    Replays of the schedule with measured times split the error. The run is verified too: exit code 1 if it broke a rule. With --gantt
    each device has a row of the run and one of the forecast. Of two profiles the seconds of the same operators are compared.

    Example: [bold]hetsched compare problem.json schedule.json run.json[/bold]

    Example: [bold]hetsched compare old.json new.json[/bold]
    """
    if run is None:
        _profiles(problem, schedule, gantt, json)
        return
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


def _profiles(old: Path, new: Path, gantt: Path | None, json: bool) -> None:
    from hetsched.costs import compare_profiles

    if gantt is not None:
        raise typer.BadParameter("two profiles have no Gantt chart; leave it out, or give PROBLEM SCHEDULE RUN", param_hint="--gantt")
    comparison = compare_profiles(read_profile(old), read_profile(new))
    if json:
        say_json(comparison.to_dict())
    else:
        say(*str(comparison).splitlines())
