"""`stages`: the stages of a graph on one device."""

from __future__ import annotations

from json import loads
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hetsched.cli.files import Outputs, check_writable, cost_model, read_graph
from hetsched.cli.options import JSON, Costs, Dtype, Gantt, Inputs, Trace, time_option
from hetsched.cli.pictures import Pictures
from hetsched.cli.terminal import Working, say, say_json, say_rows
from hetsched.errors import InvalidProblem, one_line
from hetsched.problem.units import seconds

if TYPE_CHECKING:
    from hetsched.models.ios import Progress
    from hetsched.schedule.stages import StageSchedule

Strategies = Literal["concurrent", "merge", "both"]
PROVEN = 1e-6
"""The largest relative difference of a latency and its bound that is none."""


def stages(
    graph: Annotated[Path, typer.Argument(help="A graph document, or a problem's.", metavar="GRAPH")],
    device: Annotated[str, typer.Option(help="Kind of device in the catalogue, for instance a100.", metavar="KIND")] = "v100",
    dtype: Dtype = "float32",
    costs: Costs = "analytic",
    cuda_graph: Annotated[
        bool,
        typer.Option(
            "--cuda-graph", help="Stages are enqueued as one CUDA graph, and not kernel by kernel: with the times that an H100 took."
        ),
    ] = False,
    inputs: Inputs = 1,
    groups: Annotated[int, typer.Option(help="The most groups of a stage; 0 for no limit.", metavar="NUMBER", min=0)] = 8,
    group_size: Annotated[int, typer.Option(help="The most tasks of a group; 0 for no limit.", metavar="NUMBER", min=0)] = 3,
    strategies: Annotated[
        Strategies,
        typer.Option(help="Stages of parallel groups, stages merged into one operator (the others then have one task), or either."),
    ] = "both",
    blocks: Annotated[
        str,
        typer.Option(
            help="Where stages end at the latest. yes: at tasks that come before or after every other; no: nowhere; or a JSON file, a list "
            "of the names of each block's tasks, in the order of execution, for networks whose cells read more than the cell before.",
            metavar="yes|no|FILE",
        ),
    ] = "yes",
    part_size: Annotated[
        int,
        typer.Option(
            help="Cut blocks of more tasks into parts of this many, as IOS's authors do; 0 for no limit.", metavar="NUMBER", min=0
        ),
    ] = 0,
    time_limit: Annotated[
        float | None, time_option("Cut the blocks that are not begun after this many seconds into small parts; a note names them.")
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the stages here.", metavar="FILE")] = None,
    trace: Trace = None,
    gantt: Gantt = None,
    json: JSON = False,
) -> None:
    """Divide a graph into stages that run one after another on one device.

    In a stage groups of tasks run in parallel, and the tasks of a group one after another; or convolutions of one tensor
    are merged into one. IOS finds the best stages of each block of the graph, for a model of the device whose seconds are
    estimates, compared with measurements on a V100 and, with --cuda-graph, on an H100. A block too wide for that is divided, and a note
    reports it; its stages need not be the best, and the bound, below which no stages are, then leaves it out. Each line is a stage: its
    start, its duration and its groups.

    Example: [bold]hetsched stages problem.json --device a100 -o stages.json[/bold]
    """
    from hetsched import report, verify_stages
    from hetsched.costs import Contention, devices
    from hetsched.models import ios
    from hetsched.problem.graph import plural

    pictures = Pictures(None, trace, gantt)
    check_writable(output, *pictures.paths, sources=[graph])
    pictures.check()
    limited = _blocks(blocks)
    tasks = read_graph(graph)
    most_groups, most_tasks = groups or None, group_size or None
    with Working("computing stages") as working:

        def show(progress: Progress) -> None:
            working.update(
                f"computing stages: block {progress.block + 1} of {progress.blocks}, {progress.asked:,} stages", "computing stages"
            )

        enqueued = Contention.CUDA_GRAPHS if cuda_graph else {}
        cost = Contention(tasks, devices.device(device), inputs=inputs, costs=cost_model(costs, dtype), **enqueued)
        best = ios.stages(
            tasks,
            cost,
            groups=most_groups,
            group_size=most_tasks,
            strategies=strategies,
            blocks=limited,
            part_size=part_size or None,
            time_limit=time_limit,
            on_progress=show,
        )
        baselines = {"sequential": ios.sequential(tasks, cost).latency, "greedy": ios.greedy(tasks, cost).latency}
    measured = (
        f", within about {100 * cost.error:.0f} % where it was measured"
        if (device, costs, cuda_graph) == ("v100", "analytic", False)
        else ""
    )
    violations = verify_stages(tasks, best, groups=most_groups, group_size=most_tasks, cost=cost)
    assert not violations, violations[0]
    outputs = Outputs()
    if output is not None:
        outputs.write(output, best.write)
    if trace or gantt:
        pictures.write_schedule(*report.lanes(tasks, best), outputs)
    if json:
        rows = [
            {"start": start, "seconds": row["latency"], "strategy": str(row["strategy"]), "groups": best.groups(s)}
            for s, (start, row) in enumerate(zip(best.start.tolist(), best.stages, strict=True))
        ]
        say_json(
            {
                "latency": best.latency,
                "bound": best.bound,
                **baselines,
                "stages": rows,
                "messages": list(best.messages),
                "written": outputs.written,
            }
        )
    else:
        number = len(limited if isinstance(limited, list) else ios.blocks(tasks) if limited else [tasks])
        proven = best.bound is not None and best.bound >= best.latency * (1 - PROVEN)
        say_rows(
            [
                ("graph", f"{plural(tasks.n_tasks, 'task')}, {plural(tasks.n_edges, 'edge')}, {plural(number, 'block')}"),
                ("latency", f"{seconds(best.latency)} in {plural(len(best), 'stage')} on {device}, by the model{measured}"),
                ("in turn", f"{seconds(baselines['sequential'])}, one task a stage"),
                ("greedy", f"{seconds(baselines['greedy'])}, all ready tasks in a stage"),
                *([] if proven else [("bound", f"{seconds(best.bound or 0.0)}; the stages are not proven to be the best")]),
                ("verified", "yes, by the independent check"),
                *(("note", message) for message in best.messages),
                *(("wrote", name) for name in outputs.written),
            ]
        )
        say(
            *(
                f"{seconds(start):>12}  {seconds(row['latency']):>12}  {_groups(best, s)}"
                for s, (start, row) in enumerate(zip(best.start.tolist(), best.stages, strict=True))
            )
        )
    outputs.finish()


def _blocks(text: str) -> bool | list[list[str]]:
    """Return the argument `blocks` of `hetsched.stages` from its word or file."""
    if text in ("yes", "no"):
        return text == "yes"
    try:
        value = loads(Path(text).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidProblem(f"--blocks is {text!r}; give yes, no or a JSON file with the names of each block's tasks ({error})") from None
    if not (isinstance(value, list) and all(isinstance(block, list) and all(isinstance(name, str) for name in block) for block in value)):
        raise InvalidProblem(f"{text} holds no blocks; it must be a list of lists of names of tasks")
    return value


def _groups(best: StageSchedule, s: int) -> str:
    """Return the groups of a stage in one line."""
    text = one_line(" | ".join(", ".join(group) for group in best.groups(s)))
    return f"merged: {text}" if best.stages.strategy[s] == "merge" else text
