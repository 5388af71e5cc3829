"""What a plan depends on is found by solving changed problems again, and is what an enumeration says."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.chain.evaluation import evaluate
from hetsched.chain.problem import ChainProblem
from hetsched.planning import sensitivity
from hetsched.planning.dynamic_program import least_latency, least_period
from hetsched.planning.sensitivity import Best, break_even, next_memory_step, with_factor, with_memory, without_hops
from hetsched.testing.chains import best_placements, chain_problems
from hetsched.testing.profiles import examples


def latency(problems):
    found = least_latency(problems[0])
    return Best(float(found.latency.min()), found.best)


def period(problems):
    found = least_period(problems)
    return Best(found.period, found.placement)


@pytest.mark.slow
@examples(60)
@given(chain_problems(tight=True, n_items=st.integers(1, 5)), st.data(), st.sampled_from([latency, period]))
def test_the_value_falls_at_the_memory_step_and_not_before(problem, data, solve):
    device = data.draw(st.integers(0, problem.n_devices - 1))
    now = solve((problem,)).value
    step = next_memory_step((problem,), device, solve)
    bare = int(problem.memory_bytes[device]) if math.isfinite(problem.memory_bytes[device]) else 0
    top = int(problem.weight_bytes.sum() + problem.cache_bytes.sum() + problem.workspace_bytes.max()) + 1
    values = {amount: solve(with_memory((problem,), device, amount)).value for amount in range(bare, max(top, bare) + 1)}
    wanted = next((amount for amount, value in values.items() if value < now), None)
    if math.isinf(problem.memory_bytes[device]):
        assert step is None
    else:
        assert (None if step is None else step.memory_bytes) == wanted
        if step is not None:
            assert step.best.value == values[wanted]


@examples(40)
@given(chain_problems(n_items=st.integers(1, 4), n_devices=st.integers(1, 3)), st.data())
def test_a_placement_stays_the_best_within_the_factors_and_not_beyond(problem, data):
    device = data.draw(st.integers(0, problem.n_devices - 1))
    problem = problem.replace(overlapped_seconds=problem.overlapped_seconds * (np.arange(problem.n_devices) != device))
    found = least_latency(problem)
    assume(found.best is not None)
    least, most = break_even((problem,), found.best, device, latency)
    assert 1 / 16 <= least <= 1 <= most <= 16

    def loss(factor):
        changed = with_factor(problem, device, factor)
        return evaluate(changed, found.best).latency - best_placements(changed).latency.value

    for share in (0.0, 0.25, 0.5, 1.0):
        assert loss(least + share * (most - least)) <= 1e-6
    if most < 16:
        assert loss(most * 1.01) > 0
    if least > 1 / 16:
        assert loss(least / 1.01) > 0


def test_the_factor_of_a_chain_by_hand():
    """Two items of 1 s each on either device; b has 1 s more each. From a factor of 1/2 on, b takes as long as a."""
    problem = ChainProblem(["p", "q"], ["a", "b"], [[1.0, 2.0], [1.0, 2.0]])
    found = least_latency(problem).best
    least, most = break_even((problem,), found, 1, latency)
    assert (least, most) == (pytest.approx(0.5), 16.0)
    assert break_even((problem,), found, 0, latency) == (1 / 16, pytest.approx(2.0))


def test_factors_of_a_device_whose_times_overlap_are_refused():
    problem = ChainProblem(["p"], ["a", "b"], [[1.0, 2.0]], overlapped_seconds=[[0.0, 1.0]])
    found = least_latency(problem).best
    assert break_even((problem,), found, 0, latency) == (1 / 16, pytest.approx(2.0))
    with pytest.raises(hs.UnsupportedFeature, match=r"times of device 'b' overlap, so the factors may be several intervals; compare"):
        break_even((problem,), found, 1, latency)
    assert with_factor(problem, 1, 0.5) == problem.replace(seconds=[[1.0, 1.0]], overlapped_seconds=[[0.0, 0.5]])


@examples(40)
@given(chain_problems(hops=True, impossible=True))
def test_without_hops_impossible_ones_stay(problem):
    (free,) = without_hops((problem,))
    assert latency((free,)).value <= latency((problem,)).value
    assert (latency((free,)).placement is None) == (latency((problem,)).placement is None)
    assert sensitivity.without_hops((free,)) == (free,)
