"""Placements by dynamic programs are those of the enumeration."""

from __future__ import annotations

import math
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.chain.evaluation import evaluate, stage_bytes
from hetsched.chain.placement import ChainStage, Placement
from hetsched.chain.problem import ChainProblem
from hetsched.planning import dynamic_program, paths
from hetsched.planning.dynamic_program import LeastLatencies, fewest_stages, find_latency, least_latency, least_missing, least_period
from hetsched.planning.incumbent import Incumbent
from hetsched.planning.paths import Windows
from hetsched.planning.sensitivity import with_factor
from hetsched.planning.tables import Tables
from hetsched.testing.chains import best_placements, chain_problems
from hetsched.testing.profiles import examples
from hetsched.verification.placement import verify_placement


@pytest.mark.slow
@examples(400)
@given(chain_problems())
def test_the_least_latency_is_that_of_the_enumeration_for_each_number_of_stages(problem):
    found, best = least_latency(problem), best_placements(problem)
    for count, wanted in enumerate(best.latency_by_stages):
        assert found.latency[count] == wanted.value
        placement = found.placements[count]
        assert (placement is None) == (wanted.placement is None)
        if placement is not None:
            assert len(placement) == count + 1
            assert verify_placement(problem, placement, latency=wanted.value) == []
    assert np.isinf(found.latency[len(best.latency_by_stages) :]).all()  # fewer items than devices
    assert (found.best is None) == (best.latency.placement is None)


@pytest.mark.slow
@examples(400)
@given(chain_problems())
def test_the_least_period_is_that_of_the_enumeration(problem):
    found, wanted = least_period(problem), best_placements(problem).period
    assert found.period == wanted.value
    assert (found.placement is None) == (wanted.placement is None)
    if found.placement is not None:
        assert verify_placement(problem, found.placement, period=found.period) == []


@examples(15)
@given(chain_problems(n_devices=st.integers(2, 4), n_items=st.integers(2, 5)), st.data())
def test_nodes_are_a_rule_of_all_searches(problem, data):
    problem = problem.replace(nodes=data.draw(st.lists(st.integers(0, 1), min_size=problem.n_devices, max_size=problem.n_devices)))
    found, wanted, period = least_latency(problem), best_placements(problem), least_period(problem)
    assert found.latency.min() == wanted.latency.value
    assert [*found.latency[: len(wanted.latency_by_stages)]] == [best.value for best in wanted.latency_by_stages]
    assert period.period == wanted.period.value
    assert least_missing(problem) == wanted.missing_bytes.value
    by_stages = [count for count, value in enumerate(found.latency, 1) if value < math.inf]
    assert fewest_stages(problem) == min(by_stages, default=None)
    incumbent = Incumbent()
    find_latency([problem], incumbent)
    assert incumbent.value == wanted.latency.value
    for placement in (found.best, period.placement):
        assert placement is None or verify_placement(problem, placement) == []


def test_the_verifier_finds_stages_that_do_not_keep_to_nodes():
    problem = ChainProblem("abc", "xyz", np.ones((3, 3)), nodes=[0, 1, 0])
    assert [row.rule for row in verify_placement(problem, Placement([(0, 0, 1), (1, 1, 2), (2, 2, 3)]))] == ["nodes", "nodes"]
    assert verify_placement(problem, Placement([(2, 0, 1), (0, 1, 3)])) == []
    with pytest.raises(hs.InvalidProblem, match=r"nodes is \[0, -1, 0\]; the numbers of nodes are at least 0"):
        problem.replace(nodes=[0, -1, 0])


@pytest.mark.slow
@examples(200)
@given(chain_problems(tight=True))
def test_the_least_missing_bytes_are_those_of_the_enumeration(problem):
    least = least_missing(problem)
    assert least == best_placements(problem).missing_bytes.value
    assert (least == 0) == (least_latency(problem).best is not None)


@pytest.mark.slow
@examples(100)
@given(chain_problems(n_items=st.integers(2, 6)), st.integers(1, 3))
def test_a_problem_for_each_number_of_stages_is_solved_for_each(problem, slower):
    """With more stages the items take longer here, as smaller batches do."""

    def of(count):
        return problem.replace(seconds=problem.seconds * (1 + slower * (count - 1)))

    wanted = [
        evaluate(of(count), placement).period
        for count in range(1, problem.n_devices + 1)
        if (placement := _least_with(of(count), count)) is not None
    ]
    assert least_period([of(count) for count in range(1, problem.n_devices + 1)]).period == min(wanted, default=math.inf)


def _least_with(problem, count):
    """Return the placement of least period of exactly `count` stages, by enumeration of the caps."""
    found = None
    loads = {0.0, *problem.hops.ravel(), *problem.closing.ravel()}
    for k in range(problem.n_devices):
        for first in range(problem.n_items):
            for end in range(first + 1, problem.n_items + 1):
                loads.add(float(problem.stage_seconds[k] + problem.seconds[first:end, k].sum()))
    for cap in sorted(load for load in loads if math.isfinite(load)):
        placement = least_latency(problem, cap=cap).placements[count - 1]
        if placement is not None and (found is None or evaluate(problem, placement).period < evaluate(problem, found).period):
            found = placement
    return found


@pytest.mark.slow
@examples(100)
@given(chain_problems(tight=True, n_items=st.integers(1, 6)), st.data())
def test_more_memory_or_faster_links_never_make_it_worse(problem, data):
    k = data.draw(st.integers(0, problem.n_devices - 1))
    more = problem.memory_bytes.copy()
    more[k] += data.draw(st.integers(0, 20))
    faster = {name: getattr(problem, name) / 2 for name in ("hops", "overlapped_hops", "closing")}
    for better in (problem.replace(memory_bytes=more), problem.replace(**faster)):
        assert least_latency(better).latency.min() <= least_latency(problem).latency.min()
        assert least_period(better).period <= least_period(problem).period


@examples(100)
@given(chain_problems(), st.data())
def test_the_order_of_the_devices_does_not_matter(problem, data):
    order = data.draw(st.permutations(range(problem.n_devices)))
    other = problem.replace(
        devices=[problem.devices[k] for k in order],
        seconds=problem.seconds[:, order],
        memory_bytes=problem.memory_bytes[order],
        stage_seconds=problem.stage_seconds[order],
        hops=problem.hops[np.ix_(order, order)],
        overlapped_seconds=problem.overlapped_seconds[:, order],
        overlapped_hops=problem.overlapped_hops[np.ix_(order, order)],
        closing=problem.closing[np.ix_(order, order)],
    )
    assert least_latency(other).latency.tolist() == least_latency(problem).latency.tolist()
    assert least_period(other).period == least_period(problem).period


@examples(50)
@given(chain_problems(overlap=True, hops=True), st.data())
def test_the_more_of_a_time_overlaps_the_better(problem, data):
    share = data.draw(st.sampled_from([0.0, 0.5]))
    less = problem.replace(overlapped_seconds=problem.overlapped_seconds * share, overlapped_hops=problem.overlapped_hops * share)
    more = problem.replace(overlapped_seconds=problem.seconds)
    for better, worse in ((problem, less), (more, problem)):
        assert (least_latency(better).latency <= least_latency(worse).latency).all()
        assert least_period(better).period <= least_period(worse).period


@examples(100)
@given(chain_problems(overlap=True), st.data())
def test_sums_of_rounded_times_are_right_too(problem, data):
    for k in range(problem.n_devices):
        problem = with_factor(problem, k, data.draw(st.sampled_from([1e-6, 0.1, 1 / 3, 1.0, 1e6])))
    found, best = least_latency(problem).latency, best_placements(problem).latency_by_stages
    np.testing.assert_allclose(found[: len(best)], [row.value for row in best], rtol=1e-9)


@examples(100)
@given(chain_problems(overlap=True))
def test_the_least_of_all_numbers_of_stages_may_be_asked_for_alone(problem):
    found, each = least_latency(problem, each=False), least_latency(problem)
    assert found.latency.min() == each.latency.min()
    assert (found.latency >= each.latency).all()
    for placement, latency in zip(found.placements, found.latency, strict=True):
        assert placement is None or verify_placement(problem, placement, latency=latency) == []


@examples(100)
@given(chain_problems(n_items=st.integers(1, 5)), st.data())
def test_impossible_items_are_not_placed(problem, data):
    flags = data.draw(st.lists(st.booleans(), min_size=problem.seconds.size, max_size=problem.seconds.size))
    problem = problem.replace(seconds=np.where(np.reshape(flags, problem.seconds.shape), np.inf, problem.seconds))
    best = best_placements(problem)
    assert least_latency(problem).latency.min() == best.latency.value
    assert least_period(problem).period == best.period.value
    assert least_missing(problem) == best.missing_bytes.value


def test_chunks_of_a_prompt_in_two_stages_by_hand():
    """Eight chunks of 1 s an item on x, of 2 s on y: three items on x and one on y take 3 + 2 + 7 * 3 s, all on x 4 + 7 * 4 s."""
    chunk = np.array([[1.0, 2.0]] * 4)
    problem = ChainProblem(["a", "b", "c", "d"], ["x", "y"], 8 * chunk, overlapped_seconds=7 * chunk)
    found = least_latency(problem)
    assert found.latency.tolist() == [32.0, 26.0]
    assert found.best in (Placement.of(problem, ["x", "y"], [3, 1]), Placement.of(problem, ["y", "x"], [1, 3]))
    slow = problem.replace(hops=np.full((2, 2), 8 * 4.0), overlapped_hops=np.full((2, 2), 7 * 4.0))
    assert least_latency(slow).latency.tolist() == [32.0, 3 + 2 + 4 + 7 * 4]


def test_both_neighbours_of_the_crossing_are_compared():
    """The smallest load B with S(B) <= K B is 5, but a period of 4.5 = 9 / 2 has loads of 4 at most."""
    problem = ChainProblem(["a", "b"], ["x", "y"], [[4.0, 9.0], [9.0, 4.0]], hops=[[0.0, 1.0], [1.0, 0.0]])
    assert least_period(problem).period == 4.5
    assert least_period(problem).placement == Placement.of(problem, ["x", "y"], [1, 1])


@pytest.mark.slow
@examples(400)
@given(st.integers(0, 2**32), st.integers(1, 3), st.sampled_from([0.0, 1.0, 2.0]))
def test_the_least_period_with_few_requests_in_progress_is_that_of_the_enumeration(seed, in_progress, hop):
    rng = np.random.default_rng(seed)
    n, m = rng.integers(2, 6), rng.integers(2, 4)
    weights, seconds = rng.integers(0, 5, n), np.outer(rng.integers(1, 9, n), rng.integers(1, 4, m))
    memory = rng.integers(1, weights.sum() + 3, m)
    problem = ChainProblem(
        map(str, range(n)),
        map(str, range(m)),
        seconds,
        weight_bytes=weights,
        memory_bytes=memory,
        hops=np.full((m, m), hop),
        most_in_progress=in_progress,
    )
    assert least_period(problem).period == best_placements(problem).period.value


def test_the_load_before_the_crossing_may_be_below_all_periods():
    """No period is below 8.5, half the least latency of 17, and the next load is 10; that of 8.5 has loads of 7 at most."""
    problem = ChainProblem(
        "abc",
        "xyz",
        [[4.0, 2.0, 4.0], [6.0, 3.0, 6.0], [14.0, 7.0, 14.0]],
        weight_bytes=[2, 2, 1],
        memory_bytes=[4, 2, 4],
        most_in_progress=2,
    )
    assert best_placements(problem).period.value == 8.5
    assert least_period(problem).period == 8.5


@pytest.mark.slow
@examples(150)
@given(chain_problems(overlap=True), st.floats(1, 1.5), st.sampled_from([1, 2, paths.PART]))
def test_what_is_known_prunes_but_loses_nothing(problem, factor, part):
    best = best_placements(problem)
    for find, wanted in ((dynamic_program.find_latency, best.latency.value), (dynamic_program.find_period, best.period.value)):
        told = []
        incumbent = Incumbent(wanted * factor * (1 + 1e-9), on_progress=told.append)
        with mock.patch.object(paths, "PART", part):
            find([problem], incumbent)
        if math.isfinite(wanted):
            assert incumbent.value == wanted
            assert verify_placement(problem, incumbent.placement) == []
        assert all(event.bound <= wanted * (1 + 1e-9) for event in told)
        assert incumbent.bound == pytest.approx(wanted)


@examples(100)
@given(chain_problems(overlap=True), st.sampled_from([math.inf, 8.0, 3.0]), st.sampled_from([math.inf, 2.0]))
def test_stages_within_caps_begin_where_the_first_possible_one_does(problem, cap, overlap):
    tables, n = Tables(problem), problem.n_items
    for g, k in enumerate(tables.first):
        for end in range(1, n + 1):
            possible = [
                start
                for start in range(end)
                if stage_bytes(problem, ChainStage(k, start, end)) <= problem.memory_bytes[k]
                and problem.stage_seconds[k] + problem.seconds[start:end, k].sum() <= min(cap, np.finfo(float).max)
                and problem.overlapped_seconds[start:end, k].sum() <= overlap
            ]
            assert tables.lowest(cap, overlap)[g, end] == min(possible, default=end)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.data())
def test_least_values_of_windows(values, data):
    bounds = st.tuples(st.integers(0, len(values)), st.integers(0, len(values))).map(sorted)
    windows = np.array(data.draw(st.lists(bounds, min_size=1, max_size=6)))
    found = Windows(*windows.T).minima(np.array([values, values[::-1]], float))
    for row, own in zip(found, (values, values[::-1]), strict=True):
        assert row.tolist() == [min(own[low:high], default=math.inf) for low, high in windows.tolist()]


def test_devices_of_two_nodes_are_two_classes_of_times_between_stages():
    near, far = np.full((2, 2), 1.0), np.full((2, 2), 5.0)
    hops = np.block([[near, far], [far, near]])
    seconds = np.array([[1.0, 2.0, 3.0, 4.0]] * 4)
    problem = ChainProblem("abcd", "wxyz", seconds, hops=hops, memory_bytes=[1.0] * 4, weight_bytes=[1.0] * 4)
    tables = Tables(problem)
    links = dynamic_program.Links.of(tables.between(problem.hops), tables.between(problem.closing), tables.pairs)
    assert links.classes.tolist() == [0, 0, 1, 1]
    assert least_latency(problem).latency[3] == 10 + 1 + 5 + 1


def test_of_equal_placements_that_with_the_fewest_stages_is_found():
    alone = ChainProblem(["a", "b"], ["x", "y"], [[1.0, 1.0], [9.0, 9.0]], most_in_progress=1)
    assert least_period([alone, alone.scaled(2)]).placement in (Placement([(0, 0, 2)]), Placement([(1, 0, 2)]))
    halves = ChainProblem(["a", "b", "c"], ["x", "y", "z"], [[4.0] * 3, [0.0] * 3, [4.0] * 3])
    assert len(least_period([halves, halves, halves]).placement) == 2


def test_prefixes_over_hops_that_are_impossible_are_no_placement():
    apart = np.full((2, 2), np.inf)
    problem = ChainProblem(["a", "b"], ["x", "y"], np.ones((2, 2)), hops=apart, weight_bytes=[1.0, 1.0], memory_bytes=[1.0, 1.0])
    for find in (dynamic_program.find_latency, dynamic_program.find_period):
        incumbent = Incumbent()
        find([problem], incumbent)
        assert (incumbent.placement, incumbent.bound) == (None, math.inf)


def test_too_many_different_devices_are_refused():
    rng = np.random.default_rng(0)
    problem = ChainProblem([f"i{i}" for i in range(80)], [f"d{k}" for k in range(22)], rng.random((80, 22)))
    with pytest.raises(hs.UnsupportedFeature, match=r"22 devices of which 22 differ and 80 items take a table of 339,738,624 numbers"):
        least_latency(problem)


def test_groups_of_equal_devices_are_solved_whatever_their_number():
    problem = ChainProblem(
        [f"i{i}" for i in range(80)], [f"d{k}" for k in range(24)], np.ones((80, 24)), weight_bytes=np.ones(80), memory_bytes=[4.0] * 24
    )
    found = least_latency(problem, cap=4.0)
    assert isinstance(found, LeastLatencies)
    assert found.latency[19:].tolist() == [80.0] * 5
    assert np.isinf(found.latency[:19]).all()
    assert Tables(problem).n_states == 25


@examples(150)
@given(chain_problems(n_devices=st.integers(1, 4), tight=True, unable=st.booleans()))
def test_the_fewest_stages_are_those_of_the_placements_that_fit(problem):
    latency = least_latency(problem).latency
    counts = np.flatnonzero(np.isfinite(latency)) + 1
    assert fewest_stages(problem) == (counts.min() if len(counts) else None)
