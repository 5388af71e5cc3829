"""Table III: how much sooner the split is done than the MILP of the whole."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from hetsched.papers.diviml import solving, stacks
from hetsched.papers.diviml.judging import factor, judged
from hetsched.papers.items import GENERATED, Case, Claim, Item, Report, Row, Setting, Table, Verdict
from hetsched.papers.rendering import number, percent

PRINTED = {
    ("sdep", 5): (82.69, 2.26, 37),
    ("sdep", 10): (232.24, 4.83, 48),
    ("sdep", 20): (1907.12, 13.49, 141),
    ("wdep", 5): (129.08, 2.45, 53),
    ("wdep", 10): (271.66, 5.00, 54),
    ("wdep", 20): (5850.37, 14.81, 395),
}
"""Seconds of the MILP and of the split, and their factor, by dependence and modules."""
METHODS = (*solving.MILP, solving.SPLIT, solving.WINDOWS)
CLOSE = 1.01
"""The makespan at which the MILP is done, in that of the best known."""
LIMIT, REFERENCE, CHANNELS = 90.0, 20.0, 2
SEEDS = (0, 1, 2)


def cases(setting: Setting) -> list[Case]:
    """Return the cases: stacks of five, ten and twenty modules, and the split alone on others than two channels."""
    sizes, limit, reference = ((2, 4), 2.0, 1.0) if setting.quick else ((5, 10, 20), LIMIT, REFERENCE)
    seeds = SEEDS[: 1 if setting.quick else None]
    compared = [
        stacks.case(10, modules, dependence, CHANNELS, 1, method, seed, reference if method == "annealing" else limit)
        for modules in sizes
        for dependence in ("sdep", "wdep")
        for seed in seeds
        for method in (*METHODS, "annealing")
    ]
    others = [kind for kind in stacks.KINDS if kind[1] != CHANNELS]
    return compared + [stacks.case(10, sizes[1], *kind, 1, solving.SPLIT, seed, limit) for kind in others for seed in seeds]


def seconds_to(row: Row, makespan: float) -> float:
    """Return the seconds until the first schedule of at most a makespan, or until the proof if that came first; inf if neither did."""
    reached = min((time for time, value in row["history"] if value <= makespan), default=np.inf)
    return float(min(reached, row["wall_s"] if row["proven"] else np.inf))


def _done(row: Row, best: float) -> float:
    """Return the seconds until the paper's split has ended, or another method has a schedule close to the best known; inf if never."""
    if row["method"] == solving.SPLIT:
        return float(row["wall_s"]) if solving.finished(row) else math.inf
    return seconds_to(row, CLOSE * best)


def report(rows: Sequence[Row], setting: Setting) -> Report:
    """Return Table III, the seconds of the split by channels, and the claims."""
    compared = solving.chosen(rows, channels=CHANNELS)
    lines, factors, excess = [], {}, list[float]()
    sooner: dict[tuple[str, int], dict[int, float]] = {}
    for dependence, modules in dict.fromkeys((row["dependence"], row["modules"]) for row in compared):
        found = solving.by(solving.chosen(compared, dependence=dependence, modules=modules), lambda row: row["seed"]).values()
        paired = [stack for stack in found if set(METHODS) <= set(stack) and math.isfinite(solving.best(stack))]
        if not paired:
            continue
        seconds = np.array([[_done(stack[name], solving.best(stack)) for name in METHODS] for stack in paired])
        excess += [solving.least(stack, [solving.SPLIT]) / solving.best(stack) - 1 for stack in paired]
        above = np.array([[solving.least(stack, [name]) / solving.best(stack) for name in METHODS] for stack in paired]).mean(axis=0)
        factors[dependence, modules] = [_factor(whole, split, _limit(paired[0])) for *whole, split, _ in seconds.tolist()]
        for stack, (*solvers, _, _) in zip(paired, seconds.tolist(), strict=True):
            whole, key = min(solvers), (dependence, stack[solving.SPLIT]["seed"])
            if math.isfinite(whole) or key in sooner:  # that it was stopped says something of its growth from fewer modules
                sooner.setdefault(key, {})[modules] = min(whole, _limit(stack))
        paper = PRINTED.get((dependence, modules))
        lines.append(
            [
                f"{modules}, {dependence}",
                *(_reached(column) for column in seconds.T),
                _factors(factors[dependence, modules]),
                *(percent(value - 1) for value in above),
                *([f"{paper[0]:,.0f}".replace(",", "\N{NO-BREAK SPACE}"), number(paper[1]), f"{paper[2]}x"] if paper else [""] * 3),
            ]
        )
    heads = dict(zip(solving.methods(1), solving.HEAD, strict=False))  # all but the bound's
    names = [heads[method] for method in METHODS]
    head = ["modules", *(f"{name}, s" for name in names), "factor", *(f"{name} longer by" for name in names)]
    table = Table([*head, "paper: MILP, s", "paper: MILP-SPLIT, s", "paper: factor"], lines)
    return Report([table, *_by_channels(rows)], _claims(compared, factors, list(sooner.values()), excess))


def _by_channels(rows: Sequence[Row]) -> list[Table]:
    """Return a table of the seconds of the split by channels, of the modules that are measured with others than two."""
    modules = {row["modules"] for row in rows if row["channels"] != CHANNELS}
    found = [row for row in rows if row["method"] == solving.SPLIT and row["modules"] in modules]
    tables = []
    for count in sorted(modules):
        lines = []
        for dependence, channels in stacks.KINDS:
            own = solving.chosen(found, dependence=dependence, channels=channels, modules=count)
            lines.append([stacks.label(dependence, channels), _reached(np.array([_done(row, math.inf) for row in own])) if own else ""])
        tables.append(Table([f"{count} modules", "MILP-SPLIT, s"], lines, "By channels, medians over the stacks on which it ends"))
    return tables


def _limit(stack: Mapping[str, Row]) -> float:
    return float(stack[solving.SPLIT]["limit"])


def _factor(whole: Sequence[float], split: float, limit: float) -> tuple[float, float]:
    """Return the least and the greatest possible factor of the sooner MILP to the split; a method that was stopped may take any longer."""
    sooner = min(whole)
    if math.isinf(split):
        return 0.0, sooner / limit
    split = max(split, 1e-3)
    return min(sooner, limit) / split, sooner / split


def _factors(ranges: Sequence[tuple[float, float]]) -> str:
    low, high = sorted(ranges)[len(ranges) // 2]
    if math.isinf(high):
        return "" if low == 0.0 else f"more than {factor(low)}"
    return factor(high) if low else f"less than {factor(high)}"


def _reached(seconds: np.ndarray[tuple[int], np.dtype[np.float64]]) -> str:
    """Return the median of seconds, and how many of the stacks were reached where it is not all."""
    done = seconds[np.isfinite(seconds)]
    if not len(done):
        return "never"
    return number(float(np.median(done)), 2) + ("" if len(done) == len(seconds) else f" ({len(done)} of {len(seconds)})")


def _claims(
    rows: Sequence[Row],
    factors: Mapping[tuple[str, int], Sequence[tuple[float, float]]],
    wholes: Sequence[Mapping[int, float]],
    excess: Sequence[float],
) -> list[Claim]:
    ranges = [one for own in factors.values() for one in own]
    longer = f"; the split's best is {percent(min(excess))} to {percent(max(excess))} longer than the best known" if excess else ""
    splits = []
    for dependence in ("sdep", "wdep"):
        for seed in sorted({row["seed"] for row in rows}):
            own = solving.chosen(rows, dependence=dependence, seed=seed, method=solving.SPLIT)
            if all(row["wall_s"] < row["limit"] for row in own):
                splits.append({row["modules"]: row["wall_s"] for row in own})
    return [
        _decided(
            "The split reaches its best solution 37 to 395 times sooner than the MILP (V-B): 37 times on every stack", ranges, 37, longer
        ).undecided(GENERATED),
        _decided("The split is up to 395 times faster than the MILP (abstract): on some stack", ranges, 395, longer, some=True).undecided(
            GENERATED
        ),
        judged(
            "The MILP of the whole becomes slower out of proportion to the modules (V-B says exponentially, which three sizes cannot show; "
            "in Table III 23 and 45 times for 4 times as many): growth in that of the modules, at least",
            _growth(wholes),
            at_least=1.5,
            each="stack",
            shown=factor,
        ),
        judged(
            "The split's time grows in proportion to the number of modules (IV-B; in Table III 6 times for 4 times as many): growth in "
            "that of the modules",
            _growth(splits),
            at_most=1.5,
            each="stack",
            shown=factor,
        ),
    ]


def _growth(seconds: Sequence[Mapping[int, float]]) -> list[float]:
    """Return the growth of seconds by modules, from the fewest to the most, in that of the modules."""
    several = [own for own in seconds if len(own) > 1]
    return [own[max(own)] / max(own[min(own)], 1e-3) / (max(own) / min(own)) for own in several]


def _decided(text: str, ranges: Sequence[tuple[float, float]], asked: float, more: str, *, some: bool = False) -> Claim:
    """Return the verdict on a factor that is known to lie in a range on each stack: that all of them have it, or some."""
    if not ranges:
        return Claim(text, Verdict.UNSEEN, "not measured")
    above, below = sum(low >= asked for low, _ in ranges), sum(high < asked for _, high in ranges)
    reason = f"{above} of {len(ranges)} stacks have {asked:g}x, {below} have less"
    if known := [low for low, _ in ranges if low > 0]:
        reason += f"; known are {factor(min(known))} to {factor(max(known))}"
    if unknown := len(ranges) - above - below:
        reason += f"; in {unknown} the MILP or the split was stopped before that was known"
    held, contradicted = (above > 0, below == len(ranges)) if some else (above == len(ranges), below > len(ranges) / 2)
    return Claim(text, Verdict.HELD if held else Verdict.NOT_HELD if contradicted else Verdict.UNSEEN, reason + more)


TABLE_3 = Item(
    "table-3",
    "Table III: seconds of the split and of the MILP",
    f"{stacks.DIFFERS}{stacks.SIZE}: these have 10, and two channels, which the paper does not say either. "
    f"{solving.limits(LIMIT, SEEDS, ' but annealing')} The paper has seconds until both reach their best solution: of MILP-SPLIT these are "
    "all that it takes; of the MILP, and of ours, those to a schedule within 1 % of the best known or to the proof, medians over the "
    f"stacks that reached it. The best known is that of these methods and of `annealing` in {REFERENCE:g} s. "
    "The factor is that of the sooner of the two solvers. The paper gives the split's time as |K|^2 |Q| T, of |K| devices and |Q| modules "
    "that take T each, with one channel.",
    cases,
    report,
    needs=(("ortools", "solvers"),),
    time="40 minutes with --jobs 2",
)
