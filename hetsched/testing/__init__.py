"""Tools to test schedulers with, for this package's tests and for those of others.

Hypothesis strategies for problems and decisions, the true optimum of tiny problems, a corpus of problems whose
optima are known, and suites of tests that a scheduling method, or a lower bound, must pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetsched.lazy import attach
from hetsched.testing.brute_force import Optimum, brute_force

if TYPE_CHECKING:
    from hetsched.testing import bounds, conformance, corpus, profiles
    from hetsched.testing.strategies import clusters, decisions, numbers, problems, task_graphs

__all__ = [
    "Optimum",
    "bounds",
    "brute_force",
    "clusters",
    "conformance",
    "corpus",
    "decisions",
    "numbers",
    "problems",
    "profiles",
    "task_graphs",
]

# Imported when first used: the suites take the profile of hypothesis that is loaded by then.
_HOMES = {
    "": ["bounds", "conformance", "corpus", "profiles"],
    "strategies": ["clusters", "decisions", "numbers", "problems", "task_graphs"],
}
__getattr__, __dir__ = attach(__name__, _HOMES, extras={"hypothesis": "test", "pytest": "test"})
