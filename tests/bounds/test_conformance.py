"""Every lower bound on the makespan through the published suite."""

from __future__ import annotations

import instances
import pytest
from hypothesis import strategies as st

import hetsched as hs
from hetsched.analysis.levels import Levels
from hetsched.bounds.best import BOUNDS, Cost, Entry
from hetsched.bounds.relaxation import split_modules
from hetsched.search import MAKESPAN
from hetsched.search.solution import NO_BOUND, Bound
from hetsched.stopping import NEVER, Deadline
from hetsched.testing import strategies
from hetsched.testing.bounds import BoundSuite

SAME = ("memory", "critical_path", "load")
"""Bounds that are optima of their kind, so that numbering does not matter."""
SECONDS = 60.0
"""For solvers, which on such problems need a fraction of it."""


def suite(entry: Entry) -> type[BoundSuite]:
    name = entry.bound.__name__
    attributes: dict[str, object] = {
        "function": staticmethod(entry.bound),
        "fits": staticmethod(entry.fits),
        "time_limit": SECONDS if entry.cost is Cost.MODEL else None,
        "scales": entry.cost is not Cost.MODEL,
        "ignores_numbering": name in SAME,
        "__module__": __name__,
    }
    if entry.bound is split_modules:  # random graphs that fall apart are few
        attributes["problems"] = lambda _, **features: strategies.problems(**{**features, "inputs": 1})
        attributes["large_problems"] = lambda _: st.integers(0, 99).map(lambda seed: instances.stack("er", 10, 3, seed=seed))
    made = type(f"Test{name.title().replace('_', '')}", (BoundSuite,), attributes)
    return pytest.mark.slow(made) if entry.cost is Cost.MODEL else made


for _entry in BOUNDS:
    if _entry.objectives >= MAKESPAN:
        _suite = suite(_entry)
        globals()[_suite.__name__] = _suite


class TestBound(BoundSuite):
    """The best of all."""

    ignores_numbering = False

    @staticmethod
    def function(problem: hs.Problem, *, levels: Levels | None = None, best: Bound = NO_BOUND, deadline: Deadline = NEVER) -> Bound:
        return max(hs.bounds.best.every(problem, deadline=deadline), key=lambda found: found.value)
