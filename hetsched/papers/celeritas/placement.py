"""Placement of the training steps by one method: the cases that Tables 3 and 4 and Figure 6 share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hetsched.papers.celeritas import testbed
from hetsched.papers.items import Case, Row, Setting
from hetsched.papers.rendering import number
from hetsched.solving import solve


class Method(NamedTuple):
    """A method and its options."""

    name: str
    options: dict[str, Any] = {}


_FIRST = {"claims": "first"}
BAECHI = ("m-topo", "m-etf", "m-sct")
BASELINES = ("metis", *BAECHI)
"""The paper's baselines, without HRL."""
PAPER = {
    "metis": Method("metis"),
    "m-topo": Method("m-topo", _FIRST),
    "m-etf": Method("m-etf", _FIRST),
    "m-sct": Method("m-sct", _FIRST),
    "order-place": Method("order-place"),
    "celeritas": Method("celeritas"),
}
"""The methods of Table 3; Baechi's claim the memory of the first task of a co-location label alone, as the paper describes it."""
OTHERS = {
    "dfs-topo": Method("dfs-topo"),
    "m-topo, labels whole": Method("m-topo"),
    "m-etf, labels whole": Method("m-etf"),
    "m-sct, labels whole": Method("m-sct"),
    "heft": Method("heft"),
    "repartition": Method("repartition"),
}
ROUNDING = 0.0005
"""The paper's shares have three digits."""
SEARCHES = ("multilevel", "auto")
SEEDS = (0, 1, 2)


def placements(setting: Setting, methods: Iterable[str]) -> list[Case]:
    """Return a case for each graph and method."""
    graphs, repeats = (testbed.QUICK, 2) if setting.quick else (testbed.COLUMNS, 5)
    return [{"what": "placement", "graph": name, "method": method, "repeats": repeats} for name in graphs for method in methods]


def searches(setting: Setting) -> list[Case]:
    """Return a case for each graph, search and seed."""
    graphs, seeds, seconds = (testbed.QUICK, SEEDS[:1], 2.0) if setting.quick else (testbed.COLUMNS, SEEDS, 30.0)
    return [
        {"what": "search", "graph": name, "method": method, "seed": seed, "seconds": seconds}
        for name in graphs
        for method in SEARCHES
        for seed in seeds
    ]


def measure(case: Case, data: Path | None) -> Row:
    """Place a graph, several times for the seconds of placement; a step over the memory is a best effort."""
    problem = testbed.problem(case["graph"])
    name, options = (PAPER | OTHERS)[case["method"]]
    solve(problem, name, options=options)  # compiles kernels
    seconds, steps = [], set()
    for _ in range(case["repeats"]):
        solution = solve(problem, name, options=options)
        seconds.append(float(solution.methods.seconds[list(solution.methods.method).index(name)]))
        effort = solution.best_effort
        step = solution.makespan if effort is None else effort.schedule.makespan
        steps.add(step)
    over = 0.0 if effort is None else effort.bytes_over
    excess = f", {over / 1e9:.3g} GB over the memory" if over else ""
    return {
        "step": step if math.isfinite(step) else None,
        "over": over,
        "seconds": seconds,
        "same": len(steps) == 1,
        "says": f"{step:.4g} s a step{excess}, placed in {min(seconds):.3g} s",
    }


def search(case: Case, data: Path | None) -> Row:
    """Search for a placement of a graph within a time limit."""
    problem = testbed.problem(case["graph"])
    solve(problem, case["method"], time_limit=1.0, seed=case["seed"])  # compiles kernels
    solution = solve(problem, case["method"], time_limit=case["seconds"], seed=case["seed"])
    step = solution.makespan if solution.schedule is not None else None
    return {"step": step, "over": 0.0, "bound": solution.bound, "says": f"{solution.makespan:.4g} s a step, bound {solution.bound:.4g}"}


class Found:
    """Rows by graph and method."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows: dict[tuple[str, str], list[Row]] = {}
        for row in rows:
            self.rows.setdefault((row["graph"], row["method"]), []).append(row)
        self.graphs = [name for name in testbed.COLUMNS if any(graph == name for graph, _ in self.rows)]
        self.papers = [name for name in testbed.PAPERS if name in self.graphs]

    def steps(self, graph: str, method: str) -> list[float]:
        """Return the seconds of a step within the memory, one a seed."""
        return [row["step"] for row in self.rows.get((graph, method), []) if row["step"] is not None and not row["over"]]

    def step(self, graph: str, method: str) -> float:
        """Return the mean of `steps`; inf over the memory, NaN where nothing is measured."""
        if (graph, method) not in self.rows:
            return math.nan
        steps = self.steps(graph, method)
        return sum(steps) / len(steps) if steps else math.inf

    def fitting(self, graph: str, method: str) -> str:
        """Return the method, or if it is one of Baechi's that ends over the memory its variant that claims labels whole."""
        return f"{method}, labels whole" if method in BAECHI and math.isinf(self.step(graph, method)) else method

    def seconds(self, graph: str, method: str) -> list[float]:
        """Return the seconds of placement, one a repeat."""
        return [second for row in self.rows.get((graph, method), []) for second in row["seconds"]]

    def cell(self, graph: str, method: str) -> str:
        """Return the seconds of a step as text, in brackets with the excess if they are over the memory."""
        steps = sorted(self.steps(graph, method))
        if steps:
            low, high = number(steps[0]), number(steps[-1])
            return low if low == high else f"{low} to {high}"
        rows = self.rows.get((graph, method), [])
        if not rows:
            return ""
        step = rows[0]["step"]
        return "none" if step is None else f"({number(step)}, {rows[0]['over'] / 1e9:.3g} GB over)"


def beside(own: str, printed: str) -> str:
    """Return our cell beside the paper's."""
    return f"{own} / {printed}" if own and printed else own
