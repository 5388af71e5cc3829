"""Durations for large batches from measurements of small ones: a line for each task and device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from hetsched.arguments import check_array, checked
from hetsched.arrays import BoolArray, FloatArray, IntArray
from hetsched.costs.deviations import Deviations
from hetsched.costs.lines import Lines, rising
from hetsched.costs.profile import Amount, Profile
from hetsched.errors import InvalidProblem, warn
from hetsched.problem.cluster import Cluster
from hetsched.problem.graph import TaskGraph


class Regression:
    """A cost model of least-squares lines of time and memory over the batch size (Celeritas' first step).

    A decreasing line, which noise can cause if the time hardly grows, is replaced by the mean, for more inputs never take less
    time. A line may be negative below the smallest sample; there it counts as zero, with a `RuntimeWarning`.

    Parameters
    ----------
    profile : Profile
        Of one graph: two or more batch sizes for each task on each device, or none where it cannot run.

    Attributes
    ----------
    tasks, devices : tuples of str
        Those of the profile, n and K.
    slope, intercept : float64 arrays [n, K]
        Seconds per input and seconds per batch; NaN where the task cannot run.
    memory_slope, memory_intercept : float64 arrays [n, K]
        Bytes per input and per batch; NaN where memory was not measured.
    flattened : bool array [n, K]
        Whether the line of the seconds was decreasing.

    Raises
    ------
    InvalidProblem
        A task was measured at one batch size only, or the profile has several graphs.

    References
    ----------
    Celeritas, section 4.2 (Standard Evaluation).
    """

    @checked
    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.tasks, self.devices = profile.network().graph.names, profile.names
        self._time, self.flattened = self._rising("seconds")
        self._memory, _ = self._rising("memory_bytes")
        self.slope, self.intercept = self._time.slope, self._time.intercept
        self.memory_slope, self.memory_intercept = self._memory.slope, self._memory.intercept

    def __repr__(self) -> str:
        flat = int(self.flattened.sum())
        lines = int(np.isfinite(self.slope).sum())
        return f"<Regression: {lines} lines through {self.profile!r}{f'; {flat} fell and are flat' if flat else ''}>"

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
        rows = np.ix_(_places(tasks, self.tasks, "task"), _places(devices, self.devices, "device"))
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
    def deviations(self, actual: Profile, what: Amount = "seconds") -> Deviations:
        """Return the deviations of the estimates from other measurements, usually of larger batches.

        Raises
        ------
        InvalidProblem
            A measurement has no estimate.
        """
        tasks, sizes = actual.network().graph.names, actual.batch_sizes
        estimated = self.estimated(what, tasks, actual.names, sizes)
        measured = actual.cube(what, tasks, actual.names, sizes)
        places = np.argwhere(np.isfinite(measured))
        i, k, b = places.T
        guesses = estimated[i, k, b]
        for x in np.flatnonzero(np.isnan(guesses)):
            task, device = tasks[i[x]], actual.names[k[x]]
            raise InvalidProblem(f"there are no {what} of task {task!r} on {device!r} to estimate from; measure small batches")
        names, devices = np.array(tasks, np.str_), np.array(actual.names, np.str_)
        return Deviations.between(names[i].tolist(), devices[k].tolist(), np.array(sizes, np.int64)[b], guesses, measured[i, k, b])

    def _rising(self, what: Amount) -> tuple[Lines, BoolArray]:
        """Return the lines, with decreasing ones replaced by the mean, and which ones were replaced."""
        sizes = self.profile.batch_sizes
        values = self.profile.cube(what, self.tasks, self.devices, sizes)
        lines, flattened = rising(sizes, values)
        for i, k in np.argwhere((lines.samples > 0) & np.isnan(lines.slope)):
            size = np.array(sizes)[np.isfinite(values[i, k])][0]
            raise InvalidProblem(
                f"task {self.tasks[i]!r} on {self.devices[k]!r} has {what} for one batch size only ({size}); "
                "a line needs two: measure another, or give NaN for all"
            )
        return lines, flattened


def _places(names: Iterable[str], names_known: tuple[str, ...], what: str) -> IntArray:
    index = {name: i for i, name in enumerate(names_known)}
    try:
        return np.array([index[name] for name in names], np.int64)
    except KeyError as error:
        some = ", ".join(names_known[:8]) + (", ..." if len(names_known) > 8 else "")
        raise InvalidProblem(f"{what} {error.args[0]!r} was not measured; the profile has {some or 'none'}") from None
