"""The bound by set partitioning: never above the optimum, at least the load of the work, and exact where transfers decide."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.analysis.frontiers import Subsets, frontier
from hetsched.analysis.load_data import LoadData, load_data, unit_order
from hetsched.bounds import set_partition
from hetsched.bounds.set_partition import set_partitioning, streams
from hetsched.bounds.steady_state import priced_load
from hetsched.stopping import Deadline
from hetsched.testing.clocks import SteppingClock
from hetsched.testing.profiles import examples
from tests.enumerated import objectives, optimum


@examples(15)
@given(drawn=objectives(tight=True), states=st.sampled_from([1, 8, 16_000]), ticks=st.sampled_from([20, 200]))
def test_it_is_at_most_the_optimum(drawn: tuple[hs.Problem, str], states: int, ticks: int) -> None:
    """With any number of states, too few of which leave transfers out, and of ticks."""
    problem, _ = drawn
    assume(streams(problem))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(set_partition, "STATES", states)
        patch.setattr(set_partition, "TICKS", ticks)
        value = set_partitioning(problem).value
    assert value <= optimum(problem, "max-load") * (1 + 1e-12)


def load(data: LoadData, chosen: np.ndarray, device: int) -> float:
    """Return the load of a set of units on a device, tensor by tensor."""
    total = float(data.cost[chosen, device].sum())
    for t, source in enumerate(data.source.tolist()):
        readers = chosen[data.reader[data.reader_ptr[t] : data.reader_ptr[t + 1]]]
        if chosen[source] and not readers.all():
            total += data.time[t, 1, device]
        if not chosen[source] and readers.any():
            total += data.time[t, 0, device]
    return total


@examples(10)
@given(drawn=objectives(), prices=st.lists(st.integers(0, 5), min_size=6, max_size=6))
def test_its_dynamic_program_finds_the_best_set_within_every_load(drawn: tuple[hs.Problem, str], prices: list[int]) -> None:
    """Where no transfer is left out; every set is within one tick for each unit of its load."""
    problem, _ = drawn
    assume(streams(problem))
    data, order = load_data(problem, "max-load"), unit_order(problem)[1]
    count, tick, loads = len(order), 0.01, 400
    worth = np.array(prices * (1 + count // 6))[:count]
    subsets = Subsets(frontier(data, order, 0, 1 << 20), tick, loads)
    best = subsets.best(worth)
    every = ((np.arange(1 << count)[:, None] >> np.arange(count)) & 1).astype(bool)
    seconds = np.array([load(data, row[np.argsort(order)], 0) for row in every])
    for limit in (0, 100, loads - 1):
        inside = seconds <= limit * tick
        assert best[limit] >= (every[inside] @ worth).max()
        chosen = subsets.set_within(limit)
        assert chosen @ worth == best[limit]
        assert load(data, chosen[np.argsort(order)], 0) <= (limit + count) * tick * (1 + 1e-9)


def chain(transfer: float) -> hs.Problem:
    """Return four tasks of 1 s in a chain, two accelerators, and a host on which nothing can run; a transfer takes some seconds."""
    names = ["a", "b", "c", "d"]
    graph = hs.TaskGraph(names, [*zip(names, names[1:], [transfer] * 3, strict=False)])
    devices = [hs.Device("g1", kind="gpu"), hs.Device("g2", kind="gpu"), hs.Device("host", kind="cpu")]
    return hs.Problem(graph, hs.Cluster(devices, bandwidth=1.0), durations=[[1.0, 1.0, np.nan]] * 4)


@pytest.mark.parametrize(("transfer", "least"), [(0.0, 2.0), (0.5, 2.5), (1.5, 3.5), (2.0, 4.0), (9.0, 4.0)])
def test_a_chain_is_cut_where_that_pays(transfer, least):
    """One cut in the middle costs each device a transfer; from 2 s on one device alone is as good."""
    problem = chain(transfer)
    assert priced_load(problem).value == pytest.approx(2.0)
    assert set_partitioning(problem).value == pytest.approx(least, rel=3e-3)
    assert optimum(problem, "max-load") == least


@pytest.mark.parametrize("objective", ["max-load", "period"])
def test_bounds_of_loads_of_one_input_are_multiples_of_the_common_divisor(objective):
    """Five tasks of 2 s on two accelerators: 5 s each by fractions, but every load is a multiple of 2 s."""
    cluster = chain(0.0).cluster
    problem = hs.Problem(hs.TaskGraph(list("abcde")), cluster, durations=[[2.0, 2.0, np.nan]] * 5)
    assert hs.bound(problem, objective=objective).value == optimum(problem, objective) == 6.0
    assert hs.solve(problem, "load-search", objective=objective, evaluations=100).status is hs.Status.OPTIMAL


def test_work_of_no_time_has_prices_too():
    """Both tasks take no time on the accelerator, whose memory neither fits: another bound is above 0, that of the work alone is not."""
    graph = hs.TaskGraph(["a", "b"], weight_bytes=2.0)
    cluster = hs.Cluster([hs.Device("gpu", memory_bytes=1.0), hs.Device("host", kind="cpu")], bandwidth=1.0)
    problem = hs.Problem(graph, cluster, durations=[[0.0, 2.0]] * 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert set_partitioning(problem, best=hs.Bound(4.0, "given", objective="max-load")).value <= optimum(problem, "max-load") == 4.0


def test_it_ends_at_the_deadline():
    clock = SteppingClock(1.0)
    deadline = Deadline.after(20.0, clock)
    assert set_partitioning(chain(0.5), deadline=deadline).value <= 2.5
    assert clock.late(deadline) <= 5


def test_only_streams_of_one_input_past_a_host_have_it():
    assert streams(chain(1.0))
    without = hs.Problem(hs.TaskGraph(["a"]), hs.Cluster([hs.Device("g", kind="gpu")]), durations=[[1.0]])
    assert not streams(without)
    assert hs.bound(without, objective="max-load").name != "set partitioning"
