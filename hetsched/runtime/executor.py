"""Running a module by a decision, each device on a thread of its own."""

from __future__ import annotations

import contextlib
import math
import os
import platform
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import torch

from hetsched.arguments import check_count, checked
from hetsched.arrays import FloatArray
from hetsched.costs.timeline import RunTimes, Timeline
from hetsched.errors import Cancelled, InvalidArgument, InvalidProblem, InvalidSchedule, Timeout, UnsupportedFeature, warn
from hetsched.problem.cluster import Cluster
from hetsched.problem.problem import Problem
from hetsched.runtime.code import Compiled, Registers
from hetsched.runtime.places import Place, Where, place
from hetsched.runtime.plan import Plan, runs_of
from hetsched.runtime.program import Program
from hetsched.runtime.team import (
    COMMIT,
    PASS,
    RUN,
    TAKE,
    WAIT,
    Stream,
    Team,
    Turn,
    Work,
    gathering,
    parallel_steps,
    serial_steps,
    warn_unequal,
)
from hetsched.schedule.decision import Decision
from hetsched.schedule.objectives import period
from hetsched.schedule.schedule import Schedule
from hetsched.schedule.simulate import simulate

LEAST_TIMEOUT = 30.0
TIMEOUT_FACTOR = 60.0
"""The default time-out is so many times the makespan of the decision."""
HAND_OFF = 6e-6
"""Seconds of a hand-off between two threads, assumed where the run does not show them."""
SHORT_TASK = 100e-6
"""Seconds below which dispatching a task takes a part of it that counts."""
MOST_OF_MEMORY = 0.9
WARM_UP = 5
"""Runs before those that count."""
SLACK = 3
"""The default depth of a stream is so many times the makespan over the period."""
GRACE = 1.0
"""Seconds for other devices to end their tasks after one has failed."""


class _Call(NamedTuple):
    """Arguments of a call."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


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
    `Plan`. Devices share memory, so that transfers copy nothing. Nothing computes gradients. One call runs at a time; a second
    one waits. The executor is a context manager, which ends its threads.

    Parameters
    ----------
    module : torch.nn.Module or Program
        On the CPU. A `Program` has to be given for tasks that are fused or whose batch is fixed, a `TrainingProgram` for training steps.
    example_args : tuple (or one tensor), optional
        Positional arguments for the capture of a module.
    decision : Schedule or Decision
        For the tasks of the module. Where a task has several batches, each is a part of the batch of the arguments.
    devices : mapping of name to int or sequence of int
        Of each device of the problem: a number of threads, or the cores to which its threads are pinned, one each.
    problem : Problem, optional
        The problem of the decision; a `Schedule` can do without.
    example_kwargs : mapping, optional
        Keyword arguments for the capture of a module.
    engine : {"threads"}
    fold : bool
        Whether the scale of batch norms is multiplied into the weights of convolutions. The result then differs from the
        module's by rounding; without, it is equal to the bit where the numbers of torch threads are and no batch is split. If weights
        that were folded change in place, runs are refused.
    copies : bool
        Whether a device copies each value that it receives, as devices with their own memory do.
    timeout : float, optional
        Seconds of a run after which it ends with `Timeout`; of one task at a time as many for each device. Default: 60 times the
        makespan of the decision, at least 30.

    Notes
    -----
    The error of a task is raised as it is, with a note and attributes `task`, `device` and `batch`. It, and `Timeout` and
    `Cancelled`, have the `times` until then, a `costs.RunTimes` with NaN for what has not run. The executor can run again afterwards,
    on new threads.

    Attributes
    ----------
    plan : Plan
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
        a run need more than 90 % of the free memory; the module or a device is not on the CPU; or this system cannot pin threads
        to cores.
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
        engine: Literal["threads"] = "threads",
        fold: bool = True,
        copies: bool = False,
        timeout: float | None = None,
    ) -> None:
        if timeout is not None and not timeout > 0:
            raise InvalidArgument(f"timeout is {timeout!r}; it must be a number of seconds > 0, or None")
        self.program = _program(module, example_args, example_kwargs)
        self.problem, self.decision, makespan = _problem(self.program, decision, problem)
        self.decision = self.program.arranged(self.problem, self.decision)
        self._places = _places(self.problem.cluster.names, devices)
        self.compiled = Compiled(self.program, fold)
        self.plan = Plan(self.problem, self.decision, self.compiled.values)
        self.plan.check()
        self.copies = copies
        self.timeout = timeout if timeout is not None else max(LEAST_TIMEOUT, TIMEOUT_FACTOR * makespan)
        self._refuse_too_large()
        self._warn_of_short_tasks()
        warn_unequal(self._places)
        self._kept = self._gatherings()
        self._entered: list[list[int]] = [[] for _ in range(self.problem.n_tasks)]
        for register in self.compiled.entered:
            self._entered[self.compiled.values[register].task].append(register)
        self._alone: list[FloatArray] = []
        self._teams: list[Team] = []
        self._closed = False
        self._ran = False
        self._one_at_a_time = threading.Lock()
        self._turn: Turn | Stream | None = None
        self._streaming: int | None = None
        self._cancelled = False
        self.placing_seconds = self.gathering_seconds = 0.0
        weakref.finalize(self, _close, self._teams)
        self._team()

    def __repr__(self) -> str:
        places = ", ".join(f"{place.name}: {place.threads}" for place in self._places)
        return f"<Executor of {self.problem.n_tasks} tasks on threads ({places})>"

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

    @checked(InvalidArgument)
    def measure(self, *args: Any, runs: int = 30, profile: bool = True, **kwargs: Any) -> Timeline:
        """Return the times of `runs` runs, after 5 others to warm up; the state of a training is then as before.

        Parameters
        ----------
        *args, **kwargs
            Arguments of the module.
        runs : int
            Number of runs that count; with fewer than 20 the median is uncertain.
        profile : bool
            Whether after each run all tasks run again one at a time, each on its device, for `profiled`.
        """
        runs = check_count(runs, "runs", error=InvalidArgument)
        times: list[RunTimes] = []
        alone: list[FloatArray] = []
        serial = serial_steps(self.plan, self.compiled)
        with self._alone_here(), self.program.kept():
            for number in range(-WARM_UP, runs):
                turn = self._run(args, kwargs, cpu=True)
                if profile:
                    single = _times(self._run(args, kwargs, steps=serial))
                if number >= 0:
                    times.append(_times(turn))
                    if profile:
                        alone.append(single.finish - single.start)
            self._alone = alone
        return self._timeline(times)

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
        self._cancelled = True
        turn = self._turn
        if turn is not None:
            turn.abort(Cancelled("the run was cancelled"))

    def close(self) -> None:
        """End the threads, after the tasks that run now; a run of another thread is cancelled."""
        self._closed = True
        _close(self._teams)

    # ------------------------------------------------------------------ a run

    @contextlib.contextmanager
    def _alone_here(self) -> Iterator[None]:
        """Wait for the calls of other threads to end, and keep them waiting."""
        if self._streaming == threading.get_ident():
            raise UnsupportedFeature("a stream of this executor is in progress; take all its results, or close it, before other calls")
        with self._one_at_a_time, self.program.in_use():
            self._cancelled = False
            yield

    def _team(self) -> Team:
        if self._closed:
            raise UnsupportedFeature("the executor is closed; make a new one")
        if not self._teams:
            self._teams.append(Team(self._places, parallel_steps(self.plan, self.compiled)))
        return self._teams[0]

    def _turn_of(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], work: Work, cpu: bool = False) -> Turn:
        """Return the turn that takes the steps with the arguments."""
        begin = time.perf_counter()
        boxes = self._placed(args, kwargs)
        steps, locks = work
        turn = Turn(
            steps,
            boxes,
            locks,
            len(self.plan.task),
            len(self.plan.sends),
            [time.thread_time_ns if cpu and place.threads == 1 else None for place in self._places],
            self.copies,
            torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") and not self.program.updates else None,
            commit=self._commit,
        )
        self.placing_seconds = time.perf_counter() - begin
        return turn

    def _run(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, steps: Work | None = None, cpu: bool = False) -> Turn:
        """Take all steps once, and return the turn with its registers and times."""
        team = self._team()
        turn = self._turn_of(args, kwargs, steps or team.work, cpu)
        limit, what = (self.timeout, "the run") if steps is None else (self.timeout * len(self._places), "the run of one task at a time")
        with self._started(team, turn):
            self._await(turn, turn, limit, what)
        return turn

    def _await(self, turn: Turn, work: Turn | Stream, limit: float, what: str) -> None:
        """Wait until a turn has ended, and raise its error."""
        try:
            if not turn.wait(limit):
                turn.abort(Timeout(f"{what} took longer than {limit:g} s: {self._doing(turn)}; give a longer timeout"))
                turn.complete()
        except BaseException as error:  # KeyboardInterrupt
            turn.abort(error)
            turn.complete()
            if turn.over:
                raise
        if not turn.over:
            work.abort(Cancelled("an earlier input of the stream failed"))
            if turn.began:
                turn.settle(GRACE)
            raise self._explained(turn)

    @contextlib.contextmanager
    def _started(self, team: Team, work: Turn | Stream) -> Iterator[None]:
        """Let the threads take a turn or a stream; unless that ends well they are left to themselves."""
        before = None if self._ran else _affinities()
        self._turn = work
        well = False
        try:
            if self._cancelled:
                work.abort(Cancelled("the run was cancelled"))
            team.start(work)
            yield
            well = True
        finally:
            self._turn = None
            if self._closed:  # in the meantime
                _close(self._teams)
            if not well:  # the next run has new threads, and new locks
                self._teams.clear()
                work.abort(Cancelled("the run was interrupted"))
                team.leave()
        team.turn = None
        if before is not None:
            self._ran = True
            _warn_of_moved(before, self._places)

    def _results(self, items: Iterator[Any], depth: int, spans: list[tuple[float, float]]) -> Iterator[Any]:
        """Return the results of a stream; `spans` gets the begin and end of each."""
        with self._alone_here():
            self._streaming = threading.get_ident()
            taken: deque[tuple[Turn, Work]] = deque()
            try:
                team = self._team()
                free = deque(parallel_steps(self.plan, self.compiled) for _ in range(depth))
                stream = Stream(len(self._places))
                with self._started(team, stream):
                    more = True
                    while True:
                        while more and free:
                            call = next(items, stream)
                            if call is stream:
                                more = False
                                break
                            args, kwargs = call if isinstance(call, _Call) else (call if isinstance(call, tuple) else (call,), {})
                            work = free.popleft()
                            turn = self._turn_of(args, kwargs, work)
                            taken.append((turn, work))
                            stream.admit(turn)
                        if not taken:
                            break
                        turn, work = taken.popleft()
                        self._await(turn, stream, self.timeout, "an input of the stream")
                        stream.remove(turn)
                        free.append(work)
                        spans.append((turn.began / 1e9, max(turn.ended) / 1e9))
                        yield self._gathered(turn)
                    stream.close()
            finally:
                self._streaming = None
                for turn, _ in taken:
                    turn.settle(GRACE)

    def _depth(self, given: int | None = None) -> int:
        """Return the checked depth of a stream; by default, so many inputs in progress as keep the busiest device busy."""
        if self.program.updates:
            raise UnsupportedFeature(
                "a training step needs the parameters of the step before, so that steps cannot be a stream; call one by one"
            )
        if given is None:
            schedule = simulate(self.problem, self.decision)
            pace = self.problem.inputs * period(self.problem, schedule)
            depth = SLACK * max(math.ceil(schedule.makespan / pace) if pace > 0 else 1, 1)
        else:
            depth = check_count(given, "depth", error=InvalidArgument)
        self._refuse_too_large(depth)
        return depth

    def _placed(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Registers]:
        """Return the registers of each device before a run."""
        given = self.program.inputs(args, kwargs)
        if self.compiled.outdated:
            raise UnsupportedFeature(
                "weights of the module have changed since the executor was made, which multiplied batch norms into them; make a new one, "
                "or give fold=False"
            )
        for length in self.compiled.lengths(given):
            if length != self.problem.inputs:
                raise InvalidProblem(
                    f"the arguments are a batch of {length}, and the decision is for {self.problem.inputs} inputs; "
                    "solve a problem of as many inputs as the batch has"
                )
        count, groups = len(self.compiled.values), self.plan.groups
        boxes: list[list[Registers]] = [[] for _ in self._places]
        entries: list[Registers] = []
        for items in groups:
            entries.append(self.compiled.start(given if items is groups[-1] else self.compiled.part(given, items)))
            for own in boxes:
                own.append([None] * count + entries[-1][count:])
        for batch, device in enumerate(self.plan.device.tolist()):
            group = self.plan.group[batch]
            for register in self._entered[int(self.plan.task[batch])]:
                boxes[device][group][register] = entries[group][register]
        return boxes

    def _gathered(self, turn: Turn) -> Any:
        begin = time.perf_counter()
        with torch.no_grad():
            result = self.compiled.result(self._results_of(turn.registers))
        self.gathering_seconds = time.perf_counter() - begin
        return result

    def _results_of(self, boxes: Sequence[Sequence[Registers]]) -> Registers:
        """Return registers with the values that are kept."""
        registers = list(boxes[0][-1])
        for register, gather in self._kept.items():
            registers[register] = gather(boxes)
        return registers

    def _commit(self, boxes: Sequence[Sequence[Registers]]) -> None:
        self.program.commit(self.compiled.outputs(self._results_of(boxes)))

    def _gatherings(self) -> dict[int, Callable[[Sequence[Sequence[Registers]]], Any]]:
        """Return, for each value that the result reads, the function that takes it from the registers of all devices."""
        plan, made = self.plan, {}
        for register, value in enumerate(plan.values):
            if value.kept:
                runs = runs_of(plan.groups[-1], plan.made(register))
                places = [(int(plan.device[batch]), plan.group[batch], first, count) for batch, first, count in runs]
                device, group, *_ = places[0]
                whole = len(places) == 1
                made[register] = partial(_taken, device, group, register) if whole else gathering(self.compiled, register, places)
        return made

    def _timeline(self, times: Sequence[RunTimes]) -> Timeline:
        return Timeline.of_runs(
            self.problem,
            self.decision,
            times,
            carried=self.plan.carried,
            plan_digest=self.plan.digest,
            software={"python": platform.python_version(), "system": platform.platform(), "torch": str(torch.__version__)},
        )

    # ------------------------------------------------------------------ faults

    def _explained(self, turn: Turn) -> BaseException:
        """Take the error of a turn and return it, with its task, device, batch and the times until then."""
        error, turn.error = turn.error, None  # for its traceback has the turn, and nothing would be freed
        assert error is not None
        with contextlib.suppress(AttributeError):
            error.times = _times(turn)  # type: ignore[attr-defined]
        if turn.failed is not None:
            device, number = turn.failed
            step = turn.steps[device][number]
            where = f"on device {self.plan.devices[device]!r}"
            if step[0] == RUN:
                name = self.program.graph.names[int(self.plan.task[step[2]])]
                where = f"in task {name!r} {where}, batch {step[2]}"
                with contextlib.suppress(AttributeError):
                    error.task, error.batch = name, step[2]  # type: ignore[attr-defined]
            with contextlib.suppress(AttributeError):
                error.device = self.plan.devices[device]  # type: ignore[attr-defined]
            error.add_note(where)
        if turn.committed:
            error.add_note("some parameters have been updated already; load the states of module and optimiser again")
        return error

    def _doing(self, turn: Turn) -> str:
        """Return what each device does."""
        names = self.program.graph.names
        told = []
        for k, device in enumerate(self.plan.devices):
            kind, _, which, *_ = turn.steps[k][turn.at[k]] if turn.steps[k] else (PASS, None, 0)
            if turn.ended[k] >= 0:
                told.append(f"{device!r} has ended")
            elif kind == RUN:
                told.append(f"{device!r} is in task {names[int(self.plan.task[which])]!r}")
            elif kind == WAIT:
                value, send = self.plan.values[which], self.plan.sends[turn.steps[k][turn.at[k]][4]]
                giver = self.plan.devices[int(self.plan.device[send.batch])]
                told.append(f"{device!r} waits for {value.name!r} of task {names[value.task]!r} from {giver!r}")
            elif kind == COMMIT:
                told.append(f"{device!r} waits for the other devices before its updates")
            elif kind == TAKE:
                told.append(f"{device!r} waits for its turn")
            else:
                told.append(f"{device!r} is between two tasks")
        return ", ".join(told)

    def _refuse_too_large(self, depth: int = 1) -> None:
        """Raise `UnsupportedFeature` if so many runs at a time need too much memory."""
        free = free_memory()
        needed = depth * float((self.plan.peak_bytes - self.plan.weight_bytes).sum())
        if free is not None and needed > MOST_OF_MEMORY * free:
            own = ", ".join(f"{name!r} {peak:.3g}" for name, peak in zip(self.plan.devices, self.plan.peak_bytes, strict=True))
            raise UnsupportedFeature(
                f"the values of {'a run' if depth == 1 else f'{depth} runs at a time'} need {needed:.3g} bytes, more than 90 % of the "
                f"{free:.3g} that are free (with weights {own}); run fewer inputs at a time"
                + ("" if depth == 1 else ", or give a smaller depth")
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


def _program(module: Any, example_args: Any, example_kwargs: Mapping[str, Any] | None) -> Program:
    if isinstance(module, Program):
        program = module
    elif example_args is None:
        raise InvalidProblem("example_args is None, which only a Program can do without; give arguments of a call")
    else:
        program = Program(module, example_args, example_kwargs=example_kwargs)
    if program.device.type != "cpu":
        raise UnsupportedFeature(f"the module is on a {program.device.type} device; the executor runs on CPU threads so far")
    return program


def _problem(program: Program, decision: Schedule | Decision, problem: Problem | None) -> tuple[Problem, Decision, float]:
    """Return the problem of a decision, the decision, and its makespan."""
    names = program.graph.names
    tasks = decision.tasks if isinstance(decision, Schedule) else None if problem is None else problem.graph.names
    if tasks is None:
        raise InvalidArgument("a Decision has no names of devices; give its problem too, or a Schedule")
    if problem is not None and isinstance(decision, Schedule):
        same = decision.devices == problem.cluster.names and decision.n_inputs == problem.inputs and tasks == problem.graph.names
        if not same:
            raise InvalidSchedule("the schedule is of another problem; give the one that it was made for, or leave it out")
    if tasks != names:
        missing = next((name for name in tasks if name not in program.graph.index), None) or next(
            (name for name in names if name not in set(tasks)), names[0]
        )
        raise InvalidSchedule(
            f"the schedule has {len(tasks)} tasks and the module {len(names)}, which differ, as in {missing!r}; "
            "give the Program that was made with the same arguments as the graph, such as fuse"
        )
    if isinstance(decision, Decision):
        assert problem is not None
        return problem, decision, simulate(problem, decision).makespan
    if problem is None:
        batches = decision.batches
        sizes, place = np.unique(batches.size, return_inverse=True)
        table = np.ones((len(names), len(decision.devices), len(sizes)))
        table[batches.task, :, place] = (batches.finish - batches.start)[:, None]
        cluster = Cluster(decision.devices, bandwidth=float("inf"), latency=HAND_OFF)
        problem = Problem(program.graph, cluster, durations=table, batch_sizes=sizes, inputs=decision.n_inputs, batching="free")
    return problem, decision.decision, float(decision.makespan)


def _places(names: Sequence[str], devices: Mapping[str, Where]) -> list[Place]:
    """Return the places of the problem's devices."""
    if set(names) != devices.keys():
        raise InvalidProblem(
            f"the devices of the problem are {', '.join(map(repr, names))}, and places are given for "
            f"{', '.join(map(repr, devices)) or 'none'}; give one for each"
        )
    return [_place(name, devices[name]) for name in names]


def _place(name: str, where: Where) -> Place:
    if isinstance(where, str):
        raise UnsupportedFeature(
            f"device {name!r} is {where!r}; the executor runs on CPU threads so far: give a number of CPU threads, or a list of cores"
        )
    return place(name, where)


def _times(turn: Turn) -> RunTimes:
    """Return the times of a turn in seconds from its start; NaN for what has not happened."""

    def seconds(stamps: Sequence[int], origin: int) -> FloatArray:
        values = np.array(stamps, np.int64)
        return np.where(values < 0, np.nan, (values - origin) / 1e9)

    columns = {name: seconds(getattr(turn, name), turn.began) for name in ("start", "finish", "posted", "seen")}
    ended = max(turn.ended) if min(turn.ended) >= 0 else time.perf_counter_ns()
    spent = {name: seconds(getattr(turn, name), 0) for name in ("cpu", "waited", "gathered")}
    return RunTimes(**columns, **spent, makespan=(ended - turn.began) / 1e9)


def _taken(device: int, group: int, register: int, boxes: Sequence[Sequence[Registers]]) -> Any:
    return boxes[device][group][register]


def _close(teams: list[Team]) -> None:
    with contextlib.suppress(IndexError):  # a run that fails takes them away
        while True:
            teams.pop().close()


def free_memory() -> float | None:
    """Return the bytes of memory that are available, or None if the system does not say so."""
    try:
        rows = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    except (OSError, ValueError):
        return None
    return 1024.0 * float(rows["MemAvailable"].split()[0]) if "MemAvailable" in rows else None


def _affinities() -> dict[int, set[int]]:
    """Return the cores of each thread of this process, where the system tells."""
    cores = {}
    with contextlib.suppress(OSError, AttributeError):
        for thread in Path("/proc/self/task").iterdir():
            with contextlib.suppress(OSError):  # it has ended
                cores[int(thread.name)] = os.sched_getaffinity(int(thread.name))
    return cores


def _warn_of_moved(before: Mapping[int, set[int]], places: Sequence[Place]) -> None:
    """Warn if threads that were started in the first run are not on the cores of the devices."""
    if all(place.cores is None for place in places) or not before:
        return
    rights = [set(place.cores) for place in places if place.cores is not None] + [os.sched_getaffinity(0)]
    for thread, cores in _affinities().items():
        if thread not in before and cores not in rights:
            warn(f"a thread of torch is on the cores {sorted(cores)}, which are no device's; unset OMP_PROC_BIND and KMP_AFFINITY")
            return
