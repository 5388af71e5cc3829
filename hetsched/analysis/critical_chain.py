"""The critical chain of a schedule: a chain of batches and transfers that determines its makespan."""

from __future__ import annotations

import numpy as np

from hetsched.arguments import checked
from hetsched.arrays import Columns, FloatArray, IntArray, texts
from hetsched.problem.problem import Problem
from hetsched.schedule.arcs import of_schedule
from hetsched.schedule.schedule import Schedule

TOLERANCE = 1e-9  # relative to the makespan, as in `verify`
START, DATA, DEVICE, LINK = "start", "data", "device", "link"
"""What a step waited for: nothing, its data, its device, or its channel or port."""


@checked
def critical_chain(problem: Problem, schedule: Schedule) -> Columns:
    """Return a chain of batches and transfers that determines the makespan.

    The chain is built backward from the batch that finishes last. The predecessor of a step is the batch
    or transfer with the latest finish among those it had to wait for: its data, and the previous user of
    its resource. In a semi-active schedule, as ``simulate`` returns, the steps join without a gap from 0
    to the makespan. It is the longest
    path of the schedule's disjunctive graph, not of the task graph (that is `critical_path`).

    Parameters
    ----------
    problem : Problem
    schedule : Schedule
        A valid one.

    Returns
    -------
    Columns (batch, transfer, start, finish, waited_for)
        One row for each step, by time; `batch` and `transfer` are rows of the schedule's tables, one of them
        -1; times in seconds; `waited_for` is "start", "data", "device" or "link".
    """
    walk = _Walk(problem, schedule)
    node, steps, why = walk.last, [], []
    while node >= 0:
        before, reason = walk.before(node)
        steps.append(node)
        why.append(reason)
        node = before
    chain = np.array(steps[::-1], np.int64)
    n = len(schedule.batches)
    return Columns(
        batch=np.where(chain < n, chain, -1),
        transfer=np.where(chain < n, -1, chain - n),
        start=walk.start[chain],
        finish=walk.finish[chain],
        waited_for=texts(why[::-1]),
    )


class _Walk:
    """Batches as nodes 0 to n - 1 and transfers as nodes from n, with the nodes that each may have waited for."""

    def __init__(self, problem: Problem, schedule: Schedule) -> None:
        batches, moves = schedule.batches, schedule.transfers
        n = len(batches)
        self.start = np.concatenate([batches.start, moves.start])
        self.finish = np.concatenate([batches.finish, moves.finish])
        self.last = int(batches.finish.argmax()) if n else -1
        self.tolerance = TOLERANCE * float(batches.finish.max(initial=0.0))
        arcs = of_schedule(problem, schedule)[1]
        local, move = ~arcs.moving, np.arange(len(moves)) + n
        ahead = np.concatenate([arcs.source[local], move, moves.source]).astype(np.int64)
        behind = np.concatenate([arcs.target[local], moves.target, move]).astype(np.int64)
        order = np.argsort(behind, kind="stable")
        self.data, self.data_ptr = ahead[order], np.searchsorted(behind[order], np.arange(n + len(moves) + 1))
        # The nodes that hold each resource, by finish, without those of zero length.
        sender, receiver = batches.device[moves.source.astype(np.int64)], batches.device[moves.target.astype(np.int64)]
        self.resources: list[tuple[IntArray, dict[int, tuple[IntArray, FloatArray]], str]] = []
        device_of = np.concatenate([batches.device, np.full(len(moves), -1)])
        self._occupy(device_of, DEVICE)
        if problem.links.contended:
            held = problem.links.resource[sender, receiver]
            for side in range(2 if (held[:, 0] != held[:, 1]).any() else 1):
                self._occupy(np.concatenate([np.full(n, -1), held[:, side]]), LINK)

    def _occupy(self, resource_of: IntArray, reason: str) -> None:
        held = np.flatnonzero((resource_of >= 0) & (self.finish > self.start))
        held = held[np.lexsort((self.finish[held], resource_of[held]))]
        names, first = np.unique(resource_of[held], return_index=True)
        groups = dict(zip(names.tolist(), np.split(held, first[1:]), strict=True)) if len(held) else {}
        self.resources.append((resource_of, {name: (rows, self.finish[rows]) for name, rows in groups.items()}, reason))

    def before(self, node: int) -> tuple[int, str]:
        """Return the node with the latest finish that this node waited for, and the reason; data before resources in a tie."""
        latest, reason = -1, START
        for ahead in self.data[self.data_ptr[node] : self.data_ptr[node + 1]].tolist():
            if latest < 0 or self.finish[ahead] > self.finish[latest]:
                latest, reason = ahead, DATA
        if self.finish[node] <= self.start[node]:
            return latest, reason
        for resource_of, occupants, why in self.resources:
            rows, finishes = occupants.get(int(resource_of[node]), (None, None))
            if rows is not None and finishes is not None:
                place = int(np.searchsorted(finishes, self.start[node] + self.tolerance, side="right")) - 1
                while place >= 0 and self.start[rows[place]] >= self.start[node]:
                    place -= 1  # shorter than the tolerance, and not before
                if place >= 0 and (latest < 0 or finishes[place] > self.finish[latest]):
                    latest, reason = int(rows[place]), why
        return latest, reason
