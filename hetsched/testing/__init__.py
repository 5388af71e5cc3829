"""Tools to test schedulers with, for this package's tests and for those of others.

Hypothesis strategies for problems and decisions, the true optimum of tiny problems, and a suite of
tests that a scheduling method must pass.
"""

from hetsched.errors import MissingDependency
from hetsched.testing.brute_force import Optimum, brute_force

try:
    from hetsched.testing import conformance
    from hetsched.testing.strategies import clusters, decisions, numbers, problems, task_graphs
except ModuleNotFoundError as error:
    if error.name not in ("hypothesis", "pytest"):
        raise
    raise MissingDependency(error.name, "test") from error

__all__ = ["Optimum", "brute_force", "clusters", "conformance", "decisions", "numbers", "problems", "task_graphs"]
