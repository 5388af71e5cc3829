"""Least-squares lines through samples, vectorised over many lines."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hetsched.arrays import BoolArray, FloatArray, IntArray


class Lines(NamedTuple):
    """Lines ``y = slope * x + intercept``, [...] each; NaN without samples at two different x."""

    slope: FloatArray
    intercept: FloatArray
    mean: FloatArray
    """Weighted mean of the y."""
    samples: IntArray
    """Number of samples."""

    def at(self, x: npt.ArrayLike) -> FloatArray:
        """Return the values y at each x, shape [..., X]."""
        return np.asarray(self.slope[..., None] * np.asarray(x, np.float64) + self.intercept[..., None])


def fit(x: npt.ArrayLike, y: FloatArray, weight: FloatArray | None = None) -> Lines:
    """Return the least-squares lines through samples.

    Parameters
    ----------
    x : array [S]
    y : array [..., S]
        NaN for a missing sample.
    weight : array [..., S], optional
        Weights of the squares; default 1.
    """
    given = np.isfinite(y)
    x = np.broadcast_to(np.asarray(x, np.float64), y.shape)
    weight = np.where(given, 1.0 if weight is None else weight, 0.0)
    value = np.where(given, y, 0.0)
    lowest, highest = np.where(given, x, np.inf).min(axis=-1, initial=np.inf), np.where(given, x, -np.inf).max(axis=-1, initial=-np.inf)
    with np.errstate(invalid="ignore", divide="ignore"):
        total = weight.sum(axis=-1)
        middle, mean = (weight * x).sum(axis=-1) / total, (weight * value).sum(axis=-1) / total
        away = np.where(given, x - middle[..., None], 0.0)  # relative to the mean, against cancellation
        above = np.where(given, value - mean[..., None], 0.0)
        slope = (weight * away * above).sum(axis=-1) / (weight * away**2).sum(axis=-1)
    slope = np.where(lowest < highest, slope, np.nan)
    return Lines(slope, mean - slope * middle, mean, given.sum(axis=-1))


def rising(x: npt.ArrayLike, y: FloatArray) -> tuple[Lines, BoolArray]:
    """Return the least-squares lines with decreasing ones replaced by the mean, and which ones were replaced, [...]."""
    lines = fit(x, y)
    falls = lines.slope < 0
    flat = lines._replace(slope=np.where(falls, 0.0, lines.slope), intercept=np.where(falls, lines.mean, lines.intercept))
    width = np.ptp(x) if np.size(x) else 0
    return flat, lines.slope * width < -1e-9 * lines.mean  # beyond rounding errors
