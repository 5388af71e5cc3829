"""List schedulers against the literature, against a plain implementation, and under every restriction."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from instances import list_schedulers

import hetsched as hs
from hetsched.analysis import ranking_kernels
from hetsched.heuristics.list_scheduling import dynamic_kernels
from hetsched.heuristics.list_scheduling.static import ranks
from hetsched.search import Monitor
from hetsched.solving import methods
from hetsched.testing import problems
from hetsched.testing.clocks import watched
from hetsched.testing.profiles import examples
from tests.golden import UPWARD_RANKS, arabnejad, distant, topcuoglu


def run(problem: hs.Problem, name: str, **options: object) -> Monitor:
    """Run one method in a monitor of its own."""
    methods()
    monitor = Monitor(problem)
    monitor.run(name, options)
    return monitor


@pytest.mark.parametrize(
    ("instance", "name", "makespan"),
    [(topcuoglu, "heft", 80), (topcuoglu, "cpop", 86), (arabnejad, "peft", 122), (arabnejad, "heft", 133), (arabnejad, "cpop", 167)],
)
def test_published_makespans(instance, name, makespan):
    assert run(instance(), name).incumbent == makespan


def test_published_upward_ranks():
    upward, downward = ranks(topcuoglu())
    np.testing.assert_allclose(upward, UPWARD_RANKS, rtol=1e-12)
    assert downward[0] == 0
    assert upward[9] + downward[9] == pytest.approx(108), "the exit task lies on the critical path"


def test_mean_communication_is_by_default_the_papers_line_over_distinct_pairs():
    graph = hs.TaskGraph(["a", "b"], [("a", "b", 12.0)])
    cluster = hs.Cluster(["x", "y"], bandwidth=[[0, 2], [4, 0]], latency=[[0, 1], [3, 0]])
    problem = hs.Problem(graph, cluster, durations=[[1, 3], [2, 2]])

    def communication(kind):
        upward, _ = ranks(problem, kind)
        return upward[0] - upward[1] - 2.0

    assert communication("paper") == 2 + 12 / 3, "mean latency + bytes / mean bandwidth"
    assert communication("times") == (1 + 12 / 2 + 3 + 12 / 4) / 2
    # unordered pairs, each device with itself included at no cost: (x, x), (x, y), (y, y)
    assert communication("saga") == pytest.approx((1 + 12 / 2 + 3 + 12 / 4) / 2 / 3)
    given = problem.replace(transfers=[[[0, 5], [7, 0]]])
    assert ranks(given)[0][0] - 2 - 2 == 6
    with pytest.raises(hs.UnsupportedFeature, match="mean_communication is 'median'"):
        ranks(problem, "median")


@pytest.mark.parametrize("name", ["layered100", "rwnn10x32", "layered1000"])
def test_heft_makes_the_makespans_of_the_peer_library_with_its_mean(shared_data: Path, name: str):
    data = json.loads((shared_data / "peer" / f"{name}.json").read_text())
    graph = hs.TaskGraph([f"t{i}" for i in range(data["n"])], np.array(data["edges"]), edge_bytes=data["size"])
    cluster = hs.Cluster([f"d{k}" for k in range(data["m"])], bandwidth=data["bw"])
    problem = hs.Problem(graph, cluster, durations=data["exec"])
    peer = json.loads((shared_data / "peer" / "results.json").read_text())[f"saga-2.0.2-py311|HeftScheduler|{name}"]
    assert run(problem, "heft", mean_communication="saga").incumbent == pytest.approx(peer["makespan"], rel=1e-12)


def heft_by_the_book(problem: hs.Problem) -> float:
    """Return the makespan of HEFT in plain Python for one input and delays; ties go to lower tasks and devices."""
    upward, _ = ranks(problem)
    graph, n_devices = problem.graph, problem.n_devices
    busy: list[list[tuple[float, float]]] = [[] for _ in range(n_devices)]
    device: dict[int, int] = {}
    finish: dict[int, float] = {}
    waiting = set(range(problem.n_tasks))
    while waiting:
        free = [i for i in waiting if all(int(p) in finish for p in graph.pred[graph.pred_ptr[i] : graph.pred_ptr[i + 1]])]
        i = min(free, key=lambda i: (-upward[i], i))
        waiting.remove(i)
        best: tuple[float, float, int] | None = None
        for k in range(n_devices):
            length = problem.whole_durations[i, k]
            if np.isinf(length):
                continue
            start = 0.0
            for x in range(graph.pred_ptr[i], graph.pred_ptr[i + 1]):
                p = int(graph.pred[x])
                start = max(start, finish[p] + float(problem.transfer_times(graph.pred_edge[x], device[p], k)))
            for begin, end in busy[k]:
                if length and start + length > begin and end > start:
                    start = max(start, end)
            if best is None or start + length < best[0]:
                best = (start + length, start, k)
        assert best is not None
        finish[i], device[i] = best[0], best[2]
        if best[0] > best[1]:
            busy[best[2]] = sorted([*busy[best[2]], (best[1], best[0])])
    return max(finish.values())


@pytest.mark.parametrize("seed", range(40))
def test_heft_is_the_algorithm_of_the_book(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 30))
    edges = np.sort(rng.integers(0, n, (3 * n, 2)), axis=1)
    graph = hs.TaskGraph([f"t{i}" for i in range(n)], edges[edges[:, 0] < edges[:, 1]], edge_bytes=1.0 + seed % 5)
    durations = rng.integers(0, 9, (n, 3)).astype(float)
    durations[rng.random((n, 3)) < 0.2] = np.nan
    durations[np.isnan(durations).all(axis=1), 0] = 1.0
    cluster = hs.Cluster(["x", "y", "z"], bandwidth=rng.integers(1, 4, (3, 3)), latency=rng.integers(0, 3, (3, 3)))
    problem = hs.Problem(graph, cluster, durations=durations)
    assert run(problem, "heft").incumbent == pytest.approx(heft_by_the_book(problem), rel=1e-12)


@pytest.mark.parametrize("seed", range(12))
def test_heft_is_the_algorithm_of_the_book_for_priorities_that_are_close_together(seed):
    """One long task leaves all others in one interval of priorities, too many to sort; equal ones go to the lower task."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(40, 60))
    edges = np.sort(rng.integers(0, n, (n, 2)), axis=1)
    if seed % 2:
        edges = edges[:, ::-1]  # lower tasks wait for higher ones
    graph = hs.TaskGraph([f"t{i}" for i in range(n)], edges[edges[:, 0] != edges[:, 1]])
    durations = rng.integers(0, 3, (n, 2)).astype(float)
    durations[rng.integers(n)] *= 1e9 if seed % 3 else 1.0
    problem = hs.Problem(graph, hs.Cluster(["x", "y"], bandwidth=1.0), durations=durations)
    assert run(problem, "heft").incumbent == pytest.approx(heft_by_the_book(problem), rel=1e-12)


def test_etf_min_min_max_min_and_sufferage_choose_as_in_their_papers():
    # Tasks are independent, so that the first choice identifies the rule.
    durations = np.array([[4.0, 9.0], [6.0, 7.0], [3.0, 30.0]])
    problem = hs.Problem(hs.TaskGraph(["a", "b", "c"]), hs.Cluster(["x", "y"], bandwidth=1.0), durations=durations)

    def first_on_x(name):
        schedule = run(problem, name).best
        return min((schedule.start(task), task) for task in "abc" if schedule.device_of(task) == "x")[1]

    assert first_on_x("min-min") == "c", "3 is the least completion time"
    assert first_on_x("max-min") == "b", "6 is the largest least completion time"
    assert first_on_x("sufferage") == "c", "27 is lost on the other device"
    assert first_on_x("etf") == "c", "all can start at once; the highest static level is (3 + 30) / 2"


def test_met_compares_durations_only_and_olb_idle_times_only():
    durations = np.array([[1.0, 2.0], [1.0, 2.0], [1.0, 2.0]])
    problem = hs.Problem(hs.TaskGraph(["a", "b", "c"]), hs.Cluster(["x", "y"], bandwidth=1.0), durations=durations)
    assert run(problem, "met").incumbent == 3
    olb = run(problem, "olb").best
    assert [olb.device_of(task) for task in "abc"] == ["x", "y", "x"]


def test_insertion_fills_a_gap_that_appending_leaves():
    # b waits on x for a's data; c, ranked below b, fits in before it.
    graph = hs.TaskGraph(["a", "b", "c"], [("a", "b", 5.0)])
    durations = [[np.nan, 1.0], [5.0, np.nan], [3.0, np.nan]]
    problem = hs.Problem(graph, hs.Cluster(["x", "y"], bandwidth=1.0), durations=durations)
    schedule = run(problem, "heft").best
    assert (schedule.start("c"), schedule.start("b"), schedule.makespan) == (0.0, 6.0, 11.0)


def test_best_device_takes_the_fastest_that_has_the_memory():
    graph = hs.TaskGraph(["a", "b"], [("a", "b", 1.0)], weight_bytes=[3, 3])
    durations = [[1, 2, 3], [1, 2, 3]]
    for memory, device in ((6, "x"), (5, "y")):
        cluster = hs.Cluster([hs.Device("x", memory_bytes=memory), "y", "z"], bandwidth=1.0)
        solution = run(hs.Problem(graph, cluster, durations=durations), "best-device")
        assert solution.best.device_of("a") == solution.best.device_of("b") == device


def test_best_device_with_free_batching_chooses_the_cheapest_sizes():
    # 5 inputs from sizes 2 (3 s) and 3 (4 s): 3 + 2 = 7 s per task
    problem = hs.Problem(
        hs.TaskGraph(["a", "b"], [("a", "b", 1.0)]),
        hs.Cluster(["x"]),
        durations=[[[3.0, 4.0]], [[3.0, 4.0]]],
        batch_sizes=[2, 3],
        inputs=5,
        batching="free",
    )
    schedule = run(problem, "best-device").best
    assert schedule.makespan == 14
    assert sorted(schedule.batches.size.tolist()) == [2, 2, 3, 3]
    assert hs.verify(problem, schedule) == []


@pytest.mark.parametrize("name", list_schedulers())
def test_co_located_tasks_reserve_memory_together(name):
    """Published code places the first task of a label on a device that the others do not fit."""
    graph = hs.TaskGraph(["a", "b", "c"], weight_bytes=[1, 9, 1], colocation=["g", "g", None])
    cluster = hs.Cluster([hs.Device("x", memory_bytes=5), hs.Device("y", memory_bytes=11)], bandwidth=1.0)
    problem = hs.Problem(graph, cluster, durations=[[1, 5], [1, 5], [1, 5]])
    schedule = run(problem, name).best
    if name != "best-device" or schedule is not None:
        assert (schedule.device_of("a"), schedule.device_of("b")) == ("y", "y")
        assert hs.verify(problem, schedule) == []


@pytest.mark.parametrize("name", list_schedulers())
@pytest.mark.parametrize("memory", ["static", "peak"])
def test_a_method_without_a_place_offers_nothing_with_a_note(name, memory):
    graph = hs.TaskGraph(["a", "b", "c"], weight_bytes=[3, 3, 3])
    cluster = hs.Cluster([hs.Device("x", memory_bytes=5), hs.Device("y", memory_bytes=5)], bandwidth=1.0)
    monitor = run(hs.Problem(graph, cluster, durations=np.ones((3, 2)), memory=memory), name)
    assert monitor.best is None
    messages = monitor.solution(name).messages
    assert messages
    assert all(message.startswith(f"{name}: ") for message in messages)
    if name != "best-device":
        assert "found no place for task" in messages[0]
        assert "claims 3 bytes; left: 2 on 'x', 2 on 'y'" in messages[0]


@pytest.mark.parametrize("name", list_schedulers())
def test_the_second_attempt_under_peak_memory_allows_for_moved_tensors(name):
    """Weights alone fit any device; the tensor that moves to the fast device does not fit it."""
    graph = hs.TaskGraph(["a", "b"], [("a", "b", 8.0)], weight_bytes=1, output_bytes=1, devices=[["x"], None])
    cluster = hs.Cluster([hs.Device("x", memory_bytes=12), hs.Device("y", memory_bytes=5)], bandwidth=100.0)
    problem = hs.Problem(graph, cluster, durations=[[1, 1], [5, 1]], memory="peak")
    schedule = run(problem, name).best
    assert schedule is not None
    assert schedule.device_of("b") == "x"
    assert hs.verify(problem, schedule) == []


@pytest.mark.parametrize("name", list_schedulers())
def test_batches_of_all_inputs_are_required(name):
    problem = hs.Problem(hs.TaskGraph(["a"]), hs.Cluster(["x"]), durations=[[1.0]], inputs=2, batching="free")
    if name == "best-device":
        assert run(problem, name).incumbent == 2
    else:
        with pytest.raises(hs.UnsupportedFeature, match="'a' has no such batch on any device"):
            run(problem, name)


@pytest.mark.parametrize("name", list_schedulers())
@pytest.mark.parametrize("n", [0, 1])
def test_tiny_graphs(name, n):
    problem = hs.Problem(hs.TaskGraph([f"t{i}" for i in range(n)]), hs.Cluster(["x", "y"], bandwidth=1.0), durations=np.ones((n, 2)))
    assert run(problem, name).incumbent == n


@pytest.mark.parametrize("name", [name for name in list_schedulers() if name != "best-device"])
def test_every_list_scheduler_handles_a_large_graph(name):
    rng = np.random.default_rng(1)
    n = 5000
    edges = np.column_stack([np.maximum(np.arange(n).repeat(3) - rng.integers(1, 60, 3 * n), 0), np.arange(n).repeat(3)])
    graph = hs.TaskGraph([f"t{i}" for i in range(n)], edges[edges[:, 0] < edges[:, 1]], edge_bytes=1.0)
    problem = hs.Problem(graph, hs.Cluster(["x", "y", "z"], bandwidth=2.0), durations=rng.random((n, 3)))
    solution = run(problem, name)
    assert hs.verify(problem, solution.best) == []


def plain(durations, edges, bandwidth=1.0, scale=1.0):
    graph = hs.TaskGraph([f"t{i}" for i in range(len(durations))], [(f"t{i}", f"t{j}", c * scale) for i, j, c in edges])
    devices = [f"d{k}" for k in range(len(durations[0]))]
    return hs.Problem(graph, hs.Cluster(devices, bandwidth=bandwidth), durations=durations)


@pytest.mark.parametrize("name", list_schedulers())
def test_equal_transfer_times_give_equal_schedules_whatever_the_units(name):
    """49 * (1 / 49) is less than 1: times computed by another formula than the simulator's broke ties differently."""
    times, edges = [[1, 2], [3, 4], [1, 4]], [(0, 1, 4), (0, 2, 3)]
    assert run(plain(times, edges), name).best.decision == run(plain(times, edges, 49.0, 49.0), name).best.decision


def test_a_gap_that_is_just_too_short_is_not_taken():
    """The search for a gap ends at a start that is too late; it once returned a gap that is too short by an ulp."""
    nan = np.nan
    times = [[nan, nan, 0.8], [nan, 1.0, nan], [nan, 0.7, nan], [0.9, 0.2, nan], [nan, 0.05, 0.01]]  # q X p i e on A B C
    assert run(plain(times, [(0, 1, 0)]), "heft").incumbent == pytest.approx(1.8)


def test_a_gap_that_fits_exactly_is_taken():
    nan = np.nan
    times = [[0.4, nan], [0.1, nan], [nan, 0.5], [9.0, nan]]  # p and i fill the half second before X exactly
    assert run(plain(times, [(2, 3, 0)]), "heft").incumbent == pytest.approx(9.5)


@pytest.mark.parametrize("name", ["etf", "dls", "bil", "min-min", "max-min", "sufferage", "heft"])
def test_tasks_of_length_zero_wait_for_no_device(name):
    assert run(plain([[0, 5], [1, 5]], []), name).incumbent == 1


SLICED = ("etf", "dls", "bil", "min-min", "max-min", "sufferage", "m-etf")


@examples(30)
@given(problem=problems(n_tasks=6, n_devices=3), data=st.data())
def test_dynamic_schedulers_return_the_same_in_slices(problem, data):
    for name in SLICED:
        unsliced = hs.Monitor(problem)
        unsliced.attempt(name)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(dynamic_kernels, "SLICE", data.draw(st.integers(0, 5)))
            sliced = hs.Monitor(problem)
            sliced.attempt(name)
        assert sliced.best == unsliced.best


@pytest.mark.parametrize("name", SLICED)
def test_dynamic_schedulers_end_with_the_time(name, monkeypatch):
    monkeypatch.setattr(dynamic_kernels, "SLICE", 0)
    run = watched(topcuoglu(), name, looks=2)
    assert run.monitor.best is None
    message = f"{name}: the time limit was reached during the choice among many ready tasks; allow more time"
    assert run.monitor.solution(name).messages == (message,)
    assert watched(topcuoglu(), name, looks=30).monitor.best is not None


def test_basic_imaginary_levels_follow_the_recursion_of_the_paper():
    problem = distant(0)
    graph, durations, devices = problem.graph, problem.whole_durations, np.arange(problem.n_devices)
    level = np.zeros(durations.shape)
    for i in graph.topological_order[::-1]:
        for h in devices:
            rows = range(graph.succ_ptr[i], graph.succ_ptr[i + 1])
            below = [(level[graph.succ[x]] + problem.transfer_times(graph.succ_edge[x], h, devices)).min() for x in rows]
            level[i, h] = durations[i, h] + max(below, default=0.0)
    computed = ranking_kernels.imaginary_levels(problem.arrays, graph.topological_order, durations)
    np.testing.assert_allclose(computed, level, rtol=1e-12)
