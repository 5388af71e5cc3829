"""A learned placement: a policy over devices of groups of tasks, trained by policy gradient on the problem itself."""

from __future__ import annotations

import importlib.util
import math
import sys
from typing import TYPE_CHECKING

import numpy as np

from hetsched.arguments import check_count
from hetsched.arrays import FloatArray, IntArray
from hetsched.errors import MissingDependency, UnsupportedFeature
from hetsched.heuristics.list_scheduling.static import ranks
from hetsched.heuristics.pacing import bursts, progress
from hetsched.heuristics.placement.offers import listed, offer_within
from hetsched.heuristics.placement.policy_groups import grouped
from hetsched.heuristics.repair import repair
from hetsched.problem.problem import Problem
from hetsched.schedule.decision import Decision
from hetsched.search import Monitor, Supports, method

if TYPE_CHECKING:
    from hetsched.heuristics.placement.policy_network import PolicyNetwork

LOADING = 5.0
"""Seconds that have to be left to load torch."""
ALIKE, PATIENCE = 1e-3, 50
"""A policy is replaced after this many batches in a row whose values deviate by less than this share of their mean."""
STEP = 0.1
"""Increase of the claimed share of memory after an offer that did not fit the ``peak`` memory."""


@method(
    "policy-gradient",
    summary="a graph network learns the devices of groups of tasks from makespans of placements that it draws; needs torch",
    source="REINFORCE (Williams 1992) for placement: Mirhoseini et al. 2017, Placeto (Addanki et al. 2019); the network is ours",
    needs="torch",
    supports=Supports(inputs="whole"),
    turn=380,
)
def policy_gradient(
    problem: Problem,
    monitor: Monitor,
    *,
    groups: int = 256,
    samples: int = 64,
    hidden: int = 32,
    learning_rate: float = 0.003,
    entropy: float = 0.1,
) -> None:
    """Train a policy from scratch, on this problem alone, and offer the best placements that it draws.

    The policy is a distribution over the devices of each group of tasks, at first uniform. Samples are decoded in the order of
    upward ranks. The gain of a sample is the difference of its makespan from the baseline, the mean of its batch, in standard
    deviations; samples that exceed a memory or have no path count as worse than all others of the batch, by their excess. When
    the samples of a policy have become alike, a new policy begins. Without a limit it ends after 10 s.

    Parameters
    ----------
    groups : int
        Number of tasks at which coarsening along heavy edges ends; in a smaller graph each co-location unit is a group.
    samples : int
        Number of placements in a batch, after which the policy takes a step.
    hidden : int
        Number of hidden units of the network.
    learning_rate : float
        That of Adam.
    entropy : float
        Weight of the policy's entropy in its objective, against settling early; it falls to 0 over the budget.
    """
    if importlib.util.find_spec("torch") is None:
        raise MissingDependency("torch", "torch")
    for what, count in (("groups", groups), ("samples", samples), ("hidden", hidden)):
        check_count(count, what, error=UnsupportedFeature)
    if not 0 < learning_rate < math.inf:
        raise UnsupportedFeature(f"learning_rate is {learning_rate!r}; it must be a number above 0")
    if not 0 <= entropy < math.inf:
        raise UnsupportedFeature(f"entropy is {entropy!r}; it must be a number, at least 0")
    if problem.n_tasks == 0:
        monitor.offer(Decision.whole(problem, [], []))
        return
    _Training(problem, monitor, groups, samples).run(hidden, float(learning_rate), float(entropy))


class _Training:
    """The training of one policy after another, and the offers of their samples."""

    def __init__(self, problem: Problem, monitor: Monitor, groups: int, samples: int) -> None:
        from hetsched.heuristics.placement import policy_kernels

        self.problem, self.monitor = problem, monitor
        self.began = monitor.elapsed, monitor.evaluations
        self.groups = grouped(problem, monitor, groups)
        self.batch = policy_kernels.new_samples(samples, len(self.groups.allowed))
        self.priority, _ = ranks(problem)
        self.pace = bursts(monitor, weight=3.0 if problem.links.contended else 1.0)
        self.scale = 0.0
        """A typical makespan in seconds, 0 before the first."""
        self.waiting: IntArray | None = None
        """The devices of the groups in the best sample if it has not been offered."""
        self.offered_at, self.offer_seconds = -math.inf, 0.0
        self.held = 0.0
        self._prepare()

    def _prepare(self) -> None:
        """Make the state in which samples are decoded: one batch of each task, by descending upward rank."""
        from hetsched.heuristics.local_search.states import States

        self.states = States(self.problem, held=self.held)
        self.state, slots = self.states.empty(), self.states.tables.slots
        nodes = np.lexsort((self.problem.graph.rank, -self.priority)) * slots
        self.state.sequence[: len(nodes)], self.state.position[nodes] = nodes, np.arange(len(nodes))
        self.state.length[0] = len(nodes)
        self.state.count[:], self.state.high[::slots] = 1, self.problem.inputs
        self.least = math.inf

    def run(self, hidden: int, rate: float, entropy: float) -> None:
        """Draw, offer and learn until the budget is used up."""
        allowed = self.groups.allowed
        network: PolicyNetwork | None = None
        batches = alike = 0
        while True:
            chances = allowed / allowed.sum(axis=1, keepdims=True) if network is None else network.probabilities()
            drawn = self._draw(chances)
            batches += 1
            self._take(drawn, rescue=batches & (batches - 1) == 0)  # after 1, 2, 4, 8, ... batches, because it may take long
            if self.monitor.should_stop or drawn < len(self.batch.device) or not (allowed.sum(axis=1) > 1).any():
                break
            if network is None:
                if not self._may_load():
                    break
                from hetsched.heuristics.placement.policy_network import PolicyNetwork

                network, alike = PolicyNetwork(self.groups, hidden, rate, self.monitor.rng), 0
            gain, spread = self._gain()
            network.ascend(gain, entropy * (1 - progress(self.monitor, *self.began)))
            alike = alike + 1 if spread < ALIKE else 0
            network = None if alike == PATIENCE else network
        self._offer()
        if batches == 1 and not drawn:
            self.monitor.deadline.check("the first placement")
        elif self.monitor.best is None:
            self.monitor.note("no placement was drawn that fits the memory along paths that exist; more time, or a search, may find one")

    def _may_load(self) -> bool:
        left = self.monitor.time_left
        if "torch" in sys.modules or left >= LOADING:
            return True
        self.monitor.note(f"nothing was learned: to load torch takes up to {LOADING:g} s, and {left:.2g} s were left; give more time")
        return False

    def _draw(self, chances: FloatArray) -> int:
        """Draw and evaluate a batch; return the number of samples, which is smaller at the end of the budget."""
        from hetsched.heuristics.placement import policy_kernels

        policy_kernels.draw(chances.cumsum(axis=1), self.monitor.rng, self.batch)
        done, count = 0, len(self.batch.device)
        while done < count and (most := next(self.pace, 0)):
            end = min(count, done + most)
            policy_kernels.evaluate(self.states.tables, self.state, self.groups.of_unit, self.batch, done, end)
            self.monitor.evaluated(end - done)
            done = end
        return done

    def _take(self, drawn: int, *, rescue: bool) -> None:
        """Offer the best sample if it is better than all before; with `rescue`, a repaired one as long as there is no schedule."""
        if not drawn:
            return
        makespan, violation = self.batch.makespan[:drawn], self.batch.violation[:drawn]
        valued = np.where(violation == 0, makespan, np.inf)
        best = int(valued.argmin())
        if valued[best] < self.least:
            self.least, self.waiting = float(valued[best]), self.batch.device[best].copy()
            limited = self.monitor.budget.evaluations is not None  # then nothing may depend on the clock
            if limited or self.monitor.elapsed - self.offered_at >= 2 * self.offer_seconds:
                self._offer()
        elif rescue and self.monitor.best is None and np.isfinite(makespan).any():
            nearest = int(np.where(np.isfinite(makespan), violation, np.inf).argmin())
            decision = self._decision(self.batch.device[nearest])
            offer_within(self.monitor, decision)
            repaired = repair(self.problem, decision) if self.problem.memory == "static" else None
            if repaired is not None:
                self.monitor.offer(repaired)

    def _decision(self, device: IntArray) -> Decision:
        """Return the decision for the devices of the groups, as it was evaluated."""
        self.state.device[:: self.states.tables.slots] = device[self.groups.of_unit]
        return self.states.decision(self.state)

    def _offer(self) -> None:
        """Offer the best sample, in the order of its evaluation and in that of list scheduling with insertion."""
        if self.waiting is None:
            return
        began, monitor = self.monitor.elapsed, self.monitor
        device, self.waiting = self.waiting, None
        fits = math.isfinite(monitor.offer(self._decision(device)))
        listing = listed(self.problem, device[self.groups.of_unit][self.problem.unit], self.priority)
        if listing is not None and fits:
            monitor.offer(listing)
        self.offered_at, self.offer_seconds = monitor.elapsed, monitor.elapsed - began
        if not fits and self.held < 1:
            self.held = min(1.0, self.held + STEP)
            self._prepare()

    def _gain(self) -> tuple[FloatArray, float]:
        """Return what the batch tells about each device of each group, [groups, K], and the deviation of its values by their mean."""
        good, (groups, size) = self.batch.violation == 0, self.groups.allowed.shape
        makespans = self.batch.makespan[good]
        if len(makespans) and not self.scale:
            self.scale = float(makespans.mean())
        relative = makespans / (self.scale or 1.0)
        value = relative.max(initial=0.0) + self.batch.violation
        value[good] = relative
        mean, deviation = float(value.mean()), float(value.std())
        if deviation <= 1e-12 * mean:
            return np.zeros((groups, size)), 0.0
        gain = np.repeat((mean - value) / (deviation * len(value)), groups)
        cell = np.arange(groups) * size + self.batch.device
        total = np.bincount(cell.reshape(-1), gain, groups * size)
        return np.asarray(total.reshape(groups, size), np.float64), deviation / mean
