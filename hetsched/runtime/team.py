"""Threads that take the steps of a plan together, one for each device."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from _thread import LockType, allocate_lock
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

import torch

from hetsched.errors import Cancelled, warn
from hetsched.runtime.code import Compiled, Registers
from hetsched.runtime.places import Place
from hetsched.runtime.plan import Drop, Gather, Plan, Run, Send, Wait
from hetsched.runtime.plan import Step as PlanStep

RUN, WAIT, SEND, DROP, PUT, TAKE, PASS, GATHER, COMMIT = range(9)
"""Kinds of steps: PUT delivers a value without notice; TAKE and PASS hand on the turn of runs in which one device acts at a time; at a
COMMIT all devices wait for each other, after which the run cannot be aborted."""
PAUSE = 1e-3
"""Seconds between two looks at whether a run that cannot be aborted has ended."""
LONGEST_END = 5.0
"""Seconds in which threads have to end when an executor is closed."""
Step = tuple[int, Any, int, int, Any, int]
"""A kind; a function, a lock, of COMMIT one for each device, or None; the batch or value; a device that receives, of GATHER the batch; a
send, of PUT the device that gives, of RUN the values to release before; the group of inputs. Large tensors take up to a millisecond to
release: the time belongs to the next task of the device."""


Work = tuple[list[list[Step]], list[LockType]]
"""The steps of each device, and their locks."""


AnyStep = TypeVar("AnyStep", bound=PlanStep)


class _Stopped(Exception):
    """Another device has failed."""


@dataclass
class Turn:
    """One run of all steps, its data and its times in nanoseconds; -1 where nothing has happened yet."""

    steps: Sequence[Sequence[Step]]
    registers: list[list[Registers]]
    """Of each device, those of each group of inputs."""
    locks: Sequence[LockType]
    n_batches: int
    n_sends: int
    cpu_clocks: Sequence[Callable[[], int] | None]
    copies: bool = False
    autocast: torch.dtype | None = None
    stop: bool = False
    over: bool = False
    """Whether the run has ended well: no longer can it be aborted, nor its locks be released, which serve the next run."""
    error: BaseException | None = None
    failed: tuple[int, int] | None = None
    """Device, and step, of the error if it is a task's."""
    began: int = 0
    posting: Callable[[int], None] | None = None
    """What is called with the device to which a value has been sent."""
    commit: Callable[[list[list[Registers]]], None] | None = None
    """What is called with all registers when every device is at its COMMIT."""
    committed: bool = False
    guard: threading.RLock = field(default_factory=threading.RLock)
    """Reentrant, for handlers of signals that cancel a run."""

    def __post_init__(self) -> None:
        count = len(self.steps)
        self.start, self.finish, self.waited, self.cpu = ([-1] * self.n_batches for _ in range(4))
        self.gathered = [0] * self.n_batches
        self.posted, self.seen = [-1] * self.n_sends, [-1] * self.n_sends
        self.at, self.ended = [0] * count, [-1] * count
        self.done = [_held() for _ in range(count)]
        self.left, self.news, self.arrived = count, _held(), 0
        if not count:
            self.news.release()

    def abort(self, error: BaseException, failed: tuple[int, int] | None = None) -> None:
        """Let every device stop at its next task, because of the first error that is given; nothing happens after the run.

        Once the run is committed, only the error of a task has an effect.
        """
        with self.guard:
            if self.over or self.error is not None or (self.committed and failed is None):
                return
            self.stop = True
            for lock in (*self.locks, self.news):
                with contextlib.suppress(RuntimeError):  # its producer was first
                    lock.release()
            self.error, self.failed = error, failed  # last, so that after an interrupt in between all is done again

    def wait(self, timeout: float) -> bool:
        """Return whether all devices have ended, or one has failed, within the time; then the run is over or has an error."""
        if not self.news.acquire(timeout=min(timeout, threading.TIMEOUT_MAX)):
            return False
        with self.guard:
            self.over = not self.stop
        return True

    def complete(self) -> None:
        """If the run is committed, wait for its end, whatever happens meanwhile."""
        while self.committed and self.error is None and not self.over:
            with contextlib.suppress(BaseException):  # a second interrupt
                if self.left:
                    time.sleep(PAUSE)
                else:
                    self.over = True

    def settle(self, timeout: float) -> None:
        """After an error, wait until all devices have ended, but no longer than that; then forget all values."""
        end = time.perf_counter() + timeout
        for lock in self.done:
            if not lock.acquire(timeout=max(end - time.perf_counter(), 0.0)):
                break
        for own in self.registers:
            for box in own:
                box[:] = [None] * len(box)

    def advance(self, k: int, until: Callable[[], bool] | None = None) -> None:
        """Take the steps of device k, on its thread.

        With `until` it does not wait for a value that has not arrived, and begins no task when that returns True; it goes on there
        when it is called again.
        """
        ended = True
        try:
            with _autocast(self.autocast):
                ended = self._take(k, until)
        except _Stopped:
            pass
        except BaseException as error:
            self.abort(error, (k, self.at[k]))
        finally:
            if ended:
                self.ended[k] = time.perf_counter_ns()
                self.done[k].release()
                with self.guard:
                    self.left -= 1
                    if self.left == 0 and not self.stop:
                        self.news.release()

    def _take(self, k: int, until: Callable[[], bool] | None) -> bool:
        """Take steps, see `advance`; return whether all have been taken."""
        clock, cpu_clock, at = time.perf_counter_ns, self.cpu_clocks[k], self.at
        boxes, own, copies = self.registers, self.registers[k], self.copies
        start, finish, cpu, posted, seen = self.start, self.finish, self.cpu, self.posted, self.seen
        waited = before = 0
        for number, (kind, what, a, b, c, g) in enumerate(islice(self.steps[k], at[k], None), at[k]):
            at[k] = number
            if kind == RUN:
                if self.stop:
                    raise _Stopped
                if until is not None and until():
                    return False
                self.waited[a], waited = waited, 0
                if cpu_clock is not None:
                    before = cpu_clock()
                start[a] = clock()
                for value, group in c:
                    own[group][value] = None
                what(own[g])
                finish[a] = clock()
                if cpu_clock is not None:
                    cpu[a] = cpu_clock() - before
            elif kind == DROP:
                boxes[b][g][a] = None
            elif kind == SEND:
                boxes[b][g][a] = own[g][a]
                posted[c] = clock()
                self._release(what)
                if self.posting is not None:
                    self.posting(b)
            elif kind == WAIT:
                if not what.acquire(False):
                    if until is not None:
                        return False
                    before = clock()
                    what.acquire()
                    seen[c] = clock()
                    waited += seen[c] - before
                if self.stop:
                    raise _Stopped
                if copies:
                    own[g][a] = own[g][a].clone()
            elif kind == GATHER:
                before = clock()
                own[g][a] = what(boxes)
                self.gathered[b] += clock() - before
            elif kind == PUT:
                value = boxes[c][g][a]
                boxes[b][g][a] = value.clone() if copies else value
            elif kind == TAKE:
                what.acquire()
                if self.stop:
                    raise _Stopped
            elif kind == COMMIT:
                self._commit(what)
                what[k].acquire()
                if self.stop:
                    raise _Stopped
            else:
                self._release(what)
        return True

    def _commit(self, locks: Sequence[LockType]) -> None:
        """Count a device that has arrived; the last one commits the run and releases all."""
        with self.guard:
            if self.stop:
                raise _Stopped
            self.arrived += 1
            if self.arrived == len(locks):
                if self.commit is not None:
                    self.commit(self.registers)
                self.committed = True
                for lock in locks:
                    lock.release()

    def _release(self, lock: LockType) -> None:
        try:
            lock.release()
        except RuntimeError:
            if not self.stop:  # else `abort` was first
                raise
            raise _Stopped from None


class Stream:
    """Turns of several inputs at once: each device goes on with the oldest of them whose data is there.

    So a device that waits for data of one input works on the next ones. Data that arrives is looked at after each task.

    Parameters
    ----------
    count : int
        Number of devices.
    """

    def __init__(self, count: int) -> None:
        self.turns: tuple[Turn, ...] = ()
        """Those in progress, the oldest first."""
        self.ended = [-1] * count
        self.closed = False
        self.guard = threading.RLock()
        self._done = [_held() for _ in range(count)]
        self._news = [False] * count
        self._wakes = [_held() for _ in range(count)]

    def admit(self, turn: Turn) -> None:
        """Begin a turn, behind those in progress."""
        turn.posting = self._tell
        turn.began = time.perf_counter_ns()
        with self.guard:
            self.turns = (*self.turns, turn)
            closed = self.closed
        if closed:
            turn.abort(Cancelled("the stream was closed"))
        self._tell_all()

    def remove(self, turn: Turn) -> None:
        """Take a turn that is over from those in progress."""
        with self.guard:
            self.turns = tuple(other for other in self.turns if other is not turn)

    def abort(self, error: BaseException) -> None:
        """End all turns in progress with an error, and the stream."""
        with self.guard:
            self.closed = True
            turns = self.turns
        for turn in turns:
            turn.abort(error)
        self._tell_all()

    def close(self) -> None:
        """Let the devices return from `advance`, once all turns have ended, and wait for that."""
        self.closed = True
        self._tell_all()
        for lock in self._done:
            lock.acquire(timeout=LONGEST_END)

    def advance(self, k: int) -> None:
        """Take the steps of device k of all turns, on its thread, until the stream is closed."""
        news, wake = self._news, self._wakes[k]

        def arrived() -> bool:
            return news[k]

        while True:
            news[k] = False
            for turn in self.turns:
                if turn.ended[k] < 0:
                    turn.advance(k, arrived)
                    if news[k]:
                        break
            else:
                if self.closed:
                    break
                wake.acquire()
        self.ended[k] = time.perf_counter_ns()
        self._done[k].release()

    def _tell(self, k: int) -> None:
        self._news[k] = True
        with contextlib.suppress(RuntimeError):  # it knows
            self._wakes[k].release()

    def _tell_all(self) -> None:
        for k in range(len(self._wakes)):
            self._tell(k)


class Team:
    """Threads of devices, which take the steps of one turn after another until they are closed.

    The threads are daemons. Each has its number of torch threads, and its cores before its first operator, so that the threads of
    its operators inherit them. Those of the calling thread stay as they are.

    Parameters
    ----------
    places : sequence of Place
    work : tuple
        Steps and locks of the turns that are repeated.
    """

    def __init__(self, places: Sequence[Place], work: Work) -> None:
        self.work = work
        self.places, self.closed, self.guard = tuple(places), False, threading.RLock()
        self.turn: Turn | Stream | None = None
        self.failures: list[BaseException] = []
        self.wakes = [_held() for _ in places]
        self._up = [_held() for _ in places]
        former = torch.get_num_threads()
        self.threads = []
        try:
            for k, place in enumerate(places):
                thread = threading.Thread(target=_serve, args=(self, k), name=f"hetsched-{place.name}", daemon=True)
                thread.start()
                self.threads.append(thread)
                self._up[k].acquire()  # one after another: each sets a default of the process for a moment
        except BaseException:
            self.leave()
            raise
        finally:
            if OWN_THREADS:
                torch.set_num_threads(former)
        if self.failures:
            self.close()
            raise self.failures[0]

    def start(self, turn: Turn | Stream) -> None:
        """Let all threads take the steps of a turn or of a stream; raise `Cancelled` if they have been closed."""
        with self.guard:
            if self.closed:
                raise Cancelled("the executor was closed")
            self.turn = turn
            if isinstance(turn, Turn):
                turn.began = time.perf_counter_ns()
            for lock in self.wakes:
                lock.release()

    def close(self) -> None:
        """End the threads; those that are in a task end after it."""
        self.leave()
        turn = self.turn
        if turn is not None:
            turn.abort(Cancelled("the executor was closed during a run"))
        end = time.perf_counter() + LONGEST_END
        for thread in self.threads:
            if thread is not threading.current_thread():
                thread.join(max(end - time.perf_counter(), 0.0))

    def leave(self) -> None:
        """Let the threads end on their own, without waiting for a task that hangs."""
        with self.guard:
            self.closed = True
            for lock in self.wakes:
                with contextlib.suppress(RuntimeError):
                    lock.release()


def _serve(team: Team, k: int) -> None:
    """Take the steps of device k of one turn after another."""
    place = team.places[k]
    try:
        if place.cores is not None:
            os.sched_setaffinity(0, place.cores)
        if OWN_THREADS:
            torch.get_num_threads()  # takes over the default of the process, which must not happen later
            torch.set_num_threads(place.threads)
    except BaseException as error:
        team.failures.append(error)
    team._up[k].release()
    with torch.no_grad():
        while True:
            team.wakes[k].acquire()
            turn = team.turn
            if turn is not None and turn.ended[k] < 0:
                turn.advance(k)
            del turn
            if team.closed:
                return


def warn_unequal(places: Sequence[Place]) -> None:
    """Warn where devices cannot have their own numbers of threads."""
    number = torch.get_num_threads()
    others = [place for place in places if place.threads != number]
    if others and not OWN_THREADS:
        warn(
            f"device {others[0].name!r} has {others[0].threads} threads, but this build of torch has one number for all threads of the "
            f"process, {number}; set that by torch.set_num_threads"
        )


def parallel_steps(plan: Plan, compiled: Compiled) -> Work:
    """Return the steps of each device and their locks, one for each send."""
    index = {send: place for place, send in enumerate(plan.sends)}
    locks = [_held() for _ in plan.sends]
    commits = _commits(plan, compiled)
    steps: list[list[Step]] = []
    for k, own in enumerate(plan.steps):
        made = _Steps(plan, compiled, k)
        early, late = _parted(plan, compiled, own)
        for step in early:
            group = plan.group[step.batch]
            if isinstance(step, Send):
                send = index[step]
                made.steps.append((SEND, locks[send], step.value, step.to, send, group))
            elif isinstance(step, Wait):
                send = index[Send(step.value, step.batch, k)]
                made.steps.append((WAIT, locks[send], step.value, 0, send, group))
            else:
                made.add(step)
        made.commit(commits)
        for step in late:
            made.add(step)
        steps.append(made.ended())
    return steps, [*locks, *commits]


def serial_steps(plan: Plan, compiled: Compiled) -> Work:
    """Return steps in which one device acts at a time, in the plan's order, and the locks by which they take turns."""
    device = plan.device.tolist()
    made = [_Steps(plan, compiled, k) for k in range(len(plan.steps))]
    commits = _commits(plan, compiled)
    locks = list(commits)
    position = [0] * len(plan.steps)
    current = -1
    parts = [_parted(plan, compiled, own) for own in plan.steps]
    early, late = _parted(plan, compiled, plan.order)
    for number, step in enumerate([*early, *late]):
        if number == len(early):
            for one, (own, _) in zip(made, parts, strict=True):
                for other in own[position[one.k] :]:
                    one.add(other)
                position[one.k] = len(own)
                one.commit(commits)
        k = device[step.batch]
        if isinstance(step, Run):
            if current not in (-1, k):
                locks.append(_held())
                made[current].steps.append((PASS, locks[-1], 0, 0, 0, 0))
                made[k].steps.append((TAKE, locks[-1], 0, 0, 0, 0))
            current = k
        else:
            made[current].steps.append((PUT, None, step.value, step.to, k, plan.group[step.batch]))
        own = [*parts[k][0], *parts[k][1]]
        while own[position[k]] != step or type(own[position[k]]) is not type(step):
            made[k].add(own[position[k]])
            position[k] += 1
        made[k].add(step)
        position[k] += 1
        while position[k] < len(own) and isinstance(own[position[k]], Drop):
            made[k].add(own[position[k]])
            position[k] += 1
    return [one.ended() for one in made], locks


class _Steps:
    """The steps of a device as they are made; values are released by the next task."""

    def __init__(self, plan: Plan, compiled: Compiled, k: int) -> None:
        self.plan, self.compiled, self.k = plan, compiled, k
        self.steps: list[Step] = []
        self.dead: list[tuple[int, int]] = []

    def add(self, step: PlanStep) -> None:
        """Add a step that needs no lock; others are passed over."""
        group = self.plan.group[step.batch]
        if isinstance(step, Run):
            task = int(self.plan.task[step.batch])
            works = bool(self.compiled.steps[task])
            self.steps.append((RUN, self.compiled.functions[task], step.batch, 0, tuple(self.dead) if works else (), group))
            if works:
                self.dead = []
        elif isinstance(step, Gather):
            places = [(self.k, self.plan.group[source], first, count) for source, first, count in step.runs]
            self.steps.append((GATHER, gathering(self.compiled, step.value, places), step.value, step.batch, 0, group))
        elif isinstance(step, Drop):
            self.dead.append((step.value, group))

    def commit(self, locks: Sequence[LockType]) -> None:
        """Add the wait for the other devices, if there are updates."""
        if locks:
            self.steps.append((COMMIT, locks, 0, 0, 0, 0))

    def ended(self) -> list[Step]:
        """Return the steps, and what releases the last values."""
        return self.steps + [(DROP, None, value, self.k, 0, group) for value, group in self.dead]


def _commits(plan: Plan, compiled: Compiled) -> list[LockType]:
    """Return one lock for each device if the program has updates."""
    return [_held() for _ in plan.steps] if compiled.program.updates else []


def _parted(plan: Plan, compiled: Compiled, steps: Sequence[AnyStep]) -> tuple[list[AnyStep], list[AnyStep]]:
    """Return the steps before updates begin, and the updates with what is released from then on."""
    updates, early, late = compiled.program.updates, list[AnyStep](), list[AnyStep]()
    for step in steps:
        last = isinstance(step, Run) and int(plan.task[step.batch]) in updates
        (late if last or (late and isinstance(step, Drop)) else early).append(step)
    return early, late


def gathering(
    compiled: Compiled, register: int, places: Sequence[tuple[int, int, int, int]]
) -> Callable[[Sequence[Sequence[Registers]]], torch.Tensor]:
    """Return the function of all registers that puts a value together.

    `places` are, in the order of the inputs, a device and a group that have the value, and the first place and number of the
    inputs taken from there.
    """
    dim = compiled.dimension(register)

    def gather(boxes: Sequence[Sequence[Registers]]) -> torch.Tensor:
        if dim is None:
            device, group, *_ = places[0]
            return boxes[device][group][register]  # type: ignore[no-any-return]
        return torch.cat([boxes[device][group][register].narrow(dim, first, count) for device, group, first, count in places], dim)

    return gather


def _held() -> LockType:
    lock = allocate_lock()
    lock.acquire()
    return lock


@contextlib.contextmanager
def _autocast(dtype: torch.dtype | None) -> Iterator[None]:
    if dtype is None:
        yield
        return
    with torch.autocast("cpu", dtype=dtype):
        yield


OWN_THREADS = "backend: OpenMP" in torch.__config__.parallel_info()
"""Whether each thread has its own number of torch threads."""
