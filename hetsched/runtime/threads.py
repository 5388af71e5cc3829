"""The engine of one process: a thread for each device takes the steps of a plan."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence

import torch

from hetsched.errors import Cancelled, OutOfMemory, Timeout, UnsupportedFeature
from hetsched.runtime.code import Boxes, Tasks
from hetsched.runtime.places import Place, affinities, warn_of_moved
from hetsched.runtime.plan import Plan
from hetsched.runtime.steps import COMMIT, ENQUEUE, FETCH, PASS, RUN, TAKE, WAIT, Work, parallel_steps, serial_steps
from hetsched.runtime.streams import Fetch, Queues, Segment, Timer
from hetsched.runtime.team import Stream, Team, Turn

GRACE = 1.0
"""Seconds for other devices to end their tasks after one has failed."""


class Threads:
    """Runs a plan on threads of this process, one run or stream at a time.

    Parameters
    ----------
    plan : Plan
    tasks : Tasks
    places : sequence of Place or None
        Of each device of the plan; None for those of other processes.
    timeout : float
        Seconds of a run; of one task at a time as many for each device.
    copies : bool
        Whether a device copies each value that it receives.
    queues : sequence of Queues or None, optional
        Of each device whose work is enqueued on streams, these.
    commit : callable, optional
        What is called with all registers before updates begin.
    """

    def __init__(
        self,
        plan: Plan,
        tasks: Tasks,
        places: Sequence[Place | None],
        timeout: float,
        copies: bool,
        queues: Sequence[Queues | None] = (),
        commit: Callable[[Boxes], None] | None = None,
    ) -> None:
        self.plan, self.tasks, self.places, self.timeout, self.copies = plan, tasks, tuple(places), timeout, copies
        self.absent = tuple(k for k, place in enumerate(places) if place is None)
        self.queues, self.commit = tuple(queues) or (None,) * len(places), commit
        self.turn: Turn | Stream | None = None
        """What runs now."""
        self._works: dict[int, Work] = {}
        self._teams: list[Team] = []
        self._closed = self._ran = self._cancelled = False
        self._clock_error = 0.0
        self.team()

    def __repr__(self) -> str:
        own = [place for place in self.places if place is not None]
        each = [f"{place.name}: {place.threads if place.device.type == 'cpu' else place.device}" for place in own]
        return f"threads ({', '.join(each)})"

    @property
    def has_result(self) -> bool:
        """Whether the registers after a run have all values that the result reads."""
        return True

    @property
    def clock_error(self) -> float:
        """Seconds by which the clocks of devices may differ."""
        return self._clock_error

    def team(self) -> Team:
        """Return the threads; new ones after a run that failed."""
        if self._closed:
            raise UnsupportedFeature("the executor is closed; make a new one")
        if not self._teams:
            self._works.clear()
            self._teams.append(Team(self.places, self.queues))
        return self._teams[0]

    def work(self, number: int) -> Work:
        """Return steps and locks for one run at a time: -1 for runs of one task at a time, others for all inputs of a stream."""
        if number not in self._works:
            work = parallel_steps(self.plan, self.tasks, self.queues)
            self._works[number] = serial_steps(self.plan, self.tasks, work, self.queues) if number < 0 else work
        return self._works[number]

    def replace(self, plan: Plan, tasks: Tasks, timeout: float, commit: Callable[[Boxes], None]) -> None:
        """Run another plan of the same devices, on the same threads."""
        self.team()
        self.plan, self.tasks, self.timeout, self.commit = plan, tasks, timeout, commit
        self._works.clear()

    def run(self, boxes: Boxes, *, serial: bool = False, cpu: bool = False) -> Turn:
        """Take all steps once, and return the turn with its registers and times.

        Parameters
        ----------
        boxes : list
            The registers before the run.
        serial : bool
            Whether one task runs at a time.
        cpu : bool
            Whether the CPU time of tasks is taken.
        """
        team = self.team()
        limit, what = (self.timeout * len(self.places), "the run of one task at a time") if serial else (self.timeout, "the run")
        turn = self._turn_of(boxes, -1 if serial else 0, cpu, timed=cpu or serial)
        with self._started(team, turn):
            self._await(turn, turn, limit, what)
        self._clock_error = max(self._clock_error, *(timer.error for timer in turn.timers if timer is not None), 0.0)
        return turn

    def capture(self, boxes: Boxes, blank: Callable[[int, int], torch.Tensor]) -> None:
        """Capture the graphs of all devices that enqueue such, one after another.

        Parameters
        ----------
        boxes : list
            The registers before a run.
        blank : callable
            Returns a tensor of the host like the value of a register for a group of inputs.
        """
        self.team()
        steps, _ = self.work(0)
        count = len(steps)
        for k, queues in enumerate(self.queues):
            if queues is None or not queues.graphs:
                continue
            queues.pool = queues.accelerator.pool()
            registers = [[list(box) for box in own] for own in boxes]
            turn = Turn([[]] * count, registers, [], len(self.plan.task), 0, [None] * count)
            with torch.no_grad(), queues.accelerator.on(queues.compute):
                for _, what, *_ in steps[k]:
                    if isinstance(what, Fetch):
                        value, group = what.handoff.value, what.handoff.group
                        registers[k][group][value] = queues.put(blank(value, group))
                    elif isinstance(what, Segment):
                        self._capture(what, turn)

    def _capture(self, segment: Segment, turn: Turn) -> None:
        try:
            segment.capture(turn)
        except torch.OutOfMemoryError as error:
            made = self._out_of_memory(error, segment.k, f"for graphs on device {self.plan.devices[segment.k]!r}")
            raise made from made.__cause__
        except RuntimeError as error:
            tasks = [self.tasks.names[int(self.plan.task[step.batch])] for step in segment.steps]
            raise UnsupportedFeature(
                f"the tasks {tasks[0]!r} to {tasks[-1]!r} on device {self.plan.devices[segment.k]!r} cannot be one graph: {error}; "
                "give graphs=False"
            ) from error

    def stream(self, boxes: Iterator[Boxes], depth: int) -> Generator[Turn, None, None]:
        """Return the turns of a stream of registers, at most `depth` at a time."""
        taken: deque[tuple[Turn, int]] = deque()
        try:
            team = self.team()
            free = deque(range(depth))
            stream = Stream(len(self.places), self.absent)
            with self._started(team, stream):
                more = True
                while True:
                    while more and free and (not taken or not stream.closed):  # devices have left a closed stream
                        own = next(boxes, None)
                        if own is None:
                            more = False
                            break
                        number = free.popleft()
                        turn = self._turn_of(own, number)
                        taken.append((turn, number))
                        stream.admit(turn)
                    if not taken:
                        break
                    turn, number = taken.popleft()
                    self._await(turn, stream, self.timeout, "an input of the stream")
                    stream.remove(turn)
                    free.append(number)
                    yield turn
                stream.close()
        finally:
            for turn, _ in taken:
                turn.settle(GRACE)

    def synchronise(self, first: bool) -> None:
        """Forget the errors of earlier runs: the clocks of devices with streams are compared with the host's in each run."""
        if first:
            self._clock_error = 0.0

    def renew(self) -> None:
        """Forget that an earlier run was cancelled."""
        self._cancelled = False

    def cancel(self) -> None:
        """End what another thread runs, with `Cancelled` there, after the tasks that run now."""
        self._cancelled = True
        turn = self.turn
        if turn is not None:
            turn.abort(Cancelled("the run was cancelled"))

    def restart(self) -> None:
        """Take new threads for the next run."""
        if not self._closed:
            self._close_teams()

    def close(self) -> None:
        """End the threads, after the tasks that run now; a run of another thread is cancelled."""
        self._closed = True
        self._close_teams()

    def _close_teams(self) -> None:
        with contextlib.suppress(IndexError):  # a run that fails takes them away
            while True:
                self._teams.pop().close()

    def _turn_of(self, boxes: Boxes, number: int, cpu: bool = False, timed: bool = False) -> Turn:
        """Return the turn that takes the steps of a `work` on the registers."""
        steps, locks = self.work(number)
        kinds = {place.device.type for place in self.places if place is not None and not self.tasks.updates}
        casts = {kind: (kind, torch.get_autocast_dtype(kind)) for kind in kinds if torch.is_autocast_enabled(kind)}
        return Turn(
            steps,
            boxes,
            locks,
            len(self.plan.task),
            len(self.plan.sends),
            [time.thread_time_ns if cpu and place is not None and place.threads == 1 else None for place in self.places],
            self.copies,
            [None if place is None else casts.get(place.device.type) for place in self.places],
            [None if own is None or not timed else Timer(own) for own in self.queues],
            self.absent,
            commit=self.commit,
        )

    def _await(self, turn: Turn, work: Turn | Stream, limit: float, what: str) -> None:
        """Wait until a turn has ended, and raise its error."""
        try:
            if not self._wait(turn, limit):
                turn.abort(timed_out(what, limit, self._doing(turn)))
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
        if turn.after is not None:
            turn.after()

    def _wait(self, turn: Turn, limit: float) -> bool:
        return turn.wait(limit)

    @contextlib.contextmanager
    def _started(self, team: Team, work: Turn | Stream) -> Iterator[None]:
        """Let the threads take a turn or a stream; unless that ends well they are left to themselves."""
        before = None if self._ran else affinities()
        self.turn = work
        well = False
        try:
            if self._cancelled:
                work.abort(Cancelled("the run was cancelled"))
            team.start(work)
            yield
            well = True
        finally:
            self.turn = None
            if self._closed:  # in the meantime
                self._close_teams()
            if not well:  # the next run has new threads, and new locks
                self._teams.clear()
                work.abort(Cancelled("the run was interrupted"))
                team.leave()
        team.turn = None
        if before is not None:
            self._ran = True
            warn_of_moved(before, [place for place in self.places if place is not None])

    # ------------------------------------------------------------------ faults

    def _explained(self, turn: Turn) -> BaseException:
        """Take the error of a turn and return it, with its task, device, batch and the times until then."""
        error, turn.error = turn.error, None  # for its traceback has the turn, and nothing would be freed
        assert error is not None
        with contextlib.suppress(AttributeError):
            error.times = turn.times()  # type: ignore[attr-defined]
        if turn.failed is not None:
            device, number = turn.failed
            step = turn.steps[device][number]
            where = f"on device {self.plan.devices[device]!r}"
            if step[0] in (RUN, ENQUEUE):
                name = self.tasks.names[int(self.plan.task[step[2]])]
                where = f"in task {name!r} {where}, batch {step[2]}"
                with contextlib.suppress(AttributeError):
                    error.task, error.batch = name, step[2]  # type: ignore[attr-defined]
            if isinstance(error, torch.OutOfMemoryError):
                error = self._out_of_memory(error, device, where)
            with contextlib.suppress(AttributeError):
                error.device = self.plan.devices[device]  # type: ignore[attr-defined]
            error.add_note(where)
        if turn.committed:
            error.add_note("some parameters have been updated already; load the states of module and optimiser again")
        return error

    def _out_of_memory(self, error: BaseException, k: int, where: str) -> BaseException:
        """Return the error of a device without memory, after its values have been released."""
        made = OutOfMemory(
            f"there is no memory left {where}: the plan needs {self.plan.peak_bytes[k]:.3g} bytes, weights included and without the "
            "workspaces of libraries; run fewer inputs at a time, give a smaller depth to a stream, or place tasks on other devices"
        )
        made.__dict__.update(error.__dict__)
        made.__cause__ = error.with_traceback(None)  # whose frames have the values of the task
        for own in self.queues:
            if own is not None:
                own.accelerator.release()
        return made

    def _doing(self, turn: Turn) -> str:
        """Return what each device does."""
        names = self.tasks.names
        told = []
        for k, device in enumerate(self.plan.devices):
            if k in self.absent:
                continue
            kind, _, which, _, send, _ = turn.steps[k][turn.at[k]] if turn.steps[k] else (PASS, None, 0, 0, 0, 0)
            if turn.ended[k] >= 0:
                told.append(f"{device!r} has ended")
            elif kind in (RUN, ENQUEUE):
                told.append(f"{device!r} is in task {names[int(self.plan.task[which])]!r}")
            elif kind in (WAIT, FETCH):
                value = self.plan.values[which]
                giver = self.plan.devices[int(self.plan.device[self.plan.sends[send].batch])]
                told.append(f"{device!r} waits for {value.name!r} of task {names[value.task]!r} from {giver!r}")
            elif turn.ends[k] is not None:
                told.append(f"{device!r} has begun all its tasks")
            elif kind == COMMIT:
                told.append(f"{device!r} waits for the other devices before its updates")
            elif kind == TAKE:
                told.append(f"{device!r} waits for its turn")
            else:
                told.append(f"{device!r} is between two tasks")
        return ", ".join(told)


def timed_out(what: str, limit: float, doing: str) -> Timeout:
    """Return the error of a run that took too long."""
    error = Timeout(f"{what} took longer than {limit:g} s: {doing}; give a longer timeout")
    error.doing = doing  # type: ignore[attr-defined]
    return error
