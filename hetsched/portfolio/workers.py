"""Worker processes, which run methods on a problem and report results as they are found."""

from __future__ import annotations

import contextlib
import importlib
import pickle
import queue
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NoReturn

from hetsched.errors import InconsistentBound, UnsupportedFeature
from hetsched.modeling.backends import in_process
from hetsched.portfolio.protocol import Done, Failure, Found, Job, Message, Proved
from hetsched.problem.problem import Problem
from hetsched.processes import Channel, Process, ProcessDied, Ready, Start, StopRequest
from hetsched.schedule.schedule import Schedule
from hetsched.schedule.simulate import simulate
from hetsched.search import Budget, Event, Monitor, discover, registered
from hetsched.search.monitor import START
from hetsched.search.solution import Bound
from hetsched.stopping import Deadline, Stop

_WAKE = 0.01  # seconds between checks for messages while a method runs in this process


@dataclass(frozen=True)
class _Hello:
    problem: Problem
    modules: Mapping[str, str]
    """The module that registers each method, by name."""


class JobMonitor(Monitor):
    """The monitor of a job: results better than its start are passed to `send` immediately.

    `look` is called whenever the method checks for a stop.
    """

    def __init__(
        self,
        problem: Problem,
        job: Job,
        send: Callable[[Message], object],
        *,
        look: Callable[[], object] | None = None,
        parent: Monitor | None = None,
    ) -> None:
        super().__init__(
            problem,
            Budget(job.time_limit, job.evaluations),
            seed=job.seed,
            on_progress=self._pass_on,
            parent=parent,
            objective=job.objective,
        )
        self._look = look
        self._send = send
        if job.start is not None:
            self.best = job.start if isinstance(job.start, Schedule) else simulate(problem, job.start)
            self.incumbent = self.value_of(problem, self.best)
            self._found_by = START
        self.bound = job.bound
        self._told: tuple[Schedule | None, Bound] = (self.best, self.bound)

    @property
    def stopped(self) -> Stop:
        """The reason to stop; `Stop.NONE`, an empty string, while the method may continue."""
        if self._look is not None:
            self._look()
        return super().stopped

    def _pass_on(self, event: Event) -> None:
        best, bound = self._told
        self._told = (self.best, self.bound)
        if self.best is not None and self.best is not best:
            self._send(Found(self.best.decision, event.incumbent, event.source, event.nodes))
        if self.bound is not bound:
            self._send(Proved(self.bound, event.nodes))

    def perform(self, job: Job) -> Done:
        """Run the job to its end and return its outcome."""
        failure, message = Failure.NONE, ""
        try:
            if not self.should_stop:
                self.run(job.method, job.options)
        except UnsupportedFeature as error:
            failure, message = Failure.REFUSED, str(error)
        except InconsistentBound as error:
            failure, message = Failure.INCONSISTENT, str(error)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # any failure of a method, even SystemExit, ends only its job
            failure, message = Failure.FAILED, f"{type(error).__name__}: {error}"
        efforts = tuple((name, effort.value, effort.evaluations, effort.seconds) for name, effort in self._efforts.items() if name)
        return Done(efforts, tuple(self._messages), self.stopped or Stop.FINISHED, failure, message)


class JobReceiver:
    """Passes the messages of one job to a monitor, under the names of the methods that found the results."""

    def __init__(self, monitor: Monitor, name: str) -> None:
        self.monitor, self.name = monitor, name
        self.began = monitor.elapsed
        self._offered: Counter[str] = Counter()

    @property
    def improved(self) -> bool:
        """Whether the job has found a schedule better than the best before."""
        return self._offered.total() > 0

    def take(self, message: Message) -> None:
        """Offer a decision, which is simulated again in this process, or record a bound or the end."""
        monitor = self.monitor
        before = monitor.source
        try:
            if isinstance(message, Found):
                monitor.nodes = message.nodes
                if message.value < monitor.incumbent:
                    monitor.source = message.source
                    self._offered[message.source] += 1
                    monitor.offer(message.decision)
            elif isinstance(message, Proved):
                monitor.nodes = message.nodes
                monitor.raise_bound(message.bound)
            elif isinstance(message, Done):
                self._close(message)
            elif isinstance(message, ProcessDied):
                monitor.source = ""
                monitor.note(f"{self.name}'s process {message}; its results so far are kept")
                self.abandon()
        finally:
            monitor.source = before

    def _close(self, done: Done) -> None:
        monitor = self.monitor
        for name, value, evaluations, seconds in done.efforts:
            monitor.credit(name, value=value, evaluations=max(0, evaluations - self._offered[name]), seconds=seconds)
        monitor.source = ""
        for message in done.messages:
            monitor.note(message)
        if done.failure is Failure.INCONSISTENT:
            raise InconsistentBound(done.error)
        if done.failure in (Failure.REFUSED, Failure.FAILED):
            monitor.note(f"{self.name}{' failed' if done.failure is Failure.FAILED else ''}: {done.error}")

    def abandon(self) -> None:
        """Count the seconds of a job whose end will not be reported."""
        self.monitor.credit(self.name, seconds=self.monitor.elapsed - self.began)


def run_here(monitor: Monitor, job: Job, look: Callable[[JobMonitor], object] | None = None) -> tuple[Done, bool]:
    """Run a job in this process, for a monitor whose own source is the caller's name.

    `look` is called with the job's monitor whenever the method checks for a stop, at most each hundredth of a
    second, and may stop it. Returns the outcome and whether there is a better schedule.
    """
    receiver = JobReceiver(monitor, job.method)
    due = Deadline.after(0.0, monitor.clock)

    def often() -> None:
        nonlocal due
        if look is not None and due.over:
            due = Deadline.after(_WAKE, monitor.clock)
            look(job_monitor)

    job_monitor = JobMonitor(monitor.problem, job, receiver.take, look=often, parent=monitor)
    start = monitor.elapsed
    done = job_monitor.perform(job)
    monitor.credit(monitor.source, seconds=start - monitor.elapsed)  # the caller's seconds exclude those of the job
    receiver.take(done)
    return done, receiver.improved


class Worker:
    """The parent's side of a process that runs jobs one after another."""

    def __init__(self, inbox: queue.SimpleQueue[tuple[Worker, Message]], hello: bytes, start: Start) -> None:
        self.ready = False
        self.receiver: JobReceiver | None = None
        """The receiver of its current job, or None."""
        self.process = start("hetsched.portfolio.workers:serve", lambda message: inbox.put((self, message)))
        self.process.send(hello)

    @property
    def idle(self) -> bool:
        """Whether it waits for a job."""
        return self.ready and self.receiver is None


class Pool:
    """Worker processes for one problem; a context manager that ends them.

    Parameters
    ----------
    problem : Problem
    count : int
        Number of processes. They load in the background, which takes about a second.
    start : callable
        Starts a process, here or by a worker of an executor.
    """

    def __init__(self, problem: Problem, count: int, start: Start = Process) -> None:
        self._start = start
        modules = {name: method.function.__module__ for name, method in registered().items()}
        self._hello = pickle.dumps(_Hello(problem, modules), pickle.HIGHEST_PROTOCOL)
        self._inbox: queue.SimpleQueue[tuple[Worker, Message]] = queue.SimpleQueue()
        self.workers: list[Worker] = []
        try:
            for _ in range(count):
                self.start()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def start(self) -> None:
        """Start another worker; raise `OSError` if no process can be started."""
        self.workers.append(Worker(self._inbox, self._hello, self._start))

    def give(self, worker: Worker, job: Job, receiver: JobReceiver) -> None:
        """Send a job to an idle worker; raise an error if the job cannot be pickled."""
        worker.process.send(pickle.dumps(job, pickle.HIGHEST_PROTOCOL))
        worker.receiver = receiver

    def receive(self, seconds: float = 0.0) -> Iterator[tuple[Worker, Message, JobReceiver | None]]:
        """Yield the messages received, with the receiver of the worker's job, after waiting up to `seconds` for the first.

        Of several waiting decisions of a worker only the last is yielded, which is the best.
        """
        messages: list[tuple[Worker, Message]] = []
        with contextlib.suppress(queue.Empty):
            messages.append(self._inbox.get(timeout=seconds) if seconds > 0 else self._inbox.get_nowait())
            while True:
                messages.append(self._inbox.get_nowait())
        last = {worker: place for place, (worker, message) in enumerate(messages) if isinstance(message, Found)}
        for place, (worker, message) in enumerate(messages):
            if worker not in self.workers or (isinstance(message, Found) and last[worker] != place):
                continue
            receiver = worker.receiver
            if isinstance(message, Ready):
                worker.ready = True
            elif isinstance(message, Done):
                worker.receiver = None
            elif isinstance(message, ProcessDied):
                worker.receiver = None
                self.workers.remove(worker)
                worker.process.kill()
            yield worker, message, receiver

    def stop(self) -> None:
        """Request that all jobs end soon."""
        for worker in self.workers:
            if worker.receiver is not None:
                worker.process.send(pickle.dumps(StopRequest()))

    def close(self) -> None:
        """Kill all workers and wait until they have ended."""
        for worker in self.workers:
            worker.process.kill()
        for worker in self.workers:
            worker.process.wait()
        self.workers = []


# ---------------------------------------------------------------- the child's side


def serve(log: int) -> NoReturn:
    """Run a worker: read a problem and jobs from standard input and write results to standard output."""
    in_process.set(True)  # this process may be lost
    _Side(Channel(log)).work()


class _Side:
    """The worker's side of the pipes."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel

    def work(self) -> NoReturn:
        """Run job after job."""
        hello = self.channel.requests.get()
        assert isinstance(hello, _Hello)
        discover(plug_ins=False)  # plug-ins are loaded with their first job, for they may crash
        self.channel.send(Ready())
        while True:
            job = self.channel.requests.get()
            assert isinstance(job, Job)
            self.channel.send(self._perform(hello, job))

    def _perform(self, hello: _Hello, job: Job) -> Done:
        module = hello.modules.get(job.method, "__main__")
        if job.method not in registered() and module != "__main__":
            try:
                importlib.import_module(module)
            except BaseException as error:  # SystemExit too
                return Done(failure=Failure.UNKNOWN, error=f"{module} cannot be imported: {type(error).__name__}: {error}")
        if job.method not in registered():
            return Done(failure=Failure.UNKNOWN, error=f"{module} registers no method {job.method!r} when it is imported")
        job_monitor = JobMonitor(hello.problem, job, self.channel.send, look=lambda: self._look(job_monitor))
        return job_monitor.perform(job)

    def _look(self, job_monitor: Monitor) -> None:
        if self.channel.stop_requested.is_set():
            job_monitor.stop(Stop.STOPPED)
