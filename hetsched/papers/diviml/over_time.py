"""Figure 7: throughput over time on the stacks of Table IV."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hetsched.papers.diviml import solving, stacks, tables
from hetsched.papers.diviml.judging import judged
from hetsched.papers.diviml.stacks import INPUTS
from hetsched.papers.items import GENERATED, Case, Item, Report, Row, Setting, Table
from hetsched.papers.rendering import percent

SECONDS = (0.1, 1.0, 10.0, 60.0, 600.0)
Stack = dict[str, Row]


def cases(setting: Setting) -> list[Case]:
    """Return the cases of Table IV without the bound."""
    return [case for case in tables.cases(setting, INPUTS) if case["method"] != solving.BOUND]


def report(rows: Sequence[Row], setting: Setting) -> Report:
    """Return the throughput after some seconds as a share of the best of all methods at the end."""
    sizes = {tasks: _stacks([row for row in rows if row["tasks"] == tasks]) for tasks in sorted({row["tasks"] for row in rows})}
    times = [seconds for seconds in SECONDS if seconds <= max((row["limit"] for row in rows), default=0.0)]
    found = [stack for every in sizes.values() for stack in every]
    runs = [own for every in sizes.values() for own in _by_seed([stack for stack in every if {*solving.MILP, solving.SPLIT} <= set(stack)])]
    claims = [
        solving.against_both(
            judged(
                "The split is above the MILP over time (V-C, Figure 7): its share less the MILP's, the least of these times",
                [_lead(own, times) for own in runs if times],
                at_least=0.0,
                each="run",
                shown=percent,
            ),
            found,
        ),
        solving.against_milp(
            judged(
                "Numerous channels make the MILP worse (V-C, Figure 7): its share of the best with one channel, less that with most",
                [_loss(own) for own in runs if len({_channels(stack) for stack in own}) > 1],
                at_least=0.0,
                each="run",
                shown=percent,
            ),
            found,
        ),
    ]
    return Report(
        [table for tasks, own in sizes.items() for table in _tables(tasks, own, times)],
        [claim.undecided(GENERATED) for claim in claims],
        ["The paper's Figure 7 is a plot without numbers; Table IV has what it ends at."],
    )


def _stacks(rows: Sequence[Row]) -> list[Stack]:
    return list(solving.by(rows, lambda row: (row["dependence"], row["channels"], row["seed"])).values())


def _tables(tasks: int, found: Sequence[Stack], times: Sequence[float]) -> list[Table]:
    """Return the shares over time of stacks of modules of some tasks, and those at the end by channels."""
    heads = dict(zip(solving.methods(INPUTS), tables.head(INPUTS), strict=False))
    lines = [
        [head, *(_mean([_share(stack, name, seconds) for stack in found if name in stack]) for seconds in times)]
        for name, head in heads.items()
        if any(name in stack for stack in found)
    ]
    channels = sorted(set(map(_channels, found)))
    at_end = [
        [heads[name], *(_mean([_share(own, name, math.inf) for own in found if name in own and _channels(own) == c]) for c in channels)]
        for name in (*solving.MILP, solving.SPLIT)
    ]
    title = f"Modules of {tasks} tasks: throughput as a share of the best known of each stack, means over stacks"
    return [
        Table(["method", *(f"after {time:g} s" for time in times)], lines, title),
        Table(["at the end", *(f"{c} channel{'s' * (c > 1)}" for c in channels)], at_end),
    ]


def _channels(stack: Stack) -> int:
    return int(next(iter(stack.values()))["channels"])


def _share(stack: Stack, name: str, seconds: float) -> float:
    return solving.best(stack) / solving.after(stack[name], seconds)


def _mean(shares: Sequence[float]) -> str:
    return percent(float(np.mean(shares))) if shares else ""


def _milp(stack: Stack, seconds: float) -> float:
    return max(_share(stack, name, seconds) for name in solving.MILP)


def _by_seed(found: Sequence[Stack]) -> list[list[Stack]]:
    seeds: dict[int, list[Stack]] = {}
    for stack in found:
        seeds.setdefault(stack[solving.SPLIT]["seed"], []).append(stack)
    return list(seeds.values())


def _lead(found: Sequence[Stack], times: Sequence[float]) -> float:
    """Return the share of the split less that of the MILP, on average over stacks, at the time when it is least."""
    return min(float(np.mean([_share(stack, solving.SPLIT, time) - _milp(stack, time) for stack in found])) for time in times)


def _loss(found: Sequence[Stack]) -> float:
    """Return the share that the MILP reaches with the fewest channels less that with the most, on average over stacks."""
    shares: dict[int, list[float]] = {}
    for stack in found:
        shares.setdefault(_channels(stack), []).append(_milp(stack, stack[solving.SPLIT]["limit"]))
    return float(np.mean(shares[min(shares)]) - np.mean(shares[max(shares)]))


FIGURE_7 = Item(
    "figure-7",
    "Figure 7: throughput over time",
    f"{stacks.DIFFERS}{stacks.GROWN}{stacks.SIZE}: these are those of Table IV. {solving.limits(tables.LIMITS[INPUTS], tables.SEEDS)}",
    cases,
    report,
    needs=(("ortools", "solvers"),),
    time="3 hours with --jobs 2, none after Table IV",
)
