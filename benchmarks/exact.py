"""Exact methods on randomly wired modules: each solver with the tightened formulation, and without parts of it.

    python benchmarks/exact.py [--quick] [--jobs 2]

CPU time to the proven optimum, or the gap at the limit of CPU time, which hardly depends on other load of the machine.
The complete set takes hours; results are stored, so that a run may be interrupted and continued. The page shows all
results with the given limit, also those of earlier runs.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import cases
import figures
import instances
import numpy as np

import hetsched as hs
from hetsched.experiments import Results
from hetsched.experiments.results import Case
from hetsched.experiments.runner import timed
from hetsched.modeling.backends import backend
from hetsched.modeling.settings import SolveSettings
from hetsched.models import BatchedMakespan
from hetsched.models.formulation import quick
from hetsched.search import Budget

REGION = "exact"
KINDS, SIZES, SEEDS, LIMIT = ("er", "ws", "ba"), (10, 32), tuple(range(10)), 60.0
SOLVERS = ("scip", "highs", "cpsat")
VARIANTS = ("tightened", "without cuts", "without start", "literal")
AGREE = 1e-6
"""Relative tolerance between a bound and a makespan."""
FASTEST = 0.01
"""Start of the plot in seconds."""
Row = dict[str, Any]


def module(kind: str, n: int, seed: int) -> hs.Problem:
    """Return a problem of the set, a module on three devices, unrelated ones for every other seed."""
    return instances.module(kind, n, seed, unrelated=seed % 2 == 1)


def modules(n: int) -> dict[str, Callable[[], hs.Problem]]:
    """Return what builds the problems of the set with `n` tasks, by name."""
    return {f"{kind} {n}, seed {seed}": partial(module, kind, n, seed) for kind in KINDS for seed in SEEDS}


def solve(case: Case) -> Row:
    """Measure one case, from the problem to the end of the solver, in one thread."""
    problem = module(case["kind"], case["n"], case["seed"])
    prepare(case["solver"])
    solution, spent = timed(lambda: formulated(problem, case["solver"], case["variant"], case["limit"]))
    if solution.schedule is not None:
        broken = hs.verify(problem, solution.schedule)
        assert not broken, broken[0].message
    text = f"{solution.status}, gap {solution.gap:.2%}, {spent['cpu_s']:.2f} s"
    makespan = None if math.isinf(solution.makespan) else solution.makespan
    return {
        "makespan": makespan,
        "bound": solution.bound,
        "gap": solution.gap,
        "proven": solution.status == hs.Status.OPTIMAL,
        **spent,
        "says": text,
    }


def formulated(problem: hs.Problem, solver: str, variant: str, limit: float) -> hs.Solution:
    """Solve a problem by a variant of the formulation."""
    # The windows under the list schedule's length stay, but the solver does not receive the schedule.
    upper = quick(problem).makespan if variant == "without start" else None
    formulation = BatchedMakespan(problem, faithful=variant == "literal", upper=upper)
    monitor = hs.Monitor(problem, Budget(limit), clock=time.process_time)
    # A backend, not its name: the solver works in this process, whose CPU time is measured.
    formulation.run(monitor, backend(solver), SolveSettings(monitor.deadline, threads=1, cuts=variant != "without cuts"))
    return monitor.solution(solver)


@cache
def prepare(solver: str) -> None:
    """Import modules and compile kernels before the first measurement."""
    for variant in VARIANTS:
        formulated(instances.module("er", 4, 0), solver, variant, 600.0)


def check(results: Results, case: Case) -> None:
    """Stop if a bound on the case's instance is above a makespan of any solver."""
    names = ("kind", "n", "seed")
    rows = results.rows(lambda other: all(other[name] == case[name] for name in names))
    highest = max(rows, key=lambda row: row["bound"])
    shortest = min((row for row in rows if row["makespan"] is not None), key=lambda row: row["makespan"], default=None)
    if shortest is None or highest["bound"] <= shortest["makespan"] * (1 + AGREE):
        return
    one, other = (f"{row['solver']} ({row['variant']}, {row['limit']:g} s)" for row in (highest, shortest))
    raise SystemExit(
        f"one is wrong on the module {case['kind']}, {case['n']} tasks, seed {case['seed']}: "
        f"{one} proves the bound {highest['bound']!r}, {other} found the makespan {shortest['makespan']!r}"
    )


def wanted(arguments: argparse.Namespace) -> list[Case]:
    """Return the requested cases; seeds change slowest, so that interrupted runs can be compared."""
    return [
        {"kind": kind, "n": n, "seed": seed, "solver": solver, "variant": variant, "limit": arguments.time_limit}
        for seed in arguments.seeds
        for n in arguments.sizes
        for variant in arguments.variants
        for kind in arguments.kinds
        for solver in arguments.solvers
    ]


def chosen(rows: Sequence[Row], **fields: object) -> list[Row]:
    """Return the rows whose fields have these values."""
    return [row for row in rows if all(row[name] == value for name, value in fields.items())]


def middle(rows: Sequence[Row], limit: float) -> str:
    """Return the median CPU time, where a case that is not proven counts as longer than the limit."""
    median = float(np.median([row["cpu_s"] if row["proven"] else math.inf for row in rows]))
    return figures.number(median, 2) if math.isfinite(median) else f"> {limit:g}"


def table(rows: Sequence[Row], n: int, limit: float) -> str:
    """Return the table of one size."""
    lines = []
    for solver in SOLVERS:
        for variant in VARIANTS:
            selected = chosen(rows, n=n, solver=solver, variant=variant)
            if not selected:
                continue
            gaps = [row["gap"] for row in selected]
            lines.append(
                [
                    f"{solver}, {variant}",
                    cases.spans(row["seed"] for row in selected),
                    f"{sum(row['proven'] for row in selected)} of {len(selected)}",
                    str(sum(row["makespan"] is None for row in selected)),
                    middle(selected, limit),
                    figures.percent(np.mean(gaps)),
                    figures.percent(max(gaps)),
                ]
            )
    head = ["solver, variant", "seeds", "proven", "no schedule", "median CPU time, s", "mean gap", "worst gap"]
    return figures.table(head, lines)


def targets(rows: Sequence[Row], limit: float) -> str:
    """Return the table of targets, a line for each that was measured."""
    lines = []
    for solver, most in (("scip", 2.0), ("cpsat", 0.2)):
        if selected := chosen(rows, n=10, solver=solver, variant="tightened", kind="er"):
            times = [row["cpu_s"] if row["proven"] else math.inf for row in selected]
            median = middle(selected, limit) + " s"
            lines.append(_target(f"{solver}, er, 10 tasks: proven in {most:g} s of CPU time", times, most, median))
    if selected := chosen(rows, n=32, solver="scip", variant="tightened"):
        gaps = [row["gap"] for row in selected]
        lines.append(_target(f"scip, 32 tasks: a gap of at most 3 % in {limit:g} s", gaps, 0.03, figures.percent(np.median(gaps))))
    if selected := chosen(rows, n=32, solver="cpsat", variant="tightened"):
        times = [row["cpu_s"] if row["proven"] else math.inf for row in selected]
        lines.append(_target(f"cpsat, 32 tasks: proven in {limit:g} s", times, math.inf, middle(selected, limit) + " s"))
    return figures.table(["target, tightened", "reached", "median"], lines)


def _target(what: str, values: Sequence[float], most: float, median: str) -> list[str]:
    reached = sum(math.isfinite(value) and value <= most for value in values)
    count = f"{reached} of {len(values)}"
    return [what, count if reached == len(values) else f"**{count}**", median]


def plot(rows: Sequence[Row], limit: float, path: Path) -> None:
    """Draw the share of instances proven over time and, right of the limit, the share within a gap; a panel for each size and variant."""
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D

    sizes = [n for n in SIZES if chosen(rows, n=n)]
    variants = [name for name in VARIANTS if chosen(rows, variant=name)]
    figure = plt.figure(figsize=(1 + 3.2 * len(variants), 0.8 + 2.4 * len(sizes)))
    grid = figure.add_gridspec(len(sizes), len(variants), wspace=0.14, hspace=0.25)
    widest = max(0.05, *(row["gap"] for row in rows if row["makespan"] is not None))
    for i, n in enumerate(sizes):
        for j, variant in enumerate(variants):
            left, right = grid[i, j].subgridspec(1, 2, width_ratios=(1.5, 1), wspace=0.08).subplots(sharey=True, squeeze=False)[0]
            for solver, colour in zip(SOLVERS, figures.COLOURS, strict=False):
                _curves(left, right, chosen(rows, n=n, solver=solver, variant=variant), {"color": colour, "label": solver})
            _dress(left, right, limit, widest)
            left.tick_params(labelleft=j == 0)
            left.set_title(variant if i == 0 else "", loc="left")
            left.set_ylabel(f"{n} tasks" if j == 0 else "")
            left.set_xlabel("CPU seconds" if i == len(sizes) - 1 else "")
            right.set_xlabel("gap left, %" if i == len(sizes) - 1 else "")
    lines = [Line2D([], [], color=colour, label=solver) for solver, colour in zip(SOLVERS, figures.COLOURS, strict=False)]
    figure.legend(handles=lines, loc="upper center", ncols=len(lines), bbox_to_anchor=(0.5, 0.03), frameon=False)
    figures.save(figure, path)
    plt.close(figure)


def _curves(left: Any, right: Any, rows: Sequence[Row], style: dict[str, str]) -> None:
    """Draw the share of rows proven by each CPU time, and from there on the share with a schedule within each gap."""
    if not rows:
        return
    times = sorted(row["cpu_s"] for row in rows if row["proven"])
    gaps = sorted(100 * row["gap"] for row in rows if not row["proven"] and row["makespan"] is not None)
    share = 100 * np.arange(len(times) + len(gaps) + 1) / len(rows)
    proven = len(times)
    left.plot([FASTEST, *times, 1e9], [*share[: proven + 1], share[proven]], drawstyle="steps-post", **style)
    right.plot([0, *gaps, 100], [*share[proven:], share[-1]], drawstyle="steps-post", **style)


def _dress(left: Any, right: Any, limit: float, widest: float) -> None:
    left.set_xlim(FASTEST, limit)
    figures.log_ticks(left, [tick for tick in (0.01, 0.1, 1, 10) if tick < limit])
    right.set_xlim(0, 105 * widest)
    right.locator_params(axis="x", nbins=3)
    right.grid(axis="x", color="0.9", linewidth=0.6)
    left.set_ylim(0, 103)
    left.yaxis.set_major_formatter("{x:.0f} %")
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
    right.spines["left"].set(color="0.5", linestyle=":")
    right.tick_params(axis="y", length=0, labelleft=False)


def text(results: Results, limit: float) -> str:
    """Return the text for the page."""
    rows = results.rows(lambda case: case["limit"] == limit)
    sizes = [n for n in SIZES if chosen(rows, n=n)]
    kinds = [kind for kind in KINDS if chosen(rows, kind=kind)]
    full = len(KINDS) * len(SEEDS) * len(SIZES) * len(SOLVERS) * len(VARIANTS)
    seeds = cases.spans(row["seed"] for row in rows)
    what = f"Modules {', '.join(kinds)}, seeds {seeds}; {limit:g} s of CPU time for each of {len(rows)} solves"
    if len(rows) < full or limit < LIMIT:
        what += f" (the full set: {', '.join(KINDS)}, seeds {cases.spans(SEEDS)}, {full} solves of {LIMIT:g} s)"
    parts = [f"Taken on: {results.taken(lambda case: case['limit'] == limit)}. {what}."]
    parts += [targets(rows, limit), f"![Share of the instances proven over CPU time, and within a gap at the limit](images/{REGION}.svg)"]
    for n in sizes:
        parts += [f"### {n} tasks", table(rows, n, limit)]
    return "\n\n".join(parts)


def options(words: Sequence[str] | None) -> argparse.Namespace:
    """Return the command line's options."""
    parser = figures.parser(__doc__)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--sizes", nargs="+", type=int, choices=SIZES, help=f"default: {cases.spans(SIZES)}, with --quick 10")
    parser.add_argument("--seeds", nargs="+", type=int, help=f"default: {cases.spans(SEEDS)}, with --quick 0")
    parser.add_argument("--solvers", nargs="+", choices=SOLVERS, default=SOLVERS)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=VARIANTS)
    parser.add_argument("--time-limit", type=float, help=f"CPU seconds for one solve (default: {LIMIT:g}, with --quick 2)")
    cases.options(parser, REGION)
    arguments = cases.parse(parser, words, region=REGION, plot=True)
    arguments.sizes = arguments.sizes or SIZES[: 1 if arguments.quick else None]
    arguments.seeds = arguments.seeds or SEEDS[: 1 if arguments.quick else None]
    arguments.time_limit = arguments.time_limit or (2.0 if arguments.quick else LIMIT)
    return arguments


def main(words: Sequence[str] | None = None) -> None:
    """Measure the requested cases and publish all results."""
    arguments = options(words)
    results = Results(arguments.results)
    requested = wanted(arguments)
    cases.measure(requested, solve, results, jobs=arguments.jobs, fresh=arguments.fresh, done=lambda case: check(results, case))
    for case in requested:
        check(results, case)
    limit = arguments.time_limit
    rows = results.rows(lambda case: case["limit"] == limit)
    if arguments.docs is not None:
        plot(rows, limit, arguments.docs / "images" / f"{REGION}.svg")
    figures.publish(arguments, REGION, text(results, limit), rows)


if __name__ == "__main__":
    import exact  # whose functions other processes can import

    exact.main()
