"""What a solve may spend, and the cores it may use."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from hetsched.arguments import checked


@checked
@dataclass(frozen=True)
class Budget:
    """What a solve may spend: seconds of wall time, schedule evaluations; None for no limit."""

    time_limit: float | None = None
    evaluations: int | None = None


def cores() -> int:
    """Return how many cores this process may use: those it may run on, or fewer where a container has less time."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(count, round(int(quota) / int(period))))
    except (OSError, ValueError):  # there are no such groups, or the quota is "max"
        return count
