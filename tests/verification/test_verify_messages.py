"""The independent check on schedules written by hand: the wording of each message, tolerance, refusals, speed."""

from __future__ import annotations

import numpy as np
import pytest

import hetsched as hs
from hetsched.arrays import Columns, row_starts
from hetsched.problem.links import CONTENDED
from hetsched.verification.verify import RULES


def chain(**arguments):
    graph = hs.TaskGraph(["a", "b", "c"], [("a", "b", 4.0), ("a", "c", 2.0)], weight_bytes=[3, 1, 1], input_bytes=1, output_bytes=[4, 2, 1])
    cluster = hs.Cluster([hs.Device("x", memory_bytes=11), hs.Device("y", memory_bytes=10)], bandwidth=1.0)
    return hs.Problem(graph, cluster, **{"durations": [[2, 3], [3, 2], [1, 1]], **arguments})


def by_hand(batches, transfers=(), makespan=None, inputs=1):
    """Return a schedule from (task, device, inputs, start, finish) and (edge, source, target, start, finish) rows."""
    task, device, items, start, finish = zip(*batches, strict=True)
    moves = np.array(transfers, float).reshape(-1, 5).T
    return hs.Schedule.from_columns(
        ("a", "b", "c"),
        ("x", "y"),
        inputs,
        Columns(
            task=["abc".index(t) for t in task],
            device=["xy".index(d) for d in device],
            start=start,
            finish=finish,
            size=list(map(len, items)),
        ),
        row_starts(list(map(len, items))),
        [item for row in items for item in row],
        Columns(edge=moves[0].astype(int), source=moves[1].astype(int), target=moves[2].astype(int), start=moves[3], finish=moves[4]),
        makespan=makespan,
    )


A, B, C = ("a", "x", [0], 0.0, 2.0), ("b", "y", [0], 6.0, 8.0), ("c", "y", [0], 8.0, 9.0)
AB, AC = (0, 0, 1, 2.0, 6.0), (1, 0, 2, 2.0, 4.0)


def test_a_valid_schedule_by_hand_has_no_violation():
    assert hs.verify(chain(), by_hand([A, B, C], [AB, AC])) == []


@pytest.mark.parametrize(
    ("batches", "transfers", "arguments", "messages"),
    [
        ([A, B], [AB], {}, ["coverage: input 0 of task 'c' in no batch"]),
        ([A, B, C, ("c", "x", [0], 2.0, 3.0)], [AB, AC], {"batching": "free"}, ["coverage: input 0 of task 'c' in 2 batches"]),
        ([A, B, ("c", "y", [0], 9.0, 11.0)], [AB, AC], {}, ["duration: task 'c' on 'y' takes 2 s, its duration there is 1 s"]),
        (
            [A, B, ("c", "y", [0], 7.5, 8.5)],
            [AB, AC],
            {},
            ["device-overlap: task 'c' on 'y' starts at 7.5 s, while 'b' on 'y' runs until 8 s: they overlap by 0.5 s"],
        ),
        (
            [A, ("b", "y", [0], 5.0, 7.0), C],
            [AB, AC],
            {},
            ["precedence: task 'b' on 'y' starts at 5 s, 1 s before the transfer 'a' -> 'b' from 'x' to 'y' ends at 6 s"],
        ),
        (
            [A, B, ("c", "x", [0], 1.0, 2.0)],
            [AB],
            {},
            [
                "device-overlap: task 'c' on 'x' starts at 1 s, while 'a' on 'x' runs until 2 s: they overlap by 1 s",
                "precedence: task 'c' on 'x' starts at 1 s, 1 s before its producer 'a' on 'x' finishes at 2 s",
            ],
        ),
        ([A, B, C], [AB], {}, ["transfer-missing: the transfer 'a' -> 'c' from 'x' to 'y' is missing; it takes 2 s"]),
        (
            [A, B, ("c", "x", [0], 2.0, 3.0)],
            [AB, AC],
            {},
            ["transfer-extra: the transfer 'a' -> 'c' from 'x' to 'x' joins batches on one device; it must not be there"],
        ),
        (
            [A, B, C],
            [AB, AC, (1, 0, 1, 2.0, 4.0)],
            {},
            ["transfer-extra: the transfer 'a' -> 'c' from 'x' to 'y' joins batches of 'a' and 'b'; it must not be there"],
        ),
        (
            [A, B, C],
            [AB, (1, 0, 2, 2.0, 3.5)],
            {},
            ["transfer-time: the transfer 'a' -> 'c' from 'x' to 'y' takes 1.5 s, its transfer time is 2 s"],
        ),
        (
            [A, B, C],
            [AB, (1, 0, 2, 1.0, 3.0)],
            {},
            ["transfer-early: the transfer 'a' -> 'c' from 'x' to 'y' starts at 1 s, 1 s before its producer finishes at 2 s"],
        ),
        (
            [A, B, C],
            [AB, AC],
            {"communication": "channel"},
            [
                "channel-overlap: the transfer 'a' -> 'c' from 'x' to 'y' and the transfer 'a' -> 'b' from 'x' to 'y' overlap "
                "on the channel 'x' -> 'y' by 2 s"
            ],
        ),
        (
            [A, B, C],
            [AB, AC],
            {"communication": "port"},
            [
                f"port-overlap: the transfer 'a' -> 'c' from 'x' to 'y' and the transfer 'a' -> 'b' from 'x' to 'y' overlap "
                f"on the {port} by 2 s"
                for port in ("send port of 'x'", "receive port of 'y'")
            ],
        ),
        (
            [A, B, C],
            [AB, AC],
            {"communication": "node"},
            [
                f"node-overlap: the transfer 'a' -> 'c' from 'x' to 'y' and the transfer 'a' -> 'b' from 'x' to 'y' overlap "
                f"on the {port} by 2 s"
                for port in ("send port of 'x'", "receive port of 'y'")
            ],
        ),
        (
            [("a", "x", [0], -1.0, 1.0), B, C],
            [AB, AC],
            {},
            ["time: task 'a' on 'x' runs from -1 s to 1 s; times must be finite and not negative"],
        ),
        (
            [A, B, C],
            [AB, (1, 0, 2, np.nan, np.inf)],
            {},
            ["time: the transfer 'a' -> 'c' from 'x' to 'y' runs from nan s to inf s; times must be finite and not negative"],
        ),
        (
            [A, ("b", "x", [0], 2.0, 5.0), ("c", "x", [0], 5.0, 6.0)],
            [],
            {},
            ["memory: 'x' needs 15 bytes, 4 more than its 11 (static memory)"],
        ),
        (
            # weights 5, a's output for b until 5, c's from 2, b's from 3: 5 + 4 + 2 + 1
            [A, ("b", "x", [0], 3.0, 6.0), ("c", "x", [0], 2.0, 3.0)],
            [],
            {"memory": "peak"},
            ["memory: 'x' needs 12 bytes, 1 more than its 11 (peak memory)"],
        ),
    ],
)
def test_messages(batches, transfers, arguments, messages):
    assert list(map(str, hs.verify(chain(**arguments), by_hand(batches, transfers)))) == messages


@pytest.mark.parametrize(
    ("change", "messages"),
    [
        ({"durations": [[2, 3], [3, np.nan], [1, 1]]}, ["eligibility: task 'b' on 'y', where it has no duration"]),
        ({"pin": [None, ["x"], None]}, ["pin: task 'b' on 'y' but pinned to 'x'"]),
        ({"label": ["g", "g", None]}, ["colocation: co-location label 'g' is split for input 0: 'a', 'b' run on 'x', 'y'"]),
        (
            {"cut": True},
            [
                "no-path: edge 'a' -> 'b' is split over 'x' and 'y', between which there is no path",
                "no-path: edge 'a' -> 'c' is split over 'x' and 'y', between which there is no path",
            ],
        ),
        ({"makespan": 10.0}, ["makespan: the stated makespan is 10 s, the last finish 9 s"]),
    ],
)
def test_messages_about_what_the_problem_forbids(change, messages):
    problem = chain(**({"durations": change["durations"]} if "durations" in change else {}))
    graph = problem.graph.replace(devices=change.get("pin"), colocation=change.get("label"))
    cluster = hs.Cluster(problem.cluster.devices, bandwidth=0.0) if "cut" in change else problem.cluster
    schedule = by_hand([A, B, C], [AB, AC], change.get("makespan"))
    assert list(map(str, hs.verify(problem.replace(graph=graph, cluster=cluster), schedule))) == messages


def test_messages_about_batches_of_several_inputs():
    times = np.array([[[1, 2], [1, 2]], [[1, 2], [1, np.nan]], [[1, 2], [1, 2]]], float)
    problem = chain(durations=times, batch_sizes=[1, 3], inputs=3, batching="once", memory="peak").replace(
        cluster=hs.Cluster(["x", "y"], bandwidth=1.0)
    )
    every = [0, 1, 2]
    schedule = by_hand(
        [("a", "x", every, 0.0, 2.0), ("b", "y", every, 14.0, 15.0), ("c", "x", [0, 1], 2.0, 4.0), ("c", "x", [2], 4.0, 5.0)],
        [(0, 0, 1, 2.0, 6.0)],
        inputs=3,
    )
    assert list(map(str, hs.verify(problem, schedule))) == [
        "batch-size: task 'b' (inputs 0, 1, 2) on 'y' runs 3 at once; its batch sizes there are [1]",
        "batch-size: task 'c' (inputs 0, 1) on 'x' runs 2 at once; its batch sizes there are [1, 3]",
        "once: task 'c' has 2 batches on 'x'; batching='once' allows one",
        "transfer-time: the transfer 'a' -> 'b' (inputs 0, 1, 2 to inputs 0, 1, 2) from 'x' to 'y' takes 4 s, "
        "its transfer time for 3 inputs is 12 s",
    ]
    per_input = problem.replace(communication="per-input")
    assert "transfer-time" not in {violation.rule for violation in hs.verify(per_input, schedule)}


def test_touching_intervals_and_zero_lengths_do_not_overlap():
    problem = chain(durations=[[2, 3], [3, 2], [0, 0]])
    inside = by_hand([A, B, ("c", "y", [0], 7.0, 7.0)], [AB, AC])
    assert hs.verify(problem, inside) == []


def test_tolerance_is_relative_to_the_last_finish():
    for off, expected in ((8e-9, []), (1e-8, ["duration"])):
        late = by_hand([A, B, ("c", "y", [0], 8.0, 9.0 + off)], [AB, AC])
        assert [violation.rule for violation in hs.verify(chain(), late)] == expected


@pytest.mark.parametrize(
    ("names", "devices", "inputs", "message"),
    [
        (("a", "b"), ("x", "y"), 1, "the schedule has 2 tasks, the problem 3: it lacks 'c'"),
        (("a", "b", "d"), ("x", "y"), 1, "the schedule has 3 tasks, the problem 3: it lacks 'c' and adds 'd'"),
        (("a", "b", "c", "c"), ("x", "y"), 1, "the schedule has 4 tasks, the problem 3: it names some twice"),
        (("b", "a", "c"), ("x", "y"), 1, "task 0 is 'b' in the schedule but 'a' in the problem; list the tasks in the problem's order"),
        (("a", "b", "c"), ("x", "y", "z"), 1, "the schedule has 3 devices, the problem 2: it adds 'z'"),
        (("a", "b", "c"), ("x", "y"), 2, "the schedule has 2 inputs, the problem 1"),
    ],
)
def test_schedules_of_other_problems_are_refused(names, devices, inputs, message):
    columns = {"task": np.empty(0, int), "device": np.empty(0, int), "start": [], "finish": [], "size": np.empty(0, int)}
    empty = {name: np.empty(0, int) for name in ("edge", "source", "target", "start", "finish")}
    schedule = hs.Schedule.of_problem(names, devices, inputs, Columns(**columns), [0], [], Columns(**empty))
    with pytest.raises(hs.InvalidSchedule, match=message):
        hs.verify(chain(), schedule)


def test_unknown_edges_are_refused():
    with pytest.raises(hs.InvalidSchedule, match="edge index runs from 0 to 2 but the problem has 2 edges"):
        hs.verify(chain(), by_hand([A, B, C], [AB, (2, 0, 2, 2.0, 4.0)]))


def test_the_empty_graph_has_a_valid_schedule():
    problem = hs.Problem(hs.TaskGraph([]), hs.Cluster(["x"]), durations=np.empty((0, 1)))
    schedule = hs.simulate(problem, hs.Decision([], []))
    assert hs.verify(problem, schedule) == []


def test_every_model_with_contention_has_a_rule():
    missing = [rule for rule in (f"{model}-overlap" for model in CONTENDED) if rule not in RULES]
    assert not missing, f"add {', '.join(missing)} to RULES of hetsched/verification/verify.py"


def test_every_rule_named_here_is_documented():
    rules = set(RULES)
    assert {"coverage", "batch-size", "once", "eligibility", "pin", "colocation", "time", "duration", "makespan", "memory"} <= rules
    assert all(meaning and "amount" in meaning for meaning in RULES.values())


@pytest.mark.slow
def test_fifty_thousand_tasks_are_verified():
    rng = np.random.default_rng(0)
    ends = np.sort(rng.integers(0, 50_000, (150_000, 2)), axis=1)
    ends = ends[ends[:, 0] < ends[:, 1]]
    graph = hs.TaskGraph([f"t{i}" for i in range(50_000)], ends, edge_bytes=1.0, output_bytes=1.0)
    problem = hs.Problem(graph, hs.Cluster([f"d{k}" for k in range(8)], bandwidth=1.0), durations=rng.random((50_000, 8)))
    schedule = hs.simulate(problem, hs.Decision.whole(problem, rng.integers(0, 8, 50_000), graph.topological_order))
    assert hs.verify(problem, schedule) == []
