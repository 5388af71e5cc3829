"""The suite of bounds on faulty bounds, which have to fail."""

from __future__ import annotations

import pytest

from hetsched.analysis.levels import Levels
from hetsched.problem.problem import Problem
from hetsched.search.solution import NO_BOUND, Bound
from hetsched.stopping import NEVER, Deadline
from hetsched.testing.bounds import BoundSuite


def longest_task(problem: Problem, *, levels: Levels | None = None, best: Bound = NO_BOUND, deadline: Deadline = NEVER) -> Bound:
    """Return the shortest batch of the task whose shortest batch is longest; fails without tasks."""
    return Bound((levels or Levels(problem)).least.min(axis=1).max(), "longest task", "")


def test_a_bound_that_needs_tasks_fails() -> None:
    suite = type("Suite", (BoundSuite,), {"function": staticmethod(longest_task)})()
    with pytest.raises(ValueError, match="zero-size array"):
        suite.test_it_is_at_most_zero_without_tasks()


def larger(problem: Problem, *, levels: Levels | None = None, best: Bound = NO_BOUND, deadline: Deadline = NEVER) -> Bound:
    """Return a bound above the best one so far."""
    return Bound(1.5 * best.value, "larger", "")


def test_a_bound_that_raises_the_one_it_starts_from_without_reason_fails() -> None:
    suite = type("Suite", (BoundSuite,), {"function": staticmethod(larger)})()
    with pytest.raises(AssertionError, match="above the optimum"):
        suite.test_it_is_never_above_the_optimum_if_it_starts_from_another_bound()
