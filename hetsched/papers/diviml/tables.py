"""Tables I and IV: latency and throughput of stacks of ten modules, and the lower bounds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from hetsched.bounds.modular import LITERAL_NODES
from hetsched.papers.diviml import solving, stacks
from hetsched.papers.diviml.judging import factor, judged, unless_excluded
from hetsched.papers.diviml.stacks import INPUTS, KINDS, label
from hetsched.papers.items import GENERATED, Case, Claim, Item, Report, Row, Setting, Table, Verdict
from hetsched.papers.rendering import number, percent

PRINTED = {
    1: """211.7 209.9 104.4 99.9 97.5 98.9 80.1 80.1 80.1
          234.9 219.3 111.8 109.3 103.8 106.2 78.9 79.1 73.7
          236.5 235.4 114.2 108.5 104.7 106.1 79.9 80.3 68.1
          250.5 249.1 116.3 111.3 107.6 109.5 79.1 79.4 61.3
          225.2 223.8 103.7 101.7 97.3 98.1 74.3 77.6 73.3
          229.9 229.3 107.4 104.3 100.9 103.1 76.6 78.7 71.8
          242.9 240.7 106.8 104.4 102.0 103.6 71.6 77.0 62.1""",
    INPUTS: """54 56 74 75 84 87 114 135 164
               48 50 67 66 75 78 95 119 180
               49 51 68 70 78 81 116 129 196
               47 48 65 67 76 79 73 126 209
               51 53 76 75 86 87 89 137 182
               49 52 73 73 82 85 72 137 181
               47 50 72 74 82 84 65 138 207""",
}
"""Tables I (milliseconds) and IV (images a second): best device, five heuristics, MILP, MILP-SPLIT, bound; a line for each of `KINDS`."""
TASKS = (10, 32)
"""Tasks of a module."""
LIMITS = {1: 15.0, INPUTS: 60.0}
"""Seconds for each method by inputs: for one those in which the split ends in the paper (Table III)."""
SEEDS = (0, 1, 2)
Stacks = Mapping[tuple[str, int], Mapping[str, Row]]
"""The rows of the stacks of one size and seed, by kind and method."""


def printed(inputs: int) -> dict[tuple[str, int], dict[str, float]]:
    """Return the paper's seconds by kind and method; the MILP is ``"milp"``."""
    names = ("best-device", *solving.baselines(inputs), "milp", solving.SPLIT, solving.BOUND)
    lines = [[float(word) for word in line.split()] for line in PRINTED[inputs].splitlines()]
    seconds = [[value * 1e-3 if inputs == 1 else inputs / value for value in line] for line in lines]
    return {kind: dict(zip(names, line, strict=True)) for kind, line in zip(KINDS, seconds, strict=True)}


def cases(setting: Setting, inputs: int) -> list[Case]:
    """Return the cases of Table I (one input) or IV."""
    sizes, limit = ((10,), 0.5) if setting.quick else (TASKS, LIMITS[inputs])
    return [
        stacks.case(tasks, 2 if setting.quick else 10, dependence, channels, inputs, method, seed, limit)
        for tasks in sizes
        for seed in SEEDS[: 1 if setting.quick else None]
        for dependence, channels in KINDS
        for method in columns(inputs)
    ]


def columns(inputs: int) -> tuple[str, ...]:
    """Return the methods, for one input with the paper's recursion before the bound."""
    *others, bound = solving.methods(inputs)
    return (*others, *([solving.RECURSION] if inputs == 1 else []), bound)


def report(rows: Sequence[Row], setting: Setting, inputs: int) -> Report:
    """Return Table I or IV for each size of modules, the bounds, and the claims."""
    sizes = sorted({row["tasks"] for row in rows})
    unit = "milliseconds" if inputs == 1 else f"inputs a second, {inputs} inputs"
    tables = [_table(solving.chosen(rows, tasks=tasks), inputs, f"Modules of {tasks} tasks: {unit}, means over seeds") for tasks in sizes]
    tables.append(_bounds(rows, sizes, inputs))
    found = solving.by(rows, _key)
    groups = [
        {kind: found.get((tasks, seed, *kind), {}) for kind in KINDS} for tasks in sizes for seed in sorted({row["seed"] for row in rows})
    ]
    claims = [claim.undecided(GENERATED) for claim in (_latency(groups) if inputs == 1 else _throughput(groups))]
    if inputs == 1:
        claims.append(_one_channel([group[kind] for group in groups for kind in KINDS if kind[1] == 1]))
    return Report(tables, claims, [*_ours(groups), *(_bound_note(groups) if inputs == 1 else []), *contradictions(rows)])


def _key(row: Row) -> tuple[int, int, str, int]:
    return row["tasks"], row["seed"], row["dependence"], row["channels"]


def contradictions(rows: Sequence[Row]) -> list[str]:
    """Return a paragraph if a bound is above a schedule of the same stack."""
    wrong = []
    for stack in solving.by(rows, lambda row: (_key(row), row["modules"], row["inputs"])).values():
        made = solving.best(stack)
        wrong += [
            f"{_key(bound)}: the {bound['method']} {bound['makespan']!r} s is above the makespan {made!r} s"
            for bound in (stack[name] for name in solving.BOUNDS if name in stack)
            if bound["makespan"] > made * (1 + 1e-6)
        ]
    return [f"Contradictions, of which one side is wrong: {'; '.join(wrong)}."] if wrong else []


def _table(rows: Sequence[Row], inputs: int, title: str) -> Table:
    names = columns(inputs)
    theirs = [{solving.RECURSION: solving.BOUND, solving.BOUND: ""}.get(name, name) if inputs == 1 else name for name in names]
    heads = ["stack", *head(inputs), *(["the paper's recursion"] if inputs == 1 else []), "bound"]
    lines = []
    for kind, paper in printed(inputs).items():
        found = [solving.chosen(rows, dependence=kind[0], channels=kind[1], method=name) for name in names]
        lines.append([label(*kind), *(_unit(mean(own), inputs) + _stopped(own) for own in found)])
        lines.append(["paper", *(_printed(paper[name], inputs) if name in paper else "" for name in theirs)])
    return Table(heads, lines, title)


def _stopped(rows: Sequence[Row]) -> str:
    """Return how many of the recursions, which have to end, the limit has stopped; empty for other methods."""
    late = sum(row["method"] == solving.RECURSION and not solving.finished(row) for row in rows)
    return f" ({late} of {len(rows)} stopped)" if late else ""


def head(inputs: int) -> list[str]:
    """Return the heads of the columns of the methods but the bound."""
    return [f"b{name}" if inputs > 1 and name in ("MET", "Greedy", "HEFT") else name for name in solving.HEAD]


def mean(rows: Sequence[Row]) -> float:
    """Return the mean makespan; nan if there is none."""
    values = [row["makespan"] for row in rows if row["makespan"] is not None]
    return float(np.mean(values)) if values else math.nan


def _unit(makespan: float, inputs: int) -> str:
    return "" if math.isnan(makespan) else number(_value(makespan, inputs))


def _printed(makespan: float, inputs: int) -> str:
    return f"{_value(makespan, inputs):.4g}"


def _value(makespan: float, inputs: int) -> float:
    return makespan * 1e3 if inputs == 1 else inputs / makespan


def _bounds(rows: Sequence[Row], sizes: Sequence[int], inputs: int) -> Table:
    """Return by how much the bound is below the best schedule known."""
    lines = []
    bounds = {solving.RECURSION: "the paper's recursion", solving.BOUND: "bound"} if inputs == 1 else {solving.BOUND: "bound"}
    for kind, paper in printed(inputs).items():
        cells = []
        for tasks in sizes:
            found = solving.by(solving.chosen(rows, tasks=tasks, dependence=kind[0], channels=kind[1]), lambda row: row["seed"]).values()
            for name in bounds:
                gaps = [
                    _gap(stack, name) for stack in found if name in stack and math.isfinite(solving.best(stack)) and _whole(stack, name)
                ]
                cells.append(_gaps(gaps, len(found)))
        gap = 1 - paper[solving.BOUND] / min(value for name, value in paper.items() if name != solving.BOUND)
        lines.append([label(*kind), *cells, percent(gap)])
    title = "Lower bound on the makespan: share by which it is below the best schedule of any method"
    heads = [f"{tasks} tasks a module: {name}" for tasks in sizes for name in bounds.values()]
    return Table(["stack", *heads, "paper's bound"], lines, title)


def _gaps(gaps: Sequence[float], seeds: int) -> str:
    """Return the mean gap and the spread, and of how many seeds they are where it is not all."""
    if not gaps:
        return ""
    known = "" if len(gaps) == seeds else f", {len(gaps)} of {seeds}"
    return f"{percent(float(np.mean(gaps)))} ({percent(min(gaps))} to {percent(max(gaps))}{known})"


def _whole(stack: Mapping[str, Row], bound: str) -> bool:
    """Return whether the limit did not stop a bound, which our bound is never asked."""
    return bound != solving.RECURSION or solving.finished(stack[bound])


def _gap(stack: Mapping[str, Row], bound: str = solving.BOUND) -> float:
    return max(0.0, 1 - float(stack[bound]["makespan"]) / solving.best(stack))  # above it only by rounding, else a contradiction


def _per_seed(groups: Sequence[Stacks], value: Callable[[Stacks], float], *needed: str) -> list[float]:
    """Return a figure for each size and seed of which all stacks have the needed methods."""
    return [float(value(group)) for group in _complete(groups, *needed)]


def _complete(groups: Sequence[Stacks], *needed: str) -> list[Stacks]:
    return [group for group in groups if all(math.isfinite(solving.least(stack, [name])) for stack in group.values() for name in needed)]


def _ratios(group: Stacks, over: Sequence[str], under: Sequence[str]) -> list[float]:
    return [solving.least(stack, over) / solving.least(stack, under) for stack in group.values()]


def _printed_gains(inputs: int) -> list[float]:
    """Return by how much the split is better than the best of the heuristics in the paper's table."""
    rows = printed(inputs).values()
    return [min(row[name] for name in solving.baselines(inputs)) / row[solving.SPLIT] - 1 for row in rows]


def _gain(groups: Sequence[Stacks], inputs: int, method: str = solving.SPLIT) -> list[float]:
    names = solving.baselines(inputs)
    return _per_seed(groups, lambda group: float(np.mean(_ratios(group, names, [method]))) - 1, *names, method)


def _faster(text: str, groups: Sequence[Stacks], at_least: float) -> Claim:
    """Return a claim on the speed-up over the best device by the MILP or the split, of the stack where it is largest."""

    def largest(methods: Sequence[str], *needed: str) -> list[float]:
        return _per_seed(groups, lambda group: max(_ratios(group, ["best-device"], methods)), "best-device", *needed)

    claim = judged(text, largest((*solving.MILP, solving.SPLIT), solving.SPLIT), at_least=at_least, each="run", shown=factor)
    return unless_excluded(claim, largest([solving.BOUND], solving.BOUND), at_least, shown=factor)


def _better(text: str, groups: Sequence[Stacks], inputs: int) -> Claim:
    """Return a claim on the gain of the split over the best heuristic, which is to be that of every row of the paper."""
    least = min(_printed_gains(inputs))
    claim = judged(text, _gain(groups, inputs), at_least=least, each="run", shown=percent)
    claim = solving.against_split(claim, [stack for group in groups for stack in group.values()])
    return unless_excluded(claim, _gain(groups, inputs, solving.BOUND), least, shown=percent)


def _ended(groups: Sequence[Stacks]) -> list[Stacks]:
    """Return the stacks on which the dynamic program of the paper's split ends within the limit."""
    split = solving.SPLIT
    return [{kind: stack for kind, stack in group.items() if split in stack and solving.finished(stack[split])} for group in groups]


def _several(group: Stacks, dependence: str) -> list[Mapping[str, Row]]:
    return [stack for (kind, channels), stack in group.items() if kind == dependence and channels > 1]


def _excess(found: Sequence[Mapping[str, Row]], method: str) -> list[float]:
    """Return by how much a method is longer than the best known on each stack."""
    return [solving.least(stack, [method]) / solving.best(stack) - 1 for stack in found]


def _ours(groups: Sequence[Stacks]) -> list[str]:
    """Return by how much the split with windows, ours, is longer than the best known on stacks of several channels."""
    known = _complete(groups, solving.WINDOWS)
    found = {name: [_excess(_several(group, name), solving.WINDOWS) for group in known] for name in ("sdep", "wdep")}
    stated = [
        f"on {name} stacks by at most {percent(max(sum(run) / len(run) for run in runs))} on average over a run, "
        f"{percent(max(itertools.chain(*runs)))} on one stack"
        for name, runs in found.items()
        if runs
    ]
    gaps = [_gap(stack) for group in known for name in found for stack in _several(group, name) if solving.BOUND in stack]
    above = f", whose bound is {percent(min(gaps))} to {percent(max(gaps))} below it" if gaps else ""
    best = f"the best schedule of all columns{above},"
    return [f"The split with windows, ours, is longer than {best} {' and '.join(stated)}."] if stated else []


def _mean_gap(group: Stacks, dependence: str, bound: str) -> float:
    return float(np.mean([_gap(stack, bound) for stack in _several(group, dependence)]))


def _closer(groups: Sequence[Stacks], bound: str) -> list[float]:
    """Return by how much the gap of a bound is less on wdep than on sdep stacks, for each size and seed of which all bounds are whole."""
    several = [{kind: stack for kind, stack in group.items() if kind[1] > 1} for group in groups]
    whole = [group for group in several if group and all(bound in stack and _whole(stack, bound) for stack in group.values())]
    return _per_seed(whole, lambda group: _mean_gap(group, "sdep", bound) - _mean_gap(group, "wdep", bound), bound)


def _bound_note(groups: Sequence[Stacks]) -> list[str]:
    """Return by how much our bound, which is not the paper's, is closer on wdep stacks."""
    values = sorted(_closer(groups, solving.BOUND))
    if not values:
        return []
    more = f"{percent(values[0])} to {percent(values[-1])}".replace(" %", " points")
    return [f"With our bound the mean gap on sdep stacks is {more} more than on wdep stacks, in {len(values)} runs."]


def _worst(dependence: str) -> float:
    """Return by how much the split is longer than the MILP in the paper's Table I, at most."""
    return max(row[solving.SPLIT] / row["milp"] - 1 for (kind, channels), row in printed(1).items() if kind == dependence and channels > 1)


def _one_channel(found: Sequence[Mapping[str, Row]]) -> Claim:
    """Return whether the dynamic program is optimal on stacks of one channel: a shorter schedule refutes it where it ends."""
    text = "With one channel the dynamic program over modules gives an optimal solution of the whole (IV-B)"
    ended = [stack for stack in found if solving.SPLIT in stack and solving.finished(stack[solving.SPLIT])]
    if not ended:
        return Claim(text, Verdict.UNSEEN, "not measured, or the limit stops it on every stack")
    excess = _excess(ended, solving.SPLIT)
    proven = sum(
        bool(stack[solving.SPLIT]["proven"]) or (solving.BOUND in stack and _gap(stack) + more <= solving.SAME)
        for stack, more in zip(ended, excess, strict=True)
    )
    reason = (
        f"it ends within the limit on {len(ended)} of {len(found)} stacks, where it is at most {percent(max(excess))} longer than the best "
        f"schedule known; on {proven} that is proven to be the shortest"
    )
    if max(excess) > solving.SAME:
        return Claim(text, Verdict.NOT_HELD, reason)
    return Claim(text, Verdict.HELD if proven == len(found) else Verdict.UNSEEN, reason)


def _latency(groups: Sequence[Stacks]) -> list[Claim]:
    gains = _printed_gains(1)
    ended = _ended(groups)
    close = [{name: _excess(_several(group, name), solving.SPLIT) for name in ("sdep", "wdep")} for group in ended]
    return [
        _faster(
            "Latency more than 3 times lower than on the fastest device (abstract), on the stacks where the gain is largest", groups, 3.0
        ),
        _better(
            f"The split's latency is about 30 % better than that of the best heuristic (V-B; {percent(min(gains))} to "
            f"{percent(max(gains))} in the rows of Table I), on average over the stacks",
            groups,
            1,
        ),
        *(
            judged(
                f"On {name} stacks the split is close to the optimum (V-B; {percent(_worst(name))} longer than the MILP at most), against "
                "the best schedule known, where the dynamic program ends within the limit",
                list(itertools.chain(*(own[name] for own in close))),
                at_most=_worst(name),
                each="stack",
                shown=percent,
            )
            for name in ("sdep", "wdep")
        ),
        judged(
            "The split is closer to the optimum on sdep than on wdep stacks (V-B): difference of the mean excess, where the dynamic "
            "program ends within the limit",
            [float(np.mean(own["wdep"]) - np.mean(own["sdep"])) for own in close if all(own.values())],
            at_least=0.0,
            each="run",
            shown=percent,
        ),
        judged(
            "The lower bound is closer to the optimum on wdep than on sdep stacks (V-B): difference of the gaps to the best schedule "
            f"known, by the paper's recursion where it ends within the limit, of parts bounded with at most {LITERAL_NODES} nodes",
            _closer(groups, solving.RECURSION),
            at_least=0.0,
            each="run",
            shown=percent,
        ),
    ]


def _throughput(groups: Sequence[Stacks]) -> list[Claim]:
    gains = _printed_gains(INPUTS)
    every = [stack for group in groups for stack in group.values()]
    above = _per_seed(groups, lambda group: min(_ratios(group, solving.MILP, [solving.SPLIT])) - 1, *solving.MILP, solving.SPLIT)
    return [
        _faster(
            "Throughput up to 2.9 times higher than on the fastest device (abstract), on the stacks where the gain is largest", groups, 2.9
        ),
        _better(
            f"The split's throughput is up to 60 % better than that of the best heuristic (V-C; {percent(min(gains))} to "
            f"{percent(max(gains))} in the rows of Table IV), on average over the stacks",
            groups,
            INPUTS,
        ),
        solving.against_both(
            judged(
                "The split's schedules are better than those of the MILP (V-C; in every row of Table IV, with more time for the MILP), "
                "here in equal time, on the stacks where it gains least",
                above,
                at_least=0.0,
                each="run",
                shown=percent,
            ),
            every,
        ),
    ]


TABLE_1 = Item(
    "table-1",
    "Table I: latency of stacks of ten modules, and the lower bound",
    f"{stacks.DIFFERS}{stacks.SIZE}: both are here. {solving.limits(LIMITS[1], SEEDS)} "
    "The paper's recursion, beside the bound, is computed over the modules that the generator made, with sets of tasks for which it is a "
    f"bound in every case (`hetsched.bounds.recursive`), and branch and bound of at most {LITERAL_NODES} nodes for a part of a module "
    "where the paper has its optimum; where the limit stops it, it is left out of the comparisons.",
    lambda setting: cases(setting, 1),
    lambda rows, setting: report(rows, setting, 1),
    needs=(("ortools", "solvers"),),
    time="45 minutes with --jobs 2",
)
TABLE_4 = Item(
    "table-4",
    "Table IV: throughput of stacks of ten modules, and its upper bound",
    f"{stacks.DIFFERS}{stacks.GROWN}{stacks.SIZE}: both are here. {solving.limits(LIMITS[INPUTS], SEEDS)}",
    lambda setting: cases(setting, INPUTS),
    lambda rows, setting: report(rows, setting, INPUTS),
    needs=(("ortools", "solvers"),),
    time="3 hours with --jobs 2",
)
