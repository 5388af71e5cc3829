"""Measurements of tasks on devices over batch sizes, as arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from hetsched.arguments import check_array, check_count, checked
from hetsched.arrays import FloatArray, Frozen, IntArray
from hetsched.costs.protocol import Profiler
from hetsched.errors import InvalidProblem
from hetsched.problem.graph import unique_names


class Samples(Frozen):
    """Measurements of tasks on devices, one batch of each size.

    Parameters
    ----------
    tasks, devices : iterable of str
        Names.
    batch_sizes : sequence of int
        In any order; a size that was measured twice appears twice.
    seconds : array [n, K, B]
        NaN where the task cannot run on the device, or was not measured.
    memory_bytes : array [n, K, B], optional
        Bytes likewise; default NaN.

    Raises
    ------
    InvalidProblem
        Shapes do not fit, or a number is negative or infinite.
    """

    tasks: tuple[str, ...]
    devices: tuple[str, ...]
    batch_sizes: IntArray
    seconds: FloatArray
    memory_bytes: FloatArray

    @checked
    def __init__(
        self,
        tasks: Iterable[str],
        devices: Iterable[str],
        batch_sizes: Iterable[int],
        seconds: npt.ArrayLike,
        memory_bytes: npt.ArrayLike | None = None,
    ) -> None:
        tasks, devices, sizes = tuple(tasks), tuple(devices), list(batch_sizes)
        unique_names(tasks, "task")
        unique_names(devices, "device")
        for size in sizes:
            check_count(size, "batch size", error=InvalidProblem)
        shape = (len(tasks), len(devices), len(sizes))
        times = _amounts(seconds, shape, "seconds", tasks, devices)
        memory = np.full(shape, np.nan) if memory_bytes is None else _amounts(memory_bytes, shape, "memory_bytes", tasks, devices)
        self._set(tasks=tasks, devices=devices, batch_sizes=np.array(sizes, np.int64), seconds=times, memory_bytes=memory)

    @classmethod
    @checked
    def measured(
        cls,
        profiler: Profiler,
        batch_sizes: Iterable[int],
        *,
        devices: Iterable[str] | None = None,
        on_progress: Callable[[str, int], object] | None = None,
    ) -> Samples:
        """Return the measurements of a profiler with all tasks on one device, for each device and batch size.

        Parameters
        ----------
        profiler : Profiler
        batch_sizes : iterable of int
        devices : iterable of str
            Default: all devices of the profiler.
        on_progress : callable, optional
            Called with a device and a batch size before their measurement.
        """
        names = [device.name for device in profiler.devices] if devices is None else list(devices)
        sizes = [check_count(size, "batch size") for size in batch_sizes]
        seconds = np.full((profiler.graph.n_tasks, len(names), len(sizes)), np.nan)
        memory = seconds.copy()
        for b, size in enumerate(sizes):
            for k, device in enumerate(names):
                if on_progress is not None:
                    on_progress(device, size)
                seconds[:, k, b], memory[:, k, b] = profiler.measure(size, device)
        return cls(profiler.graph.names, names, sizes, seconds, memory)

    def __repr__(self) -> str:
        return f"<Samples: {len(self.tasks)} tasks on {', '.join(self.devices)}, batches of {', '.join(map(str, self.batch_sizes))}>"


def _amounts(values: npt.ArrayLike, shape: tuple[int, ...], what: str, tasks: tuple[str, ...], devices: tuple[str, ...]) -> FloatArray:
    amounts = np.array(check_array(values, what, text="an array [task, device, batch size]", absent=True, error=InvalidProblem))
    if amounts.shape != shape:
        raise InvalidProblem(f"{what} has shape {list(amounts.shape)} but [task, device, batch size] = {list(shape)} is needed")
    for i, k, b in np.argwhere((amounts < 0) | np.isinf(amounts)):
        raise InvalidProblem(
            f"{what} of task {tasks[i]!r} on {devices[k]!r} is {amounts[i, k, b]}; it must be a number >= 0, or NaN where it cannot run"
        )
    return amounts
