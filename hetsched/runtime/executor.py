"""Running a module by a decision, on threads or on several processes."""

from __future__ import annotations

import contextlib
import math
import platform
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import torch

from hetsched.arguments import check_count, checked
from hetsched.arrays import BoolArray, FloatArray
from hetsched.costs.machine import Machine
from hetsched.costs.timeline import RunTimes, Timeline
from hetsched.errors import InvalidArgument, InvalidProblem, OutOfMemory, UnsupportedFeature, warn
from hetsched.problem.problem import Problem
from hetsched.runtime.accelerator import full_precision
from hetsched.runtime.boundary import Boundary
from hetsched.runtime.checking import check_updates, checked_places, checked_problem, checked_program
from hetsched.runtime.code import Boxes, Compiled
from hetsched.runtime.engines import Finished, Launched, checked_ranks, launched, make_engine
from hetsched.runtime.places import Where, free_memory
from hetsched.runtime.plan import Plan
from hetsched.runtime.program import Program
from hetsched.runtime.ranks import Ranks
from hetsched.runtime.streams import queues_of
from hetsched.runtime.team import warn_unequal
from hetsched.runtime.threads import Threads
from hetsched.schedule.decision import Decision
from hetsched.schedule.objectives import period
from hetsched.schedule.schedule import Schedule
from hetsched.schedule.simulate import simulate

LEAST_TIMEOUT = 30.0
TIMEOUT_FACTOR = 60.0
"""The default time-out is so many times the makespan of the decision."""
SHORT_TASK = 100e-6
"""Seconds below which dispatching a task takes a part of it that counts."""
MOST_OF_MEMORY = 0.9
WARM_UP = 5
"""Runs before those that count."""
SLACK = 3
"""The default depth of a stream is so many times the makespan over the period."""
KEPT_PLANS = 8


class _Call(NamedTuple):
    """Arguments of a call."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


class _Preparation(NamedTuple):
    """What runs by a decision need."""

    decision: Decision
    plan: Plan
    boundary: Boundary


class StreamTimes(NamedTuple):
    """The pace of a stream of inputs, without those that begin and end it."""

    period: float
    """Seconds from one result to the next: the median over the spans of `depth` results, divided by `depth`."""
    q25: float
    q75: float
    latency: float
    """Median seconds from the begin of an input to its result."""
    depth: int
    """Most inputs in progress at a time."""


class Executor:
    """Runs a module by a decision on devices of this machine; a call has the arguments and the result of the module.

    Each device is a thread with its own number of torch threads and, if given, cores. It takes the steps of the decision's
    `Plan`. CPU devices of a process share memory, so that transfers between them copy nothing. The thread of a CUDA device enqueues
    its tasks and copies, and does not wait for them; weights are copied there once. Nothing computes gradients. One call runs at a
    time; a second one waits. The executor is a context manager, which ends its threads and processes.

    Parameters
    ----------
    module : torch.nn.Module or Program
        On the CPU, as the arguments and the result of a call are. A `Program` has to be given for tasks that are fused or whose batch
        is fixed, a `TrainingProgram` for training steps, which run on CPU threads of one process so far.
    example_args : tuple (or one tensor), optional
        Positional arguments for the capture of a module.
    decision : Schedule or Decision
        For the tasks of the module. Where a task has several batches, each is a part of the batch of the arguments.
    devices : mapping of name to int, sequence of int or str
        Of each device of the problem: a number of threads; the cores to which its threads are pinned, one each; or a CUDA device of
        torch, such as ``"cuda:0"``.
    problem : Problem, optional
        The problem of the decision; a `Schedule` can do without.
    example_kwargs : mapping, optional
        Keyword arguments for the capture of a module.
    engine : {"threads", "gloo"} or Ranks
        With ``"gloo"`` devices are in several processes, ranks, and values cross between these by gloo. Under torchrun these are its
        processes: each makes an executor with the same arguments, of which the decision, problem and time-out of rank 0 count, and
        makes the same calls; the result is on the rank of the device that makes its last value, None on others. Otherwise the executor
        starts them and ends them; `Ranks` are processes for several executors.
    ranks : mapping of name to int, optional
        The rank of each device; devices of one rank are threads of it. Default: each device has a rank of its own, in their order.
    fold : bool
        Whether the scale of batch norms is multiplied into the weights of convolutions. The result then differs from the
        module's by rounding; without, it is equal to the bit where the numbers of torch threads are and no batch is split. If weights
        that were folded, or copied to a CUDA device, change in place, runs are refused. On CUDA float32 is computed without TF32.
    graphs : bool
        Whether consecutive tasks of a CUDA device without a hand-off between them are enqueued as one CUDA graph. All values of a run
        then have memory of their own, streams have one input in progress, and tasks have no times: nothing can be measured but streams.
        Graphs are captured at the first call.
    copies : bool
        Whether a device copies each value that it receives, as devices with their own memory do.
    timeout : float, optional
        Seconds of a run after which it ends with `Timeout`; of one task at a time as many for each device. Default: 60 times the
        makespan of the decision, at least 30.

    Notes
    -----
    The error of a task is raised as it is, with a note and attributes `task`, `device` and `batch`. It, and on threads `Timeout` and
    `Cancelled`, have the `times` until then, a `costs.RunTimes` with NaN for what has not run, for what other ranks run, and for CUDA
    devices. A device without memory for a value raises `OutOfMemory`. The executor can run again afterwards, on new threads. With
    several processes all of them end after an error, and `restart` starts them again; a process that ends raises `PeerLost`. Under
    torchrun every rank raises an error, and the launcher has to start all of them again.

    While a call or a stream is in progress, torch computes float32 on CUDA without TF32 in the whole process, if a device is CUDA.

    Attributes
    ----------
    plan : Plan
    decision : Decision
        The one by which it runs, see `replace`.
    program : Program
    problem : Problem
        The given one; without, that of the module's graph with the durations of the schedule.
    placing_seconds, gathering_seconds : float
        Seconds of the last run before and after its clock: arguments put on their devices, and the result put together.

    Raises
    ------
    InvalidSchedule
        The schedule has other tasks than the module, or is not valid.
    InvalidProblem
        A device has no place, or a place no device; the arguments do not fit.
    UnsupportedFeature
        A task has several batches and a value of which the inputs cannot be told apart; folded weights have changed; the values of
        a run need more than 90 % of the free memory; the module is not on the CPU; a CUDA device has no kernel for an operator, or
        is one of several processes; training steps have another engine than threads, or a CUDA device; or this system cannot pin
        threads to cores. The module has what other processes cannot have, or processes have ended.
    OutOfMemory
        The weights do not fit into the memory of a CUDA device.
    """

    plan: Plan

    @checked(InvalidArgument)
    def __init__(
        self,
        module: torch.nn.Module | Program,
        example_args: tuple[Any, ...] | torch.Tensor | None,
        decision: Schedule | Decision,
        *,
        devices: Mapping[str, Where],
        problem: Problem | None = None,
        example_kwargs: Mapping[str, Any] | None = None,
        engine: Literal["threads", "gloo"] | Ranks = "threads",
        ranks: Mapping[str, int] | None = None,
        fold: bool = True,
        graphs: bool = False,
        copies: bool = False,
        timeout: float | None = None,
    ) -> None:
        if timeout is not None and not timeout > 0:
            raise InvalidArgument(f"timeout is {timeout!r}; it must be a number of seconds > 0, or None")
        if ranks is not None and engine == "threads":
            raise InvalidArgument(f"ranks is {ranks!r}, and engine='threads' has none; give engine='gloo', or leave ranks out")
        self.program = checked_program(module, example_args, example_kwargs)
        launch = Launched() if engine == "gloo" and launched() else None
        if launch is not None:
            decision, problem, timeout = launch.agreed((decision, problem, timeout))
        self.problem, self.decision, makespan = checked_problem(self.program, decision, problem)
        names = self.problem.cluster.names
        here = [True] * len(names) if launch is None else launch.here(checked_ranks(names, ranks, launch.size))
        self._here: BoolArray = np.array(here)
        """The devices on this host."""
        places = checked_places(names, devices, here)
        check_updates(self.program, engine, places)
        self.compiled = Compiled(self.program, fold)
        self._queues = queues_of(places, graphs)
        self._several = engine != "threads"
        self._preparations: deque[_Preparation] = deque(maxlen=KEPT_PLANS)
        _, self.plan, self._boundary = self._prepared(self.decision, weights=True)
        self._given_timeout, self.timeout = timeout, _timeout(timeout, makespan)
        if graphs:
            self._refuse_graphs()
        self._warn_of_short_tasks()
        warn_unequal(places)
        self._prepare_devices()
        self._engine = make_engine(
            engine, self.compiled, self.plan, places, ranks, self.timeout, copies, launch, self._queues, self._boundary.commit
        )
        self._alone: list[FloatArray] = []
        self._graphs = graphs
        self._captured: Any = None
        """The autocast modes with which graphs have been captured."""
        self._one_at_a_time = threading.Lock()
        self._streaming: int | None = None
        self.placing_seconds = self.gathering_seconds = 0.0
        weakref.finalize(self, self._engine.close)

    def __repr__(self) -> str:
        return f"<Executor of {self.problem.n_tasks} tasks on {self._engine!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the result of the module.

        Raises
        ------
        InvalidProblem
            The arguments are not those of the capture with a batch of the decision's inputs.
        Timeout
            The run takes longer than the time-out.
        Cancelled
            `cancel` or `close` was called.
        """
        with self._alone_here():
            return self._gathered(self._run(args, kwargs))

    def timed(self, *args: Any, **kwargs: Any) -> tuple[Any, Timeline]:
        """Return the result of the module, and the times of this run."""
        self._refuse_untimed()
        with self._alone_here():
            turn = self._run(args, kwargs, cpu=True)
            return self._gathered(turn), self._timeline([turn.times()])

    @checked(InvalidArgument)
    def replace(self, decision: Schedule | Decision) -> None:
        """Run by another decision from the next call on, on the same threads, which share the weights.

        If the decision is refused, the former one stays. The plans of the last few decisions are kept. `profiled` needs another
        `measure` afterwards.

        Parameters
        ----------
        decision : Schedule or Decision
            For the problem of the executor.

        Raises
        ------
        InvalidSchedule
            The decision is of another problem, or not valid.
        UnsupportedFeature
            As of the constructor.
        """
        _, decision, makespan = checked_problem(self.program, decision, self.problem)
        engine = self._engine
        with self._alone_here():
            if isinstance(engine, Threads):
                engine.team()  # refuses if it is closed
            if decision == self.decision:
                return
            if type(engine) is not Threads or any(self._queues):
                raise UnsupportedFeature(
                    "the decision is replaced only where all devices are CPU threads of this process; make a new executor"
                )
            made = self._prepared(decision)
            timeout = _timeout(self._given_timeout, makespan)
            engine.replace(made.plan, self.compiled.tasks(made.plan.gathered), timeout, made.boundary.commit)
            self.decision, self.plan, self._boundary = decision, made.plan, made.boundary
            self.timeout, self._alone = timeout, []

    @checked(InvalidArgument)
    def measure(self, *args: Any, runs: int = 30, profile: bool = True, machine: Machine | None = None, **kwargs: Any) -> Timeline:
        """Return the times of `runs` runs, after 5 others to warm up; the state of a training is then as before.

        Parameters
        ----------
        *args, **kwargs
            Arguments of the module.
        runs : int
            Number of runs that count; with fewer than 20 the median is uncertain.
        profile : bool
            Whether after each run all tasks run again one at a time, each on its device, for `profiled`.
        machine : hetsched.costs.Machine, optional
            Overheads that the timeline keeps, so that `compare` makes the forecast with them.
        """
        runs = check_count(runs, "runs", error=InvalidArgument)
        self._refuse_untimed()
        times: list[RunTimes] = []
        alone: list[FloatArray] = []
        with self._alone_here(), self.program.kept():
            self._engine.synchronise(first=True)
            for number in range(-WARM_UP, runs):
                turn = self._run(args, kwargs, cpu=True)
                if profile:
                    single = self._run(args, kwargs, serial=True).times()
                if number >= 0:
                    times.append(turn.times())
                    if profile:
                        alone.append(single.finish - single.start)
            self._engine.synchronise(first=False)
            self._alone = alone
            return self._timeline(times, machine)

    @checked
    def profiled(self, problem: Problem) -> Problem:
        """Return a problem in which the durations of the decision's batches are those of the last `measure`.

        These are medians over its runs of one task at a time, each on its device, and their mean where a task has several equal batches
        on a device; those of inputs stay 0.
        """
        if not self._alone:
            raise UnsupportedFeature("nothing has been profiled yet; call measure(..., profile=True) first")
        own = self.problem
        if (problem.graph.names, problem.cluster.names, problem.inputs) != (own.graph.names, own.cluster.names, own.inputs):
            raise InvalidProblem(
                f"the problem has {problem.n_tasks} tasks, {problem.n_devices} devices and {problem.inputs} inputs, which are not those "
                f"of the executor, {own.n_tasks}, {own.n_devices} and {own.inputs}; give the problem that the decision was made for"
            )
        table = problem.durations.copy()
        size = np.searchsorted(problem.batch_sizes, self.decision.sizes)
        medians = np.median(self._alone, axis=0)
        works = np.array([bool(steps) for steps in self.compiled.steps])[self.plan.task]
        cells, which = np.unique(np.stack([self.plan.task, self.plan.device, size]), axis=1, return_inverse=True)
        means = np.bincount(which, np.where(works, medians, 0.0)) / np.bincount(which)
        table[tuple(cells)] = means
        return problem.replace(durations=table, batch_sizes=problem.batch_sizes)

    @checked(InvalidArgument)
    def stream(self, items: Iterable[Any], depth: int | None = None) -> Iterator[Any]:
        """Return the results for a stream of arguments, in their order, with several of them in progress at a time.

        Each device works on the oldest one whose data is there. Arguments are taken from `items` in the thread that takes the
        results, no more than `depth` ahead of them. Until the last result has been taken, or the iterator has been closed, other
        calls wait.

        Parameters
        ----------
        items : iterable
            Of each call the positional arguments as a tuple, or the only one.
        depth : int, optional
            The most calls in progress at a time; each holds its own values. Default: three times the makespan of the decision over
            its period, so that a device that waits for data of some inputs finds another one to work on.

        Raises
        ------
        InvalidArgument
            `items` is not iterable, or `depth` is less than 1.
        UnsupportedFeature
            The values of so many calls need more than 90 % of the free memory.
        """
        return self._results(iter(items), self._depth(depth), [])

    @checked(InvalidArgument)
    def measure_stream(self, *args: Any, inputs: int | None = None, depth: int | None = None, **kwargs: Any) -> StreamTimes:
        """Return the pace of a stream in which each input has the same arguments.

        Parameters
        ----------
        *args, **kwargs
            Arguments of the module.
        inputs : int, optional
            Number of results that count, at least two times the depth; as many as the depth before and after them do not.
            Default: 30, or four times the depth if that is more.
        depth : int, optional
            See `stream`.
        """
        depth = self._depth(depth)
        inputs = max(30, 4 * depth) if inputs is None else check_count(inputs, "inputs", error=InvalidArgument)
        if inputs < 2 * depth:
            raise InvalidArgument(f"inputs is {inputs}; with a depth of {depth} at least {2 * depth} results have to count")
        spans: list[tuple[float, float]] = []
        for _ in self._results(iter([_Call(args, kwargs)] * (inputs + 2 * depth)), depth, spans):
            pass
        begun, ended = np.array(spans[depth : depth + inputs]).T
        gaps = (ended[depth:] - ended[:-depth]) / depth
        q25, median, q75 = np.quantile(gaps, [0.25, 0.5, 0.75]).tolist()
        return StreamTimes(median, q25, q75, float(np.median(ended - begun)), depth)

    def cancel(self) -> None:
        """End the call or measurement of another thread, with `Cancelled` there, after the tasks that run now."""
        self._engine.cancel()

    def restart(self) -> None:
        """Start the processes that run the ranks again, or new threads; after a run on processes has failed this has to be called."""
        with self._alone_here():
            self._engine.restart()

    def close(self) -> None:
        """End the threads, after the tasks that run now; a run of another thread is cancelled."""
        self._engine.close()

    # ------------------------------------------------------------------ a run

    @contextlib.contextmanager
    def _alone_here(self) -> Iterator[None]:
        """Wait for the calls of other threads to end, and keep them waiting."""
        if self._streaming == threading.get_ident():
            raise UnsupportedFeature("a stream of this executor is in progress; take all its results, or close it, before other calls")
        precision = full_precision() if any(self._queues) else contextlib.nullcontext()
        with self._one_at_a_time, precision, self.program.in_use():
            self._engine.renew()
            yield

    def _prepared(self, decision: Decision, weights: bool = False) -> _Preparation:
        """Return what runs by a decision need; raise an error if it cannot be run."""
        made = next((one for one in self._preparations if one.decision == decision), None)
        if made is None:
            plan = Plan(self.problem, decision, self.compiled.values)
            plan.check()
            made = _Preparation(decision, plan, Boundary(self.program, self.compiled, plan, self._queues))
            self._preparations.append(made)
        self._refuse_too_large(made.plan, weights=weights)
        return made

    def _placed(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Boxes:
        begin = time.perf_counter()
        boxes = self._boundary.placed(args, kwargs)
        if self._graphs:
            self._capture(boxes)
        self.placing_seconds = time.perf_counter() - begin
        return boxes

    def _capture(self, boxes: Boxes) -> None:
        """Capture the graphs, unless that was done with the present autocast modes."""
        casts = [(kind, torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind)) for kind in ("cpu", "cuda")]
        if casts != self._captured:
            assert isinstance(self._engine, Threads)  # other engines have no devices with streams
            self._engine.capture(boxes, lambda register, group: self.compiled.blank(register, len(self.plan.groups[group])))
            self._captured = casts

    def _run(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, serial: bool = False, cpu: bool = False) -> Finished:
        return self._engine.run(self._placed(args, kwargs), serial=serial, cpu=cpu)

    def _gathered(self, turn: Finished) -> Any:
        if not self._engine.has_result:
            return None
        begin = time.perf_counter()
        result = self._boundary.result(turn.registers)
        self.gathering_seconds = time.perf_counter() - begin
        return result

    def _results(self, items: Iterator[Any], depth: int, spans: list[tuple[float, float]]) -> Iterator[Any]:
        """Return the results of a stream; `spans` gets the begin and end of each."""

        def boxes() -> Iterator[Boxes]:
            for call in items:
                args, kwargs = call if isinstance(call, _Call) else (call if isinstance(call, tuple) else (call,), {})
                yield self._placed(args, kwargs)

        with self._alone_here():
            self._streaming = threading.get_ident()
            try:
                with contextlib.closing(self._engine.stream(boxes(), depth)) as turns:
                    for turn in turns:
                        spans.append(turn.span)
                        yield self._gathered(turn)
            finally:
                self._streaming = None

    def _depth(self, given: int | None = None) -> int:
        """Return the checked depth of a stream; by default, so many inputs in progress as keep the busiest device busy."""
        if self.program.updates:
            raise UnsupportedFeature(
                "a training step needs the parameters of the step before, so that steps cannot be a stream; call one by one"
            )
        if self._graphs and given not in (None, 1):
            raise UnsupportedFeature(f"depth is {given}; graphs have one input in progress: give 1, or make the executor with graphs=False")
        if given is None and self._graphs:
            depth = 1
        elif given is None:
            schedule = simulate(self.problem, self.decision)
            pace = self.problem.inputs * period(self.problem, schedule)
            depth = SLACK * max(math.ceil(schedule.makespan / pace) if pace > 0 else 1, 1)
        else:
            depth = check_count(given, "depth", error=InvalidArgument)
        self._refuse_too_large(self.plan, depth)
        return depth

    def _timeline(self, times: Sequence[RunTimes], machine: Machine | None = None) -> Timeline:
        return Timeline.of_runs(
            self.problem,
            self.decision,
            times,
            carried=self.plan.carried,
            machine=machine,
            plan_digest=self.plan.digest,
            software={"python": platform.python_version(), "system": platform.platform(), "torch": str(torch.__version__)},
            clock_error=self._engine.clock_error,
        )

    def _prepare_devices(self) -> None:
        """Copy the weights of tasks to the devices that have streams, and make the buffers of hand-offs to and from them."""
        for k, queues in enumerate(self._queues):
            if queues is None:
                continue
            try:
                queues.load(self.compiled, np.unique(self.plan.task[self.plan.device == k]).tolist())
            except torch.OutOfMemoryError as error:
                raise OutOfMemory(
                    f"there is no memory left on device {self.plan.devices[k]!r} for the weights of its tasks; the plan needs "
                    f"{self.plan.peak_bytes[k]:.3g} bytes there; place tasks on other devices"
                ) from error.with_traceback(None)
            queues.buffers.fill(self._across(self.plan, k))

    def _refuse_untimed(self) -> None:
        if self._graphs:
            raise UnsupportedFeature("tasks in graphs have no times of their own; measure an executor with graphs=False, or a stream")

    def _refuse_graphs(self) -> None:
        """Raise `UnsupportedFeature` if no device has graphs, or a value has no fixed shape."""
        if not any(self._queues):
            raise UnsupportedFeature("graphs=True needs a CUDA device, and all devices are of the CPU; leave it out")
        for batch, task in enumerate(self.plan.task.tolist()):
            if self._queues[int(self.plan.device[batch])] is not None:
                for register, value in enumerate(self.plan.values):
                    if value.task == task:
                        self.compiled.blank(register, len(self.plan.items[batch]))

    def _across(self, plan: Plan, k: int) -> list[int]:
        """Return the bytes of the values that cross between the host and a device."""
        host = [queues is None for queues in self._queues]
        ends = [(int(plan.device[send.batch]), send) for send in plan.sends]
        return [
            round(plan.values[send.value].bytes) * len(plan.items[send.batch])
            for source, send in ends
            if (source == k and host[send.to]) or (send.to == k and host[source])
        ]

    def _refuse_too_large(self, plan: Plan, depth: int = 1, weights: bool = False) -> None:
        """Raise `UnsupportedFeature` if so many runs at a time need too much memory; of devices, with the weights if they are not there."""
        values = depth * (plan.peak_bytes - plan.weight_bytes)
        runs = "a run" if depth == 1 else f"{depth} runs at a time"
        remedy = "run fewer inputs at a time" + ("" if depth == 1 else ", or give a smaller depth")
        for k, queues in enumerate(self._queues):
            if queues is not None:
                wanted, left = float(values[k] + weights * plan.weight_bytes[k]), queues.accelerator.free_bytes()
                if wanted > MOST_OF_MEMORY * left:
                    raise UnsupportedFeature(
                        f"{'weights and ' if weights else ''}values of {runs} need {wanted:.3g} bytes on device {plan.devices[k]!r}, "
                        f"more than 90 % of the {left:.3g} that are free there; {remedy}"
                    )
        free, host = free_memory(), self._here & np.array([queues is None for queues in self._queues])
        pinned = [k for k, queues in enumerate(self._queues) if queues is not None]
        needed = float(values[host].sum()) + depth * sum(sum(self._across(plan, k)) for k in pinned)
        if self._several:  # a sender holds a value until the run has ended, a receiver a buffer for it
            ends = [int(self._here[plan.device[send.batch]]) + int(self._here[send.to]) for send in plan.sends]
            held = [plan.values[send.value].bytes * len(plan.items[send.batch]) for send in plan.sends]
            needed += depth * float(np.dot(ends, held))
        if free is not None and needed > MOST_OF_MEMORY * free:
            own = ", ".join(f"{name!r} {peak:.3g}" for name, peak in zip(plan.devices, plan.peak_bytes, strict=True))
            raise UnsupportedFeature(
                f"the values of {runs} need {needed:.3g} bytes, more than 90 % of the {free:.3g} that are free (with weights {own}); "
                f"{remedy}"
            )

    def _warn_of_short_tasks(self) -> None:
        size = np.searchsorted(self.problem.batch_sizes, self.decision.sizes)
        seconds = self.problem.durations[self.plan.task, self.plan.device, size]
        seconds = seconds[seconds > 0]
        if len(seconds) and seconds.mean() < SHORT_TASK:
            warn(
                f"the tasks take {1e6 * seconds.mean():.3g} us each, of which dispatching them is a part that counts; "
                + ("give a larger batch" if self.program.updates else "fuse them by capture(fuse=True) and Program(fuse=True)")
            )


def _timeout(given: float | None, makespan: float) -> float:
    return given if given is not None else max(LEAST_TIMEOUT, TIMEOUT_FACTOR * makespan)
