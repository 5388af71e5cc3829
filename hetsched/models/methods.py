"""Exact methods: formulations that are solved by a backend."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from hetsched.analysis.model_size import columns_up_to
from hetsched.arguments import check_count, checked
from hetsched.errors import OutOfTime, UnsupportedFeature
from hetsched.modeling import backends
from hetsched.modeling.backends import BackendInfo, info
from hetsched.modeling.settings import SolveSettings
from hetsched.problem.problem import Problem
from hetsched.search import LOADS, Auto, Kind, Monitor, Role, Supports, always, method
from hetsched.stopping import NEVER, Deadline

if TYPE_CHECKING:
    from hetsched.models.formulation import Formulation

DIVIML = "DiviML, equations (1) to (7)"
MOIRAI = "Moirai, equations (4) to (8)"
PESTO = "U. U. Hafeez et al., Middleware 2021"
GETF = "Y. Su, X. Ren, S. Vardi, A. Wierman, 2020"
IGNORING = 0.25
"""Share of the time in which contention is ignored, for a bound."""
STATIC = Supports(memory=("static",))
ONE_STATIC = Supports(inputs="one", memory=("static",))


@checked
def fitting(problem: Problem) -> type[Formulation]:
    """Return the formulation for a problem: Moirai's, with batches for several inputs, if transfers contend, else DiviML's."""
    from hetsched.models.batched import BatchedMakespan
    from hetsched.models.moirai import CongestionAware

    return CongestionAware if problem.links.contended else BatchedMakespan


@checked
def formulate(
    problem: Problem, *, faithful: bool = False, upper: float | None = None, symmetry: str | None = None, deadline: Deadline = NEVER
) -> Formulation:
    """Return the formulation of a problem, of the class `fitting`; parameters and errors are those of `Formulation`."""
    return fitting(problem)(problem, faithful=faithful, upper=upper, symmetry=symmetry, deadline=deadline)


def _solve(
    kind: type[Formulation],
    problem: Problem,
    monitor: Monitor,
    solver: str,
    *,
    gap: float,
    threads: int | None,
    cuts: bool = True,
    upper: float = math.inf,
    symmetry: str | None = None,
    faithful: bool = False,
    improve: bool = True,
    relax: Callable[[], None] | None = None,
) -> None:
    """Solve a formulation of the problem; schedules of list schedulers are offered first and tighten its windows.

    Unsupported settings are refused before any work. After the list schedulers `relax` may bound the makespan; the bound is a row.
    """
    from hetsched.compiled import NotCompiled, kernels_in_time
    from hetsched.models.formulation import SLACK, quick
    from hetsched.models.redundant import check_criterion

    kind.check(problem, faithful=faithful)
    info(solver, threads=threads)
    settings = SolveSettings(monitor.deadline, gap, threads, monitor.seed, cuts)
    if symmetry is not None:
        check_criterion(symmetry)
    start = quick(problem, monitor.deadline, search=improve)
    best = math.inf if monitor.best is None else monitor.best.makespan
    if start.schedule is not None and start.makespan < best and start.makespan <= upper:
        with monitor.as_source(start.method):
            monitor.offer(start.schedule.decision)
    if relax is not None:
        relax()
        best = math.inf if monitor.best is None else monitor.best.makespan
        if monitor.should_stop:
            return
    shortest = min(best, start.makespan, upper)
    try:
        with kernels_in_time(monitor.time_left):
            formulation = kind(problem, faithful=faithful, upper=shortest, symmetry=symmetry, deadline=monitor.deadline)
    except NotCompiled:
        raise OutOfTime("there was no time to compile the kernels of windows; `hetsched prepare` does it once for all") from None
    if relax is not None and math.isfinite(monitor.bound.value):
        least = min(monitor.bound.value, formulation.upper) * (1 - SLACK) * formulation.second
        formulation.model.add(formulation.objective.expression >= least, tag="bound", cut=True)
    formulation.run(monitor, solver, settings, start=monitor.best)


def _ignore_contention(problem: Problem, monitor: Monitor, method: str, options: Mapping[str, Any]) -> None:
    """Solve the problem without contention in a share of the time: a smaller model, whose bound holds and whose devices may be good."""
    free = problem.replace(communication="delay")
    solution = monitor.subsolve(free, method, time_limit=monitor.time_limit(IGNORING), start=monitor.best, options=options)
    bound = solution.proof
    if bound.value > 0:
        monitor.raise_bound(replace(bound, name=f"{bound.name} without contention"))
    if solution.schedule is not None:
        with monitor.as_source(f"{method} without contention"):
            monitor.offer(solution.schedule.decision)


def _by_solver(backend: BackendInfo) -> None:
    """Register the method that solves the formulation of a problem by a backend."""

    def function(
        problem: Problem,
        monitor: Monitor,
        *,
        gap: float = 0.0,
        threads: int | None = None,
        cuts: bool = True,
        upper: float | None = None,
        symmetry: str | None = "tasks",
        faithful: bool = False,
        improve: bool = True,
    ) -> None:
        options = {"gap": gap, "threads": threads, "cuts": cuts, "upper": upper, "symmetry": symmetry, "improve": improve}
        several = problem.inputs > 1 and problem.links.contended and monitor.objective == "makespan"
        _solve(
            fitting(problem),
            problem,
            monitor,
            backend.name,
            gap=gap,
            threads=threads,
            cuts=cuts,
            upper=math.inf if upper is None else upper,
            symmetry=symmetry,
            faithful=faithful,
            improve=improve,
            relax=partial(_ignore_contention, problem, monitor, backend.method, options) if several else None,
        )

    function.__name__ = function.__qualname__ = f"by_{backend.name}"
    function.__doc__ = f"""Solve by {backend.title} to a relative gap, among schedules of at most `upper` seconds.

    `symmetry` ("batches", "tasks" or "time") orders identical devices, nodes and inputs; None does not. `faithful` solves
    the paper's literal form instead of the tightened one; with contention there is one for one input only. Several inputs
    whose transfers contend are first solved without contention, for a quarter of the time, which gives a bound. The solve begins
    with the best of some list schedules; with `improve` a short search follows, for up to 100 tasks, one input and no contention.
    """
    method(
        backend.method,
        summary=f"the batched MILP, with contention Moirai's, tightened, solved by {backend.title}",
        source=DIVIML,
        kind=Kind.EXACT,
        deterministic=backend.deterministic,
        solver=backend.name,
        needs=backend.requires,
        supports=STATIC,
        turn=430 + backend.turn,
        auto=None if backend.proves_up_to is None else Auto(when=columns_up_to(backend.proves_up_to)),
    )(function)


for _backend in backends.known():
    _by_solver(_backend)


@method("moirai", summary="Moirai's MILP as printed, solved by SCIP", source=MOIRAI, kind=Kind.EXACT, supports=STATIC, turn=470)
def moirai(
    problem: Problem,
    monitor: Monitor,
    *,
    solver: str = "scip",
    gap: float = 0.0,
    threads: int | None = None,
    faithful: bool | None = None,
    tasks: int | None = None,
    improve: bool = False,
) -> None:
    """Solve Moirai's formulation, that of ``communication="port"``.

    ``faithful=False`` adds redundant load rows; it is the default for several inputs, which the paper does not have.

    With `tasks` a graph of more tasks is first made smaller: chains are merged, then tasks along heavy edges, until at most about so
    many are left. The schedule is carried back to the whole graph; it may be longer than one of a list scheduler, which is then the
    answer. With `improve` a search of the whole graph follows in the second half of the time. Both are ours.
    """
    from hetsched.models.moirai import CongestionAware

    if problem.communication != "port":
        monitor.note(f"under communication={problem.communication!r} equation (8) has no rows; Moirai's own problem has 'port'")
    literal = problem.inputs == 1 if faithful is None else faithful
    options: dict[str, Any] = {"gap": gap, "threads": threads, "faithful": literal}
    if tasks is None:
        if improve:
            raise UnsupportedFeature("improve is True without tasks; give the number of tasks of the graph to solve")
        _solve(CongestionAware, problem, monitor, solver, **options)
        return
    from hetsched.models.coarsened import solve_coarse

    check_count(tasks, "tasks", error=UnsupportedFeature)
    CongestionAware.check(problem, faithful=literal)
    solve_coarse(problem, monitor, tasks, {"solver": solver, **options}, improve=improve)


@method(
    "pesto",
    summary="Moirai's MILP on Pesto's two devices, tightened",
    source=PESTO,
    kind=Kind.EXACT,
    supports=Supports(communication=("channel",), memory=("static",), besides="other than two devices"),
    turn=480,
)
def pesto(problem: Problem, monitor: Monitor, *, solver: str = "scip", gap: float = 0.0, threads: int | None = None) -> None:
    """Solve by a solver to a relative gap."""
    from hetsched.models.pesto import Pesto

    _solve(Pesto, problem, monitor, solver, gap=gap, threads=threads)


@method(
    "getf",
    summary="group assignment by linear program, then earliest start first",
    source=GETF,
    kind=Kind.EXACT,
    supports=Supports(inputs="whole"),
    turn=490,
)
def getf(problem: Problem, monitor: Monitor, *, solver: str = "scip", integral: bool = False) -> None:
    """Round the linear program's fractions to groups of devices of similar speed.

    Unrelated devices, which the paper does not have, are grouped by their mean speeds; a task that no device of its group runs
    keeps all its devices. With ``integral=True`` the assignment is a MILP, as in Moirai's comparison.
    """
    from hetsched.models.getf import getf as run

    run(problem, monitor, solver, integral=integral)


@method(
    "assignment",
    summary="the least load of the busiest device, in topological order",
    source=DIVIML,
    kind=Kind.EXACT,
    roles={Role.PACKING: always},
    supports=STATIC,
    turn=176,
)
def assignment(problem: Problem, monitor: Monitor, *, solver: str = "scip", gap: float = 0.0, threads: int | None = None) -> None:
    """Solve the load-only relaxation for a bound, and schedule its assignment."""
    from hetsched.models.assignment import Assignment

    _solve(Assignment, problem, monitor, solver, gap=gap, threads=threads, symmetry="tasks")


@method(
    "load-milp",
    summary="period: the exact model of all loads, solved by SCIP or HiGHS",
    source="J. Tarnawski et al., NeurIPS 2020",
    kind=Kind.EXACT,
    objectives=LOADS,
    supports=ONE_STATIC,
    turn=400,
    auto=Auto(when=columns_up_to(1000)),
)
def load_milp(problem: Problem, monitor: Monitor, *, solver: str = "scip", gap: float = 0.0, threads: int | None = None) -> None:
    """Solve to a relative gap by ``"scip"`` or ``"highs"``, without a start from the result of a short search.

    Under objectives other than max-load the period is minimised.
    """
    from hetsched.models.steady_state import SteadyState

    if solver not in ("scip", "highs"):
        raise UnsupportedFeature(f"method 'load-milp' cannot use the solver {solver!r}; choose scip or highs")
    if monitor.best is None:
        monitor.run("load-search", {"moves": 100_000})
    objective = "max-load" if monitor.objective == "max-load" else "period"
    formulation = SteadyState(problem, objective=objective, deadline=monitor.deadline)
    formulation.run(monitor, solver, SolveSettings(monitor.deadline, gap, threads, monitor.seed), start=monitor.best)
