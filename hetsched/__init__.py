"""hetsched: map and schedule task graphs on heterogeneous devices, with bounds and proofs."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from hetsched.lazy import attach
from hetsched.version import __version__ as __version__

if TYPE_CHECKING:
    from hetsched import (
        analysis,
        bounds,
        certificates,
        chain,
        costs,
        documents,
        errors,
        experiments,
        frontends,
        heuristics,
        instances,
        modeling,
        models,
        planning,
        report,
        runtime,
        search,
        workloads,
    )
    from hetsched.bounds.best import bound
    from hetsched.certificates.certificate import Certificate
    from hetsched.certificates.certifying import certify
    from hetsched.chain.card import ModelCard
    from hetsched.chain.machine import Machine
    from hetsched.chain.placement import Placement
    from hetsched.chain.problem import ChainProblem
    from hetsched.chain.workload import Workload
    from hetsched.documents import read
    from hetsched.errors import (
        Cancelled,
        HetschedError,
        InconsistentBound,
        Infeasible,
        InvalidArgument,
        InvalidModel,
        InvalidProblem,
        InvalidSchedule,
        MissingDependency,
        OutOfMemory,
        OutOfTime,
        PeerLost,
        SolverFailed,
        Timeout,
        UnsupportedFeature,
    )
    from hetsched.models.ios.dynamic_program import stages
    from hetsched.papers.reproducing import reproduce
    from hetsched.planning.planner import ModelPlan, plan
    from hetsched.problem.cluster import Cluster, Device
    from hetsched.problem.graph import Shape, TaskGraph
    from hetsched.problem.problem import Problem
    from hetsched.schedule.decision import Decision
    from hetsched.schedule.schedule import Schedule
    from hetsched.schedule.simulate import simulate
    from hetsched.schedule.stages import StageSchedule
    from hetsched.search import Event, Monitor, method
    from hetsched.search.solution import Bound, Solution, Status
    from hetsched.solving import methods, solve
    from hetsched.verification.placement import verify_placement
    from hetsched.verification.serving import verify_serving
    from hetsched.verification.stages import verify_stages
    from hetsched.verification.tensor_parallel import verify_tensor_parallel
    from hetsched.verification.verify import Violation, verify

_HOMES = {
    "": [
        "analysis",
        "bounds",
        "certificates",
        "chain",
        "costs",
        "documents",
        "errors",
        "experiments",
        "frontends",
        "heuristics",
        "instances",
        "modeling",
        "models",
        "planning",
        "report",
        "runtime",
        "search",
        "workloads",
    ],
    "bounds.best": ["bound"],
    "certificates.certificate": ["Certificate"],
    "certificates.certifying": ["certify"],
    "chain.card": ["ModelCard"],
    "chain.machine": ["Machine"],
    "chain.placement": ["Placement"],
    "chain.problem": ["ChainProblem"],
    "chain.workload": ["Workload"],
    "documents": ["read"],
    "errors": [
        "Cancelled",
        "HetschedError",
        "InconsistentBound",
        "Infeasible",
        "InvalidArgument",
        "InvalidModel",
        "InvalidProblem",
        "InvalidSchedule",
        "MissingDependency",
        "OutOfMemory",
        "OutOfTime",
        "PeerLost",
        "SolverFailed",
        "Timeout",
        "UnsupportedFeature",
    ],
    "models.ios.dynamic_program": ["stages"],
    "papers.reproducing": ["reproduce"],
    "planning.planner": ["ModelPlan", "plan"],
    "problem.cluster": ["Cluster", "Device"],
    "problem.graph": ["Shape", "TaskGraph"],
    "problem.problem": ["Problem"],
    "schedule.decision": ["Decision"],
    "schedule.schedule": ["Schedule"],
    "schedule.simulate": ["simulate"],
    "schedule.stages": ["StageSchedule"],
    "search": ["Event", "Monitor", "method"],
    "search.solution": ["Bound", "Solution", "Status"],
    "solving": ["methods", "solve"],
    "verification.placement": ["verify_placement"],
    "verification.tensor_parallel": ["verify_tensor_parallel"],
    "verification.serving": ["verify_serving"],
    "verification.stages": ["verify_stages"],
    "verification.verify": ["Violation", "verify"],
}

__all__ = [
    "Bound",
    "Cancelled",
    "Certificate",
    "ChainProblem",
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
    "Machine",
    "MissingDependency",
    "ModelCard",
    "ModelPlan",
    "Monitor",
    "OutOfMemory",
    "OutOfTime",
    "PeerLost",
    "Placement",
    "Problem",
    "Schedule",
    "Shape",
    "Solution",
    "SolverFailed",
    "StageSchedule",
    "Status",
    "TaskGraph",
    "Timeout",
    "UnsupportedFeature",
    "Violation",
    "Workload",
    "analysis",
    "bound",
    "bounds",
    "certificates",
    "certify",
    "chain",
    "costs",
    "documents",
    "errors",
    "experiments",
    "frontends",
    "heuristics",
    "instances",
    "method",
    "methods",
    "modeling",
    "models",
    "plan",
    "planning",
    "read",
    "report",
    "reproduce",
    "runtime",
    "search",
    "simulate",
    "solve",
    "stages",
    "verify",
    "verify_placement",
    "verify_serving",
    "verify_stages",
    "verify_tensor_parallel",
    "workloads",
]

logging.getLogger(__name__).addHandler(logging.NullHandler())

__getattr__, __dir__ = attach(__name__, _HOMES)
