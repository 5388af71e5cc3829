"""Work on an executor whose failures do not lose it."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from hetsched.stopping import Deadline

J = TypeVar("J")
_WAKE = 0.05  # seconds between readings of the clock while the executor works


class _Running(NamedTuple):
    """A job on the executor, and its work."""

    job: Any
    work: Callable[..., Any]
    args: tuple[Any, ...]


class Jobs(Generic[J]):
    """Jobs on an executor; the work of one that the executor fails to do is done in this process.

    Parameters
    ----------
    executor : Executor or None
        With None all work is done in this process, at its submission.
    learn : callable
        Called with a job and its result.
    trouble : callable
        Called with a message when the executor fails.
    """

    def __init__(
        self, executor: concurrent.futures.Executor | None, learn: Callable[[J, Any], None], trouble: Callable[[str], object]
    ) -> None:
        self.executor, self.learn, self.trouble = executor, learn, trouble
        self._waiting: dict[concurrent.futures.Future[Any], _Running] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def running(self) -> list[J]:
        """The jobs on the executor."""
        return [running.job for running in self._waiting.values()]

    def submit(self, job: J, work: Callable[..., Any], *args: Any) -> None:
        """Have ``work(*args)`` done for a job."""
        if self.executor is None:
            self.learn(job, work(*args))
            return
        try:
            self._waiting[self.executor.submit(work, *args)] = _Running(job, work, args)
        except Exception as error:  # a broken pool or a lost connection: the work can be done here
            self._here(_Running(job, work, args), error)

    def collect(self, deadline: Deadline) -> None:
        """Wait a short time for at least one job, if there is any, and learn the results of all that have ended."""
        if not self._waiting:
            return
        left = max(0.0, min(deadline.left, _WAKE))
        for future in concurrent.futures.wait(self._waiting, left, concurrent.futures.FIRST_COMPLETED).done:
            running = self._waiting.pop(future)
            try:
                result = future.result()
            except Exception as error:  # an error of the work itself is raised again here
                self._here(running, error)
            else:
                self.learn(running.job, result)

    def cancel(self) -> None:
        """Cancel the jobs that have not begun."""
        for future in self._waiting:
            future.cancel()

    def _here(self, running: _Running, error: Exception) -> None:
        self.trouble(f"the executor failed ({type(error).__name__}: {error}); its work was done in this process")
        self.learn(running.job, running.work(*running.args))
