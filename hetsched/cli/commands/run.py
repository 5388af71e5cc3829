"""`run`: a PyTorch model by a schedule on this machine, beside its forecast."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import reduce
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from hetsched.cli import completion
from hetsched.cli.factories import Factory, FixedBatch, Fuse, Shapes, example, find, importable_here
from hetsched.cli.files import Outputs, check_writable, read_profile
from hetsched.cli.messages import Messages
from hetsched.cli.options import JSON, Gantt, Objective, Report, Seed, Trace, time_option
from hetsched.cli.pictures import Pictures
from hetsched.cli.places import Devices, Pin, Places, listed, places, threads
from hetsched.cli.terminal import Working, say, say_json, say_rows, warn
from hetsched.errors import HetschedError, InvalidArgument, InvalidProblem
from hetsched.problem.units import seconds

if TYPE_CHECKING:
    from hetsched.arrays import FloatArray
    from hetsched.costs.machine import Machine
    from hetsched.costs.profile import Profile
    from hetsched.costs.timeline import Timeline
    from hetsched.problem.problem import Problem
    from hetsched.runtime.executor import StreamTimes
    from hetsched.runtime.program import Program
    from hetsched.schedule.decision import Decision

TOLERANCE = 1e-4
"""The largest difference between outputs and those of the model, relative to the largest output."""
PROFILE_RUNS = 10
UNCLAIMED = "the runs were disturbed, other processes took more than 10 % of their time"


def run(
    factory: Factory,
    shapes: Shapes,
    devices: Devices = None,
    pin: Pin = None,
    profile: Annotated[
        Path | None, typer.Option(help="A profile of the model on these devices; default: it is measured.", metavar="FILE")
    ] = None,
    method: Annotated[
        str, typer.Option(help="A method, from 'hetsched methods'.", metavar="NAME", autocompletion=completion.methods)
    ] = "auto",
    objective: Objective = "makespan",
    time_limit: Annotated[float, time_option("Stop the search after this many seconds.")] = 10.0,
    runs: Annotated[int, typer.Option(help="Number of runs that count, after 5 others.", metavar="NUMBER", min=1)] = 30,
    seed: Seed = 0,
    engine: Annotated[
        Literal["threads", "gloo"],
        typer.Option(help="Devices are threads of this process, or processes that exchange values by gloo, those of torchrun if it runs."),
    ] = "threads",
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
    r"""Run a PyTorch model by a schedule on devices of this machine, and compare the run with its forecast.

    The model is captured, each task is measured on each device unless a profile is given, and the problem of these times is solved.
    Runs of the schedule alternate with runs of one task at a time, from which the forecast is made. Inputs are random numbers; whole
    numbers are 0. With another objective than the makespan a stream of inputs is run too, on threads.
    With --engine gloo each device is a process, messages between them are measured, and the forecast has the time that their
    processors spend on these. Under torchrun rank 0 measures, solves and reports; on several hosts each rank measures its own device.
    The pictures are of one run. Exit code 1 if the outputs differ from those of the model, or if a run broke a rule of the schedule.

    Example: [bold]hetsched run hetsched.workloads.vision:squeezenet \
      --input 1,3,224,224 --devices cpu0,cpu1 -o run.json \
      --problem problem.json --schedule schedule.json[/bold]
    """
    check_writable(output, problem, schedule, report, trace, gantt, sources=[profile])
    pictures = Pictures(report, trace, gantt)
    pictures.check()
    examples = tuple(map(example, shapes))
    chosen = places(devices, pin)
    import numpy as np
    import torch

    from hetsched import runtime, simulate, solve
    from hetsched.runtime import Program, compare, forecast
    from hetsched.schedule.objectives import find_objective

    if engine == "gloo" and objective != "makespan":
        raise InvalidArgument(f"streams run on threads; leave --engine out, or give --objective makespan instead of {objective}")
    value_of = find_objective(objective)

    torch.manual_seed(seed)
    with Working(f"capturing {factory}") as working, ExitStack() as ranks:
        with importable_here():
            module = find(factory)()
            program = Program(module.eval(), examples, dynamic_batch=not fixed_batch, fuse=fuse)
        args = tuple(torch.randn_like(one) if one.dtype.is_floating_point else one for one in examples)
        count = max(program.compiled.lengths(program.inputs(args, {})), default=1)
        messages = None
        if engine == "gloo":
            working.update("measuring messages")
            messages = Messages(list(chosen), ranks)
        own = [*chosen] if messages is None else messages.own
        in_turn = _here if messages is None else messages.in_turn
        first = messages is None or messages.rank == 0

        def measured_here() -> Profile | None:
            if profile is not None:
                return _known(profile, program, count, chosen) if first else None
            return runtime.profile(program, args, devices={name: chosen[name] for name in own}, runs=PROFILE_RUNS) if own else None

        if profile is None:
            working.update("measuring tasks")
        profiles = [part for part in in_turn(measured_here) if part is not None]
        working.update("running all tasks on each device")
        alone = dict(chain(*in_turn(lambda: [(name, [_alone(program, args, chosen, name, count)]) for name in own])))
        agreed: Any = None
        machine = None
        if first:
            known = reduce(lambda one, other: one.merge(other), profiles).only(devices=chosen)
            if messages is None:
                machine, instance = known.machine(), known.problem(count, graph=program.graph, cluster=known.cluster())
            else:
                cluster = messages.cluster([known.device(name).device for name in chosen])
                machine, instance = messages.overheads(known.machine()), known.problem(count, graph=program.graph, cluster=cluster)
            working.update(f"solving with {method}")
            solved = instance if messages is None else messages.machine.problem(instance)
            solution = solve(solved, method, objective=objective, time_limit=time_limit, seed=seed)
            if solution.schedule is None:
                raise HetschedError(f"{method} found no schedule ({solution.status}); choose another method or a longer --time-limit")
            agreed = solution.schedule.decision, instance, min(alone, key=lambda name: float(np.median(alone[name][0].makespans)))
        decision, instance, best = agreed if messages is None else messages.agreed(agreed)
        working.update("running")
        difference, measured, timed, streamed = _run(
            program, args, module, decision, chosen, instance, messages, machine, runs, streams=objective != "makespan"
        )
        again = in_turn(lambda: _alone(program, args, chosen, best, count) if best in own else None)
    if not first:  # rank 0 tells
        raise typer.Exit(0)
    alone[best] += [taken for taken in again if taken is not None]
    comparison = compare(timed, decision, measured)
    same = difference <= TOLERANCE
    outputs = Outputs()
    outputs.write(output, measured.write)
    outputs.write(problem, timed.write)
    outputs.write(schedule, simulate(timed, decision).write)
    real, expected = measured.problem(timed), forecast(timed, decision, measured)
    pictures._replace(gantt=None).write_schedule(real, measured.schedule, outputs)
    if report is not None:
        from hetsched.report import write_html

        outputs.write(report, lambda path: write_html(real, measured.schedule, path, against=expected))
    if gantt is not None:
        from hetsched.report import write_gantt

        outputs.write(gantt, lambda path: write_gantt(real, measured.schedule, path, against=expected))
    makespans = {name: np.concatenate([own.makespans for own in taken]) for name, taken in alone.items()}
    one = {name: float(np.median(spans)) for name, spans in makespans.items()}
    best = min(one, key=one.__getitem__)
    disturbed = _disturbed([measured, *alone[best]])
    speed_up = None if disturbed else one[best] / measured.makespan if measured.makespan > 0 else float("nan")
    pace = None if streamed is None else {**streamed._asdict(), "forecast": count * value_of(timed, simulate(timed, decision))}
    if json:
        facts = {
            "tasks": program.graph.n_tasks,
            "devices": chosen,
            "alone": one,
            "speed_up": speed_up,
            "difference": difference,
            "same": same,
            "stream": pace,
        }
        say_json({**facts, "comparison": comparison.to_dict(), "written": outputs.written})
    else:
        each = [f"{name} {seconds(total)}" for name, total in one.items()]
        judged = "within" if same else "more than"
        say_rows(
            [
                ("model", f"{factory}, {program.graph.n_tasks} tasks"),
                ("devices", listed(chosen)),
                ("alone", f"{', '.join(each)}: runs of all tasks on one device"),
                ("speed-up", f"none is claimed over {best}: {UNCLAIMED}" if speed_up is None else f"{speed_up:.2f} over {best}"),
                *(("note", text) for text in ([] if disturbed else _warned(makespans[best], measured.makespans, best))),
                *(() if pace is None else (("stream", _told(pace, one[best] / pace["period"], best)),)),
                ("outputs", f"differ from the model's by {difference:.2g} of the largest, {judged} {TOLERANCE:g}"),
            ]
        )
        kept = [] if comparison.violations else ["", "valid: the run kept every rule"]
        say("", *str(comparison).splitlines(), *kept, *(f"wrote {name}" for name in outputs.written))
    outputs.finish()
    raise typer.Exit(0 if same and not comparison.violations else 1)


class Alone(NamedTuple):
    """Runs of all tasks on one device."""

    makespans: FloatArray
    """[runs] seconds."""
    stolen: float
    """Part of the time of tasks in which their thread did not compute."""


def _here(measure: Callable[[], Any]) -> list[Any]:
    """Measure where there are no ranks."""
    return [measure()]


def _disturbed(runs: Iterable[Alone | Timeline]) -> bool:
    """Return whether other processes took so much of the time of any runs that they support no claim."""
    from hetsched.costs.timeline import DISTURBED

    return any(own.stolen > DISTURBED for own in runs)


def _warned(alone: FloatArray, placed: FloatArray, best: str) -> list[str]:
    """Return what is said where one device runs all tasks in less time than the schedule takes, by more than the spread of both."""
    import numpy as np

    slower = np.quantile(placed, 0.25) > np.quantile(alone, 0.75)
    return [f"{best} alone is faster than this schedule, whatever the forecast; give --devices only that one"] if slower else []


def _run(
    program: Program,
    args: tuple[Any, ...],
    module: Any,
    decision: Decision,
    chosen: Places,
    instance: Problem,
    messages: Messages | None,
    machine: Machine | None,
    runs: int,
    streams: bool = False,
) -> tuple[float, Timeline, Problem, StreamTimes | None]:
    """Return the difference of the outputs from the module's, the times, the problem with them, and the pace of a stream."""
    from hetsched.runtime import Executor

    engine: Any = "threads" if messages is None else messages.engine
    with Executor(program, None, decision, devices=chosen, problem=instance, engine=engine) as executor:
        made = executor(*args)
        difference = float("nan") if made is None else _difference(made, module, args)
        if messages is not None:
            difference = messages.told(difference)
        measured = executor.measure(*args, runs=runs, machine=machine)
        return difference, measured, executor.profiled(instance), executor.measure_stream(*args) if streams else None


def _told(pace: dict[str, float], speed_up: float, best: str) -> str:
    """Return the text of the times of a stream."""
    quartiles = f"quartiles {seconds(pace['q25'])} and {seconds(pace['q75'])}"
    return (
        f"a result each {seconds(pace['period'])} ({quartiles}) with {pace['depth']} inputs in progress, {speed_up:.2f} times the pace "
        f"of {best}; forecast {seconds(pace['forecast'])}, error {100 * (pace['forecast'] / pace['period'] - 1):+.1f} %; "
        f"latency {seconds(pace['latency'])}"
    )


def _known(path: Path | None, program: Program, count: int, chosen: Places) -> Profile | None:
    """Return the profile in a file if it has all tasks on such devices; with a note on its age."""
    if path is None:
        return None
    from datetime import UTC, datetime

    known = read_profile(path)
    network = known.network(program.graph)
    for name, where in chosen.items():
        had = known.device(name).threads
        if had != threads(where):
            raise InvalidProblem(
                f"device {name!r} has {threads(where)} threads, and had {had} in {path}; give as many, or profile it again"
            )
    if len(known.batch_sizes) < 2 and count not in known.batch_sizes:
        sizes = ", ".join(map(str, known.batch_sizes))
        raise InvalidProblem(f"{path} has batches of {sizes}, and the inputs are a batch of {count}; profile these, or two other sizes")
    begun = known.latest
    if begun is not None:
        warn(f"the profile is {_age((datetime.now(UTC) - begun).total_seconds())} old, of {len(set(network.digests))} operators", "note")
    return known


def _age(passed: float) -> str:
    for unit, length in (("day", 86400.0), ("hour", 3600.0), ("minute", 60.0)):
        if passed >= length:
            count = int(passed / length)
            return f"{count} {unit}{'' if count == 1 else 's'}"
    return "less than a minute"


def _alone(program: Program, args: tuple[Any, ...], chosen: Places, name: str, count: int) -> Alone:
    """Run all tasks on one device."""
    from hetsched.runtime.places import place
    from hetsched.runtime.profiling import whole

    with whole(program, place(name, chosen[name]), inputs=count) as executor:
        measured = executor.measure(*args, runs=PROFILE_RUNS, profile=False)
        return Alone(measured.makespans, measured.stolen)


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
