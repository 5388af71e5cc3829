"""Pictures of an answer: the report, the trace and the Gantt chart that `solve`, `demo`, `show` and `stages` write."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer

from hetsched.cli.files import Outputs
from hetsched.cli.terminal import console, say
from hetsched.report.units import seconds

if TYPE_CHECKING:
    from hetsched.problem.problem import Problem
    from hetsched.schedule.schedule import Schedule
    from hetsched.search.solution import Solution


class Pictures(NamedTuple):
    """Where the pictures go; None for those not wanted."""

    report: Path | None
    trace: Path | None
    gantt: Path | None
    colour_by: str = "op"

    @property
    def paths(self) -> tuple[Path | None, ...]:
        """Where they go."""
        return self.report, self.trace, self.gantt

    def check(self) -> None:
        """Raise an error for a format that cannot be drawn or a library that is missing, before the work."""
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
                wanted_end = " or ".join(filter(None, [", ".join(formats[:-1]), formats[-1]]))
                raise typer.BadParameter(f"{str(path)!r} does not end in {wanted_end}", param_hint=f"--{name}")
        wanted = {"html": self.report, "trace": self.trace, "gantt": self.gantt}
        require(*(part for part, path in wanted.items() if path is not None))

    def write(self, problem: Problem, found: Solution, outputs: Outputs, *, valid: bool = True) -> None:
        """Write them; without a valid schedule there is only the report, which says what is known."""
        from hetsched import report

        self.write_schedule(problem, found.schedule if valid else None, outputs)
        outputs.write(self.report, lambda path: report.write_html(problem, found, path, colour_by=self.colour_by))

    def write_schedule(self, problem: Problem, schedule: Schedule | None, outputs: Outputs) -> None:
        """Write those of a schedule alone, the trace and the Gantt chart."""
        from hetsched import report

        outputs.write(self.trace, None if schedule is None else lambda path: report.write_trace(problem, schedule, path))
        outputs.write(
            self.gantt, None if schedule is None else lambda path: report.write_gantt(problem, schedule, path, colour_by=self.colour_by)
        )


def draw(problem: Problem, schedule: Schedule, title: str) -> None:
    """Print a schedule as a Gantt chart, under a title and above what its marks mean."""
    from hetsched.cli.gantt import gantt

    screen = console()
    say("", f"{title}, {seconds(schedule.makespan)} long", "")
    for line in gantt(schedule, screen, problem.graph.op):
        screen.print(line, soft_wrap=True)
