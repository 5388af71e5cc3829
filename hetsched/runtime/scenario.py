"""Changes over the iterations of a graph: slow devices and links, memory that others take, other load, noise."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from hetsched.arguments import checked, whole
from hetsched.arrays import FloatArray
from hetsched.errors import InvalidProblem
from hetsched.problem.cluster import Cluster
from hetsched.problem.problem import Problem


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
        what = f"the slow-down of {self.device!r}"
        _check_factor(what, self.factor)
        _check_span(what, self.start, self.stop)


@checked
@dataclass(frozen=True)
class SlowLink:
    """Transfers from one device to another take `factor` times as long in the iterations from `start` until before `stop`.

    Parameters
    ----------
    source, target : str
        The devices. The other direction keeps its time, as do transfers between other devices that pass through these.
    factor : float
        Above 0, for latency and bytes, also of weights that move; a factor below 1 is a speed-up.
    start, stop : int
        Iterations from 0; without `stop`, until the end.
    """

    source: str
    target: str
    factor: float
    start: int = 0
    stop: int | None = None

    def __post_init__(self) -> None:
        what = f"the slow link from {self.source!r} to {self.target!r}"
        if self.source == self.target:
            raise InvalidProblem(f"{what} is within one device, where nothing is transferred; name two devices")
        _check_factor(what, self.factor)
        _check_span(what, self.start, self.stop)


@checked
@dataclass(frozen=True)
class LessMemory:
    """Something else takes memory of a device in the iterations from `start` until before `stop`.

    Parameters
    ----------
    device : str
        A device of limited memory.
    taken_bytes : float
        From 0 to the device's capacity.
    start, stop : int
        Iterations from 0; without `stop`, until the end.
    """

    device: str
    taken_bytes: float
    start: int = 0
    stop: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.taken_bytes < math.inf:
            raise InvalidProblem(f"taken_bytes of {self.device!r} is {self.taken_bytes!r}; it must be finite and at least 0")
        _check_span(f"the loss of memory of {self.device!r}", self.start, self.stop)


def _check_factor(what: str, factor: float) -> None:
    if not 0 < factor < math.inf:
        raise InvalidProblem(f"{what} has factor {factor!r}; it must be finite and above 0 (2 = twice as long)")


def _check_span(what: str, start: int, stop: int | None) -> None:
    if not 0 <= start <= (start if stop is None else stop):
        raise InvalidProblem(f"{what} lasts from iteration {start} to {stop}; it must begin at 0 or later and not after its end")


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
    """The durations of tasks and transfers and the memory of devices in each iteration, relative to the problem.

    A task takes the problem's seconds on its device, times the factors of slow-downs and interference
    there, times its own noise: lognormal with mean 1, drawn for each task and iteration and independent of
    the device, so that policies are compared under the same noise. Transfers take the seconds of the
    problem, times the factors of slow links.

    Parameters
    ----------
    slow_downs : iterable of SlowDown
        Simultaneous slow-downs of a device multiply.
    noise : float
        Sigma, the standard deviation of the logarithm; 0.1 is a relative deviation of about 10 %.
    interference : Interference, optional
    seed : int
        The same seed gives the same noise and interference.
    slow_links : iterable of SlowLink
        Of a link, they multiply.
    less_memory : iterable of LessMemory
        Of a device, the bytes add up, at most to its capacity.

    Raises
    ------
    InvalidProblem
        A number is out of its range.
    """

    slow_downs: Iterable[SlowDown] = ()
    noise: float = 0.0
    interference: Interference | None = None
    seed: int = 0
    slow_links: Iterable[SlowLink] = ()
    less_memory: Iterable[LessMemory] = ()

    def __post_init__(self) -> None:
        for what in ("slow_downs", "slow_links", "less_memory"):
            object.__setattr__(self, what, tuple(getattr(self, what)))
        if not 0 <= self.noise < math.inf:
            raise InvalidProblem(f"noise is {self.noise!r}; it must be the sigma of a lognormal, 0 or more")

    @checked(iterations=whole(0))
    def factors(self, cluster: Cluster, iterations: int) -> FloatArray:
        """Return the factor of each device on the problem's durations, without noise, [I, K]."""
        result = np.ones((iterations, cluster.n_devices))
        if self.interference is not None:
            result = self.interference.factors(np.random.default_rng([self.seed, 0]), iterations, cluster.n_devices)
        for slow in self.slow_downs:
            _check_devices("a slow-down", cluster, slow.device)
            result[slow.start : slow.stop, cluster.index[slow.device]] *= slow.factor
        return result

    @checked(iteration=whole(0))
    def link_factors(self, cluster: Cluster, iteration: int) -> FloatArray:
        """Return the factor on the seconds of transfers from device h to k in an iteration, [K, K]."""
        result: FloatArray = np.broadcast_to(1.0, (cluster.n_devices, cluster.n_devices))
        if self.slow_links:
            result = result.copy()
        for slow in self.slow_links:
            _check_devices("a slow link", cluster, slow.source, slow.target)
            if _within(slow, iteration):
                result[cluster.index[slow.source], cluster.index[slow.target]] *= slow.factor
        return result

    @checked(iteration=whole(0))
    def memory_bytes(self, cluster: Cluster, iteration: int) -> FloatArray:
        """Return the capacity of each device in an iteration in bytes, [K]."""
        result = cluster.memory_bytes.copy()
        for less in self.less_memory:
            _check_devices("a loss of memory", cluster, less.device)
            k = cluster.index[less.device]
            capacity = cluster.memory_bytes[k]
            if not less.taken_bytes <= capacity < math.inf:
                raise InvalidProblem(
                    f"{less.taken_bytes:.6g} bytes are taken from {less.device!r}, which has {capacity:.6g}; "
                    "take at most its capacity, which must be limited"
                )
            if _within(less, iteration):
                result[k] = max(result[k] - less.taken_bytes, 0.0)
        return result

    @checked(iteration=whole(0))
    def problem(self, problem: Problem, iteration: int) -> Problem:
        """Return a problem as it is in an iteration: with the slow-downs, slow links and memory of then, but no noise or interference."""
        cluster = problem.cluster
        factor = replace(self, interference=None).factors(cluster, iteration + 1)[iteration]
        return changed(problem, factor, self.link_factors(cluster, iteration), self.memory_bytes(cluster, iteration))

    @checked(iteration=whole(0), n_tasks=whole(0))
    def noise_of(self, iteration: int, n_tasks: int) -> FloatArray:
        """Return the noise of each task in an iteration, [n]."""
        if self.noise == 0:
            return np.ones(n_tasks)
        normal = np.random.default_rng([self.seed, 1, iteration]).standard_normal(n_tasks)
        return np.exp(self.noise * normal - self.noise**2 / 2)


def changed(problem: Problem, factor: FloatArray, links: FloatArray, memory_bytes: FloatArray) -> Problem:
    """Return a problem with factors on durations [K] and on transfers [K, K], and other capacities [K]."""
    cluster, changes = problem.cluster, dict[str, object]()
    if (factor != 1).any():
        changes["durations"] = problem.durations * factor[:, None]
    if (links != 1).any():
        if problem.transfers is not None:
            changes["transfers"] = problem.transfers * links
        # With the routes as links of their own, a slow pair is not by-passed.
        with np.errstate(invalid="ignore"):
            latency = np.where(cluster.route_bandwidth > 0, cluster.route_latency * links, 0.0)
        cluster = cluster.replace(bandwidth=cluster.route_bandwidth / links, latency=latency)
    if (memory_bytes != cluster.memory_bytes).any():
        devices = zip(cluster.devices, memory_bytes.tolist(), strict=True)
        cluster = cluster.replace(devices=[replace(device, memory_bytes=size) for device, size in devices])
    if cluster is not problem.cluster:
        changes["cluster"] = cluster
    return problem.replace(**changes) if changes else problem


def _within(change: SlowLink | LessMemory, iteration: int) -> bool:
    """Return whether a change is in force in an iteration."""
    return change.start <= iteration and (change.stop is None or iteration < change.stop)


def _check_devices(what: str, cluster: Cluster, *names: str) -> None:
    """Raise an error for a name that is not a device's."""
    for name in names:
        if name not in cluster.index:
            raise InvalidProblem(f"{what} names {name!r}, which is not a device of the cluster ({', '.join(cluster.names)})")
