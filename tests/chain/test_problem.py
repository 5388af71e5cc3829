"""Chains, their placements and what these take: values, groups of devices, and the wording of each message."""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.chain.evaluation import evaluate, stage_bytes
from hetsched.chain.placement import ChainStage, Placement
from hetsched.chain.problem import MOST_DEVICES, ChainProblem
from hetsched.testing import chain_problems, placements
from hetsched.testing.profiles import examples

PER_ITEM = ("weight_bytes", "cache_bytes", "workspace_bytes")
PER_DEVICE = ("memory_bytes", "stage_seconds")
PER_PAIR = ("hops", "closing")
OVERLAPPED = ("overlapped_seconds", "overlapped_hops")


def arguments(problem):
    """Return the arguments that make a problem."""
    names = ("items", "devices", "seconds", *PER_ITEM, *PER_DEVICE, *PER_PAIR, *OVERLAPPED, "shared_bytes", "most_in_progress")
    return {name: getattr(problem, name) for name in names}


def renumbered(problem, order):
    """Return the problem whose device k has all amounts of device order[k] of the problem."""
    changes = {name: getattr(problem, name)[:, order] for name in ("seconds", "overlapped_seconds")}
    changes |= {name: getattr(problem, name)[order] for name in PER_DEVICE}
    changes |= {name: getattr(problem, name)[np.ix_(order, order)] for name in (*PER_PAIR, "overlapped_hops")}
    return ChainProblem(**{**arguments(problem), **changes})


# ---------------------------------------------------------------------- groups


def swapped(problem, a, b):
    """Return the order in which two devices have changed places."""
    return [{a: b, b: a}.get(k, k) for k in range(problem.n_devices)]


@given(st.data())
def test_devices_of_a_group_may_change_places_without_change_of_any_value(data):
    problem = data.draw(chain_problems(n_devices=st.integers(2, 4), alike=True))
    group = data.draw(st.sampled_from([g for g in problem.groups.tolist() if problem.groups.tolist().count(g) > 1]))
    members = np.flatnonzero(problem.groups == group).tolist()
    a, b = data.draw(st.permutations(members))[:2]
    image = swapped(problem, a, b)
    placement = data.draw(placements(problem, covering=True))
    other = Placement([(image[stage.device], stage.first, stage.end) for stage in placement.stages])
    assert evaluate(problem, placement) == evaluate(problem, other)


@given(chain_problems())
def test_two_devices_are_of_a_group_if_and_only_if_the_problem_stays_the_same_where_they_change_places(problem):
    for a in range(problem.n_devices):
        for b in range(a):
            assert (problem.groups[a] == problem.groups[b]) == (renumbered(problem, swapped(problem, a, b)) == problem)


@given(chain_problems())
def test_groups_are_numbered_by_first_device(problem):
    groups = problem.groups.tolist()
    assert list(dict.fromkeys(groups)) == list(range(max(groups) + 1))
    assert not problem.groups.flags.writeable


@pytest.mark.parametrize(
    ("changes", "groups"),
    [
        ({}, [0, 0, 0]),
        ({"seconds": [[1, 1, 2], [1, 1, 1]]}, [0, 0, 1]),
        ({"memory_bytes": [5, 4, 5.5]}, [0, 1, 0]),
        ({"stage_seconds": [1, 2, 2]}, [0, 1, 1]),
        ({"hops": [[0, 1, 1], [1, 0, 1], [1, 2, 0]]}, [0, 1, 2]),
        ({"hops": [[0, 3, 1], [3, 0, 1], [2, 2, 0]]}, [0, 0, 1]),
        ({"hops": [[0, 1, 2], [2, 0, 1], [1, 2, 0]]}, [0, 1, 2]),
        ({"closing": [[0, 1, 2], [1, 0, 1], [2, 1, 0]]}, [0, 1, 0]),
        ({"hops": [[7, 1, 1], [1, 8, 1], [1, 1, 9]], "closing": [[1, 0, 0], [0, 0, 0], [0, 0, 0]]}, [0, 0, 0]),
        ({"hops": [[0, math.inf, 1], [math.inf, 0, 1], [1, 1, 0]]}, [0, 0, 1]),
        ({"overlapped_seconds": [[1, 1, 1], [1, 0, 1]]}, [0, 1, 0]),
        ({"hops": np.ones((3, 3)), "overlapped_hops": [[0, 1, 0], [1, 0, 0], [0, 0, 0]]}, [0, 0, 1]),
    ],
)
def test_groups_by_hand(changes, groups):
    problem = ChainProblem(["a", "b"], ["x", "y", "z"], **{"seconds": [[1, 1, 1], [1, 1, 1]], **changes})
    assert problem.groups.tolist() == groups


# ---------------------------------------------------------------------- values


def small(**changes):
    given = {
        "items": ["a", "b", "c"],
        "devices": ["x", "y"],
        "seconds": [[1, 2], [3, 4], [5, 6]],
        "weight_bytes": [10, 20, 30],
        "cache_bytes": [1, 2, 3],
        "workspace_bytes": [7, 9, 8],
        "memory_bytes": [40, 50],
        "stage_seconds": [0.25, 0.5],
        "hops": [[0, 0.125], [4, 0]],
        "closing": [[0, 8], [0.0625, 0]],
        "shared_bytes": 6,
    }
    return ChainProblem(**{**given, **changes})


def test_a_placement_of_two_stages_by_hand():
    values = evaluate(small(), Placement([(0, 0, 2), (1, 2, 3)]))
    assert values.stage_seconds.tolist() == [4.25, 6.5]
    assert values.hop_seconds.tolist() == [0.125]
    assert values.closing_seconds == 0.0625
    assert values.stage_bytes.tolist() == [42, 41]
    assert values.missing_bytes.tolist() == [2, 0]
    assert (values.latency, values.largest_load, values.period, values.fits) == (10.9375, 6.5, 6.5, False)
    assert evaluate(small(memory_bytes=[42, 41]), Placement([(0, 0, 2), (1, 2, 3)])).fits


def test_a_placement_of_one_stage_has_no_hop_and_shares_bytes():
    values = evaluate(small(closing=[[9, 8], [1, 9]]), Placement([(1, 0, 3)]))
    assert values.stage_seconds.tolist() == [12.5]
    assert values.hop_seconds.tolist() == []
    assert values.closing_seconds == 0
    assert values.stage_bytes.tolist() == [60 + 6 + 9 - 6]
    assert (values.latency, values.largest_load, values.period) == (12.5, 12.5, 12.5)


def test_the_period_is_the_mean_or_the_largest_load_of_a_stage_or_a_hop():
    even = [[2, 2], [1, 1], [1, 1]]
    parts = Placement([(0, 0, 1), (1, 1, 3)])
    plain = {"seconds": even, "stage_seconds": None, "closing": None}
    assert evaluate(small(**plain, hops=[[0, 1], [1, 0]]), parts).period == 2.5
    assert evaluate(small(**plain, hops=[[0, 9], [1, 0]]), parts).period == 9
    assert evaluate(small(**{**plain, "closing": [[0, 1], [9, 0]]}, hops=None), parts).period == 9
    impossible = evaluate(small(**plain, hops=[[0, math.inf], [1, 0]]), parts)
    assert (impossible.latency, impossible.period) == (math.inf, math.inf)


def test_of_overlapped_times_only_the_largest_counts():
    """Five chunks of 1 and 1.25 s in the stages, and of 0.5 s between them, with 0.5 s for the rest: 2.75 + 4 * 1.25 + 0.5."""
    problem = small(
        seconds=[[4, 9], [1, 9], [9, 6.25]],
        overlapped_seconds=[[3, 9], [1, 9], [9, 5]],
        hops=[[0, 2.5], [4, 0]],
        overlapped_hops=[[0, 2], [4, 0]],
        stage_seconds=[0.125, 0.25],
        closing=[[0, 8], [0.125, 0]],
    )
    values = evaluate(problem, Placement([(0, 0, 2), (1, 2, 3)]))
    assert values.overlapped_seconds.tolist() == [4, 5]
    assert values.overlapped_hops.tolist() == [2]
    assert (values.latency, values.largest_load, values.period) == (8.25, 6.5, 6.5)
    assert evaluate(problem.replace(most_in_progress=1), Placement([(0, 0, 2), (1, 2, 3)])).period == 8.25
    alone = evaluate(problem, Placement([(0, 0, 3)]))
    assert alone.latency == evaluate(problem.replace(overlapped_seconds=None), Placement([(0, 0, 3)])).latency == 14.125


@given(st.data())
def test_a_request_alone_takes_no_less_than_a_load_and_no_more_than_all(data):
    problem = data.draw(chain_problems(overlap=True))
    values = evaluate(problem, data.draw(placements(problem, covering=True)))
    loads = [*values.stage_seconds, *values.hop_seconds, values.closing_seconds]
    assert values.largest_load <= values.latency <= sum(loads)


@given(st.data())
def test_a_stage_needs_no_less_with_an_item_more(data):
    problem = data.draw(chain_problems(workspace=True, shared=True))
    first = data.draw(st.integers(0, problem.n_items - 1))
    end = data.draw(st.integers(first + 1, problem.n_items))
    own = stage_bytes(problem, ChainStage(0, first, end))
    if first:
        assert stage_bytes(problem, ChainStage(0, first - 1, end)) >= own
    if end < problem.n_items:
        assert stage_bytes(problem, ChainStage(0, first, end + 1)) >= own


@examples(50)
@given(chain_problems(), st.data())
def test_bytes_are_rounded_so_that_what_fits_fits(problem, data):
    def less(column):
        return np.maximum(column - data.draw(st.sampled_from([0.0, 0.25, 0.5, 0.9375])), np.minimum(column, 0.0))

    changes = {name: less(getattr(problem, name)) for name in PER_ITEM}
    changes["memory_bytes"] = problem.memory_bytes + data.draw(st.sampled_from([0.0, 0.25, 0.9375]))
    most = min(changes["weight_bytes"][[0, -1]])
    if problem.n_items > 1 and problem.shared_bytes + 0.75 <= most:
        changes["shared_bytes"] = problem.shared_bytes + 0.75
    assert ChainProblem(**{**arguments(problem), **changes}) == problem


def test_bytes_are_rounded_by_hand():
    problem = small(weight_bytes=[9.25, 20, 29.5], cache_bytes=[0.1, 2, 3], workspace_bytes=[7, 8.01, 8], memory_bytes=[40.99, 50.0])
    assert problem == small()
    assert small(shared_bytes=6.875).shared_bytes == 6
    assert type(small(shared_bytes=6.875).shared_bytes) is int
    assert small(shared_bytes=10).shared_bytes == 10
    assert small(memory_bytes=None).memory_bytes.tolist() == [math.inf, math.inf]


def test_what_is_not_given_is_nothing():
    problem = ChainProblem(["a", "b"], ["x", "y"], [[1, 2], [3, 4]])
    for name in (*PER_ITEM, "stage_seconds", *PER_PAIR, *OVERLAPPED):
        assert not getattr(problem, name).any()
    assert np.isinf(problem.memory_bytes).all()
    assert problem.shared_bytes == 0
    assert (problem.n_items, problem.n_devices) == (2, 2)


# ---------------------------------------------------------------------- values as objects


@given(chain_problems(), st.data())
def test_values_are_equal_to_their_copies(problem, data):
    placement = data.draw(placements(problem, covering=True))
    for value in (problem, placement, evaluate(problem, placement)):
        for other in (pickle.loads(pickle.dumps(value)), copy.deepcopy(value)):
            assert other == value
    again = pickle.loads(pickle.dumps(problem))
    assert again.groups.tolist() == problem.groups.tolist()
    assert evaluate(again, placement) == evaluate(problem, placement)
    assert ChainProblem(**arguments(problem)) == problem
    assert Placement(placement.stages) == placement
    assert len(placement) == len(placement.stages)


@given(chain_problems(n_items=st.integers(2, 4)), st.data())
def test_a_change_of_any_column_is_another_problem(problem, data):
    name = data.draw(st.sampled_from(["seconds", *PER_ITEM, *PER_DEVICE, *PER_PAIR]))
    column = np.array(getattr(problem, name))
    place = data.draw(
        st.sampled_from([place for place in np.ndindex(column.shape) if name not in PER_PAIR or place[0] != place[1]] or [None])
    )
    assume(place is not None)
    column[place] = 1000.0 if np.isinf(column[place]) else column[place] + 1
    assert ChainProblem(**{**arguments(problem), name: column}) != problem
    assert problem != "a problem"


def test_nothing_of_an_impossible_time_overlaps():
    problem = small(hops=[[0, math.inf], [4, 0]], overlapped_hops=[[0, math.inf], [3, 0]], seconds=[[math.inf, 1]] * 3)
    assert problem.overlapped_hops.tolist() == [[0, 0], [3, 0]]
    assert problem.replace(overlapped_seconds=[[math.inf, 1]] * 3).overlapped_seconds.tolist() == [[0, 1]] * 3


def test_values_are_immutable():
    problem, placement = small(), Placement([(0, 0, 3)])
    values = evaluate(problem, placement)
    for column in (
        *(getattr(problem, name) for name in ("seconds", *PER_ITEM, *PER_DEVICE, *PER_PAIR, *OVERLAPPED)),
        values.stage_seconds,
        values.overlapped_seconds,
        values.missing_bytes,
    ):
        with pytest.raises(ValueError, match="read-only"):
            column[...] = 1
    for value, name in ((problem, "seconds"), (placement, "stages"), (values, "stage_seconds")):
        with pytest.raises(AttributeError):
            setattr(value, name, None)
        with pytest.raises(TypeError, match="unhashable"):
            hash(value)


def test_representations():
    assert repr(small()) == "<ChainProblem of 3 items on 2 devices>"
    assert repr(Placement([(1, 0, 2), (0, 2, 3)])) == "<Placement 0-1 on 1, 2-2 on 0>"


def test_a_placement_is_made_of_what_is_known():
    problem = small()
    assert Placement.of(problem, ["y", "x"], [2, 1]) == Placement([(1, 0, 2), (0, 2, 3)])
    assert Placement.of(problem, ("x", "y"), (0, 3)) == Placement([(1, 0, 3)])
    assert Placement.of(problem, ["x", "y"], np.array([3, 0])) == Placement([ChainStage(0, 0, 3)])
    assert Placement.of(problem, ["x"], [3]).stages[0]._asdict() == {"device": 0, "first": 0, "end": 3}
    stages = Placement([(np.int64(1), np.int64(0), np.int64(3))]).stages
    assert [type(number) for number in stages[0]] == [int, int, int]
    assert Placement(row for row in [(0, 0, 3)]) == Placement([[0, 0, 3]])


@given(st.data())
def test_devices_and_counts_are_the_inverse_of_stages(data):
    problem = data.draw(chain_problems())
    placement = data.draw(placements(problem, covering=True))
    names = [problem.devices[stage.device] for stage in placement.stages]
    counts = [stage.end - stage.first for stage in placement.stages]
    assert Placement.of(problem, names, counts) == placement


# ---------------------------------------------------------------------- messages


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"items": [], "seconds": np.ones((0, 2))}, "there are 0 items and 2 devices; give at least one item, and 1 to 64 devices"),
        ({"devices": [], "seconds": np.ones((3, 0))}, "there are 3 items and 0 devices; give at least one item, and 1 to 64 devices"),
        (
            {"devices": [f"d{k}" for k in range(MOST_DEVICES + 1)], "seconds": np.ones((3, MOST_DEVICES + 1))},
            "there are 3 items and 65 devices; give at least one item, and 1 to 64 devices",
        ),
        ({"items": ["a", "b", "a"]}, "duplicate item names: 'a'; names must be unique"),
        ({"devices": ["x", "x"]}, "duplicate device names: 'x'; names must be unique"),
        ({"devices": ["x", ""]}, "device name '' is not a non-empty string; give each device a name of Unicode text"),
        ({"items": 3}, "items is 3; it must be a sequence or another iterable"),
        ({"seconds": [[1, 2], [3, 4]]}, "seconds has shape [2, 2]; it must be [3, 2]"),
        (
            {"seconds": [[1, 2], [3, -4], [5, 6]]},
            "seconds[1, 1] is -4.0; it must be 0 or a number from 1e-100 to 1e+100, or inf if it is impossible",
        ),
        (
            {"seconds": [[1, 2], [3, 4], [math.nan, 6]]},
            "seconds[2, 0] is nan; it must be 0 or a number from 1e-100 to 1e+100, or inf if it is impossible",
        ),
        ({"seconds": "fast"}, "seconds is 'fast'; it must be an array of numbers, or text such as '2 ms'"),
        ({"weight_bytes": [1, -2, 3]}, "weight_bytes[1] is -2.0; it must be 0 or a number from 1e-100 to 1e+100"),
        ({"cache_bytes": [1, 2]}, "cache_bytes has shape [2]; it must be [3]"),
        ({"cache_bytes": [1, math.inf, 3]}, "cache_bytes[1] is inf; it must be 0 or a number from 1e-100 to 1e+100"),
        ({"most_in_progress": 0}, "most_in_progress is 0; it must be a whole number, at least 1, or None"),
        ({"workspace_bytes": 3}, "workspace_bytes has shape []; it must be [3]"),
        ({"memory_bytes": [math.nan, 1]}, "memory_bytes[0] is nan; it must be 0 or a number from 1e-100 to 1e+100, or inf for unlimited"),
        ({"stage_seconds": [1, 2, 3]}, "stage_seconds has shape [3]; it must be [2]"),
        ({"hops": [1, 2]}, "hops has shape [2]; it must be [2, 2]"),
        (
            {"closing": [[0, -1], [0, 0]]},
            "closing[0, 1] is -1.0; it must be 0 or a number from 1e-100 to 1e+100, or inf if it is impossible",
        ),
        (
            {"shared_bytes": 11},
            "shared_bytes is 11; it must be at least 0 and at most the weights of the first and of the last item, 10 and 30 bytes",
        ),
        (
            {"shared_bytes": -1.0},
            "shared_bytes is -1.0; it must be at least 0 and at most the weights of the first and of the last item, 10 and 30 bytes",
        ),
        ({"overlapped_seconds": [1, 2]}, "overlapped_seconds has shape [2]; it must be [3, 2]"),
        ({"overlapped_seconds": [[1, 2], [3, 4.5], [0, 0]]}, "overlapped_seconds[1, 1] is 4.5; it must be at most seconds[1, 1], 4.0"),
        ({"overlapped_hops": [[0, 1], [0, 0]]}, "overlapped_hops[0, 1] is 1.0; it must be at most hops[0, 1], 0.125"),
        ({"shared_bytes": "all"}, "shared_bytes is 'all'; it must be a number, or text such as '24 GiB'"),
        (
            {"items": ["a"], "seconds": [[1, 2]], "weight_bytes": [5], "cache_bytes": [0], "workspace_bytes": [0], "shared_bytes": 5},
            "shared_bytes is 5, but one item shares nothing with another; give 0",
        ),
    ],
)
def test_a_wrong_problem_is_refused(changes, message):
    with pytest.raises(hs.InvalidProblem) as caught:
        small(**changes)
    assert str(caught.value) == message


def test_the_most_devices_are_taken():
    problem = ChainProblem(["a"], [f"d{k}" for k in range(MOST_DEVICES)], np.ones((1, MOST_DEVICES)))
    assert problem.groups.tolist() == [0] * MOST_DEVICES


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Placement(3), "stages is 3; it must be a sequence or another iterable"),
        (lambda: Placement([(0, 0, 2), (1, 2)]), "stages[1] is (1, 2); it must be (device, first, end)"),
        (lambda: Placement([("a", 0, 1)]), "device of stages[0] is 'a'; it must be a whole number"),
        (lambda: Placement([(0, 0, 1), (1, 1, 2.5)]), "end of stages[1] is 2.5; it must be a whole number"),
        (lambda: Placement.of(small(), "xy", [1, 2]), "devices is 'xy'; it must be a sequence of names, as ['xy']"),
        (lambda: Placement(["012"]), "stages[0] is '012'; it must be (device, first, end)"),
        (lambda: Placement.of(small(), ["x", "z"], [1, 2]), "devices has 'z'; choose from 'x', 'y'"),
        (
            lambda: Placement.of(small(), ["x", "y"], [1, 1]),
            "counts is [1, 1]; it must be a number of items from 0 for each of 2 devices, 3 in all",
        ),
        (
            lambda: Placement.of(small(), ["x", "y"], [3]),
            "counts is [3]; it must be a number of items from 0 for each of 2 devices, 3 in all",
        ),
        (
            lambda: Placement.of(small(), ["x", "y"], [4, -1]),
            "counts is [4, -1]; it must be a number of items from 0 for each of 2 devices, 3 in all",
        ),
        (lambda: Placement.of(small(), ["x", "y"], [1, 2.5]), "counts[1] is 2.5; it must be a whole number"),
        (lambda: Placement.of(3, ["x"], [1]), "problem is 3; it must be a ChainProblem"),
        (lambda: evaluate(small(), [(0, 0, 3)]), "placement is [(0, 0, 3)]; it must be a Placement"),
    ],
)
def test_a_wrong_placement_is_refused(make, message):
    with pytest.raises(hs.InvalidArgument) as caught:
        make()
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "stages", [[], [(0, 0, 2)], [(0, 1, 3)], [(0, 0, 1), (1, 2, 3)], [(0, 0, 2), (1, 1, 3)], [(0, 0, 4)], [(0, 0, 3), (1, 3, 3)]]
)
def test_what_does_not_cover_the_chain_has_no_values(stages):
    with pytest.raises(hs.InvalidSchedule) as caught:
        evaluate(small(), Placement(stages))
    shown = repr(Placement(stages))
    assert str(caught.value) == f"{shown} does not cover the items 0 to 2 one after the other; each stage begins where the last ends"


@pytest.mark.parametrize("devices", [(0, 0), (0, 2), (-1, 0)])
def test_what_has_no_devices_of_its_own_has_no_values(devices):
    placement = Placement([(devices[0], 0, 1), (devices[1], 1, 3)])
    with pytest.raises(hs.InvalidSchedule) as caught:
        evaluate(small(), placement)
    assert str(caught.value) == f"{placement!r} has devices {list(devices)}; each stage has a device of its own, from 0 to 1"


def test_arrays_of_the_caller_stay_writable():
    seconds, hops = np.ones((3, 2)), np.ones((2, 2))
    problem = small(seconds=seconds, hops=hops)
    seconds[0, 0] = hops[0, 1] = 7.0
    assert problem.seconds[0, 0] == problem.hops[0, 1] == 1.0


def test_a_copy_has_other_arguments_or_other_times():
    problem = small()
    assert problem.replace() == problem
    assert problem.replace(memory_bytes=[1, 2]) == small(memory_bytes=[1, 2])
    problem = problem.replace(overlapped_seconds=problem.seconds / 2, overlapped_hops=problem.hops / 4)
    twice = problem.scaled(2.0)
    times = ("seconds", "stage_seconds", "hops", "closing", "overlapped_seconds", "overlapped_hops")
    assert problem.replace(**{name: 2 * getattr(problem, name) for name in times}) == twice
    placement = Placement([(0, 0, 2), (1, 2, 3)])
    assert evaluate(twice, placement).latency == 2 * evaluate(problem, placement).latency
