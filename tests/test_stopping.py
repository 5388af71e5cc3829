"""The clock of a solve."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hetsched.search import Budget, Monitor
from hetsched.stopping import NEVER, Deadline
from tests.golden import topcuoglu


@dataclass
class Hand:
    """A clock that goes by hand."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_deadline_is_over_when_its_clock_says_so():
    clock = Hand()
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


def test_without_a_limit_there_is_no_end():
    assert not NEVER.over
    assert NEVER.left == math.inf
    assert NEVER.limit is None
    assert NEVER.part(0.5) is NEVER
    assert Deadline.after(None).left == math.inf


def test_a_part_of_a_solve_ends_with_it():
    clock = Hand()
    whole = Monitor(topcuoglu(), Budget(5.0), clock=clock)
    part = Monitor(topcuoglu(), Budget(60.0), parent=whole)
    shorter = Monitor(topcuoglu(), Budget(1.0), parent=whole)
    assert (part.time_left, shorter.time_left) == (5.0, 1.0)
    clock.now += 5.0
    assert part.stopped == whole.stopped == "time limit"
