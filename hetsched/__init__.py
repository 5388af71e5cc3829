"""hetsched: map and schedule task graphs on heterogeneous devices, with bounds and proofs."""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from hetsched import (
        analysis,
        bounds,
        costs,
        documents,
        errors,
        frontends,
        heuristics,
        modeling,
        models,
        report,
        runtime,
        search,
        workloads,
    )
    from hetsched.bounds.best import bound
    from hetsched.documents import read
    from hetsched.errors import (
        HetschedError,
        InconsistentBound,
        Infeasible,
        InvalidArgument,
        InvalidModel,
        InvalidProblem,
        InvalidSchedule,
        MissingDependency,
        OutOfTime,
        SolverFailed,
        UnsupportedFeature,
    )
    from hetsched.models.ios import stages
    from hetsched.portfolio import methods, solve
    from hetsched.problem.cluster import Cluster, Device
    from hetsched.problem.graph import TaskGraph
    from hetsched.problem.problem import Problem
    from hetsched.schedule.decision import Decision
    from hetsched.schedule.schedule import Schedule
    from hetsched.schedule.simulate import simulate
    from hetsched.schedule.stages import StageSchedule, verify_stages
    from hetsched.schedule.verify import Violation, verify
    from hetsched.search import Event, Monitor, method
    from hetsched.solution import Bound, Solution, Status

# Where each public name lives; they are imported when first used, so that `import hetsched` is quick.
_HOME = {
    "bound": "bounds.best",
    "read": "documents",
    "stages": "models.ios",
    "methods": "portfolio",
    "solve": "portfolio",
    "Cluster": "problem.cluster",
    "Device": "problem.cluster",
    "TaskGraph": "problem.graph",
    "Problem": "problem.problem",
    "Decision": "schedule.decision",
    "Schedule": "schedule.schedule",
    "simulate": "schedule.simulate",
    "StageSchedule": "schedule.stages",
    "verify_stages": "schedule.stages",
    "Violation": "schedule.verify",
    "verify": "schedule.verify",
    "Event": "search",
    "Monitor": "search",
    "method": "search",
    "Bound": "solution",
    "Solution": "solution",
    "Status": "solution",
    **dict.fromkeys(
        [
            "HetschedError",
            "InconsistentBound",
            "Infeasible",
            "InvalidArgument",
            "InvalidModel",
            "InvalidProblem",
            "InvalidSchedule",
            "MissingDependency",
            "OutOfTime",
            "SolverFailed",
            "UnsupportedFeature",
        ],
        "errors",
    ),
}
_PARTS = (
    "analysis",
    "bounds",
    "costs",
    "documents",
    "errors",
    "frontends",
    "heuristics",
    "modeling",
    "models",
    "report",
    "runtime",
    "search",
    "workloads",
)

__all__ = [
    "Bound",
    "Cluster",
    "Decision",
    "Device",
    "Event",
    "HetschedError",
    "InconsistentBound",
    "Infeasible",
    "InvalidArgument",
    "InvalidModel",
    "InvalidProblem",
    "InvalidSchedule",
    "MissingDependency",
    "Monitor",
    "OutOfTime",
    "Problem",
    "Schedule",
    "Solution",
    "SolverFailed",
    "StageSchedule",
    "Status",
    "TaskGraph",
    "UnsupportedFeature",
    "Violation",
    "analysis",
    "bound",
    "bounds",
    "costs",
    "documents",
    "errors",
    "frontends",
    "heuristics",
    "method",
    "methods",
    "modeling",
    "models",
    "read",
    "report",
    "runtime",
    "search",
    "simulate",
    "solve",
    "stages",
    "verify",
    "verify_stages",
    "workloads",
]

logging.getLogger(__name__).addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(f"hetsched.{_HOME[name]}"), name)
    elif name in _PARTS:
        value = importlib.import_module(f"hetsched.{name}")
    else:
        raise AttributeError(f"module 'hetsched' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
