"""The budget of a solve, and the number of available cores."""

from __future__ import annotations

import os
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

from hetsched.arguments import checked


@checked
@dataclass(frozen=True)
class Budget:
    """Limits of a solve: seconds of wall-clock time, schedule evaluations; None for no limit."""

    time_limit: float | None = None
    evaluations: int | None = None


def cores(executor: Executor | None = None) -> int:
    """Return the number of cores that this process may use, by its affinity and the quota of its container.

    With an executor it is that of its workers: the threads of those of dask, or as it was made; else the cores of this process.
    """
    if executor is not None:
        client = getattr(executor, "_client", None)
        known = getattr(executor, "_max_workers", None) if client is None else sum(client.nthreads().values())
        return cores() if known is None else max(1, known)
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(count, round(int(quota) / int(period))))
    except (OSError, ValueError):  # no control groups, or the quota is "max"
        return count
