"""The engine of several processes, ranks, that each run the steps of some devices of a plan and exchange values by gloo."""

from __future__ import annotations

import contextlib
import platform
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import torch
import torch.distributed

from hetsched.arrays import IntArray
from hetsched.errors import PeerLost, UnsupportedFeature
from hetsched.runtime.checking import check_autocast
from hetsched.runtime.code import Boxes, Tasks
from hetsched.runtime.places import Place
from hetsched.runtime.plan import Plan
from hetsched.runtime.steps import SEND, SHIP, WAIT, Work, parallel_steps, serial_steps
from hetsched.runtime.streams import Stopped
from hetsched.runtime.team import Stream, Team, Turn
from hetsched.runtime.threads import Threads

dist: Any = torch.distributed
"""Its stubs lack much of what the process groups have."""
LOOK = 0.1
"""Seconds between two looks for a rank that has given up."""
SKEW = 0.3
"""Seconds at the end of a time-out in which a rank does not look for others: theirs may be over a little earlier."""
ABORT = "abort"
"""The key of the store under which the first rank that gives up writes why."""
LONGEST = 86_400.0
"""Seconds of a transfer for which a thread of the engine waits; the engine has its own time-out, which is shorter."""
SHORTEST = 1e-3
"""Seconds for which a transfer is waited for at least: gloo takes 0 for no limit."""
Waiting = Callable[[float], None]
"""Wait for a transfer, some seconds at most."""
PINGS = 50
PING = 2**30
"""The tag of messages that compare clocks."""
ALIGNED = 500_000
"""Nanoseconds from the last rank's readiness to the begin of a measured run."""
STAMPS = ("start", "finish", "posted", "seen", "ended")
SPANS = ("waited", "cpu", "gathered")


def host() -> str:
    """Return a text that processes have in common if they have the same clock."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return platform.node()


def exchange(store: Any, rank: int, size: int, key: str, text: str) -> list[str]:
    """Return the texts that the ranks of a store give for a key, each once."""
    store.set(f"{key}/{rank}", text)
    return [store.get(f"{key}/{other}").decode() for other in range(size)]


def clock_offset(pings: Sequence[tuple[int, int, int]]) -> tuple[int, float]:
    """Return the nanoseconds to add to the own clock for another one, and the error in seconds: half of the shortest round trip.

    `pings` are the own stamp of the question, the other's of the answer, and the own one of its arrival.
    """
    sent, other, back = min(pings, key=lambda ping: ping[2] - ping[0])
    return other - (sent + back) // 2, (back - sent) / 2e9


class Group:
    """The ranks of a run, connected by gloo.

    Parameters
    ----------
    store : torch.distributed.Store
        Of this group alone.
    rank, size : int
    address : str, optional
        Of this rank's network interface; default: the host's.
    """

    def __init__(self, store: Any, rank: int, size: int, address: str = "", clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self.store, self.rank, self.size, self.clock = store, rank, size, clock
        options = dist.ProcessGroupGloo._Options()
        options._devices = [
            dist.ProcessGroupGloo.create_device(hostname=address) if address else dist.ProcessGroupGloo.create_default_device()
        ]
        options._timeout = timedelta(seconds=LONGEST)
        self._gloo = dist.ProcessGroupGloo(store, rank, size, options)
        self.one_host = len(set(self.exchange("host", host()))) == 1

    def exchange(self, key: str, text: str) -> list[str]:
        """Return the texts that the ranks give for a key, each once."""
        return exchange(self.store, self.rank, self.size, key, text)

    def send(self, value: torch.Tensor, to: int, tag: int) -> Waiting:
        """Begin to send a contiguous tensor; return the function that waits some seconds until it has left. Both raise `PeerLost`."""
        return self._begun(to, lambda: self._gloo.send([value], to, tag))

    def receive(self, buffer: torch.Tensor, source: int, tag: int) -> Waiting:
        """Begin to receive a contiguous tensor; return the function that waits some seconds for it. Both raise `PeerLost`."""
        return self._begun(source, lambda: self._gloo.recv([buffer], source, tag))

    def _begun(self, rank: int, begin: Callable[[], Any]) -> Waiting:
        work = self._call(rank, begin)
        return lambda seconds: self._call(rank, lambda: work.wait(timedelta(seconds=max(seconds, SHORTEST))))

    def largest(self, numbers: IntArray, timeout: float) -> IntArray:
        """Return the largest of the ranks' numbers, each; every rank has to call this, within the seconds of the time-out."""
        own = torch.from_numpy(np.array(numbers, np.int64))
        options: Any = dist.AllreduceOptions()
        options.reduceOp, options.timeout = dist.ReduceOp.MAX, timedelta(seconds=timeout)
        self._call(-1, lambda: self._gloo.allreduce([own], options).wait())
        return np.array(own.numpy(), np.int64)

    def offset(self, timeout: float) -> tuple[int, float]:
        """Return the nanoseconds to add to this rank's clock for that of rank 0, and the error in seconds.

        On one host all processes have the same clock. Otherwise each rank in turn asks rank 0 for its clock; every rank has to
        call this, and answers each question within `timeout` seconds.
        """
        if self.one_host:
            return 0, 0.0
        own = (0, 0.0)
        stamp = torch.zeros(1, dtype=torch.int64)
        for rank in range(1, self.size):
            pings = []
            for _ in range(PINGS if self.rank in (0, rank) else 0):
                if self.rank == 0:
                    self.receive(stamp, rank, PING)(timeout)
                    stamp[0] = self.clock()
                    self.send(stamp, rank, PING)(timeout)
                else:
                    sent = self.clock()
                    self.send(stamp, 0, PING)(timeout)
                    self.receive(stamp, 0, PING)(timeout)
                    pings.append((sent, int(stamp[0]), self.clock()))
            if rank == self.rank:
                own = clock_offset(pings)
        return own

    def give_up(self, error: BaseException) -> None:
        """Write to the store that this rank takes part in no further run."""
        with contextlib.suppress(RuntimeError):  # the store may have ended with its process
            self.store.compare_set(ABORT, "", f"{self.rank} {type(error).__name__}: {error}")

    def check(self) -> None:
        """Raise `PeerLost` if a rank has given up."""
        given_up = False
        with contextlib.suppress(RuntimeError):
            given_up = self.store.check([ABORT])
        if given_up:
            rank, _, why = self.store.get(ABORT).decode().partition(" ")
            raise PeerLost(f"rank {rank} has given up: {why}; start the processes again", int(rank))

    def _call(self, rank: int, function: Callable[[], Any]) -> Any:
        """Return the result of a transfer with a rank, -1 for all of them; raise `PeerLost` if it fails."""
        try:
            return function()
        except RuntimeError as error:
            self.check()
            why = str(error).rpartition("] ")[2].split(". ")[0]
            raise PeerLost(f"{f'rank {rank}' if rank >= 0 else 'a rank'} is lost: {why}; start the processes again", rank) from None


def wait_for(waits: Iterable[Waiting], timeout: float) -> None:
    """Wait for several transfers, no longer than that in all."""
    end = time.perf_counter() + timeout
    for wait in waits:
        wait(end - time.perf_counter())


class Arrival(NamedTuple):
    """A message from another rank; of a token, which has no value, `device` is -1."""

    tag: int
    buffer: torch.Tensor
    lock: Any
    device: int = -1
    group: int = 0
    register: int = 0
    value: torch.Tensor | None = None


class Token:
    """The turn of runs in which one device acts at a time, on its way to another rank."""

    def __init__(self, ship: Callable[[torch.Tensor], None]) -> None:
        self._ship, self._nothing = ship, torch.zeros(1, dtype=torch.uint8)

    def release(self) -> None:
        """Pass the turn on."""
        self._ship(self._nothing)


class Mail:
    """The messages of the runs that use the same steps, one at a time.

    Parameters
    ----------
    group : Group
    first : int
        The tag of the first message; every send of the plan, and every turn of a device, has its own.
    """

    def __init__(self, group: Group, plan: Plan, tasks: Tasks, ranks: Sequence[int], first: int, serial: bool) -> None:
        self.group, self.serial = group, serial
        self.arrivals: dict[tuple[int, bool], list[Arrival]] = {}
        """By the device that sends, in its order, values and turns apart."""
        self._ranks = ranks
        self._sent: list[Waiting] = []
        self._receiving: list[threading.Thread] = []
        steps, locks = parallel_steps(plan, tasks)
        coming: dict[int, Arrival] = {}
        for k, own in enumerate(steps):
            for place, (kind, what, register, to, send, g) in enumerate(own):
                if kind not in (SEND, WAIT):
                    continue
                batch = plan.sends[send].batch
                giver = int(plan.device[batch])
                taker = to if kind == SEND else k
                if ranks[giver] == ranks[taker]:
                    continue
                layout = tasks.layouts[register, len(plan.items[batch])]
                name = f"{plan.values[register].name!r} of task {tasks.names[plan.values[register].task]!r}"
                if kind == SEND and ranks[k] == group.rank:
                    ship = partial(self._ship_value, layout, name, ranks[to], first + send)
                    own[place] = (SHIP, ship, register, to, send, g)
                elif kind == WAIT and ranks[k] == group.rank:
                    buffer, value = layout.buffer()
                    coming[send] = Arrival(first + send, buffer, what, k, g, register, value)
        for send in sorted(coming):  # the plan's order, which each device keeps
            self.arrivals.setdefault((int(plan.device[plan.sends[send].batch]), False), []).append(coming[send])
        if serial:
            steps, locks = serial_steps(plan, tasks, (steps, locks), token=self._tokens(first + len(plan.sends)))
        self.work: Work = steps, locks
        self.buffers = {own.buffer.untyped_storage().data_ptr() for arrivals in self.arrivals.values() for own in arrivals}

    def post(self, turn: Turn) -> None:
        """Post all receives of a run, and let threads wait for them, one for each device that sends."""
        self._sent.clear()
        self._receiving.clear()
        for (device, _), arrivals in self.arrivals.items():
            rank = self._ranks[device]
            pairs = [(own, self.group.receive(own.buffer, rank, own.tag)) for own in arrivals]
            thread = threading.Thread(target=_receive, args=(turn, pairs), name=f"hetsched-from-{device}", daemon=True)
            self._receiving.append(thread)
            thread.start()

    def settle(self, timeout: float) -> None:
        """Wait until everything has been sent and the threads that have received have ended, no longer than that.

        A thread that is on its way out of gloo when the interpreter ends would abort the process.
        """
        end = time.perf_counter() + timeout
        wait_for(self._sent, timeout)
        self._sent.clear()
        for thread in self._receiving:
            thread.join(max(0.0, end - time.perf_counter()))

    def _ship_value(self, layout: Any, name: str, to: int, tag: int, value: torch.Tensor) -> None:
        packed = layout.packed(value)
        if packed.shape != layout.shape or packed.dtype != layout.dtype:
            raise UnsupportedFeature(
                f"{name} is {list(value.shape)} of {value.dtype}, and the capture had it otherwise; a value that crosses to another rank "
                "must be as at the capture"
            )
        self._ship(to, tag, packed)

    def _ship(self, to: int, tag: int, packed: torch.Tensor) -> None:
        sent = self.group.send(packed, to, tag)  # it keeps the tensor
        if self.serial:
            sent(LONGEST)
        else:
            self._sent.append(sent)

    def _tokens(self, first: int) -> Callable[[int, int, Any], Any]:
        count = 0

        def token(giver: int, taker: int, lock: Any) -> Any:
            nonlocal count
            count += 1
            if self._ranks[giver] == self._ranks[taker]:
                return lock
            if self._ranks[taker] == self.group.rank:
                buffer = torch.zeros(1, dtype=torch.uint8)
                self.arrivals.setdefault((giver, True), []).append(Arrival(first + count - 1, buffer, lock))
            return Token(partial(self._ship, self._ranks[taker], first + count - 1))

        return token


def _receive(turn: Turn, pairs: Sequence[tuple[Arrival, Waiting]]) -> None:
    """Wait for the messages of a device, one after another, and put each where it is read."""
    try:
        for arrival, wait in pairs:
            wait(LONGEST)
            if turn.stop:
                return
            k = arrival.device
            if k >= 0:
                turn.registers[k][arrival.group][arrival.register] = arrival.value
            turn.release(arrival.lock)
            if k >= 0 and turn.posting is not None:
                turn.posting(k)
    except Stopped:
        pass
    except BaseException as error:
        turn.abort(error)


class Member(Threads):
    """The engine of one rank: its devices are threads of this process.

    After a run that failed there is no other one: messages of it may be on their way.

    Parameters
    ----------
    plan, tasks, timeout, copies
        As for `Threads`; `tasks` have the layouts of what crosses between ranks.
    places : sequence of Place
        Of all devices.
    ranks : sequence of int
        The rank of each device.
    group : Group
    home : int, optional
        The rank that gets all values that the result reads; by default each keeps its own.
    """

    def __init__(
        self,
        plan: Plan,
        tasks: Tasks,
        places: Sequence[Place],
        ranks: Sequence[int],
        group: Group,
        timeout: float,
        copies: bool,
        home: int | None = None,
    ) -> None:
        self.ranks, self.group, self.home = tuple(ranks), group, home
        self.given_up = False
        self._mail: dict[int, Mail] = {}
        self._clock_errors = [0.0]
        self._offset = 0
        self.kept = [
            (register, batch, int(plan.device[batch]), plan.group[batch])
            for register, value in enumerate(plan.values)
            if value.kept
            for batch in plan.made(register)
        ]
        """Of each value that the result reads: its register, batch, device and group."""
        own = [place if rank == group.rank else None for place, rank in zip(places, ranks, strict=True)]
        super().__init__(plan, tasks, own, timeout, copies)

    @property
    def has_result(self) -> bool:
        """Whether this rank has all values of the result after a run."""
        return self.home in (None, self.group.rank)

    @property
    def clock_error(self) -> float:
        """Seconds by which stamps of two ranks may differ."""
        return max(self._clock_errors)

    def synchronise(self, first: bool) -> None:
        """Compare the clocks of the ranks before the first and after the last of several measured runs."""
        offset, error = self.group.offset(self.timeout)
        if first:
            self._offset, self._clock_errors = offset, []
        largest = self.group.largest(np.array([1e9 * error + abs(offset - self._offset)], np.int64), self.timeout)
        self._clock_errors.append(int(largest[0]) / 1e9)

    def team(self) -> Team:
        """Return the threads; refuse after a run that failed."""
        if self.given_up:
            raise UnsupportedFeature("an earlier run of these ranks has failed; start the processes again")
        return super().team()

    def work(self, number: int) -> Work:
        """Return the steps and locks of `Threads.work` for this rank."""
        if number not in self._mail:
            first = len(self.kept) + (number + 1) * (len(self.plan.sends) + len(self.plan.order))
            self._mail[number] = Mail(self.group, self.plan, self.tasks, self.ranks, first, number < 0)
        return self._mail[number].work

    def run(self, boxes: Boxes, *, serial: bool = False, cpu: bool = False) -> Turn:
        """Take all steps once; with `serial` or `cpu` the turn has the times of all ranks."""
        check_autocast()
        turn = super().run(boxes, serial=serial, cpu=cpu)
        if serial or cpu:
            with self._giving_up():
                self._merge(turn)
        return turn

    def stream(self, boxes: Iterator[Boxes], depth: int) -> Generator[Turn, None, None]:
        """Return the turns of a stream of registers; if that ends early, messages are on their way, and there is no other run."""
        check_autocast()
        with self._giving_up():
            yield from super().stream(boxes, depth)

    def restart(self) -> NoReturn:
        """Refuse: what has started this process has to start all of them again."""
        raise UnsupportedFeature("these ranks were started from outside, for instance by torchrun; start them again there")

    def _turn_of(self, boxes: Boxes, number: int, cpu: bool = False, timed: bool = False) -> Turn:
        turn = super()._turn_of(boxes, number, cpu, timed)
        mail = self._mail[number]
        turn.after = partial(mail.settle, self.timeout)
        with self._giving_up():
            mail.post(turn)
            if cpu:
                self._align()
        return turn

    @contextlib.contextmanager
    def _giving_up(self) -> Iterator[None]:
        """After an error within the context, run no more, and write why to the store."""
        try:
            yield
        except BaseException as error:
            self.given_up = True
            self.group.give_up(error)
            raise

    def _align(self) -> None:
        """Wait for the common begin of a measured run."""
        ready = time.perf_counter_ns() + self._offset
        begin = int(self.group.largest(np.array([ready], np.int64), self.timeout)[0]) + ALIGNED - self._offset
        while time.perf_counter_ns() < begin:
            pass

    def _wait(self, turn: Turn, limit: float) -> bool:
        end = time.perf_counter() + limit
        while (left := end - time.perf_counter()) > 0:
            if turn.wait(min(left, LOOK)):
                return True
            if left > SKEW:
                self.group.check()
        return False

    def _await(self, turn: Turn, work: Turn | Stream, limit: float, what: str) -> None:
        with self._giving_up():
            super()._await(turn, work, limit, what)
            self._collect(turn)

    def _collect(self, turn: Turn) -> None:
        """Bring the values that the result reads to the home rank; none of them is a buffer of the next run."""
        buffers = {storage for mail in self._mail.values() for storage in mail.buffers}
        waits = []
        for tag, (register, batch, device, group) in enumerate(self.kept):
            rank = self.ranks[device]
            if rank != self.group.rank and self.home != self.group.rank:
                continue
            own = turn.registers[device][group]
            layout = self.tasks.layouts.get((register, len(self.plan.items[batch])))
            if rank == self.group.rank:
                if own[register].untyped_storage().data_ptr() in buffers:
                    own[register] = own[register].clone()
                if not self.has_result:
                    assert layout is not None
                    waits.append(self.group.send(layout.packed(own[register]), self.home or 0, tag))
            else:
                assert layout is not None
                buffer, own[register] = layout.buffer()
                waits.append(self.group.receive(buffer, rank, tag))
        wait_for(waits, self.timeout)

    def _merge(self, turn: Turn) -> None:
        """Give the turn the times of all ranks, by the clock of rank 0."""
        columns = []
        for name in STAMPS:
            stamps = np.array(getattr(turn, name), np.int64)
            columns.append(np.where(stamps > 0, stamps + self._offset, stamps))
        columns += [np.array(getattr(turn, name), np.int64) for name in SPANS]
        columns.append(np.array([-turn.began - self._offset], np.int64))
        merged = self.group.largest(np.concatenate(columns), self.timeout)
        parts = np.split(merged, np.cumsum([len(own) for own in columns])[:-1])
        for name, part in zip((*STAMPS, *SPANS), parts[:-1], strict=True):
            setattr(turn, name, part.tolist())
        turn.began = -int(parts[-1][0])
