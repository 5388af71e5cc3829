"""DiviML's Tables I, III and IV and Figure 7 on generated instances, compared with the paper's figures.

    python benchmarks/diviml.py [--quick] [--tasks 32] [--jobs 2]

Stacks of randomly wired modules joined by one to four channels: latency for one input, throughput for sixteen, of
the paper's baselines, of its MILP as a whole, of the split without a search, of annealing, and bounds, the paper's too; how much faster
the split is than the whole for more modules; quality over time. Results are stored, so that a run may be interrupted
and continued. Table V is in gpt3.py.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cases
import figures
import instances
import numpy as np
from cases import Case, Results

import hetsched as hs
from hetsched.arrays import FloatArray
from hetsched.bounds.modular import modular
from hetsched.stopping import Deadline

REGION = "diviml"
LIMIT, SEEDS, INPUTS = 60.0, (0, 1, 2), 16
KINDS = (("sdep", 1), ("sdep", 2), ("sdep", 3), ("sdep", 4), ("wdep", 2), ("wdep", 3), ("wdep", 4))
"""Dependence and channels of the stacks of Tables I and IV."""
STACKS = (5, 10, 20)
"""Numbers of modules in Table III."""
TASKS = (10, 32)
"""Tasks of a module; the first is the default."""
CLOSE = 1.01
"""The makespan at which a method is done, in that of the best known."""
WHOLE = ("cpsat", "milp")
"""The methods that solve the model of the whole, by CP-SAT and by SCIP."""
BOUND, RECURSION = "bound", "recursion"
"""The best lower bound, and the paper's as printed."""
BOUNDS = (RECURSION, BOUND)
METHODS = {
    1: ("best-device", "met", "greedy", "heft", "ea", "sa", "annealing", "cpsat", "split", "auto", RECURSION, BOUND),
    INPUTS: ("best-device", "bmet", "bgreedy", "bheft", "ea", "sa", "annealing", "cpsat", "split", "auto", BOUND),
}
"""Methods by number of inputs."""
PAPER = {
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
"""Tables I (milliseconds) and IV (images a second): baselines, MILP, MILP-SPLIT, bound; a line for each of `KINDS`."""
PAPER_FACTORS = {("sdep", 5): 37, ("sdep", 10): 48, ("sdep", 20): 141, ("wdep", 5): 53, ("wdep", 10): 54, ("wdep", 20): 395}
"""Table III: speed-up of the split, two channels."""
Row = dict[str, Any]


def build(case: Case) -> hs.Problem:
    """Return a case's problem."""
    return instances.profiled(
        case["tasks"], case["modules"], channels=case["channels"], dependence=case["dependence"], inputs=case["inputs"], seed=case["seed"]
    )


def solve(case: Case) -> Row:
    """Measure one case."""
    problem = build(case)
    prepare(case["method"], case["inputs"])
    if case["method"] in BOUNDS:
        bound, spent = cases.timed(lambda: lower_bound(problem, case["method"], case["limit"]))
        return {"makespan": bound.value, "history": [], "proven": False, **spent, "says": f"{bound.value:.6g} by {bound.name}"}
    solution, spent = cases.timed(lambda: run(problem, case))
    assert solution.schedule is not None, f"no schedule: {solution.messages}"
    broken = hs.verify(problem, solution.schedule)
    assert not broken, broken[0].message
    history = cases.improvements(solution)
    proven = solution.status == hs.Status.OPTIMAL
    text = f"{solution.makespan:.6g}, {spent['wall_s']:.1f} s"
    return {"makespan": solution.makespan, "history": history, "proven": proven, **spent, "says": text}


def lower_bound(problem: hs.Problem, name: str, limit: float) -> hs.Bound:
    """Return one of `BOUNDS`."""
    if name == RECURSION:
        return modular(problem, literal=True, deadline=Deadline.after(limit))
    return hs.bound(problem, time_limit=limit)


def run(problem: hs.Problem, case: Case) -> hs.Solution:
    """Run a case's method, solvers with one thread, for comparable times."""
    channels = case["channels"]
    options: dict[str, Any] = {"threads": 1} if case["method"] in WHOLE else {}
    if case["method"] == "split":
        options = {"solver": "cpsat", "workers": 1, "improve": False}
        options |= {"channels": channels, "largest": case["tasks"] + 2} if channels > 1 else {}
    return hs.solve(problem, case["method"], time_limit=case["limit"], seed=case["seed"], options=options)


@functools.cache
def prepare(method: str, inputs: int) -> None:
    """Import modules and compile kernels before the first measurement."""
    problem = instances.profiled(4, 2, inputs=inputs)
    if method in BOUNDS:
        lower_bound(problem, method, 10.0)
    else:
        hs.solve(problem, method, time_limit=3)


def asked(arguments: argparse.Namespace) -> list[Case]:
    """Return the cases: Tables I and IV, then III."""
    tables = [
        {"modules": arguments.modules, "dependence": dependence, "channels": channels, "inputs": inputs, "method": method}
        for inputs in arguments.inputs
        for dependence, channels in KINDS
        for method in METHODS[inputs]
    ]
    factors = [
        {"modules": modules, "dependence": dependence, "channels": 2, "inputs": 1, "method": method}
        for modules in arguments.stacks
        for dependence in ("sdep", "wdep")
        for method in (*WHOLE, "split")
    ]
    every = tables + [case for case in factors if case not in tables]
    return [{**case, "tasks": arguments.tasks, "seed": seed, "limit": arguments.time_limit} for seed in arguments.seeds for case in every]


def chosen(rows: Sequence[Row], **fields: object) -> list[Row]:
    """Return the rows whose fields have these values."""
    return [row for row in rows if all(row[name] == value for name, value in fields.items())]


def table(rows: Sequence[Row], inputs: int, modules: int) -> str:
    """Return Table I (one input: milliseconds) or IV (several: inputs a second), means over the seeds."""
    lines = []
    for dependence, channels in KINDS:
        cells, best = [], np.nan
        for method in METHODS[inputs]:
            selected = chosen(rows, dependence=dependence, channels=channels, inputs=inputs, modules=modules, method=method)
            mean = float(np.mean([row["makespan"] for row in selected])) if selected else np.nan
            cells.append(mean)
            best = mean if method not in BOUNDS and not mean >= best else best
        shown = [_unit(cell, inputs) if cell != best else f"**{_unit(cell, inputs)}**" for cell in cells]
        gap = 1 - cells[-1] / best
        lines.append([_kind(dependence, channels), *shown, "" if np.isnan(gap) else figures.percent(gap)])
    return figures.table(["", *METHODS[inputs], "gap"], lines)


def _unit(makespan: float, inputs: int) -> str:
    if np.isnan(makespan):
        return ""
    return figures.number(makespan * 1e3 if inputs == 1 else inputs / makespan)


def _kind(dependence: str, channels: int) -> str:
    return "1 channel" if channels == 1 else f"{dependence}, {channels} channels"


def paper(inputs: int) -> str:
    """Return the paper's table, with the gap of its best to its bound."""
    lines = []
    for (dependence, channels), line in zip(KINDS, PAPER[inputs].splitlines(), strict=True):
        numbers = [float(word) for word in line.split()]
        best, bound = (min(numbers[:-1]), numbers[-1]) if inputs == 1 else (1 / max(numbers[:-1]), 1 / numbers[-1])
        lines.append([_kind(dependence, channels), *line.split(), figures.percent(1 - bound / best)])
    names = [*METHODS[inputs][:6], "MILP", "MILP-SPLIT", "bound", "gap"]
    return figures.table(["paper", *names], lines)


def seconds_to(row: Row, makespan: float) -> float:
    """Return the seconds until the first schedule of at most a makespan, or until the proof if that came first; inf if neither did."""
    reached = min((time for time, value in row["history"] if value <= makespan), default=np.inf)
    return float(min(reached, row["wall_s"] if row["proven"] else np.inf))


def factors(rows: Sequence[Row], stacks: Sequence[int]) -> str:
    """Return Table III: seconds to within one percent of the best known, or to the proof, of the whole and of the split."""
    lines = []
    for modules in stacks:
        for dependence in ("sdep", "wdep"):
            fields = {"modules": modules, "dependence": dependence, "channels": 2, "inputs": 1}
            results = {method: chosen(rows, method=method, **fields) for method in (*WHOLE, "split")}
            if all(results.values()):
                paired = list(zip(*(sorted(results[method], key=lambda row: row["seed"]) for method in results), strict=True))
                best = [
                    min(row["makespan"] for row in chosen(rows, seed=one[0]["seed"], **fields) if row["method"] not in BOUNDS)
                    for one in paired
                ]
                seconds = np.array(
                    [[seconds_to(row, CLOSE * least) for row in one] for one, least in zip(paired, best, strict=True)], np.float64
                )
                above = np.array([[row["makespan"] / least for row in one] for one, least in zip(paired, best, strict=True)]).mean(axis=0)
                lines.append(
                    [
                        f"{modules}, {dependence}",
                        *(_reached(column) for column in seconds.T),
                        *(_factor(seconds[:, x], seconds[:, -1]) for x in range(len(WHOLE))),
                        *(figures.percent(value - 1) for value in above),
                        str(PAPER_FACTORS[dependence, modules]) if modules in STACKS else "",
                    ]
                )
    head = ["modules", *(f"{name}, s" for name in (*WHOLE, "split")), *(f"{name} / split" for name in WHOLE)]
    return figures.table([*head, *(f"{name} longer by" for name in (*WHOLE, "split")), "paper's factor"], lines)


def _reached(seconds: FloatArray) -> str:
    """Return the median of seconds, and how many of the stacks were reached where it is not all."""
    done = seconds[np.isfinite(seconds)]
    if not len(done):
        return "never"
    return figures.number(float(np.median(done)), 2) + ("" if len(done) == len(seconds) else f" ({len(done)} of {len(seconds)})")


def _factor(whole: FloatArray, split: FloatArray) -> str:
    """Return the median factor over the stacks that both reached."""
    both = np.isfinite(whole) & np.isfinite(split)
    return figures.number(float(np.median(whole[both] / np.maximum(split[both], 1e-3))), 2) if both.any() else ""


def plot(rows: Sequence[Row], modules: int, path: Path) -> None:
    """Draw the paper's Figure 7: throughput over time, the mean over stacks as a share of the best of each."""
    import matplotlib.pyplot as plt

    selected = chosen(rows, inputs=INPUTS, modules=modules)
    names = [name for name in METHODS[INPUTS] if name not in BOUNDS and chosen(selected, method=name)]
    limit = max((row["limit"] for row in selected), default=1.0)
    times = np.geomspace(0.01, limit, 200)
    best: dict[tuple[object, ...], float] = {}
    for row in selected:
        if row["method"] not in BOUNDS:
            best[_stack(row)] = min(best.get(_stack(row), np.inf), row["makespan"])
    figure, ax = plt.subplots(figsize=(6.4, 3.6))
    for name, colour in zip(names, figures.COLOURS * 2, strict=False):
        shares = [[100 * best[_stack(row)] / _after(row, second) for second in times] for row in chosen(selected, method=name)]
        ax.plot(
            times, np.mean(shares, axis=0), color=colour, label=name, linestyle="--" if names.index(name) >= len(figures.COLOURS) else "-"
        )
    ax.set_xlim(times[0], limit)
    figures.log_ticks(ax, [tick for tick in (0.01, 0.1, 1, 10, 60) if tick <= limit])
    ax.set_xlabel("seconds")
    ax.set_ylabel("throughput, share of the best")
    ax.yaxis.set_major_formatter("{x:.0f} %")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, bbox_to_anchor=(1.0, 1.0), loc="upper left")
    figure.tight_layout()
    figures.save(figure, path)
    plt.close(figure)


def _stack(row: Row) -> tuple[object, ...]:
    return row["dependence"], row["channels"], row["seed"]


def _after(row: Row, seconds: float) -> float:
    return min((value for time, value in row["history"] if time <= seconds), default=np.inf)


def text(results: Results, arguments: argparse.Namespace) -> str:
    """Return the text for the page."""
    limit, modules = arguments.time_limit, arguments.modules
    rows = results.rows(lambda case: case["limit"] == limit and case.get("tasks") == arguments.tasks)
    seeds = cases.spans(row["seed"] for row in rows)
    head = (
        f"Taken on: {results.taken(lambda case: case['limit'] == limit)}. Stacks of {modules} ER(0.2) modules of {arguments.tasks} tasks, "
        f"seeds {seeds}, {limit:g} s each, solvers with one thread. What differs from the paper: its networks are profiled, ours have "
        "random times around its mean times (`instances.profiled`); it gives its MILP two hours and its split ten minutes, and names no "
        "solver; here `cpsat` is the whole model solved by CP-SAT, and `split` solves modules and windows by the built-in branch and bound "
        "and what that leaves of modules by CP-SAT, without a search of the whole (`improve=False`). `recursion` is the paper's "
        "bound as printed, `bound` the best of ours. So rows compare with one another, not with the paper's seconds."
    )
    parts = [head]
    titles = {1: "### Latency, ms (Table I)", INPUTS: f"### Throughput, inputs a second, {INPUTS} inputs (Table IV)"}
    for inputs, title in titles.items():
        if chosen(rows, inputs=inputs, modules=modules):
            parts += [title, table(rows, inputs, modules), paper(inputs)]
    if any(row["modules"] in arguments.stacks for row in rows):
        told = "Seconds to within 1 % of the best known or to the proof, medians over the stacks that reached it; `milp` is SCIP."
        parts += ["### The whole and the split, two channels (Table III)", told, factors(rows, arguments.stacks)]
    if chosen(rows, inputs=INPUTS, modules=modules):
        parts += [f"### Quality over time (Figure 7)\n\n![Throughput over time, as a share of the best known](images/{REGION}.svg)"]
    return "\n\n".join(parts)


def main(words: Sequence[str] | None = None) -> None:
    """Measure the requested cases and publish all results."""
    parser = figures.parser(__doc__)
    parser.add_argument("--modules", type=int, help="modules of a stack in Tables I and IV (default: 10, with --quick 2)")
    parser.add_argument("--tasks", type=int, choices=TASKS, default=TASKS[0], help="tasks of a module (default: %(default)s)")
    parser.add_argument("--stacks", type=int, nargs="+", help=f"modules in Table III (default: {cases.spans(STACKS)}, with --quick 2)")
    parser.add_argument("--inputs", type=int, nargs="+", choices=list(METHODS), default=list(METHODS), help="default: %(default)s")
    parser.add_argument("--seeds", type=int, nargs="+", help=f"default: {cases.spans(SEEDS)}, with --quick 0")
    parser.add_argument("--time-limit", type=float, help=f"seconds for one case (default: {LIMIT:g}, with --quick 1)")
    cases.options(parser, REGION)
    arguments = cases.parse(parser, words, region=REGION, plot=True)
    arguments.modules = arguments.modules or (2 if arguments.quick else 10)
    arguments.stacks = arguments.stacks or ([2] if arguments.quick else list(STACKS))
    arguments.seeds = arguments.seeds or list(SEEDS[: 1 if arguments.quick else None])
    arguments.time_limit = arguments.time_limit or (1.0 if arguments.quick else LIMIT)
    results = Results(arguments.results, fresh=arguments.fresh)
    cases.measure(asked(arguments), solve, results, jobs=arguments.jobs)
    rows = results.rows(lambda case: case["limit"] == arguments.time_limit and case.get("tasks") == arguments.tasks)
    if arguments.docs is not None and chosen(rows, inputs=INPUTS, modules=arguments.modules):
        plot(rows, arguments.modules, arguments.docs / "images" / f"{REGION}.svg")
    figures.publish(arguments, REGION, text(results, arguments), rows)


if __name__ == "__main__":
    main()
