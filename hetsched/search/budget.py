"""The budget of a solve, and the number of available cores."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from hetsched.arguments import checked


@checked
@dataclass(frozen=True)
class Budget:
    """Limits of a solve: seconds of wall-clock time, schedule evaluations; None for no limit."""

    time_limit: float | None = None
    evaluations: int | None = None


def cores() -> int:
    """Return the number of cores that this process may use, by its affinity and the quota of its container."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(count, round(int(quota) / int(period))))
    except (OSError, ValueError):  # no control groups, or the quota is "max"
        return count
