"""Figures 3 to 6: torchvision's networks and single randomly wired modules, latency and throughput."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hetsched.papers.diviml import networks, solving, stacks, tables
from hetsched.papers.diviml.judging import factor, judged, unless_excluded
from hetsched.papers.items import BY_MODEL, GENERATED, Case, Claim, Item, Report, Row, Setting, Table, Verdict
from hetsched.papers.rendering import number, percent

LIMIT = 10.0
SEEDS = (0, 1, 2)
MODULES = tuple((wiring, tasks) for wiring in ("er", "ws", "ba") for tasks in (10, 32))
"""The six single modules of the paper: ER(0.2), WS(4, 0.75) and BA(5), of 10 and 32 tasks."""
BATCH = {"network": 128, "module": stacks.INPUTS}
"""Inputs of Figure 5 and of Figure 6."""
CONVERGED = 1.0001
"""The makespan at which a method has converged, in that of the best known: the gap at which solvers stop by default."""
NO_FIGURES = "The paper's figure is a bar chart without numbers; what its text says of it is in the claims."


def network_cases(setting: Setting, inputs: int) -> list[Case]:
    """Return the cases of Figure 3 (one input) or 5."""
    return [
        {"what": "network", "network": name, "inputs": inputs, "method": method, "seed": seed, "limit": 0.5 if setting.quick else LIMIT}
        for name in (networks.SHIPPED if setting.quick else networks.PIXELS)
        for seed in SEEDS[: 1 if setting.quick else None]
        for method in solving.methods(inputs)
    ]


def module_cases(setting: Setting, inputs: int) -> list[Case]:
    """Return the cases of Figure 4 (one input) or 6."""
    return [
        stacks.case(tasks, 1, "sdep", 1, inputs, method, seed, 0.5 if setting.quick else LIMIT, wiring)
        for wiring, tasks in MODULES
        for seed in SEEDS[: 1 if setting.quick else None]
        for method in solving.methods(inputs)
    ]


Groups = Mapping[tuple[str, int], Mapping[str, Row]]
"""Rows by name of the workload and seed, then by method."""


def _groups(rows: Sequence[Row]) -> Groups:
    return solving.by(rows, lambda row: (_name(row), row["seed"]))


def _name(row: Row) -> str:
    return str(row["network"]) if row["what"] == "network" else f"{row['wiring'].upper()}, {row['tasks']} tasks"


def _table(rows: Sequence[Row], inputs: int) -> Table:
    lines = []
    for name in dict.fromkeys(_name(row) for row in rows):
        own = [row for row in rows if _name(row) == name]
        means = [tables.mean(solving.chosen(own, method=method)) for method in solving.methods(inputs)]
        cells = ["" if math.isnan(value) else number(value * 1e3 if inputs == 1 else inputs / value) for value in means]
        seeds = {row["seed"] for row in own}
        proven = sum(any(row["proven"] for row in own if row["seed"] == seed and row["method"] in solving.MILP) for seed in seeds)
        lines.append([name, *cells, f"{proven} of {len(seeds)}"])
    unit = "milliseconds" if inputs == 1 else f"inputs a second, {inputs} inputs"
    return Table(["", *tables.head(inputs), "bound", "proven by a MILP"], lines, f"{unit}, means over seeds")


def _values(groups: Groups, over: Sequence[str], under: Sequence[str], only: Sequence[str] | None = None) -> list[float]:
    """Return the ratio of the best of some methods to the best of others, the mean over workloads for each seed that has all of them."""
    chosen = {key: stack for key, stack in groups.items() if only is None or key[0] in only}
    by_seed: dict[int, list[float]] = {}
    for (_, seed), stack in chosen.items():
        if not stack.keys().isdisjoint(over) and not stack.keys().isdisjoint(under):
            by_seed.setdefault(seed, []).append(solving.least(stack, over) / solving.least(stack, under))
    workloads = len({name for name, _ in chosen})
    return [float(np.mean(ratios)) for ratios in by_seed.values() if len(ratios) == workloads and np.isfinite(ratios).all()]


EXACT = (*solving.MILP, solving.SPLIT)


def network_latency(rows: Sequence[Row], setting: Setting) -> Report:
    """Return Figure 3 and its claims."""
    groups = _groups(rows)
    flat = [value - 1 for value in _values(groups, ["best-device"], EXACT, networks.CHAINS)]
    gains = [
        judged(
            "No real improvement for AlexNet, VGG and ResNet, whose best schedule usually has all tasks on the best device (V-B): mean "
            "gain over it",
            flat,
            at_most=0.1,
            shown=percent,
            absent=" ".join(networks.missing(rows)) or "not measured",
        ),
        *(_gain(groups, name, gain) for name, gain in networks.GAINS.items()),
    ]
    optimal = _optimal("MILP and MILP-SPLIT converge to the optimum for all torchvision networks (V-B)", groups, ["MILP", "MILP-SPLIT"])
    return Report([_table(rows, 1)], [*(claim.undecided(BY_MODEL) for claim in gains), optimal], [NO_FIGURES, *networks.missing(rows)])


def _gain(groups: Groups, name: str, gain: float) -> Claim:
    """Return whether MILP, by the better of its solvers, and split both gain more than a share over the best device on a network."""
    ways = (solving.MILP, [solving.SPLIT], [solving.BOUND])
    milp, split, most = ([value - 1 for value in _values(groups, ["best-device"], names, [name])] for names in ways)
    found = list(map(min, milp, split))
    claim = judged(
        f"MILP and MILP-SPLIT gain more than {gain:.0%} over the best device on {name} (V-B)", found, at_least=gain, shown=percent
    )
    return unless_excluded(claim, most, gain, shown=percent)


def _optimal(text: str, groups: Groups, names: Sequence[str]) -> Claim:
    """Return whether MILP, the better of its two solvers, and the split if named, reach a proven optimum of every workload."""
    ways = {"MILP": solving.MILP, "MILP-SPLIT": (solving.SPLIT,)}
    named = {key: stack for key, stack in groups.items() if all(math.isfinite(solving.least(stack, ways[name])) for name in names)}
    found = list(named.values())
    if not found:
        return Claim(text, Verdict.UNSEEN, "not measured")
    limit = max(row["limit"] for stack in found for row in stack.values())
    proven = {
        who: sum(any(stack[way]["proven"] for way in methods if way in stack) for stack in found)
        for who, methods in (("the MILP", solving.MILP), ("it or a method beside it", solving.methods(1)))
    }
    most = {name: max((solving.least(own, ways[name]) / solving.best(own) - 1, who) for (who, _), own in named.items()) for name in names}
    longer = ", ".join(
        f"{name} is {f'up to {100 * more:.2g} % longer ({who})' if more > solving.SAME else 'no longer'}"
        for name, (more, who) in most.items()
    )
    known = ", ".join(f"by {who} in {count}" for who, count in proven.items())
    reason = f"in {limit:g} s the optimum is proven {known} of {len(found)} cases; against the best known {longer}"
    ended = [stack for stack in found if "MILP-SPLIT" in names and solving.finished(stack[solving.SPLIT])]
    if any(solving.least(stack, [solving.SPLIT]) > solving.best(stack) * CONVERGED for stack in ended):
        return Claim(text, Verdict.NOT_HELD, f"{reason}; MILP-SPLIT ended by itself in {len(ended)} cases")
    optimal = max(most.values())[0] <= CONVERGED - 1 and max(proven.values()) == len(found)
    return Claim(text, Verdict.HELD if optimal else Verdict.UNSEEN, reason)


def network_throughput(rows: Sequence[Row], setting: Setting) -> Report:
    """Return Figure 5 and its claims."""
    groups = _groups(rows)
    text = "With 128 inputs the MILP of Inception-based networks is not solved in two hours (V-C)"
    parallel = {key: stack for key, stack in groups.items() if key[0] in networks.SHIPPED}
    return Report(
        [_table(rows, BATCH["network"])],
        [claim.undecided(BY_MODEL) for claim in (_unsolved(text, parallel), _better("128 inputs of torchvision's networks", groups))],
        [NO_FIGURES, *networks.missing(rows)],
    )


def _unsolved(text: str, groups: Groups) -> Claim:
    """Return the verdict on a claim that the MILP is not solved in two hours: a proof in them denies it, less time decides nothing."""
    solves = [stack[name] for stack in groups.values() for name in solving.MILP if name in stack]
    proven = [row for row in solves if row["proven"] and row["wall_s"] <= solving.MILP_SECONDS]
    if proven:
        soonest = min(row["wall_s"] for row in proven)
        return Claim(text, Verdict.NOT_HELD, f"{len(proven)} of {len(solves)} solves end with a proof, the first after {number(soonest)} s")
    if not solves:
        return Claim(text, Verdict.UNSEEN, "not measured")
    shortest = min(row["limit"] for row in solves)
    if shortest >= solving.MILP_SECONDS:
        return Claim(text, Verdict.HELD, f"none of {len(solves)} solves ends with a proof in two hours")
    return Claim(text, Verdict.UNSEEN, f"none of {len(solves)} solves ends with a proof, but in {shortest:g} s, not two hours")


def _better(what: str, groups: Groups) -> Claim:
    gains = [value - 1 for value in _values(groups, solving.MILP, [solving.SPLIT])]
    claim = judged(
        f"With {what} the split is better than the MILP (V-C, with more time for the MILP), here in equal time: mean gain",
        gains,
        at_least=0.0,
        shown=percent,
    )
    return solving.against_both(claim, list(groups.values()))


def module_latency(rows: Sequence[Row], setting: Setting) -> Report:
    """Return Figure 4 and its claims."""
    groups = _groups(rows)
    gains = [
        unless_excluded(
            judged(
                "Single modules: about 2 times faster than on the best device (V-B), mean of the six",
                _values(groups, ["best-device"], EXACT),
                at_least=1.9,
                shown=factor,
            ),
            _values(groups, ["best-device"], [solving.BOUND]),
            1.9,
            shown=factor,
        ),
        unless_excluded(
            judged(
                "Single modules: MILP is 22 % to 26 % better than the best heuristic in equal time (V-B), mean of the six",
                [value - 1 for value in _values(groups, solving.baselines(1), solving.MILP)],
                at_least=0.22,
                shown=percent,
            ),
            [value - 1 for value in _values(groups, solving.baselines(1), [solving.BOUND])],
            0.22,
            shown=percent,
        ),
    ]
    optimal = _optimal("Single modules: MILP converges to the optimum (V-B)", groups, ["MILP"])
    return Report([_table(rows, 1)], [*(claim.undecided(GENERATED) for claim in gains), optimal], [NO_FIGURES])


def module_throughput(rows: Sequence[Row], setting: Setting) -> Report:
    """Return Figure 6 and its claims."""
    groups = _groups(rows)
    text = "With 16 inputs the MILP of single modules is not solved in two hours (V-C)"
    claims = _unsolved(text, groups), _better("16 inputs of single modules", groups)
    return Report([_table(rows, BATCH["module"])], [claim.undecided(GENERATED) for claim in claims], [NO_FIGURES])


_NETWORKS = (
    "durations are those of the analytic cost model fitted to measurements of operators (`hs.costs.Analytic`) on the catalogue's devices, "
    "not profiles of the paper's machine: Table II shows by how much they differ. The paper's networks are torchvision's; which of each "
    "family, it does not say. "
)
_MODULES = f"the paper profiles modules on its devices, of the wirings with the best accuracy; {stacks.TIMES}"


def _item(name: str, title: str, differs: str, cases: Any, report: Any, time: str) -> Item:
    needs = (("ortools", "solvers"),)
    return Item(name, title, differs + solving.limits(LIMIT, SEEDS), cases, report, needs=needs, time=time, possible=_possible)


def _possible(case: Case) -> bool:
    return case["what"] != "network" or networks.possible(case)


FIGURE_3 = _item(
    "figure-3",
    "Figure 3: latency of torchvision's networks",
    _NETWORKS,
    lambda setting: network_cases(setting, 1),
    network_latency,
    "12 minutes with --jobs 2",
)
FIGURE_4 = _item(
    "figure-4",
    "Figure 4: latency of single modules",
    _MODULES,
    lambda setting: module_cases(setting, 1),
    module_latency,
    "12 minutes with --jobs 2",
)
FIGURE_5 = _item(
    "figure-5",
    "Figure 5: throughput of torchvision's networks, 128 inputs",
    _NETWORKS + "Static memory counts weights and, for all inputs, what every task reads and writes, so that the best device is the CPU "
    "where no GPU holds all of a network (DenseNet). ",
    lambda setting: network_cases(setting, BATCH["network"]),
    network_throughput,
    "12 minutes with --jobs 2",
)
FIGURE_6 = _item(
    "figure-6",
    "Figure 6: throughput of single modules, 16 inputs",
    _MODULES + stacks.GROWN,
    lambda setting: module_cases(setting, BATCH["module"]),
    module_throughput,
    "12 minutes with --jobs 2",
)
