"""The forecast of a run: the plan of a decision with the times of a problem and the overheads of a machine.

An event loop of its own: for a machine without overheads its times are those of `simulate`, which it does not call.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from hetsched.arguments import checked
from hetsched.arrays import Columns
from hetsched.costs.machine import Machine
from hetsched.costs.timeline import Timeline
from hetsched.problem.problem import Problem
from hetsched.runtime.plan import Gather, Plan, Run, Value
from hetsched.schedule.decision import Decision
from hetsched.schedule.schedule import Schedule
from hetsched.schedule.simulate import TimedDecision


@checked
def forecast(
    problem: Problem, decision: Decision | Schedule, machine: Machine | Timeline | None = None, *, values: Sequence[Value] | None = None
) -> Timeline:
    """Return the times that a run of a decision is expected to take.

    Durations, transfers and their contention are those of the problem. The machine adds its overheads to them: see `Overhead`.

    Parameters
    ----------
    problem : Problem
    decision : Decision or Schedule
    machine : hetsched.costs.Machine or hetsched.costs.Timeline, optional
        Of a timeline its machine, and the values that its messages carried. Default: no overheads; the schedule of the result is then
        that of `simulate`.
    values : sequence of Value, optional
        What tasks read. With ``machine.once`` a value crosses to each device once; default: one value for each edge.

    Raises
    ------
    InvalidSchedule, UnsupportedFeature
        See `Plan`; or the timeline is of another problem.
    InvalidProblem
        The machine has an overhead of a device that the problem does not have.
    """
    chosen = decision.decision if isinstance(decision, Schedule) else decision
    if isinstance(machine, Timeline):
        run, machine = machine, machine.machine
        run.problem(problem)  # raises for another one
        if values is None and machine is not None and machine.once:
            values = _values(problem, run)
    return _Forecast(problem, chosen, Machine() if machine is None else machine, Plan(problem, chosen, values)).timeline()


def _values(problem: Problem, measured: Timeline) -> list[Value]:
    """Return what tasks read as far as messages tell: the edges of one message carry one value, each other edge its own."""
    graph, moves = problem.graph, measured.schedule.transfers
    first = list(range(graph.n_edges))

    def find(edge: int) -> int:
        while first[edge] != edge:
            edge = first[edge]
        return edge

    sent = sorted(zip(measured.shipment.tolist(), moves.edge.tolist(), strict=True))
    for (one, a), (other, b) in pairwise(sent):
        if one == other:
            a, b = sorted((find(a), find(b)))
            first[b] = a
    groups: dict[int, list[int]] = {}
    for edge in range(graph.n_edges):
        groups.setdefault(find(edge), []).append(edge)
    return [
        Value(int(graph.source[own[0]]), f"value {number}", float(graph.edge_bytes[own].max()), tuple(sorted(graph.target[own].tolist())))
        for number, own in groups.items()
    ]


@dataclass(eq=False)
class _Message:
    """A transfer: of one edge, or of one value to one device."""

    number: int
    source: int
    targets: list[int]
    """The batches that read it, ascending."""
    rows: tuple[int, ...]
    """The transfers of the decision that it carries, ascending."""
    edge: int
    """Of the first one."""
    size: float
    """Bytes."""
    seconds: float
    place: float
    """Its place in the explicit order of transfers."""
    resources: list[int] = field(default_factory=list)
    ready: float = math.nan
    start: float = math.nan
    finish: float = math.nan
    received: bool = False
    """Whether a batch has spent the receiver's time on it."""

    @property
    def turn(self) -> tuple[float, int, int, int]:
        """Its place among the messages that wait."""
        return self.ready, self.source, self.edge, self.targets[0]


class _Forecast:
    """The state of the event loop."""

    def __init__(self, problem: Problem, decision: Decision, machine: Machine, plan: Plan) -> None:
        self.problem, self.decision, self.machine, self.plan = problem, decision, machine, plan
        m, names = decision.n_batches, problem.cluster.names
        self.device = decision.device.tolist()
        size = np.searchsorted(problem.batch_sizes, decision.sizes)
        self.duration: list[float] = problem.durations[decision.task, decision.device, size].tolist()
        self.overhead = machine.overheads(problem.cluster)
        self.start, self.finish, self.waited, self.gathered = [math.nan] * m, [math.nan] * m, [0.0] * m, [0.0] * m
        self.missing = [0] * m  # local parents and messages that each batch still waits for
        self.local: list[list[int]] = [[] for _ in range(m)]
        self.outgoing: list[list[_Message]] = [[] for _ in range(m)]
        self.incoming: list[list[_Message]] = [[] for _ in range(m)]
        arcs = TimedDecision(problem, decision).arcs
        for a, b, moving in zip(arcs.source.tolist(), arcs.target.tolist(), arcs.moving.tolist(), strict=True):
            if not moving:
                self.local[a].append(b)
                self.missing[b] += 1
        self.gathers: list[list[float]] = [[] for _ in range(m)]  # bytes of values put together for each batch
        for step in (step for own in plan.steps for step in own):
            if isinstance(step, Gather):
                self.gathers[step.batch].append(plan.values[step.value].bytes * len(plan.items[step.batch]))
        self.moving = Columns(**{name: getattr(arcs, name)[arcs.moving] for name in ("edge", "source", "target", "inputs", "seconds")})
        self.explicit = problem.links.contended and decision.transfer_order is not None
        self.messages = _messages(problem, decision, plan, machine.once, self.moving)
        for message in self.messages:
            self.outgoing[message.source].append(message)
            for b in message.targets:
                self.incoming[b].append(message)
                self.missing[b] += 1
        self.sequence: list[list[int]] = [[] for _ in names]  # of batches of some length, the next one last
        for step in reversed(plan.order):
            if isinstance(step, Run) and self.duration[step.batch] > 0:
                self.sequence[self.device[step.batch]].append(step.batch)
        self.idle_since = [0.0] * len(names)  # NaN while the device does something
        self.near = [[h for h in range(len(names)) if h != k and self._share_a_host(h, k)] for k in range(len(names))]
        self.computing: list[_Computing | None] = [None] * len(names)
        self.asking: dict[str, deque[int]] = {}  # batches for their interpreter; the first one is being dispatched
        self.holder: list[_Message | None] = [None] * problem.links.n_resources
        self.queue: list[list[_Message]] = [[] for _ in self.holder]  # under an explicit order, the next one last
        if self.explicit:
            for message in sorted(self.messages, key=lambda message: message.place, reverse=True):
                for resource in message.resources:
                    self.queue[resource].append(message)
        self.waiting: list[_Message] = []
        self.instant: list[int] = [b for b in range(m) if self.duration[b] == 0 and not self.missing[b]]
        self.events: list[tuple[float, int, Callable[[float], None]]] = []
        self.count = 0

    def _share_a_host(self, h: int, k: int) -> bool:
        a, b = self.problem.cluster.devices[h], self.problem.cluster.devices[k]
        host = self.overhead[h].host
        return (bool(a.node) and a.node == b.node) or (host is not None and host == self.overhead[k].host)

    def run(self) -> None:
        """Process all events."""
        now = 0.0
        while True:
            while self.instant:
                self._pass(self.instant.pop(), now)
            for k in range(len(self.sequence)):
                self._take(k, now)
            self._serve(now)
            if self.instant:
                continue
            if not self.events:
                break
            now = self.events[0][0]
            while self.events and self.events[0][0] <= now:
                heapq.heappop(self.events)[2](now)
        assert not any(map(math.isnan, self.finish))  # the plan has refused deadlocks

    def _after(self, seconds: float, now: float, act: Callable[[float], None]) -> None:
        """Do something after some seconds; at once after none."""
        if seconds > 0:
            self.count += 1
            heapq.heappush(self.events, (now + seconds, self.count, act))
        else:
            act(now)

    # ------------------------------------------------------------------ batches

    def _pass(self, b: int, now: float) -> None:
        """Run a batch of zero length."""
        self.start[b] = self.finish[b] = now
        self._release(b)
        for message in self.outgoing[b]:
            self._post(message, now)

    def _take(self, k: int, now: float) -> None:
        """Let an idle device take its next batch if its data is there."""
        if math.isnan(self.idle_since[k]) or not self.sequence[k] or self.missing[self.sequence[k][-1]]:
            return
        b = self.sequence[k].pop()
        self.waited[b], self.idle_since[k] = now - self.idle_since[k], math.nan
        seconds, (fixed, per_byte) = 0.0, self.overhead[k].receive
        for message in self.incoming[b]:
            if not message.received:
                message.received = True
                seconds += fixed + per_byte * message.size
        fixed, per_byte = self.overhead[k].gather
        self.gathered[b] = sum(fixed + per_byte * size for size in self.gathers[b])
        self._after(seconds + self.gathered[b], now, lambda now: self._ask(b, now))

    def _ask(self, b: int, now: float) -> None:
        """Ask the interpreter to dispatch a batch."""
        overhead = self.overhead[self.device[b]]
        if overhead.host is None:
            self._dispatch(b, now)
            return
        asking = self.asking.setdefault(overhead.host, deque())
        asking.append(b)
        if len(asking) == 1:
            self._after(overhead.dispatch_python, now, lambda now: self._dispatched(asking, now))

    def _dispatched(self, asking: deque[int], now: float) -> None:
        self._dispatch(asking.popleft(), now)
        if asking:
            seconds = self.overhead[self.device[asking[0]]].dispatch_python
            self._after(seconds, now, lambda now: self._dispatched(asking, now))

    def _dispatch(self, b: int, now: float) -> None:
        self._after(self.overhead[self.device[b]].dispatch, now, lambda now: self._compute(b, now))

    def _compute(self, b: int, now: float) -> None:
        k = self.device[b]
        self.start[b] = now
        state = self.computing[k] = _Computing(b, self.duration[b], now, self._factor(k))
        self._expect(k, state)
        self._tell_others(k, now)

    def _factor(self, k: int) -> float:
        return 1.0 + (self.overhead[k].busy - 1.0) * sum(self.computing[h] is not None for h in self.near[k])

    def _expect(self, k: int, state: _Computing) -> None:
        """Finish the batch of a device when it is over, unless its factor changes before."""
        self.count += 1
        end = state.since + state.left * state.factor

        def finish(now: float) -> None:
            if self.computing[k] is state:
                self._end(k, state.batch, now)

        heapq.heappush(self.events, (end, self.count, finish))

    def _tell_others(self, k: int, now: float) -> None:
        """Change the factors of the devices beside one that has begun or ended a batch."""
        for h in self.near[k]:
            state = self.computing[h]
            if state is not None and (factor := self._factor(h)) != state.factor:
                left = max(0.0, state.left - (now - state.since) / state.factor)
                changed = self.computing[h] = _Computing(state.batch, left, now, factor)
                self._expect(h, changed)

    def _end(self, k: int, b: int, now: float) -> None:
        """Finish a batch: its device sends its messages one after another, and is idle then."""
        self.finish[b] = now
        self.computing[k] = None
        self._tell_others(k, now)
        self._release(b)
        seconds, (fixed, per_byte) = 0.0, self.overhead[k].send
        for message in self.outgoing[b]:
            seconds += fixed + per_byte * message.size
            self._after(seconds, now, partial(self._post, message))

        def rest(now: float) -> None:
            self.idle_since[k] = now

        self._after(seconds, now, rest)

    def _release(self, b: int) -> None:
        for other in self.local[b]:
            self._miss_less(other)

    def _miss_less(self, b: int) -> None:
        self.missing[b] -= 1
        if not self.missing[b] and self.duration[b] == 0:
            self.instant.append(b)

    # ------------------------------------------------------------------ messages

    def _post(self, message: _Message, now: float) -> None:
        """Take a message to its link; one that holds no resource starts at once."""
        message.ready = now
        if message.resources:
            self.waiting.append(message)
        else:
            self._begin(message, now)

    def _serve(self, now: float) -> None:
        """Start the waiting messages whose resources are free, in the explicit order or by their turns."""
        if self.waiting:
            self.waiting.sort(key=lambda message: message.turn)
            self.waiting = [message for message in self.waiting if not self._served(message, now)]

    def _served(self, message: _Message, now: float) -> bool:
        for resource in message.resources:
            if self.holder[resource] is not None or (self.explicit and self.queue[resource][-1] is not message):
                return False
        for resource in message.resources:
            self.holder[resource] = message
            if self.explicit:
                self.queue[resource].pop()
        self._begin(message, now)
        return True

    def _begin(self, message: _Message, now: float) -> None:
        message.start = now
        self._after(message.seconds, now, partial(self._arrive, message))

    def _arrive(self, message: _Message, now: float) -> None:
        message.finish = now
        for resource in message.resources:
            self.holder[resource] = None
        for b in message.targets:
            self._miss_less(b)

    # ------------------------------------------------------------------ result

    def timeline(self) -> Timeline:
        """Process all events and return the times."""
        self.run()
        problem, decision = self.problem, self.decision
        moving = self.moving
        served: list[list[_Message]] = [[] for _ in moving.edge]
        for message in self.messages:
            for row in message.rows:
                served[row].append(message)
        batches = Columns(
            task=decision.task,
            device=decision.device,
            start=np.array(self.start, np.float64),
            finish=np.array(self.finish, np.float64),
            size=decision.sizes,
        )
        transfers = Columns(
            edge=moving.edge,
            source=moving.source,
            target=moving.target,
            start=np.array([min(message.start for message in own) for own in served], np.float64),
            finish=np.array([max(message.finish for message in own) for own in served], np.float64),
        )
        schedule = Schedule.of_problem(
            problem.graph.names,
            problem.cluster.names,
            problem.inputs,
            batches,
            decision.item_ptr,
            decision.items,
            transfers,
            transfer_order=decision.transfer_order,
        )
        return Timeline(
            schedule,
            cpu=np.full(decision.n_batches, np.nan),
            waited=np.array(self.waited, np.float64),
            gathered=np.array(self.gathered, np.float64),
            seen=np.ones(len(served), bool),
            shipment=np.array([own[0].number for own in served], np.int64),
            durations=(batches.finish - batches.start)[None],
            lengths=(transfers.finish - transfers.start)[None],
            makespans=[schedule.makespan],
            measured=False,
            machine=self.machine,
            plan_digest=self.plan.digest,
        )


class _Computing(NamedTuple):
    """A batch that a device computes, since a time with a factor, and the seconds left then without the factor."""

    batch: int
    left: float
    since: float
    factor: float


def _messages(problem: Problem, decision: Decision, plan: Plan, once: bool, moving: Columns) -> list[_Message]:
    """Return one message for each transfer of the decision, or for each send of the plan."""
    graph, device = problem.graph, decision.device
    ends = list(zip(moving.edge.tolist(), moving.source.tolist(), moving.target.tolist(), strict=True))
    seconds, inputs = moving.seconds.tolist(), moving.inputs.tolist()
    place = [math.inf] * len(ends)
    if problem.links.contended and decision.transfer_order is not None:
        position = {row: number for number, row in enumerate(map(tuple, decision.transfer_order.tolist()))}
        place = [position.get(row, math.inf) for row in ends]
    if not once:
        made = [
            _Message(x, source, [target], (x,), edge, float(graph.edge_bytes[edge]) * inputs[x], seconds[x], place[x])
            for x, (edge, source, target) in enumerate(ends)
        ]
    else:
        carriers = Counter(row for rows in plan.carried for row in rows)
        made = []
        for number, (send, rows) in enumerate(zip(plan.sends, plan.carried, strict=True)):
            size = plan.values[send.value].bytes * len(plan.items[send.batch])
            if problem.transfers is None and any(carriers[x] > 1 for x in rows):  # by its own bytes
                h, k = (problem.cluster.names[x] for x in (int(device[send.batch]), send.to))
                spent = problem.transfer_time(plan.values[send.value].bytes if problem.links.per_input else size, h, k)
            else:
                spent = max(seconds[x] / carriers[x] for x in rows)
            where = min((place[x] for x in rows if seconds[x] > 0), default=math.inf)
            readers = sorted({ends[x][2] for x in rows})
            made.append(_Message(number, send.batch, readers, rows, ends[rows[0]][0], size, spent, where))
    for message in made:
        if problem.links.contended and message.seconds > 0:
            held = problem.links.resource[device[message.source], device[message.targets[0]]].tolist()
            message.resources = sorted({resource for resource in held if resource >= 0})
    return made
