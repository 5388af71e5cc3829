"""What the records of solved cases say about methods: tables, tests of differences, and contradictions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np

from hetsched.arguments import checked
from hetsched.arrays import FloatArray
from hetsched.errors import InvalidArgument
from hetsched.experiments import statistics
from hetsched.experiments.rendering import Table, number
from hetsched.experiments.results import Case, Results, Row
from hetsched.experiments.solving import label

PROVEN = ("optimal", "infeasible")
"""Statuses of answers with a proof."""
TABLES = ("summary", "pairs", "gaps", "makespans")
CLOCKS = {"time": "s", "cpu": "CPU s", "evaluations": "evaluations", "certify": "s for a certificate"}
BUGS = ("InvalidSchedule", "InconsistentBound")
"""Errors of a failed case that contradict an answer."""


class Pair(NamedTuple):
    """Two methods compared over the instances that both have run on, by the median makespan over the seeds."""

    first: str
    second: str
    counts: statistics.WinTieLoss
    p: float
    """Of the signed-rank test, adjusted for the number of pairs; NaN without a test."""
    ratio: statistics.Interval
    """Mean of the ratio of makespans, first / second, geometric, and its 95 % interval."""
    left_out: int
    """Instances without a ratio, because a makespan is 0 or missing."""


class Comparison:
    """The methods in some records, compared over the instances.

    A method with other options or other limits counts as another method. The seeds of a method on an instance become their median first;
    a case without a schedule, or that failed, counts as a makespan of inf. Cases that a method refused are left out, and counted.

    Parameters
    ----------
    results : Results
        Its cases of `hetsched.experiments.cases`; others are left out.

    Attributes
    ----------
    methods : tuple of str
        In the order of their first record.
    instances : tuple of str
        Digests of the problems, by family and name.
    names, families : dict of str
        The name and the family of each problem, by digest.
    best, bound : dict of float
        The shortest makespan and the highest bound on each problem, of all records.
    """

    @checked
    def __init__(self, results: Results) -> None:
        def solved(case: Case) -> bool:
            return "digest" in case and "method" in case

        rows, failures = results.rows(solved), results.failures(solved)
        self.taken, self.outdated = results.taken(solved), results.outdated(solved)
        self.contradictions = tuple(_contradictions([*rows, *failures]))
        limits = {_limit(row) for row in (*rows, *failures)}
        self._cases: dict[tuple[str, str], list[Row]] = {}
        names: dict[str, tuple[str, str]] = {}
        methods: dict[str, None] = {}
        self.limits: dict[str, dict[str, float]] = {}
        self.best: dict[str, float] = {}
        self.bound: dict[str, float] = {}
        for row in (*rows, *failures):
            name = label(row["method"], row["options"]) + (f", {_limit(row)}" if len(limits) > 1 else "")
            place = row["digest"]
            methods[name] = None
            self.limits[name] = row["limits"]
            names.setdefault(place, (row.get("family", ""), row.get("instance", place)))
            self._cases.setdefault((name, place), []).append(row)
            self.best[place] = min(self.best.get(place, math.inf), makespan(row))
            self.bound[place] = max(self.bound.get(place, 0.0), row.get("bound") or 0.0)
        self.methods = tuple(methods)
        self.instances = tuple(sorted(names, key=lambda place: names[place]))
        self.families = {place: family for place, (family, _) in names.items()}
        self.names = {place: name for place, (_, name) in names.items()}

    def __repr__(self) -> str:
        return f"<Comparison of {len(self.methods)} methods on {len(self.instances)} instances>"

    @checked
    def cases(self, method: str, instance: str) -> list[Row]:
        """Return the rows of a method on an instance, one a seed, without refusals."""
        return [row for row in self._cases.get((method, instance), []) if row["status"] != "refused"]

    @property
    def clock(self) -> str:
        """The clock of the times: that of CPU seconds if all limits are of CPU seconds."""
        return "cpu_s" if self.limits and all("cpu" in limits for limits in self.limits.values()) else "wall_s"

    @cached_property
    def makespans(self) -> FloatArray:
        """Median makespan over the seeds, [M, I]; inf if most seeds have none, NaN where a method has not run."""
        return self._medians(makespan)

    @cached_property
    def proof_times(self) -> FloatArray:
        """Median seconds to the proof of the optimum, or that there is no schedule, [M, I]; inf if most seeds have none, NaN if not run."""
        return self._medians(lambda row: row[self.clock] if row["status"] in PROVEN else math.inf)

    def _medians(self, of: Callable[[Row], float]) -> FloatArray:
        table = np.full((len(self.methods), len(self.instances)), np.nan)
        for m, method in enumerate(self.methods):
            for i, instance in enumerate(self.instances):
                if rows := self.cases(method, instance):
                    table[m, i] = median([of(row) for row in rows])
        return table

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """Every two methods that have instances in common, with the p values adjusted for their number."""
        made = [pair for a, b in itertools.combinations(range(len(self.methods)), 2) if (pair := self._pair(a, b)) is not None]
        adjusted = statistics.holm([pair.p for pair in made]).tolist()
        return tuple(pair._replace(p=p) for pair, p in zip(made, adjusted, strict=True))

    def _pair(self, a: int, b: int) -> Pair | None:
        both = np.flatnonzero(~np.isnan(self.makespans[[a, b]]).any(axis=0))
        if not len(both):
            return None
        first, second = self.makespans[a, both], self.makespans[b, both]
        ratios = statistics.log_ratios(first, second)
        known = ~np.isnan(ratios)
        families = [self.families[self.instances[i]] for i in both[known]]
        mean = statistics.bootstrap_mean(ratios[known], families)
        ratio = statistics.Interval(*(math.exp(part) for part in mean))
        counts = statistics.win_tie_loss(first, second)
        return Pair(self.methods[a], self.methods[b], counts, statistics.signed_rank(ratios[known]), ratio, int((~known).sum()))

    # ------------------------------------------------------------------ tables

    @checked
    def table(self, name: Literal["summary", "pairs", "gaps", "makespans"]) -> Table:
        """Return a table: "summary", "pairs", "gaps" to the best known makespan, or "makespans"."""
        made: Table = {"summary": self._summary, "pairs": self._pairs, "gaps": self._gaps, "makespans": self._makespans}[name]()
        return made

    def _summary(self) -> Table:
        families = sorted(set(self.families.values()))
        groups = [*families, "all"] if len(families) > 1 else ["all"]
        lines = [line for group in groups for method in self.methods for line in self._summary_line(group, method)]
        clock = "CPU" if self.clock == "cpu_s" else "wall-clock"
        head = ("method", "cases", "reached", "proven", "checked", "failed", "refused", "gap, %", "time to proof, s", "primal integral, %")
        notes = [
            "reached: a makespan as short as the best known one, to a relative 1e-6; failed: no schedule, an error or late",
            "checked: proven, and the bound has a certificate that the checker accepted",
            "gap: to the best known makespan, shifted geometric mean over the instances of the median over the seeds, shift 1 %",
            f"time to proof: {clock} time, likewise, shift 1 s; an unproven case counts as its limit",
            "primal integral: mean gap over the time up to the limit, 100 % before the first schedule",
        ]
        whole = Table(("family", *head), lines, "Methods", notes)
        return whole if len(groups) > 1 else replace(whole, head=head, rows=[line[1:] for line in lines])

    def _summary_line(self, group: str, method: str) -> Iterator[list[str]]:
        within = [i for i, instance in enumerate(self.instances) if group in ("all", self.families[instance])]
        rows = [(self.instances[i], row) for i in within for row in self._cases.get((method, self.instances[i]), [])]
        ran = [(instance, row) for instance, row in rows if row["status"] != "refused"]
        if not rows:
            return
        known = [i for i in within if not np.isnan(self.makespans[self.methods.index(method), i])]
        limit = self.limits[method].get("cpu", self.limits[method].get("time"))
        proofs = self.proof_times[self.methods.index(method), known]
        integrals = [
            float(np.median([statistics.primal_integral(row.get("history", []), self.best[place], limit) for row in cases]))
            for place in (self.instances[i] for i in known)
            if limit and math.isfinite(self.best[place]) and (cases := self.cases(method, place))
        ]
        gaps = 100 * self._gap_row(method)[known]
        capped = np.where(np.isinf(proofs), limit or np.inf, proofs)
        yield [
            group,
            method,
            str(len(ran)),
            str(sum(self._reached(instance, row) for instance, row in ran)),
            str(sum(row["status"] in PROVEN for _, row in ran)),
            str(sum(row["status"] in PROVEN and row.get("trust") == "checked" for _, row in ran)),
            str(sum(math.isinf(makespan(row)) and row["status"] != "infeasible" for _, row in ran)),
            str(len(rows) - len(ran)),
            _mean(gaps[~np.isnan(gaps)], 1.0),
            _mean(capped, 1.0) if np.isfinite(capped).all() else "-",
            f"{100 * float(np.mean(integrals)):.2f}" if integrals else "-",
        ]

    def _reached(self, instance: str, row: Row) -> bool:
        made, best = np.array([makespan(row)]), np.array([self.best[instance]])
        return bool(np.isfinite(made[0]) and statistics.close(made, best)[0])

    def _gap_row(self, method: str) -> FloatArray:
        """Return the gap of a method's median makespan on each instance to the best known one, [I].

        It is NaN where the method has not run, and where a method has proven that there is no schedule.
        """
        row = self.makespans[self.methods.index(method)]
        empty = {
            place for name in self.methods for place in self.instances for one in self.cases(name, place) if one["status"] == "infeasible"
        }
        places = zip(row, self.instances, strict=True)
        return np.array([np.nan if np.isnan(made) or place in empty else _gap(made, self.best[place]) for made, place in places])

    def _pairs(self) -> Table:
        head = ("first / second", "instances", "win", "tie", "loss", "p", "ratio", "95 % interval")
        lines = [
            [
                f"{pair.first} / {pair.second}",
                str(sum(pair.counts)),
                *map(str, pair.counts),
                "-" if math.isnan(pair.p) else f"{pair.p:.3g}",
                "-" if math.isnan(pair.ratio.mean) else f"{pair.ratio.mean:.4f}",
                "-" if math.isnan(pair.ratio.mean) else f"{pair.ratio.low:.4f} to {pair.ratio.high:.4f}",
            ]
            for pair in self.pairs
        ]
        resampled = len(set(self.families.values())) >= statistics.FAMILIES
        notes = [
            "win: the median makespan of the first method over the seeds is shorter; tie: they differ by at most a relative 1e-6",
            f"p: Wilcoxon signed-rank test, by Holm for {len(lines)} pairs; none with fewer than {statistics.LEAST} instances",
            f"ratio: geometric mean of first / second; bootstrap of {'families' if resampled else 'the instances within families'}",
        ]
        left_out = sum(pair.left_out for pair in self.pairs)
        notes += [f"{left_out} ratios and differences are left out, for a makespan is 0 or missing"] if left_out else []
        return Table(head, lines, "Pairs of methods", notes)

    def _gaps(self) -> Table:
        rows = [self._gap_row(method) for method in self.methods]
        lines = [
            [self.names[place], _value(self.best[place]), _value(self.bound[place]), *(_percent(row[i]) for row in rows)]
            for i, place in enumerate(self.instances)
        ]
        notes = ["gap of the median makespan over the seeds to the best known one, %; bound: the highest of all methods"]
        return Table(("instance", "best", "bound", *self.methods), lines, "Gaps to the best known makespan", notes)

    def _makespans(self) -> Table:
        lines = [
            [self.names[place], _value(self.best[place]), _value(self.bound[place]), *(_value(made) for made in self.makespans[:, i])]
            for i, place in enumerate(self.instances)
        ]
        return Table(
            ("instance", "best", "bound", *self.methods), lines, "Makespans", ["median over the seeds, s; best and bound of all methods"]
        )


def makespan(row: Row) -> float:
    """Return the makespan of a row, inf without a schedule."""
    made = row.get("makespan")
    return math.inf if made is None else float(made)


def _limit(row: Row) -> str:
    return " and ".join(f"{limit:g} {CLOCKS[name]}" for name, limit in row["limits"].items()) or "no limit"


def median(values: Sequence[float]) -> float:
    """Return the median, of which inf may be any; of an even number the higher one next to inf, which has no mean with it."""
    ordered = sorted(values)
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return high if math.isinf(high) else (low + high) / 2


def _gap(made: float, best: float) -> float:
    return float(statistics.gap([made], best)[0]) if math.isfinite(best) else 1.0


def _mean(values: FloatArray, shift: float) -> str:
    mean = statistics.shifted_geometric_mean(values, shift)
    return "-" if math.isnan(mean) else f"{mean:.2f}"


def _percent(share: float) -> str:
    return "" if np.isnan(share) else "none" if share == 1.0 else f"{100 * share:.2f}"


def _value(made: float) -> str:
    return "" if np.isnan(made) else "none" if np.isinf(made) else number(made, 5) if made else "0"


def _contradictions(rows: list[Row]) -> Iterator[str]:
    """Yield the bounds above a makespan on the same problem, and the failures by a wrong answer."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["digest"], []).append(row)
        if row.get("error", "").startswith(BUGS):
            yield f"{_who(row)}: {row['error']}"
    for group in groups.values():
        highest, shortest = max(group, key=lambda row: row.get("bound") or 0.0), min(group, key=makespan)
        bound = highest.get("bound") or 0.0
        if bound > makespan(shortest) * (1 + statistics.TIE):
            yield f"one is wrong: the bound of {_who(highest)} is {bound!r}, and the makespan of {_who(shortest)} is {makespan(shortest)!r}"


def _who(row: Row) -> str:
    return f"{label(row['method'], row['options'])} on {row.get('instance', row['digest'])}, seed {row['seed']}, {_limit(row)}"


@checked
def check_tables(names: Sequence[str]) -> None:
    """Raise `InvalidArgument` for a name that is not one of `TABLES`."""
    for name in names:
        if name not in TABLES:
            raise InvalidArgument(f"there is no table {name!r}; choose from {', '.join(TABLES)}")


def curves(comparison: Comparison, method: str, times: FloatArray) -> FloatArray:
    """Return the median gap of a method over its instances after each of some times, seeds first, 1 before a schedule."""
    shares = [
        np.median([_over_time(row, comparison.best[place], times) for row in rows], axis=0)
        for place in comparison.instances
        if math.isfinite(comparison.best[place]) and (rows := comparison.cases(method, place))
    ]
    return np.median(shares, axis=0) if shares else np.full(len(times), np.nan)


def _over_time(row: dict[str, Any], best: float, times: FloatArray) -> FloatArray:
    history = np.array(row.get("history", []), dtype=float).reshape(-1, 2)
    gaps = np.concatenate([[1.0], statistics.gap(history[:, 1], best)])
    return np.asarray(gaps[np.searchsorted(history[:, 0], times, side="right")])
