"""Figure 9 and section 5: limits on stages, and what the search costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hetsched.arrays import BoolArray
from hetsched.costs.stages import Contention
from hetsched.experiments.runner import timed
from hetsched.models.ios import dynamic_program as ios
from hetsched.papers.ios.networks import MODEL, NETWORKS, REACHES, Network, available, network, reaches
from hetsched.papers.ios.published import FIGURE_9, SEARCH
from hetsched.papers.items import BY_MODEL, Case, Claim, Item, Report, Row, Setting, Table, Verdict
from hetsched.papers.rendering import number
from hetsched.problem.graph import TaskGraph

if TYPE_CHECKING:
    from hetsched.models.ios.block_states import Block

RUNS = 2 + 6 * 6
"""Runs by which the authors' program measures a stage: 2 to warm up, and 6 times 6."""
FREE = 4 * 3600
"""Seconds within which the search without limits ends, by the paper."""
SPEED = {"inception_v3": 1.59, "nasnet_a": 1.37}
"""Speed with r = 1, s = 8, times sequential."""


class Evaluated(NamedTuple):
    """The stages whose latency a search asks for."""

    number: int
    seconds: float
    """Sum of their latencies."""


def evaluated(net: Network, cost: Contention, groups: int | None, group_size: int | None) -> tuple[Evaluated, Evaluated]:
    """Return the stages of all blocks within the limits, under both strategies, and those of them that the authors' program finds."""
    import numpy as np

    from hetsched.models.ios.block_states import Block

    numbers, seconds = [0, 0], [0.0, 0.0]
    for tasks in net.blocks:
        own = {net.graph.index[name] for name in tasks}
        block = Block(net.graph, np.array([i for i in net.graph.topological_order.tolist() if i in own]), groups, group_size)
        used = np.bincount(block.stage, minlength=len(block.parent)) > 0
        costs = cost.table(block.names, block.parent, block.last)
        costs[block.parent == 0, 1] = np.inf  # of one task there is one way
        for x, chosen in enumerate((used, used & rooted(net.graph, block))):
            possible = costs[chosen][np.isfinite(costs[chosen])]
            numbers[x] += len(possible)
            seconds[x] += float(possible.sum())
    return Evaluated(numbers[0], seconds[0]), Evaluated(numbers[1], seconds[1])


def rooted(graph: TaskGraph, block: Block) -> BoolArray:
    """Return for each stage of a block whether each of its groups is one task and descendants of that task, [stages]."""
    import numpy as np

    from hetsched.models.ios.block_states import within

    ptr, pred, _ = within(graph, block.tasks)
    above, depth = block.parent, np.zeros(len(block.parent), np.int64)
    at = np.arange(len(above), dtype=np.int32)
    while at.any():
        depth += at > 0
        at = above[at]
    first = np.full((len(above), len(block.tasks)), -1, np.int16)  # task of the group of each task of a stage, -1 outside
    fits = np.ones(len(above), bool)
    order = np.lexsort((block.last, depth))
    for stages in np.split(order, np.flatnonzero(np.diff(depth[order]) | np.diff(block.last[order])) + 1):
        if depth[stages[0]] == 0:
            continue
        place = int(block.last[stages[0]])
        rows = first[above[stages]]
        read = rows[:, pred[ptr[place] : ptr[place + 1]]]
        most = read.max(axis=1, initial=-1)
        least = np.where(read < 0, most[:, None], read).min(axis=1, initial=len(block.tasks))
        fits[stages] = fits[above[stages]] & ((most < 0) | (least == most))
        rows[:, place] = np.where(most < 0, place, most)
        first[stages] = rows
    return fits


def cases(setting: Setting) -> list[Case]:
    """Return a case for each network and pair of limits."""
    names = ["nasnet_a"] if setting.quick else list(FIGURE_9)
    return [{"what": "limits", "network": name, "r": r, "s": s} for name in names for r, s in FIGURE_9[name]]


def cost_cases(setting: Setting) -> list[Case]:
    """Return a case for each network with the paper's limits, and without limits."""
    names = ("squeezenet", "nasnet_a") if setting.quick else NETWORKS
    limits = ((3, 8), (None, None))
    return [{"what": "limits", "network": name, "r": r, "s": s} for name in available(names, setting.data) for r, s in limits]


def measure(case: Case, data: Path | None) -> Row:
    """Return the latency, the time of the search with the model's costs, and the stages it asks for."""
    net = network(case["network"], data)
    cost, limits = net.cost(), {"groups": case["s"], "group_size": case["r"]}
    net.best(cost, **limits)  # compiles
    best, took = timed(lambda: net.best(cost, **limits))
    every, published = evaluated(net, cost, **limits)
    about = {"seconds": best.latency, "sequential": ios.sequential(net.graph, cost).latency, "messages": list(best.messages)}
    about |= {
        "stages": every.number,
        "every_s": RUNS * every.seconds,
        "published": published.number,
        "measuring_s": RUNS * published.seconds,
    }
    return about | took | {"says": f"{every.number:,} stages, {1e3 * best.latency:.2f} ms"}


_HEAD = ("stages", "measuring them, s", "stages of the authors' program", "measuring those, s", "search, CPU s")


def _cells(row: Row) -> list[str]:
    return [f"{row['stages']:,}", number(row["every_s"]), f"{row['published']:,}", number(row["measuring_s"]), number(row["cpu_s"])]


def report(rows: Sequence[Row], setting: Setting) -> Report:
    """Return Figure 9 as a table."""
    lines = []
    for row in rows:
        cost, ms = FIGURE_9[row["network"]][row["r"], row["s"]]
        cells = [f"{1e3 * row['seconds']:.2f}", *_cells(row), f"{ms:.2f}", str(cost)]
        lines.append([f"{row['network']}, r = {row['r']}, s = {row['s']}", *cells])
    head = ("limits", "ms", *_HEAD, "the authors: ms", "the authors: search, s")
    return Report([Table(head, lines)], [_trade(rows), _speed(rows)])


def _trade(rows: Sequence[Row]) -> Claim:
    text = "With smaller r and s the search costs less and the schedule takes longer (Inception-v3, NASNet)"
    by = {(row["network"], row["r"], row["s"]): row for row in rows}
    ends = {name: (by[name, 1, 3], by[name, 3, 8]) for name in FIGURE_9 if (name, 1, 3) in by and (name, 3, 8) in by}
    if len(ends) < len(FIGURE_9):
        return Claim(text, Verdict.UNSEEN, "not both networks are measured")
    neighbours = [
        (by[name, r, s], by[name, more, most])
        for name in FIGURE_9
        for r, s in FIGURE_9[name]
        for more, most in ((r + 1, s), (r, 8))
        if (name, more, most) in by and (more, most) != (r, s)
    ]
    held = all(a["stages"] < b["stages"] and a["seconds"] >= b["seconds"] for a, b in neighbours)
    reason = "; ".join(
        f"{name}: from r = 1, s = 3 to r = 3, s = 8 {b['stages'] / a['stages']:.1f} times the stages, and "
        f"{100 * (1 - b['seconds'] / a['seconds']):.1f} % less latency"
        for name, (a, b) in ends.items()
    )
    verdict = Verdict.UNSEEN if held else Verdict.NOT_HELD
    return Claim(text, verdict, f"{reason}; by construction: larger limits include the stages of smaller ones, and an optimum is no longer")


def _speed(rows: Sequence[Row]) -> Claim:
    text = "With r = 1 and s = 8 Inception-v3 is still 1.59 and NASNet 1.37 times as fast as sequential, after 30 seconds and 18 minutes"
    own = {row["network"]: row for row in rows if (row["r"], row["s"]) == (1, 8)}
    if len(own) < len(SPEED):
        return Claim(text, Verdict.UNSEEN, "not both networks are measured")
    speed = {name: row["sequential"] / row["seconds"] for name, row in own.items()}
    took = {name: row["measuring_s"] + row["cpu_s"] for name, row in own.items()}
    in_time = took["inception_v3"] <= 30 and took["nasnet_a"] <= 18 * 60
    reason = ", ".join(f"{name} {speed[name]:.2f} times after {number(took[name])} s" for name in SPEED)
    if not all(reaches(speed[name], paper) for name, paper in SPEED.items()):
        return Claim(text, Verdict.UNSEEN, f"{reason}, by the model; {REACHES}")
    return Claim.decided(text, in_time, f"{reason}, most of it for measuring stages, by the model").undecided(BY_MODEL)


def cost_report(rows: Sequence[Row], setting: Setting) -> Report:
    """Return what the search costs."""
    lines = []
    for row in rows:
        limited = row["r"] is not None
        name = f"{row['network']}, " + (f"r = {row['r']}, s = {row['s']}" if limited else "no limits")
        paper = str(SEARCH[row["network"]]) if limited else ""
        lines.append([name, *_cells(row), paper])
    head = ("network", *_HEAD, "the authors: search, s")
    took = {(row["network"], row["r"]): row["measuring_s"] + row["cpu_s"] for row in rows}
    most = {"inception_v3": 60, "squeezenet": 60, "randwire": 5400, "nasnet_a": 5400}
    limited_text = (
        "The search takes less than a minute for Inception-v3 and SqueezeNet, within 90 minutes for RandWire and NASNet (r = 3, s = 8)"
    )
    free_text = "Without limits it finds the optimum within 4 hours for each network"
    claims = [_within(limited_text, {name: took[name, 3] for name in most if (name, 3) in took}, most), _optimum(free_text, rows, took)]
    longest = max((row for row in rows if row["r"] is None), key=lambda row: row["every_s"], default=None)
    notes = []
    if longest is not None:
        notes.append(
            "Without limits and with every ending, as the paper defines them, measuring the stages of "
            f"{longest['network']} would take {number(longest['every_s'] / 3600)} hours."
        )
    cut = [message for row in rows for message in row["messages"]]
    return Report([Table(head, lines)], claims, notes + [f"Cut: {message}." for message in cut])


def _optimum(text: str, rows: Sequence[Row], took: Mapping[tuple[str, int | None], float]) -> Claim:
    """Decide how long the search takes that finds the optimum, with every ending.

    It is decided if the model's seconds, and these times the least and the greatest factor by which the authors' own searches with
    limits differ from the model's, agree.
    """
    every = {row["network"]: row["every_s"] + row["cpu_s"] for row in rows if row["r"] is None}
    times = {name: SEARCH[name] / took[name, 3] for name in every if (name, 3) in took}
    if len(times) < len(NETWORKS):
        return Claim(text, Verdict.UNSEEN, "not all networks are measured")

    def told(seconds: Mapping[str, float]) -> str:
        return ", ".join(f"{number(value)} s ({name})" for name, value in seconds.items())

    longest = max(every, key=every.__getitem__)
    reason = (
        f"with every ending, as the paper defines them, measuring the stages by the model and searching take {told(every)}, the longest "
        f"{number(every[longest] / 3600)} hours; with the stages of the authors' program alone, which leaves out endings and so need not "
        f"find the optimum, {told({name: took[name, None] for name in every})}; with r = 3, s = 8 the authors measured "
        f"{min(times.values()):.1f} to {max(times.values()):.1f} times the model's seconds, {SEARCH[longest]} s "
        f"beside {number(took[longest, 3])} s for {longest}"
    )
    if max(every.values()) * min(1.0, *times.values()) > FREE:
        return Claim.decided(text, False, reason).undecided(BY_MODEL)
    if max(every.values()) * max(1.0, *times.values()) <= FREE:
        return Claim.decided(text, True, reason).undecided(BY_MODEL)
    return Claim(text, Verdict.UNSEEN, f"{reason}: the model's seconds and the authors' do not agree on {FREE / 3600:g} hours")


def _within(text: str, took: dict[str, float], most: dict[str, int]) -> Claim:
    if len(took) < len(most):
        return Claim(text, Verdict.UNSEEN, "not all networks are measured")
    seconds = ", ".join(f"{number(value)} s ({name})" for name, value in took.items())
    reason = (
        f"measuring the stages that the authors' program finds, by the model, and searching take {seconds}; the authors measured "
        f"{', '.join(f'{SEARCH[name]} s' for name in took)}, and stages are prepared and their program takes time besides"
    )
    return Claim.decided(text, all(took[name] <= limit for name, limit in most.items()), reason).undecided(BY_MODEL)


_COST = (
    f"The authors' search measures each stage it asks for, {RUNS} runs, and their seconds are those of measuring and of a program in "
    "Python. Here the stages of the search are counted, and those of them that the authors' program finds, see Table 1; what so many runs "
    "of each would take by the model, without preparing them; and the CPU time of the search on one core with the model's costs."
)

FIGURE_9_ITEM = Item(
    "figure-9",
    "Figure 9: latency and cost of the search by the limits r and s",
    f"{MODEL} {_COST}",
    cases,
    report,
    needs=(("torch", "torch"),),
    time="2 minutes",
)
SEARCH_COST = Item(
    "search-cost",
    "Sections 4.2 and 5: cost of the search",
    f"{MODEL} {_COST} RandWire needs the authors' wirings (`--data`).",
    cost_cases,
    cost_report,
    needs=(("torch", "torch"),),
    time="5 minutes",
)
