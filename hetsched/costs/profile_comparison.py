"""Two profiles side by side: ratios of seconds by class of operators, and how alike they order tasks."""

from __future__ import annotations

from typing import Any

import numpy as np

from hetsched.arguments import checked
from hetsched.arrays import Columns, FloatArray, Frozen, texts
from hetsched.costs.profile import Profile
from hetsched.errors import InvalidProblem, printable

SHOWN = 10
"""The number of operators that the text has."""


class ProfileComparison(Frozen):
    """What two profiles measured of the same operators with the same batch sizes, see `compare_profiles`.

    Attributes
    ----------
    rows : Columns (digest, op, text, device, batch, old, new, ratio)
        Pooled medians in seconds, and new divided by old; the largest difference in seconds first.
    classes : Columns (op, count, old, new, q25, ratio, q75)
        By operator type: the sums in seconds, and the quartiles and median of the ratios; the longest first.
    rank_correlation : float
        Spearman's, of the seconds; NaN for fewer than two operators, or if all are equal.
    """

    rows: Columns
    classes: Columns
    rank_correlation: float

    def __init__(self) -> None:
        raise TypeError("comparisons are made by hetsched.costs.compare_profiles(old, new)")

    @property
    def ratio(self) -> float:
        """The median of new divided by old."""
        return float(np.median(self.rows.ratio))

    def __repr__(self) -> str:
        return f"<ProfileComparison of {len(self.rows)} measurements, median ratio {self.ratio:.3g}>"

    def __str__(self) -> str:
        lines = [
            f"{len(self.rows)} operators with the same batch size on the same device: new / old is {self.ratio:.3f} (median), "
            f"rank correlation {self.rank_correlation:.3f}",
            "",
            f"{'operator':<24} {'count':>5} {'old, ms':>10} {'new, ms':>10} {'ratio':>7} {'25 %':>7} {'75 %':>7}",
        ]
        lines += [
            f"{row['op'] or '-':<24} {row['count']:>5} {1e3 * row['old']:>10.3f} {1e3 * row['new']:>10.3f} {row['ratio']:>7.3f} "
            f"{row['q25']:>7.3f} {row['q75']:>7.3f}"
            for row in self.classes
        ]
        lines += ["", f"largest differences:  {'old, ms':>10} {'new, ms':>10} {'ratio':>7}"]
        lines += [
            f"{row['device']:<12} batch {row['batch']:<3} {1e3 * row['old']:>10.3f} {1e3 * row['new']:>10.3f} {row['ratio']:>7.3f}  "
            f"{row['text'] or row['op'] or row['digest']}"
            for row in list(self.rows)[:SHOWN]
        ]
        return "\n".join(map(printable, lines))

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as numbers, texts and lists of rows; None for what is unknown."""
        correlation = None if np.isnan(self.rank_correlation) else self.rank_correlation
        return {"ratio": self.ratio, "rank_correlation": correlation, "classes": list(self.classes), "rows": list(self.rows)}

    @checked
    def to_dataframe(self) -> Any:
        """Return the rows as a ``pandas.DataFrame``; raise `MissingDependency` without pandas."""
        return self.rows.to_dataframe()


@checked
def compare_profiles(old: Profile, new: Profile) -> ProfileComparison:
    """Compare two profiles by what both have measured: equal digests and batch sizes on devices of one name.

    Where no name is in both, and each has one device, or devices that are pooled, these are compared.

    Raises
    ------
    InvalidProblem
        They have no measurement in common.
    """
    operators = {row.digest: row for row in (*old.operators, *new.operators)}
    keys = sorted({(row.digest, row.batch) for row in old.times} & {(row.digest, row.batch) for row in new.times})
    found = []
    for name, other in _pairs(old, new):
        for digest, batch in keys:
            was, now = old.pooled(digest, name, batch), new.pooled(digest, other, batch)
            if was is not None and now is not None and was.seconds > 0 and now.seconds > 0:
                label = name if name == other else f"{name} / {other}"
                found.append((digest, label, batch, was.seconds, now.seconds))
    if not found:
        raise InvalidProblem(
            f"the profiles have no measurement in common: one has {old!r}, the other {new!r}; give profiles of the same operators, "
            "batch sizes and names of devices"
        )
    found.sort(key=lambda row: (-abs(row[4] - row[3]), row))
    digests, devices, batches, was_all, now_all = zip(*found, strict=True)
    before, after = np.array(was_all), np.array(now_all)
    rows = Columns(
        digest=texts(digests),
        op=texts(operators[digest].op for digest in digests),
        text=texts(operators[digest].text for digest in digests),
        device=texts(devices),
        batch=np.array(batches, np.int64),
        old=before,
        new=after,
        ratio=after / before,
    )
    made = ProfileComparison.__new__(ProfileComparison)
    made._set(rows=rows, classes=_classes(rows), rank_correlation=spearman(before, after))
    return made


def _pairs(old: Profile, new: Profile) -> list[tuple[str, str]]:
    """Return the devices to compare; of those that are pooled in both, one."""
    both = [name for name in old.names if name in new.names]
    if not both:
        pools = [{profile.device(name).pool for name in profile.names} for profile in (old, new)]
        return [(old.names[0], new.names[0])] if all(len(own) == 1 for own in pools) else []
    seen = {(old.device(name).pool, new.device(name).pool): (name, name) for name in reversed(both)}
    return sorted(seen.values(), key=lambda pair: both.index(pair[0]))


def _classes(rows: Columns) -> Columns:
    ops = sorted(set(rows.op.tolist()), key=lambda op: (-float(rows.new[rows.op == op].sum()), op))
    own = [rows.op == op for op in ops]
    quartiles = np.array([np.quantile(rows.ratio[mask], [0.25, 0.5, 0.75]) for mask in own])
    return Columns(
        op=texts(ops),
        count=np.array([int(mask.sum()) for mask in own]),
        old=np.array([float(rows.old[mask].sum()) for mask in own]),
        new=np.array([float(rows.new[mask].sum()) for mask in own]),
        q25=quartiles[:, 0],
        ratio=quartiles[:, 1],
        q75=quartiles[:, 2],
    )


def spearman(first: FloatArray, second: FloatArray) -> float:
    """Return Spearman's rank correlation, ties at their mean rank; NaN for fewer than two, or if all in one are equal."""
    one, other = _ranks(first), _ranks(second)
    if len(first) < 2 or np.ptp(one) == 0 or np.ptp(other) == 0:
        return float("nan")
    return float(np.corrcoef(one, other)[0, 1])


def _ranks(values: FloatArray) -> FloatArray:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[place])
