"""Chains and placements that are drawn, and the enumeration of placements against a recursion."""

from __future__ import annotations

import collections
import functools
import math

import numpy as np
import pytest
from hypothesis import find, given
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

import hetsched as hs
from hetsched.chain.placement import Placement
from hetsched.chain.problem import ChainProblem
from hetsched.testing import best_placements, chain_problems, placements
from hetsched.testing.profiles import examples, searching
from hetsched.verification.placement import PLACEMENT_RULES, verify_placement

SEARCH = searching(3000)


# ---------------------------------------------------------------------- strategies


def needed(problem):
    """Return the bytes of a stage of all items."""
    total = problem.weight_bytes.sum() + problem.cache_bytes.sum() + problem.workspace_bytes.max()
    return float(total - problem.shared_bytes)


def unlimited(problem):
    """Return the problem without bytes."""
    return problem.replace(weight_bytes=None, cache_bytes=None, workspace_bytes=None, shared_bytes=0, memory_bytes=None)


FEATURES = [
    lambda p: p.n_items == 1,
    lambda p: p.n_items == 7,
    lambda p: p.n_devices == 1,
    lambda p: p.n_devices == 4,
    lambda p: p.n_devices == 4 and len(set(p.groups.tolist())) == 4,
    lambda p: p.n_devices == 4 and len(set(p.groups.tolist())) == 2,
    lambda p: p.n_devices == 3 and p.groups.tolist() == [0, 1, 0],
    lambda p: (p.seconds % 1 == 0.5).any(),
    lambda p: p.n_devices > 1 and (p.seconds[:, 0] != p.seconds[:, 1]).any(),
    lambda p: p.stage_seconds.any(),
    lambda p: (p.hops != p.hops.T).any(),
    lambda p: np.isinf(p.hops).any(),
    lambda p: p.n_devices == 4 and len(set(p.groups.tolist())) < 4 and (p.hops > 0).any(),
    lambda p: p.closing.any() and not p.hops.any(),
    lambda p: p.closing.any() and p.hops.any(),
    lambda p: p.overlapped_seconds.any() and not p.overlapped_hops.any(),
    lambda p: p.overlapped_hops.any() and np.isinf(p.hops).any(),
    lambda p: p.n_devices == 4 and len(set(p.groups.tolist())) < 4 and p.overlapped_seconds.any() and p.overlapped_hops.any(),
    lambda p: p.shared_bytes > 0,
    lambda p: p.workspace_bytes.any(),
    lambda p: np.isinf(p.memory_bytes).all(),
    lambda p: (p.memory_bytes < needed(p)).all(),
    lambda p: p.n_devices > 1 and p.memory_bytes.min() < needed(p) <= p.memory_bytes.max(),
    lambda p: p.most_in_progress is not None and p.most_in_progress < p.n_devices,
    lambda p: p.shared_bytes > 0 and (p.memory_bytes == needed(p)).any(),
]


def test_every_feature_turns_up():
    missing = dict(enumerate(FEATURES))

    def complete(problem):
        for x in [x for x, feature in missing.items() if feature(problem)]:
            del missing[x]
        return not missing

    find(chain_problems(), complete, settings=SEARCH)


ANSWERS = {
    "no placement": lambda p, best: best.latency.placement is None,
    "one of several stages only": lambda p, best: best.latency.placement and best.latency_by_stages[0].placement is None,
    "several stages are faster": lambda p, best: len(best.latency.placement or ()) > 1 and best.latency_by_stages[0].placement,
    "three stages for the period": lambda p, best: len(best.period.placement or ()) == 3,
    "another placement for the period": lambda p, best: best.period.placement != best.latency.placement,
    "the limit on requests decides the period": lambda p, best: (
        best.period.placement
        and best.period.value * (p.most_in_progress or math.inf) == best.latency.value
        and best.period.placement != best_placements(p.replace(most_in_progress=None)).period.placement
    ),
    "overlap decides": lambda p, best: (
        best.latency.placement
        and best.latency.placement != best_placements(p.replace(overlapped_seconds=None, overlapped_hops=None)).latency.placement
    ),
    "no placement of as many stages as there may be": lambda p, best: best.latency.placement and not best.latency_by_stages[-1].placement,
    "bytes are missing though they are less in all": lambda p, best: best.missing_bytes.value and p.memory_bytes.sum() >= needed(p),
    "the mean decides the period": lambda p, best: (
        best.period.placement and len(best.period.placement) > 1 and best.period.value * len(best.period.placement) == best.latency.value
    ),
}


@pytest.mark.slow
def test_every_kind_of_answer_turns_up():
    missing = dict(ANSWERS)

    def complete(problem):
        best = best_placements(problem)
        for name in [name for name, present in missing.items() if present(problem, best)]:
            del missing[name]
        return not missing

    find(chain_problems(), complete, settings=SEARCH)


@pytest.mark.slow
def test_memory_binds_often_and_sometimes_admits_no_placement():
    counts = collections.Counter()

    @examples(240)
    @given(chain_problems())
    def count(problem):
        best = best_placements(problem)
        counts["all"] += 1
        counts["none"] += best.latency.placement is None
        counts["binds"] += math.inf > best.latency.value > best_placements(unlimited(problem)).latency.value

    count()
    assert counts["binds"] >= 0.05 * counts["all"], counts
    assert 0.02 * counts["all"] <= counts["none"] <= 0.6 * counts["all"], counts


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "feature"),
    [
        ({"n_items": 3, "n_devices": 2}, lambda p: (p.n_items, p.n_devices) != (3, 2)),
        ({"n_devices": 3, "alike": True}, lambda p: len(set(p.groups.tolist())) == 3),
        ({"tight": False}, lambda p: np.isfinite(p.memory_bytes).any()),
        ({"tight": True}, lambda p: np.isinf(p.memory_bytes).any()),
        ({"stage_seconds": False}, lambda p: p.stage_seconds.any()),
        ({"hops": False}, lambda p: p.hops.any()),
        ({"impossible": False}, lambda p: np.isinf(p.hops).any()),
        ({"overlap": False}, lambda p: p.overlapped_seconds.any() or p.overlapped_hops.any()),
        ({"closing": False}, lambda p: p.closing.any()),
        ({"workspace": False}, lambda p: p.workspace_bytes.any()),
        ({"shared": False}, lambda p: p.shared_bytes),
    ],
)
def test_features_can_be_fixed(arguments, feature):
    with pytest.raises(NoSuchExample):
        find(chain_problems(**arguments), lambda problem: bool(feature(problem)), settings=searching(25))


@given(chain_problems())
def test_sums_are_exact(problem):
    for column in (problem.seconds, problem.stage_seconds, problem.hops, problem.closing):
        twice = 2 * column[np.isfinite(column)]
        assert (twice == np.rint(twice)).all()
    for column in (problem.overlapped_seconds, problem.overlapped_hops):
        assert (4 * column == np.rint(4 * column)).all()
    for column in (
        problem.weight_bytes,
        problem.cache_bytes,
        problem.workspace_bytes,
        problem.memory_bytes[np.isfinite(problem.memory_bytes)],
    ):
        assert (column == np.rint(column)).all()


def test_placements_break_each_rule_that_they_can_and_none():
    problem = ChainProblem(
        ["a", "b", "c"], ["x", "y"], [[1, 1]] * 3, weight_bytes=[1, 1, 1], memory_bytes=[2, 2], hops=[[0, math.inf], [1, 0]], nodes=[0, 1]
    )
    missing = {*PLACEMENT_RULES, "none"} - {"latency", "period", "item-time", "offload", "kept"}

    def complete(placement):
        missing.difference_update({violation.rule for violation in verify_placement(problem, placement)} or {"none"})
        return not missing

    find(placements(problem), complete, settings=SEARCH)


@given(st.data())
def test_placements_that_cover_the_chain_break_no_rule_but_those_of_memory_and_hops(data):
    problem = data.draw(chain_problems())
    placement = data.draw(placements(problem, covering=True))
    assert {violation.rule for violation in verify_placement(problem, placement)} <= {"memory", "hop"}


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
def test_placements_that_cover_the_chain_have_any_number_of_stages(stages):
    problem = ChainProblem([f"i{i}" for i in range(4)], [f"d{k}" for k in range(4)], np.ones((4, 4)))
    find(placements(problem, covering=True), lambda placement: len(placement) == stages, settings=searching(200))


# ---------------------------------------------------------------------- enumeration


def recursion(problem):
    """Return the least latency for each number of stages, the least period, and the least sum of missing bytes.

    The chain is divided from its end; a state is (items left, devices left, device of the next stage, device of the last one).
    Of the latency, `rest` is what does not overlap, and `most` the largest overlapped time.
    """
    n, devices = problem.n_items, frozenset(range(problem.n_devices))
    time = np.vstack([np.zeros(problem.n_devices), np.cumsum(problem.seconds, axis=0)])
    part = np.vstack([np.zeros(problem.n_devices), np.cumsum(problem.overlapped_seconds, axis=0)])
    held = np.concatenate([[0.0], np.cumsum(problem.weight_bytes + problem.cache_bytes)])

    def lacking(first, end, k):
        shared = problem.shared_bytes if (first, end) == (0, n) else 0
        return max(0.0, held[end] - held[first] + problem.workspace_bytes[first:end].max() - shared - problem.memory_bytes[k])

    @functools.cache
    def parts(left, free, following, last):
        """Return the (largest load, rest, most, stages, missing bytes) of all divisions of the first `left` items, hops included."""
        if not left:
            closing = problem.closing[last, following] if following != last else 0.0
            return {(closing, closing, 0.0, 0, 0.0)}
        result = set()
        for k in free:
            hop, hop_part = (0.0, 0.0) if following is None else (problem.hops[k, following], problem.overlapped_hops[k, following])
            for first in range(left):
                own = problem.stage_seconds[k] + time[left, k] - time[first, k]
                own_part = part[left, k] - part[first, k]
                lack = lacking(first, left, k)
                for load, rest, most, stages, missing in parts(first, free - {k}, k, k if last is None else last):
                    total = rest + own - own_part + hop - hop_part
                    if total < math.inf:
                        result.add((max(load, own, hop), total, max(most, own_part, hop_part), stages + 1, missing + lack))
        return result

    rows = [(load, rest + most, stages, missing) for load, rest, most, stages, missing in parts(n, devices, None, None)]
    fitting = [row for row in rows if row[3] == 0]
    by_stages = [min((row[1] for row in fitting if row[2] == count), default=math.inf) for count in range(1, min(n, len(devices)) + 1)]
    most = problem.most_in_progress or problem.n_devices
    period = min((max(row[0], row[1] / min(row[2], most)) for row in fitting), default=math.inf)
    return by_stages, period, min((row[3] for row in rows), default=math.inf)


@examples(150)
@given(chain_problems())
def test_the_enumeration_is_what_a_recursion_returns(problem):
    best = best_placements(problem)
    by_stages, period, missing = recursion(problem)
    assert [row.value for row in best.latency_by_stages] == by_stages
    assert best.latency.value == min(by_stages)
    assert best.period.value == period
    assert best.missing_bytes.value == missing
    assert (best.missing_bytes.value == 0) == (best.latency.placement is not None)


@given(st.data())
def test_no_placement_drawn_is_better(data):
    problem = data.draw(chain_problems())
    placement = data.draw(placements(problem))
    best = best_placements(problem)
    if verify_placement(problem, placement) == []:
        assert best.missing_bytes.value == 0
        (told,) = verify_placement(problem, placement, latency=-1.0)
        assert best.latency.value <= best.latency_by_stages[len(placement) - 1].value <= told.times[1]
        (told,) = verify_placement(problem, placement, period=-1.0)
        assert best.period.value <= told.times[1]


@pytest.mark.slow
@given(st.data())
def test_the_numbering_of_devices_does_not_matter(data):
    problem = data.draw(chain_problems())
    order = data.draw(st.permutations(range(problem.n_devices)))
    other = ChainProblem(
        problem.items,
        [problem.devices[k] for k in order],
        problem.seconds[:, order],
        weight_bytes=problem.weight_bytes,
        cache_bytes=problem.cache_bytes,
        workspace_bytes=problem.workspace_bytes,
        memory_bytes=problem.memory_bytes[order],
        stage_seconds=problem.stage_seconds[order],
        hops=problem.hops[np.ix_(order, order)],
        overlapped_seconds=problem.overlapped_seconds[:, order],
        overlapped_hops=problem.overlapped_hops[np.ix_(order, order)],
        closing=problem.closing[np.ix_(order, order)],
        shared_bytes=problem.shared_bytes,
        most_in_progress=problem.most_in_progress,
    )
    one, two = best_placements(problem), best_placements(other)
    assert [row.value for row in one.latency_by_stages] == [row.value for row in two.latency_by_stages]
    assert (one.latency.value, one.period.value, one.missing_bytes.value) == (two.latency.value, two.period.value, two.missing_bytes.value)


def test_a_chain_by_hand():
    problem = ChainProblem(
        ["a", "b", "c"],
        ["fast", "slow"],
        [[1, 4], [2, 8], [1, 4]],
        weight_bytes=[3, 3, 3],
        memory_bytes=[6, 20],
        hops=[[0, 0.5], [1, 0]],
        closing=[[0, 2], [0.25, 0]],
        shared_bytes=1,
    )
    best = best_placements(problem)
    assert best.latency == (1 + 2 + 0.5 + 4 + 0.25, Placement([(0, 0, 2), (1, 2, 3)]))
    assert best.latency_by_stages == ((16.0, Placement([(1, 0, 3)])), best.latency)
    assert best.period == (4.0, Placement([(0, 0, 2), (1, 2, 3)]))
    assert best.missing_bytes == (0.0, Placement([(1, 0, 3)]))
    small = ChainProblem(["a", "b"], ["x", "y"], [[1, 1]] * 2, weight_bytes=[5, 7], memory_bytes=[4, 6])
    assert best_placements(small) == (
        (math.inf, None),
        ((math.inf, None), (math.inf, None)),
        (math.inf, None),
        (2.0, Placement([(0, 0, 1), (1, 1, 2)])),
    )
    apart = ChainProblem(
        ["a", "b"], ["x", "y"], [[1, 1]] * 2, weight_bytes=[5, 7], memory_bytes=[5, 7], hops=[[0, math.inf], [math.inf, 0]]
    )
    assert best_placements(apart).missing_bytes == (5.0, Placement([(1, 0, 2)])), "the hop is impossible, though all would fit"


def test_the_number_of_placements_is_limited():
    problem = ChainProblem(["a", "b", "c"], ["x", "y"], np.ones((3, 2)))
    assert best_placements(problem, limit=2 + 2 * 2).latency.value == 3
    message = "the chain has 6 placements, more than limit=5; take fewer items or devices, or raise the limit"
    with pytest.raises(hs.UnsupportedFeature, match=message):
        best_placements(problem, limit=5)
    wide = ChainProblem([f"i{i}" for i in range(80)], [f"d{k}" for k in range(16)], np.ones((80, 16)))
    with pytest.raises(hs.UnsupportedFeature, match="more than limit=100000"):
        best_placements(wide)
