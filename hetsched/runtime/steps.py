"""The steps of a plan that the threads of its devices take, with locks where one device waits for another."""

from __future__ import annotations

from _thread import LockType, allocate_lock
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch

from hetsched.runtime.code import Boxes, Tasks
from hetsched.runtime.plan import Drop, Gather, Plan, Run, Send, Wait
from hetsched.runtime.plan import Step as PlanStep
from hetsched.runtime.streams import Begin, Enqueue, Fetch, Finish, Handoff, Join, Post, Queues, Synchronise, segmented

RUN, WAIT, SEND, SHIP, DROP, TAKE, PASS, GATHER, ENQUEUE, FETCH, CALL, COMMIT = range(12)
"""Kinds of steps: SHIP sends a value to another process; TAKE and PASS hand on the turn of runs in which one device acts at a time.
ENQUEUE, FETCH and CALL are tasks, waits and others of devices with streams: functions of the turn, see `streams`. At a COMMIT
all devices wait for each other, after which the run cannot be aborted."""
Step = tuple[int, Any, int, int, Any, int]
"""A kind; a function, a lock, of COMMIT one for each device, or None; the batch or value; a device that receives, of GATHER the batch; a
send, of RUN the values to release before; the group of inputs. Large tensors take up to a millisecond to release: the time belongs to the
next task of the device."""
Work = tuple[list[list[Step]], list[LockType]]
"""The steps of each device, and their locks."""
AnyStep = TypeVar("AnyStep", bound=PlanStep)


def parallel_steps(plan: Plan, tasks: Tasks, queues: Sequence[Queues | None] = ()) -> Work:
    """Return the steps of each device and their locks: one for each send and, if there are updates, for each device."""
    queues = queues or [None] * len(plan.steps)
    index = {send: place for place, send in enumerate(plan.sends)}
    locks = [held() for _ in plan.sends]
    commits = [held() for _ in plan.steps] if tasks.updates else []
    steps: list[list[Step]] = []
    for k, own in enumerate(plan.steps):
        made = _Steps(plan, tasks, k, queues[k])
        early, late = _parted(plan, tasks, own)
        for step in early:
            group = plan.group[step.batch]
            if isinstance(step, Send):
                send = index[step]
                across = _across(step, k, group, queues)
                if across is None:
                    made.steps.append((SEND, locks[send], step.value, step.to, send, group))
                else:
                    made.steps.append((CALL, Post(across, send, locks[send]), step.value, step.to, send, group))
            elif isinstance(step, Wait):
                sent = Send(step.value, step.batch, k)
                send = index[sent]
                across = _across(sent, int(plan.device[step.batch]), group, queues)
                if across is None:
                    made.steps.append((WAIT, locks[send], step.value, 0, send, group))
                else:
                    made.steps.append((FETCH, Fetch(across, send, locks[send]), step.value, 0, send, group))
            else:
                made.add(step)
        if commits:
            made.steps.append((COMMIT, commits, 0, 0, 0, 0))
        for step in late:
            made.add(step)
        streams = queues[k]
        steps.append(made.ended() if streams is None or not streams.graphs else segmented(made.ended(), CALL, k, streams))
    return steps, [*locks, *commits]


def _parted(plan: Plan, tasks: Tasks, steps: Sequence[AnyStep]) -> tuple[list[AnyStep], list[AnyStep]]:
    """Return the steps before updates begin, and the updates with what is released from then on."""
    early, late = list[AnyStep](), list[AnyStep]()
    for step in steps:
        last = isinstance(step, Run) and int(plan.task[step.batch]) in tasks.updates
        (late if last or (late and isinstance(step, Drop)) else early).append(step)
    return early, late


def _across(send: Send, k: int, group: int, queues: Sequence[Queues | None]) -> Handoff | None:
    """Return the hand-off of a send from device k, or None where both devices are threads."""
    source, target = queues[k], queues[send.to]
    return None if source is None and target is None else Handoff(send.value, group, k, send.to, source, target)


def serial_steps(
    plan: Plan, tasks: Tasks, work: Work, queues: Sequence[Queues | None] = (), token: Callable[[int, int, LockType], Any] | None = None
) -> Work:
    """Return the steps of `parallel_steps` so that one device acts at a time, in the plan's order with updates last; with their locks.

    `token` is called with a device, the next one and a lock; what it returns is released by the first one, so that the other one can
    acquire the lock. By default that is the lock.
    """
    steps, locks = work[0], list(work[1])
    queues = queues or [None] * len(steps)
    made: list[list[Step]] = [[] for _ in steps]
    left = [iter(own) for own in steps]
    device = plan.device.tolist()
    current = -1
    for part in _parted(plan, tasks, plan.order):
        for batch in (step.batch for step in part):
            k = device[batch]
            if current not in (-1, k):
                acted = queues[current]
                if acted is not None:
                    made[current].append((CALL, Synchronise(acted), 0, 0, 0, 0))
                locks.append(held())
                given = locks[-1] if token is None else token(current, k, locks[-1])
                made[current].append((PASS, given, 0, 0, 0, 0))
                made[k].append((TAKE, locks[-1], 0, 0, 0, 0))
            current = k
            _move(left[k], made[k], lambda step: step[0] in (RUN, SEND, SHIP, ENQUEUE) or isinstance(step[1], Post))
        for rest, own in zip(left, made, strict=True):  # no device waits for its turn before all are at their COMMIT
            _move(rest, own, lambda step: step[0] == COMMIT)
    return made, locks


def _move(source: Iterator[Step], target: list[Step], last: Callable[[Step], bool]) -> None:
    """Move the steps up to the next one that is the last of its part, or all if there is none."""
    for step in source:
        target.append(step)
        if last(step):
            break


class _Steps:
    """The steps of a device as they are made; values are released by the next task."""

    def __init__(self, plan: Plan, tasks: Tasks, k: int, queues: Queues | None) -> None:
        self.plan, self.tasks, self.k, self.queues = plan, tasks, k, queues
        self.steps: list[Step] = [] if queues is None else [(CALL, Begin(k), 0, 0, 0, 0)]
        self.dead: list[tuple[int, int]] = []

    def add(self, step: PlanStep) -> None:
        """Add a step that needs no lock; others are passed over."""
        group = self.plan.group[step.batch]
        if isinstance(step, Run):
            task = int(self.plan.task[step.batch])
            works = self.tasks.works[task]
            dead = tuple(self.dead) if works else ()
            if self.queues is None:
                self.steps.append((RUN, self.tasks.functions[task], step.batch, 0, dead, group))
            else:
                function = self.queues.functions[task]
                self.steps.append((ENQUEUE, Enqueue(function, works, self.k, step.batch, dead, group), step.batch, 0, (), group))
            if works:
                self.dead = []
        elif isinstance(step, Gather):
            places = [(self.k, self.plan.group[source], first, count) for source, first, count in step.runs]
            gather = gathering(self.tasks.dimensions[step.value], step.value, places)
            if self.queues is None:
                self.steps.append((GATHER, gather, step.value, step.batch, 0, group))
            else:
                self.steps.append((CALL, Join(gather, self.k, step.value, step.batch, group), step.value, 0, 0, group))
        elif isinstance(step, Drop):
            self.dead.append((step.value, group))

    def ended(self) -> list[Step]:
        """Return the steps, and what releases the last values."""
        drops: list[Step] = [(DROP, None, value, self.k, 0, group) for value, group in self.dead]
        return self.steps + drops + ([] if self.queues is None else [(CALL, Finish(self.k, self.queues), 0, 0, 0, 0)])


def gathering(dim: int | None, register: int, places: Sequence[tuple[int, int, int, int]]) -> Callable[[Boxes], torch.Tensor]:
    """Return the function of all registers that puts a value together along a dimension; None: it is the same for all inputs.

    `places` are, in the order of the inputs, a device and a group that have the value, and the first place and number of the
    inputs taken from there.
    """

    def gather(boxes: Boxes) -> torch.Tensor:
        if dim is None:
            device, group, *_ = places[0]
            return boxes[device][group][register]  # type: ignore[no-any-return]
        return torch.cat([boxes[device][group][register].narrow(dim, first, count) for device, group, first, count in places], dim)

    return gather


def held() -> LockType:
    """Return a lock that is acquired."""
    lock = allocate_lock()
    lock.acquire()
    return lock
