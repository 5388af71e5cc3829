"""MILP-SPLIT: the graph divided into modules, each solved for every pair of end devices, joined by a dynamic program."""

from __future__ import annotations

import concurrent.futures
import contextlib
import importlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hetsched.analysis import model_size
from hetsched.analysis.modules import LARGEST, has_modules
from hetsched.arguments import COUNT, Rule
from hetsched.decomposition.nodes import SolvedApart, parts_of_nodes
from hetsched.decomposition.series import Module, Series, cut
from hetsched.decomposition.sweeps import MOST_DEVICES, Sweeps, evaluations_left
from hetsched.errors import UnsupportedFeature
from hetsched.heuristics.repair import repair
from hetsched.modeling.backends import in_process, preferred
from hetsched.modeling.dynamic import Evaluation, Path, Query
from hetsched.problem.problem import Problem
from hetsched.schedule.decision import Decision
from hetsched.schedule.parts import PartialDecision
from hetsched.schedule.schedule import Schedule
from hetsched.search import Auto, Budget, Kind, Monitor, Role, cores, exact, find_method, method, registered, select
from hetsched.search.solution import Bound, Solution, Trust
from hetsched.stopping import Deadline, Stop

LOOKS: Mapping[str, list[dict[str, Any]]] = {"branch": [{"nodes": 1}, {"nodes": 100}], "bounds": [{"quick": True}]}
"""Methods of the first, short evaluation of a module: of a small one, which may solve it, and of one of any size."""
SMALL = 100
"""The most tasks of a small module."""
_WORKERS = Rule("a whole number, at least 1, or None for one a core", COUNT.or_none.take)
SECONDS = 1.0
"""Time limit of a search for a module."""
SHARE = 0.5
"""Share of the time for modules and windows if a search follows, and of the evaluations for windows."""
APART = 0.5
"""Share of the time and evaluations of windows for the parts of nodes, where there are any."""
NEAR = 1.05
"""The most that HEFT's schedules of the parts of nodes may be together, relative to its schedule of the whole."""
JOINED = 0.1
"""Share of the time of modules and windows for the modules, if windows follow."""


@dataclass(frozen=True)
class Evaluate:
    """Evaluates a module between two devices: first by a bound, then by a solver.

    It may be sent to another process, where it has no monitor.
    """

    series: Series
    method: str
    options: dict[str, Any]
    exact: bool
    budget: Budget
    """Budget of an evaluation; a solver uses only its time."""
    seed: int
    monitor: Monitor | None = field(default=None, repr=False)
    found: dict[int, Schedule] = field(default_factory=dict, repr=False)
    """The last schedule of each module, for any devices: the start for the next pair."""

    def __getstate__(self) -> dict[str, Any]:
        homes = {find_method(name).function.__module__ for name in (self.method, *LOOKS)}
        return {**self.__dict__, "monitor": None, "found": {}, "homes": homes}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for module in state.pop("homes"):  # the import registers the methods
            importlib.import_module(module)
        self.__dict__.update(state)

    def __call__(self, query: Query) -> Evaluation:
        module, source, target = self.series.model(query.transition)
        problem = module.between(self.series.problem, source, target)
        if problem is None:
            return Evaluation(math.inf, math.inf)
        method, options = self.method, self.options
        look = "branch" if problem.inputs == 1 and problem.n_tasks <= SMALL else "bounds"
        first = self.exact and query.tries < len(LOOKS[look])
        if first:
            method, options = look, LOOKS[look][query.tries]
        if math.isfinite(query.cutoff) and "upper" in find_method(method).options:
            options = {**options, "upper": query.cutoff}
        start = None if query.answer is None else query.answer.decision
        if start is None and problem.inputs == 1 and id(module) in self.found:
            start = module.moved(problem, self.found[id(module)], source, target)
        solution = self._solve(problem, query, method, options, start)
        answer = None
        if solution.schedule is not None:
            answer, self.found[id(module)] = PartialDecision.of(solution.schedule), solution.schedule
        final = not first and solution.stopped in (Stop.FINISHED, Stop.OPTIMAL, Stop.INFEASIBLE)
        # The module ignores peak memory, which the bound of the transition counts: its schedule may be shorter than that.
        program = self.series.program
        least = float(program.lower[program.kind[query.transition]])
        return Evaluation(solution.bound, max(solution.makespan, least), answer, done=final or not self.exact)

    def _solve(self, problem: Problem, query: Query, method: str, options: Mapping[str, Any], start: Decision | None) -> Solution:
        limits = [limit for limit in (query.seconds, self.budget.time_limit) if limit is not None and math.isfinite(limit)]
        budget = Budget(min(limits, default=None), self.budget.evaluations)
        monitor = Monitor(problem, budget, seed=self.seed + query.transition, parent=self.monitor)
        return monitor.run_alone(method, start, options)


def _worth_splitting(problem: Problem) -> bool:
    """Return whether `auto` splits a problem: its modules have a model, and useful sizes."""
    modelled = problem.memory == "static" and (problem.inputs == 1 or not problem.links.contended)
    return modelled and model_size.columns(problem) > model_size.TINY and has_modules(problem)


@method(
    "split",
    summary="MILP-SPLIT, module by module and joined by a dynamic program, then windows of the schedule",
    source="DiviML, equations (1) to (7)",
    kind=Kind.EXACT,
    distributes=True,
    turn=420,
    auto=Auto(when=_worth_splitting),
)
def split(
    problem: Problem,
    monitor: Monitor,
    *,
    solver: str | None = None,
    channels: int | None = None,
    largest: int = LARGEST,
    workers: int | None = None,
    symmetry: str | None = "tasks",
    windows: bool = True,
    improve: bool = True,
) -> None:
    """Solve each module for the pairs of end devices that matter, and join the best.

    With several channels between modules, several inputs, memory limits or co-location labels it is a
    heuristic: the joint decision is simulated, with modules that overlap. Then windows of the schedule, tasks that start one
    after another or are connected, are solved again by branch and bound with all other decisions kept, until many in a row are
    not shorter. With several inputs they begin with the schedule of HEFT, one batch of each task, or a shorter one that has
    successive modules on successive nodes of the cluster, each node's part solved apart; one or two tasks of a window are divided
    into other batches, and slightly longer schedules are taken in between, up to the limit.

    Parameters
    ----------
    solver : str, optional
        The solver of modules that a short branch and bound does not solve: "scip", "highs", "cpsat",
        "branch", or the name of a method; default the first of cpsat, scip and highs that is installed. A
        search evaluates all modules by itself, each for a second or its share of the evaluations.
    channels : int, optional
        The most tasks whose output later modules read; default the least number without a module larger
        than `largest`, see `hetsched.analysis.modules`.
    largest : int
        The most tasks of a module, if the channels permit it.
    workers : int, optional
        The number of modules solved at a time, in threads or by the `executor` of the solve. Default: one
        for each core, or worker of the executor; with an evaluation limit one, so that the answer is reproducible.
    symmetry : str or None
        Criterion by which solvers order identical devices: "batches", "tasks" or "time". With None symmetries
        are ignored, and exchangeable pairs of devices are evaluated separately.
    windows : bool
        Whether windows follow where the split is a heuristic; without them modules have their part of the time too.
    improve : bool
        Whether a search of the complete problem, which has a name of its own in the history, follows where the split is a
        heuristic. It has half of the time or of the evaluations.
    """
    _WORKERS.check(workers, "workers", UnsupportedFeature)
    for start in select(role=Role.START, problem=problem):
        monitor.run(start.name)
    if monitor.should_stop:
        return
    deadline = monitor.deadline
    options = {"solver": solver, "channels": channels, "largest": largest, "symmetry": symmetry, "improve": False}
    series = Series(problem, cut(problem, channels, largest, deadline), monitor.best, symmetry=symmetry is not None, deadline=deadline)
    heuristic = not series.exact or series.coupled
    evaluate = _evaluator(series, monitor, preferred() if solver is None else solver, symmetry)
    news = _News(series, monitor, "computed" if find_method(evaluate.method).solver is None else "solver")
    workers = (cores(monitor.executor) if monitor.budget.evaluations is None else 1) if workers is None else workers
    with contextlib.ExitStack() as stack:
        executor = monitor.executor
        if executor is None and workers > 1:
            here = in_process.get()
            executor = stack.enter_context(concurrent.futures.ThreadPoolExecutor(workers, initializer=in_process.set, initargs=(here,)))
        share = SHARE if heuristic and improve else 1.0
        end = monitor.deadline.part(share)
        path = series.program.solve(
            evaluate,
            deadline=end.part(JOINED) if heuristic and windows else end,
            executor=executor,
            parallel=workers,
            on_progress=news,
            stop=lambda: monitor.should_stop,
        )
        news(path)
        for trouble in path.troubles:
            monitor.note(trouble)
        if heuristic and windows and problem.n_devices <= MOST_DEVICES:
            first = monitor.best if problem.inputs == 1 else _of_several(problem, series.modules, monitor, end, share, options)
            if first is not None:
                Sweeps(problem, monitor, first, executor, workers, end, evaluations_left(monitor, share)).run()
    if heuristic and improve and not monitor.should_stop:
        monitor.run(select(kind=Kind.SEARCH, objective="makespan", auto=True)[0].name)


def _evaluator(series: Series, monitor: Monitor, solver: str, symmetry: str | None) -> Evaluate:
    chosen = find_method(solver) if solver in registered() else exact(solver)
    proves = chosen.kind is Kind.EXACT
    options = {key: value for key, value in (("threads", 1), ("symmetry", symmetry)) if key in chosen.options}
    limit = monitor.budget.evaluations
    share = None if limit is None or proves else max(1, limit // (2 * max(1, series.n_open)))
    budget = Budget(None if proves or share is not None else SECONDS, share)
    seed = int(monitor.rng.integers(2**31))
    return Evaluate(series, chosen.name, options, proves, budget, seed, monitor)


def _of_several(
    problem: Problem, modules: Sequence[Module], monitor: Monitor, end: Deadline, share: float, options: Mapping[str, Any]
) -> Schedule | None:
    """Return the schedule of several inputs with which windows begin: of HEFT, with one batch of each task, or of parts of nodes.

    Parts of nodes are split, with `options`, if HEFT's schedules of the parts are together almost as short as its schedule of the whole.
    """
    if monitor.should_stop or find_method("heft").supports.refusal(problem):
        return monitor.best
    whole = monitor.subsolve(problem, "heft", time_limit=monitor.time_limit()).schedule or monitor.best
    parts = parts_of_nodes(problem, modules)
    if not parts:
        return whole
    solved = SolvedApart(problem, parts)
    quick = solved.solve(monitor, end, None, "heft")
    if whole is None or quick is None or quick.makespan > NEAR * whole.makespan:
        return whole
    apart = solved.solve(monitor, end.part(APART), evaluations_left(monitor, APART * share), "split", options)
    return min((whole, quick, apart or whole), key=lambda schedule: schedule.makespan)


class _News:
    """Reports the results of the dynamic program to the monitor."""

    def __init__(self, series: Series, monitor: Monitor, trust: Trust) -> None:
        self.series, self.monitor, self.trust = series, monitor, trust
        self.best = math.inf

    def __call__(self, path: Path) -> None:
        problem = self.series.problem
        if self.series.exact:
            looked = f"{path.evaluated} of {self.series.n_open} pairs of a module and devices at its ends looked into"
            evidence = f"{len(self.series.modules)} modules in series, {looked}"
            self.monitor.raise_bound(Bound(path.bound, "split", evidence, trust=self.trust))
        if path.value < self.best:
            self.best = path.value
            decision = repair(problem, self.series.join(path))
            if decision is not None:
                self.monitor.offer(decision)
