"""Durations for large batches from measurements of small ones: a line for each task and device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from hetsched.arguments import check_array, checked
from hetsched.arrays import BoolArray, FloatArray, IntArray
from hetsched.costs.deviations import Deviations
from hetsched.costs.lines import Lines, fit
from hetsched.costs.samples import Samples
from hetsched.errors import InvalidProblem, warn
from hetsched.problem.cluster import Cluster
from hetsched.problem.graph import TaskGraph

Amount = Literal["seconds", "memory_bytes"]


class Regression:
    """A cost model of least-squares lines of time and memory over the batch size (Celeritas' first step).

    A decreasing line, which noise can cause if the time hardly grows, is replaced by the mean, for more inputs never take less
    time. A line may be negative below the smallest sample; there it counts as zero, with a `RuntimeWarning`.

    Parameters
    ----------
    samples : Samples
        Two or more batch sizes for each task on each device, or none where it cannot run.

    Attributes
    ----------
    slope, intercept : float64 arrays [n, K]
        Seconds per input and seconds per batch; NaN where the task cannot run.
    memory_slope, memory_intercept : float64 arrays [n, K]
        Bytes per input and per batch; NaN where memory was not measured.
    flattened : bool array [n, K]
        Whether the line of the seconds was decreasing.

    Raises
    ------
    InvalidProblem
        A task has samples at one batch size only.

    References
    ----------
    Celeritas, section 4.2 (Standard Evaluation).
    """

    @checked
    def __init__(self, samples: Samples) -> None:
        self.samples = samples
        self._time, self.flattened = _rising(samples, "seconds")
        self._memory, _ = _rising(samples, "memory_bytes")
        self.slope, self.intercept = self._time.slope, self._time.intercept
        self.memory_slope, self.memory_intercept = self._memory.slope, self._memory.intercept

    def __repr__(self) -> str:
        flat = int(self.flattened.sum())
        lines = int(np.isfinite(self.slope).sum())
        return f"<Regression: {lines} lines through {self.samples!r}{f'; {flat} fell and are flat' if flat else ''}>"

    @checked
    def durations(self, graph: TaskGraph, cluster: Cluster, batch_sizes: Sequence[int]) -> FloatArray:
        """Return seconds per batch, shape [task, device, size]; tasks and devices are matched by name.

        Raises
        ------
        InvalidProblem
            A task or a device was not measured.
        """
        return self.estimated("seconds", graph.names, cluster.names, batch_sizes)

    @checked
    def memory_bytes(self, graph: TaskGraph, cluster: Cluster, batch_sizes: Sequence[int]) -> FloatArray:
        """Return the bytes that a batch allocates, shape [task, device, size]; NaN where not measured."""
        return self.estimated("memory_bytes", graph.names, cluster.names, batch_sizes)

    @checked
    def estimated(self, what: Amount, tasks: Sequence[str], devices: Sequence[str], batch_sizes: npt.ArrayLike) -> FloatArray:
        """Return "seconds" or "memory_bytes" for names and batch sizes, shape [task, device, size]."""
        lines = self._time if what == "seconds" else self._memory
        rows = np.ix_(_places(tasks, self.samples.tasks, "task"), _places(devices, self.samples.devices, "device"))
        values = lines.at(check_array(batch_sizes, "batch_sizes", ("sizes",)))[rows]
        below = np.argwhere(values < 0)
        if len(below):
            i, k, b = below[0]
            warn(
                f"{len(below)} estimated {what} are below zero and count as zero, the first of task {tasks[i]!r} on {devices[k]!r} "
                f"for a batch of {np.asarray(batch_sizes)[b]}; measure smaller batches too"
            )
        return np.maximum(values, 0.0)  # keeps NaN

    @checked
    def deviations(self, actual: Samples, what: Amount = "seconds") -> Deviations:
        """Return the deviations of the estimates from other measurements, usually of larger batches.

        Raises
        ------
        InvalidProblem
            A measurement has no estimate.
        """
        estimated = self.estimated(what, actual.tasks, actual.devices, actual.batch_sizes)
        measured: FloatArray = getattr(actual, what)
        places = np.argwhere(np.isfinite(measured))
        i, k, b = places.T
        guesses = estimated[i, k, b]
        for x in np.flatnonzero(np.isnan(guesses)):
            task, device = actual.tasks[i[x]], actual.devices[k[x]]
            raise InvalidProblem(f"there are no samples of {what} of task {task!r} on {device!r} to estimate from; measure small batches")
        names, devices = np.array(actual.tasks, np.str_), np.array(actual.devices, np.str_)
        return Deviations.between(names[i].tolist(), devices[k].tolist(), actual.batch_sizes[b], guesses, measured[i, k, b])


def _rising(samples: Samples, what: Amount) -> tuple[Lines, BoolArray]:
    """Return the lines, with decreasing ones replaced by the mean, and which ones were replaced."""
    lines = fit(samples.batch_sizes, getattr(samples, what))
    for i, k in np.argwhere((lines.samples > 0) & np.isnan(lines.slope)):
        sizes = samples.batch_sizes[np.isfinite(getattr(samples, what)[i, k])]
        raise InvalidProblem(
            f"task {samples.tasks[i]!r} on {samples.devices[k]!r} has {what} for one batch size only ({sizes[0]}); "
            "a line needs two: measure another, or give NaN for all"
        )
    falls = lines.slope < 0
    flat = lines._replace(slope=np.where(falls, 0.0, lines.slope), intercept=np.where(falls, lines.mean, lines.intercept))
    width = np.ptp(samples.batch_sizes) if len(samples.batch_sizes) else 0
    return flat, lines.slope * width < -1e-9 * lines.mean  # beyond rounding errors


def _places(names: Iterable[str], names_known: tuple[str, ...], what: str) -> IntArray:
    index = {name: i for i, name in enumerate(names_known)}
    try:
        return np.array([index[name] for name in names], np.int64)
    except KeyError as error:
        some = ", ".join(names_known[:8]) + (", ..." if len(names_known) > 8 else "")
        raise InvalidProblem(f"{what} {error.args[0]!r} was not measured; the samples have {some or 'none'}") from None
