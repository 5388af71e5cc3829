"""Processes of this host that run the ranks of executors, and the engine of the process that has started them."""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import shutil
import tempfile
import threading
import time
import traceback
import weakref
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

import torch

from hetsched.arguments import check_count, checked
from hetsched.costs.timeline import RunTimes
from hetsched.errors import Cancelled, InvalidArgument, PeerLost, Timeout, UnsupportedFeature
from hetsched.processes import Channel, Process, ProcessDied, Ready
from hetsched.runtime.checking import check_autocast
from hetsched.runtime.code import Boxes, PortableTasks
from hetsched.runtime.places import Place
from hetsched.runtime.plan import Plan
from hetsched.runtime.threads import GRACE

if TYPE_CHECKING:
    from hetsched.runtime.messages import MessageCosts

START = 120.0
"""Seconds in which processes have to start."""
PATIENCE = 2.0 * GRACE
"""Seconds for the other ranks to report after one has failed, and beyond a time-out."""
LOCAL = "127.0.0.1"


@dataclass(frozen=True)
class _Join:
    """A request to connect the ranks."""

    path: str
    rank: int
    size: int


@dataclass(frozen=True)
class _Load:
    """A request to make the engine of an executor; `content` is a pickle of its arguments."""

    key: int
    content: bytes


@dataclass(frozen=True)
class _Drop:
    """A request to end the engines of executors."""

    keys: tuple[int, ...]


@dataclass(frozen=True)
class _Run:
    """A request to run once; `content` is a pickle of the registers."""

    key: int
    content: bytes
    serial: bool
    cpu: bool


@dataclass(frozen=True)
class _Measure:
    """A request to measure messages."""


@dataclass(frozen=True)
class _Done:
    """The answer to a request."""

    content: bytes = b""


@dataclass(frozen=True)
class _Failed:
    """The error of a request, as a pickle."""

    error: bytes


class Ranks:
    """Processes of this host for executors with several ranks, which start once for all of these.

    Each imports torch, which takes seconds. They end with `close`, with this process, or when a run fails. The object is a context
    manager, which closes it.

    Parameters
    ----------
    count : int
        Number of processes.

    Raises
    ------
    PeerLost
        A process ended as it started.
    """

    @checked(InvalidArgument)
    def __init__(self, count: int) -> None:
        self.count = check_count(count, "count", error=InvalidArgument)
        self.generation = 0
        self.dropped: list[int] = []
        """Keys of plans that the processes are to forget."""
        self._state = _State()
        self._one_at_a_time = threading.Lock()
        weakref.finalize(self, self._state.close)
        self.restart()

    def __repr__(self) -> str:
        return f"<{self.count} ranks{'' if self._state.processes else ', which have ended'}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @checked(InvalidArgument)
    def messages(self, ranks: Mapping[str, int]) -> MessageCosts:
        """Measure what messages between the processes cost, for devices of which the ranks are given.

        Devices of one rank share memory; their hand-off is taken to be 6 microseconds.

        Parameters
        ----------
        ranks : mapping of str to int
            The rank of each device.

        Raises
        ------
        InvalidArgument
            There is no device, or no such rank.
        Timeout, PeerLost
            The measurement took too long, or a process ended; the others have ended too.
        UnsupportedFeature
            The processes have ended before.
        """
        from hetsched.runtime.messages import message_costs

        if not ranks:
            raise InvalidArgument("ranks is {}; it must have the rank of each device")
        own = {name: check_count(rank, f"the rank of {name!r}", 0, self.count - 1) for name, rank in ranks.items()}
        return message_costs(pickle.loads(self.request([_Measure()] * self.count, START)[0]), own)

    def close(self) -> None:
        """End the processes at once."""
        self._state.closed = True
        self.cancel()
        self._state.end()

    def cancel(self) -> None:
        """End the processes, and what another thread runs on them, with `Cancelled` there."""
        self.cancel_plan(None)

    def cancel_plan(self, key: int | None) -> None:
        """Do so if a run of that plan is under way, or with None any run."""
        if self._state.busy and key in (None, self._state.key):
            self._state.inbox.put((-1, Cancelled("the run was cancelled")))

    def restart(self) -> None:
        """Start the processes; earlier ones end."""
        if self._state.closed:
            raise UnsupportedFeature("the ranks are closed; make new ones")
        with self._one_at_a_time:
            self._state.end()
            self._state.start(self.count)
            self.dropped.clear()
            self.generation += 1
            try:
                self._state.answers(self.count, START, "the start")
                self._request([_Join(os.path.join(self._state.folder, "store"), rank, self.count) for rank in range(self.count)], START)
            except BaseException:
                self._state.end()
                raise

    def request(self, messages: Sequence[Any], timeout: float) -> list[bytes]:
        """Send a message to each rank and return their answers; after an error the processes have ended.

        Raises
        ------
        Timeout
            A rank does not answer within `timeout` seconds.
        PeerLost
            A process has ended.
        Cancelled
            `cancel` was called.
        UnsupportedFeature
            The processes have ended in an earlier run.
        """
        with self._one_at_a_time:
            if not self._state.processes:
                raise UnsupportedFeature(
                    "the ranks are closed; make new ones"
                    if self._state.closed
                    else "the ranks have ended in an earlier run; call restart()"
                )
            keys = tuple(self.dropped)
            del self.dropped[: len(keys)]
            if keys:
                self._request([_Drop(keys)] * self.count, timeout)
            return self._request(messages, timeout)

    def _request(self, messages: Sequence[Any], timeout: float) -> list[bytes]:
        state = self._state
        state.forget_cancel()
        state.key, state.busy = getattr(messages[0], "key", None), True
        try:
            bodies = [pickle.dumps(message, pickle.HIGHEST_PROTOCOL) for message in messages]
            processes = list(state.processes)
            if not processes:
                raise Cancelled("the ranks were closed")
            for process, body in zip(processes, bodies, strict=True):
                process.send(body)
            return state.answers(self.count, timeout, "the run")
        except BaseException:
            state.end()
            raise
        finally:
            state.busy = False


class _State:
    """The processes of ranks, and what they send; without a reference to `Ranks`, so that these can be finalized."""

    def __init__(self) -> None:
        self.processes: list[Process] = []
        self.inbox: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        self.folder = ""
        self.closed = self.busy = False
        self.key: int | None = None
        """The plan of the last request, if it was of one."""

    def start(self, count: int) -> None:
        """Start processes, with an empty inbox and folder."""
        self.folder = tempfile.mkdtemp(prefix="hetsched-")
        inbox = self.inbox = queue.SimpleQueue()
        for rank in range(count):
            self.processes.append(Process("hetsched.runtime.ranks:serve", lambda message, rank=rank: inbox.put((rank, message))))  # type: ignore[misc]

    def end(self) -> None:
        """Kill the processes."""
        processes, self.processes = self.processes, []
        for process in processes:
            process.kill()
        for process in processes:
            process.process.wait()
        folder, self.folder = self.folder, ""
        if folder:
            shutil.rmtree(folder, ignore_errors=True)

    def forget_cancel(self) -> None:
        """Take requests to cancel from the inbox that came after the end of their run."""
        kept = []
        with contextlib.suppress(queue.Empty):
            while True:
                kept.append(self.inbox.get_nowait())
        for rank, message in kept:
            if not isinstance(message, Cancelled):
                self.inbox.put((rank, message))

    def close(self) -> None:
        """End the processes for good."""
        self.closed = True
        self.end()

    def answers(self, count: int, timeout: float, what: str) -> list[bytes]:
        """Return the answer of each rank, or raise the error that explains those of all of them best."""
        answers: dict[int, bytes] = {}
        errors: dict[int, BaseException] = {}
        end = time.perf_counter() + timeout + PATIENCE
        while len(answers) + len(errors) < count:
            try:
                rank, message = self.inbox.get(timeout=max(end - time.perf_counter(), 0.0))
            except queue.Empty:
                break
            if isinstance(message, Cancelled):
                raise message
            if isinstance(message, ProcessDied):
                errors[rank] = PeerLost(f"rank {rank} {message}; call restart()", rank)
            elif isinstance(message, _Failed):
                errors[rank] = _loaded_error(message.error)
            else:
                answers[rank] = b"" if isinstance(message, Ready) else message.content
            if errors:
                if any(not isinstance(error, PeerLost | Timeout) for error in errors.values()):
                    break
                end = min(end, time.perf_counter() + PATIENCE)
        if len(answers) == count:
            return [answers[rank] for rank in range(count)]
        raise _best(errors, [rank for rank in range(count) if rank not in answers and rank not in errors], timeout, what)


def _best(errors: dict[int, BaseException], silent: Sequence[int], timeout: float, what: str) -> BaseException:
    """Return the error that explains those of the ranks: of a task, of a process that died, of one that is late, of others."""
    for error in errors.values():
        if not isinstance(error, PeerLost | Timeout):
            return error
    for rank, error in errors.items():
        if isinstance(error, PeerLost) and error.rank == rank:
            return error
    late = {rank: error for rank, error in errors.items() if isinstance(error, Timeout)}
    if late or not errors:
        doing = [getattr(late[rank], "doing", str(late[rank])) for rank in sorted(late)]
        doing += [f"rank {rank} does not answer" for rank in silent]
        made = Timeout(f"{what} took longer than {timeout:g} s: {', '.join(doing)}; give a longer timeout, and call restart()")
        if late:
            made.times = getattr(late[min(late)], "times", None)  # type: ignore[attr-defined]
        return made
    return errors[min(errors)]


def _loaded_error(content: bytes) -> BaseException:
    try:
        error = pickle.loads(content)
    except Exception as failure:
        return PeerLost(f"a rank failed with an error that cannot be read here ({failure})")
    assert isinstance(error, BaseException)
    return error


class Report:
    """What is known of a run of other processes."""

    def __init__(self, registers: Boxes, times: RunTimes | None) -> None:
        self.registers, self._times = registers, times

    @property
    def span(self) -> tuple[float, float]:
        """Unknown: streams are not run."""
        raise NotImplementedError

    def times(self) -> RunTimes:
        """Return the times in seconds from the start of the run."""
        assert self._times is not None  # of runs that are timed
        return self._times


class Spawned:
    """The engine of a process that has started ranks: it sends registers to them, and gets the values of the result back.

    Parameters
    ----------
    plan, places, ranks, timeout, copies
        As for `Member`.
    tasks : sequence of PortableTasks
        Of each rank.
    processes : Ranks
    owned : bool
        Whether the processes end with the engine.
    """

    has_result = True
    clock_error = 0.0
    _keys = iter(range(2**62))

    def __init__(
        self,
        plan: Plan,
        tasks: Sequence[PortableTasks],
        places: Sequence[Place],
        ranks: Sequence[int],
        timeout: float,
        copies: bool,
        processes: Ranks,
        owned: bool,
    ) -> None:
        self.plan, self.ranks, self.timeout, self.processes, self._owned = plan, tuple(ranks), timeout, processes, owned
        self._key = next(self._keys)
        self._generation, self._cancelled, self._closed = -1, False, False
        self._contents = [_pickled((plan, own, list(places), self.ranks, timeout, copies)) for own in tasks]
        self._load()

    def __repr__(self) -> str:
        own = ", ".join(f"{name}: {rank}" for name, rank in zip(self.plan.devices, self.ranks, strict=True))
        return f"{self.processes.count} processes ({own})"

    def run(self, boxes: Boxes, *, serial: bool = False, cpu: bool = False) -> Report:
        """Take all steps once, and return the registers with the values that the result reads, and the times if they are taken."""
        if self._cancelled:
            raise Cancelled("the run was cancelled")
        check_autocast()
        self._load()
        own = [[box if rank == r else [] for box, rank in zip(boxes, self.ranks, strict=True)] for r in range(self.processes.count)]
        limit = self.timeout * (len(self.ranks) if serial else 1)
        answers = self.processes.request([_Run(self._key, _pickled(part), serial, cpu) for part in own], limit)
        times = None
        for answer in answers:
            kept, taken = pickle.loads(answer)
            times = times or taken
            for (device, group, register), value in kept.items():
                boxes[device][group][register] = value
        return Report(boxes, times)

    def stream(self, boxes: Iterator[Boxes], depth: int) -> Generator[NoReturn, None, None]:
        """Refuse."""
        raise UnsupportedFeature(
            "streams of inputs run on threads and under torchrun; call the executor for each input, or give engine='threads'"
        )

    def synchronise(self, first: bool) -> None:
        """Do nothing: the processes of a host have one clock."""

    def renew(self) -> None:
        """Forget that an earlier run was cancelled."""
        self._cancelled = False

    def cancel(self) -> None:
        """End what another thread runs, with `Cancelled` there, and the processes."""
        self._cancelled = True
        self.processes.cancel_plan(self._key)

    def restart(self) -> None:
        """Start new processes."""
        self._check_open()
        self.processes.restart()

    def close(self) -> None:
        """End the processes if they are its own; shared ones forget the plan at their next request.

        It may be called by the garbage collector, in any thread, so it takes no lock.
        """
        self._closed = True
        if self._owned:
            self.processes.close()
        elif self._generation == self.processes.generation:
            self._generation = -1
            self.processes.dropped.append(self._key)

    def _check_open(self) -> None:
        if self._closed:
            raise UnsupportedFeature("the executor is closed; make a new one")

    def _load(self) -> None:
        self._check_open()
        if self._generation != self.processes.generation:
            self.processes.request([_Load(self._key, content) for content in self._contents], START)
            self._generation = self.processes.generation


def _pickled(content: Any) -> bytes:
    try:
        return pickle.dumps(content, pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # what a pickle calls may raise anything
        raise UnsupportedFeature(f"the module has what cannot be sent to another process: {error}; use torchrun, or threads") from error


# ---------------------------------------------------------------------- the other side


def serve(log: int) -> None:
    """Answer the requests of the process that has started this one, until it ends."""
    channel = Channel(log)
    from hetsched.runtime.gloo import Group, Member, dist
    from hetsched.runtime.messages import message_times

    torch.set_grad_enabled(False)
    channel.send(Ready())
    group: Group | None = None
    members: dict[int, Member] = {}
    while True:
        request = channel.requests.get()
        answer = b""
        try:
            if isinstance(request, _Join):
                group = Group(dist.FileStore(request.path, request.size), request.rank, request.size, LOCAL)
            elif isinstance(request, _Load):
                plan, tasks, places, ranks, timeout, copies = pickle.loads(request.content)
                assert group is not None
                members[request.key] = Member(plan, tasks.made(), places, ranks, group, timeout, copies)
            elif isinstance(request, _Measure):
                assert group is not None
                answer = _pickled(message_times(group, START))
            elif isinstance(request, _Drop):
                for key in request.keys:
                    if key in members:
                        members.pop(key).close()
            else:
                answer = _ran(members[request.key], request)
            channel.send(_Done(answer))
        except BaseException as error:
            channel.send(_Failed(_pickled_error(error)))


def _ran(member: Any, request: _Run) -> bytes:
    turn = member.run(pickle.loads(request.content), serial=request.serial, cpu=request.cpu)
    kept = {
        (device, group, register): turn.registers[device][group][register]
        for register, _, device, group in member.kept
        if member.ranks[device] == member.group.rank
    }
    taken = turn.times() if member.group.rank == 0 and (request.serial or request.cpu) else None
    return _pickled((kept, taken))


def _pickled_error(error: BaseException) -> bytes:
    """Return an error with its traceback as a note; another one if it cannot be sent."""
    error.add_note("".join(traceback.format_exception(error)).rstrip())
    error.__cause__ = error.__context__ = None
    try:
        content = pickle.dumps(error)
        pickle.loads(content)
    except Exception:
        made = RuntimeError(f"{type(error).__name__}: {error}")
        for note in getattr(error, "__notes__", []):
            made.add_note(note)
        return pickle.dumps(made)
    return content
