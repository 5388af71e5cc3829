"""Table V and Figure 8: GPT-3 on six nodes of four GPUs, and symmetries in its largest module."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import hetsched as hs
from hetsched.experiments.runner import timed
from hetsched.papers.diviml import decoder
from hetsched.papers.diviml.decoder import ENDS, STEPS
from hetsched.papers.diviml.judging import factor, judged, unless_most
from hetsched.papers.diviml.solving import OPTIONS, SPLIT, WINDOWS
from hetsched.papers.items import Case, Claim, Item, Report, Row, Setting, Table, Verdict
from hetsched.papers.rendering import number, percent
from hetsched.search import Budget

CRITERIA: Mapping[str, str | None] = {"no symmetries": None, "by batches": "batches", "by tasks": "tasks", "by time": "time"}
MULTI = {f"multi node, MILP-SPLIT, {name}": criterion for name, criterion in CRITERIA.items()}
SINGLE: Mapping[str, str] = {
    "single node, MILP": "milp",
    "single node, MILP by CP-SAT": "cpsat",
    "single node, MILP-SPLIT": SPLIT,
    "single node, ours: split": WINDOWS,
}
STARTS = "list schedulers"
WHOLE: Mapping[str, str | tuple[str, ...]] = {
    **dict.fromkeys(MULTI, SPLIT),
    STARTS: ("heft", "bheft", "greedy", "bgreedy"),
    "multi node, ours: split": WINDOWS,
    "ours: annealing": "annealing",
    "ours: auto": "auto",
}
SCHEDULES = (*SINGLE, *WHOLE)
PRINTED = dict(
    zip(("single node, MILP", "single node, MILP-SPLIT", *MULTI, "upper bound"), (4.8, 5.7, 5.0, 5.6, 6.3, 6.3, 9.9), strict=True)
)
"""Table V, inputs a second."""
FULL = {"model": "175B", "layers": 96, "nodes": 6, "limit": 20.0}
QUICK = {"model": "125M", "layers": 2, "nodes": 2, "limit": 1.0}
STREAMS = ((STEPS[0], 1), (STEPS[0], 8), (STEPS[0], 16), (STEPS[1], 1), (STEPS[1], 16))
"""What an input is, and the number of inputs."""
HALVES = ((1, "scip"), (1, "cpsat"), (2, "cpsat"))
"""Numbers of inputs and solvers of the largest module; SCIP proves none for two inputs."""
REPEATS = (0, 1, 2)


def cases(setting: Setting) -> list[Case]:
    """Return the cases: complete stacks, then halves of a block; each again with another seed."""
    base = QUICK if setting.quick else FULL
    streams, halves = (STREAMS[:1], HALVES[1:2]) if setting.quick else (STREAMS, HALVES)
    repeats = REPEATS[: 1 if setting.quick else None]
    stacks = [
        {"what": "decoder", **base, "step": step, "inputs": inputs, "schedule": way, "seed": seed}
        for step, inputs in streams
        for seed in repeats
        for way in SCHEDULES
    ]
    return stacks + [
        {"what": "half", **base, "inputs": inputs, "solver": solver, "ends": ends, "criterion": criterion, "seed": seed}
        for inputs, solver in halves
        for ends in ENDS
        for seed in repeats
        for criterion in CRITERIA
    ]


def measure(case: Case, data: Path | None) -> Row:
    """Schedule the complete stack in one of the ways of `SCHEDULES`, in one thread."""
    layers, nodes, inputs, limit = (case[name] for name in ("layers", "nodes", "inputs", "limit"))
    problem = decoder.problem_of(case["model"], layers, nodes, inputs, case["step"])
    way, part = case["schedule"], problem
    if way in SINGLE:
        part = decoder.problem_of(case["model"], layers // nodes, 1, inputs, case["step"])
    method = {**SINGLE, **WHOLE}[way]
    options: Mapping[str, Any] = {} if isinstance(method, tuple) else OPTIONS.get(method, {})
    if method in (SPLIT, WINDOWS):
        method, options = "split", {"solver": "cpsat", "symmetry": MULTI.get(way, "tasks"), **options}
    prepare(method)
    solution, spent = timed(lambda: hs.solve(part, method, time_limit=limit, seed=case["seed"], threads=1, options=options))
    schedule, bound = solution.schedule, solution.bound
    if way in SINGLE:
        bound = 0.0
        schedule = None if schedule is None else hs.simulate(problem, decoder.repeated(schedule.decision, part, nodes))
        broken = [] if schedule is None else hs.verify(problem, schedule)
        assert not broken, broken[0].message
    makespan = None if schedule is None else schedule.makespan
    rate = "no schedule" if makespan is None else f"{inputs / makespan:.4g} inputs/s"
    return {"makespan": makespan, "bound": bound, **spent, "says": f"{solution.status}, {rate}, {spent['wall_s']:.1f} s"}


def measure_half(case: Case, data: Path | None) -> Row:
    """Solve the attention half of a block between two devices, in one thread and with a limit of CPU seconds."""
    from hetsched.modeling.settings import SolveSettings
    from hetsched.models.methods import formulate

    problem = decoder.half_problem(case["model"], case["nodes"], case["inputs"], case["ends"])
    prepare("milp" if case["solver"] == "scip" else "cpsat")
    monitor = hs.Monitor(problem, Budget(case["limit"]), seed=case["seed"], clock=time.process_time)
    settings = SolveSettings(monitor.deadline, threads=1, seed=case["seed"])
    _, spent = timed(lambda: formulate(problem, symmetry=CRITERIA[case["criterion"]]).run(monitor, case["solver"], settings))
    solution = monitor.solution(case["solver"])
    proven = solution.status == hs.Status.OPTIMAL
    made = None if solution.schedule is None else solution.makespan
    says = f"{solution.status}, gap {solution.gap:.2%}, {spent['cpu_s']:.1f} s"
    return {"makespan": made, "bound": solution.bound, "gap": solution.gap, "proven": proven, **spent, "says": says}


@functools.cache
def prepare(method: str | tuple[str, ...]) -> None:
    """Import modules and compile kernels before the first measurement."""
    hs.solve(decoder.problem_of("125M", 1, 1, 1), method, time_limit=10.0, threads=1)


def report(rows: Sequence[Row], setting: Setting) -> Report:
    """Return Table V, the times for half a block, and their claims."""
    stacks, halves = ([row for row in rows if row["what"] == what] for what in ("decoder", "half"))
    tables = [_stacks(stacks)]
    tables += [_halves(halves, inputs) for inputs in sorted({row["inputs"] for row in halves})]
    claims = [*_quality(stacks), _same_optimum(halves), _sooner(halves)]
    return Report(tables, claims, [*_contradictions(rows), *_noise(halves)])


def _stream(row: Row) -> tuple[int, int]:
    return STEPS.index(row["step"]), row["inputs"]


def _stacks(rows: Sequence[Row]) -> Table:
    """Return the inputs a second, the median over repetitions and their range where there is one."""
    streams = sorted({_stream(row) for row in rows})
    lines = []
    for way in SCHEDULES:
        cells = []
        for stream in streams:
            own = [row for row in rows if _stream(row) == stream and row["schedule"] == way]
            cells.append(_range([stream[1] / row["makespan"] for row in own if row["makespan"] is not None]) if own else "")
        lines.append([way, *cells, f"{PRINTED[way]:g}" if way in PRINTED else ""])
    bounds = [max(row["bound"] for row in rows if _stream(row) == stream) for stream in streams]
    cells = [number(stream[1] / bound, 4) if bound > 0 else "" for stream, bound in zip(streams, bounds, strict=True)]
    lines.append(["upper bound", *cells, f"{PRINTED['upper bound']:g}"])
    heads = [f"{STEPS[step]}: {inputs} input{'s' * (inputs > 1)}" for step, inputs in streams]
    return Table(["schedule", *heads, "paper"], lines, "Inputs a second: median and range over repetitions")


def _range(values: Sequence[float], digits: int = 4) -> str:
    if not values:
        return "none"
    low, middle, high = (number(float(value), digits) for value in (min(values), np.median(values), max(values)))
    return middle if low == high else f"{middle} ({low} to {high})"


def _halves(rows: Sequence[Row], inputs: int) -> Table:
    """Return the CPU seconds to the proof by criterion."""
    lines = []
    for solver, ends in dict.fromkeys((row["solver"], row["ends"]) for row in rows if row["inputs"] == inputs):
        own = [row for row in rows if (row["inputs"], row["solver"], row["ends"]) == (inputs, solver, ends)]
        lines.append([f"{solver}, {ends}", *(_proofs([row for row in own if row["criterion"] == name]) for name in CRITERIA)])
    title = f"Attention of a block, {inputs} input{'s' * (inputs > 1)}: CPU seconds to the proof; median and range"
    return Table(["solver, device at the end", *CRITERIA], lines, title)


def _proofs(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    shown = _range([row["cpu_s"] for row in rows if row["proven"]], 3)
    late = [row for row in rows if not row["proven"]]
    if not late:
        return shown
    rest = f"{len(late)} of {len(rows)} more than {late[0]['limit']:g}"
    return rest if len(late) == len(rows) else f"{shown}, {rest}"


def _contradictions(rows: Sequence[Row]) -> list[str]:
    """Return a paragraph if a bound is above a schedule of the same problem."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(name) for name in ("what", "model", "layers", "nodes", "inputs", "step", "ends")), []).append(row)
    wrong = []
    for key, own in groups.items():
        bound, made = (
            max(row["bound"] for row in own),
            min((row["makespan"] for row in own if row["makespan"] is not None), default=math.inf),
        )
        if bound > made * (1 + 1e-6):
            wrong.append(f"{', '.join(map(str, filter(None, key)))}: a bound of {bound!r} s is proven, a makespan of {made!r} s found")
    return [f"Contradictions, of which one side is wrong: {'; '.join(wrong)}."] if wrong else []


def _rates(rows: Sequence[Row]) -> dict[tuple[Any, ...], dict[str, float]]:
    """Return the inputs a second of each schedule, by stream and repetition."""
    found: dict[tuple[Any, ...], dict[str, float]] = {}
    for row in rows:
        if row["makespan"] is not None:
            found.setdefault((*_stream(row), row["seed"]), {})[row["schedule"]] = row["inputs"] / row["makespan"]
    return found


def _quality(rows: Sequence[Row]) -> list[Claim]:
    rates = list(_rates(rows).values())
    none, batches, tasks, time = MULTI
    claimed = {
        "Multi node with symmetries by tasks or time is about 31 % above the MILP of one node (VI)": (
            (tasks, time),
            ("single node, MILP",),
            0.3,
        ),
        "Multi node with symmetries by tasks or time is about 10 % above the split of one node (VI)": (
            (tasks, time),
            ("single node, MILP-SPLIT",),
            0.1,
        ),
        "Symmetries by tasks or time find better schedules than none (Table V; 26 %)": ((tasks, time), (none,), 0.25),
        "Symmetries by batches find better schedules than none (Table V; 12 %)": ((batches,), (none,), 0.11),
        "Symmetries by tasks or time find better schedules than by batches (VI; 12 %)": ((tasks, time), (batches,), 0.12),
        "The criterion of symmetries has a significant effect on the schedule (VI; 5.6 to 6.3)": (tuple(MULTI)[1:], (), 0.12),
        "The split of one node is above its MILP (Table V; 19 %)": (("single node, MILP-SPLIT",), ("single node, MILP",), 0.18),
    }
    claims = []
    for text, (over, under, asked) in claimed.items():
        complete = [rate for rate in rates if {*over, *under} <= set(rate)]
        values = [
            max(rate[name] for name in over) / (max(rate[name] for name in under) if under else min(rate[name] for name in over)) - 1
            for rate in complete
        ]
        claim = judged(text, values, at_least=asked, each="run", shown=percent)
        if {*over} <= {*MULTI}:
            same = [max(rate[name] for name in MULTI) <= rate[STARTS] * (1 + 1e-9) for rate in rates if {*MULTI, STARTS} <= set(rate)]
            claim = unless_most(claim, sum(same), len(same), "runs no split of all nodes improves the list schedule that it begins with")
        else:
            same = [max(rate[name] for name in over) <= max(rate[name] for name in under) * (1 + 1e-9) for rate in complete]
            claim = unless_most(claim, sum(same), len(same), "runs the schedule of the one is that of the other")
        claims.append(claim)
    return claims


def _same_optimum(rows: Sequence[Row]) -> Claim:
    """Return whether every criterion keeps an optimal schedule."""
    text = "Symmetries keep a best schedule; by the paper all but equivalent ones, 4^6 6! = 2.9 million for each (VI)"
    found: dict[tuple[Any, ...], list[float]] = {}
    for row in rows:
        if row["proven"]:
            found.setdefault((row["inputs"], row["ends"]), []).append(row["makespan"])
    if not found:
        return Claim(text, Verdict.UNSEEN, "no optimum is proven")
    off = max(max(values) / min(values) - 1 for values in found.values())
    reason = (
        f"{sum(map(len, found.values()))} proofs of {len(found)} halves of a block have optima that differ by {100 * off:.1g} % at most"
    )
    return Claim.decided(text, off < 1e-6, reason)


def _spent(row: Row) -> float:
    """Return the CPU seconds of a proof, or the limit that was not enough for it."""
    return float(row["cpu_s"] if row["proven"] else row["limit"])


def _ratios(rows: Sequence[Row], over: str, under: str) -> dict[int, list[float]]:
    """Return by repetition the factors of the seconds by two criteria, with those proven by neither left out."""
    by_half: dict[tuple[Any, ...], dict[str, Row]] = {}
    for row in rows:
        by_half.setdefault((row["seed"], row["inputs"], row["solver"], row["ends"]), {})[row["criterion"]] = row
    ratios: dict[int, list[float]] = {}
    for (seed, *_), half in by_half.items():
        if {over, under} <= set(half) and (half[over]["proven"] or half[under]["proven"]):
            ratios.setdefault(seed, []).append(_spent(half[over]) / _spent(half[under]))
    return ratios


def _sooner(rows: Sequence[Row]) -> Claim:
    means = [float(np.exp(np.mean(np.log(own)))) for own in _ratios(rows, "no symmetries", "by tasks").values()]
    text = "Symmetries give a good schedule in reasonable time (VI): speed-up of the proof for half a block, one and two inputs, by tasks"
    claim = judged(text, means, at_least=1.1, each="repetition", shown=factor)
    noise = _noise_ratios(rows)
    if means and noise and min(noise) <= min(means) and max(means) <= max(noise):
        return claim.undecided(" within the noise, and the paper speaks of the search over six nodes")
    return claim


def _noise_ratios(rows: Sequence[Row]) -> list[float]:
    """Return the factors between the times of the same model."""
    alone = [row for row in rows if row["inputs"] == 1]
    return [value for own in _ratios(alone, "by batches", "by tasks").values() for value in own]


def _noise(rows: Sequence[Row]) -> list[str]:
    ratios = _noise_ratios(rows)
    if not ratios:
        return []
    return [
        "With one input a task on a device is one batch, so that by batches and by tasks are the same model: the factor between their "
        f"times, {_range(ratios, 2)}, is that of noise, and a smaller one between other columns decides nothing."
    ]


TABLE_5 = Item(
    "table-5",
    "Table V: GPT-3 on the six nodes of Figure 8",
    "the paper names neither the GPUs nor the links (here its A100 and T4, PCIe 4.0 and a network of 100 Gbit/s, two pairs of GPUs in "
    "each node), nor the graph, nor the number of inputs that it schedules at a time (here 1, 8 and 16); it has measured durations, these "
    "are the roofline's at half the float16 peak; it has 600 s, here 20 s in one thread, and names no solver (modules are solved by "
    "CP-SAT). It schedules a decoding step of inputs of 20 tokens: here both all 20 at once, and the last of them with cached keys and "
    "values. The weights need 348 GB, more than a node has, so that static memory is part of the problem and split is a heuristic, "
    "which begins with the list schedules; MILP-SPLIT is the dynamic program alone, which knows the memory of a module and not of all, "
    "and ours: split has windows (`split` with `improve=False`, symmetries by tasks). Columns compare, not the paper's numbers. What "
    "symmetries spare is measured on half a block, its attention, a problem of the split: it begins on an A100 and ends on the same, its "
    "twin in the node, a GPU of the other kind, or one of another node.",
    cases,
    report,
    needs=(("ortools", "solvers"),),
    time="40 minutes with --jobs 2",
)
