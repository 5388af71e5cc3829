"""Repair of decisions that violate co-location or static memory, and packing of all tasks."""

from __future__ import annotations

import numpy as np

from hetsched.arrays import FloatArray, row_starts
from hetsched.errors import InvalidSchedule
from hetsched.heuristics.memory_accounts import memory_needs
from hetsched.problem.problem import Problem
from hetsched.schedule import memory
from hetsched.schedule.decision import Decision
from hetsched.schedule.simulate import TimedDecision, simulate


def packed(problem: Problem) -> Decision | None:
    """Return the repaired decision of all tasks on their fastest devices, each as one batch; None if repair fails.

    Under ``peak`` memory the rules of ``static`` memory are used: weights, inputs and outputs, without transferred tensors.
    """
    if np.isinf(problem.class_whole_durations.min(axis=1, initial=np.inf)).any():
        return None
    if problem.memory == "peak":
        problem = problem.replace(memory="static")
    return repair(problem, Decision.whole(problem, problem.whole_durations.argmin(axis=1), problem.graph.topological_order))


def repair(problem: Problem, decision: Decision) -> Decision | None:
    """Return a decision that respects co-location and static memory and is similar to the given one.

    Co-located tasks on different devices move to the device that has most of their batches. Units on a
    device over its capacity move to other devices, in increasing order of lost time per freed byte. If
    the capacities are still exceeded, all units are placed again, largest first, on the device with the
    most free memory. A unit that moves becomes one batch of all inputs. A decision without violations is
    returned unchanged. The result is None if some unit fits no device, or only one without a path.

    Parameters
    ----------
    problem : Problem
    decision : Decision
        Respects all other rules.
    """
    moves = _Moves(problem, decision)
    if not (moves.unite() and moves.unload()):
        return None
    try:
        repaired = moves.decision() if moves.target.max(initial=-1) >= 0 else decision
        TimedDecision(problem, repaired)  # which checks it; times are not needed
    except InvalidSchedule:  # a unit is on a device without a path
        return None
    return repaired


class _Moves:
    """The units of a decision that move to other devices."""

    def __init__(self, problem: Problem, decision: Decision) -> None:
        self.problem, self.given = problem, decision
        self.target = np.full(problem.n_units, -1)
        """[units]: the new device of a unit, -1 if it does not move."""
        self.seconds = np.zeros((problem.n_units, problem.n_devices))
        """[units, K]: sum over its tasks; inf where it cannot run."""
        np.add.at(self.seconds, problem.unit, problem.whole_durations)
        self.claim: FloatArray = next(memory_needs(problem))
        self.bytes = self._bytes()
        """[units, K]: bytes that it needs on each device at present."""

    def _bytes(self) -> FloatArray:
        problem, decision = self.problem, self.given
        cell = problem.unit[decision.task] * problem.n_devices + decision.device
        _, first = np.unique(decision.task * problem.n_devices + decision.device, return_index=True)
        weight, activation = problem.static_bytes[decision.task].T
        needed = activation * np.diff(decision.item_ptr)
        needed[first] += weight[first]  # once for each device
        total = np.bincount(cell, needed, problem.n_units * problem.n_devices)
        return np.asarray(total.reshape(problem.n_units, problem.n_devices), np.float64)

    def unite(self) -> bool:
        """Move the members of each split unit to one device; return False if some unit has none."""
        for unit in self._broken():
            here = self.given.device[self.problem.unit[self.given.task] == unit]
            work = np.bincount(here, minlength=self.problem.n_devices)
            possible = np.isfinite(self.seconds[unit])
            if not possible.any():
                return False
            self._move(unit, int(np.argmax(np.where(possible, work, -1))))
        return True

    def _broken(self) -> list[int]:
        """Return the units whose tasks are not all on the same device for some input."""
        problem, decision = self.problem, self.given
        if problem.n_units == problem.n_tasks:
            return []
        count = np.diff(decision.item_ptr)
        device = np.repeat(decision.device, count)
        key = problem.unit[np.repeat(decision.task, count)] * problem.inputs + decision.items
        first = np.full(problem.n_units * problem.inputs, -1)
        first[key] = device
        broken: list[int] = np.unique(key[device != first[key]] // problem.inputs).tolist()
        return broken

    def unload(self) -> bool:
        """Move units off devices over their capacity; return False if that fails."""
        if self.problem.memory != "static":
            return True
        for k in range(self.problem.n_devices):
            self._unload(k)
        return not memory.over_capacity(self.problem, self.bytes.sum(axis=0)).any() or self._repack()

    def _unload(self, k: int) -> None:
        """Move units off a device, to devices with free memory, until the rest fits or no unit can move."""
        capacity, needed = self.problem.cluster.memory_bytes, self.bytes.sum(axis=0)
        elsewhere = np.arange(self.problem.n_devices) != k
        best = np.where(elsewhere, self.seconds, np.inf).min(axis=1, initial=np.inf)
        here = np.flatnonzero((self.bytes[:, k] > 0) & np.isfinite(best))
        loss = (best[here] - np.minimum(self.seconds[here, k], best[here])) / self.bytes[here, k]
        for unit in here[np.argsort(loss, kind="stable")].tolist():
            if needed[k] <= capacity[k]:
                return
            room = elsewhere & (needed - self.bytes[unit] + self.claim[unit] <= capacity)
            cost = np.where(room, self.seconds[unit], np.inf)
            if np.isfinite(cost).any():
                needed -= self.bytes[unit]
                self._move(unit, int(np.argmin(cost)))
                needed += self.bytes[unit]

    def _repack(self) -> bool:
        """Place all units again, largest first, on the device with the most free memory; return False if some unit fits none."""
        room = self.problem.cluster.memory_bytes.copy()
        for unit in np.argsort(-self.claim, kind="stable").tolist():
            possible = np.isfinite(self.seconds[unit]) & (self.claim[unit] <= room)
            if not possible.any():
                return False
            k = int(np.argmax(np.where(possible, room, -1.0)))
            room[k] -= self.claim[unit]
            self._move(unit, k)
        return True

    def _move(self, unit: int, k: int) -> None:
        self.target[unit] = k
        self.bytes[unit] = 0.0
        self.bytes[unit, k] = self.claim[unit]

    def decision(self) -> Decision:
        """Return the decision with the moves made.

        Batches are in the order of their starts without the moves. For several inputs that order may contradict
        the edges, because separate batches of a task are joined, so the topological order of tasks is used instead.
        """
        problem, given = self.problem, self.given
        loose = problem.replace(graph=problem.graph.replace(colocation=None))
        schedule = simulate(loose, given)
        batches = schedule.batches
        rank = problem.graph.rank[batches.task]
        keys = (rank, batches.finish, batches.start) if problem.inputs == 1 else (batches.start, rank)
        task, device, items = [], [], []
        moved: set[int] = set()
        for b in np.lexsort(keys).tolist():
            i = int(batches.task[b])
            target = int(self.target[problem.unit[i]])
            if target < 0:
                row = schedule.items[schedule.item_ptr[b] : schedule.item_ptr[b + 1]]
            elif i in moved:
                continue
            else:
                moved.add(i)
                row = np.arange(problem.inputs)
            task.append(i)
            device.append(int(batches.device[b]) if target < 0 else target)
            items.append(row)
        return Decision(task, device, row_starts([len(row) for row in items]), np.concatenate(items))
