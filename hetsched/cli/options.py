"""The options that several commands share."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from hetsched.cli import completion
from hetsched.cli.solver_options import fraction


def duration(given: str | float) -> float:
    """Return the seconds of a number, or of text with a unit such as ``2min``; their range is checked where they are used."""
    from hetsched.arguments.amounts import hint, parse

    with contextlib.suppress(ValueError):
        return float(given)
    try:
        return parse(str(given), "s")
    except ValueError:
        raise typer.BadParameter(f"{given!r} is not a number of seconds{hint('s')}") from None


def time_option(what: str = "Stop after this many seconds.", panel: str | None = None) -> Any:
    """Return the option of a time, in seconds unless it has its unit."""
    return typer.Option(help=what, metavar="SECONDS", parser=duration, rich_help_panel=panel)


JSON = Annotated[bool, typer.Option("--json", help="Print one JSON value and nothing else.")]
Output = Annotated[Path, typer.Option("-o", "--output", help="Write the document here.", metavar="FILE")]
ProblemFile = Annotated[Path, typer.Argument(help="A problem document.", metavar="PROBLEM")]
ScheduleFile = Annotated[Path, typer.Argument(help="A schedule or solution document.", metavar="SCHEDULE")]
ResultFile = Annotated[Path, typer.Argument(help="A schedule, solution or timeline document.", metavar="SCHEDULE")]
Seed = Annotated[int, typer.Option(help="Seed of all random choices.", metavar="NUMBER")]

_EXACT = "Exact methods"
Solver = Annotated[
    str | None,
    typer.Option(
        help="Run the exact method of this solver, or choose the solver of the methods named, such as moirai.",
        metavar="scip|highs|cpsat",
        autocompletion=completion.solvers,
        rich_help_panel=_EXACT,
    ),
]
Gap = Annotated[
    float | None,
    typer.Option(
        help="Stop once no schedule can be shorter by more than this, for instance 0.01 or 1%.",
        metavar="FRACTION",
        parser=fraction,
        rich_help_panel=_EXACT,
    ),
]
Threads = Annotated[
    int | None, typer.Option(help="Cores to use: processes of auto, threads of a solver; default all cores.", metavar="NUMBER")
]
InProcess = Annotated[
    bool,
    typer.Option(
        "--in-process",
        help="Run solvers in this process: this saves a second, but a solver that aborts ends the command without an answer.",
        rich_help_panel=_EXACT,
    ),
]

_ELSEWHERE = "Distributed work"
Workers = Annotated[
    int | None,
    typer.Option(
        help="Worker processes: of auto, or those that solve the modules of split.", metavar="NUMBER", min=1, rich_help_panel=_ELSEWHERE
    ),
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        help="Run the members of auto, or solve the modules of split, by the workers of this scheduler of dask.distributed, such as "
        "tcp://host:8786; --workers is then the most at a time.",
        metavar="ADDRESS",
        rich_help_panel=_ELSEWHERE,
    ),
]

Measured = Annotated[
    list[str] | None,
    typer.Option(
        help="Rates of a model on a device alone: tokens per second of a prompt and of generation, as in gpu0:pp512=1450,tg128=38; a "
        "file of llama-bench -o json; or a rates document. Before a file NAME: states the device.",
        metavar="RATES",
        show_default=False,
    ),
]
Reserve = Annotated[
    list[str] | None,
    typer.Option(help="Memory of a device that models leave free, as in gpu0=2GB; repeat it.", metavar="NAME=BYTES", show_default=False),
]

_PICTURES = "Pictures"
Report = Annotated[
    Path | None, typer.Option(help="Write a page for any browser, offline too.", metavar="FILE.html", rich_help_panel=_PICTURES)
]
Trace = Annotated[
    Path | None, typer.Option(help="Write a trace for ui.perfetto.dev or chrome://tracing.", metavar="FILE.json", rich_help_panel=_PICTURES)
]
Gantt = Annotated[
    Path | None, typer.Option(help="Write a Gantt chart: .png, .svg or .pdf.", metavar="FILE.png|svg|pdf", rich_help_panel=_PICTURES)
]
ColourBy = Annotated[
    str,
    typer.Option(
        help="Colour tasks by op, their operator; module, the leading part of their names; or cut, the modules of the graph "
        "(see: hetsched modules).",
        metavar="op|module|cut",
        autocompletion=completion.colours,
        rich_help_panel=_PICTURES,
    ),
]

_RULES = "Costs and rules"
ClusterName = Annotated[
    str,
    typer.Option(
        help="diviml, diviml_nodes, moirai_inter, moirai_intra, or a cluster document.",
        metavar="NAME|FILE",
        autocompletion=completion.clusters,
    ),
]
Costs = Annotated[
    Literal["analytic", "roofline"],
    typer.Option(help="Cost model: fitted to measured operators, or peaks and bandwidths alone.", rich_help_panel=_RULES),
]
Dtype = Annotated[
    str,
    typer.Option(
        help="Number format the durations are estimated for, for instance float16.",
        metavar="TYPE",
        autocompletion=completion.dtypes,
        rich_help_panel=_RULES,
    ),
]
Inputs = Annotated[int, typer.Option(help="Number of inputs that flow through the graph.", metavar="NUMBER", rich_help_panel=_RULES)]
Batching = Annotated[
    str,
    typer.Option(
        help="once: at most one batch per task and device; free: any number.",
        metavar="RULE",
        autocompletion=completion.batching,
        rich_help_panel=_RULES,
    ),
]
Communication = Annotated[
    str,
    typer.Option(
        help="delay: transfers never wait; per-input: as delay, and their time does not grow with the batch; channel: one "
        "at a time on each link; port: one in and one out at a time on each device; node: the same on each node.",
        metavar="MODEL",
        autocompletion=completion.communication,
        rich_help_panel=_RULES,
    ),
]
Memory = Annotated[
    str,
    typer.Option(
        help="static: the memory of all its tasks must fit a device; peak: the memory in use at each moment must fit.",
        metavar="MODEL",
        autocompletion=completion.memory,
        rich_help_panel=_RULES,
    ),
]


Objective = Annotated[
    str,
    typer.Option(
        help="What to minimise: makespan; period, the largest load per input of a device or channel when inputs stream "
        "through; max-load, the same for devices that either compute or move tensors.",
        metavar="NAME",
        autocompletion=completion.objectives,
    ),
]
