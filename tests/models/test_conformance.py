"""The exact methods with a formulation of their own through the published suite of methods."""

from __future__ import annotations

from hetsched.search import Kind, select
from hetsched.testing import conformance

METHODS = [each for each in select(kind=Kind.EXACT, objective="makespan") if each.function.__module__.startswith("hetsched.models.")]


class Exact(conformance.MethodSuite):
    """What all of them need: seconds, and small problems."""

    evaluations = None
    time_limit = 20.0
    scales = False  # a proof ends where the solver's tolerance does


TestFormulations = conformance.suites([each for each in METHODS if not each.supports.besides], Exact)
TestNarrowFormulations = conformance.suites([each for each in METHODS if each.supports.besides], Exact, answers_plain=False)
