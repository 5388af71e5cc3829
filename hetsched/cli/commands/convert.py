"""`convert`: problems from files of other formats, and to them."""

from __future__ import annotations

import contextlib
import json as json_module
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hetsched.cli import completion
from hetsched.cli.files import Outputs, check_writable, cost_model, find_cluster, listed
from hetsched.cli.options import JSON
from hetsched.cli.terminal import Working, say_json, say_rows
from hetsched.errors import InvalidProblem

if TYPE_CHECKING:
    from hetsched.frontends.exchange import Imported

_FILE = "What files do not state"
Bandwidth = Annotated[
    float | None,
    typer.Option(help="Bytes per second between two machines of a workflow; inf: no time.", metavar="NUMBER", rich_help_panel=_FILE),
]
Processors = Annotated[
    int | None, typer.Option(help="Number of identical processors, of .stg and .dot.", metavar="NUMBER", rich_help_panel=_FILE)
]
Weight = Annotated[
    str | None,
    typer.Option(
        help="Attribute with the time of nodes and edges, of .gxl and .dot; default: Weight.", metavar="NAME", rich_help_panel=_FILE
    ),
]
ClusterOf = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        help="Devices of a workflow in place of its machines, or of a model in ONNX: a named cluster, or a cluster document.",
        metavar="NAME|FILE",
        autocompletion=completion.clusters,
        rich_help_panel=_FILE,
    ),
]

Dims = Annotated[
    list[str] | None,
    typer.Option(
        "--dim",
        help="Length of a named dimension of a model in ONNX: batch=1; repeat it for each.",
        metavar="NAME=LENGTH",
        rich_help_panel=_FILE,
    ),
]
Shapes = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        help="Shape of a tensor of a model in ONNX that the file does not state: x=1,3,224,224; repeat it for each.",
        metavar="NAME=SHAPE",
        rich_help_panel=_FILE,
    ),
]
Values = Annotated[
    list[str] | None,
    typer.Option(
        "--value",
        help="Value of an input of a model in ONNX on which control flow or shapes depend: rate=16000 or size=[8,8]; repeat it for each.",
        metavar="NAME=VALUE",
        rich_help_panel=_FILE,
    ),
]
CostsOf = Annotated[
    Literal["analytic", "roofline"] | None,
    typer.Option("--costs", help="Cost model for a model in ONNX; default: analytic.", rich_help_panel=_FILE),
]
DtypeOf = Annotated[
    str | None,
    typer.Option(
        "--dtype",
        help="Number format that its durations are estimated for; default: float32.",
        metavar="TYPE",
        autocompletion=completion.dtypes,
        rich_help_panel=_FILE,
    ),
]


def convert(
    source: Annotated[Path, typer.Argument(help="A file of any format that is read.", metavar="FILE")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Write the problem here.", metavar="FILE")],
    schedule: Annotated[Path | None, typer.Option(help="Write the schedule that the file has here.", metavar="FILE")] = None,
    format: Annotated[  # noqa: A002
        str | None,
        typer.Option(
            help="Format of the file: stg, fjsp, fjs, gxl, dot, dagbench, wfformat, dnn-partitioning, moirai, onnx or hetsched. "
            "Default: by its name and contents.",
            metavar="NAME",
            autocompletion=completion.formats,
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            help="Format of the output: stg, fjsp, gxl, dagbench or hetsched. Default: by its name; .json is a document of hetsched.",
            metavar="NAME",
            autocompletion=completion.written_formats,
        ),
    ] = None,
    processors: Processors = None,
    weight: Weight = None,
    bandwidth: Bandwidth = None,
    cluster: ClusterOf = None,
    dims: Dims = None,
    shapes: Shapes = None,
    values: Values = None,
    costs: CostsOf = None,
    dtype: DtypeOf = None,
    rename: Annotated[bool, typer.Option("--rename", help="Name tasks and devices as the format of the output does.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Write nothing and exit with 1 if anything in the file would be lost.")] = False,
    json: JSON = False,
) -> None:
    """Convert a problem from another format, or to one.

    Prints what the file says and the problem does not, a line for each. A number without a unit is read as seconds. What a format cannot
    state is refused: nothing is written that would be read back as another problem.

    Example: [bold]hetsched convert graph.stg --processors 8 -o converted.json[/bold]

    Example: [bold]hetsched convert net.onnx --cluster diviml -o net.json[/bold]

    Example: [bold]hetsched convert converted.json --to fjsp --rename -o shop.json[/bold]
    """
    from hetsched import frontends

    check_writable(output, schedule, sources=[source])
    given = {
        "processors": processors,
        "weight": weight,
        "bandwidth": bandwidth,
        "cluster": None if cluster is None else find_cluster(cluster),
        "dims": _named("--dim", dims, int, "LENGTH, for instance batch=1"),
        "shapes": _named("--shape", shapes, _shape, "SHAPE, for instance x=1,3,224,224"),
        "values": _named("--value", values, json_module.loads, "VALUE, for instance rate=16000 or size=[8,8]"),
        "costs": None if costs is dtype is None else cost_model(costs or "analytic", dtype or "float32"),
    }
    with Working(f"reading {source}"), _spelled("--format"):
        imported = frontends.read(source, format, **{name: value for name, value in given.items() if value is not None})
    if schedule is None and imported.schedule is not None:
        imported = imported._replace(lost=(*imported.lost, "the schedule of the file, which --schedule writes"))
    outputs = Outputs()
    refused = strict and bool(imported.lost)
    if not refused:
        options = {"rename": True} if rename else {}
        write = _spelled("--to")(frontends.write)
        outputs.write(output, lambda path: write(imported.problem, path, to, **options))
        outputs.write(schedule, None if imported.schedule is None else imported.schedule.write, "the file has none")
    if json:
        say_json(_facts(imported, outputs.written))
    else:
        say_rows([*_rows(imported), *(("wrote", name) for name in outputs.written)])
    outputs.finish()
    raise typer.Exit(1 if refused else 0)


def _named(option: str, texts: list[str] | None, parse: Callable[[str], Any], form: str) -> dict[str, Any] | None:
    """Return what an option of the form NAME=... has for each name, or None if it is not given."""
    made = {}
    for text in texts or ():
        name, _, value = text.partition("=")
        try:
            made[name] = parse(value)
        except ValueError:
            name = ""
        if not name:
            raise InvalidProblem(f"{option} {text!r} is not of the form NAME={form}")
    return made or None


def _shape(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


_ARGUMENTS = {
    r"\b(rename)=True": r"--\1",
    r"\b(processors|bandwidth|cluster)=(\w)": r"--\1 \2",
    r"\b(processors|bandwidth|cluster|weight)=": r"--\1",
    r"\b(?:dims|shapes|values)=\{(.*?)\}": r"\1",
    r"'([^']+)': (\d+)\b": r"--dim \1=\2",
    r"'([^']+)': \(1, \.\.\.\)": r"--shape \1=1,...",
    r"'([^']+)': \.\.\.": r"--value \1=...",
    r"^(dim|shape|value)s(?= has |\[)": r"--\1",
    r"\boption '(\w+)'": r"--\1",
    r"^(processors|bandwidth) is ": r"--\1 is ",
    r"^format is ": "{} is ",
    r"\bchoose a format:": "choose one by {}:",
}
"""How arguments are spelled in messages, and by the command."""


@contextlib.contextmanager
def _spelled(format: str) -> Iterator[None]:  # noqa: A002
    """Spell the arguments in messages as options of the command; `format` is the one for the format that is meant."""
    from hetsched.errors import InvalidArgument, InvalidProblem, UnsupportedFeature

    try:
        yield
    except (InvalidArgument, InvalidProblem, UnsupportedFeature) as error:
        message = str(error)
        for argument, option in _ARGUMENTS.items():
            message = re.sub(argument, option.format(format), message)
        raise type(error)(message) from None


def _rows(imported: Imported) -> list[tuple[str, str]]:
    from hetsched.problem.graph import plural

    problem, reference = imported.problem, imported.reference
    graph = f"{plural(problem.n_tasks, 'task')}, {plural(problem.graph.n_edges, 'edge')}"
    rows = [("problem", f"{graph} on {listed(problem.cluster.names)}")]
    if reference is not None:
        rows.append(("second", reference.unit))
        bounds = (("at least", reference.lower), ("at most", reference.upper))
        rows += [("makespan", f"{word} {value:g} ({reference.source})") for word, value in bounds if value is not None]
    return [*rows, *(("lost", line) for line in imported.lost)]


def _facts(imported: Imported, written: list[str]) -> dict[str, Any]:
    problem, reference = imported.problem, imported.reference
    return {
        "tasks": problem.n_tasks,
        "edges": problem.graph.n_edges,
        "devices": list(problem.cluster.names),
        "reference": None if reference is None else reference._asdict(),
        "schedule": imported.schedule is not None,
        "lost": list(imported.lost),
        "written": written,
    }
