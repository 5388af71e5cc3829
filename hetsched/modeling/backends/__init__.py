"""Solvers that models are handed to: which there are, and how one is called."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import math
from contextvars import ContextVar
from dataclasses import replace

from hetsched.arguments import checked
from hetsched.errors import MissingDependency, OutOfTime, UnsupportedFeature, warn
from hetsched.modeling.backends.protocol import Backend, BackendInfo, Capabilities, Request, Run, check_threads
from hetsched.modeling.outcome import Outcome
from hetsched.modeling.program import Program
from hetsched.stopping import Stop

__all__ = ["Backend", "BackendInfo", "Capabilities", "Request", "Run", "backend", "in_process", "info", "known", "preferred", "solve"]

ENTRY_POINTS = "hetsched.backends"

in_process: ContextVar[bool] = ContextVar("in_process", default=False)
"""Whether solvers named by a text run in this process: quicker to start, but one that aborts takes this process along."""

_LINEAR = Capabilities(
    continuous=True, unbounded=True, threads=False, intervals=False, incremental=True, deterministic=True, bound_tolerance=5e-7
)
_OURS = (
    BackendInfo("scip", "SCIP", "hetsched.modeling.backends.scip", "pyscipopt", "solvers", "milp", 20, _LINEAR, proves_up_to=500),
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
    """Return what is known of every solver by name: of ours, then of those that other packages announce."""
    found = {each.name: each for each in _OURS}
    for entry in importlib.metadata.entry_points(group=ENTRY_POINTS):
        try:
            given = entry.load()
            if not isinstance(given, BackendInfo) or given.name in found:
                raise UnsupportedFeature(f"it is {given!r}; it must be a BackendInfo with a name of its own")
            found[given.name] = given
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit too: what others install must not end this process
            reason = str(error) if isinstance(error, Exception) else repr(error)
            warn(f"the backend of entry point {entry.name!r} ({entry.value}) cannot be loaded: {reason}", UserWarning)
    return found


def known() -> tuple[BackendInfo, ...]:
    """Return what is known of every solver, none of which is loaded for it."""
    return tuple(_known().values())


@checked(UnsupportedFeature)
def info(name: str, *, threads: int | None = None) -> BackendInfo:
    """Return what is known of a solver, without loading it; raises what `backend` does."""
    if name not in _known():
        raise UnsupportedFeature(f"unknown solver {name!r}; choose from {', '.join(_known())}")
    found = _known()[name]
    check_threads(name, threads, several=found.capabilities.threads)
    if not _installed(found):
        raise MissingDependency(found.requires, found.extra)
    return found


def preferred() -> str:
    """Return the name of the solver to use where none is asked for: the first by turn that is installed."""
    return min(known(), key=lambda each: (not _installed(each), each.turn)).name


def _installed(found: BackendInfo) -> bool:
    return importlib.util.find_spec(found.requires) is not None


@checked
def backend(name: str, *, threads: int | None = None) -> Backend:
    """Return a new backend by name.

    Raises `UnsupportedFeature` for an unknown name or for more `threads` than the solver can use,
    `MissingDependency` if it is not installed.
    """
    made: Backend = importlib.import_module(info(name, threads=threads).module).BACKEND()
    return made


def solve(solver: str | Backend, program: Program, request: Request) -> Outcome:
    """Solve a program: by a solver's name in a process of its own unless `in_process` says otherwise, by a backend here.

    Where there is no time to begin, the outcome is one without values, and its `detail` says so.
    """
    if isinstance(solver, str) and in_process.get():
        solver = backend(solver, threads=request.settings.threads)
    began = request.settings.deadline.clock()
    try:
        if not isinstance(solver, str):
            return solver.solve(program, request)
        from hetsched.modeling.backends import apart

        return apart.solve(info(solver, threads=request.settings.threads), program, request)
    except OutOfTime as spent:
        name, seconds = solver if isinstance(solver, str) else solver.name, request.settings.deadline.clock() - began
        return Outcome(Stop.TIME_LIMIT, None, "", math.inf, -math.inf, name, seconds, detail=str(spent))
