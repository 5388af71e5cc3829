"""Measurements of a task's run: seconds, and bytes allocated."""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from hetsched.runtime.accelerator import timed as events_around
from hetsched.runtime.placed import Worker

Clock = Callable[[], tuple[float, float]]
"""Returns the seconds of a run by the worker's clock, and the CPU seconds of its thread or NaN, after its end."""


def timed(worker: Worker, run: Callable[[], Any]) -> Clock:
    """Call `run` on a worker's thread and return the clock that timed it."""
    if worker.queues is not None:
        elapsed = events_around(worker.queues.accelerator, run, worker.queues.compute)
        return lambda: (elapsed(), math.nan)
    before = time.thread_time() if worker.counts_cpu else math.nan
    start = worker.clock()
    run()
    seconds = worker.clock() - start
    cpu = time.thread_time() - before if worker.counts_cpu else math.nan
    return lambda: (seconds, cpu)


def allocated(worker: Worker, run: Callable[[], Any]) -> int:
    """Call `run` on a worker's thread; return the peak of the bytes that it allocated, in addition to those already in use."""
    if worker.queues is not None:
        return worker.queues.accelerator.allocated(run)
    with _Storages() as storages:
        run()
    most: int = storages.most
    return most


class _Storages(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of the storages that operators make, until they are released."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.held: dict[int, int] = {}
        self.most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        read = {leaf.untyped_storage()._cdata for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)}
        for leaf in tree_leaves(made):
            if not isinstance(leaf, torch.Tensor):
                continue
            storage = leaf.untyped_storage()
            key = storage._cdata
            if key not in read and key not in self.held:  # else a view of an existing storage
                self.held[key] = storage.nbytes()
                weakref.finalize(storage, self.held.pop, key, None)
        self.most = max(self.most, sum(self.held.values()))
        return made
