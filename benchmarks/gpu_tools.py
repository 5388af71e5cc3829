"""Timing on a device of torch, and how much of a machine others used meanwhile."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

SPIN = 0.02
"""Seconds of one thread that computes, at the begin and end of a step."""
LEAST_WATCH = 1.0
"""Seconds from which the counters of the system, which advance by 10 ms, are used."""
Seconds = Sequence[float]


def cores() -> list[int]:
    """Return the cores of this process."""
    return sorted(os.sched_getaffinity(0))


def digest(*about: object) -> str:
    """Return a digest of what was measured."""
    return hashlib.sha256(repr(about).encode()).hexdigest()[:16]


def line(what: str, seconds: Seconds | None, *about: object, statistic: str = "median", **more: Any) -> dict[str, Any]:
    """Return a line of measurements; `about` are the facts that its digest is of."""
    made: dict[str, Any] = {"what": what, "digest": digest(what, *about), "statistic": "none", **more}
    if seconds is not None:
        q25, median, q75 = np.quantile(seconds, [0.25, 0.5, 0.75]).tolist()
        value = float(np.min(seconds)) if statistic == "least" else median
        made |= {"statistic": statistic, "seconds": value, "spread": [q25, q75], "runs": len(seconds)}
    return made


def synchronize(device: torch.device) -> None:
    """Wait for all work of a device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def wall(run: Callable[[], object], device: torch.device, runs: int, *, warmup: int = 3) -> tuple[list[float], list[float]]:
    """Return the seconds of calls until their work is done, and the CPU seconds of this thread until they return."""
    times, spent = [], []
    for number in range(-warmup, runs):
        synchronize(device)
        start, cpu = time.perf_counter(), time.thread_time()
        run()
        cpu = time.thread_time() - cpu
        synchronize(device)
        if number >= 0:
            times.append(time.perf_counter() - start)
            spent.append(cpu)
    return times, spent


def back_to_back(run: Callable[[], object], device: torch.device, runs: int, inner: int) -> list[float]:
    """Return the seconds of a call among `inner` calls in a row."""

    def many() -> None:
        for _ in range(inner):
            run()

    return [seconds / inner for seconds in wall(many, device, runs, warmup=1)[0]]


def in_turn(ways: dict[str, Callable[[], object]], device: torch.device, runs: int, warmup: int) -> dict[str, list[float]]:
    """Return the seconds of several functions called in turn, so that other load of the machine affects all."""
    times: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(-warmup, runs):
        for way, run in ways.items():
            synchronize(device)
            start = time.perf_counter()
            run()
            synchronize(device)
            if number >= 0:
                times[way].append(time.perf_counter() - start)
    return times


def deviation(made: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the largest difference as a part of the largest expected number."""
    expected = expected.cpu()
    return float((made.cpu() - expected).abs().max() / expected.abs().max())


def planted(module: Any, x: Any, expected: Any) -> float:
    """Return the deviation of the outputs by a change of one weight, which a comparison has to see."""
    weight = next(own for own in module.parameters() if own.dim() > 1)
    kept = weight.data.clone()
    weight.data.view(-1)[0] += 10 * weight.data.abs().max()
    try:
        return deviation(module(x), expected)
    finally:
        weight.data.copy_(kept)


def full_precision() -> None:
    """Let CUDA compute float32 without TF32 in this process."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False  # not by fp32_precision: torch.export then refuses to read this one


class Watch:
    """The part of the machine's time that others used from its creation on."""

    def __init__(self) -> None:
        self.spun = _spin()
        self.began, self.busy, self.own = time.perf_counter(), _busy(), _own()

    def found(self) -> dict[str, float]:
        """Return `stolen`, between 0 and 1: the larger of the part of all cores, and of the time of a thread that computes."""
        seconds, busy, own = time.perf_counter() - self.began, _busy(), _own()
        stolen = [self.spun, _spin()]
        if self.busy is not None and busy is not None and seconds >= LEAST_WATCH:
            stolen.append(((busy - self.busy) - (own - self.own)) / (seconds * (os.cpu_count() or 1)))
        return {"stolen": round(max(0.0, *stolen), 4), "took": round(seconds, 3)}


def _spin() -> float:
    start, cpu = time.perf_counter(), time.thread_time()
    while time.perf_counter() - start < SPIN:
        pass
    return max(0.0, 1.0 - (time.thread_time() - cpu) / (time.perf_counter() - start))


def _own() -> float:
    """Return the CPU seconds of this process and of those it has waited for."""
    return sum(os.times()[:4])


def _busy() -> float | None:
    """Return the seconds in which cores worked, for anyone, or None if the system does not tell."""
    try:
        with open("/proc/stat") as file:
            user, nice, system, _, _, irq, softirq, steal, *_ = map(int, file.readline().split()[1:])
    except (OSError, ValueError):
        return None
    total = user + nice + system + irq + softirq + steal
    return total / os.sysconf("SC_CLK_TCK") if total else None
