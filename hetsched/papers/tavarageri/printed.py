"""The assistants of section 3 as printed, without the rules that are this package's."""

from __future__ import annotations

import numpy as np

from hetsched.problem.problem import Problem
from hetsched.runtime.iterations import Observation, devices_of
from hetsched.runtime.tags import Tag, tags
from hetsched.schedule.decision import Decision
from hetsched.schedule.simulate import simulate

THETA, GAMMA = 0.95, 0.5
"""The paper's thresholds of utilisation."""


class Printed:
    """After each iteration, for each resource, every device above `THETA` offers a node, and every device below `GAMMA` takes one.

    Which node is offered, of those with the tag of the resource, and which device takes which offer is open in the paper: it is chance,
    by `seed`. No move is weighed or taken back. The utilisation is the share of an iteration that a device runs nodes of the tag, or sends
    or receives; if `relative`, that of the largest of all devices, as `Assistants` has it.
    """

    def __init__(self, seed: int = 0, *, relative: bool = False) -> None:
        self._seed, self._relative = seed, relative

    def begin(self, problem: Problem, decision: Decision) -> None:
        """Tag the nodes, and keep the order of the first schedule's starts."""
        self._problem, self._tags, self._rng = problem, tags(problem, decision), np.random.default_rng(self._seed)
        schedule = simulate(problem, decision)
        self._sequence = np.lexsort((problem.graph.rank, schedule.batches.start[schedule.batch_of[:, 0]]))

    def observe(self, observation: Observation) -> Decision | None:
        """Return the decision after one round of offers, or None if no device takes any."""
        device, unit = devices_of(observation.decision), self._problem.unit
        active = np.zeros((self._problem.n_devices, len(Tag)))
        np.add.at(active, (device, self._tags), observation.task_seconds)
        active[:, Tag.NETWORK] = observation.transfer_seconds
        use = active / np.maximum(active.max(axis=0) if self._relative else observation.seconds, np.finfo(float).tiny)
        moved = device.copy()
        for tag in Tag:
            boxes = [np.unique(unit[(device == k) & (self._tags == tag)]) for k in np.flatnonzero(use[:, tag] > THETA)]
            offers = self._rng.permutation([int(self._rng.choice(box)) for box in boxes if len(box)])
            for offer, taker in zip(offers, self._rng.permutation(np.flatnonzero(use[:, tag] < GAMMA)), strict=False):
                moved[unit == offer] = taker
        return None if np.array_equal(moved, device) else Decision.whole(self._problem, moved, self._sequence)
