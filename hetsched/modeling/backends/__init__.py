"""Solvers of models: the registry of backends, and the call of one."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from hetsched.arguments import checked
from hetsched.errors import MissingDependency, OutOfTime, UnsupportedFeature, warn
from hetsched.modeling.backends.protocol import Backend, BackendInfo, Capabilities, Request, Run, check_threads
from hetsched.modeling.outcome import Outcome
from hetsched.modeling.program import Program
from hetsched.processes import in_process
from hetsched.stopping import Stop

__all__ = ["Backend", "BackendInfo", "Capabilities", "Request", "Run", "backend", "in_process", "info", "known", "preferred", "solve"]

ENTRY_POINTS = "hetsched.backends"

_LINEAR = Capabilities(
    continuous=True, unbounded=True, threads=False, intervals=False, incremental=True, deterministic=True, bound_tolerance=5e-7
)
_OURS = (
    BackendInfo(
        "scip",
        "SCIP",
        "hetsched.modeling.backends.scip",
        "pyscipopt",
        "solvers",
        "milp",
        20,
        replace(_LINEAR, propagators=True),
        proves_up_to=500,
    ),
    BackendInfo(
        "highs", "HiGHS", "hetsched.modeling.backends.highs", "highspy", "solvers", "milp:highs", 30, replace(_LINEAR, threads=True)
    ),
    BackendInfo(
        "cpsat",
        "CP-SAT",
        "hetsched.modeling.backends.cpsat",
        "ortools",
        "solvers",
        "cpsat",
        10,
        Capabilities(
            continuous=False, unbounded=False, threads=True, intervals=True, incremental=False, deterministic=True, bound_tolerance=0.0
        ),
        deterministic=False,
        proves_up_to=2000,
    ),
)


@functools.cache
def _known() -> dict[str, BackendInfo]:
    """Return the declarations of solvers by name: those of hetsched, then those of entry points of other packages."""
    infos = {entry_info.name: entry_info for entry_info in _OURS}
    for entry in importlib.metadata.entry_points(group=ENTRY_POINTS):
        try:
            given = entry.load()
            if not isinstance(given, BackendInfo) or given.name in infos:
                raise UnsupportedFeature(f"it is {given!r}; it must be a BackendInfo with a name of its own")
            infos[given.name] = given
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit too: a plug-in must not end this process
            reason = str(error) if isinstance(error, Exception) else repr(error)
            warn(f"the backend of entry point {entry.name!r} ({entry.value}) cannot be loaded: {reason}", UserWarning)
    return infos


def known() -> tuple[BackendInfo, ...]:
    """Return the declarations of all solvers, without loading any."""
    return tuple(_known().values())


@checked(UnsupportedFeature)
def info(name: str, *, threads: int | None = None) -> BackendInfo:
    """Return the declaration of a solver, without loading it; the errors are those of `backend`."""
    declared = _declared(name)
    check_threads(name, threads, several=declared.capabilities.threads)
    if not _installed(declared):
        raise MissingDependency(declared.requires, declared.extra)
    return declared


@checked(UnsupportedFeature)
def preferred(among: Sequence[str] | None = None) -> str:
    """Return the name of the default solver: the first of `among`, or else of all by turn, that is installed."""
    choice = [_declared(name) for name in among] if among else sorted(known(), key=lambda solver: solver.turn)
    return next(filter(_installed, choice), choice[0]).name


def _declared(name: str) -> BackendInfo:
    if name not in _known():
        raise UnsupportedFeature(f"unknown solver {name!r}; choose from {', '.join(_known())}")
    return _known()[name]


def _installed(solver: BackendInfo) -> bool:
    return importlib.util.find_spec(solver.requires) is not None


@checked
def backend(name: str, *, threads: int | None = None) -> Backend:
    """Return a new backend by name.

    Raises `UnsupportedFeature` for an unknown name, for more `threads` than the solver can use, or if its module has no
    backend; `MissingDependency` if it is not installed.
    """
    module = info(name, threads=threads).module
    try:
        made: Callable[[], Backend] | None = getattr(importlib.import_module(module), "BACKEND", None)
    except ImportError as error:
        raise UnsupportedFeature(
            f"the module {module!r} of solver {name!r} cannot be imported: {error}; its BackendInfo must name the module of the backend"
        ) from None
    if made is None:
        raise UnsupportedFeature(f"the module {module!r} of solver {name!r} has no BACKEND; assign the class of the backend to that name")
    return made()


def solve(solver: str | Backend, program: Program, request: Request) -> Outcome:
    """Solve a program: by a solver's name in a separate process, unless `in_process` is set, or by a backend in this one.

    If there is no time to begin, the outcome has no values, and its `detail` has the reason.
    """
    if isinstance(solver, str) and in_process.get():
        solver = backend(solver, threads=request.settings.threads)
    start = request.settings.deadline.clock()
    try:
        if not isinstance(solver, str):
            return solver.solve(program, request)
        from hetsched.modeling.backends import apart

        return apart.solve(info(solver, threads=request.settings.threads), program, request)
    except OutOfTime as spent:
        name, seconds = solver if isinstance(solver, str) else solver.name, request.settings.deadline.clock() - start
        return Outcome(Stop.TIME_LIMIT, None, "", math.inf, -math.inf, name, seconds, detail=str(spent))
