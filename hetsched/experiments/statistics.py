"""Numbers that compare methods over instances: means, profiles, tests of paired differences and their intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hetsched.arguments import check_array, checked, number
from hetsched.arrays import FloatArray
from hetsched.errors import InvalidArgument

TIE = 1e-6
"""Relative difference up to which two makespans are a tie."""
LEAST = 6
"""The fewest pairs for a test: with 5 no p value of the signed-rank test is below 0.05."""
FAMILIES = 8
"""Families from which on they are resampled instead of the instances in them."""
RESAMPLES = 9999


@checked(shift=number(0))
def shifted_geometric_mean(values: npt.ArrayLike, shift: float) -> float:
    """Return ``exp(mean(log(values + shift))) - shift``, NaN of no values; a large `shift` lessens the weight of small values.

    References
    ----------
    T. Achterberg, "Constraint Integer Programming", TU Berlin 2007, appendix A.3.
    """
    array = _nonnegative(values, "values")
    if not len(array):
        return math.nan
    if (array + shift == 0).any():
        return 0.0
    return float(np.exp(np.log(array + shift).mean()) - shift)


class WinTieLoss(NamedTuple):
    """On how many instances a first method is better than, as good as, and worse than a second."""

    win: int
    tie: int
    loss: int


@checked
def win_tie_loss(first: npt.ArrayLike, second: npt.ArrayLike) -> WinTieLoss:
    """Compare paired values, of which lower is better; inf is no result, and two of them are a tie."""
    a, b = _pairs(first, second)
    tie = close(a, b)
    return WinTieLoss(int((~tie & (a < b)).sum()), int(tie.sum()), int((~tie & (a > b)).sum()))


def close(a: FloatArray, b: FloatArray) -> npt.NDArray[np.bool_]:
    """Return whether values differ by no more than `TIE`, relative to the larger."""
    with np.errstate(invalid="ignore"):
        near = np.abs(a - b) <= TIE * np.maximum(np.abs(a), np.abs(b))
    return np.asarray((a == b) | (near & np.isfinite(a) & np.isfinite(b)))


@checked
def log_ratios(first: npt.ArrayLike, second: npt.ArrayLike) -> FloatArray:
    """Return ``log(first / second)`` of each pair; 0 for a tie, NaN where one is 0 or inf."""
    a, b = _pairs(first, second)
    known = np.isfinite(a) & np.isfinite(b) & (a > 0) & (b > 0)
    ratios: FloatArray = np.full(len(a), np.nan)
    ratios[known] = np.where(close(a, b), 0.0, np.log(np.where(known, a, 1.0) / np.where(known, b, 1.0)))[known]
    return ratios


@checked
def signed_rank(differences: npt.ArrayLike) -> float:
    """Return the two-sided p value of Wilcoxon's signed-rank test that differences lie around 0.

    Differences of 0 count as half positive, half negative (``zero_method="zsplit"``). NaN with fewer than `LEAST` differences.
    """
    array = check_array(differences, "differences", ("any",))
    if len(array) < LEAST:
        return math.nan
    if not array.any():
        return 1.0
    from scipy.stats import wilcoxon

    return float(wilcoxon(array, zero_method="zsplit").pvalue)


@checked
def holm(values: npt.ArrayLike) -> FloatArray:
    """Return p values adjusted for their number by Holm's method; NaN stays, and is not counted.

    References
    ----------
    S. Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 1979.
    """
    array: FloatArray = check_array(values, "values", ("any",))
    tested = np.flatnonzero(~np.isnan(array))
    if ((array[tested] < 0) | (array[tested] > 1)).any():
        raise InvalidArgument(f"values are {array.tolist()}; p values must be from 0 to 1, or NaN where there is no test")
    order = tested[np.argsort(array[tested], kind="stable")]
    adjusted = np.full(len(array), np.nan)
    adjusted[order] = np.minimum(np.maximum.accumulate(array[order] * (len(order) - np.arange(len(order)))), 1.0)
    return adjusted


class Interval(NamedTuple):
    """A mean and its interval."""

    mean: float
    low: float
    high: float


@checked(level=number(above=0, below=1))
def bootstrap_mean(values: npt.ArrayLike, families: Sequence[str], *, level: float = 0.95, seed: int = 0) -> Interval:
    """Return a mean and its percentile bootstrap interval.

    Instances of a family resemble one another: from `FAMILIES` families on, whole families are resampled; with fewer, the instances within
    each, and the interval then holds for these families alone.
    """
    array: FloatArray = check_array(values, "values", ("any",))
    if len(array) != len(families):
        raise InvalidArgument(f"families has {len(families)} names for {len(array)} values; give one for each")
    if not len(array):
        return Interval(math.nan, math.nan, math.nan)
    rng = np.random.default_rng(seed)
    _, number_of = np.unique(np.asarray(families, dtype=str), return_inverse=True)
    groups = [array[number_of == family] for family in range(number_of.max() + 1)]
    sums, counts = np.array([group.sum() for group in groups]), np.array([len(group) for group in groups])
    if len(groups) >= FAMILIES:
        drawn = rng.integers(len(groups), size=(RESAMPLES, len(groups)))
        means = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    else:
        means = sum(group[rng.integers(len(group), size=(RESAMPLES, len(group)))].sum(axis=1) for group in groups) / len(array)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(array.mean()), float(low), float(high))


@checked(limit=number(above=0))
def primal_integral(history: npt.ArrayLike, best: float, limit: float) -> float:
    """Return the mean over the time up to `limit` of the gap to the `best` makespan, 1 before the first schedule.

    Parameters
    ----------
    history : array [H, 2]
        Seconds and makespan of each improvement.
    best : float
        The best makespan known.
    limit : float
        Seconds.

    References
    ----------
    T. Berthold, "Measuring the impact of primal heuristics", Operations Research Letters 2013.
    """
    rows = check_array(history, "history")
    if rows.size and (rows.ndim != 2 or rows.shape[1] != 2):
        raise InvalidArgument(f"history has shape {list(rows.shape)}; it must be [improvements, 2], seconds and makespan")
    rows = rows.reshape(-1, 2)
    times = np.clip(np.concatenate([[0.0], rows[:, 0], [limit]]), 0.0, limit)
    gaps = np.concatenate([[1.0], gap(rows[:, 1], best)])
    return float((np.diff(times) * gaps).sum() / limit)


@checked
def gap(values: npt.ArrayLike, best: float) -> FloatArray:
    """Return ``(value - best) / value`` of makespans, at least 0; 1 for inf, which is no schedule."""
    array = _nonnegative(values, "values")
    shares = np.where(np.isinf(array), 1.0, 0.0)
    positive = np.isfinite(array) & (array > 0)
    shares[positive] = np.maximum(0.0, 1.0 - best / array[positive])
    return shares


class Profile(NamedTuple):
    """A step function: the share of instances whose ratio to the best is at most each of `ratios`, which ascend."""

    ratios: FloatArray
    shares: FloatArray


@checked
def performance_profile(values: npt.ArrayLike) -> list[Profile]:
    """Return the performance profile of each method.

    Parameters
    ----------
    values : array [M, I]
        Makespans or seconds of each method on each instance; inf where it has no result. Instances that no method has a result for
        count for none.

    References
    ----------
    E. Dolan, J. More, "Benchmarking optimization software with performance profiles", Mathematical Programming 2002. With more than two
    methods the profiles of the others depend on the best one: N. Gould, J. Scott, "A note on performance profiles for benchmarking
    software", ACM Transactions on Mathematical Software 2016.
    """
    table = _nonnegative(values, "values", ("methods", "instances"))
    best = table.min(axis=0, initial=np.inf)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratios = np.where(close(table, np.broadcast_to(best, table.shape)) & np.isfinite(table), 1.0, table / best)
    ratios[~np.isfinite(ratios)] = np.inf
    made = []
    for row in ratios:
        finite = np.sort(row[np.isfinite(row)])
        made.append(Profile(finite, np.arange(1, len(finite) + 1) / max(1, len(row))))
    return made


def _nonnegative(values: npt.ArrayLike, what: str, shape: tuple[int | str, ...] = ("any",)) -> FloatArray:
    array: FloatArray = check_array(values, what, shape)
    if not (array >= 0).all():
        raise InvalidArgument(f"{what} has {array.min()}; it must be numbers of at least 0")
    return array


def _pairs(first: npt.ArrayLike, second: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    a, b = _nonnegative(first, "first", ("any",)), _nonnegative(second, "second", ("any",))
    if len(a) != len(b):
        raise InvalidArgument(f"first has {len(a)} values and second {len(b)}; give one of each for every instance")
    return a, b
