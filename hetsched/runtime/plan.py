"""The plan of a decision: what each device does, step by step, so that a module can be run by it."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple, NoReturn, TypeAlias

import numpy as np

from hetsched.arguments import checked
from hetsched.arrays import FloatArray, Frozen, IntArray, readonly
from hetsched.errors import InvalidArgument, InvalidSchedule
from hetsched.problem.problem import Problem
from hetsched.schedule.arcs import Arcs
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
    """The batch that made it, or for which it was gathered."""


class Gather(NamedTuple):
    """Put a value together for the inputs of a batch, from those of other batches."""

    value: int
    batch: int
    """The first batch that reads it."""
    runs: tuple[tuple[int, int, int], ...]
    """In the order of the inputs: a batch that made the value, and the first place and number of the inputs taken from it."""


Step: TypeAlias = Run | Send | Wait | Drop | Gather
_KINDS = (Run, Send, Wait, Drop, Gather)


class Plan(Frozen):
    """The steps of each device under a decision.

    Each device takes its steps one after another. A batch runs when the steps before it are done, a value is sent to each
    device once, however many tasks there read it, right after its producer, or after the values that the decision's order
    of transfers puts first on the same channel or sending port of its device; a device waits for a value right before the
    first of its tasks that reads it, and drops it after the last. A value of several batches exists once for each; a batch of
    other inputs reads a copy that its device gathers for these inputs.

    Parameters
    ----------
    problem : Problem
    decision : Decision
    values : sequence of Value, optional
        What tasks read; each edge needs a value from its source to its target. Default: one value for each edge.

    Attributes
    ----------
    devices : tuple of str
    task, device : int64 array [m]
        Task and device of each batch of the decision.
    inputs : int
        Number L of inputs.
    items : tuple of tuples of int
        The inputs of each batch of the decision.
    values : tuple of Value
    order : tuple of Run and Send
        A total order of all batches and sends that precedence, the order of the batches of each device and the order of
        transfers permit; ties are in the order of simulated starts. Batches of zero length take no part in the order of
        their device.
    steps : tuple of tuples of Run, Send, Wait, Drop and Gather
        The steps of each device, in the order in which it takes them.
    carried : tuple of tuples of int
        The transfers that each of `sends` carries, as rows of ``simulate(problem, decision).transfers``, ascending.
    weight_bytes, peak_bytes : float64 array [K]
        Bytes of the weights of the tasks of each device; the most bytes that it holds at a time, weights included. Each value is
        taken to have a storage of its own: in captured modules views belong to the tasks that read them.
    digest : str
        The same for equal plans.

    Raises
    ------
    InvalidSchedule
        The decision breaks a rule or deadlocks, see `simulate`.
    """

    devices: tuple[str, ...]
    task: IntArray
    device: IntArray
    inputs: int
    items: tuple[tuple[int, ...], ...]
    values: tuple[Value, ...]
    order: tuple[Run | Send, ...]
    steps: tuple[tuple[Step, ...], ...]
    carried: tuple[tuple[int, ...], ...]
    weight_bytes: FloatArray
    peak_bytes: FloatArray
    digest: str

    @checked
    def __init__(self, problem: Problem, decision: Decision, values: Sequence[Value] | None = None) -> None:
        timing = TimedDecision(problem, decision)
        start, _ = timing.starts(timing.duration)
        listed = _edge_values(problem) if values is None else _checked_values(problem, values)
        ends, everything = decision.item_ptr.tolist(), decision.items.tolist()
        items = tuple(tuple(everything[a:b]) for a, b in pairwise(ends))
        arcs = _arcs_of_values(problem, timing.arcs, listed)
        order, carried = _total_order(problem, decision, timing, start, arcs)
        self._set_steps(
            devices=problem.cluster.names,
            task=readonly(decision.task),
            device=readonly(decision.device),
            inputs=problem.inputs,
            items=items,
            values=listed,
            order=order,
            steps=_steps(problem.n_devices, decision, items, listed, order, arcs),
            carried=carried,
            weight_bytes=_weights(problem, decision),
        )

    def _set_steps(
        self,
        devices: tuple[str, ...],
        task: IntArray,
        device: IntArray,
        inputs: int,
        items: tuple[tuple[int, ...], ...],
        values: tuple[Value, ...],
        order: tuple[Run | Send, ...],
        steps: tuple[tuple[Step, ...], ...],
        carried: tuple[tuple[int, ...], ...],
        weight_bytes: FloatArray,
    ) -> None:
        """Set all attributes: the given ones, the peak and the digest."""
        # Rows of different kinds may be equal as tuples, so the text has the kind of each.
        rows = [[(_KINDS.index(type(step)), *step) for step in own] for own in steps]
        data = (devices, inputs, task.tolist(), device.tolist(), items, [tuple(value) for value in values], [tuple(x) for x in order], rows)
        self._set(
            devices=devices,
            task=task,
            device=device,
            inputs=inputs,
            items=items,
            values=values,
            order=order,
            steps=steps,
            carried=carried,
            weight_bytes=weight_bytes,
            peak_bytes=weight_bytes + _most_held(task.tolist(), items, values, steps),
            digest=hashlib.sha256(repr(data).encode()).hexdigest(),
        )

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"<Plan of {len(self.task)} batches and {sum(type(x) is Send for x in self.order)} transfers on {len(self.devices)} devices>"

    @cached_property
    def sends(self) -> tuple[Send, ...]:
        """The sends, in the total order."""
        return tuple(step for step in self.order if isinstance(step, Send))

    @cached_property
    def gathered(self) -> frozenset[int]:
        """The values that are put together from several batches."""
        return frozenset(step.value for steps in self.steps for step in steps if isinstance(step, Gather))

    @cached_property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The different lists of inputs of batches, and last all inputs in order."""
        everything = tuple(range(self.inputs))
        return (*dict.fromkeys(own for own in self.items if own != everything), everything)

    @cached_property
    def group(self) -> tuple[int, ...]:
        """The place in `groups` of the inputs of each batch."""
        place = {own: g for g, own in enumerate(self.groups)}
        return tuple(place[own] for own in self.items)

    def made(self, value: int) -> dict[int, tuple[int, ...]]:
        """Return the batches that make a value, and the inputs of each."""
        return {batch: self.items[batch] for batch in np.flatnonzero(self.task == self.values[value].task).tolist()}

    def check(self) -> None:
        """Take all steps, each device as far as it can at a time; raise `InvalidSchedule` where that comes to a halt.

        A wait needs its value to have been sent to its device, a send its value to have been made, a batch the values that
        its task reads to be on its device for its inputs, which must not have been dropped. Every batch runs once.
        """
        tasks = self.task.tolist()
        reads: list[list[int]] = [[] for _ in range(max(tasks, default=-1) + 1)]
        makes: list[list[int]] = [[] for _ in reads]
        for number, value in enumerate(self.values):
            makes[value.task].append(number)
            for reader in value.readers:
                reads[reader].append(number)
        sent, ran = set[tuple[int, int, int]](), set[int]()
        here: list[set[tuple[int, tuple[int, ...]]]] = [set() for _ in self.steps]  # values, each for some inputs
        waiting = set[tuple[int, int, int]]()
        position, ready = [0] * len(self.steps), list(range(len(self.steps)))
        while ready:
            k = ready.pop()
            for step in self.steps[k][position[k] :]:
                own = self.items[step.batch]
                if isinstance(step, Wait):
                    if (*step, k) not in sent:
                        waiting.add((*step, k))
                        break
                    here[k].add((step.value, own))
                elif isinstance(step, Run):
                    if step.batch in ran:
                        self._refuse(k, f"{self._name(step.batch)} runs twice")
                    for value in reads[tasks[step.batch]]:
                        self._need(k, step.batch, value, own, here[k])
                    ran.add(step.batch)
                    here[k].update((value, own) for value in makes[tasks[step.batch]])
                elif isinstance(step, Send):
                    self._need(k, f"a transfer to {self.devices[step.to]!r}", step.value, own, here[k])
                    sent.add((step.value, step.batch, step.to))
                    if (step.value, step.batch, step.to) in waiting:
                        waiting.remove((step.value, step.batch, step.to))
                        ready.append(step.to)
                elif isinstance(step, Gather):
                    taken: list[int] = []
                    for source, first, count in step.runs:
                        self._need(k, "a gathering", step.value, self.items[source], here[k])
                        taken.extend(self.items[source][first : first + count])
                    if tuple(taken) != own:
                        self._refuse(k, f"{self.values[step.value].name!r} is gathered for the inputs {taken}, and {list(own)} are needed")
                    here[k].add((step.value, own))
                else:
                    self._need(k, "a release", step.value, own, here[k])
                    here[k].remove((step.value, own))
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

    def _need(self, k: int, what: str | int, value: int, own: tuple[int, ...], here: set[tuple[int, tuple[int, ...]]]) -> None:
        """Raise `InvalidSchedule` if a value is not there; `what` reads it, a batch if it is a number."""
        if (value, own) not in here:
            what = self._name(what) if isinstance(what, int) else what
            self._refuse(k, f"{what} needs {self.values[value].name!r}, which is not there")

    def _refuse(self, k: int, why: str) -> NoReturn:
        raise InvalidSchedule(f"the plan cannot be run: on {self.devices[k]!r} {why}; make it again from its decision")


def _weights(problem: Problem, decision: Decision) -> FloatArray:
    """Return the bytes of the weights of the tasks that run on each device, each once, [K]."""
    tasks, devices = np.unique(np.stack([decision.task, decision.device]), axis=1)
    return np.bincount(devices, problem.graph.weight_bytes[tasks], problem.n_devices).astype(np.float64)


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


class _Arc(NamedTuple):
    """Inputs of a batch that another one reads, along an edge."""

    edge: int
    source: int
    target: int
    row: int
    """Of the decision's transfers; -1 on one device."""
    lasting: bool


def _arcs_of_values(problem: Problem, arcs: Arcs, values: tuple[Value, ...]) -> list[list[_Arc]]:
    """Return the arcs along which each value is read."""
    row = np.where(arcs.moving, np.cumsum(arcs.moving) - 1, -1)
    of_edge: dict[tuple[int, int], list[_Arc]] = {}
    ends = problem.graph.edges.tolist()
    columns = (arcs.edge, arcs.source, arcs.target, row, arcs.seconds > 0)
    for found in map(_Arc, *(column.tolist() for column in columns)):
        source, target = ends[found.edge]
        of_edge.setdefault((source, target), []).append(found)
    return [[found for reader in value.readers for found in of_edge[value.task, reader]] for value in values]


def _total_order(
    problem: Problem, decision: Decision, timing: TimedDecision, start: FloatArray, arcs: list[list[_Arc]]
) -> tuple[tuple[Run | Send, ...], tuple[tuple[int, ...], ...]]:
    """Return the total order of batches and sends, see `Plan.order`, and the transfers that each of its sends carries."""
    m, device = decision.n_batches, decision.device.tolist()
    duration = timing.duration.tolist()
    places: dict[tuple[int, int, int], int] = {}
    if problem.links.contended and decision.transfer_order is not None:
        places = {(edge, source, target): place for place, (edge, source, target) in enumerate(decision.transfer_order.tolist())}
    sends: list[Send] = []
    carried: list[list[int]] = []
    keys: list[tuple[int, float, float, int]] = [  # of batches: by simulated start, those that finish first ahead
        (1, begin, begin + seconds, rank)
        for begin, seconds, rank in zip(start.tolist(), duration, problem.graph.rank[decision.task].tolist(), strict=True)
    ]
    behind: list[list[int]] = [[] for _ in range(m)]

    def add(a: int, b: int) -> None:
        behind[a].append(b)
        waits[b] += 1

    waits = [0] * m
    for number, own in enumerate(arcs):
        first: dict[tuple[int, int], int] = {}
        for edge, source, target, row, lasting in own:
            if row < 0:
                add(source, target)
                continue
            place = places.get((edge, source, target), -1) if lasting else -1
            to = device[target]
            node = first.setdefault((source, to), len(keys))
            if node == len(keys):
                sends.append(Send(number, source, to))
                carried.append([])
                behind.append([])
                waits.append(0)
                keys.append((0, place, edge, number))  # as soon as it may be sent
                add(source, node)
            elif place >= 0:
                was = keys[node]
                keys[node] = (0, place if was[1] < 0 else min(was[1], place), was[2], number)
            carried[node - m].append(row)
            add(node, target)
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
    order: list[int] = []
    while heap:
        node = heapq.heappop(heap)[-1]
        order.append(node)
        for other in behind[node]:
            waits[other] -= 1
            if not waits[other]:
                heapq.heappush(heap, (*keys[other], other))
    assert len(order) == len(keys)  # `starts` has refused deadlocks
    return (
        tuple(Run(node) if node < m else sends[node - m] for node in order),
        tuple(tuple(sorted(carried[node - m])) for node in order if node >= m),
    )


def _steps(
    n_devices: int,
    decision: Decision,
    items: tuple[tuple[int, ...], ...],
    values: tuple[Value, ...],
    order: tuple[Run | Send, ...],
    arcs: list[list[_Arc]],
) -> tuple[tuple[Step, ...], ...]:
    """Return the steps of each device: its part of the total order, with waits, gathers and drops."""
    sources: list[dict[int, list[int]]] = [{} for _ in items]  # of each batch, the batches that made each value that it reads
    for number, found in enumerate(arcs):
        for arc in found:
            sources[arc.target].setdefault(number, []).append(arc.source)
    tasks, device = decision.task.tolist(), decision.device.tolist()
    batches: list[list[int]] = [[] for _ in range(max(tasks, default=-1) + 1)]
    for batch, task in enumerate(tasks):
        batches[task].append(batch)
    left: dict[tuple[int, tuple[int, ...], int], int] = {}  # uses of a value for some inputs on a device that are still to come
    whole: list[set[int]] = [set() for _ in tasks]  # the values that a batch reads as one batch made them
    gathered = set[tuple[int, tuple[int, ...], int]]()

    def count(number: int, own: tuple[int, ...], k: int) -> None:
        left[number, own, k] = left.get((number, own, k), 0) + 1

    for batch, made_by in enumerate(sources):
        own, k = items[batch], device[batch]
        for number, makers in made_by.items():
            count(number, own, k)
            if len(makers) == 1 and items[makers[0]] == own:
                whole[batch].add(number)
            elif (number, own, k) not in gathered:
                gathered.add((number, own, k))
                for source in makers:
                    count(number, items[source], k)
    for step in order:
        if isinstance(step, Send):
            count(step.value, items[step.batch], device[step.batch])
    makes: list[list[int]] = [[] for _ in batches]
    for number, value in enumerate(values):
        makes[value.task].append(number)
        if value.kept:
            left.update(((number, items[batch], device[batch]), -1) for batch in batches[value.task])
    steps: list[list[Step]] = [[] for _ in range(n_devices)]
    here: list[set[tuple[int, int]]] = [set() for _ in range(n_devices)]
    maker: dict[tuple[int, tuple[int, ...], int], int] = {}

    def use(number: int, batch: int, k: int) -> None:
        key = number, items[batch], k
        uses = left.get(key, 0)
        if uses > 0:
            left[key] = uses - 1
        if uses in (0, 1):
            steps[k].append(Drop(number, batch))

    for step in order:
        batch = step.batch
        own, k = items[batch], device[batch]
        if isinstance(step, Send):
            steps[k].append(step)
            use(step.value, batch, k)
            continue
        for number, makers in sources[batch].items():
            for source in makers:
                if device[source] != k and (number, source) not in here[k]:
                    here[k].add((number, source))
                    steps[k].append(Wait(number, source))
        for number, makers in sources[batch].items():
            if number in whole[batch]:
                maker[number, own, k] = makers[0]
            elif (number, own, k) not in maker:
                maker[number, own, k] = batch
                steps[k].append(Gather(number, batch, runs_of(own, {source: items[source] for source in makers})))
                for source in makers:
                    use(number, source, k)
        steps[k].append(step)
        for number in sources[batch]:
            use(number, maker[number, own, k], k)
        for number in makes[tasks[batch]]:
            if (number, own, k) not in left:  # without a reader
                use(number, batch, k)
    return tuple(map(tuple, steps))


def runs_of(wanted: tuple[int, ...], batches: Mapping[int, tuple[int, ...]]) -> tuple[tuple[int, int, int], ...]:
    """Return where the inputs `wanted` are in batches: a batch, the first place, and how many inputs follow there."""
    place = {item: (source, number) for source, own in batches.items() for number, item in enumerate(own)}
    runs: list[tuple[int, int, int]] = []
    for item in wanted:
        source, number = place[item]
        if runs and runs[-1][0] == source and sum(runs[-1][1:]) == number:
            runs[-1] = (source, runs[-1][1], runs[-1][2] + 1)
        else:
            runs.append((source, number, 1))
    return tuple(runs)


def _most_held(
    tasks: list[int], items: tuple[tuple[int, ...], ...], values: tuple[Value, ...], steps: tuple[tuple[Step, ...], ...]
) -> FloatArray:
    """Return the most bytes of values that each device holds after one of its steps, [K]."""
    made = [0.0] * (max(tasks, default=-1) + 1)
    for value in values:
        made[value.task] += value.bytes
    most = np.zeros(len(steps))
    for k, own in enumerate(steps):
        held = peak = 0.0
        for step in own:
            count = len(items[step.batch])
            if isinstance(step, Run):
                held += made[tasks[step.batch]] * count
            elif isinstance(step, Wait | Gather):
                held += values[step.value].bytes * count
            elif isinstance(step, Drop):
                held -= values[step.value].bytes * count
            peak = max(peak, held)
        most[k] = peak
    return most
