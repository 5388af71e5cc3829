"""Iterations of a placed graph, with a policy that may move tasks between two of them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from hetsched.arguments import checked
from hetsched.arrays import Columns, FloatArray, Frozen, IntArray
from hetsched.costs.timeline import Timeline
from hetsched.errors import InvalidArgument, InvalidProblem, InvalidSchedule, UnsupportedFeature
from hetsched.problem.problem import Problem
from hetsched.runtime.scenario import Scenario
from hetsched.schedule import memory
from hetsched.schedule.decision import Decision
from hetsched.schedule.simulate import TimedDecision


class Observation(NamedTuple):
    """The measurements of one iteration, which are the input of a policy."""

    iteration: int
    decision: Decision
    """The decision in force."""
    task_seconds: FloatArray
    """Duration of each task in seconds, [n]."""
    transfer_seconds: FloatArray
    """Seconds that each device sent or received tensors, the longer of the two, [K]."""
    seconds: float
    """Seconds from the start of the iteration to its last finish."""
    transfers: Columns | None = None
    """Columns `edge` and `seconds`: the time of transfers that was observed, each from the device of its producer to that of its
    consumer; None if none was."""
    memory_bytes: FloatArray | None = None
    """Capacity of each device, [K]; None if it was not observed."""

    @property
    def device(self) -> IntArray:
        """The device that ran each task, [n]."""
        return devices_of(self.decision)

    @classmethod
    @checked
    def of_timeline(cls, iteration: int, decision: Decision, timeline: Timeline) -> Self:
        """Return the measurements of a run by a decision of one batch per task; messages for several tasks count once.

        The transfers are those whose end was seen; the capacity of devices is not observed.

        Raises
        ------
        InvalidSchedule
            The timeline is of another placement, or a task has several batches.
        """
        schedule = timeline.schedule
        batches, transfers, size = schedule.batches, schedule.transfers, len(schedule.devices)
        placed = [np.lexsort((own.device, own.task)) for own in (batches, decision)]  # an executor may reorder tasks, as of training steps
        same = len(batches) == len(decision.task) and all(
            np.array_equal(batches[name][placed[0]], getattr(decision, name)[placed[1]]) for name in ("task", "device")
        )
        if not same or len(np.unique(decision.task)) < len(decision.task):
            raise InvalidSchedule(
                "the timeline is of another placement, or a task has several batches; give that of the run, with one each"
            )
        task_seconds = np.empty(len(batches))
        task_seconds[batches.task] = batches.finish - batches.start
        _, first = np.unique(timeline.shipment, return_index=True)
        moving = (transfers.finish - transfers.start)[first]
        sent = np.bincount(batches.device[transfers.source[first]], moving, size)
        received = np.bincount(batches.device[transfers.target[first]], moving, size)
        seen = Columns(edge=transfers.edge[timeline.seen], seconds=(transfers.finish - transfers.start)[timeline.seen])
        return cls(iteration, decision, task_seconds, np.maximum(sent, received), timeline.makespan, seen)


class Runner(Protocol):
    """An object that runs a graph by decisions: an `Executor`, or a class that wraps one."""

    @property
    def problem(self) -> Problem:
        """The problem of the decisions."""
        ...

    def replace(self, decision: Decision) -> None:
        """Run by another decision from now on, with the weights where it needs them."""
        ...

    def timed(self, *args: Any) -> tuple[Any, Timeline]:
        """Run once; return the result, and the times of the run."""
        ...


class Policy(Protocol):
    """A rule that moves tasks between iterations, of a simulation or an executor."""

    def begin(self, problem: Problem, decision: Decision) -> None:
        """Reset the state for a problem, with the expected durations, and its first decision."""
        ...

    def observe(self, observation: Observation) -> Decision | None:
        """Return the decision of the next iteration, or None to keep the current one."""
        ...


class Static:
    """The policy that never moves a task."""

    @checked
    def begin(self, problem: Problem, decision: Decision) -> None:
        """Do nothing."""

    @checked
    def observe(self, observation: Observation) -> Decision | None:
        """Return None."""
        return None


@checked
@dataclass(frozen=True, eq=False, repr=False)
class Run(Frozen):
    """The record of I iterations on K devices.

    Attributes
    ----------
    devices : tuple of str
    seconds : float64 array [I]
        Seconds of each iteration: the pause for migration before it and the run itself.
    makespan, pause : float64 array [I]
        The two parts. With an executor, the pause is that of its `replace`, which plans too.
    busy : float64 array [I, K]
        Seconds that each device ran tasks.
    traffic : float64 array [I, K]
        Seconds that each device sent or received tensors, the longer of the two.
    moved : int64 array [I]
        Tasks that changed their device before the iteration.
    moved_bytes : float64 array [I]
        Bytes of their weights that were transferred; threads of an executor share them.
    excess : float64 array [I, K]
        Bytes by which a decision exceeded what a scenario left of each device's memory.
    decisions : mapping of int to Decision
        The decisions by their first iteration; the first decision has 0.
    thinking : float64 array [I]
        Wall-clock seconds of the policy after each iteration; not included in other columns, and ignored by equality.
    """

    devices: tuple[str, ...]
    makespan: FloatArray
    pause: FloatArray
    busy: FloatArray
    traffic: FloatArray
    moved: IntArray
    moved_bytes: FloatArray
    excess: FloatArray
    decisions: Mapping[int, Decision]
    thinking: FloatArray = field(compare=False)

    def __repr__(self) -> str:
        return f"<Run of {len(self.seconds)} iterations in {self.seconds.sum():.6g} s, {self.migrations} migrations>"

    @property
    def seconds(self) -> FloatArray:
        """Seconds of each iteration, [I]."""
        return self.pause + self.makespan

    @property
    def migrations(self) -> int:
        """Number of times that a task changed its device."""
        return int(self.moved.sum())

    @property
    def utilisation(self) -> FloatArray:
        """Share of each iteration, including its pause, in which each device ran tasks, [I, K]."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.nan_to_num(self.busy / self.seconds[:, None])


@checked
def iterate(
    problem: Problem | Runner,
    decision: Decision,
    iterations: int = 100,
    *,
    policy: Policy | None = None,
    scenario: Scenario | None = None,
    items: Iterable[Any] | None = None,
) -> Run:
    """Simulate, or run by an executor, a placed graph over many iterations, one after another.

    Each iteration is one pass through the graph. Between two iterations the policy may replace the decision.

    A simulated iteration is timed as by `simulate`, with durations and transfers changed by the scenario. The weights of tasks
    that change their device are transferred one after another on each link and in parallel on different
    links; the next iteration starts after the last of these transfers. A decision that no longer fits, because the scenario takes
    memory, runs on in the same time, and `Run.excess` has the bytes; each new decision must fit the memory of the iteration
    before it.

    An executor runs the module with one of the items in each iteration, and its results are dropped. It runs by the last
    decision afterwards. Meanwhile nothing else may replace its decision.

    Parameters
    ----------
    problem : Problem or Executor
        A problem of one input with static memory and any communication model; or an executor for one, or another object
        with `problem`, `replace` and `timed`.
    decision : Decision
        The decision of the first iteration.
    iterations : int
        With an executor the most iterations: they end with the items.
    policy : Policy, optional
        Default `Static`. It receives observations, but not the scenario.
    scenario : Scenario, optional
        Of a simulation. Default: durations, transfers and memory of the problem.
    items : iterable
        For an executor, of each iteration the positional arguments as a tuple, or the only one, as for `Executor.stream`.

    Raises
    ------
    UnsupportedFeature
        The problem has several inputs or ``memory="peak"``.
    InvalidSchedule
        The first decision, or one of the policy, breaks a rule of the problem, including memory, or moves
        weights without a path.
    InvalidProblem
        The number of iterations is below 1, or the scenario names an unknown device or takes memory that does not exist.
    InvalidArgument
        An executor without items or with a scenario, or a problem with items.
    """
    policy = policy or Static()
    engine: _Simulation | _Execution
    if isinstance(problem, Problem):
        if items is not None:
            raise InvalidArgument("items are arguments for an executor, and a problem is simulated; leave them out")
        _check(problem, iterations)
        engine, items = _Simulation(problem, scenario or Scenario(), iterations), itertools.repeat(())
    else:
        if items is None or scenario is not None:
            raise InvalidArgument("an executor needs items, its arguments in each iteration, and its speeds have no scenario")
        _check(problem.problem, iterations)
        engine, problem = _Execution(problem), problem.problem
    engine.use(None, decision, 0)
    policy.begin(problem, decision)
    size = (iterations, problem.n_devices)
    makespan, pause, moved_bytes, thinking = (np.zeros(iterations) for _ in range(4))
    busy, traffic, excess, moved = np.zeros(size), np.zeros(size), np.zeros(size), np.zeros(iterations, np.int64)
    decisions = {0: decision}
    proposal, done = None, 0
    for t, item in zip(range(iterations), items, strict=False):
        if proposal is not None and proposal != decision:
            moved[t] = np.count_nonzero(devices_of(decision) != devices_of(proposal))
            pause[t], moved_bytes[t] = engine.use(decision, proposal, t)
            decisions[t] = decision = proposal
        observation = engine.run(t, decision, item)
        makespan[t], traffic[t] = observation.seconds, observation.transfer_seconds
        busy[t] = np.bincount(observation.device, observation.task_seconds, problem.n_devices)
        capacity = observation.memory_bytes
        if capacity is not None and (capacity < problem.cluster.memory_bytes).any():
            excess[t] = memory.over_capacity(problem, memory.static(problem, decision), capacity)
        before = time.perf_counter()
        proposal = policy.observe(observation)
        thinking[t] = time.perf_counter() - before
        done = t + 1
    return Run(
        devices=problem.cluster.names,
        makespan=makespan[:done],
        pause=pause[:done],
        busy=busy[:done],
        traffic=traffic[:done],
        moved=moved[:done],
        moved_bytes=moved_bytes[:done],
        excess=excess[:done],
        decisions=decisions,
        thinking=thinking[:done],
    )


class _Simulation:
    """Iterations that are simulated."""

    def __init__(self, problem: Problem, scenario: Scenario, iterations: int) -> None:
        self._problem, self._scenario = problem, scenario
        self._factors = scenario.factors(problem.cluster, iterations)
        scenario.link_factors(problem.cluster, 0)  # raises an error for an unknown device
        self._memory = scenario.memory_bytes(problem.cluster, 0)

    def use(self, before: Decision | None, decision: Decision, iteration: int) -> tuple[float, float]:
        """Take another decision for an iteration; return the seconds and bytes of the migration."""
        problem = self._problem
        if before is not None:
            _check_paths(problem, before, decision)
        self._timing = _timing(problem, decision, problem.cluster.memory_bytes if before is None else self._memory)
        if before is None:
            return 0.0, 0.0
        return migration(problem, before, decision, self._scenario.link_factors(problem.cluster, iteration))

    def run(self, iteration: int, decision: Decision, item: object) -> Observation:
        """Return the observation of an iteration."""
        cluster = self._problem.cluster
        noise = self._scenario.noise_of(iteration, self._problem.n_tasks)
        self._memory = self._scenario.memory_bytes(cluster, iteration)
        observation = _pass(self._timing, self._factors[iteration], self._scenario.link_factors(cluster, iteration), noise, iteration)
        return observation._replace(memory_bytes=self._memory)


class _Execution:
    """Iterations that an executor runs."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def use(self, before: Decision | None, decision: Decision, iteration: int) -> tuple[float, float]:
        """Take another decision; return the seconds that takes, and the bytes of weights transferred: none between threads."""
        _timing(self._runner.problem, decision, self._runner.problem.cluster.memory_bytes)
        start = time.perf_counter()
        self._runner.replace(decision)
        return time.perf_counter() - start, 0.0

    def run(self, iteration: int, decision: Decision, item: Any) -> Observation:
        """Return the observation of an iteration."""
        _, timeline = self._runner.timed(*(item if isinstance(item, tuple) else (item,)))
        return Observation.of_timeline(iteration, decision, timeline)


def devices_of(decision: Decision) -> IntArray:
    """Return the device of each task under a decision of one batch per task, [n]."""
    device = np.empty(decision.n_batches, np.int64)
    device[decision.task] = decision.device
    return device


def expected_makespan(problem: Problem, decision: Decision, seconds: FloatArray) -> float:
    """Return the makespan of an iteration in which tasks last `seconds` [n, K]."""
    timing = TimedDecision(problem, decision)
    duration = seconds[decision.task, decision.device]
    return float((timing.starts(duration)[0] + duration).max(initial=0.0))


def migration(problem: Problem, before: Decision, after: Decision, factor: FloatArray | None = None) -> tuple[float, float]:
    """Return the seconds and bytes of moving the weights between two decisions; inf seconds without a path.

    `factor` [K, K] multiplies the seconds of transfers.
    """
    h, k, weight = devices_of(before), devices_of(after), problem.graph.weight_bytes
    moving = np.flatnonzero((h != k) & (weight > 0))
    h, k, weight = h[moving], k[moving], weight[moving]
    with np.errstate(divide="ignore"):
        seconds = problem.cluster.route_latency[h, k] + weight / problem.cluster.route_bandwidth[h, k]
    if factor is not None:
        seconds = seconds * factor[h, k]
    return float(np.bincount(h * problem.n_devices + k, seconds).max(initial=0.0)), float(weight.sum())


def fits(problem: Problem, decision: Decision) -> bool:
    """Return whether a decision fits the memory."""
    return not memory.over_capacity(problem, memory.static(problem, decision)).any()


def _check_paths(problem: Problem, before: Decision, after: Decision) -> None:
    """Raise an error for a migration without a path."""
    h, k = devices_of(before), devices_of(after)
    lost = np.flatnonzero((problem.cluster.route_bandwidth[h, k] == 0) & (problem.graph.weight_bytes > 0))
    if len(lost):
        i, names = lost[0], problem.cluster.names
        raise InvalidSchedule(
            f"task {problem.graph.names[i]!r} cannot move from {names[h[i]]!r} to {names[k[i]]!r}: there is no path for its "
            "weights; link the devices, or pin the task"
        )


def _check(problem: Problem, iterations: int) -> None:
    if problem.inputs != 1:
        raise UnsupportedFeature(
            f"the problem has {problem.inputs} inputs; iterations are of one; make the problem with inputs=1 and the durations of one pass"
        )
    if problem.memory != "static":
        raise UnsupportedFeature(
            f"the problem has memory={problem.memory!r}, which depends on the times of each iteration; use problem.replace(memory='static')"
        )
    if iterations < 1:
        raise InvalidProblem(f"iterations is {iterations!r}; it must be 1 or more")


def _timing(problem: Problem, decision: Decision, capacity: FloatArray) -> TimedDecision:
    """Return the decision prepared for timing; raise an error if it exceeds the capacity of a device, [K]."""
    timing = TimedDecision(problem, decision)
    needed = memory.static(problem, decision)
    over = memory.over_capacity(problem, needed, capacity)
    if over.any():
        k = int(over.argmax())
        raise InvalidSchedule(
            f"the decision needs {needed[k]:.6g} bytes on {problem.cluster.names[k]!r}, which has "
            f"{capacity[k]:.6g}; place fewer tasks there"
        )
    return timing


def _pass(timing: TimedDecision, factor: FloatArray, links: FloatArray, noise: FloatArray, iteration: int) -> Observation:
    """Return the observation of one iteration; `factor` [K] and `noise` [n] multiply durations, `links` [K, K] transfers."""
    decision, arcs, size = timing.decision, timing.arcs, len(factor)
    duration = timing.duration * factor[decision.device] * noise[decision.task]
    seconds = arcs.seconds * links[decision.device[arcs.source], decision.device[arcs.target]]
    start, _ = timing.starts(duration, seconds)
    task_seconds = np.empty(len(duration))
    task_seconds[decision.task] = duration
    moving = seconds * arcs.moving
    sent = np.bincount(decision.device[arcs.source], moving, size)
    received = np.bincount(decision.device[arcs.target], moving, size)
    observed = Columns(edge=arcs.edge[arcs.moving], seconds=seconds[arcs.moving])
    last = float((start + duration).max(initial=0.0))
    return Observation(iteration, decision, task_seconds, np.maximum(sent, received), last, observed)
