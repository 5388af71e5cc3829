"""Placements of the models by the methods of Figures 9 and 10 and Table V, and by ours."""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hetsched.papers.items import Case, Claim, Row, Setting, Verdict
from hetsched.papers.moirai import models
from hetsched.papers.moirai.graphs import chosen

if TYPE_CHECKING:
    from hetsched.schedule.decision import Decision
    from hetsched.search.solution import Solution

LEARNED, COMPARED = "policy-gradient", ("m-sct", "getf")
OTHERS = {"best-device": "best device", "heft": "HEFT", "auto": "ours: auto"}
"""Methods that are not in the paper, with their names."""
TASKS = 300
"""Number of tasks of the graph that the MILP is solved on."""
LIMITS = {LEARNED: 10.0, "m-sct": 60.0, "getf": 60.0, "moirai": 30.0, "auto": 20.0}
"""Seconds for a method in full; half of those of ``moirai`` are for the search after the MILP."""
QUICK_LIMIT = 4.0
OPTIONS: dict[str, dict[str, Any]] = {"getf": {"integral": True, "solver": "highs"}, "moirai": {"tasks": TASKS, "improve": True}}
AGAIN = 2.0
"""A method that took less than so many seconds runs a second time, for the first may compile."""
SEEDS = 3
_COARSE = re.compile(r"moirai: the graph of (\d+) tasks takes \S+ s by '([^']+)', (\w+);")


def cases(setting: Setting) -> list[Case]:
    """Return a case for each model, cluster, graph and method; the learned placer with several seeds."""
    return [
        {"what": "placement", "model": model, "cluster": where, "graph": which, "method": method, "limit": limit, "seed": seed}
        for model in chosen(setting)
        for where in models.CLUSTERS
        for which in models.GRAPHS
        for method, limit, seed in _runs(setting)
    ]


def _runs(setting: Setting) -> Iterable[tuple[str, float | None, int]]:
    from hetsched.solving import methods

    for method in (LEARNED, *COMPARED, "moirai", *OTHERS):
        if method in methods():
            limit = LIMITS.get(method)
            seeds = SEEDS if method == LEARNED and not setting.quick else 1
            yield from ((method, min(limit, QUICK_LIMIT) if setting.quick and limit else limit, seed) for seed in range(seeds))


def measure(case: Case, data: Path | None) -> Row:
    """Place a model by a method."""
    from hetsched.solving import solve

    method, problem = case["method"], models.placing(models.whole(case["model"], case["cluster"], case["graph"]))

    def run() -> tuple[Solution, float]:
        began = time.perf_counter()
        solution = solve(problem, method, time_limit=case["limit"], seed=case["seed"], options=OPTIONS.get(method))
        own = _of(solution, method, "seconds")  # without the verification, and without the search after Moirai's MILP
        return solution, own if method != "auto" and math.isfinite(own) else time.perf_counter() - began

    solution, seconds = run()
    if seconds < AGAIN:
        solution, seconds = run()
    over = solution.best_effort
    row: Row = {
        "tasks": problem.n_tasks,
        "makespan": solution.makespan if solution.schedule is not None else None,
        "by": solution.method,
        "bound": solution.bound,
        "seconds": seconds,
        "over": None if over is None or solution.schedule is not None else over.bytes_over,
        "fits": None if solution.schedule is None else _fits(case, solution.schedule.decision),
    }
    if method == "moirai":
        row |= _milp(solution)
    length = "no schedule" if row["makespan"] is None else f"{1e3 * row['makespan']:.4g} ms"
    return row | {"says": f"{length} in {seconds:.2g} s"}


def _fits(case: Case, decision: Decision) -> bool:
    """Return whether a decision is within the memory as it is used over time, with activations freed after their last use."""
    from hetsched.schedule import memory
    from hetsched.schedule.simulate import simulate

    problem = models.whole(case["model"], case["cluster"], case["graph"]).replace(memory="peak")
    needed = memory.needed(problem, simulate(problem, decision))
    return not memory.over_capacity(problem, needed).any()


def _milp(solution: Solution) -> Row:
    """Return the size of the graph that the MILP was solved on, who found its schedule, its status, and the makespan carried back."""
    for found in filter(None, map(_COARSE.match, solution.messages)):
        back = _of(solution, "moirai", "makespan")
        return {"coarse": int(found[1]), "found": found[2], "status": found[3], "milp": back if math.isfinite(back) else None}
    proven = solution.status == "optimal"  # by a bound, before the MILP
    return {"coarse": None, "found": None, "status": "optimal" if proven else None, "milp": solution.makespan if proven else None}


def _of(solution: Solution, method: str, what: str) -> float:
    """Return a number of one of the methods that ran in a solve, inf if it did not."""
    of = dict(zip(solution.methods.method.tolist(), getattr(solution.methods, what).tolist(), strict=True))
    return float(of.get(method, math.inf))


def cell(rows: Sequence[Row], model: str, where: str, which: str, method: str) -> list[Row]:
    """Return the rows of a method, one a seed."""
    wanted = {"model": model, "cluster": where, "graph": which, "method": method}
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def length(row: Row) -> float | None:
    """Return the makespan, of Moirai's method that of the MILP carried back; None without a schedule."""
    made = row["milp"] if row["method"] == "moirai" else row["makespan"]
    return None if made is None else float(made)


Place = tuple[str, str, str]
"""A model, a cluster and a graph."""
Key = TypeVar("Key")


def finder(row: Row) -> str:
    """Return the method that found the schedule of a solve of Moirai's MILP: ``"moirai"``, or one from whose schedule the MILP starts."""
    return str(row["found"] or row["by"])


def by_milp(rows: Sequence[Row], place: Place) -> bool:
    """Return whether Moirai's MILP itself found its schedule."""
    return all(finder(row) == "moirai" for row in cell(rows, *place, "moirai"))


def highest(values: Mapping[Key, float], own: Callable[[Key], bool], wanted: float) -> Key:
    """Return the key of the highest value, of those of the MILP's own schedules if one reaches what is wanted."""
    return max(values, key=lambda key: (values[key] >= wanted and own(key), values[key]))


def seen(claim: Claim, rows: Sequence[Row], places: Iterable[Place]) -> Claim:
    """Return a claim that Moirai's schedules of some places decide: undecided unless the MILP itself found each of them."""
    finders = Counter(finder(row) for place in places for row in cell(rows, *place, "moirai"))
    others = ", ".join(f"`{name}` {count}" for name, count in finders.most_common() if name != "moirai")
    if claim.verdict is Verdict.UNSEEN or not others:
        return claim
    found = f"of the schedules that decide, Moirai's MILP found {finders['moirai']}, methods from whose schedules it starts {others}"
    return Claim(claim.text, Verdict.UNSEEN, f"{claim.reason}; {found}")
