"""Tools for tests of schedulers, in this package and in others.

Hypothesis strategies for problems, decisions, chains and placements, the optimum of tiny problems by enumeration, a
corpus of problems with their optima, the worst problems of a scheduler, and suites of tests for scheduling methods,
lower bounds and solvers.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from hetsched.lazy import attach
from hetsched.testing.brute_force import Optimum, brute_force

if TYPE_CHECKING:
    from hetsched.testing import bounds, conformance, corpus, profiles
    from hetsched.testing.adversaries import Adversary, Family, adversary
    from hetsched.testing.chains import best_placements, chain_problems, offloading_problems, placements
    from hetsched.testing.serving import best_serving, serving_problems
    from hetsched.testing.strategies import clusters, decisions, numbers, problems, task_graphs

__all__ = [
    "Adversary",
    "Family",
    "Optimum",
    "adversary",
    "best_placements",
    "best_serving",
    "bounds",
    "brute_force",
    "chain_problems",
    "clusters",
    "conformance",
    "corpus",
    "decisions",
    "numbers",
    "offloading_problems",
    "placements",
    "problems",
    "profiles",
    "serving_problems",
    "task_graphs",
]

# Imported at first use: the suites use the profile of hypothesis that is loaded at that time.
_HOMES = {
    "": ["bounds", "conformance", "corpus", "profiles"],
    "adversaries": ["Adversary", "Family", "adversary"],
    "chains": ["best_placements", "chain_problems", "offloading_problems", "placements"],
    "serving": ["best_serving", "serving_problems"],
    "strategies": ["clusters", "decisions", "numbers", "problems", "task_graphs"],
}
if "pytest" in sys.modules:  # a failing assertion of a suite then shows its values, as in a test module
    sys.modules["pytest"].register_assert_rewrite(*(f"{__name__}.{suite}" for suite in ("backends", "bounds", "conformance")))

__getattr__, __dir__ = attach(__name__, _HOMES, extras={"hypothesis": "test", "pytest": "test"})
