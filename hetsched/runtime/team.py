"""Threads that take the steps of a plan together, one for each device."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from _thread import LockType
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import torch

from hetsched.arrays import FloatArray
from hetsched.costs.timeline import RunTimes
from hetsched.errors import Cancelled, warn
from hetsched.runtime.code import Boxes
from hetsched.runtime.places import Place
from hetsched.runtime.steps import COMMIT, DROP, GATHER, PASS, RUN, SEND, SHIP, TAKE, WAIT, Step, held
from hetsched.runtime.streams import Queues, Stopped, Timer

POLL = 1e-4
"""Seconds after which a device of a stream of inputs that has nothing else to do looks for the end of other devices' work."""
PAUSE = 1e-3
"""Seconds between two looks at whether a run that cannot be aborted has ended."""
LONGEST_END = 5.0
"""Seconds in which threads have to end when an executor is closed."""


@dataclass
class Turn:
    """One run of all steps, its data and its times in nanoseconds; -1 where nothing has happened yet."""

    steps: Sequence[Sequence[Step]]
    registers: Boxes
    locks: Sequence[LockType]
    n_batches: int
    n_sends: int
    cpu_clocks: Sequence[Callable[[], int] | None]
    copies: bool = False
    autocast: Sequence[tuple[str, torch.dtype] | None] = ()
    """Of each device, the kind and type of autocast."""
    timers: Sequence[Timer | None] = ()
    """Of each device that has streams, what times its tasks; None where they are not timed."""
    absent: Sequence[int] = ()
    """The devices that other processes have."""
    stop: bool = False
    over: bool = False
    """Whether the run has ended well: no longer can it be aborted, nor its locks be released, which serve the next run."""
    error: BaseException | None = None
    failed: tuple[int, int] | None = None
    """Device, and step, of the error if it is a task's."""
    began: int = 0
    after: Callable[[], None] | None = None
    """What is called when all devices have ended well, before the next run with the same steps."""
    posting: Callable[[int], None] | None = None
    """What is called with the device to which a value has been sent."""
    commit: Callable[[Boxes], None] | None = None
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
        self.held = [-1] * count
        """Of each device, the last step whose lock it has taken."""
        self.ends: list[Any] = [None] * count
        """Of each device that has streams, the event behind its tasks."""
        self.polls = [False] * count
        """Whether each device has to look again whether an event is done."""
        self.timers = self.timers or [None] * count
        self.done = [held() for _ in range(count)]
        self.left, self.news, self.arrived = count - len(self.absent), held(), 0
        for k in self.absent:
            self.ended[k] = 0
            self.done[k].release()
        if not self.left:
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

    @property
    def span(self) -> tuple[float, float]:
        """The begin and end of the run in seconds of the clock."""
        return self.began / 1e9, max(self.ended) / 1e9

    def times(self) -> RunTimes:
        """Return the times in seconds from the start; NaN for what has not happened."""

        def seconds(stamps: Sequence[int], origin: int) -> FloatArray:
            values = np.array(stamps, np.int64)
            return np.where(values < 0, np.nan, (values - origin) / 1e9)

        for timer in self.timers:
            if timer is not None:
                timer.resolve()
        columns = {name: seconds(getattr(self, name), self.began) for name in ("start", "finish", "posted", "seen")}
        ended = max(self.ended) if min(self.ended) >= 0 else time.perf_counter_ns()
        spent = {name: seconds(getattr(self, name), 0) for name in ("cpu", "waited", "gathered")}
        return RunTimes(**columns, **spent, makespan=(ended - self.began) / 1e9)

    def advance(self, k: int, until: Callable[[], bool] | None = None) -> None:
        """Take the steps of device k, on its thread.

        With `until` it does not wait for a value that has not arrived, and begins no task when that returns True; it goes on there
        when it is called again.
        """
        ended = True
        try:
            with _autocast(self.autocast[k] if self.autocast else None):
                ended = self._take(k, until)
        except Stopped:
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
        self.polls[k] = False
        for number, (kind, what, a, b, c, g) in enumerate(islice(self.steps[k], at[k], None), at[k]):
            at[k] = number
            if kind == RUN:
                if self.stop:
                    raise Stopped
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
                self.release(what)
                if self.posting is not None:
                    self.posting(b)
            elif kind == SHIP:
                posted[c] = clock()
                what(own[g][a])
            elif kind == WAIT:
                if not what.acquire(False):
                    if until is not None:
                        return False
                    before = clock()
                    what.acquire()
                    seen[c] = clock()
                    waited += seen[c] - before
                if self.stop:
                    raise Stopped
                if copies:
                    own[g][a] = own[g][a].clone()
            elif kind == GATHER:
                before = clock()
                own[g][a] = what(boxes)
                self.gathered[b] += clock() - before
            elif kind == TAKE:
                what.acquire()
                if self.stop:
                    raise Stopped
            elif kind == PASS:
                self.release(what)
            elif kind == COMMIT:
                self._commit(what)
                what[k].acquire()
                if self.stop:
                    raise Stopped
            else:
                pause = what(self, until)
                if pause is None:
                    return False
                waited += pause
        return True

    def _commit(self, locks: Sequence[LockType]) -> None:
        """Count a device that has arrived; the last one commits the run and releases all."""
        with self.guard:
            if self.stop:
                raise Stopped
            self.arrived += 1
            if self.arrived == len(locks):
                if self.commit is not None:
                    self.commit(self.registers)
                self.committed = True
                for lock in locks:
                    lock.release()

    def release(self, lock: LockType) -> None:
        """Release the lock of a hand-off."""
        try:
            lock.release()
        except RuntimeError:
            if not self.stop:  # else `abort` was first
                raise
            raise Stopped from None


class Stream:
    """Turns of several inputs at once: each device goes on with the oldest of them whose data is there.

    So a device that waits for data of one input works on the next ones. Data that arrives is looked at after each task.

    Parameters
    ----------
    count : int
        Number of devices.
    absent : sequence of int
        Those that other processes have.
    """

    def __init__(self, count: int, absent: Sequence[int] = ()) -> None:
        self.turns: tuple[Turn, ...] = ()
        """Those in progress, the oldest first."""
        self.ended = [-1] * count
        self.closed = False
        self.guard = threading.RLock()
        self._done = [held() for _ in range(count)]
        self._news = [False] * count
        self._wakes = [held() for _ in range(count)]
        for k in absent:
            self.ended[k] = 0
            self._done[k].release()

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
                if self.closed and all(turn.ended[k] >= 0 for turn in self.turns):  # `abort` closes first, and then ends turns
                    break
                wake.acquire(timeout=POLL if any(turn.polls[k] for turn in self.turns if turn.ended[k] < 0) else -1)
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
    places : sequence of Place or None
        None for devices that other processes have.
    queues : sequence of Queues or None
        Of each device that has streams, these.
    """

    def __init__(self, places: Sequence[Place | None], queues: Sequence[Queues | None] = ()) -> None:
        self.queues = queues or [None] * len(places)
        self.places, self.closed, self.guard = tuple(places), False, threading.RLock()
        self.turn: Turn | Stream | None = None
        self.failures: list[BaseException] = []
        self.wakes = [held() for _ in places]
        self._up = [held() for _ in places]
        former = torch.get_num_threads()
        self.threads = []
        try:
            for k, place in enumerate(places):
                if place is None:
                    continue
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
            for place, lock in zip(self.places, self.wakes, strict=True):
                if place is not None:
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
    assert place is not None
    try:
        if place.cores is not None:
            os.sched_setaffinity(0, place.cores)
        if OWN_THREADS:
            torch.get_num_threads()  # takes over the default of the process, which must not happen later
            torch.set_num_threads(place.threads)
    except BaseException as error:
        team.failures.append(error)
    team._up[k].release()
    queues = team.queues[k]
    with torch.no_grad(), contextlib.nullcontext() if queues is None else queues.accelerator.on(queues.compute):
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


@contextlib.contextmanager
def _autocast(cast: tuple[str, torch.dtype] | None) -> Iterator[None]:
    if cast is None:
        yield
        return
    kind, dtype = cast
    with torch.autocast(kind, dtype=dtype):
        yield


OWN_THREADS = "backend: OpenMP" in torch.__config__.parallel_info()
"""Whether each thread has its own number of torch threads."""
