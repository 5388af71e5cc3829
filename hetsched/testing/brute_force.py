"""The optimum of tiny problems, by enumeration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from hetsched.arguments import checked
from hetsched.errors import HetschedError, UnsupportedFeature
from hetsched.problem.problem import Problem
from hetsched.schedule.decision import Decision
from hetsched.schedule.schedule import Schedule
from hetsched.schedule.simulate import simulate
from hetsched.testing.choices import Choices
from hetsched.verification.verify import verify

ROUNDING = 1e-12
MEMORY_TOLERANCE = 1e-9
Label = tuple[int, int]
"""Device, and number of the batch there."""
Assignment = tuple[tuple[Label, ...], ...]
"""The label of each (task, input)."""


class Optimum(NamedTuple):
    """A best schedule."""

    makespan: float
    """Seconds."""
    decision: Decision
    """Its decision."""
    schedule: Schedule
    """The schedule that `simulate` returns for the decision."""


@checked
def brute_force(problem: Problem, *, limit: int = 1_000_000) -> Optimum | None:
    """Return a schedule of least makespan, or None if the problem has no valid schedule.

    All assignments, batches, device orders and (with contention) transfer orders are enumerated,
    except those that differ only in the numbering of inputs and those that cannot improve on the
    incumbent. The result is the optimum up to a relative 1e-12.

    Parameters
    ----------
    problem : Problem
    limit : int
        The most partial assignments and partial schedules to enumerate.

    Raises
    ------
    UnsupportedFeature
        The problem is too large.
    """
    count = _Count(limit)
    searches = [_Orders(problem, assignment, count) for assignment in _assignments(problem, count)]
    best: Optimum | None = None
    for search in sorted(searches, key=lambda search: search.bound):
        best = search.improve(best)
    return best


class _Count:
    """The number of partial assignments and schedules so far."""

    def __init__(self, limit: int) -> None:
        self.used, self.limit = 0, limit

    def one(self) -> None:
        self.used += 1
        if self.used > self.limit:
            raise UnsupportedFeature(
                f"the problem is too large to enumerate: more than limit={self.limit} partial schedules; "
                "take fewer tasks, devices or inputs, or raise the limit"
            )


# ---------------------------------------------------------------------- assignments and batches


def _assignments(problem: Problem, count: _Count) -> Iterator[Assignment]:
    """Yield every assignment to batches, one of each set that differs only by a permutation of inputs.

    Inputs with equal labels at all earlier tasks form a class; within a class labels never decrease,
    and the batches of a device are numbered in the order of their first input.
    """
    choices = Choices(problem)
    order = problem.graph.topological_order.tolist()
    labels: dict[int, tuple[Label, ...]] = {}

    def extend(depth: int) -> Iterator[Assignment]:
        count.one()
        if depth == len(order):
            yield tuple(labels[i] for i in range(problem.n_tasks))
            return
        i = order[depth]
        history = list(zip(*(labels[j] for j in order[:depth]), strict=True)) or [()] * problem.inputs
        for row in _labellings(choices, i, labels, history, count):
            labels[i] = row
            if _can_fit(problem, labels):
                yield from extend(depth + 1)
            del labels[i]

    return extend(0)


def _labellings(
    choices: Choices, i: int, labels: dict[int, tuple[Label, ...]], history: list[tuple[Label, ...]], count: _Count
) -> Iterator[tuple[Label, ...]]:
    """Yield the labels that the inputs of task i may have."""
    problem = choices.problem
    mates = [j for j in choices.units[choices.unit_of[i]] if j in labels]
    previous = {item: max((x for x in range(item) if history[x] == history[item]), default=-1) for item in range(problem.inputs)}

    def extend(row: tuple[Label, ...]) -> Iterator[tuple[Label, ...]]:
        count.one()
        item = len(row)
        if item == problem.inputs:
            if all(row.count(label) in choices.sizes[i][label[0]] for label in set(row)):
                yield row
            return
        smallest = row[previous[item]] if previous[item] >= 0 else (0, 0)
        for k in range(smallest[0], problem.n_devices):
            if not choices.sizes[i][k] or any(labels[j][item][0] != k for j in mates):
                continue
            if not all(choices.paths[e][labels[j][item][0]][k] for e, j in choices.incoming[i]):
                continue
            used = len({label for label in row if label[0] == k})
            for number in range(used + 1 if problem.batching == "free" else 1):
                if (k, number) >= smallest:
                    yield from extend((*row, (k, number)))

    return extend(())


def _can_fit(problem: Problem, labels: dict[int, tuple[Label, ...]]) -> bool:
    """Return whether the memory needed in every order fits: all memory if static, else weights alone."""
    graph = problem.graph
    needed = [0.0] * problem.n_devices
    for i, row in labels.items():
        for k in {label[0] for label in row}:
            needed[k] += float(graph.weight_bytes[i])
        if problem.memory == "static":
            for k, _ in row:
                needed[k] += float(graph.input_bytes[i] + graph.output_bytes[i])
    return _within(needed, problem)


def _within(needed: list[float], problem: Problem) -> bool:
    return all(need <= room * (1 + MEMORY_TOLERANCE) for need, room in zip(needed, problem.cluster.memory_bytes.tolist(), strict=True))


# ---------------------------------------------------------------------- orders


class _Orders:
    """All semi-active schedules of one assignment, as sequences of operations by start time.

    An operation is a batch or a transfer. Operations without a resource (of zero length, or transfers
    without contention) start as soon as they are ready; the others are appended one by one in
    increasing (start, number), which yields every semi-active schedule exactly once.
    """

    def __init__(self, problem: Problem, assignment: Assignment, count: _Count) -> None:
        self.problem, self.count = problem, count
        batches = sorted({(i, label) for i, row in enumerate(assignment) for label in row})
        number = {batch: b for b, batch in enumerate(batches)}
        self.task = [i for i, _ in batches]
        self.device = [label[0] for _, label in batches]
        self.items = [[item for item, other in enumerate(assignment[i]) if other == label] for i, label in batches]
        sizes = problem.batch_sizes.tolist()
        self.seconds = [
            float(problem.durations[i, k, sizes.index(len(items))]) for i, k, items in zip(self.task, self.device, self.items, strict=True)
        ]
        self.resources: list[tuple[int, ...]] = [(k,) if t > 0 else () for k, t in zip(self.device, self.seconds, strict=True)]
        self.after: list[list[int]] = [[] for _ in batches]
        self.moves: dict[int, tuple[int, int, int]] = {}
        for e, (i, j) in enumerate(problem.graph.edges.tolist()):
            pairs = [(number[i, a], number[j, b]) for a, b in zip(assignment[i], assignment[j], strict=True)]
            for a, b in sorted(set(pairs)):
                self._link(e, a, b, pairs.count((a, b)))
        self.waiting = [0] * len(self.after)
        for followers in self.after:
            for follower in followers:
                self.waiting[follower] += 1
        self.tail = self._tails()
        self.load: dict[int, float] = {}
        for seconds, resources in zip(self.seconds, self.resources, strict=True):
            for resource in resources:
                self.load[resource] = self.load.get(resource, 0.0) + seconds
        self.bound = max([*self.load.values(), *self.tail, 0.0])
        self.best: Optimum | None = None

    def _link(self, edge: int, a: int, b: int, shared: int) -> None:
        h, k, n_devices = self.device[a], self.device[b], self.problem.n_devices
        if h == k:
            self.after[a].append(b)
            return
        seconds = float(self.problem.transfer_times(edge, h, k, shared))
        nodes = [device.node or None for device in self.problem.cluster.devices]
        g, m = (n_devices + nodes.index(nodes[x]) if nodes[x] else n_devices + x for x in (h, k))
        held: dict[str, tuple[int, ...]] = {
            "delay": (),
            "per-input": (),
            "channel": (n_devices + h * n_devices + k,),
            "port": (n_devices + h, 2 * n_devices + k),
            "node": () if g == m else (g, n_devices + m),
        }
        self.moves[len(self.after)] = (edge, a, b)
        self.after[a].append(len(self.after))
        self.after.append([b])
        self.seconds.append(seconds)
        self.resources.append(held[self.problem.communication] if seconds > 0 else ())

    def _tails(self) -> list[float]:
        """Return the longest path from each operation's start to the end."""
        tails: dict[int, float] = {}

        def tail(x: int) -> float:
            if x not in tails:
                tails[x] = self.seconds[x] + max((tail(y) for y in self.after[x]), default=0.0)
            return tails[x]

        return [tail(x) for x in range(len(self.after))]

    def improve(self, best: Optimum | None) -> Optimum | None:
        """Return the best schedule of this assignment if it beats `best`, else `best`."""
        self.best = best
        if not self._hopeless(self.bound):
            ready = [0.0] * len(self.after)
            waiting = list(self.waiting)
            waiting_for = [x for x, n in enumerate(waiting) if n == 0]
            available: list[int] = []
            finish = 0.0
            for x in waiting_for:
                finish = max(finish, self._admit(x, ready, waiting, available))
            self._append([], ready, waiting, available, {}, dict(self.load), (-1.0, -1), finish)
        return self.best

    def _hopeless(self, makespan: float) -> bool:
        return self.best is not None and makespan >= self.best.makespan * (1 - ROUNDING)

    def _admit(self, x: int, ready: list[float], waiting: list[int], available: list[int]) -> float:
        """Admit an operation whose predecessors are complete; return the last finish among those it completes."""
        if self.resources[x]:
            available.append(x)
            return 0.0
        return self._finish(x, ready[x] + self.seconds[x], ready, waiting, available)

    def _finish(self, x: int, finish: float, ready: list[float], waiting: list[int], available: list[int]) -> float:
        last = finish
        for y in self.after[x]:
            ready[y] = max(ready[y], finish)
            waiting[y] -= 1
            if waiting[y] == 0:
                last = max(last, self._admit(y, ready, waiting, available))
        return last

    def _append(
        self,
        sequence: list[int],
        ready: list[float],
        waiting: list[int],
        available: list[int],
        free: dict[int, float],
        load: dict[int, float],
        last: tuple[float, int],
        finish: float,
    ) -> None:
        """Try every operation that can come next."""
        self.count.one()
        if not available:
            self._offer(sequence, finish)
            return
        starts = {x: max([ready[x], *(free.get(resource, 0.0) for resource in self.resources[x])]) for x in available}
        if any(self._hopeless(start + self.tail[x]) for x, start in starts.items()):
            return
        if any(self._hopeless(free.get(resource, 0.0) + left) for resource, left in load.items() if left > 0):
            return
        for start, x in sorted((start, x) for x, start in starts.items()):
            if (start, x) <= last:
                continue
            end = start + self.seconds[x]
            ready_then, waiting_then, available_then = list(ready), list(waiting), [y for y in available if y != x]
            caused = self._finish(x, end, ready_then, waiting_then, available_then)
            held = dict.fromkeys(self.resources[x], end)
            number = x if end > start else -1  # if its length is lost in rounding, its successors may have any number
            left = {resource: seconds - self.seconds[x] if resource in held else seconds for resource, seconds in load.items()}
            self._append(
                [*sequence, x], ready_then, waiting_then, available_then, {**free, **held}, left, (start, number), max(finish, caused)
            )

    def _offer(self, sequence: list[int], finish: float) -> None:
        """Simulate a complete sequence and keep its schedule if it is valid and the best."""
        if self._hopeless(finish):
            return
        n_batches = len(self.task)
        order = [x for x in sequence if x < n_batches]
        order += sorted(set(range(n_batches)) - set(order))  # of zero length, so not in the sequence
        place = {b: position for position, b in enumerate(order)}
        pointers = [0]
        for b in order:
            pointers.append(pointers[-1] + len(self.items[b]))
        free = [x for x in self.moves if self.seconds[x] > 0 and not self.resources[x]]  # between devices of a node, in any order
        moves = [self.moves[x] for x in [*(x for x in sequence if x >= n_batches), *free]]
        contended = self.problem.links.contended
        decision = Decision(
            [self.task[b] for b in order],
            [self.device[b] for b in order],
            pointers,
            [item for b in order for item in self.items[b]],
            transfer_order=[(e, place[a], place[b]) for e, a, b in moves] if contended else None,
        )
        schedule = simulate(self.problem, decision)
        if abs(schedule.makespan - finish) > 1e-9 * finish:
            raise HetschedError(
                f"the makespan of a decision is {schedule.makespan!r} s by simulate but {finish!r} s by enumeration; please report it"
            )
        if self.problem.memory == "peak" and (schedule.peak_memory is None or not _within(schedule.peak_memory.tolist(), self.problem)):
            return
        violations = verify(self.problem, schedule)
        if violations:
            raise HetschedError(f"simulate returned a schedule that breaks a rule: {violations[0]}; please report it")
        self.best = Optimum(schedule.makespan, schedule.decision, schedule)
