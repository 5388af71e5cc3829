"""Errors of decisions that cannot be simulated."""

from __future__ import annotations

import numpy as np
import pytest

import hetsched as hs

NAN = float("nan")


def problem(**arguments):
    """Return a problem in which b and c read a; each task takes 1 s on x and 2 s on y."""
    graph = arguments.pop("graph", hs.TaskGraph(["a", "b", "c"], [("a", "b", 1.0), ("a", "c", 1.0)]))
    return hs.Problem(
        graph,
        arguments.pop("cluster", hs.Cluster(["x", "y"], bandwidth=1.0)),
        **{"durations": [[1, 2]] * 3, "communication": "channel", **arguments},
    )


def on(batches, transfers=None):
    """Return a function that makes a decision of (task, device, inputs) rows for a problem."""
    return lambda made: hs.Decision.from_batches(made, batches, transfers=transfers)


SPLIT = [("a", "x", [0]), ("b", "y", [0]), ("c", "y", [0])]
MOVES = [(("a", "b"), 0, 1), (("a", "c"), 0, 2)]


@pytest.mark.parametrize(
    ("made", "decide", "message"),
    [
        (problem(), on(SPLIT[:2]), "input 0 of task 'c' is in no batch; every input of every task needs exactly one"),
        (problem(), on([*SPLIT, ("c", "x", [0])]), "input 0 of task 'c' is in 2 batches"),
        (problem(), on([*SPLIT[:2], ("c", "y", [1])]), "names input 0 to 1; the problem has 1, from 0"),
        (problem(), lambda made: hs.Decision([0, 1, 7], [0, 0, 0]), "names task index 0 to 7; the problem has 3"),
        (problem(durations=[[1, 2], [1, 2], [1, NAN]]), on(SPLIT), "'c' cannot run a batch of 1 on 'y': it may run on 'x'"),
        (
            problem(durations=np.ones((3, 2, 1)), batch_sizes=[2], inputs=2),
            on([*[(task, "x", [0, 1]) for task in "ab"], ("c", "x", [0]), ("c", "y", [1])]),
            "'c' cannot run a batch of 1 on 'x': its batch sizes there are [2]",
        ),
        (
            problem(inputs=2, batching="once"),
            on([(task, where, [item]) for task in "ab" for item, where in enumerate("xy")] + [("c", "x", [0]), ("c", "x", [1])]),
            "'c' has 2 batches on 'x' but batching='once' allows one",
        ),
        (
            problem(graph=hs.TaskGraph(["a", "b", "c"], colocation=[None, "g", "g"])),
            on([("a", "x", [0]), ("b", "x", [0]), ("c", "y", [0])]),
            "label 'g' is split for input 0: 'b' runs on 'x', 'c' on 'y'",
        ),
        (
            problem(cluster=hs.Cluster(["x", "y"], bandwidth=[[0, 0], [1, 0]])),
            on(SPLIT),
            "'a' -> 'b' is split over 'x' and 'y', between which there is no path",
        ),
        (problem(), on([("b", "x", [0]), ("a", "x", [0]), ("c", "x", [0])]), "deadlocks: 'b' on 'x' before 'a' on 'x' before 'b' on 'x'"),
        (problem(), on(SPLIT, MOVES[:1]), "leaves out batch 0 -> batch 2 from 'x' to 'y'"),
        (problem(), on(SPLIT, [*MOVES, MOVES[0]]), "source batch 0, target batch 1) twice"),
        (problem(), on(SPLIT, [*MOVES, (("a", "b"), 0, 2)]), "(edge 0, source batch 0, target batch 2) which is no transfer"),
        (
            problem(),
            on([("a", "x", [0]), ("b", "x", [0]), ("c", "y", [0])], MOVES),
            "(edge 0, source batch 0, target batch 1) which is no transfer of this decision",
        ),
        (problem(), on([(task, "x", [0]) for task in "abc"], MOVES[:1]), "which is no transfer of this decision"),
    ],
)
def test_messages_name_the_offender(made, decide, message):
    with pytest.raises(hs.InvalidSchedule) as caught:
        hs.simulate(made, decide(made))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_transfers_against_the_order_of_batches_deadlock():
    # x -> y transfers the tensor of b before that of a, but b waits for c, which waits for that of a
    chain = hs.TaskGraph(["a", "b", "c", "d"], [("a", "c", 1.0), ("c", "b", 1.0), ("b", "d", 1.0)])
    crossed = hs.Problem(chain, hs.Cluster(["x", "y"], bandwidth=1.0), durations=[[1, 1]] * 4, communication="channel")
    batches = [("a", "x", [0]), ("b", "x", [0]), ("c", "y", [0]), ("d", "y", [0])]
    order = [(("b", "d"), 1, 3), (("a", "c"), 0, 2), (("c", "b"), 2, 1)]
    with pytest.raises(hs.InvalidSchedule, match="deadlocks: .*transfer 'b' -> 'd' before transfer 'a' -> 'c'"):
        hs.simulate(crossed, hs.Decision.from_batches(crossed, batches, transfers=order))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: hs.Decision.from_assignment(p, {"a": "x", "b": "x"}), "no device for task 'c'"),
        (lambda p: hs.Decision.from_assignment(p, dict.fromkeys("abc", "z")), "'z' is no device"),
        (lambda p: hs.Decision.from_assignment(p, dict.fromkeys("abc", "x"), order=["a", "b"]), "must name each of the 3 tasks once"),
        (lambda p: hs.Decision.from_batches(p, [("q", "x", [0])]), "'q' is no task"),
        (lambda p: hs.Decision.from_batches(p, SPLIT, transfers=[(("b", "c"), 1, 2)]), "'b' -> 'c', which is no edge"),
        (lambda p: hs.Decision.from_batches(p, SPLIT, transfers=[(("a", "b"), 0, 9)]), "names a batch outside 0 to 2"),
        (lambda p: hs.Decision.from_batches(p, [("a", "x", [])]), "one non-empty set of inputs each"),
    ],
)
def test_errors_of_decisions_by_name_describe_the_fault(make, message):
    with pytest.raises(hs.InvalidSchedule) as caught:
        make(problem())
    assert message in str(caught.value)
