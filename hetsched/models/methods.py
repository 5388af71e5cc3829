"""Exact methods: formulations handed to solvers, under the names that `solve` knows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from hetsched.arguments import checked
from hetsched.errors import UnsupportedFeature
from hetsched.problem.problem import Problem
from hetsched.search import Monitor, method
from hetsched.stopping import NEVER, Deadline

if TYPE_CHECKING:
    from hetsched.models.formulation import Formulation

DIVIML = "DiviML, equations (1) to (7)"
MOIRAI = "Moirai, equations (4) to (8)"
PESTO = "U. U. Hafeez et al., Middleware 2021"
GETF = "Y. Su, X. Ren, S. Vardi, A. Wierman, 2020"
SUPPORTS = "static memory; several inputs without contention only"


@checked
def fitting(problem: Problem) -> type[Formulation]:
    """Return the formulation that fits a problem: Moirai's where transfers contend, else DiviML's."""
    from hetsched.models.batched import BatchedMakespan
    from hetsched.models.moirai import CongestionAware

    return CongestionAware if problem.links.contended else BatchedMakespan


@checked
def formulate(
    problem: Problem, *, faithful: bool = False, upper: float | None = None, symmetry: str | None = None, deadline: Deadline = NEVER
) -> Formulation:
    """Return the problem in the formulation that fits it, see `fitting`; parameters and errors are those of `Formulation`."""
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
    **said: Any,
) -> None:
    """Say the problem in a formulation and hand it over; what list schedulers find is offered first and narrows its windows.

    What cannot be asked is refused before anything is found.
    """
    from hetsched.modeling.backends import check_gap, info
    from hetsched.models.formulation import quick
    from hetsched.models.redundant import check_criterion

    kind.check(problem)
    info(solver, threads=threads)
    check_gap(gap)
    if symmetry is not None:
        check_criterion(symmetry)
    found = quick(problem, monitor.deadline)
    best = math.inf if monitor.best is None else monitor.best.makespan
    if found.schedule is not None and found.makespan < best and found.makespan <= upper:
        before, monitor.source = monitor.source, found.method
        monitor.offer(found.schedule.decision)
        monitor.source = before
    formulation = kind(problem, upper=min(best, found.makespan, upper), symmetry=symmetry, deadline=monitor.deadline, **said)
    formulation.run(monitor, solver, gap=gap, threads=threads, cuts=cuts, start=monitor.best)


@method("milp", summary="the batched MILP (with contention Moirai's), tightened, solved by SCIP", source=DIVIML, supports=SUPPORTS)
def milp(
    problem: Problem,
    monitor: Monitor,
    *,
    gap: float = 0.0,
    threads: int | None = None,
    cuts: bool = True,
    upper: float | None = None,
    symmetry: str | None = "tasks",
) -> None:
    """Solve by SCIP to a relative gap; schedules longer than `upper` seconds are not looked for.

    `symmetry` ("batches", "tasks" or "time") puts identical devices, nodes and inputs in order; None leaves them be.
    """
    limit = math.inf if upper is None else upper
    _solve(fitting(problem), problem, monitor, "scip", gap=gap, threads=threads, cuts=cuts, upper=limit, symmetry=symmetry)


@method("milp:highs", summary="the same, solved by HiGHS", source=DIVIML, supports=SUPPORTS)
def milp_highs(
    problem: Problem,
    monitor: Monitor,
    *,
    gap: float = 0.0,
    threads: int | None = None,
    cuts: bool = True,
    upper: float | None = None,
    symmetry: str | None = "tasks",
) -> None:
    """Solve by HiGHS to a relative gap; schedules longer than `upper` seconds are not looked for.

    `symmetry` ("batches", "tasks" or "time") puts identical devices, nodes and inputs in order; None leaves them be.
    """
    limit = math.inf if upper is None else upper
    _solve(fitting(problem), problem, monitor, "highs", gap=gap, threads=threads, cuts=cuts, upper=limit, symmetry=symmetry)


@method("cpsat", summary="the same with optional intervals, solved by CP-SAT", source=DIVIML, deterministic=False, supports=SUPPORTS)
def cpsat(
    problem: Problem,
    monitor: Monitor,
    *,
    gap: float = 0.0,
    threads: int | None = None,
    cuts: bool = True,
    upper: float | None = None,
    symmetry: str | None = "tasks",
) -> None:
    """Solve by CP-SAT to a relative gap; schedules longer than `upper` seconds are not looked for.

    `symmetry` ("batches", "tasks" or "time") puts identical devices, nodes and inputs in order; None leaves them be.
    """
    limit = math.inf if upper is None else upper
    _solve(fitting(problem), problem, monitor, "cpsat", gap=gap, threads=threads, cuts=cuts, upper=limit, symmetry=symmetry)


@method("moirai", summary="Moirai's MILP as printed, solved by SCIP", source=MOIRAI, supports="static memory, one input")
def moirai(
    problem: Problem, monitor: Monitor, *, solver: str = "scip", gap: float = 0.0, threads: int | None = None, faithful: bool = True
) -> None:
    """Solve Moirai's formulation; ``faithful=False`` adds redundant load rows."""
    from hetsched.models.moirai import CongestionAware

    _solve(CongestionAware, problem, monitor, solver, gap=gap, threads=threads, faithful=faithful)


@method(
    "pesto",
    summary="Moirai's MILP on Pesto's two devices, tightened",
    source=PESTO,
    supports="two devices, channels, static memory, one input",
)
def pesto(problem: Problem, monitor: Monitor, *, solver: str = "scip", gap: float = 0.0, threads: int | None = None) -> None:
    """Solve by a solver to a relative gap."""
    from hetsched.models.rivals import Pesto

    _solve(Pesto, problem, monitor, solver, gap=gap, threads=threads)


@method("getf", summary="group assignment by linear program, then earliest start first", source=GETF, supports="related devices")
def getf(problem: Problem, monitor: Monitor, *, solver: str = "scip") -> None:
    """Round the linear program's fractions to groups of devices of like speed."""
    from hetsched.models import rivals

    rivals.getf(problem, monitor, solver)


@method("assignment", summary="the least load of the busiest device, in topological order", source=DIVIML, supports="static memory")
def assignment(problem: Problem, monitor: Monitor, *, solver: str = "scip", gap: float = 0.0, threads: int | None = None) -> None:
    """Solve the load-only relaxation: a bound, and a schedule of what it chooses."""
    from hetsched.models.assignment import Assignment

    _solve(Assignment, problem, monitor, solver, gap=gap, threads=threads, symmetry="tasks")


@method(
    "load-milp",
    summary="period: the exact model of all loads, solved by SCIP or HiGHS",
    source="J. Tarnawski et al., NeurIPS 2020",
    supports="objectives period and max-load; static memory, one input",
)
def load_milp(problem: Problem, monitor: Monitor, *, solver: str = "scip", gap: float = 0.0, threads: int | None = None) -> None:
    """Solve to a relative gap by ``"scip"`` or ``"highs"``, from the best of a short search if there is no start.

    Under another objective than max-load the period is minimised.
    """
    from hetsched.heuristics import load_search  # noqa: F401  # it registers its method
    from hetsched.models.steady import SteadyState

    if solver not in ("scip", "highs"):
        raise UnsupportedFeature(f"method 'load-milp' cannot use the solver {solver!r}; choose scip or highs")
    SteadyState.check(problem)
    if monitor.best is None:
        monitor.run("load-search", {"moves": 100_000})
    objective = "max-load" if monitor.objective == "max-load" else "period"
    said = SteadyState(problem, objective=objective, deadline=monitor.deadline)
    said.run(monitor, solver, gap=gap, threads=threads, start=monitor.best)
