"""Processes that the workers of an executor start: messages, ends and losses are those of processes of this machine."""

from __future__ import annotations

import gc
import os
import pickle
import queue
import socket
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from multiprocessing.connection import Client, Connection
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.processes import Peer, ProcessDied
from hetsched.remote import processes, relay
from hetsched.testing.backends import PLENTY
from hetsched.version import __version__

MAIN = "tests.echo:serve"
MESSAGES = st.lists(st.text() | st.binary(max_size=1000) | st.tuples(st.floats(allow_nan=False), st.text()), max_size=3)


class Echo:
    """A process and its answers."""

    def __init__(self, start: Any) -> None:
        self.inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.process: Peer = start(MAIN, self.inbox.put)

    def ask(self, *messages: object) -> list[Any]:
        """Return the answers to messages."""
        for message in messages:
            self.process.send(pickle.dumps(message))
        return [self.inbox.get(timeout=PLENTY) for _ in messages]


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as made:
        yield made


@pytest.fixture(scope="module", params=["here", "by an executor"])
def echo(request: pytest.FixtureRequest) -> Iterator[Echo]:
    with ThreadPoolExecutor(1) as threads, processes(None if request.param == "here" else threads) as start:
        made = Echo(start)
        yield made
        made.process.kill()
        made.process.wait()


@given(MESSAGES)
def test_messages_arrive_complete_and_in_order(echo: Echo, messages: list[object]) -> None:
    assert echo.ask(*messages) == messages


@pytest.mark.parametrize("remote", [False, True])
def test_the_end_of_a_process_is_told_and_the_worker_is_free_again(threads: ThreadPoolExecutor, remote: bool) -> None:
    with processes(threads if remote else None) as start:
        echo = Echo(start)
        assert echo.ask(5) == [ProcessDied(5, "so it ends")]
        echo.process.wait()
    assert threads.submit(int, "7").result(PLENTY) == 7


def test_a_process_that_is_killed_or_left_has_ended(threads: ThreadPoolExecutor) -> None:
    with processes(threads) as start:
        first = Echo(start)
        (pid,) = first.ask(None)
        first.process.kill()
        first.process.wait()
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        left = Echo(start)
        (pid,) = left.ask(None)
    left.process.wait()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_task_that_has_not_begun_is_cancelled(threads: ThreadPoolExecutor) -> None:
    busy = threading.Event()
    before = threads.submit(busy.wait, PLENTY)
    with processes(threads) as start:
        waiting = Echo(start)
    waiting.process.wait()
    assert waiting.inbox.get(timeout=PLENTY).exit_code is None
    busy.set()
    before.result(PLENTY)


class Tasks(Executor):
    """An executor whose tasks a test runs by hand."""

    def __init__(self) -> None:
        self.args: list[Any] = []
        self.futures: list[Future[None]] = []

    def submit(self, work: Any, /, *args: Any, **_: Any) -> Future[Any]:
        assert work is relay
        self.args.append(args)
        self.futures.append(Future())
        return self.futures[-1]

    def connect(self, key: bytes | None = None) -> Connection:
        """Connect as the first task does."""
        address, own, number, *_ = self.args[0]
        connection = Client(address, authkey=own if key is None else key)
        connection.send(number)
        return connection


@pytest.mark.parametrize("again", [False, True])
def test_a_lost_worker_is_told_once(again: bool) -> None:
    tasks = Tasks()
    with processes(tasks) as start:
        echo = Echo(start)
        first = tasks.connect()
        os.write(first.fileno(), pickle.dumps("hello"))
        assert echo.inbox.get(timeout=PLENTY) == "hello"
        if again:  # dask has begun the task again
            tasks.connect().close()
        else:
            first.close()
        says = "its worker was lost" if again else "the connection to its worker was closed"
        assert str(echo.inbox.get(timeout=PLENTY)) == f"was lost: {says}"
    assert echo.inbox.empty()


def test_an_executor_may_forget_what_has_ended() -> None:
    tasks = Tasks()
    with processes(tasks) as start:
        ended, running = Echo(start), Echo(start)
        with tasks.connect():  # of the first
            tasks.futures[0].set_result(None)
            assert isinstance(ended.inbox.get(timeout=PLENTY), ProcessDied)
        first = weakref.ref(tasks.futures.pop(0))
        gc.collect()
        assert first() is None
    assert tasks.futures[0].cancelled()
    assert isinstance(running.inbox.get(timeout=PLENTY), ProcessDied)


def test_strangers_are_ignored() -> None:
    tasks = Tasks()
    with processes(tasks) as start:
        echo = Echo(start)
        with pytest.raises(Exception, match="digest sent was rejected"):
            tasks.connect(b"guessed")
        tasks.connect().close()
        assert isinstance(echo.inbox.get(timeout=PLENTY), ProcessDied)


def test_an_executor_that_accepts_no_task_is_told() -> None:
    closed = ThreadPoolExecutor(1)
    closed.shutdown()
    with processes(closed) as start, pytest.raises(OSError, match="the executor accepts no task: RuntimeError: cannot schedule"):
        Echo(start)


def test_a_worker_that_cannot_serve_says_why() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(ConnectionError, match=rf"cannot connect to 127.0.0.1, port {port}, .*; open its ports to the workers"):
        relay(("127.0.0.1", port), b"", 0, MAIN, __version__)
    with pytest.raises(ImportError, match=rf"has hetsched {__version__}, but 0.0 is needed; install the same on both"):
        relay(("127.0.0.1", port), b"", 0, MAIN, "0.0")


def test_the_error_of_a_task_is_the_reason_of_its_end() -> None:
    tasks = Tasks()
    with processes(tasks) as start:
        echo = Echo(start)
        tasks.futures[0].set_exception(ImportError("no module named hetsched"))
        assert str(echo.inbox.get(timeout=PLENTY)) == "was lost: ImportError: no module named hetsched"
