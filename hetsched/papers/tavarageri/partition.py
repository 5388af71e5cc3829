"""Section 2: the graph is partitioned by the compiler."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Literal

from hetsched.papers.items import Case, Claim, Item, Report, Row, Setting, Table, Verdict
from hetsched.papers.rendering import number, percent
from hetsched.papers.tavarageri.judging import LEAST, judged, so_far, span
from hetsched.papers.tavarageri.names import CLUSTERS, EXPENSIVE, GRAPHS, OPERATIONS, PASSES, QUICK, ROOFLINE, SLACK

STARTS: dict[str, Literal["block", "random"]] = {"from blocks": "block", "from random": "random"}
"""The paper's method with its two initial partitions."""
SHOWN = {
    **{method: f"repartition {method}" for method in STARTS},
    "metis": "METIS",
    "best-device": "best single device",
    "heft": "HEFT",
    "auto": "ours: auto",
}
SEEDS = 5
SEARCHES = 3
"""Seeds of our search."""
LIMIT = 8.0
"""Seconds of our search."""
QUICK_LIMIT = 3.0
EXACT = 1e-6
"""Shares that differ by at most this are equal."""


def cases(setting: Setting) -> list[Case]:
    """Return a case for each graph, cluster, method, costs that it is given, and seed."""
    limit = QUICK_LIMIT if setting.quick else LIMIT
    runs: list[tuple[str, str, int, float | None]] = [("from blocks", OPERATIONS, 0, None), ("from blocks", ROOFLINE, 0, None)]
    runs += [("from random", costs, seed, None) for costs in (OPERATIONS, ROOFLINE) for seed in range(2 if setting.quick else SEEDS)]
    runs += [("metis", OPERATIONS, 0, None), ("metis", ROOFLINE, 0, None), ("best-device", ROOFLINE, 0, None), ("heft", ROOFLINE, 0, None)]
    runs += [("auto", ROOFLINE, seed, limit) for seed in range(1 if setting.quick else SEARCHES)]
    return [
        {"what": "partition", "graph": graph, "cluster": cluster, "method": method, "costs": costs, "seed": seed, "limit": limit}
        for graph in (QUICK if setting.quick else GRAPHS)
        for cluster in CLUSTERS
        for method, costs, seed, limit in runs
    ]


def measure(case: Case, data: Path | None) -> Row:
    """Place a training step by one method."""
    from hetsched.papers.tavarageri import graphs
    from hetsched.runtime.iterations import devices_of
    from hetsched.solving import solve

    modelled, actual = (graphs.problem(case["graph"], case["cluster"], costs) for costs in (case["costs"], ROOFLINE))
    method = case["method"]
    if method in STARTS:
        found = graphs.repartitioned(modelled, STARTS[method], case["seed"])
        first, last = (graphs.placed(case["graph"], case["cluster"], device) for device in (found[0], found[-1]))
        device, passes = found[-1], len(found) - 1
    else:
        schedule = solve(modelled, method, seed=case["seed"], time_limit=case["limit"]).schedule
        assert schedule is not None  # memory is not limited
        device, passes = devices_of(schedule.decision), None
        last = graphs.placed(case["graph"], case["cluster"], device)
        if case["costs"] == ROOFLINE:  # in its own order
            last = last._replace(seconds=schedule.makespan)
        first = last
    held = actual.static_bytes.sum(axis=1)
    return {
        "tasks": actual.n_tasks,
        "first": first._asdict(),
        "last": last._asdict(),
        "passes": passes,
        "alone": graphs.balance_alone(graphs.problem(case["graph"], case["cluster"], OPERATIONS)),
        "memory": max(float(held[device == k].sum() / held.sum()) for k in range(actual.n_devices)),
        "says": f"{last.bytes / 1e9:.3g} GB between devices, loads within {percent(last.by_operations)}, {last.seconds:.4g} s a step",
    }


def report(rows: Sequence[Row], setting: Setting) -> Report:
    """Return a table for each cluster, and the claims on partitions."""
    tables = [_table(rows, cluster) for cluster in CLUSTERS]
    claims = [_less(rows), _evener(rows), _minimal(rows), _balanced(rows), _optimal(rows), _primary(rows), _efficient(rows), _split(rows)]
    return Report(tables, so_far(claims, cases(setting), rows, "graph", "cluster"))


def _table(rows: Sequence[Row], cluster: str) -> Table:
    lines = []
    for graph in GRAPHS:
        for method, name in SHOWN.items():
            for costs in (OPERATIONS, ROOFLINE):
                found = _of(rows, graph, cluster, method, costs)
                if found:
                    lines.append([f"{graph}: {name}", costs, *_cells(found)])
    measured = ("GB between devices", "balance by operations", "by roofline", "step, s")
    head = ["median of the seeds", "costs given", *(name for column in measured for name in (column, "before")), "passes"]
    return Table(head, lines, cluster)


_COLUMNS: dict[str, Callable[[float], str]] = {
    "bytes": lambda value: number(value / 1e9),
    "by_operations": percent,
    "by_roofline": percent,
    "seconds": number,
}


_BALANCES = {"by_operations": "by operations", "by_roofline": "by the roofline"}
"""The loads of the selected tasks, by the costs of the compiler and by the durations of the step as it runs."""


def _cells(found: Sequence[Row]) -> list[str]:
    cells = []
    for column, shown in _COLUMNS.items():
        for when in ("last", "first"):
            here = found[0]["passes"] is not None or when == "last"
            cells.append(shown(median(row[when][column] for row in found)) if here else "")
    passes = [row["passes"] for row in found if row["passes"] is not None]
    return [*cells, f"{median(passes):g}" if passes else ""]


def _of(rows: Iterable[Row], graph: str, cluster: str, method: str, costs: str = OPERATIONS) -> list[Row]:
    wanted = {"graph": graph, "cluster": cluster, "method": method, "costs": costs}
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def _own(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return the runs of the paper's method with the paper's costs, by graph and cluster."""
    every = {
        (graph, cluster): [row for start in STARTS for row in _of(rows, graph, cluster, start)] for graph in GRAPHS for cluster in CLUSTERS
    }
    return {f"{graph} on {cluster}": found for (graph, cluster), found in every.items() if found}


def _others(rows: Sequence[Row], own: Row) -> list[tuple[str, float, float]]:
    """Return partitions by others for the same graph and cluster: name, bytes, balance; and the blocks before repartitioning."""
    here = [row for row in rows if (row["graph"], row["cluster"]) == (own["graph"], own["cluster"])]
    last = [(SHOWN[row["method"]], row["last"]) for row in here if row["method"] not in STARTS]
    first = [("the blocks before repartitioning", row["first"]) for row in here if row["method"] == "from blocks"]
    return [(name, found["bytes"], found["by_operations"]) for name, found in (*last, *first)]


def _less(rows: Sequence[Row]) -> Claim:
    text = "Repartitioning improves the initial partitions: it reduces the volume of data communicated between devices (section 2)"
    cells, left, stuck = dict[str, list[bool]](), [], dict[str, None]()
    for name, found in _own(rows).items():
        for row in found:
            setting = f"{name} {row['method']}"
            left.append(row["last"]["bytes"] / row["first"]["bytes"])
            if row["passes"]:
                cells.setdefault(setting, []).append(left[-1] < 1)
            else:
                stuck[setting] = None
    claim = judged(text, cells, f"of the bytes before it leaves {span(left)}")
    roofline = [row for graph in GRAPHS for where in CLUSTERS for row in _of(rows, graph, where, "from blocks", ROOFLINE)]
    others = [row["last"]["bytes"] > row["first"]["bytes"] for row in roofline]
    more = f"; given the roofline's durations as costs, it is more in {sum(others)} of {len(others)} from blocks" if others else ""
    told = f"in {len(stuck)} more nothing moves within the threshold, which is ours: {'; '.join(stuck)}" if stuck else ""
    reason = "; ".join(filter(None, [claim.reason, told])) + more
    return Claim(text, claim.verdict if len(stuck) <= len(cells) else Verdict.UNSEEN, reason)


def _evener(rows: Sequence[Row]) -> Claim:
    text = "Repartitioning improves the initial partitions: it improves the load balance (section 2)"
    cells, same = dict[str, list[bool]](), set[str]()
    for name, found in _own(rows).items():
        for row in found:
            more, setting = row["last"]["by_operations"] - row["first"]["by_operations"], f"{name} {row['method']}"
            if row["passes"] and abs(more) > LEAST:
                cells.setdefault(setting, []).append(more < 0)
            elif row["passes"]:
                same.add(setting)
    same -= cells.keys()
    told = f"by the compiler's costs; in {len(same)} more settings it changes by at most {percent(LEAST)} of the ideal load, which is none"
    if not cells and same:
        return Claim(text, Verdict.UNSEEN, told)
    claim = judged(text, cells, told)
    return Claim(text, claim.verdict if len(same) <= len(cells) else Verdict.UNSEEN, claim.reason)


def _minimal(rows: Sequence[Row]) -> Claim:
    text = "The communication between devices is minimal (abstract, section 1)"
    cells, times, better = dict[str, list[bool]](), list[float](), set[str]()
    for name, found in _own(rows).items():
        for row in found:
            own = row["last"]
            rivals = [(size, rival) for rival, size, balance in _others(rows, row) if balance <= max(SLACK, own["by_operations"])]
            least, rival = min([(own["bytes"], ""), *rivals])
            cells.setdefault(name, []).append(own["bytes"] <= least)
            times.append(own["bytes"] / least)
            better.update([rival] if own["bytes"] > least else [])
    if cells and not better:
        return Claim(text, Verdict.UNSEEN, "no other partition here has less, but no minimum is proven")
    others = f"another partition with loads within {percent(SLACK)}, or as well balanced ({', '.join(sorted(better))})"
    return judged(text, cells, f"it is {span(times)} times the least of {others}")


def _balanced(rows: Sequence[Row]) -> Claim:
    text = "There is a good load balance, with subgraphs of roughly equal size (abstract, section 2)"
    own = _own(rows)
    cells = {name: [row["last"]["by_operations"] <= SLACK for row in found] for name, found in own.items()}
    off = [100 * row["last"]["by_operations"] for found in own.values() for row in found]
    before = [100 * row["first"]["by_operations"] for found in own.values() for row in found]
    runs = [100 * row["last"]["by_roofline"] for found in own.values() for row in found]
    figures = (
        f"by operations, the compiler's costs, loads differ from the ideal by {span(off, 1)} %, before by {span(before, 1)} %, where "
        f"{percent(SLACK)}, a threshold of ours, are permitted; by the roofline by {span(runs, 1)} %"
    )
    return judged(text, cells, figures)


def _optimal(rows: Sequence[Row]) -> Claim:
    text = "The load balance is optimal (section 1)"
    own = _own(rows)
    cells = {name: [row["last"]["by_operations"] <= row["alone"] + EXACT for row in found] for name, found in own.items()}
    if cells and all(all(each) for each in cells.values()):
        return Claim(text, Verdict.UNSEEN, "placing the longest task first gives no better one, but none is proven optimal")
    every = [row for found in own.values() for row in found]
    here, alone = span([100 * row["last"]["by_operations"] for row in every]), span([100 * row["alone"] for row in every])
    return judged(
        text, cells, f"loads differ from the ideal by {here} %; if the longest task is placed first, where it ends first, by {alone} %"
    )


def _primary(rows: Sequence[Row]) -> Claim:
    text = (
        "Load balance is a primary goal, for Karypis and Kumar a secondary one (sections 2 and 4): it is better than that of METIS, by the "
        "compiler's costs and as the step runs"
    )
    pairs = {
        name: [(row["last"], metis["last"]) for row in found for metis in _of(rows, row["graph"], row["cluster"], "metis")]
        for name, found in _own(rows).items()
    }
    told = []
    for column, shown in _BALANCES.items():
        own, theirs = ([100 * pair[k][column] for each in pairs.values() for pair in each] for k in (0, 1))
        better = sum(all(a[column] < b[column] for a, b in each) for each in pairs.values() if each)
        told.append(f"{shown} loads differ from the ideal by {span(own, 1)} %, METIS' by {span(theirs, 1)} %, better in {better}")
    cells = {name: [all(a[column] < b[column] for column in _BALANCES) for a, b in each] for name, each in pairs.items()}
    return judged(text, cells, f"{'; '.join(told)}; METIS does not know which tasks are selected; better by both")


def _efficient(rows: Sequence[Row]) -> Claim:
    text = "Efficient model parallelism is obtained automatically (sections 1, 2 and 4): a step takes less than on the best single device"
    cells, times, best = dict[str, list[bool]](), [], dict[str, float]()
    for name, found in _own(rows).items():
        for row in found:
            alone = _of(rows, row["graph"], row["cluster"], "best-device", ROOFLINE)
            if alone:
                times.append(row["last"]["seconds"] / alone[0]["last"]["seconds"])
                cells.setdefault(name, []).append(times[-1] < 1)
                ours = [other["last"]["seconds"] for other in _of(rows, row["graph"], row["cluster"], "auto", ROOFLINE)]
                if ours:
                    best[name] = max(ours) / alone[0]["last"]["seconds"]
    told = f"it takes {span(times)} of it" if times else ""
    return judged(text, cells, f"{told}; our search, the worst of its seeds, {span(list(best.values()))}" if best else told)


def _split(rows: Sequence[Row]) -> Claim:
    text = "A model that exceeds the memory of a device is split across the memories of several (conclusion)"
    own = _own(rows)
    shares = [row["memory"] for found in own.values() for row in found]
    if not shares:
        return Claim(text, Verdict.UNSEEN, "not measured")
    reason = (
        "memory is not limited here, and no part of the method: no model exceeds a device, and nothing keeps a part within one; of four "
        f"devices the fullest has {span(shares)} of all bytes"
    )
    return Claim(text, Verdict.UNSEEN, reason)


SECTION_2 = Item(
    "section-2",
    "Section 2: partitioning by the compiler",
    "the paper has no evaluation; its one figure is an overview, so no result of it stands beside ours. The graphs "
    "are the training steps of Celeritas, on four GPUs on PCIe 3.0, equal and unequal, here without a limit of memory. As "
    "in TensorFlow a variable is a task of its own, and only variables and their updates have state. The compiler's costs "
    "are operations over peak rate, as in the paper; for comparison also those of the roofline model. By the latter a step "
    "is timed, without contention, each device in order of the upward ranks: the paper has no rule for either. Selected are"
    f" the fewest stateless tasks that have {percent(EXPENSIVE)} of their work, the threshold is {percent(SLACK)} of the "
    f"ideal load (by speed, where devices are unequal), and passes end when nothing moves, or after {PASSES}; these numbers "
    "are ours. Balance is the largest deviation of a device's load of selected tasks from the ideal; METIS and the "
    f"schedules do not know which are selected. Our search has {LIMIT:g} s, {SEARCHES} seeds; random starts have {SEEDS}.",
    cases,
    report,
    needs=(("torch", "torch"), ("pymetis", "metis")),
    time="5 minutes",
)
