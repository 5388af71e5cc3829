"""Run-time scheduling assistants: busy devices offer nodes, and idle devices take them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hetsched.arguments import checked
from hetsched.arrays import BoolArray, FloatArray, IntArray, row_starts
from hetsched.errors import InvalidProblem
from hetsched.problem.problem import Problem
from hetsched.runtime.iterations import Observation, devices_of, expected_makespan, fits, migration
from hetsched.runtime.speeds import Conditions
from hetsched.runtime.tags import Tag
from hetsched.runtime.tags import tags as tags_of
from hetsched.schedule import memory
from hetsched.schedule.decision import Decision
from hetsched.schedule.simulate import simulate


class _Probe(NamedTuple):
    """A unit that has moved to a device without tasks, so that its speed is observed."""

    device: int
    before: Decision
    """The decision without the move."""
    decision: Decision
    factor: float
    """The estimate of the device before the probe."""


class Assistants:
    """One assistant for each device, which moves nodes by the utilisation of compute, memory and network.

    After each iteration, for each resource: a device whose utilisation exceeds `theta` offers its nodes of that tag
    in its out-box, and a device whose utilisation is below `gamma` may take one of them, the one with the shortest
    estimate of the next iteration. If the first decision has a shorter estimate again, because a device has
    recovered, all nodes return to it. A device that was slow and has lost all its nodes gets one of them every `cooldown`
    iterations, as a probe of its speed.

    Parameters
    ----------
    theta, gamma : float
        Shares, 0 <= gamma <= theta <= 1.
    gain : float
        The share of the estimated iteration that a move must save.
    cooldown : int
        Iterations during which a node stays after a move, doubled at each further move. Within them a move must
        also save more than its migration takes. A device that has been empty for as many gets a probe.
    outbox : int
        The most nodes that a device offers at a time; others follow in later iterations. It limits the time of the
        decision in large graphs.
    window, drift
        The estimate of a device changes if the median over `window` iterations differs from it by more than `drift`
        (relative).
    tags : array of `Tag` [n], optional
        Default: `hetsched.runtime.tags` of the first decision.

    Notes
    -----
    *Utilisation.* A device is active on compute and on memory for the seconds that its nodes of that tag run, on the network
    for the seconds that it sends or receives, the longer of the two. Its utilisation is that time divided by the largest of
    all devices for the resource. A share of the iteration would be less useful: devices wait for tensors of one another, and
    hardly any is busy for 95 % of an iteration, even if the work is distributed unevenly.

    *Estimates* are the problem's durations times a factor for each device, observed from its tasks, timed as a schedule whose
    tasks on each device are in the order of the first schedule's starts; likewise transfers, with a factor for each link. If others
    take memory of a device, it takes no nodes that no longer fit, and keeps those that it has.

    *Single moves.* That a move must shorten the estimated iteration is our rule, not the paper's: where several devices are
    equally slow and no single move shortens it, nothing moves, even if several moves together would help.

    *No thrashing.* Nodes move, or return, only if that shortens the estimated iteration by `gain`, and estimates change
    only if speeds drift: with constant speeds, after they are estimated, every change shortens the estimate, so that the
    changes end. In every case the doubling of cool-downs limits the moves of a node to log2(I / cooldown + 1) + 1 in I
    iterations, and its returns to the same number. Probes come on top of that.

    *Probes.* The node is the one that lengthens the estimated iteration least, migrations there and back included; of several the
    one that runs longest. It returns after one iteration if the device is as slow as before. Otherwise it stays until the
    estimate has changed; until then nothing else moves. A device is left alone for so long that its probes, by the estimate,
    take no more than 1 / `cooldown` of the time.

    A node is a task, or the tasks of a co-location label. Pins, memory and missing links are respected.

    References
    ----------
    S. Tavarageri, S. Sridharan, B. Kaul, "Automatic model parallelism for deep neural networks with compiler and
    hardware support", 2019, section 3. The paper, which has gamma 0.5, leaves open which nodes a device offers and takes; gain,
    cool-down, the return to the first decision, probes and the estimates are additions. `SearchingAssistants` are ours altogether.
    """

    @checked
    def __init__(
        self,
        theta: float = 0.95,
        gamma: float = 0.9,
        *,
        gain: float = 1e-5,
        cooldown: int = 10,
        outbox: int = 256,
        window: int = 3,
        drift: float = 0.1,
        tags: npt.ArrayLike | None = None,
    ) -> None:
        if not 0 <= gamma <= theta <= 1:
            raise InvalidProblem(f"theta is {theta!r} and gamma {gamma!r}; they must be shares with 0 <= gamma <= theta <= 1")
        for what, value, limit in (("gain", gain, 0.0), ("cooldown", cooldown, 1), ("outbox", outbox, 1)):
            if not value >= limit or (what == "gain" and value == 0):
                raise InvalidProblem(f"{what} is {value!r}; it must be {'above' if what == 'gain' else 'at least'} {limit:g}")
        self.theta, self.gamma, self.gain, self.cooldown, self.outbox = theta, gamma, gain, cooldown, outbox
        self.window, self.drift, self.tags, self._period = window, drift, tags, cooldown

    @checked
    def begin(self, problem: Problem, decision: Decision) -> None:
        """Reset the state: tag the nodes, and estimate the problem's durations."""
        self._problem = problem
        self._conditions = Conditions(problem, window=self.window, drift=self.drift)
        self._home = decision
        self._tags = _checked_tags(problem, tags_of(problem, decision) if self.tags is None else self.tags)
        schedule = simulate(problem, decision)
        self._sequence = np.lexsort((problem.graph.rank, schedule.batches.start[schedule.batch_of[:, 0]]))
        self._members = np.argsort(problem.unit, kind="stable")
        self._member_ptr = row_starts(np.bincount(problem.unit, minlength=problem.n_units))
        self._moves = np.zeros(problem.n_units, np.int64)
        self._free_from = np.zeros(problem.n_units, np.int64)
        self._busy = np.zeros(problem.n_devices)  # the last iteration in which a device had tasks
        self._due = np.zeros(problem.n_devices)  # the iteration after which it may get a probe
        self._probe: _Probe | None = None
        self._timed: Decision | None = None
        self._known = np.empty((problem.n_units, problem.n_devices))  # what `_times` has computed for that decision; else NaN

    @checked
    def observe(self, observation: Observation) -> Decision | None:
        """Return the decision after the moves of the assistants, or None without a move."""
        if self._conditions.observe(observation):
            self._timed = None
        speeds = self._conditions.speeds
        self._busy[observation.device] = observation.iteration
        self._due[observation.device] = observation.iteration + self._period
        if self._probe is not None and self._probe.decision == observation.decision:
            probe = self._probe
            if speeds.latest(probe.device) / probe.factor - 1 >= -self.drift:
                self._probe = None
                if fits(self._conditions.problem, probe.before):
                    return probe.before
            elif speeds.factor[probe.device] == probe.factor:
                return None
        self._probe = None
        seconds = speeds.seconds
        before = expected_makespan(self._conditions.problem, observation.decision, seconds)
        moved = self._rebalanced(observation, before, seconds)
        return moved if moved is not None or before == 0 else self._probed(observation, before, seconds)

    def _rebalanced(self, observation: Observation, before: float, seconds: FloatArray) -> Decision | None:
        """Return the decision after moves that shorten the estimate `before` of an iteration, or None without one."""
        current = observation.decision
        if current is not self._home and self._worthwhile(current, self._home, before, seconds) is not None:
            return self._home
        use = self.utilisation(observation)
        for resource, taker in self._takers(use):
            units = self._offered(current, use[:, resource] > self.theta, resource, observation.iteration)
            units = units[self._fits(current, units, taker)]
            if not len(units):
                continue
            times = self._times(current, seconds, units, taker)
            if times.min() > before * (1 - self.gain):  # contention only makes it longer
                continue
            unit = int(units[times.argmin()])
            proposal = self._moved(current, unit, taker)
            after = self._worthwhile(current, proposal, before, seconds)
            if after is not None:
                current, before = proposal, after
                self._free_from[unit] = observation.iteration + 1 + self.cooldown * 2 ** self._moves[unit]
                self._moves[unit] += 1
        return current if current is not observation.decision else None

    def _probed(self, observation: Observation, before: float, seconds: FloatArray) -> Decision | None:
        """Return a decision with a unit on a slow device that has been empty for long enough, or None."""
        current, problem, speeds = observation.decision, self._conditions.problem, self._conditions.speeds
        if not fits(problem, current):
            return None
        for k in np.flatnonzero((speeds.factor > 1) & (self._due <= observation.iteration)).tolist():
            units = np.arange(problem.n_units)
            units = units[self._fits(current, units, k)]
            lasting = np.bincount(problem.unit, speeds.expected[:, k], problem.n_units)[units]
            cost = np.maximum(self._times(current, seconds, units, k) - before, 0.0) + self._round_trips(current, k)[units]
            able = np.flatnonzero((lasting > 0) & np.isfinite(cost))
            if not len(able):
                continue
            best = able[np.lexsort((-lasting[able], cost[able]))[0]]
            self._due[k] = self._busy[k] + self._period * max(1.0, cost[best] / before)
            if self._due[k] <= observation.iteration:
                self._probe = _Probe(k, current, self._moved(current, int(units[best]), k), float(speeds.factor[k]))
                return self._probe.decision
        return None

    @checked
    def utilisation(self, observation: Observation) -> FloatArray:
        """Return the activity of each device on each resource, relative to the most active device, [K, 3]."""
        size = self._problem.n_devices
        active = np.zeros((size, len(Tag)))
        np.add.at(active, (observation.device, self._tags), observation.task_seconds)
        active[:, Tag.NETWORK] = observation.transfer_seconds
        most = active.max(axis=0)
        return active / np.where(most > 0, most, 1.0)

    def _worthwhile(self, current: Decision, proposal: Decision, before: float, seconds: FloatArray) -> float | None:
        """Return the seconds of an iteration under `proposal`, or None if it saves too little of `before`, those of `current`."""
        problem = self._conditions.problem
        if not fits(problem, proposal):
            return None
        after = expected_makespan(problem, proposal, seconds)
        pause = migration(problem, current, proposal)[0]
        gains = after < before and after <= before * (1 - self.gain)
        return after if gains and np.isfinite(pause) and (before - after) * self.cooldown >= pause else None

    def _takers(self, use: FloatArray) -> Iterator[tuple[int, int]]:
        """Yield (resource, device) for each device that may take nodes of a resource, by increasing utilisation."""
        for resource in range(use.shape[1]):
            for k in np.argsort(use[:, resource], kind="stable"):
                if use[k, resource] < self.gamma:
                    yield resource, int(k)

    def _offered(self, decision: Decision, over: BoolArray, resource: int, iteration: int) -> IntArray:
        """Return the units in the out-boxes of the devices `over` the threshold [K] of a resource."""
        device = devices_of(decision)
        leader = self._members[self._member_ptr[:-1]]
        offered = over[device[leader]] & (self._tags[leader] == resource) & (self._free_from <= iteration + 1)
        units = np.flatnonzero(offered)
        offers = [units[device[leader[units]] == k] for k in np.flatnonzero(over)]
        boxes = [np.roll(own, -iteration * self.outbox)[: self.outbox] for own in offers]
        return np.concatenate([np.empty(0, np.int64), *boxes])

    def _fits(self, decision: Decision, units: IntArray, taker: int) -> BoolArray:
        """Return which units can run on a device, fit its memory and can move their weights there, [c]."""
        problem, device = self._conditions.problem, devices_of(decision)
        room = problem.cluster.memory_bytes[taker] * (1 + 1e-9) - memory.static(problem, decision)[taker]
        need = np.bincount(problem.unit, problem.static_bytes.sum(axis=1), problem.n_units)
        stuck = ~np.isfinite(self._conditions.speeds.expected[:, taker])
        stuck |= (problem.cluster.route_bandwidth[device, taker] == 0) & (problem.graph.weight_bytes > 0)
        runs = np.bincount(problem.unit, stuck, problem.n_units) == 0
        return np.asarray(runs[units] & (need[units] <= room))

    def _times(self, decision: Decision, seconds: FloatArray, units: IntArray, taker: int) -> FloatArray:
        """Return the seconds of an iteration, without contention, after the move of each unit to `taker`; inf without paths, [c]."""
        from hetsched.runtime.assistant_kernels import moved_makespans

        if decision is not self._timed:
            self._timed = decision
            self._known[:] = np.nan
        known: FloatArray = self._known[:, taker]
        new = units[np.isnan(known[units])]
        if len(new):
            device, targets = devices_of(decision), np.full(len(new), taker)
            known[new] = moved_makespans(
                self._conditions.problem.arrays, self._sequence, seconds, device, self._member_ptr, self._members, new, targets
            )
        return known[units]

    def _round_trips(self, decision: Decision, taker: int) -> FloatArray:
        """Return the seconds to move the weights of each unit to `taker` and back; inf without paths, [n_units]."""
        problem, device = self._conditions.problem, devices_of(decision)
        weight, latency, bandwidth = problem.graph.weight_bytes, problem.cluster.route_latency, problem.cluster.route_bandwidth
        with np.errstate(divide="ignore", invalid="ignore"):
            there = latency[device, taker] + weight / bandwidth[device, taker]
            back = latency[taker, device] + weight / bandwidth[taker, device]
        return np.bincount(problem.unit, np.where(weight > 0, there + back, 0.0), problem.n_units).astype(np.float64)

    def _moved(self, decision: Decision, unit: int, taker: int) -> Decision:
        """Return the decision with a unit on another device."""
        device = devices_of(decision)
        device[self._problem.unit == unit] = taker
        return Decision.whole(self._problem, device, self._sequence)


def _checked_tags(problem: Problem, given: npt.ArrayLike) -> IntArray:
    """Return tags as numbers, [n]."""
    numbers = np.asarray(given)
    if numbers.shape != (problem.n_tasks,) or not np.isin(numbers, list(Tag)).all():
        raise InvalidProblem(
            f"tags of shape {numbers.shape} for {problem.n_tasks} tasks; give each task one of {', '.join(map(str, Tag))} "
            f"({', '.join(tag.name for tag in Tag)})"
        )
    return numbers.astype(np.int64)
