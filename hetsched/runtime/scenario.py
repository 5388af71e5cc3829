"""Changes of device speeds over the iterations of a graph: slow-downs, other load, noise."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from hetsched.arguments import checked, whole
from hetsched.arrays import FloatArray
from hetsched.errors import InvalidProblem
from hetsched.problem.cluster import Cluster


@checked
@dataclass(frozen=True)
class SlowDown:
    """A device takes `factor` times as long in the iterations from `start` until before `stop`.

    Parameters
    ----------
    device : str
    factor : float
        Above 0; a factor below 1 is a speed-up.
    start, stop : int
        Iterations from 0; without `stop`, until the end.
    """

    device: str
    factor: float
    start: int = 0
    stop: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.factor < math.inf:
            raise InvalidProblem(
                f"the slow-down of {self.device!r} has factor {self.factor!r}; it must be finite and above 0 (2 = twice as long)"
            )
        if not 0 <= self.start <= (self.start if self.stop is None else self.stop):
            raise InvalidProblem(
                f"the slow-down of {self.device!r} lasts from iteration {self.start} to {self.stop}; "
                "it must begin at 0 or later and not after its end"
            )


@checked
@dataclass(frozen=True)
class Interference:
    """Other programs that arrive at a device, at most one at a time, use a share of it and leave.

    Parameters
    ----------
    rate : float
        Probability per iteration that a program arrives at a device without one, in [0, 1].
    share : float
        Share of the device that it uses, in [0, 1): tasks take ``1 / (1 - share)`` times as long.
    length : float
        Mean number of iterations that it stays, at least 1 (geometric distribution).
    """

    rate: float = 0.02
    share: float = 0.5
    length: float = 5.0

    def __post_init__(self) -> None:
        for what, value, rule, valid in (
            ("rate", self.rate, "a probability in [0, 1]", 0 <= self.rate <= 1),
            ("share", self.share, "a share of the device in [0, 1)", 0 <= self.share < 1),
            ("length", self.length, "a finite number of iterations of at least 1", 1 <= self.length < math.inf),
        ):
            if not valid:
                raise InvalidProblem(f"{what} of the interference is {value!r}; it must be {rule}")

    @checked(iterations=whole(0), n_devices=whole(0))
    def factors(self, generator: np.random.Generator, iterations: int, n_devices: int) -> FloatArray:
        """Return the factor on the durations of tasks, [I, K]."""
        comes = generator.random((iterations, n_devices)) < self.rate
        goes = generator.random((iterations, n_devices)) < 1 / self.length
        result = np.ones((iterations, n_devices))
        there = np.zeros(n_devices, bool)
        for t in range(iterations):
            there |= comes[t]
            result[t, there] = 1 / (1 - self.share)
            there &= ~goes[t]
        return result


@checked
@dataclass(frozen=True)
class Scenario:
    """The durations of tasks in each iteration, relative to the problem.

    A task takes the problem's seconds on its device, times the factors of slow-downs and interference
    there, times its own noise: lognormal with mean 1, drawn for each task and iteration and independent of
    the device, so that policies are compared under the same noise. Transfers take the seconds of the
    problem.

    Parameters
    ----------
    slow_downs : iterable of SlowDown
        Simultaneous slow-downs of a device multiply.
    noise : float
        Sigma, the standard deviation of the logarithm; 0.1 is a relative deviation of about 10 %.
    interference : Interference, optional
    seed : int
        The same seed gives the same noise and interference.

    Raises
    ------
    InvalidProblem
        A number is out of its range.
    """

    slow_downs: Iterable[SlowDown] = ()
    noise: float = 0.0
    interference: Interference | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "slow_downs", tuple(self.slow_downs))
        if not 0 <= self.noise < math.inf:
            raise InvalidProblem(f"noise is {self.noise!r}; it must be the sigma of a lognormal, 0 or more")

    @checked(iterations=whole(0))
    def factors(self, cluster: Cluster, iterations: int) -> FloatArray:
        """Return the factor of each device on the problem's durations, without noise, [I, K]."""
        result = np.ones((iterations, cluster.n_devices))
        if self.interference is not None:
            result = self.interference.factors(np.random.default_rng([self.seed, 0]), iterations, cluster.n_devices)
        for slow in self.slow_downs:
            if slow.device not in cluster.index:
                raise InvalidProblem(
                    f"a slow-down names {slow.device!r}, which is not a device of the cluster ({', '.join(cluster.names)})"
                )
            result[slow.start : slow.stop, cluster.index[slow.device]] *= slow.factor
        return result

    @checked(iteration=whole(0), n_tasks=whole(0))
    def noise_of(self, iteration: int, n_tasks: int) -> FloatArray:
        """Return the noise of each task in an iteration, [n]."""
        if self.noise == 0:
            return np.ones(n_tasks)
        normal = np.random.default_rng([self.seed, 1, iteration]).standard_normal(n_tasks)
        return np.exp(self.noise * normal - self.noise**2 / 2)
