"""The common divisor of times, and bounds rounded up to its multiples."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.analysis.time_divisor import MOST, common_divisor, rounded_up, time_divisor
from hetsched.testing import brute_force, problems
from hetsched.testing.profiles import examples

COUNTS = st.lists(st.integers(0, 10**6), min_size=1, max_size=6)


@examples(60)
@given(counts=COUNTS, power=st.integers(-30, 30), odd=st.integers(1, 99))
def test_the_divisor_is_the_greatest_in_exact_numbers(counts: list[int], power: int, odd: int) -> None:
    times = np.array([math.ldexp(count * odd, power) for count in counts])
    found = Fraction(common_divisor(times[:1], times[1:], np.array([math.inf, math.nan])))
    assert found == Fraction(math.gcd(*counts) * odd) * Fraction(2) ** power


@examples(60)
@given(count=st.integers(1, 2**30), divisor=st.sampled_from([1.0, 0.125, 3.0, 96.0]), below=st.floats(1e-8, 1 - 1e-8))
def test_only_what_is_above_a_multiple_is_rounded_to_the_next(count: int, divisor: float, below: float) -> None:
    assert rounded_up(count * divisor, divisor) == count * divisor
    assert rounded_up(math.nextafter(count * divisor, math.inf), divisor) == count * divisor, "rounding is no excess"
    if count < 2**20:
        assert rounded_up((count - 1 + below) * divisor, divisor) in ((count - 1) * divisor, count * divisor)
        assert rounded_up((count - 0.5) * divisor, divisor) == count * divisor


@examples(40)
@given(problem=problems(inputs=st.integers(1, 3)))
def test_an_optimum_is_a_multiple_of_the_divisor(problem: hs.Problem) -> None:
    """With contention and peak memory too; all bounds, rounded up, are at most the optimum."""
    best = brute_force(problem)
    divisor = time_divisor(problem)
    if best is None or not divisor:
        return
    assert Fraction(best.makespan) % Fraction(divisor) == 0
    assert all(bound.value <= best.makespan * (1 + 1e-12) for bound in hs.bounds.best.every(problem))


def test_a_load_is_rounded_up_and_says_why() -> None:
    """Three tasks of 2 s on two devices need 3 s each, and 4 s is the next multiple of 2 s."""
    problem = hs.Problem(hs.TaskGraph(["a", "b", "c"]), hs.Cluster(["x", "y"], bandwidth=1), durations=np.full((3, 2), 2.0))
    bound = hs.bound(problem)
    assert bound.value == 4
    assert bound.evidence.endswith("; every time is a multiple of 2 s")


@pytest.mark.parametrize(
    "times", [[0.1, 0.2], [1.0, 1.0 + 2.0**-50], [MOST, 1.0], [math.inf], [0.0]], ids=["decimal", "fine", "large", "none", "zero"]
)
def test_without_exact_sums_there_is_no_divisor(times: list[float]) -> None:
    assert common_divisor(np.array(times)) == 0
    assert rounded_up(1.5, 0.0) == 1.5
    assert rounded_up(math.inf, 1.0) == math.inf


def test_several_inputs_have_that_of_all_batches_and_transfers() -> None:
    """A transfer of one input takes 1.5 s, of two inputs 2 s."""
    cluster = hs.Cluster(["x", "y"], bandwidth=2.0, latency=1.0)
    problem = hs.Problem(
        hs.TaskGraph(["a", "b"], [("a", "b", 1.0)]), cluster, durations=np.full((2, 2, 2), [2.0, 3.0]), batch_sizes=[1, 2], inputs=2
    )
    assert time_divisor(problem) == 0.5
