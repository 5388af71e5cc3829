"""`run`: a PyTorch model by a schedule on this machine, beside its forecast."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hetsched.cli import completion
from hetsched.cli.factories import Factory, FixedBatch, Fuse, Shapes, example, find, importable_here
from hetsched.cli.files import Outputs, check_writable
from hetsched.cli.options import JSON, Gantt, Report, Seed, Trace
from hetsched.cli.pictures import Pictures
from hetsched.cli.terminal import Working, say, say_json, say_rows
from hetsched.errors import HetschedError, InvalidProblem
from hetsched.report.units import seconds

if TYPE_CHECKING:
    from hetsched.arrays import FloatArray
    from hetsched.problem.problem import Problem
    from hetsched.runtime.executor import Executor
    from hetsched.runtime.program import Program

TOLERANCE = 1e-4
"""The largest difference between outputs and those of the model, relative to the largest output."""
PROFILE_RUNS = 10
Places = dict[str, Any]


def run(
    factory: Factory,
    shapes: Shapes,
    devices: Annotated[
        str | None,
        typer.Option(
            help="Devices of the CPU and their threads, 1 if not given, as in cpu0,cpu1=2; default: one for each core.",
            metavar="NAME[=THREADS],...",
        ),
    ] = None,
    pin: Annotated[
        bool | None, typer.Option("--pin/--no-pin", help="Pin each device to cores of its own; default: if there are enough.")
    ] = None,
    method: Annotated[
        str, typer.Option(help="A method, from 'hetsched methods'.", metavar="NAME", autocompletion=completion.methods)
    ] = "auto",
    time_limit: Annotated[float, typer.Option(help="Stop the search after this many seconds.", metavar="SECONDS")] = 10.0,
    runs: Annotated[int, typer.Option(help="Number of runs that count, after 5 others.", metavar="NUMBER", min=1)] = 30,
    seed: Seed = 0,
    fixed_batch: FixedBatch = False,
    fuse: Fuse = False,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the times of the runs here.", metavar="FILE")] = None,
    problem: Annotated[Path | None, typer.Option(help="Write the problem here, with the measured durations.", metavar="FILE")] = None,
    schedule: Annotated[Path | None, typer.Option(help="Write the schedule as forecast here.", metavar="FILE")] = None,
    report: Report = None,
    trace: Trace = None,
    gantt: Gantt = None,
    json: JSON = False,
) -> None:
    r"""Run a PyTorch model by a schedule on CPU devices of this machine, and compare the run with its forecast.

    The model is captured, each task is measured on each device, and the problem of these times is solved. Runs of the schedule
    alternate with runs of one task at a time, from which the forecast is made. Inputs are random numbers; whole numbers are 0.
    The pictures are of one run. Exit code 1 if the outputs differ from those of the model, or if a run broke a rule of the schedule.

    Example: [bold]hetsched run hetsched.workloads.vision:squeezenet \
      --input 1,3,224,224 --devices cpu0,cpu1 -o run.json \
      --problem problem.json --schedule schedule.json[/bold]
    """
    check_writable(output, problem, schedule, report, trace, gantt)
    pictures = Pictures(report, trace, gantt)
    pictures.check()
    examples = tuple(map(example, shapes))
    places = _places(devices, pin)
    import numpy as np
    import torch

    from hetsched import simulate, solve
    from hetsched.runtime import Executor, Program, compare, forecast

    torch.manual_seed(seed)
    with Working(f"capturing {factory}") as working:
        with importable_here():
            module = find(factory)()
            program = Program(module.eval(), examples, dynamic_batch=not fixed_batch, fuse=fuse)
        args = tuple(torch.randn_like(one) if one.dtype.is_floating_point else one for one in examples)
        working.update("measuring tasks")
        instance, alone = _measured(program, args, places)
        working.update(f"solving with {method}")
        solution = solve(instance, method, time_limit=time_limit, seed=seed)
        if solution.schedule is None:
            raise HetschedError(f"{method} found no schedule ({solution.status}); choose another method or a longer --time-limit")
        working.update("running")
        with Executor(program, None, solution.schedule, devices=places, problem=instance) as executor:
            difference = _difference(executor(*args), module, args)
            measured = executor.measure(*args, runs=runs)
            timed = executor.profiled(instance)
        best = min(alone, key=lambda name: float(np.median(alone[name])))
        with _whole(program, instance, places, best) as executor:
            again = executor.measure(*args, runs=PROFILE_RUNS, profile=False)
        alone[best] = np.concatenate([alone[best], again.makespans])
    decision = solution.schedule.decision
    comparison = compare(timed, decision, measured)
    same = difference <= TOLERANCE
    outputs = Outputs()
    outputs.write(output, measured.write)
    outputs.write(problem, timed.write)
    outputs.write(schedule, simulate(timed, decision).write)
    real, expected = measured.problem(timed), forecast(timed, decision)
    pictures._replace(gantt=None).write_schedule(real, measured.schedule, outputs)
    if report is not None:
        from hetsched.report import write_html

        outputs.write(report, lambda path: write_html(real, measured.schedule, path, against=expected))
    if gantt is not None:
        from hetsched.report import write_gantt

        outputs.write(gantt, lambda path: write_gantt(real, measured.schedule, path, against=expected))
    one = {name: float(np.median(spans)) for name, spans in alone.items()}
    best = min(one, key=one.__getitem__)
    speed_up = one[best] / measured.makespan if measured.makespan > 0 else float("nan")
    if json:
        facts = {
            "tasks": program.graph.n_tasks,
            "devices": places,
            "alone": one,
            "speed_up": speed_up,
            "difference": difference,
            "same": same,
        }
        say_json({**facts, "comparison": comparison.to_dict(), "written": outputs.written})
    else:
        words = [f"{name} ({_where(where)})" for name, where in places.items()]
        each = [f"{name} {seconds(total)}" for name, total in one.items()]
        judged = "within" if same else "more than"
        say_rows(
            [
                ("model", f"{factory}, {program.graph.n_tasks} tasks"),
                ("devices", ", ".join(words)),
                ("alone", f"{', '.join(each)}: runs of all tasks on one device"),
                ("speed-up", f"{speed_up:.2f} over {best}"),
                ("outputs", f"differ from the model's by {difference:.2g} of the largest, {judged} {TOLERANCE:g}"),
            ]
        )
        kept = [] if comparison.violations else ["", "valid: the run kept every rule"]
        say("", *str(comparison).splitlines(), *kept, *(f"wrote {name}" for name in outputs.written))
    outputs.finish()
    raise typer.Exit(0 if same and not comparison.violations else 1)


def _places(text: str | None, pin: bool | None) -> Places:
    """Return the threads, or the cores, of each device in ``cpu0,cpu1=2``."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if text is None:
        text = ",".join(f"cpu{k}" for k in range(len(cores) or os.cpu_count() or 1))
    threads: dict[str, int] = {}
    for part in text.split(","):
        name, equals, number = (word.strip() for word in part.partition("="))
        if not name or name in threads or (equals and not (number.isdecimal() and int(number) >= 1)):
            raise InvalidProblem(f"--devices {text!r} is not a list of different names with numbers of threads, such as cpu0,cpu1=2")
        threads[name] = int(number) if equals else 1
    if pin is None:
        pin = sum(threads.values()) <= len(cores)
    if not pin:
        return dict(threads)
    if sum(threads.values()) > len(cores):
        raise InvalidProblem(f"--pin needs a core for each of {sum(threads.values())} threads, and there are {len(cores)}; leave it out")
    left = iter(cores)
    return {name: [next(left) for _ in range(count)] for name, count in threads.items()}


def _where(where: Any) -> str:
    if isinstance(where, int):
        return f"{where} thread{'' if where == 1 else 's'}"
    return f"core{'' if len(where) == 1 else 's'} {', '.join(map(str, where))}"


def _measured(program: Program, args: tuple[Any, ...], places: Places) -> tuple[Problem, dict[str, FloatArray]]:
    """Return the problem of the program's tasks with their seconds on each device, and the seconds of runs on each device alone."""
    import numpy as np

    from hetsched import Cluster, Problem
    from hetsched.runtime.executor import HAND_OFF

    graph = program.graph
    lengths = program.compiled.lengths(program.inputs(args, {}))
    count = max(lengths, default=1)
    cluster = Cluster(list(places), bandwidth=float("inf"), latency=HAND_OFF)
    flat = Problem(graph, cluster, durations=np.ones((graph.n_tasks, len(places), 1)), batch_sizes=[count], inputs=count)
    durations = np.zeros((graph.n_tasks, len(places), 1))
    alone: dict[str, FloatArray] = {}
    for k, name in enumerate(places):
        with _whole(program, flat, places, name) as executor:
            alone[name] = executor.measure(*args, runs=PROFILE_RUNS).makespans
            durations[:, k] = executor.profiled(flat).durations[:, k]
    return flat.replace(durations=durations, batch_sizes=[count]), alone


def _whole(program: Program, problem: Problem, places: Places, device: str) -> Executor:
    """Return an executor of all tasks on one device."""
    import numpy as np

    from hetsched import Decision
    from hetsched.runtime import Executor

    where = np.full(problem.n_tasks, list(places).index(device))
    decision = Decision.whole(problem, where, problem.graph.topological_order)
    return Executor(program, None, decision, devices=places, problem=problem)


def _difference(made: Any, module: Any, args: tuple[Any, ...]) -> float:
    """Return the largest difference from what the module returns, relative to its largest finite number.

    Equal infinite numbers do not differ, nor do two NaN; inf if only one is, or if types or shapes differ.
    """
    import torch
    from torch.utils._pytree import tree_leaves

    with torch.no_grad():
        wanted = module(*args)
    worst = 0.0
    for own, other in zip(tree_leaves(made), tree_leaves(wanted), strict=True):
        if not isinstance(other, torch.Tensor):
            continue
        if own.dtype != other.dtype or own.shape != other.shape:
            return float("inf")
        exact = torch.complex128 if other.is_complex() else torch.float64
        own, other = own.to(exact), other.to(exact)
        differs = ~((own == other) | (own.isnan() & other.isnan()))
        if differs.any():
            largest = other[other.isfinite()].abs().max() if other.isfinite().any() else other.new_tensor(0.0).abs()
            gap = ((own - other).abs() / largest.clamp(min=1e-300))[differs].max()
            worst = max(worst, float(torch.nan_to_num(gap, nan=float("inf"), posinf=float("inf"))))
    return worst
