"""How much slower than expected each device runs, told from measured durations."""

from __future__ import annotations

import numpy as np

from hetsched.arrays import FloatArray
from hetsched.errors import InvalidProblem
from hetsched.problem.problem import Problem
from hetsched.runtime.iterations import Observation


class Speeds:
    """Estimates a factor per device, and holds on to it until it is clearly wrong.

    In each iteration the tasks of a device took so many times as long, all together, as the problem says. The
    median over the last `window` iterations with tasks there is what the device is said to run at; the estimate
    becomes that only when the two differ by more than `drift`. So one odd iteration changes nothing, nor does noise
    below the threshold. A device without tasks shows nothing, and keeps its estimate.

    Parameters
    ----------
    problem : Problem
    window : int
    drift : float
        Relative to the estimate.

    Attributes
    ----------
    factor : float64 array [K]
        1 = as the problem says, 2 = twice as slow.
    """

    def __init__(self, problem: Problem, *, window: int, drift: float) -> None:
        if window < 1:
            raise InvalidProblem(f"window is {window!r}; it must be 1 iteration or more")
        if not drift >= 0:
            raise InvalidProblem(f"drift is {drift!r}; it must be 0 or more (0.1 = 10 %)")
        self.expected: FloatArray = problem.arrays.durations[:, :, 0]
        self.window, self.drift = window, drift
        self.factor = np.ones(problem.n_devices)
        self._ratios: list[list[float]] = [[] for _ in range(problem.n_devices)]

    @property
    def seconds(self) -> FloatArray:
        """How long each task is estimated to take on each device, [n, K]; inf where it cannot run."""
        return self.expected * self.factor

    def observe(self, observation: Observation) -> bool:
        """Learn from an iteration; return whether the estimate has changed."""
        device = observation.device
        expected = np.bincount(device, self.expected[np.arange(len(device)), device], len(self.factor))
        measured = np.bincount(device, observation.task_seconds, len(self.factor))
        changed = False
        for k in np.flatnonzero((expected > 0) & (measured > 0)):
            latest = [*self._ratios[k], float(measured[k] / expected[k])][-self.window :]
            self._ratios[k] = latest
            now = float(np.median(latest))
            if len(latest) == self.window and abs(now / self.factor[k] - 1) > self.drift:
                self.factor[k] = now
                changed = True
        return changed
