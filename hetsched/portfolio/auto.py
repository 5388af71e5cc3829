"""`auto`: many methods on one budget, in this process and in others."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterable, Mapping
from typing import Any

from hetsched.analysis import model_size
from hetsched.analysis.modules import falls_apart
from hetsched.arguments import Rule, whole
from hetsched.errors import UnsupportedFeature
from hetsched.modeling import backends
from hetsched.portfolio.members import Member, choose
from hetsched.portfolio.prepare import prepare_bounds, prepare_methods
from hetsched.portfolio.protocol import Done, Failure, Job
from hetsched.portfolio.workers import JobMonitor, JobReceiver, Pool, Worker, run_here
from hetsched.problem.problem import Problem
from hetsched.processes import ProcessDied
from hetsched.remote import processes
from hetsched.search import ALL, Kind, Monitor, cores, method, select
from hetsched.stopping import Deadline, Stop

WORTH_WORKERS = 2.0
"""Seconds left below which no process is started, for it takes a second to load."""
PROOF = 5.0  # the most seconds for the proof of a tiny problem, of which most is for loading the solver
TINY_MODULE, MODULES_TINY = 16, 2000
"""The most tasks of a module that a split solves in milliseconds, and the most columns of a problem for such a split."""
MARGIN = 0.05  # seconds before the end at which workers stop by themselves, so that their last messages arrive
GRACE = 0.1  # seconds for their answers when they are stopped
SHORTEST = 1.0  # seconds of a turn of a search
LARGE = 50_000  # elements of the arrays of a problem
SOLVED, SPLIT = 0.4, 0.6  # shares of one worker for an exact method, and for one that splits several inputs, which proves nothing
PACE = 500  # columns of a model, with orders, for each second and thread of a solver that is likely to find or prove something
PROVEN = 150  # columns of a model, with orders, for each second and core of a split that is likely to prove the optimum
HURRY = 0.5  # seconds left below which no bound is computed
AGAIN = 4.0  # first turns of bounds that have to be left for their second one
_PROCESSES = Rule("a whole number of processes, 0 for none, or None for one a core", whole(0).or_none.take)
WAKE = 0.02  # seconds between readings of the clock


@method(
    "auto",
    summary="list schedulers, then searches, solvers and bounds in parallel on all cores; stops at a proven optimum",
    kind=Kind.PORTFOLIO,
    deterministic=False,
    objectives=ALL,
    turn=900,
    distributes=True,
)
def auto(
    problem: Problem,
    monitor: Monitor,
    *,
    members: str | Iterable[str] | Mapping[str, float] | None = None,
    exclude: str | Iterable[str] = (),
    workers: int | None = None,
    seconds: float = 10.0,
    bound_seconds: float = 5.0,
) -> None:
    """Run many methods on one budget.

    The list schedulers run first, beginning with the best single device and HEFT. Then searches take turns,
    each from the best schedule of all methods; a solver proves small problems, and bounds get a share of the
    time. If more than two seconds are left, they run in worker processes, one for each core, or one by each worker
    of the `executor` of the solve. A search of this package that is the only one, or `lns` where clean cuts divide
    the graph into modules, runs in this process to the end, unless there is an executor or one core. With an evaluation limit
    everything runs in this process, without solvers, and the schedule is reproducible.

    Parameters
    ----------
    members : names, or mapping of name to weight, optional
        The methods that run, in place of those chosen by the problem's size. The time of searches is
        proportional to their weights. "bounds" is the method of all lower bounds.
    exclude : names, optional
        Members to exclude.
    workers : int, optional
        The most worker processes; 0 runs everything in this process. Default: the number of available cores, or of
        the executor's workers.
    seconds : float
        Time limit if the solve has none.
    bound_seconds : float
        The most seconds for lower bounds at first. If they take more than half of them and four times as many are left, bounds get
        a second turn: half of the time left, of one worker.
    """
    _PROCESSES.check(workers, "workers", UnsupportedFeature)
    for what, value in (("seconds", seconds), ("bound_seconds", bound_seconds)):
        if not value >= 0:
            raise UnsupportedFeature(f"{what} is {value!r}; it must be a number of seconds, at least 0")
    chosen = choose(problem, monitor.objective, members, exclude)
    if members is None and monitor.budget.evaluations is not None:
        chosen = [member for member in chosen if member.method.kind is not Kind.EXACT]
    race = Race(problem, monitor, chosen, seconds, bound_seconds)
    race.begin()
    race.prove_tiny()
    race.warm_up([member for member in race.running if not member.at_once])
    if race.over:
        return
    slots = cores(monitor.executor) if workers is None else workers
    if members is None:
        race.spare_solver(max(1, slots // 2))
    if slots and not race.by_evaluations and race.left > WORTH_WORKERS and any(not member.here for member in race.running):
        race.run_apart(slots)
    else:
        race.run_in_turn()


class Race:
    """One run of `auto`."""

    def __init__(self, problem: Problem, monitor: Monitor, members: list[Member], seconds: float, bound_seconds: float) -> None:
        self.problem, self.monitor, self.members = problem, monitor, members
        self.bound_seconds = bound_seconds
        self.by_evaluations = monitor.budget.evaluations is not None
        unlimited = math.isinf(monitor.time_left) and not self.by_evaluations
        self.deadline = Deadline.after(seconds, monitor.clock) if unlimited else monitor.deadline
        """The end, also if the solve has no limit."""
        self.size = model_size.columns(problem)
        self.slots = 1
        self.threads = 1
        self.lone: Member | None = None
        """The search that runs in this process to the end."""
        self.at_work: dict[Worker, Member] = {}
        self.pace = 0.0
        """Seconds of the slower of the first two list schedulers."""
        self.lost = 0
        """Number of processes that have died."""
        for member in members:
            why = self._unfit(member)
            if why:
                member.retired = True
                monitor.note(f"{member.name} is left out: {why}; solve(problem, {member.name!r}) tries it nevertheless")

    def _unfit(self, member: Member) -> str:
        """Return why a member cannot take part, or an empty text."""
        if member.models and not member.method.distributes and self.size > model_size.LARGEST:
            return f"its model would have about {self.size} columns, more than {model_size.LARGEST}"
        if member.models and self.by_evaluations:
            return "a solver ignores an evaluation limit"
        return ""

    @property
    def left(self) -> float:
        """Seconds left, at least 0; inf if only evaluations are limited."""
        return max(0.0, self.deadline.left)

    @functools.cached_property
    def work(self) -> int:
        """Columns of the problem's model, with those for orders."""
        return model_size.with_orders(self.problem)

    @property
    def over(self) -> bool:
        """Whether it is time to stop."""
        return self.monitor.should_stop or self.left <= 0

    @property
    def large(self) -> bool:
        """Whether it takes list schedulers less time to be compiled than to run in the interpreter, one after another."""
        from hetsched import compiled

        return compiled.size(self.problem.arrays) > LARGE

    @property
    def running(self) -> list[Member]:
        """The members that have not retired."""
        return [member for member in self.members if not member.retired]

    @property
    def searches(self) -> list[Member]:
        """The running members that search as long as they have time."""
        return [member for member in self.running if not member.proves and not member.at_once]

    @property
    def _apart(self) -> int:
        """Number of cores for workers."""
        return self.slots - (self.lone is not None)

    @property
    def occupied(self) -> bool:
        """Whether this process has members of its own."""
        return any(member.here for member in self.running)

    # ------------------------------------------------------------ constructive methods

    def begin(self) -> None:
        """Run constructive methods: the first two always, others while they take a small part of the time."""
        if self.large:
            self.warm_up([member for member in self.running if member.at_once])
        share = self.left / 5
        for member in [member for member in self.members if member.at_once]:
            first = member.method.objectives == ALL
            if self.monitor.should_stop and not (first and self.monitor.stopped is Stop.TIME_LIMIT):
                return
            if not first and self._estimate(member) > min(share, self.left / 2):
                continue  # it gets a turn later, if there is time
            start = self.monitor.elapsed
            self.monitor.attempt(member.name)
            spent = self.monitor.elapsed - start
            share -= spent
            self.pace = max(self.pace, spent) if first else self.pace
            member.retired = True

    def _estimate(self, member: Member) -> float:
        """Return an estimate of a list scheduler's seconds, from those of the first two and the growth of its time."""
        return self.pace * (max(2.0, self.problem.n_tasks / 500) if member.method.growth > 1 else 2.0)

    def prove_tiny(self) -> None:
        """Run branch and bound, if it is a member, and a solver on a problem that it is likely to prove, both briefly."""
        for member in self.running:
            if member.method.kind is Kind.EXACT and not member.models and not (self.over or self.by_evaluations or self.left < HURRY):
                self._turn(member, min(PROOF, self.left / 2))
        exact = next((member for member in self.running if member.models), None)
        if exact is None or self.by_evaluations or self.over or self.left < HURRY:
            return
        apart = exact.splits and self.size <= MODULES_TINY and falls_apart(self.problem, TINY_MODULE)
        if apart or (self.size <= model_size.AT_ONCE and self.work <= model_size.AT_ONCE):  # pairs of a large graph are not counted
            self._turn(exact, min(PROOF, self.left / 2))

    def spare_solver(self, threads: int) -> None:
        """Retire a solver whose model is too large for the time left, if there are searches to use its worker."""
        for member in self.running:
            if member.models and not member.splits and len(self.searches) > 1 and self.work > PACE * threads * self.left:
                member.retired = True

    def warm_up(self, members: list[Member]) -> None:
        """Compile the kernels of methods of this process, of the first search and of bounds, and exclude that time from `seconds`.

        It takes milliseconds if they are compiled. With a time limit nothing is excluded.
        """
        if self.deadline is self.monitor.deadline or self.over:
            return
        from hetsched import compiled

        start = self.monitor.clock()
        # The kernels of other searches are compiled in their turns, in workers if there are any.
        first = select(kind=Kind.SEARCH, objective="makespan", auto=True)[:1]
        names = [member.name for member in members if member.at_once or member.method in first]
        bounds = [member.method for member in members if member.method.kind is Kind.BOUND]
        searches = [member.method for member in members if member.method in first]
        self.monitor.compilers.compile([*searches, *bounds], lambda: self.monitor.should_stop)
        with compiled.interpreter(on=False) if self.large else contextlib.nullcontext():
            prepare_methods(names)
            if bounds:
                prepare_bounds()
        self.deadline = Deadline(self.deadline.end + self.monitor.clock() - start, self.monitor.clock)

    # ------------------------------------------------------------ in this process

    def run_in_turn(self) -> None:
        """Run members one after another in this process."""
        while not self.over:
            member = self._next(self.running)
            if member is None:
                return
            self._turn(member, self._slice(member, apart=False))

    def _turn(self, member: Member, amount: float, look: Any = None) -> None:
        """Run a member in this process for `amount` seconds or evaluations."""
        member.turns += 1
        member.charged += amount
        done, improved = run_here(self.monitor, self._job(member, amount), look)
        self._ended(member, done, improved)

    def _ended(self, member: Member, done: Done, improved: bool) -> None:
        """Update a member after its turn."""
        if done.failure is Failure.UNKNOWN:
            member.here = True
            return
        member.stalled_turns = member.stalled_turns + 1 if done.stopped is Stop.FINISHED and not improved else 0
        if member.method.kind is Kind.BOUND:
            spent = sum(seconds for _, _, _, seconds in done.efforts)  # a bound that is cut short may be followed by one that is not
            last = member.turns > 1 or spent < member.charged / 2 or self.by_evaluations or self.left <= AGAIN * self.bound_seconds
        elif member.method.kind is Kind.EXACT:
            last = done.stopped in (Stop.FINISHED, Stop.OPTIMAL, Stop.INFEASIBLE)
        else:
            last = member.at_once
        member.retired = member.retired or bool(done.failure) or last or member.stalled_turns >= 2

    def _next(self, candidates: list[Member], *, apart: bool = False, proving: int = 0) -> Member | None:
        """Return the next member: one that proves while more than one slot is free of these, else the least used for its weight.

        If all take turns, bounds come first: they are short, and may prove the optimum.
        """
        if not apart and self.left <= WORTH_WORKERS:
            hurried = self.left < HURRY or self.problem.n_tasks * self.problem.n_devices > model_size.LARGEST
            candidates = [member for member in candidates if not member.proves or (member.method.kind is Kind.BOUND and not hurried)]
        candidates = [member for member in candidates if not member.at_once or self._estimate(member) < self.left / 4]
        provers = [member for member in candidates if member.proves]
        searches = [member for member in candidates if not member.proves]
        if self.slots > 1:
            free = proving < self.slots - 1 or not any(not member.proves for member in self.running)
            candidates = provers if provers and free else searches
        return min(
            candidates,
            key=lambda member: (member.charged / member.weight, member.method.kind is not Kind.BOUND, not member.splits, member.proves),
            default=None,
        )

    def _slice(self, member: Member, *, apart: bool) -> float:
        """Return the seconds of a member's turn, or its evaluations if these are limited."""
        if member.at_once:
            return self.left
        if member.method.kind is Kind.BOUND:
            part = self.left if apart else self.left / 2  # of one worker's time, or of all that there is
            return part / 2 if member.turns else min(self.bound_seconds, 0.3 * part)
        searches = self.searches
        if self.by_evaluations:
            assert self.monitor.budget.evaluations is not None
            fewest = min(other.turns for other in searches)
            waiting = sum(other.weight for other in searches if other.turns == fewest)
            evaluations = self.monitor.budget.evaluations - self.monitor.evaluations
            return max(1.0, math.ceil(evaluations * member.weight / waiting))
        if member.method.kind is Kind.EXACT:
            part = SPLIT if member.splits and self.problem.inputs > 1 else SOLVED
            return self.left if self.slots > 1 or not searches else part * self.left
        if len(searches) == 1 and all(other.turns for other in self.running if other.proves):
            return self.left
        if not apart and self.left <= WORTH_WORKERS:
            fewest = min(other.turns for other in searches)
            return self.left * member.weight / sum(other.weight for other in searches if other.turns == fewest)
        return min(self.left, max(SHORTEST, self.left / 4))

    def _modules_at_a_time(self, seconds: float) -> int:
        """Return the number of modules that a split solves at a time: one a core, if it is likely to prove the optimum in so many seconds.

        Else the search that runs in this process has a core of its own.
        """
        most = PROVEN * self.slots * seconds
        likely = self.lone is None or (self.size <= most and self.work <= most)  # pairs of a large graph are not counted
        return self.slots if likely else self._apart

    def _job(self, member: Member, amount: float) -> Job:
        """Return the job of a member for `amount` seconds or evaluations; a negative amount counts as 0."""
        options: dict[str, Any] = {}
        solver = member.method.solver
        if member.method.kind is Kind.EXACT and "threads" in member.method.options:
            options["threads"] = self.threads if solver is not None and backends.info(solver).capabilities.threads else 1
        if member.method.kind is Kind.EXACT and "workers" in member.method.options:
            options["workers"] = self._modules_at_a_time(amount) if self.monitor.executor is None else 1
        counted = self.by_evaluations and not member.proves
        return Job(
            member.name,
            options,
            seed=int(self.monitor.rng.integers(2**31)),
            start=self.monitor.best,
            bound=self.monitor.bound,
            time_limit=None if counted else max(0.0, amount),
            evaluations=int(amount) if counted else None,
            objective=self.monitor.objective,
        )

    # ------------------------------------------------------------ in worker processes

    def run_apart(self, slots: int) -> None:
        """Run members in worker processes, here or by an executor, and in this process those that only it has."""
        self.slots = slots
        if self.monitor.executor is None:
            exact = any(member.method.kind is Kind.EXACT for member in self.running)
            self.threads = slots // 2 if exact and slots >= 4 else 1
            self.slots = max(1, slots - (self.threads - 1) - self.occupied)
        self.lone = self._lone()
        with contextlib.ExitStack() as stack:
            try:
                start = stack.enter_context(processes(self.monitor.executor))
                pool = stack.enter_context(Pool(self.problem, self._apart, start))
            except OSError as error:
                self.monitor.note(f"no worker process can be started ({error}); all members take turns in this one")
                self.slots, self.lone = 1, None
                self.run_in_turn()
                return
            self._search_here(pool)
            while not self.over:
                self._fill(pool)
                busy = [worker for worker in pool.workers if worker.receiver is not None or not worker.ready]
                local = self._next([member for member in self.running if member.here], apart=True)
                if local is not None:
                    self._turn(local, self._slice(local, apart=True), look=lambda _: self._attend(pool))
                elif busy and (self.running or self.at_work):
                    self._wait(pool)
                elif self.left > MARGIN and self.running:  # no worker is left
                    self.slots = 1
                    self.run_in_turn()
                    return
                else:
                    break
            if self.running and self.monitor.time_left <= 2 * MARGIN:
                self.monitor.stop(Stop.TIME_LIMIT)  # the time left is too short for another turn
            self._finish(pool)

    def _built_in(self) -> list[Member]:
        """Return the searches of hetsched; a plug-in may crash, and must do so in a worker."""
        known = [member for member in self.searches if member.method.kind is Kind.SEARCH and member.method.auto is not None]
        return [member for member in known if member.method.function.__module__.startswith("hetsched.")]

    def _lone(self) -> Member | None:
        """Return the search that runs in this process to the end, if there is one: turns would begin it anew again and again.

        It is the only search, or that which declares `Auto.uninterrupted`.
        """
        if self.monitor.executor is not None or self.slots == 1 or self.occupied:
            return None
        only = len(self.searches) == 1
        return next((member for member in self._built_in() if only or member.uninterrupted), None)

    def _search_here(self, pool: Pool) -> None:
        """Search in this process until the workers have loaded, or to the end by the search of `_lone`."""
        if self.occupied:
            return

        def look(job_monitor: JobMonitor) -> None:
            self._attend(pool)
            if self.lone is None and all(worker.ready for worker in pool.workers):
                job_monitor.stop(Stop.STOPPED)

        if self.lone is not None and not self.over:
            self._turn(self.lone, self.left - MARGIN, look)
            self.lone = None  # it has ended by itself
            self._start(pool)
            return
        first = max(self._built_in(), key=lambda member: member.weight, default=None)
        while first is not None and not self.over and not all(worker.ready for worker in pool.workers):
            done, _ = run_here(self.monitor, self._job(first, SHORTEST), look)
            if done.stopped is Stop.FINISHED:  # it has ended by itself
                return

    def _attend(self, pool: Pool) -> None:
        self._process_messages(pool, 0.0)
        self._fill(pool)

    def _fill(self, pool: Pool) -> None:
        """Give jobs to idle workers."""
        for worker in pool.workers:
            if not worker.idle or self.over or self.left <= 2 * MARGIN:
                continue
            busy = list(self.at_work.values())
            free = [member for member in self.running if not member.here and not ((member.proves or member.at_once) and member in busy)]
            member = self._next(free, apart=True, proving=sum(other.proves for other in busy))
            if member is None:
                continue
            amount = min(self._slice(member, apart=True), self.left - MARGIN)
            pool.give(worker, self._job(member, amount), JobReceiver(self.monitor, member.name))
            member.turns += 1
            member.charged += amount
            self.at_work[worker] = member

    def _wait(self, pool: Pool) -> None:
        """Receive the workers' messages; waiting time is not charged to `auto`."""
        start = self.monitor.elapsed
        self._process_messages(pool, WAKE)
        self.monitor.credit(self.monitor.source, seconds=start - self.monitor.elapsed)

    def _process_messages(self, pool: Pool, seconds: float) -> None:
        """Process the workers' messages, after waiting up to `seconds` for the first."""
        for worker, message, receiver in pool.receive(seconds):
            if receiver is not None:
                receiver.take(message)
            if isinstance(message, Done) and receiver is not None:
                self._ended(self.at_work.pop(worker), message, receiver.improved)
            elif isinstance(message, ProcessDied):
                self._lost(pool, self.at_work.pop(worker, None), message)

    def _lost(self, pool: Pool, member: Member | None, how: ProcessDied) -> None:
        """Handle the death of a process; start a new one if there is time and losses are few."""
        if member is None:
            self.monitor.note(f"a worker process {how} before it had a job")
        elif how.exit_code is not None:  # else its machine was lost
            member.deaths += 1
            member.retired = member.method.kind is Kind.EXACT or member.deaths > 1  # a model too large for the memory stays so
        self.lost += 1
        if self.lost <= 2 * self.slots:
            self._start(pool)

    def _start(self, pool: Pool) -> None:
        """Start one more process, if there are time and members for it."""
        if self.left > WORTH_WORKERS and self.running and not self.over:
            try:
                pool.start()
            except OSError as error:
                self.monitor.note(f"no new worker process can be started ({error})")

    def _finish(self, pool: Pool) -> None:
        """Receive the last messages; the processes end with the pool."""
        pool.stop()
        patience = Deadline.after(GRACE if self.left > 0 else MARGIN, self.monitor.clock)
        while self.at_work and not patience.over:
            self._wait(pool)
        for worker in self.at_work:
            if worker.receiver is not None:
                worker.receiver.abandon()
