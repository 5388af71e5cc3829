"""Child processes that may be lost: they exchange pickles with this process by pipes.

Such a process is a new interpreter, not forked and not by `multiprocessing`: a fork is not safe in a
process with threads, and spawning would run the user's script again. It ends when its input is closed,
so none outlives its parent.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import IO, Any, NoReturn, TypeAlias

in_process: ContextVar[bool] = ContextVar("in_process", default=False)
"""Whether solvers given by name, and the compiler, run in this process: this starts faster, but a solver that aborts ends this
process too, and compiling has no time limit."""
_THREAD_LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "NUMBA_NUM_THREADS")
_START = (
    "import sys; sys.path[:] = {path!r}; from {module} import {function}; {function}({log})"  # like -m, but with the path of the parent
)
_TAIL = 4096  # bytes of standard error that are read after the end of a process
_LONGEST = 200  # characters of the last line of standard error


@dataclass(frozen=True)
class Ready:
    """A process has loaded its modules and waits for work."""


@dataclass(frozen=True)
class StopRequest:
    """A request to end the current work soon."""


@dataclass(frozen=True)
class ProcessDied:
    """A process has ended without a request."""

    exit_code: int | None
    """None if it was lost with its machine or the connection to it."""
    last_words: str = ""
    """The last line of its standard error that is not part of a stack trace; how it was lost."""

    def __str__(self) -> str:
        words = f": {self.last_words}" if self.last_words else ""
        if self.exit_code is None:
            return f"was lost{words}"
        if self.exit_code >= 0:
            return f"ended by itself with exit code {self.exit_code}{words}"
        try:
            name = f" ({signal.Signals(-self.exit_code).name})"
        except ValueError:
            name = ""
        return f"was killed by signal {-self.exit_code}{name}{words}"


class Peer(ABC):
    """The parent's side of a process: its messages.

    Parameters
    ----------
    receive : callable
        Called, in a thread, with each message, and finally with `ProcessDied`.
    """

    def __init__(self, receive: Callable[[Any], object]) -> None:
        self._receive = receive
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

    def converse(self, source: IO[bytes], sink: IO[bytes]) -> None:
        """Exchange messages in two threads."""
        threading.Thread(target=self._write, args=(sink,), daemon=True).start()
        threading.Thread(target=self._read, args=(source,), daemon=True).start()

    def send(self, message: bytes) -> None:
        """Send a pickle without waiting until it is read."""
        self._outbox.put(message)

    @property
    def begun(self) -> bool:
        """Whether the process was started; one elsewhere may have to wait for its turn."""
        return True

    @abstractmethod
    def kill(self) -> None:
        """End the process at once."""

    @abstractmethod
    def wait(self) -> None:
        """Wait until the process that was killed has ended."""

    @abstractmethod
    def lost(self) -> ProcessDied:
        """Return how the process has ended, after the end of its messages."""

    def _write(self, sink: IO[bytes]) -> None:
        with contextlib.suppress(OSError):  # it has ended, which the reader detects
            while (message := self._outbox.get()) is not None:
                sink.write(message)
                sink.flush()
        with contextlib.suppress(OSError):
            sink.close()

    def _read(self, source: IO[bytes]) -> None:
        try:
            while True:
                self._receive(pickle.load(source))
        except Exception:  # the end, or an incomplete message of a killed process
            self._receive(self.lost())
        source.close()


class Process(Peer):
    """The parent's side of a process of this machine that runs ``function(log)`` of a module of this package.

    The standard error of its C code goes to a file, whose last line is reported if it dies; the output of
    its Python code goes to this process's standard error.

    Parameters
    ----------
    main : str
        ``"module:function"``; the function first makes a `Channel`.
    receive : callable
        Called, in a thread, with each message, and finally with `ProcessDied`.
    """

    def __init__(self, main: str, receive: Callable[[Any], object]) -> None:
        super().__init__(receive)
        module, function = main.split(":")
        environment = {**os.environ, **dict.fromkeys(_THREAD_LIMITS, "1")}
        settings: dict[str, Any] = {}
        log = -1
        if os.name == "posix":
            settings["process_group"] = 0  # Ctrl-C at the terminal is handled by the parent
            with contextlib.suppress(OSError):  # no standard error
                log = os.dup(2)
                settings["pass_fds"] = (log,)
        else:
            settings["creationflags"] = 0x200
        self._errors = tempfile.TemporaryFile() if log >= 0 else None  # noqa: SIM115  # open as long as the process
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _START.format(path=sys.path, module=module, function=function, log=log)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=environment,
                **settings,
            )
        finally:
            if log >= 0:
                os.close(log)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.converse(self.process.stdout, self.process.stdin)

    @property
    def alive(self) -> bool:
        """Whether the process is running."""
        return self.process.poll() is None

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self.process.pid

    def kill(self) -> None:
        """End the process at once."""
        self.process.kill()
        self._outbox.put(None)

    def wait(self) -> None:
        """Wait until the process has ended."""
        self.process.wait()

    def lost(self) -> ProcessDied:
        """Kill the process, and return its exit code and the end of its standard error."""
        self.kill()
        return ProcessDied(self.process.wait(), self._last_words())

    def _last_words(self) -> str:
        if self._errors is None:
            return ""
        with self._errors as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
            lines = [line.strip() for line in file.read().decode(errors="replace").splitlines()]
        relevant = [line for line in lines if line and not line.startswith(("@", "***", "PC:"))]
        return relevant[-1][:_LONGEST] if relevant else ""


Start: TypeAlias = Callable[[str, Callable[[Any], object]], Peer]
"""Starts a process from what `Process` takes."""


class Channel:
    """The child's side of a process that `Process` has started; the process ends when its parent has ended.

    Output of print goes to the file descriptor `log` afterwards.

    Attributes
    ----------
    requests : queue.SimpleQueue
        Messages received, except `StopRequest`.
    stop_requested : threading.Event
        Set by a `StopRequest`, until the next message.
    """

    def __init__(self, log: int) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # handled by the parent
        self._output, self._input = os.fdopen(os.dup(1), "wb"), os.fdopen(os.dup(0), "rb")
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        if log >= 0:
            sys.stderr = os.fdopen(log, "w", buffering=1, errors="backslashreplace")
        try:
            os.dup2(log if log >= 0 else 2, 1)  # output of a solver must not mix with the messages
        except OSError:  # no standard error
            os.dup2(null, 1)
        self.requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.stop_requested = threading.Event()
        self._one_at_a_time = threading.Lock()  # solvers report solutions and bounds from several threads
        threading.Thread(target=self._listen, daemon=True).start()

    def send(self, message: object) -> None:
        """Send a message."""
        try:
            with self._one_at_a_time:
                pickle.dump(message, self._output, pickle.HIGHEST_PROTOCOL)
                self._output.flush()
        except OSError:
            os._exit(0)

    def _listen(self) -> NoReturn:
        try:
            while True:
                message = pickle.load(self._input)
                if isinstance(message, StopRequest):
                    self.stop_requested.set()
                else:
                    self.stop_requested.clear()
                    self.requests.put(message)
        finally:
            os._exit(0)
