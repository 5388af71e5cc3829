"""The size of a model: pairs of tasks that precedence leaves free, counted device by device, against their definition."""

from __future__ import annotations

import itertools

from hypothesis import given

import hetsched as hs
from hetsched.analysis import model_size
from hetsched.testing import strategies
from hetsched.testing.profiles import examples
from tests.analysis.test_cuts import reachability


@examples(60)
@given(problem=strategies.problems())
def test_pairs_are_of_tasks_that_a_device_can_run_and_free_if_none_leads_to_the_other(problem: hs.Problem) -> None:
    after = reachability(problem.graph)
    shared = [
        (i, j)
        for i, j in itertools.combinations(range(problem.n_tasks), 2)
        for device in range(problem.n_devices)
        if problem.eligible[i, device] and problem.eligible[j, device]
    ]
    free = [(i, j) for i, j in shared if j not in after[i] and i not in after[j]]
    assert model_size.pairs(problem) == (len(shared), len(free))
    orders = len(free) if problem.inputs == 1 else len(shared) * problem.inputs
    assert model_size.with_orders(problem) == model_size.columns(problem) + orders
