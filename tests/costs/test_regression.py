"""Lines over batch sizes: recovery, estimates, errors; deviations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.costs import CostModel, Deviations, Profile, Regression

sizes = st.lists(st.integers(1, 64), min_size=2, max_size=6).filter(lambda drawn: len(set(drawn)) > 1)
amount = st.integers(0, 10**6).map(lambda number: number / 1e6)


def named(seconds, batch_sizes, memory=None):
    """Return the profile of tasks t0, t1, ... on devices d0, d1, ..."""
    seconds = np.asarray(seconds, float)
    tasks, devices = ([f"{letter}{place}" for place in range(count)] for letter, count in zip("td", seconds.shape, strict=False))
    return Profile.from_arrays(tasks, devices, batch_sizes, seconds, memory)


def estimated(regression, batch_sizes):
    """Return the durations of all tasks and devices of the profile."""
    graph, cluster = hs.TaskGraph(regression.tasks), hs.Cluster(regression.devices, bandwidth=1e9)
    return regression.durations(graph, cluster, batch_sizes)


@st.composite
def lines(draw):
    """Draw slopes and intercepts, [n, K]; NaN for tasks that cannot run."""
    shape = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    count = shape[0] * shape[1]
    slope, intercept = (np.reshape(draw(st.lists(amount, min_size=count, max_size=count)), shape) for _ in range(2))
    absent = np.reshape(draw(st.lists(st.booleans(), min_size=count, max_size=count)), shape)
    return np.where(absent, np.nan, slope), np.where(absent, np.nan, intercept)


@given(lines(), sizes, st.integers(1, 512), st.randoms())
def test_exact_lines_are_recovered_in_any_order(truth, batch_sizes, larger, random):
    slope, intercept = truth
    random.shuffle(batch_sizes)
    exact = slope[..., None] * batch_sizes + intercept[..., None]
    regression = Regression(named(exact, batch_sizes, 1e6 * exact))
    np.testing.assert_allclose(regression.slope, slope, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(regression.intercept, intercept, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(regression.memory_slope, 1e6 * slope, rtol=1e-9, atol=1e-3)
    np.testing.assert_allclose(estimated(regression, [*batch_sizes, larger])[..., :-1], exact, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(estimated(regression, [larger])[..., 0], slope * larger + intercept, rtol=1e-9, atol=1e-9)
    assert not regression.flattened.any()


@st.composite
def measured(draw):
    """Draw measurements with noise, some of them missing, and their batch sizes."""
    batch_sizes = sorted(set(draw(sizes)))
    rows = draw(st.lists(st.lists(amount, min_size=len(batch_sizes), max_size=len(batch_sizes)), min_size=1, max_size=4))
    seconds = np.array(rows)[:, None]
    seconds[draw(st.integers(0, len(rows) - 1))] = np.nan
    if len(batch_sizes) > 2:
        seconds[draw(st.integers(0, len(rows) - 1)), 0, 0] = np.nan
    return seconds, batch_sizes


@given(measured(), st.lists(st.integers(1, 1000), min_size=1, max_size=4))
@pytest.mark.filterwarnings("ignore:.*count as zero")
def test_estimates_are_never_negative_and_there_where_samples_are(samples, batch_sizes):
    seconds = estimated(Regression(named(*samples)), batch_sizes)
    assert (np.isnan(seconds) == ~np.isfinite(samples[0]).any(axis=-1)[..., None]).all()
    assert (seconds[np.isfinite(seconds)] >= 0).all()
    order = np.argsort(batch_sizes)
    assert (np.diff(seconds[..., order])[np.isfinite(seconds[..., 1:])] >= 0).all(), "more inputs take no less"


@given(measured(), st.floats(1e-3, 1e3), st.integers(1, 1000))
@pytest.mark.filterwarnings("ignore:.*count as zero")
def test_slower_tasks_have_slower_estimates(samples, factor, size):
    slower = named(samples[0] * factor, samples[1])
    expected = estimated(Regression(named(*samples)), [size]) * factor
    np.testing.assert_allclose(estimated(Regression(slower), [size]), expected, rtol=1e-6, atol=1e-9 * factor)


@given(measured())
def test_the_line_is_the_one_of_numpy_unless_it_falls(samples):
    seconds, batch_sizes = samples
    regression = Regression(named(*samples))
    for i, (times,) in enumerate(seconds):
        there = np.isfinite(times)
        if there.any():
            slope, intercept = np.polyfit(np.array(batch_sizes)[there], times[there], 1)
            wanted = (slope, intercept) if slope > 0 else (0.0, times[there].mean())
            np.testing.assert_allclose((regression.slope[i, 0], regression.intercept[i, 0]), wanted, rtol=1e-6, atol=1e-9)


def test_golden_numbers():
    """By hand: slope 0.5 and intercept 1/6 for (1, 1), (2, 0.5), (3, 2)."""
    regression = Regression(named([[[1.0, 0.5, 2.0], [3.0, 2.0, 1.0]]], [1, 2, 3]))
    assert regression.slope.tolist() == [[pytest.approx(0.5), 0.0]]
    assert regression.intercept.tolist() == [[pytest.approx(1 / 6), 2.0]]
    assert regression.flattened.tolist() == [[False, True]]
    assert estimated(regression, [9]).ravel().tolist() == [pytest.approx(4.5 + 1 / 6), 2.0]
    assert repr(regression) == "<Regression: 2 lines through <Profile: 1 operators on d0, d1, batches of 1, 2, 3>; 1 fell and are flat>"


def test_it_is_a_cost_model_that_finds_tasks_and_devices_by_name():
    samples = Profile.from_arrays(["a", "b", "c"], ["x", "y"], [1, 2], [[[1, 2], [3, 6]], [[4, 5], [np.nan] * 2], [[9, 9], [9, 9]]])
    model: CostModel = Regression(samples)
    problem = hs.Problem(
        hs.TaskGraph(["b", "a"]), hs.Cluster(["y", "x"], bandwidth=1e9), costs=model, inputs=4, batch_sizes=[4], batching="once"
    )
    np.testing.assert_allclose(problem.durations[:, :, 0], [[np.nan, 7], [12, 4]])


def test_a_line_below_zero_counts_as_zero_with_a_warning():
    regression = Regression(named([[[1.0, 3.0]]], [4, 8]))
    with pytest.warns(RuntimeWarning, match="1 estimated seconds are below zero and count as zero, the first of task 't0'"):
        assert estimated(regression, [1, 8]).ravel().tolist() == [0.0, 3.0]


def test_memory_is_estimated_too_and_unknown_if_not_measured():
    graph, cluster = hs.TaskGraph(["t0"]), hs.Cluster(["d0"])
    measured_memory = Regression(named([[[1.0, 2.0]]], [1, 2], [[[100.0, 150.0]]]))
    assert measured_memory.memory_bytes(graph, cluster, [4]).tolist() == [[[250.0]]]
    assert np.isnan(Regression(named([[[1.0, 2.0]]], [1, 2])).memory_bytes(graph, cluster, [4])).all()


# ---------------------------------------------------------------------- deviations


def test_deviations_are_those_of_the_paper():
    regression = Regression(named([[[1.0, 2.0]], [[2.0, 2.0]], [[0.0, 0.0]]], [1, 2], [[[10.0, 20.0]]] * 3))
    large = named([[[5.0]], [[2.0]], [[0.0]]], [4], [[[40.0]], [[50.0]], [[np.nan]]])
    deviations = regression.deviations(large)
    assert deviations.task.tolist() == ["t0", "t1"], "what takes nothing deviates by nothing"
    assert deviations.deviation.tolist() == [pytest.approx(0.2), 0.0]
    assert (deviations.mean, deviations.weighted_mean) == (pytest.approx(0.1), pytest.approx(1 / 7))
    assert (deviations.within(0.1), deviations.within(0.2 + 1e-12), deviations.quantile(0.5)) == (0.5, 1.0, pytest.approx(0.1))
    assert str(deviations).splitlines() == [
        "2 deviations: mean 10.00 %, weighted 14.29 %, median 10.00 %, 90 % up to 18.00 %",
        "50 % within 5 %, 50 % within 10 %, 100 % within 20 %, 100 % within 30 %",
    ]
    assert regression.deviations(large, "memory_bytes").deviation.tolist() == [pytest.approx(0.0), pytest.approx(0.2)]


@given(measured())
def test_estimates_do_not_deviate_from_themselves(samples):
    regression = Regression(named(*samples))
    exact = named(estimated(regression, [100, 200]), [100, 200])
    assert (regression.deviations(exact).deviation == 0).all()


def test_nothing_and_something_out_of_nothing():
    empty = Deviations.between([], [], [], [], [])
    assert str(empty) == "no deviations: nothing was measured"
    assert np.isnan([empty.mean, empty.weighted_mean, empty.quantile(0.5), empty.within(0.1)]).all()
    assert Deviations.between(["a"], ["x"], [1], [1.0], [0.0]).mean == np.inf


# ---------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("seconds", "batch_sizes", "message"),
    [
        ([[[1.0]]], [2], r"task 't0' on 'd0' has seconds for one batch size only \(2\); a line needs two"),
        ([[[1.0, 1.1]]], [2, 2], r"for one batch size only \(2\)"),
        ([[[1.0, np.nan]]], [2, 4], r"for one batch size only \(2\)"),
        ([[[1.0, -1.0]]], [2, 4], r"seconds of task 't0' on 'd0' is -1.0; it must be a number >= 0, or NaN"),
        ([[[1.0, 1.0]]], [0, 4], "batch size is 0; it must be a whole number"),
        ([[[1.0, 1.0]]], [1.5, 4], "batch size is 1.5; it must be a whole number"),
        ([[[1.0]]], [2, 4], r"seconds has shape \[1, 1, 1\] but \[task, device, batch size\] = \[1, 1, 2\] is needed"),
    ],
)
def test_samples_that_make_no_line_are_refused(seconds, batch_sizes, message):
    with pytest.raises(hs.InvalidProblem, match=message):
        Regression(named(seconds, batch_sizes))


def test_what_was_not_measured_is_named():
    regression = Regression(named([[[1.0, 2.0], [np.nan] * 2]], [1, 2]))
    with pytest.raises(hs.InvalidProblem, match="task 'z' was not measured; the profile has t0"):
        regression.durations(hs.TaskGraph(["z"]), hs.Cluster(["d0"]), [1])
    with pytest.raises(hs.InvalidProblem, match="device 'z' was not measured; the profile has d0, d1"):
        regression.durations(hs.TaskGraph(["t0"]), hs.Cluster(["z"]), [1])
    with pytest.raises(hs.InvalidProblem, match="there are no seconds of task 't0' on 'd1' to estimate from"):
        regression.deviations(named([[[1.0], [1.0]]], [4]))
    with pytest.raises(hs.InvalidProblem, match="must be an array"):
        Profile.from_arrays(["a"], ["x"], [1], [[["soon"]]])
