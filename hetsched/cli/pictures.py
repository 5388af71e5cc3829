"""Pictures of a solution: the report, the trace and the Gantt chart that `solve`, `demo`, `show` and `stages` write."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer

from hetsched.cli.files import Outputs
from hetsched.cli.terminal import console, say
from hetsched.problem.units import seconds

if TYPE_CHECKING:
    from hetsched.problem.problem import Problem
    from hetsched.schedule.schedule import Schedule
    from hetsched.search.solution import Solution


class Pictures(NamedTuple):
    """Paths of the pictures; None for those that are not requested."""

    report: Path | None
    trace: Path | None
    gantt: Path | None
    colour_by: str = "op"

    @property
    def paths(self) -> tuple[Path | None, ...]:
        """The paths."""
        return self.report, self.trace, self.gantt

    def check(self) -> None:
        """Raise an error for an unknown format or a missing library, before any work."""
        from hetsched.report import GANTT_FORMATS, require
        from hetsched.report.groups import WAYS

        if self.colour_by not in WAYS:
            raise typer.BadParameter(f"{self.colour_by!r} is none of {', '.join(WAYS)}", param_hint="--colour-by")

        for name, path, formats in (
            ("report", self.report, (".html",)),
            ("trace", self.trace, (".json",)),
            ("gantt", self.gantt, GANTT_FORMATS),
        ):
            if path is not None and path.suffix.lower() not in formats:
                suffix = " or ".join(filter(None, [", ".join(formats[:-1]), formats[-1]]))
                raise typer.BadParameter(f"{str(path)!r} does not end in {suffix}", param_hint=f"--{name}")
        requested = {"html": self.report, "trace": self.trace, "gantt": self.gantt}
        require(*(part for part, path in requested.items() if path is not None))

    def write(self, problem: Problem, solution: Solution | Schedule, outputs: Outputs, *, valid: bool = True) -> None:
        """Write them; without a valid schedule only the report, which then holds the bound of a solution."""
        from hetsched import Solution, report

        schedule = solution.schedule if isinstance(solution, Solution) else solution
        self.write_schedule(problem, schedule if valid else None, outputs)
        outputs.write(self.report, lambda path: report.write_html(problem, solution, path, colour_by=self.colour_by))

    def write_schedule(self, problem: Problem, schedule: Schedule | None, outputs: Outputs) -> None:
        """Write the trace and the Gantt chart, which need only a schedule."""
        from hetsched import report

        outputs.write(self.trace, None if schedule is None else lambda path: report.write_trace(problem, schedule, path))
        outputs.write(
            self.gantt, None if schedule is None else lambda path: report.write_gantt(problem, schedule, path, colour_by=self.colour_by)
        )


def draw(problem: Problem, schedule: Schedule, title: str) -> None:
    """Print a schedule as a Gantt chart with a title and a legend."""
    from hetsched.cli.gantt import gantt

    screen = console()
    say("", f"{title}, {seconds(schedule.makespan)} long", "")
    for line in gantt(schedule, screen, problem.graph.op):
        screen.print(line, soft_wrap=True)
