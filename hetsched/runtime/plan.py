"""The plan of a decision: what each device does, step by step, so that a module can be run by it."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple, NoReturn, TypeAlias

import numpy as np

from hetsched.arguments import checked
from hetsched.arrays import FloatArray, Frozen, IntArray, readonly
from hetsched.errors import InvalidArgument, InvalidSchedule, UnsupportedFeature
from hetsched.problem.problem import Problem
from hetsched.schedule.decision import Decision
from hetsched.schedule.simulate import TimedDecision


class Value(NamedTuple):
    """A tensor that tasks read: one leaf, never a tuple of tensors."""

    task: int
    """The task that makes it, index in the graph; of an argument, the input task by which it enters."""
    name: str
    """Unique among the values of a plan."""
    bytes: float
    """Bytes of one input."""
    readers: tuple[int, ...]
    """The tasks that read it, ascending."""
    kept: bool = False
    """Whether the result of the module reads it: it is never dropped where it is made."""


class Run(NamedTuple):
    """Run a batch."""

    batch: int


class Send(NamedTuple):
    """Begin to send a value to another device; this does not wait for its arrival."""

    value: int
    batch: int
    """The batch that made it."""
    to: int


class Wait(NamedTuple):
    """Wait until a value has arrived from another device."""

    value: int
    batch: int


class Drop(NamedTuple):
    """Release a value: every task of this device that reads it has run and, where it was made, its last transfer is posted."""

    value: int
    batch: int


Step: TypeAlias = Run | Send | Wait | Drop
_KINDS = (Run, Send, Wait, Drop)


class Plan(Frozen):
    """The steps of each device under a decision.

    Each device takes its steps one after another. A batch runs when the steps before it are done, a value is sent to each
    device once, however many tasks there read it, right after its producer, or after the values that the decision's order
    of transfers puts first on the same channel or sending port of its device; a device waits for a value right before the
    first of its tasks that reads it, and drops it after the last.

    Parameters
    ----------
    problem : Problem
    decision : Decision
        One batch of all inputs for each task.
    values : sequence of Value, optional
        What tasks read; each edge needs a value from its source to its target. Default: one value for each edge.

    Attributes
    ----------
    devices : tuple of str
    task, device : int64 array [m]
        Task and device of each batch of the decision.
    inputs : int
        Number L of inputs, all in each batch.
    values : tuple of Value
    order : tuple of Run and Send
        A total order of all batches and sends that precedence, the order of the batches of each device and the order of
        transfers permit; ties are in the order of simulated starts. Batches of zero length take no part in the order of
        their device.
    steps : tuple of tuples of Run, Send, Wait and Drop
        The steps of each device, in the order in which it takes them.
    weight_bytes, peak_bytes : float64 array [K]
        Bytes of the weights of the tasks of each device; the most bytes that it holds at a time, weights included. Each value is
        taken to have a storage of its own: in captured modules views belong to the tasks that read them.
    digest : str
        The same for equal plans.

    Raises
    ------
    InvalidSchedule
        The decision breaks a rule or deadlocks, see `simulate`.
    UnsupportedFeature
        A task has several batches.
    """

    devices: tuple[str, ...]
    task: IntArray
    device: IntArray
    inputs: int
    values: tuple[Value, ...]
    order: tuple[Run | Send, ...]
    steps: tuple[tuple[Step, ...], ...]
    weight_bytes: FloatArray
    peak_bytes: FloatArray
    digest: str

    @checked
    def __init__(self, problem: Problem, decision: Decision, values: Sequence[Value] | None = None) -> None:
        timing = TimedDecision(problem, decision)
        refuse_split(problem.graph.names, decision.task, decision.sizes, problem.inputs)
        start, _ = timing.starts(timing.duration)
        batch_of = np.empty(problem.n_tasks, np.int64)
        batch_of[decision.task] = np.arange(decision.n_batches)
        listed = _edge_values(problem) if values is None else _checked_values(problem, values)
        order = _total_order(problem, decision, timing, start, batch_of.tolist(), listed)
        self._set_steps(
            devices=problem.cluster.names,
            task=readonly(decision.task),
            device=readonly(decision.device),
            inputs=problem.inputs,
            values=listed,
            order=order,
            steps=_steps(problem.n_devices, decision, listed, order, batch_of.tolist()),
            weight_bytes=np.bincount(decision.device, problem.graph.weight_bytes[decision.task], problem.n_devices).astype(np.float64),
        )

    def _set_steps(
        self,
        devices: tuple[str, ...],
        task: IntArray,
        device: IntArray,
        inputs: int,
        values: tuple[Value, ...],
        order: tuple[Run | Send, ...],
        steps: tuple[tuple[Step, ...], ...],
        weight_bytes: FloatArray,
    ) -> None:
        """Set all attributes: the given ones, the peak and the digest."""
        # Rows of different kinds may be equal as tuples, so the text has the kind of each.
        rows = [[(_KINDS.index(type(step)), *step) for step in own] for own in steps]
        text = repr((devices, inputs, task.tolist(), device.tolist(), [tuple(value) for value in values], [tuple(x) for x in order], rows))
        self._set(
            devices=devices,
            task=task,
            device=device,
            inputs=inputs,
            values=values,
            order=order,
            steps=steps,
            weight_bytes=weight_bytes,
            peak_bytes=weight_bytes + _most_held(task.tolist(), inputs, values, steps),
            digest=hashlib.sha256(text.encode()).hexdigest(),
        )

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"<Plan of {len(self.task)} batches and {sum(type(x) is Send for x in self.order)} transfers on {len(self.devices)} devices>"

    @cached_property
    def sends(self) -> tuple[Send, ...]:
        """The sends, in the total order."""
        return tuple(step for step in self.order if isinstance(step, Send))

    @checked
    def carried(self, problem: Problem) -> tuple[tuple[int, ...], ...]:
        """Return the edges of the problem's graph that each of `sends` carries, ascending."""
        number = {edge: e for e, edge in enumerate(map(tuple, problem.graph.edges.tolist()))}
        device = np.empty(len(self.task), np.int64)
        device[self.task] = self.device
        values = [(send, self.values[send.value]) for send in self.sends]
        return tuple(tuple(sorted(number[v.task, r] for r in v.readers if device[r] == send.to)) for send, v in values)

    def check(self) -> None:
        """Take all steps, each device as far as it can at a time; raise `InvalidSchedule` where that comes to a halt.

        A wait needs its value to have been sent to its device, a send its value to have been made, a batch the values that
        its task reads to be on its device, which must not have been dropped. Every batch runs once.
        """
        reads: list[list[int]] = [[] for _ in range(max(self.task.tolist(), default=-1) + 1)]
        makes: list[list[int]] = [[] for _ in reads]
        for number, value in enumerate(self.values):
            makes[value.task].append(number)
            for reader in value.readers:
                reads[reader].append(number)
        tasks, sent, ran = self.task.tolist(), set[tuple[int, int]](), set[int]()
        here: list[set[int]] = [set() for _ in self.steps]
        waiting = set[tuple[int, int]]()
        position, ready = [0] * len(self.steps), list(range(len(self.steps)))
        while ready:
            k = ready.pop()
            for step in self.steps[k][position[k] :]:
                if isinstance(step, Wait):
                    if (step.value, k) not in sent:
                        waiting.add((step.value, k))
                        break
                    here[k].add(step.value)
                elif isinstance(step, Run):
                    if step.batch in ran:
                        self._refuse(k, f"{self._name(step.batch)} runs twice")
                    if not here[k].issuperset(reads[tasks[step.batch]]):
                        self._refuse_missing(k, self._name(step.batch), reads[tasks[step.batch]], here[k])
                    ran.add(step.batch)
                    here[k].update(makes[tasks[step.batch]])
                elif isinstance(step, Send):
                    if step.value not in here[k]:
                        self._refuse_missing(k, f"a transfer to {self.devices[step.to]!r}", [step.value], here[k])
                    sent.add((step.value, step.to))
                    if (step.value, step.to) in waiting:
                        waiting.remove((step.value, step.to))
                        ready.append(step.to)
                else:
                    if step.value not in here[k]:
                        self._refuse_missing(k, "a release", [step.value], here[k])
                    here[k].remove(step.value)
                position[k] += 1
        for k, steps in enumerate(self.steps):
            if position[k] < len(steps):
                step = steps[position[k]]
                assert isinstance(step, Wait)  # only they block
                self._refuse(k, f"the wait for {self.values[step.value].name!r} is never served")
        missing = set(range(len(tasks))) - ran
        if missing:
            self._refuse(int(self.device[min(missing)]), f"{self._name(min(missing))} never runs")

    def _name(self, batch: int) -> str:
        made = [value.name for value in self.values if value.task == self.task[batch]]
        return f"batch {batch}" + (f", which makes {made[0]!r}," if made else "")

    def _refuse_missing(self, k: int, what: str, wanted: Sequence[int], here: set[int]) -> NoReturn:
        lost = next(value for value in wanted if value not in here)
        self._refuse(k, f"{what} needs {self.values[lost].name!r}, which is not there")

    def _refuse(self, k: int, why: str) -> NoReturn:
        raise InvalidSchedule(f"the plan cannot be run: on {self.devices[k]!r} {why}; make it again from its decision")


def refuse_split(names: Sequence[str], task: IntArray, sizes: IntArray, inputs: int) -> None:
    """Raise `UnsupportedFeature` if a task has several batches; [m] each."""
    split = np.flatnonzero(sizes != inputs)
    if len(split):
        raise UnsupportedFeature(
            f"task {names[int(task[split[0]])]!r} has several batches, and a plan runs one batch of all {inputs} inputs for each task; "
            "give one batch size, all inputs, to the problem, or several inputs as one"
        )


def _edge_values(problem: Problem) -> tuple[Value, ...]:
    """Return one value for each edge."""
    graph = problem.graph
    rows = zip(graph.edges.tolist(), graph.edge_bytes.tolist(), strict=True)
    return tuple(Value(i, f"{graph.names[i]!r} -> {graph.names[j]!r}", size, (j,)) for (i, j), size in rows)


def _checked_values(problem: Problem, values: Sequence[Value]) -> tuple[Value, ...]:
    """Return the values; raise `InvalidArgument` if they do not fit the graph."""
    names, n = problem.graph.names, problem.n_tasks
    edges = set(map(tuple, problem.graph.edges.tolist()))
    carried: set[tuple[int, int]] = set()
    for place, value in enumerate(values):
        if not isinstance(value, Value):
            raise InvalidArgument(f"values[{place}] is {value!r}; it must be a Value")
        if not all(0 <= i < n for i in (value.task, *value.readers)):
            raise InvalidArgument(f"values[{place}] names task {value.task} and readers {value.readers}; the problem has {n} tasks, from 0")
        for reader in value.readers:
            if (value.task, reader) not in edges:
                raise InvalidArgument(
                    f"value {value.name!r} of task {names[value.task]!r} is read by {names[reader]!r}; the graph has no edge between them"
                )
            carried.add((value.task, reader))
    if len({value.name for value in values}) < len(values):
        raise InvalidArgument("two values have the same name; give each its own")
    left = min(edges - carried, default=None)
    if left is not None:
        raise InvalidArgument(f"no value is read along the edge {names[left[0]]!r} -> {names[left[1]]!r}; give one, of 0 bytes if need be")
    return tuple(values)


def _total_order(
    problem: Problem, decision: Decision, timing: TimedDecision, start: FloatArray, batch_of: list[int], values: tuple[Value, ...]
) -> tuple[Run | Send, ...]:
    """Return the total order of batches and sends, see `Plan.order`."""
    m, device = decision.n_batches, decision.device.tolist()
    duration = timing.duration.tolist()
    place = _places(problem, decision, timing)
    edge_of = {edge: e for e, edge in enumerate(map(tuple, problem.graph.edges.tolist()))}
    sends: list[Send] = []
    keys: list[tuple[int, float, float, int]] = [  # of batches: by simulated start, those that finish first ahead
        (1, begin, begin + seconds, rank)
        for begin, seconds, rank in zip(start.tolist(), duration, problem.graph.rank[decision.task].tolist(), strict=True)
    ]
    behind: list[list[int]] = [[] for _ in range(m)]

    def add(a: int, b: int) -> None:
        behind[a].append(b)
        waits[b] += 1

    waits = [0] * m
    for number, value in enumerate(values):
        source = batch_of[value.task]
        first: dict[int, int] = {}
        for reader in value.readers:
            target = batch_of[reader]
            k = device[target]
            if k == device[source]:
                add(source, target)
                continue
            edge = edge_of[value.task, reader]
            if k not in first:
                first[k] = m + len(sends)
                sends.append(Send(number, source, k))
                behind.append([])
                waits.append(0)
                keys.append((0, place.get(edge, -1), edge, number))  # as soon as it may be sent
                add(source, first[k])
            elif edge in place:
                was = keys[first[k]]
                keys[first[k]] = (0, place[edge] if was[1] < 0 else min(was[1], place[edge]), was[2], number)
            add(first[k], target)
    last: dict[tuple[int, int], int] = {}
    for batch in range(m):
        if duration[batch] > 0:
            if (device[batch], -1) in last:
                add(last[device[batch], -1], batch)
            last[device[batch], -1] = batch
    for node in sorted((node for node in range(m, len(keys)) if keys[node][1] >= 0), key=lambda node: (keys[node][1], node)):
        send = sends[node - m]
        port = device[send.batch], int(problem.links.resource[device[send.batch], send.to, 0])
        if port[1] >= 0:
            if port in last:
                add(last[port], node)
            last[port] = node
    heap = [(*keys[node], node) for node in range(len(keys)) if not waits[node]]
    heapq.heapify(heap)
    order: list[Run | Send] = []
    while heap:
        node = heapq.heappop(heap)[-1]
        order.append(Run(node) if node < m else sends[node - m])
        for other in behind[node]:
            waits[other] -= 1
            if not waits[other]:
                heapq.heappush(heap, (*keys[other], other))
    assert len(order) == len(keys)  # `starts` has refused deadlocks
    return tuple(order)


def _places(problem: Problem, decision: Decision, timing: TimedDecision) -> dict[int, int]:
    """Return the place of each edge in the explicit order of transfers; empty without one."""
    if not problem.links.contended or decision.transfer_order is None:
        return {}
    lasting = set(timing.arcs.edge[timing.arcs.seconds > 0].tolist())
    return {edge: place for place, edge in enumerate(decision.transfer_order[:, 0].tolist()) if edge in lasting}


def _steps(
    n_devices: int, decision: Decision, values: tuple[Value, ...], order: tuple[Run | Send, ...], batch_of: list[int]
) -> tuple[tuple[Step, ...], ...]:
    """Return the steps of each device: its part of the total order, with waits and drops."""
    tasks, device = decision.task.tolist(), decision.device.tolist()
    reads: list[list[int]] = [[] for _ in batch_of]
    makes: list[list[int]] = [[] for _ in batch_of]
    left: dict[tuple[int, int], int] = {}  # uses of a value on a device that are still to come
    for number, value in enumerate(values):
        makes[value.task].append(number)
        home = device[batch_of[value.task]]
        for reader in value.readers:
            reads[reader].append(number)
            k = device[batch_of[reader]]
            left[number, k] = left.get((number, k), 0) + 1
        if value.kept:
            left[number, home] = -1
    for step in order:
        if isinstance(step, Send):
            key = step.value, device[step.batch]
            left[key] = left.get(key, 0) + 1 if left.get(key, 0) >= 0 else -1
    steps: list[list[Step]] = [[] for _ in range(n_devices)]
    here: list[set[int]] = [set() for _ in range(n_devices)]

    def use(number: int, batch: int, k: int) -> None:
        uses = left.get((number, k), 0)
        if uses > 0:
            left[number, k] = uses - 1
        if uses in (0, 1):
            steps[k].append(Drop(number, batch))

    for step in order:
        k = device[step.batch]
        if isinstance(step, Send):
            steps[k].append(step)
            use(step.value, step.batch, k)
            continue
        task = tasks[step.batch]
        sources = [batch_of[values[number].task] for number in reads[task]]
        for number, source in zip(reads[task], sources, strict=True):
            if device[source] != k and number not in here[k]:
                here[k].add(number)
                steps[k].append(Wait(number, source))
        steps[k].append(step)
        for number, source in zip(reads[task], sources, strict=True):
            use(number, source, k)
        for number in makes[task]:
            if (number, k) not in left:  # without a reader
                use(number, step.batch, k)
    return tuple(map(tuple, steps))


def _most_held(tasks: list[int], inputs: int, values: tuple[Value, ...], steps: tuple[tuple[Step, ...], ...]) -> FloatArray:
    """Return the most bytes of values that each device holds after one of its steps, [K]."""
    made = [0.0] * (max(tasks, default=-1) + 1)
    for value in values:
        made[value.task] += value.bytes
    most = np.zeros(len(steps))
    for k, own in enumerate(steps):
        held = peak = 0.0
        for step in own:
            if isinstance(step, Run):
                held += made[tasks[step.batch]] * inputs
            elif isinstance(step, Wait):
                held += values[step.value].bytes * inputs
            elif isinstance(step, Drop):
                held -= values[step.value].bytes * inputs
            peak = max(peak, held)
        most[k] = peak
    return most
