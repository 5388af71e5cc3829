"""Profiles: documents, unions, pools, what follows from them, comparisons, and recorders."""

from __future__ import annotations

import itertools
import json
import zlib
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.costs import (
    CopyTime,
    CostModel,
    Links,
    Measured,
    Network,
    Operator,
    Overhead,
    Profile,
    ProfiledDevice,
    Profiler,
    Recorder,
    Regression,
    StageTime,
    TaskTime,
    compare_profiles,
    measure,
)
from hetsched.costs.measurements import placement_digest
from hetsched.costs.profile import natural
from hetsched.costs.profile_comparison import spearman
from hetsched.costs.recording import new_session

GRAPH = hs.TaskGraph(["a", "b", "c"], [("a", "b", 4e6)], output_bytes=2.0)
SESSIONS = ("", "2026-01-02T03:04:05Z-aa", "2026-05-06T07:08:09Z-bb")
NAMES = ("cpu2", "cpu10", "gpu")
DIGESTS = ("p", "q", "r")

seconds = st.one_of(st.none(), st.floats(0, 1e3))
time_keys = st.tuples(
    st.sampled_from(DIGESTS),
    st.sampled_from(NAMES),
    st.integers(1, 4),
    st.sampled_from(SESSIONS),
    st.sampled_from(["", "f00"]),
    st.integers(0, 1),
)
devices = [
    ProfiledDevice(hs.Device(name, kind=kind), session, threads, overhead=Overhead(dispatch=1e-6 * len(session)))
    for (name, kind, threads), session in itertools.product((("cpu2", "core", 1), ("cpu10", "core", 1), ("gpu", "", None)), SESSIONS)
]
operators = [Operator(digest, "conv2d", f"conv2d {digest}", 10.0, None, 4.0) for digest in DIGESTS]


def value_of(key):
    """Return a number that belongs to a key: a measurement is not made twice."""
    return float(np.random.default_rng(zlib.crc32(repr(key).encode())).integers(1, 1000)) / 8


@st.composite
def profiles(draw):
    """Draw profiles whose rows agree with each other, in any order."""
    keys = draw(st.lists(time_keys, max_size=12))
    times = [TaskTime(*key, 1 + key[2], value_of(key), memory_bytes=value_of(key[0])) for key in keys]
    copies = [
        CopyTime(source, target, size, session, 0, 3, value_of((source, target, size, session)))
        for source, target, size, session in draw(
            st.lists(st.tuples(st.just("cpu2"), st.just("gpu"), st.sampled_from([0, 10, 1000]), st.sampled_from(SESSIONS)), max_size=4)
        )
    ]
    groups = draw(st.lists(st.tuples(st.sampled_from([(("p",), ("q", "r")), (("p",),)]), st.sampled_from(SESSIONS)), max_size=3))
    stages = [StageTime(group, "concurrent", "gpu", 2, session, 3, value_of((group, session))) for group, session in groups]
    networks = draw(st.lists(st.sampled_from([Network(GRAPH, DIGESTS), Network(hs.TaskGraph(["z"]), ("q",))]), max_size=2))
    return Profile(draw(st.permutations(devices)), operators, draw(st.permutations(times)), stages, copies, networks)


@given(profiles())
def test_a_document_is_restored_to_the_bit(tmp_path_factory, profile):
    path = tmp_path_factory.mktemp("profiles") / "profile.json"
    profile.write(path)
    again = hs.read(path)
    assert again == profile
    again.write(path)
    assert hs.read(path) == profile


@pytest.mark.slow
@given(profiles(), profiles(), profiles())
def test_the_union_is_the_same_in_any_order(first, second, third):
    whole = first.merge(second).merge(third)
    assert whole == first.merge(second.merge(third)) == third.merge(first).merge(second)
    assert first.merge(first) == first == Profile().merge(first)
    assert set(whole.times) == {*first.times, *second.times, *third.times}


@given(profiles())
def test_parts_have_what_they_are_about_and_make_the_whole(profile):
    for size in profile.batch_sizes:
        part = profile.only(batch_sizes=[size])
        assert {row.batch for row in (*part.times, *part.stages)} <= {size}
    for network in profile.networks:
        part = profile.only(graph=network.graph)
        assert part.networks == (network,)
        assert {row.digest for row in part.times} <= set(network.digests)
    parts = [profile.only(batch_sizes=[size]) for size in range(1, 5)]
    whole = Profile(profile.devices, profile.operators, networks=profile.networks)
    for part in parts:
        whole = whole.merge(part)
    assert whole == profile
    assert profile.only(devices=["gpu"]).names == ("gpu",)


@given(profiles())
def test_measurements_on_devices_of_one_kind_are_one(profile):
    for digest, size in itertools.product(DIGESTS, range(1, 5)):
        pooled = profile.pooled(digest, "cpu2", size)
        assert pooled == profile.pooled(digest, "cpu10", size)
        own = [
            row for row in profile.times if (row.digest, row.batch, row.placed) == (digest, size, "") and row.device in ("cpu2", "cpu10")
        ]
        assert (pooled is None) == (not own)
        if pooled is not None:
            every = np.repeat([row.median for row in own], [row.runs for row in own])
            assert pooled.seconds == np.median(every)
            assert pooled.runs == len(every)


def test_durations_are_measured_or_on_a_line_or_unknown():
    model: CostModel = Profile.from_arrays(
        ["a", "b"], ["x", "y"], [1, 4], [[[1.0, 4.0], [2.0, 8.0]], [[5.0, 3.0], [np.nan, 7.0]]], graph=hs.TaskGraph(["b", "a"])
    )
    cluster = hs.Cluster(["y", "x"], bandwidth=1.0)
    found = model.durations(hs.TaskGraph(["b", "a"]), cluster, [1, 2, 4, 8])
    np.testing.assert_allclose(found[1], [[2, 4, 8, 16], [1, 2, 4, 8]])
    np.testing.assert_allclose(found[0, 1], [5, 4, 3, 4], err_msg="measured as it is; a falling line is flat elsewhere")
    np.testing.assert_allclose(found[0, 0], [np.nan, np.nan, 7, np.nan])
    with pytest.raises(hs.InvalidProblem, match="task 'z' was not measured; the profile has b, a, ..."):
        model.durations(hs.TaskGraph(["z"]), cluster, [1])
    with pytest.raises(hs.InvalidProblem, match="device 'z' was not measured; the profile has x, y"):
        model.durations(hs.TaskGraph(["a"]), hs.Cluster(["z"]), [1])


def test_a_problem_has_all_that_was_measured():
    session = "2026-01-02T03:04:05Z-aa"
    rows = [ProfiledDevice(hs.Device(name), session, 1, overhead=Overhead(dispatch=0.25)) for name in ("cpu0", "cpu1")]
    times = [TaskTime(digest, name, 2, session, median=1.0, memory_bytes=20.0) for digest in "pq" for name in ("cpu0", "cpu1")]
    times += [TaskTime("r", "cpu0", 2, session, median=0.0, memory_bytes=0.0)]
    copies = [CopyTime("cpu0", "cpu1", 0, session, median=3e-6), CopyTime("cpu1", "cpu0", 0, session, median=5e-6)]
    profile = Profile(rows, operators, times, (), copies, [Network(GRAPH, DIGESTS)])
    problem = profile.problem()
    assert (problem.inputs, problem.batch_sizes.tolist()) == (2, [2])
    np.testing.assert_array_equal(problem.durations[:, :, 0], [[1.25, 1.25], [1.25, 1.25], [0.0, np.nan]])
    assert problem.graph.input_bytes.tolist() == [8.0, 8.0, 0.0], "20 bytes for two inputs, of which each has 2 of output"
    assert problem.cluster.latency.tolist() == [[0.0, 3e-6], [5e-6, 0.0]]
    assert np.isinf(problem.cluster.bandwidth[0, 1])
    peak = profile.problem(memory="peak", cluster=hs.Cluster([hs.Device("cpu0", memory_bytes=100), hs.Device("cpu1")], bandwidth=1.0))
    assert peak.graph == GRAPH
    assert [device.memory_bytes for device in peak.cluster.devices] == [84.0, np.inf]
    with pytest.raises(hs.InvalidProblem, match="task 'a' was not measured with batches of 3, nor with two other sizes; the profile has 2"):
        profile.problem(inputs=3)
    with pytest.raises(
        hs.InvalidProblem, match="allocates 16 bytes beside its output on device 'cpu0', which has 10; give smaller batches"
    ):
        profile.problem(memory="peak", cluster=hs.Cluster([hs.Device("cpu0", memory_bytes=10), hs.Device("cpu1")], bandwidth=1.0))
    with pytest.raises(hs.InvalidProblem, match="no copies between the devices were measured; give a cluster"):
        Profile(rows, operators, times, networks=[Network(GRAPH, DIGESTS)]).problem()


def test_names_mean_the_hardware_of_the_latest_session():
    old, new = (
        Profile([ProfiledDevice(hs.Device("x", kind=kind), session)], operators, [TaskTime("p", "x", 1, session, median=time)])
        for kind, session, time in (("slow", SESSIONS[1], 9.0), ("fast", SESSIONS[2], 1.0))
    )
    both = new.merge(old)
    assert both.pooled("p", "x", 1).seconds == 1.0
    assert both.latest == datetime(2026, 5, 6, 7, 8, 9, tzinfo=UTC)
    assert Profile().latest is None
    assert new_session()[:4] == str(datetime.now(UTC).year)


def test_graphs_with_the_same_names_are_told_apart():
    """Found by a network at two sizes, whose tasks have the same names."""
    small, large = (hs.TaskGraph(["a"], flops=flops) for flops in (1.0, 2.0))
    rows = [TaskTime(digest, "gpu", 1, median=seconds) for digest, seconds in (("p", 1.0), ("q", 2.0))]
    profile = Profile([ProfiledDevice(hs.Device("gpu"))], operators, rows, networks=[Network(small, ("p",)), Network(large, ("q",))])
    gpu = hs.Cluster(["gpu"])
    for graph, expected in ((small, 1.0), (large, 2.0)):
        assert profile.durations(graph, gpu, [1]).tolist() == [[[expected]]]
        assert profile.problem(graph=graph, cluster=gpu).durations.tolist() == [[[expected]]]
        assert profile.only(graph=graph).durations(hs.TaskGraph(["a"]), gpu, [1]).tolist() == [[[expected]]]
    for request in (lambda: profile.durations(hs.TaskGraph(["a"]), gpu, [1]), lambda: profile.cube("seconds", ["a"], ["gpu"], [1])):
        with pytest.raises(
            hs.InvalidProblem, match=r"1 task \('a'\) are in several graphs of the profile, in which they compute different"
        ):
            request()


def test_sessions_that_are_far_apart_are_listed():
    rows = [TaskTime("p", "cpu2", 1, session, median=time) for session, time in zip(SESSIONS, (1.0, 1.1, 1.5), strict=True)]
    rows += [TaskTime("q", "cpu2", 1, session, median=time) for session, time in zip(SESSIONS, (1.0, 1.1, 1.15), strict=True)]
    (far,) = Profile(devices, operators, rows).apart()
    assert far == {"digest": "p", "op": "conv2d", "batch": 1, "shortest": 1.0, "longest": 1.5, "ratio": 1.5}
    assert len(Profile(devices, operators, rows).apart(0.6)) == 0


def test_stolen_time_is_that_of_the_latest_session():
    rows = [TaskTime("p", "cpu2", 1, SESSIONS[1], median=1.0, cpu=0.1), TaskTime("p", "cpu2", 1, SESSIONS[2], median=1.0, cpu=0.75)]
    profile = Profile(devices, operators, rows)
    assert profile.stolen("cpu2") == 0.25
    assert np.isnan(profile.stolen("gpu"))


def test_copies_of_hardware_that_is_gone_do_not_count():
    rows = [ProfiledDevice(hs.Device(name, kind=kind), session) for name in "xy" for kind, session in (("old", "1"), ("new", "2"))]
    copies = [CopyTime("x", "y", size, session, median=size / speed) for size in (10, 20) for session, speed in (("1", 1.0), ("2", 5.0))]
    assert Profile(rows, (), (), (), copies).links().bandwidth[0, 1] == pytest.approx(5.0)


def test_names_with_numbers_are_in_their_order():
    assert sorted(["cpu10", "cpu2", "cpu", "a1b", "1"], key=natural) == ["1", "a1b", "cpu", "cpu2", "cpu10"]
    assert Profile(devices).names == ("cpu2", "cpu10", "gpu")


# ---------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"times": [TaskTime("z", "gpu", 1)]}, "times have the digest 'z', which is none of the operators"),
        ({"times": [TaskTime("p", "cpu7", 1)]}, "device 'cpu7' of session '' is not one of the devices; add it"),
        ({"times": [TaskTime("p", "gpu", 0)]}, "batch of a TaskTime is 0; it must be a whole number, at least 1"),
        ({"times": [TaskTime("p", "gpu", 1, median=-1.0)]}, "median of a TaskTime is -1.0; it must be a number >= 0, or None"),
        ({"times": [TaskTime("p", "gpu", 1, cpu=float("nan"))]}, "cpu of a TaskTime is nan; it must be a number >= 0, or None"),
        (
            {"times": [TaskTime("p", "gpu", 1, median=1.0), TaskTime("p", "gpu", 1, median=2.0)]},
            "two measurements of the same have different results: TaskTime",
        ),
        ({"copies": [CopyTime("gpu", "nowhere", 1)]}, "device 'nowhere' of session '' is not one of the devices"),
        ({"stages": [StageTime((("y",),), "merge", "gpu", 1)]}, "stages have the digest 'y', which is none of the operators"),
        ({"networks": [Network(GRAPH, ("p",))]}, "a network has 1 digests and 3 tasks; give one for each"),
    ],
)
def test_rows_that_do_not_fit_are_refused(rows, message):
    with pytest.raises(hs.InvalidProblem, match=message):
        Profile(devices, operators, **rows)


def test_requests_that_do_not_fit_are_refused():
    with pytest.raises(hs.InvalidProblem, match="the profile has no graph; profile its module, or add a costs.Network"):
        Profile().network()
    two = Profile(devices, operators, networks=[Network(GRAPH, DIGESTS), Network(hs.TaskGraph(["z"]), ("q",))])
    with pytest.raises(hs.InvalidProblem, match=r"the profile has 2 graphs \(.*\); say which: graph="):
        two.problem()
    with pytest.raises(hs.InvalidProblem, match="the graph is none of the profile's"):
        two.only(graph=hs.TaskGraph(["y"]))
    with pytest.raises(hs.InvalidProblem, match="the tasks were measured, but as parts of different graphs"):
        two.digests(["a", "z"])
    with pytest.raises(hs.InvalidProblem, match=r"the graph has other tasks \(1\) than were measured \(2\)"):
        Profile.from_arrays(["a", "b"], ["x"], [1], np.ones((2, 1, 1)), graph=hs.TaskGraph(["a"]))


def test_a_document_that_is_wrong_says_where(tmp_path):
    path = tmp_path / "profile.json"
    Profile(devices, operators, [TaskTime("p", "gpu", 1, median=1.0)]).write(path)
    text = json.loads(path.read_text())
    text["times"][0]["median"] = -1
    path.write_text(json.dumps(text))
    with pytest.raises(hs.InvalidProblem, match=r"profile.json: Expected `float` >= 0.0 - at `\$.times\[0\].median`"):
        hs.read(path)


# ---------------------------------------------------------------------- comparisons


def test_two_profiles_of_the_same_are_compared():
    times = np.array([[[1.0, 2.0]], [[10.0, 20.0]], [[3.0, 4.0]]])
    old = Profile.from_arrays(["a", "b", "c"], ["x"], [1, 2], times, graph=hs.TaskGraph(["a", "b", "c"], op=["conv2d", "conv2d", "relu"]))
    new = Profile.from_arrays(["a", "b", "d"], ["x"], [1, 4], 2 * times, graph=hs.TaskGraph(["a", "b", "d"], op=["conv2d"] * 3))
    found = compare_profiles(old, new)
    assert found.rows.digest.tolist() == ["b", "a"], "the largest difference first; batches of 2 and 4 have nothing in common"
    assert (found.ratio, found.rank_correlation) == (2.0, pytest.approx(1.0))
    (row,) = found.classes
    assert row == {"op": "conv2d", "count": 2, "old": 11.0, "new": 22.0, "q25": 2.0, "ratio": 2.0, "q75": 2.0}
    assert "new / old is 2.000 (median), rank correlation 1.000" in str(found)
    assert found.to_dict()["rows"][0]["ratio"] == 2.0
    assert repr(found) == "<ProfileComparison of 2 measurements, median ratio 2>"
    other = Profile.from_arrays(["a", "b", "c"], ["gpu"], [1, 2], times / 4)
    assert compare_profiles(old, other).ratio == 0.25
    assert set(compare_profiles(old, other).rows.device) == {"x / gpu"}
    with pytest.raises(hs.InvalidProblem, match="the profiles have no measurement in common"):
        compare_profiles(old, Profile.from_arrays(["z"], ["x"], [1], [[[1.0]]]))
    with pytest.raises(TypeError, match="made by hetsched.costs.compare_profiles"):
        hs.costs.ProfileComparison()


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=12))
def test_the_rank_correlation_is_that_of_scipy(pairs):
    stats = pytest.importorskip("scipy.stats")
    first, second = np.array(pairs, float).T
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        assert np.isnan(spearman(first, second))
    else:
        assert spearman(first, second) == pytest.approx(stats.spearmanr(first, second).statistic)


# ---------------------------------------------------------------------- recorders


class Noisy:
    """A profiler of three tasks on two devices with different results in each call."""

    graph = GRAPH
    devices = (hs.Device("x", memory_bytes=1e9), hs.Device("y"))

    def __init__(self):
        self.rng, self.calls = np.random.default_rng(0), 0

    def measure(self, inputs, placement):
        self.calls += 1
        seconds = inputs * (1 + 0.1 * self.rng.random(3))
        return Measured(np.where([False, False, placement == "y"], np.nan, seconds), np.full(3, 8.0 * inputs))

    def transfer(self, size, source, target):
        self.calls += 1
        return 1e-5 + size / 1e9 * (1 + 0.1 * self.rng.random())


class Described(Noisy):
    """Its first two tasks compute the same."""

    operators = (Operator("same"), Operator("same"), Operator("other"))

    def described(self, device, session):
        return ProfiledDevice(next(own for own in self.devices if own.name == device), session, 1)


placements = st.one_of(st.sampled_from(["x", "y"]), st.fixed_dictionaries(dict.fromkeys("abc", st.sampled_from(["x", "y"]))))
questions = st.lists(
    st.one_of(st.tuples(st.integers(1, 3), placements), st.tuples(st.integers(1, 3), st.just("x"), st.just("y"))), max_size=8
)


def ask(profiler: Profiler, request):
    return profiler.measure(*request) if len(request) == 2 else profiler.transfer(*request)


def same(one, other):
    """Say whether two answers are equal, NaN to NaN."""
    for a, b in zip(one, other, strict=True) if isinstance(one, tuple) else [(one, other)]:
        np.testing.assert_array_equal(a, b)


@given(questions, st.sampled_from([Noisy, Described]))
def test_recorded_measurements_are_returned_to_the_bit(tmp_path_factory, requests, kind):
    path = tmp_path_factory.mktemp("recorded") / "measured.json"
    first = Recorder(kind())
    results = [ask(first, request) for request in requests]
    first.profile.write(path)
    again = Recorder(profile=hs.read(path))
    for request, result in zip(requests, results, strict=True):
        same(ask(again, request), result)
    assert again.profile == first.profile
    assert again.graph == first.graph


def test_tasks_that_compute_the_same_are_one_measurement():
    recorder = Recorder(Described())
    found = recorder.measure(2, "x")
    assert found.seconds[0] == found.seconds[1] != found.seconds[2]
    assert [(row.digest, row.runs) for row in recorder.profile.times] == [("other", 1), ("same", 2)]
    placed = recorder.measure(2, {"a": "x", "b": "y", "c": "x"})
    assert placed.seconds[0] != placed.seconds[1], "on another device it is another"
    assert len({row.placed for row in recorder.profile.times}) == 2


def test_all_spellings_of_all_on_one_device_are_the_same():
    profile = measure(Noisy(), [2])
    wanted = Recorder(profile=profile).measure(2, "x")
    same(Recorder(profile=profile).measure(2, dict.fromkeys("abc", "x")), wanted)
    assert placement_digest("abc", "xxx") == "" != placement_digest("abc", "xyx") != placement_digest("abc", "yxx")


def test_what_is_lacking_is_measured_and_kept():
    noisy = Noisy()
    first = Recorder(noisy)
    first.measure(1, "x")
    again = Recorder(noisy, first.profile)
    again.measure(1, "x")
    assert noisy.calls == 1
    again.measure(1, "x")
    again.measure(2, {"a": "x", "b": "y", "c": "x"})
    assert noisy.calls == 3
    assert len(again.profile.times) == 9
    assert len(again.profile.sessions) == 2
    assert repr(again) == "<Recorder of 3 tasks on x, y, with Noisy>"


def test_measurements_and_links_from_a_recording():
    kept = Recorder(Noisy())
    seen = []
    profile = measure(kept, np.array([1, 2, 4]), on_progress=lambda device, size: seen.append((device, size)))
    links = Links.measured(kept, np.array([10**4, 10**6]))
    again = Recorder(profile=kept.profile)
    assert measure(again, [1, 2, 4]) == profile
    assert Links.measured(again, [10**4, 10**6]) == links
    np.testing.assert_allclose(kept.profile.links().bandwidth, links.bandwidth)
    assert seen == [(device, size) for size in (1, 2, 4) for device in "xy"]
    assert np.isnan(profile.cube("seconds", GRAPH.names, ["y"], [1, 2, 4])[2]).all()
    assert Regression(profile).memory_slope.tolist() == [[pytest.approx(8.0)] * 2] * 3
    assert measure(Noisy(), [1], devices=["y"]).names == ("y",)
    for source in (kept, again):
        with pytest.raises(ValueError, match="read-only"):
            (source if source is kept else Recorder(profile=profile)).measure(1, "x").seconds[0] = 0


def test_a_measurement_that_is_missing_is_named():
    kept = Recorder(Noisy())
    kept.measure(2, "x")
    again = Recorder(profile=kept.profile)
    again.measure(2, "x")
    with pytest.raises(hs.InvalidProblem, match="a run of 2 inputs on x was recorded 1 times, but is requested once more; give a profiler"):
        again.measure(2, "x")
    with pytest.raises(hs.InvalidProblem, match="device 'y' is not one of the profiler's"):
        again.measure(2, {"a": "x", "b": "y", "c": "x"})
    with pytest.raises(hs.InvalidProblem, match="a copy of 5 bytes from 'x' to 'y' was recorded 0 times"):
        again.transfer(5, "x", "y")
    with pytest.raises(hs.InvalidProblem, match="a recorder needs a profiler or a profile to take measurements from; give one"):
        Recorder()
    with pytest.raises(hs.InvalidProblem, match="the profile has another graph than the profiler; record to another one, and merge both"):
        Recorder(Noisy(), Profile.from_arrays(["z"], ["x"], [1], [[[1.0]]]))


def test_placements_that_do_not_fit_are_refused():
    kept = Recorder(Noisy())
    with pytest.raises(hs.InvalidProblem, match="the placement has no device for task 'b'; name one for each task, or one device for all"):
        kept.measure(1, {"a": "x"})
    with pytest.raises(hs.InvalidProblem, match=r"device 'z' is not one of the profiler's \(x, y\); choose one of these"):
        kept.measure(1, "z")
