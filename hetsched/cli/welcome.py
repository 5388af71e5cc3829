"""The page of `hetsched` without a command: a summary and the next steps."""

from __future__ import annotations

from pathlib import Path

from hetsched import __version__
from hetsched.cli.terminal import console

STEPS = (
    ("see it work", "hetsched demo"),
    ("a problem", "hetsched generate network inception_v3 -o problem.json"),
    ("your model", "hetsched capture --help"),
    ("solve it", "hetsched solve problem.json -o schedule.json --show"),
    ("check it", "hetsched verify problem.json schedule.json"),
    ("look at it", "hetsched show problem.json schedule.json --report report.html"),
    ("how good?", "hetsched bound problem.json"),
    ("methods", "hetsched methods"),
    ("more", "hetsched --help"),
    ("Tab key", "hetsched --install-completion"),
)


def welcome() -> None:
    """Print the page; a problem in the current folder makes `solve` the next step."""
    from rich.text import Text

    screen = console()
    screen.print(Text.assemble(("hetsched", "bold"), f" {__version__}: maps and schedules task graphs on heterogeneous devices,"))
    screen.print("with a bound on the distance from the optimum, and an independent check of every schedule.\n")
    width = max(len(what) for what, _ in STEPS)
    for what, command in STEPS:
        screen.print(Text.assemble(f"  {what:<{width}}  ", (command, "bold")), soft_wrap=True)
    here = [name for name in ("problem.json", "schedule.json") if Path(name).is_file()]
    if here[:1] == ["problem.json"]:
        next_step = "hetsched solve problem.json --show" if len(here) == 1 else "hetsched show problem.json schedule.json"
        documents = " and ".join(here) + (" is" if len(here) == 1 else " are")
        screen.print(Text.assemble(f"\n{documents} here already; next: ", (next_step, "bold")))
