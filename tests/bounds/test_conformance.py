"""Every lower bound on the makespan through the published suite."""

from __future__ import annotations

from typing import Any

import instances
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

import hetsched as hs
from hetsched.analysis.levels import Levels
from hetsched.bounds.best import BOUNDS
from hetsched.bounds.combinatorial import critical_path, load, memory
from hetsched.bounds.in_series import in_series
from hetsched.bounds.memory_path import path_within_memory
from hetsched.bounds.relaxation import split_modules
from hetsched.search import MAKESPAN, always
from hetsched.search.solution import NO_BOUND, Bound
from hetsched.stopping import NEVER, Deadline
from hetsched.testing import bounds, strategies

OPTIMA = (memory, critical_path, load)
"""Bounds that are exact optima of a relaxation, so that they do not depend on numbering."""
RARE = (path_within_memory, in_series)
ENTRIES = [entry for entry in BOUNDS if entry.objectives >= MAKESPAN]


class OfModules(bounds.BoundSuite):
    """Problems whose graphs have modules, which random problems rarely have."""

    def problems(self, **features: Any) -> SearchStrategy[hs.Problem]:
        return strategies.problems(**{**features, "inputs": 1})

    def large_problems(self) -> SearchStrategy[hs.Problem]:
        return st.integers(0, 99).map(lambda seed: instances.stack("er", 10, 3, seed=seed))


TestOptima = bounds.suites(entry for entry in ENTRIES if entry.bound in OPTIMA)
TestOfModules = bounds.suites((entry for entry in ENTRIES if entry.bound is split_modules), OfModules, ignores_numbering=False)
TestRare = bounds.suites(  # few random problems have as little memory, or as large modules, but these hold for all
    (entry for entry in ENTRIES if entry.bound in RARE), ignores_numbering=False, fits=staticmethod(always)
)
TestOthers = bounds.suites((entry for entry in ENTRIES if entry.bound not in (*OPTIMA, *RARE, split_modules)), ignores_numbering=False)


class TestBest(bounds.BoundSuite):
    """The best of all bounds."""

    ignores_numbering = False

    @staticmethod
    def function(problem: hs.Problem, *, levels: Levels | None = None, best: Bound = NO_BOUND, deadline: Deadline = NEVER) -> Bound:
        return max(hs.bounds.best.every(problem, deadline=deadline), key=lambda bound: bound.value)
