"""Decoding: the decision for values of a formulation's columns."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.models.decoding import decode
from hetsched.testing import decisions, problems


def chosen(problem: hs.Problem, decision: hs.Decision) -> np.ndarray:
    """Return whether a device runs a task on an input, [n, K, L]."""
    x = np.zeros((problem.n_tasks, problem.n_devices, problem.inputs), bool)
    batch = np.repeat(np.arange(decision.n_batches), decision.sizes)
    x[decision.task[batch], decision.device[batch], decision.items] = True
    return x


@pytest.mark.slow
@given(problem=problems(batching="once", inputs=st.integers(1, 3)), seed=st.integers(0, 2**32 - 1), data=st.data())
def test_any_times_are_decoded_to_an_order_without_a_cycle(problem: hs.Problem, seed: int, data: st.DataObject) -> None:
    """Times of a solver respect precedence and the order on a device within its tolerance only."""
    x = chosen(problem, data.draw(decisions(problem)))
    rng, n, edges, k = np.random.default_rng(seed), problem.n_tasks, problem.graph.n_edges, problem.n_devices
    shapes = [((n,), (edges,))] if problem.inputs == 1 else []
    for of_tasks, of_transfers in [*shapes, ((n, k), (edges, k, k))]:
        times, transfers = (tuple(rng.integers(0, 4, (2, *shape)).astype(float)) for shape in (of_tasks, of_transfers))
        decision = decode(problem, x, times, transfers if problem.links.contended else None)
        assert np.isfinite(hs.simulate(problem, decision).makespan)
        np.testing.assert_array_equal(chosen(problem, decision), x)


def test_transfers_are_in_the_order_of_their_times_not_of_their_batches() -> None:
    graph = hs.TaskGraph("abcd", [("a", "c", 1.0), ("b", "d", 1.0)], devices=[["u"], ["u"], ["v"], ["v"]])
    problem = hs.Problem(graph, hs.Cluster(["u", "v"], bandwidth=1.0), durations=np.ones((4, 2)), communication="channel")
    times = np.array([0.0, 1.0, 9.0, 8.0]), np.array([1.0, 2.0, 9.5, 9.0])
    for late in (3.0, 5.0):
        decision = decode(
            problem,
            np.array([[[1], [0]], [[1], [0]], [[0], [1]], [[0], [1]]]) > 0,
            times,
            (np.array([late, 4.0]), np.array([late, 4.0]) + 1),
        )
        assert decision.transfer_order is not None
        assert decision.transfer_order[:, 0].tolist() == ([0, 1] if late == 3 else [1, 0])
