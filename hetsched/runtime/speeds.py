"""Estimates of device speeds from measured durations."""

from __future__ import annotations

import numpy as np

from hetsched.arrays import FloatArray
from hetsched.errors import InvalidProblem
from hetsched.problem.problem import Problem
from hetsched.runtime.iterations import Observation


class Speeds:
    """Estimates a factor on the durations of each device, robust to noise.

    The factor of an iteration is the total time of a device's tasks divided by that in the problem. The estimate
    becomes the median factor of the last `window` iterations with tasks there if the two differ by more than
    `drift`. So a single outlier, or noise below the threshold, changes no estimate. A device without tasks keeps
    its estimate.

    Parameters
    ----------
    problem : Problem
    window : int
    drift : float
        Threshold, relative to the estimate.

    Attributes
    ----------
    factor : float64 array [K]
        1 = as in the problem, 2 = twice as slow.
    """

    def __init__(self, problem: Problem, *, window: int, drift: float) -> None:
        if window < 1:
            raise InvalidProblem(f"window is {window!r}; it must be 1 iteration or more")
        if not drift >= 0:
            raise InvalidProblem(f"drift is {drift!r}; it must be 0 or more (0.1 = 10 %)")
        self.expected: FloatArray = problem.usable_durations[:, :, 0]
        self.window, self.drift = window, drift
        self.factor = np.ones(problem.n_devices)
        self._ratios: list[list[float]] = [[] for _ in range(problem.n_devices)]

    @property
    def seconds(self) -> FloatArray:
        """Estimated seconds of each task on each device, [n, K]; inf where it cannot run."""
        return self.expected * self.factor

    def latest(self, device: int) -> float:
        """Return the factor of the last iteration with tasks on a device."""
        return self._ratios[device][-1]

    def observe(self, observation: Observation) -> bool:
        """Update the estimates from an iteration; return whether any has changed."""
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
