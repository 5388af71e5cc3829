"""`profile`: the times of a PyTorch model's tasks on this machine."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hetsched.cli.factories import Factory, FixedBatch, Fuse, Shapes, example, find, importable_here
from hetsched.cli.files import Outputs, check_writable, read_profile
from hetsched.cli.options import JSON, Seed
from hetsched.cli.places import Devices, Pin, listed, places
from hetsched.cli.terminal import Working, say_json, say_rows, warn
from hetsched.errors import InvalidProblem
from hetsched.problem.units import seconds

if TYPE_CHECKING:
    from hetsched.costs.profile import Profile
    from hetsched.problem.graph import TaskGraph

Fold = Annotated[
    bool, typer.Option("--fold/--no-fold", help="Multiply batch norms into convolutions, or run all operators as the model has them.")
]


def profile(
    factory: Factory,
    shapes: Shapes,
    output: Annotated[Path, typer.Option("-o", "--output", help="Write the profile here.", metavar="FILE")],
    devices: Devices = None,
    pin: Pin = None,
    batches: Annotated[
        str | None, typer.Option(help="Batch sizes to measure, as in 1,4; default: that of the inputs.", metavar="SIZE,...")
    ] = None,
    runs: Annotated[int, typer.Option(help="Number of runs that count, after 5 others.", metavar="NUMBER", min=1)] = 30,
    add: Annotated[bool, typer.Option("--add", help="Keep what the file has, and measure only what it lacks.")] = False,
    seed: Seed = 0,
    fixed_batch: FixedBatch = False,
    fuse: Fuse = False,
    fold: Fold = True,
    json: JSON = False,
) -> None:
    r"""Measure the tasks of a PyTorch model on devices of this machine.

    All tasks run on each device, as one batch of each size: seconds, quartiles, CPU time and memory. Tasks that compute the same
    are one measurement, also in other models with --add. Hand-offs between devices and the time of dispatching a task are measured
    too. 'hetsched run --profile' uses the file, 'hetsched compare OLD NEW' compares two.

    Example: [bold]hetsched profile hetsched.workloads.vision:squeezenet \
      --input 1,3,224,224 --devices cpu0,cpu1 --batches 1,4 -o profile.json[/bold]
    """
    check_writable(output)
    examples = tuple(map(example, shapes))
    chosen, sizes = places(devices, pin), _sizes(batches)
    known = read_profile(output) if add and output.exists() else None
    import torch

    from hetsched import runtime
    from hetsched.runtime import Program

    torch.manual_seed(seed)
    args = tuple(torch.randn_like(one) if one.dtype.is_floating_point else one for one in examples)
    measured: list[tuple[str, int]] = []
    with Working(f"capturing {factory}") as working:
        with importable_here():
            program = Program(find(factory)().eval(), examples, dynamic_batch=not fixed_batch, fuse=fuse)

        def tell(device: str, size: int) -> None:
            measured.append((device, size))
            working.update(f"measuring batches of {size} on {device}")

        made = runtime.profile(program, args, devices=chosen, batch_sizes=sizes, fold=fold, runs=runs, known=known, on_progress=tell)
    told = _facts(made, program.graph, chosen, measured)
    outputs = Outputs()
    outputs.write(output, made.write)
    if json:
        say_json({**told, "written": outputs.written})
    else:
        say_rows(
            [("model", f"{factory}, {program.graph.n_tasks} tasks"), *_rows(told, chosen), *(("wrote", name) for name in outputs.written)]
        )
    if told["apart"]:
        one = "measurement differs" if told["apart"] == 1 else "measurements differ"
        warn(f"{told['apart']} {one} by more than 20 % between sessions: other load, or other clocks", "note")
    outputs.finish()


def _sizes(text: str | None) -> list[int] | None:
    if text is None:
        return None
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and int(word) >= 1 for word in words):
        raise InvalidProblem(f"--batches {text!r} is not a list of batch sizes, such as 1,4")
    return list(map(int, words))


def _facts(made: Profile, graph: TaskGraph, chosen: dict[str, Any], measured: list[tuple[str, int]]) -> dict[str, Any]:
    """Return what is printed as JSON."""
    network = made.network(graph)
    totals = {name: {str(size): float(made.cube("seconds", graph, [name], [size]).sum()) for size in made.batch_sizes} for name in chosen}
    stolen = {name: made.stolen(name) for name in chosen}
    links = made.only(devices=chosen).links() if len(chosen) > 1 else None
    return {
        "tasks": graph.n_tasks,
        "operators": len(set(network.digests)),
        "devices": chosen,
        "measured": [{"device": device, "batch": size} for device, size in measured],
        "seconds": {name: {size: None if math.isnan(total) else total for size, total in own.items()} for name, own in totals.items()},
        "dispatch": {name: made.device(name).overhead.dispatch for name in chosen},
        "hand_off": None if links is None else float(max(links.latency.max(), 0.0)),
        "stolen": {name: None if math.isnan(part) else part for name, part in stolen.items()},
        "sessions": list(made.sessions),
        "apart": len(made.apart()),
    }


def _rows(told: dict[str, Any], chosen: dict[str, Any]) -> list[tuple[str, str]]:
    rows = [("operators", f"{told['operators']} different ones"), ("devices", listed(chosen))]
    if not told["measured"]:
        rows.append(("measured", "nothing: the file has all of it"))
    for name, totals in told["seconds"].items():
        each = [f"{seconds(total)} with batches of {size}" for size, total in totals.items() if total is not None]
        stolen = told["stolen"][name]
        lost = "" if stolen is None else f"; stolen {100 * stolen:.1f} %"
        rows.append((name, f"{', '.join(each)}; {seconds(told['dispatch'][name])} to dispatch a task{lost}"))
    if told["hand_off"] is not None:
        rows.append(("hand-off", f"{seconds(told['hand_off'])} between devices, at most"))
    if len(told["sessions"]) > 1:
        rows.append(("sessions", str(len(told["sessions"]))))
    return rows
