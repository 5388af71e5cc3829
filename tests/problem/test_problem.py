"""Problems: eligibility, coverage, variants, and errors."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.testing import problems
from hetsched.testing.profiles import examples

NAN = float("nan")


def two(**arguments):
    """Return a chain a -> b on devices x and y, 1 s per task."""
    graph = arguments.pop("graph", hs.TaskGraph(["a", "b"], [("a", "b", 1.0)]))
    cluster = arguments.pop("cluster", hs.Cluster(["x", "y"], bandwidth=1.0))
    return hs.Problem(graph, cluster, **{"durations": [[1, 1], [1, 1]], **arguments})


def graph(**arguments):
    return hs.TaskGraph(["a", "b"], [("a", "b", 1.0)], **arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"durations": [[1, 1]]}, "durations has shape [1, 2] but [2 tasks, 2 devices] is needed"),
        ({"durations": [[1, 1], [1]]}, "it must be an array of 2 tasks x 2 devices"),
        ({"durations": np.ones((2, 2, 2))}, "a third axis needs batch_sizes"),
        ({"durations": [[1, -1], [1, 1]]}, "duration of task 'a' on 'y' is -1.0"),
        ({"durations": [[1, np.inf], [1, 1]]}, "or NaN where the task cannot run"),
        ({"durations": [[1, 1], [NAN, NAN]]}, "task 'b' runs on no device: durations[b] are all absent; give at least one"),
        ({"durations": None}, "give either durations"),
        ({"inputs": 0}, "inputs is 0; it must be a whole number from 1 to 1000000"),
        ({"inputs": 1.5}, "inputs is 1.5"),
        ({"inputs": 3}, "task 'a' has no way to process all 3 inputs with batch sizes [1]"),
        ({"durations": np.ones((2, 2, 1)), "batch_sizes": [3], "inputs": 2}, "task 'a' supports no batch size up to inputs=2"),
        ({"durations": np.ones((2, 2, 2)), "batch_sizes": [1, 1]}, "distinct sizes"),
        ({"durations": np.ones((2, 2, 1)), "batch_sizes": [0]}, "batch size is 0; it must be a whole number"),
        ({"inputs": 10**40}, "it must be a whole number from 1 to 1000000"),
        ({"durations": [[1, 1e308], [1, 1]]}, "duration of task 'a' on 'y' is 1e+308; it must be 0 or a number from 1e-100 to 1e+100"),
        ({"durations": [[1, 1e-310], [1, 1]]}, "duration of task 'a' on 'y' is 1e-310; it must be 0 or a number from 1e-100 to 1e+100"),
        ({"transfers": [[[0, 1e-310], [1, 0]]]}, "from 'x' to 'y' is 1e-310; it must be 0 or a number from 1e-100 to 1e+100, or NaN"),
        ({"batching": "twice"}, "batching is 'twice'; choose one of 'once', 'free'"),
        ({"communication": "smoke"}, "communication is 'smoke'"),
        ({"memory": "none"}, "memory is 'none'"),
        ({"graph": graph(devices=[["z"], None])}, "task 'a' is pinned to 'z', which is no device"),
        (
            {"graph": graph(devices=[["x"], None]), "durations": [[NAN, 1], [1, 1]]},
            "task 'a' is pinned to 'x' but has durations only on 'y'",
        ),
        ({"graph": graph(colocation=["g", "g"]), "durations": [[1, NAN], [NAN, 1]]}, "label 'g' leaves no device on which all of 'a', 'b'"),
        (
            {"graph": graph(devices=[["x"], ["y"]]), "cluster": hs.Cluster(["x", "y"], bandwidth=[[0, 0], [1, 0]])},
            "no path between devices for edge 'a' -> 'b'",
        ),
        ({"transfers": np.zeros((2, 2, 2))}, "transfers has shape [2, 2, 2] but [edge, device, device] = [1, 2, 2]"),
        ({"transfers": np.ones((1, 2, 2))}, "it must be 0 within a device"),
        ({"transfers": [[[0, -1], [1, 0]]]}, "transfer time of edge 'a' -> 'b' from 'x' to 'y' is -1.0"),
    ],
)
def test_messages_name_the_offender(arguments, message):
    with pytest.raises(hs.InvalidProblem) as caught:
        two(**arguments)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_eligibility_follows_from_durations_pins_colocation_and_paths():
    tasks = hs.TaskGraph(["a", "b", "c"], [("a", "b")], colocation=[None, "g", "g"], devices=[["x"], None, ["x", "y"]])
    # z is out for b because its partner c is pinned away from it; y is out for b, and so for c, because no path leads there from x
    cluster = hs.Cluster(["x", "y", "z"], bandwidth=[[0, 0, 1], [1, 0, 1], [1, 0, 0]])
    problem = hs.Problem(tasks, cluster, durations=np.ones((3, 3)))
    assert problem.eligible.tolist() == [[True, False, False]] * 3
    assert problem.pinned.tolist() == [[True, False, False], [True, True, True], [True, True, False]]


def coverable(sizes_by_device: list[list[int]], inputs: int, batching: str) -> bool:
    """Return whether one task can process all inputs, by enumeration."""
    if batching == "once":
        choices = [[0, *sizes] for sizes in sizes_by_device]
        return any(sum(choice) == inputs for choice in itertools.product(*choices))
    sizes = {size for row in sizes_by_device for size in row}
    reached = {0}
    for _ in range(inputs):
        reached |= {total + size for total in reached for size in sizes if total + size <= inputs}
    return inputs in reached


@given(st.lists(st.sets(st.integers(1, 5), max_size=3), min_size=1, max_size=3), st.integers(1, 9), st.sampled_from(["once", "free"]))
def test_a_problem_is_refused_iff_some_task_cannot_process_all_inputs(devices, inputs, batching):
    durations = np.full((1, len(devices), 5), NAN)
    for k, sizes in enumerate(devices):
        for size in sizes:
            durations[0, k, size - 1] = 1.0
    fits = coverable([sorted(size for size in sizes) for sizes in devices], inputs, batching)

    def build():
        cluster = hs.Cluster([f"d{k}" for k in range(len(devices))], bandwidth=1.0)
        return hs.Problem(hs.TaskGraph(["t"]), cluster, durations=durations, batch_sizes=range(1, 6), inputs=inputs, batching=batching)

    if fits:
        assert build().n_sizes == 5
    else:
        with pytest.raises(hs.InvalidProblem, match="'t'"):
            build()


def test_colocated_tasks_must_share_out_inputs_alike():
    # a alone can run 2 + 1, b alone 3; with each input of both on one device there is no division
    tasks = hs.TaskGraph(["a", "b"], colocation=["g", "g"])
    durations = np.full((2, 2, 3), NAN)
    durations[0, 0, 1] = durations[0, 1, 0] = durations[1, :, 2] = 1.0
    with pytest.raises(hs.InvalidProblem, match="label 'g' has no way to process all 3 inputs"):
        hs.Problem(tasks, hs.Cluster(["x", "y"], bandwidth=1.0), durations=durations, batch_sizes=[1, 2, 3], inputs=3)


def test_batch_sizes_are_sorted_with_their_durations():
    problem = two(durations=np.arange(8.0).reshape(2, 2, 2) + 1, batch_sizes=[4, 2], inputs=4)
    assert problem.batch_sizes.tolist() == [2, 4]
    assert problem.durations[0, 0].tolist() == [2.0, 1.0]
    assert problem.whole_durations[0].tolist() == [1.0, 3.0]


def test_variants_pickle_and_equality():
    problem = two(memory="peak")
    assert problem.replace() == problem
    assert pickle.loads(pickle.dumps(problem)) == problem
    assert problem.replace(communication="port").communication == "port"
    assert problem.replace(durations=[[2, 2], [2, 2]]).durations.max() == 2
    many = problem.replace(durations=np.ones((2, 2, 2)), batch_sizes=[1, 4], inputs=4)
    assert many.inputs == 4
    with pytest.raises(hs.InvalidProblem, match="unexpected|communication is"):
        problem.replace(communication="none")


def test_transfer_times_follow_the_communication_model():
    for model, factor in (("delay", 3), ("channel", 3), ("port", 3), ("per-input", 1)):
        problem = two(communication=model, cluster=hs.Cluster(["x", "y"], bandwidth=2.0, latency=1.0))
        assert problem.transfer_times(0, [0, 0], [1, 0], 3).tolist() == [1 + factor * 1.0 / 2, 0.0]
        given_times = problem.replace(transfers=[[[0, 5], [NAN, 0]]])
        assert given_times.transfer_times(0, [0, 1], [1, 0], 3).tolist() == [5.0 * factor, np.inf]


class HalfSpeed:
    """A cost model outside the package."""

    def durations(self, graph, cluster, batch_sizes):
        return np.ones((graph.n_tasks, cluster.n_devices, 1)) * np.asarray(batch_sizes, float) * 0.5


def test_cost_models_fill_in_durations():
    problem = hs.Problem(graph(), hs.Cluster(["x"]), costs=HalfSpeed(), inputs=16)
    assert problem.batch_sizes.tolist() == [4, 8, 12, 16], "quarters by default"
    assert problem.whole_durations[0, 0] == 8.0
    again = problem.replace(costs=HalfSpeed(), inputs=1)
    assert again.batch_sizes.tolist() == [1]


@pytest.mark.slow
@examples(200)
@given(problems(n_tasks=st.integers(1, 5), missing_links=True))
def test_eligible_devices_are_what_is_left_when_nothing_more_can_be_dropped(problem):
    graph, size = problem.graph, problem.n_devices
    fits = problem.batch_sizes <= problem.inputs
    runs = problem.pinned & np.isfinite(problem.durations[:, :, fits]).any(axis=2)
    left = {(i, k) for i, k in np.argwhere(runs).tolist()}
    edges = list(enumerate(graph.edges.tolist()))

    def joined(e, h, k):
        return np.isfinite(problem.transfer_times(e, h, k))

    while True:
        kept = {
            (i, k)
            for i, k in left
            if all((m, k) in left for m in np.flatnonzero(problem.unit == problem.unit[i]))
            and all(any((j, h) in left and joined(e, k, h) for h in range(size)) for e, (a, j) in edges if a == i)
            and all(any((a, h) in left and joined(e, h, k) for h in range(size)) for e, (a, j) in edges if j == i)
        }
        if kept == left:
            break
        left = kept
    assert {(i, k) for i, k in np.argwhere(problem.eligible).tolist()} == left


@pytest.mark.parametrize("given", [True, False])
def test_a_long_chain_bound_to_its_end_is_refused_or_read_at_once(given):
    n, size = 50_000, 3  # a pass over all tasks for each task would take minutes
    one_way = np.triu(np.ones((size, size)), 1)
    durations = np.ones((n, size))
    durations[-1, 1:] = np.nan
    graph = hs.TaskGraph([f"t{i}" for i in range(n)], np.array([(i, i + 1) for i in range(n - 1)]))
    times = np.where(one_way + np.eye(size) > 0, one_way, np.nan)
    transfers = np.broadcast_to(times, (n - 1, size, size)) if given else None
    problem = hs.Problem(graph, hs.Cluster(["x", "y", "z"], bandwidth=one_way), durations=durations, transfers=transfers)
    assert problem.eligible.tolist() == [[True, False, False]] * n
    durations[0, 0] = np.nan
    with pytest.raises(hs.InvalidProblem, match="no path between the devices of task 't0'"):
        hs.Problem(graph, problem.cluster, durations=durations, transfers=transfers)
