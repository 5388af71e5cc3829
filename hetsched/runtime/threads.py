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
from hetsched.runtime.streams import Fetch, Queues, Segment, Timer
from hetsched.runtime.team import ENQUEUE, FETCH, PASS, RUN, TAKE, WAIT, Stream, Team, Turn, Work, parallel_steps, serial_steps

GRACE = 1.0
"""Seconds for other devices to end their tasks after one has failed."""


class Threads:
    """Runs a plan on threads of this process, one run or stream at a time.

    Parameters
    ----------
    plan : Plan
    tasks : Tasks
    places : sequence of Place
        Of each device of the plan.
    timeout : float
        Seconds of a run; of one task at a time as many for each device.
    copies : bool
        Whether a device copies each value that it receives.
    queues : sequence of Queues or None, optional
        Of each device whose work is enqueued on streams, these.
    """

    def __init__(
        self, plan: Plan, tasks: Tasks, places: Sequence[Place], timeout: float, copies: bool, queues: Sequence[Queues | None] = ()
    ) -> None:
        self.plan, self.tasks, self.places, self.timeout, self.copies = plan, tasks, tuple(places), timeout, copies
        self.queues = tuple(queues) or (None,) * len(places)
        self.turn: Turn | Stream | None = None
        """What runs now."""
        self._serial: Work | None = None
        self._teams: list[Team] = []
        self._closed = self._ran = self._cancelled = False
        self.team()

    def __repr__(self) -> str:
        each = [f"{place.name}: {place.threads if place.device.type == 'cpu' else place.device}" for place in self.places]
        return f"threads ({', '.join(each)})"

    def team(self) -> Team:
        """Return the threads; new ones after a run that failed."""
        if self._closed:
            raise UnsupportedFeature("the executor is closed; make a new one")
        if not self._teams:
            self._teams.append(Team(self.places, parallel_steps(self.plan, self.tasks, self.queues), self.queues))
        return self._teams[0]

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
        limit, what, work = self.timeout, "the run", team.work
        if serial:
            limit, what = limit * len(self.places), "the run of one task at a time"
            if self._serial is None:
                self._serial = serial_steps(self.plan, self.tasks, self.queues)
            work = self._serial
        turn = self._turn_of(boxes, work, cpu, timed=cpu or serial)
        with self._started(team, turn):
            self._await(turn, turn, limit, what)
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
        steps, _ = self.team().work
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
        taken: deque[tuple[Turn, Work]] = deque()
        try:
            team = self.team()
            free = deque(parallel_steps(self.plan, self.tasks, self.queues) for _ in range(depth))
            stream = Stream(len(self.places))
            with self._started(team, stream):
                more = True
                while True:
                    while more and free:
                        own = next(boxes, None)
                        if own is None:
                            more = False
                            break
                        work = free.popleft()
                        turn = self._turn_of(own, work)
                        taken.append((turn, work))
                        stream.admit(turn)
                    if not taken:
                        break
                    turn, work = taken.popleft()
                    self._await(turn, stream, self.timeout, "an input of the stream")
                    stream.remove(turn)
                    free.append(work)
                    yield turn
                stream.close()
        finally:
            for turn, _ in taken:
                turn.settle(GRACE)

    def renew(self) -> None:
        """Forget that an earlier run was cancelled."""
        self._cancelled = False

    def cancel(self) -> None:
        """End what another thread runs, with `Cancelled` there, after the tasks that run now."""
        self._cancelled = True
        turn = self.turn
        if turn is not None:
            turn.abort(Cancelled("the run was cancelled"))

    def close(self) -> None:
        """End the threads, after the tasks that run now; a run of another thread is cancelled."""
        self._closed = True
        self._close_teams()

    def _close_teams(self) -> None:
        with contextlib.suppress(IndexError):  # a run that fails takes them away
            while True:
                self._teams.pop().close()

    def _turn_of(self, boxes: Boxes, work: Work, cpu: bool = False, timed: bool = False) -> Turn:
        """Return the turn that takes the steps on the registers."""
        steps, locks = work
        kinds = {place.device.type for place in self.places}
        casts = {kind: (kind, torch.get_autocast_dtype(kind)) for kind in kinds if torch.is_autocast_enabled(kind)}
        return Turn(
            steps,
            boxes,
            locks,
            len(self.plan.task),
            len(self.plan.sends),
            [time.thread_time_ns if cpu and place.threads == 1 else None for place in self.places],
            self.copies,
            [casts.get(place.device.type) for place in self.places],
            [None if own is None or not timed else Timer(own) for own in self.queues],
        )

    def _await(self, turn: Turn, work: Turn | Stream, limit: float, what: str) -> None:
        """Wait until a turn has ended, and raise its error."""
        try:
            if not turn.wait(limit):
                turn.abort(Timeout(f"{what} took longer than {limit:g} s: {self._doing(turn)}; give a longer timeout"))
        except BaseException as error:  # KeyboardInterrupt
            turn.abort(error)
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
                self._serial = None
                work.abort(Cancelled("the run was interrupted"))
                team.leave()
        team.turn = None
        if before is not None:
            self._ran = True
            warn_of_moved(before, self.places)

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
            kind, _, which, *_ = turn.steps[k][turn.at[k]] if turn.steps[k] else (PASS, None, 0)
            if turn.ended[k] >= 0:
                told.append(f"{device!r} has ended")
            elif kind in (RUN, ENQUEUE):
                told.append(f"{device!r} is in task {names[int(self.plan.task[which])]!r}")
            elif kind in (WAIT, FETCH):
                value, send = self.plan.values[which], self.plan.sends[turn.steps[k][turn.at[k]][4]]
                giver = self.plan.devices[int(self.plan.device[send.batch])]
                told.append(f"{device!r} waits for {value.name!r} of task {names[value.task]!r} from {giver!r}")
            elif turn.ends[k] is not None:
                told.append(f"{device!r} has begun all its tasks")
            elif kind == TAKE:
                told.append(f"{device!r} waits for its turn")
            else:
                told.append(f"{device!r} is between two tasks")
        return ", ".join(told)
