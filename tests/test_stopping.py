"""Deadlines and clocks of a solve."""

from __future__ import annotations

import itertools
import math

import pytest

from hetsched.errors import OutOfTime
from hetsched.search import Budget, Monitor
from hetsched.stopping import NEVER, Deadline
from hetsched.testing.clocks import SteppingClock
from tests.golden import topcuoglu


def test_a_deadline_is_over_by_its_clock():
    clock = SteppingClock()
    deadline = Deadline.after(10.0, clock)
    assert deadline.left == 10.0
    assert not deadline.over
    clock.now += 4.0
    assert deadline.limit == 6.0
    assert deadline.part(0.5).left == 3.0
    clock.now += 20.0
    assert deadline.over
    assert deadline.limit == 0.0, "what is called now gets no negative time"
    assert deadline.part(0.5).left == 0.0


def test_long_work_ends_at_the_first_check_after_the_end():
    counting = Deadline.after(3.5, SteppingClock(1.0)).watch(range(100), "the counting", every=10)
    assert list(itertools.islice(counting, 30)) == list(range(30)), "there is a look before the first, and one after every ten"
    with pytest.raises(OutOfTime, match="the time limit was reached during the counting; allow more time"):
        next(counting)


def test_work_that_takes_longer_than_the_time_left_does_not_begin():
    deadline = Deadline.after(2.0, SteppingClock())
    deadline.require(1.9, "the counting")
    with pytest.raises(OutOfTime, match="the counting takes about 12 s, but 2 s are left; allow more time"):
        deadline.require(12.0, "the counting")
    NEVER.require(1e300, "the counting")


@pytest.mark.parametrize("seconds", [1e10, 1e21, 1e308, math.inf])
def test_a_limit_of_ages_is_none(seconds):
    assert Deadline.after(seconds).limit is None
    assert Monitor(topcuoglu(), Budget(seconds)).time_limit() is None


def test_without_a_limit_there_is_no_end():
    assert not NEVER.over
    assert NEVER.left == math.inf
    assert NEVER.limit is None
    assert NEVER.part(0.5) is NEVER
    assert Deadline.after(None).left == math.inf


def test_a_part_of_a_solve_ends_with_it():
    clock = SteppingClock()
    outer = Monitor(topcuoglu(), Budget(5.0), clock=clock)
    part = Monitor(topcuoglu(), Budget(60.0), parent=outer)
    shorter = Monitor(topcuoglu(), Budget(1.0), parent=outer)
    assert (part.time_left, shorter.time_left) == (5.0, 1.0)
    clock.now += 5.0
    assert part.stopped == outer.stopped == "time limit"
