"""Estimates of the speeds of devices and links from measured times, and the problem that results from them."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from hetsched.arrays import FloatArray
from hetsched.errors import InvalidProblem
from hetsched.problem.problem import Problem
from hetsched.runtime.iterations import Observation
from hetsched.runtime.scenario import changed

LEAST = 0.05
"""The share of an iteration by which the transfers of a link must take longer before it is held to be slow."""
FORGET = 20
"""Iterations without an observed transfer after which a slow link is taken to be as in the problem again, doubled each time."""


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
        found = False
        for k in np.flatnonzero((expected > 0) & (measured > 0)):
            latest = [*self._ratios[k], float(measured[k] / expected[k])][-self.window :]
            self._ratios[k] = latest
            now = float(np.median(latest))
            if len(latest) == self.window and abs(now / self.factor[k] - 1) > self.drift:
                self.factor[k] = now
                found = True
        return found


class LinkSpeeds:
    """Estimates a factor on the transfers from each device to each other one, as `Speeds` does for devices.

    An estimate rises only if the transfers there take longer by `LEAST` of an iteration too: a slower link that matters less
    is left alone, as is the time in which a waiting thread wakes up, which is part of a measured transfer. An estimate of a link
    without transfers is forgotten after a while, so that a link that has recovered is used again.

    Parameters
    ----------
    problem : Problem
    window : int
    drift : float

    Attributes
    ----------
    factor : float64 array [K, K]
    """

    def __init__(self, problem: Problem, *, window: int, drift: float) -> None:
        self._problem, self.window, self.drift = problem, window, drift
        self.factor: FloatArray = np.broadcast_to(1.0, (problem.n_devices, problem.n_devices))
        self._ratios: dict[int, list[float]] = defaultdict(list)
        self._slow = set[int]()
        self._seen: dict[int, int] = {}  # the last iteration with transfers of each pair h K + k
        self._patience: dict[int, int] = defaultdict(lambda: FORGET)

    def observe(self, observation: Observation) -> bool:
        """Update the estimates from an iteration; return whether any has changed."""
        if observation.transfers is None:
            return False
        problem, edge, seconds = self._problem, observation.transfers.edge, observation.transfers.seconds
        h, k = observation.device[problem.graph.source[edge]], observation.device[problem.graph.target[edge]]
        pairs, place = np.unique(h * problem.n_devices + k, return_inverse=True)
        expected = np.bincount(place, problem.transfer_times(edge, h, k), len(pairs))
        measured = np.bincount(place, seconds, len(pairs))
        found = False
        for p in np.flatnonzero((expected > 0) & (measured > 0)):
            pair = int(pairs[p])
            latest = [*self._ratios[pair], float(measured[p] / expected[p])][-self.window :]
            self._ratios[pair], self._seen[pair] = latest, observation.iteration
            now, before = float(np.median(latest)), float(self.factor.flat[pair])
            matters = now < before or (now - before) * expected[p] > LEAST * observation.seconds
            if len(latest) == self.window and matters and abs(now / before - 1) > self.drift:
                self._set(pair, now)
                found = True
        return self._forget(observation.iteration) or found

    def _forget(self, iteration: int) -> bool:
        """Forget the estimates of slow links that have been without transfers for long; return whether there were any."""
        old = [pair for pair in sorted(self._slow) if iteration - self._seen[pair] >= self._patience[pair]]
        for pair in old:
            self._patience[pair] *= 2
            self._ratios[pair] = []
            self._set(pair, 1.0)
        return bool(old)

    def _set(self, pair: int, factor: float) -> None:
        """Change an estimate."""
        self.factor = self.factor.copy()
        self.factor.flat[pair] = factor
        (self._slow.add if factor > 1 else self._slow.discard)(pair)


class Conditions:
    """What is known of devices, links and memory, by observation.

    Parameters
    ----------
    problem : Problem
    window, drift
        See `Speeds`.

    Attributes
    ----------
    speeds : Speeds
    links : LinkSpeeds
    problem : Problem
        The given one until something changes; then with the estimates, and the capacities last observed.
    """

    def __init__(self, problem: Problem, *, window: int, drift: float) -> None:
        self._given = self.problem = problem
        self.speeds = Speeds(problem, window=window, drift=drift)
        self.links = LinkSpeeds(problem, window=window, drift=drift)
        self._memory = problem.cluster.memory_bytes

    def observe(self, observation: Observation) -> bool:
        """Update the estimates from an iteration; return whether any has changed."""
        capacity = observation.memory_bytes
        found = [self.speeds.observe(observation), self.links.observe(observation)]
        if capacity is not None and not np.array_equal(capacity, self._memory):
            self._memory = capacity
            found.append(True)
        if any(found):
            self.problem = changed(self._given, self.speeds.factor, self.links.factor, self._memory)
        return any(found)
