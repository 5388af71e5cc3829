"""The published suite for the exact methods with a formulation of their own."""

from __future__ import annotations

from hetsched.search import Kind, select
from hetsched.testing import conformance

METHODS = [method for method in select(kind=Kind.EXACT, objective="makespan") if method.function.__module__.startswith("hetsched.models.")]


class Exact(conformance.MethodSuite):
    """Settings of all: seconds per solve, and small problems."""

    evaluations = None
    time_limit = 20.0
    scales = False  # proofs depend on the tolerance of the solver


TestFormulations = conformance.suites([method for method in METHODS if not method.supports.besides], Exact)
TestNarrowFormulations = conformance.suites([method for method in METHODS if method.supports.besides], Exact, answers_plain=False)
