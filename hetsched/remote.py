"""Processes on the machines of an executor, used like those of this machine.

A worker of the executor starts the process beside itself and passes messages on, over a connection to this process, until either end
closes it. So messages arrive while the process works, and neither its crash nor the need to kill it ends the worker.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import itertools
import pickle
import platform
import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import Any
from urllib.parse import urlsplit

from hetsched.processes import Peer, Process, ProcessDied, Start
from hetsched.version import __version__

_LOCAL = "127.0.0.1"
_ANYWHERE = "192.0.2.1"  # reserved for documentation; nothing is sent to it
_WAKE = 0.2  # seconds between looks whether connections are still awaited
_CONNECTING = 10.0  # seconds for a connection
_ENDING = 1.0  # seconds in which a worker ends the process that was killed


@contextlib.contextmanager
def processes(executor: concurrent.futures.Executor | None) -> Iterator[Start]:
    """Yield what starts processes: `Process`, or the same by the workers of an executor."""
    if executor is None:
        yield Process
        return
    remote = RemoteProcesses(executor)
    try:
        yield remote.start
    finally:
        remote.close()


class RemoteProcesses:
    """Starts processes by the workers of an executor, one for each of its tasks.

    Parameters
    ----------
    executor : concurrent.futures.Executor
        Its workers have this version of hetsched, and reach this process by TCP.
    """

    def __init__(self, executor: concurrent.futures.Executor) -> None:
        host = _host(executor)
        self._executor, self._key, self._numbers = executor, secrets.token_bytes(32), itertools.count()
        self._processes: dict[int, RemoteProcess] = {}
        self._server = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        self._server.settimeout(_WAKE)
        self._closed = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def start(self, main: str, receive: Callable[[Any], object]) -> RemoteProcess:
        """Start a process as `Process` does; raise `OSError` if the executor accepts no task."""
        number = next(self._numbers)
        process = self._processes[number] = RemoteProcess(receive)
        try:
            task = self._executor.submit(relay, self._server.getsockname()[:2], self._key, number, main, __version__)
        except Exception as error:  # a broken pool, a lost connection
            raise OSError(f"the executor accepts no task: {type(error).__name__}: {error}") from None
        process.follow(task)
        return process

    def close(self) -> None:
        """Kill all processes."""
        self._closed.set()
        for process in self._processes.values():
            process.leave()

    def _accept(self) -> None:
        with self._server:
            while not self._closed.is_set():
                with contextlib.suppress(OSError):  # mostly that nobody has come
                    threading.Thread(target=self._attach, args=self._server.accept()[:1], daemon=True).start()

    def _attach(self, line: socket.socket) -> None:
        try:
            with Connection(line.dup().detach()) as connection:
                deliver_challenge(connection, self._key)
                answer_challenge(connection, self._key)
                number = connection.recv()
        except Exception:  # a stranger, or a worker that is lost at once
            line.close()
            return
        self._processes[number].attach(line)


class RemoteProcess(Peer):
    """The side of this process of a process that `RemoteProcesses` has started."""

    def __init__(self, receive: Callable[[Any], object]) -> None:
        super().__init__(self._take)
        self._owner = receive
        self._line: socket.socket | None = None
        self._task: concurrent.futures.Future[None] | None = None
        self._ended = False
        self._one_at_a_time = threading.Lock()

    def follow(self, task: concurrent.futures.Future[None]) -> None:
        """Take the end of the task that runs the process for its end."""
        self._task = task
        task.add_done_callback(lambda _: self._finish())

    def attach(self, line: socket.socket) -> None:
        """Exchange messages over a connection from the worker.

        A second one is of another worker, on which the executor has begun the task again as the first was lost.
        """
        with self._one_at_a_time:
            first = self._line is None and not self._ended
            self._line = line if first else self._line
        if first:
            self.converse(line.makefile("rb"), line.makefile("wb"))
        else:
            line.close()
            self._end(ProcessDied(None, "its worker was lost"))

    @property
    def begun(self) -> bool:
        """Whether a worker has begun the task."""
        return self._line is not None

    def send(self, message: bytes) -> None:
        """Send a pickle without waiting until it is read."""
        super().send(pickle.dumps(message))  # the worker passes it on as it is

    def kill(self) -> None:
        """End the process at once; a task that has not begun is cancelled."""
        self._end(ProcessDied(None, "it was killed"))

    def leave(self) -> None:
        """End the process for good: dask would begin its task again on another worker if its own is lost meanwhile."""
        self.kill()
        if (task := self._task) is not None:
            task.cancel()

    def wait(self) -> None:
        """Wait until the worker has ended the process that was killed, for a second at the most."""
        self._outcome(_ENDING)

    def lost(self) -> ProcessDied:
        """Return the error of the task, if it has failed, or that its connection was closed."""
        return ProcessDied(None, self._outcome(_WAKE) or "the connection to its worker was closed")

    def _finish(self) -> None:
        self._end(self.lost())
        self._task = None  # else dask would begin the finished task again if its worker is lost later

    def _outcome(self, seconds: float) -> str:
        """Wait for the end of the task, and return its error or an empty text."""
        task = self._task
        try:
            error = None if task is None else task.exception(seconds)
        except (concurrent.futures.CancelledError, TimeoutError):
            return ""
        return "" if error is None else f"{type(error).__name__}: {error}"

    def _take(self, message: object) -> None:
        if isinstance(message, ProcessDied):
            self._end(message)
        elif not self._ended:
            self._owner(message)

    def _end(self, how: ProcessDied) -> None:
        with self._one_at_a_time:
            if self._ended:
                return
            self._ended = True
        self._outbox.put(None)
        if self._line is not None:
            with contextlib.suppress(OSError):
                self._line.shutdown(socket.SHUT_RDWR)
            self._line.close()
        elif self._task is not None:
            self._task.cancel()
        self._owner(how)


def relay(address: tuple[str, int], key: bytes, number: int, main: str, version: str) -> None:
    """Start a process on a worker, and pass messages on until the connection to `address` is closed or the process has ended."""
    if version != __version__:
        raise ImportError(f"worker {platform.node()} has hetsched {__version__}, but {version} is needed; install the same on both")
    try:
        line = socket.create_connection(address, _CONNECTING)
    except OSError as error:
        raise ConnectionError(
            f"worker {platform.node()} cannot connect to {address[0]}, port {address[1]}, the process that needs it: {error}; "
            "open its ports to the workers"
        ) from None
    with line:
        line.settimeout(None)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        with Connection(line.dup().detach()) as connection:
            answer_challenge(connection, key)
            deliver_challenge(connection, key)
            connection.send(number)
        source, sink = line.makefile("rb"), line.makefile("wb")

        def pass_on(message: object) -> None:
            with contextlib.suppress(OSError, ValueError):  # the connection is closed, which ends the process
                pickle.dump(message, sink, pickle.HIGHEST_PROTOCOL)
                sink.flush()

        process = Process(main, pass_on)
        try:
            while True:
                process.send(pickle.load(source))
        except (EOFError, OSError, pickle.UnpicklingError):
            pass
        finally:
            process.kill()
            process.wait()


def _host(executor: concurrent.futures.Executor) -> str:
    """Return the address of this machine for the workers: that from which it reaches the scheduler of dask, or other networks."""
    if isinstance(executor, concurrent.futures.ThreadPoolExecutor | concurrent.futures.ProcessPoolExecutor):
        return _LOCAL
    client = getattr(executor, "_client", None)
    target = _ANYWHERE if client is None else urlsplit(client.scheduler.address).hostname
    try:
        family, kind, _, _, there = socket.getaddrinfo(target, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(there)
            return str(probe.getsockname()[0])
    except OSError:  # no network
        return _LOCAL
