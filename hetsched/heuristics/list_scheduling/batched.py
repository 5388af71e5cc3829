"""Batched MET, greedy and HEFT: the inputs of each task are divided over the devices in batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hetsched.arrays import BoolArray, FloatArray, IntArray, row_starts
from hetsched.errors import InvalidProblem, UnsupportedFeature
from hetsched.heuristics.list_scheduling.static import mean_code
from hetsched.heuristics.memory_accounts import memory_claims
from hetsched.problem.problem import Problem
from hetsched.schedule.decision import Decision
from hetsched.search import Auto, Kind, Monitor, Role, method, several_inputs

_SOURCE = "DiviML (Ghannane and Abdelfattah), section V, in our reading"
_SUPPORTS = "any problem; several inputs go in batches on several devices"


@method(
    "bmet",
    summary="batched MET: each task in the batches of least device time, whatever the queues",
    source=_SOURCE,
    kind=Kind.CONSTRUCTIVE,
    turn=28,
    auto=Auto(when=several_inputs),
)
def bmet(problem: Problem, monitor: Monitor, *, sizes: int | Sequence[int] | None = None) -> None:
    """Schedule ready tasks in index order, each in the batches of least total duration.

    The inputs of a task are partitioned into at most one interval of consecutive inputs per device,
    in the order of the devices. An interval is one batch (``batching="once"``) or several consecutive
    ones (``"free"``). The partition of least total duration is used; ties go to fewer batches, then
    to lower devices. `sizes` are the batch sizes to use, by default all of the problem. With one
    input this is `met`.
    """
    _offer_in_batches(monitor, np.zeros(problem.n_tasks), sizes, by_finish=False, insertion=False)


@method(
    "bgreedy",
    summary="batched greedy: breadth-first topological order, each task in the batches that finish it first",
    source=_SOURCE,
    kind=Kind.CONSTRUCTIVE,
    turn=26,
    auto=Auto(when=several_inputs),
)
def bgreedy(problem: Problem, monitor: Monitor, *, sizes: int | Sequence[int] | None = None) -> None:
    """Schedule tasks in breadth-first topological order, each in the appended batches whose latest finish is earliest.

    Partitions are those of `bmet`; ties go to fewer batches, then to lower devices. A batch is ready
    when the data of all its inputs have arrived from all batches of all parents. With one input this
    is `greedy`.
    """
    priority = np.empty(problem.n_tasks)
    priority[problem.graph.topological_order] = -np.arange(problem.n_tasks, dtype=np.float64)
    _offer_in_batches(monitor, priority, sizes, by_finish=True, insertion=False)


@method(
    "bheft",
    summary="batched HEFT: by upward rank, each task in the batches that finish it first, with insertion",
    source=_SOURCE,
    kind=Kind.CONSTRUCTIVE,
    roles={Role.START: several_inputs, Role.UPPER: several_inputs},
    turn=24,
    auto=Auto(when=several_inputs),
)
def bheft(problem: Problem, monitor: Monitor, *, sizes: int | Sequence[int] | None = None, mean_communication: str = "paper") -> None:
    """Schedule tasks by descending upward rank, each in the batches whose latest finish is earliest, inserted into gaps.

    Differs from `bgreedy` by the order and the insertion. In the rank, the duration of a task is the
    mean, over the devices that can run it, of L times its least seconds per input, and transfers
    carry all inputs at once. With one input this is `heft`.
    """
    rank = upward_ranks(with_sizes(problem, sizes), mean_communication)
    _offer_in_batches(monitor, rank, sizes, by_finish=True, insertion=True)


def upward_ranks(problem: Problem, mean_communication: str = "paper") -> FloatArray:
    """Return the upward ranks of batched HEFT, [n], in seconds."""
    from hetsched.analysis import ranking_kernels
    from hetsched.heuristics.list_scheduling import batch_kernels

    arrays = problem.arrays
    transfer = ranking_kernels.mean_transfers(arrays, mean_code(mean_communication))
    rank: FloatArray = ranking_kernels.upward(arrays, problem.graph.topological_order, batch_kernels.work_per_task(arrays), transfer)
    return rank


def with_sizes(problem: Problem, sizes: int | Sequence[int] | None) -> Problem:
    """Return the problem restricted to some of its batch sizes; raise `UnsupportedFeature` if they do not suffice."""
    if sizes is None:
        return problem
    selected = np.unique(np.atleast_1d(np.asarray(sizes)))
    unknown = [size for size in selected.tolist() if size not in problem.batch_sizes.tolist()]
    if unknown or not len(selected):
        raise UnsupportedFeature(
            f"sizes={sizes!r} must be some of the problem's batch sizes {problem.batch_sizes.tolist()}"
            + (f"; it has no durations for {unknown[0]!r}" if unknown else "")
        )
    columns = np.searchsorted(problem.batch_sizes, selected)
    try:
        return problem.replace(durations=problem.durations[:, :, columns], batch_sizes=selected)
    except InvalidProblem as error:
        raise UnsupportedFeature(f"sizes={sizes!r} do not suffice: {error}") from error


def place_in_batches(
    problem: Problem, claim: FloatArray, priority: FloatArray, *, by_finish: bool = True, insertion: bool = True, once: bool | None = None
) -> Any:
    """Run ``batch_kernels.in_batches`` with a priority per task, [n], and memory claims, [n_units, 2]; return its result.

    `once` limits a task to one batch on each device; the default is the problem's ``batching``.
    """
    from hetsched.heuristics.list_scheduling import batch_kernels

    once = problem.batching == "once" if once is None else once
    row_of, counts = _shared_counts(problem, once)
    cuts = batch_kernels.cut_points(problem.batch_sizes, problem.inputs, problem.n_devices if once else problem.inputs)
    place = np.full(problem.inputs + 1, -1)
    place[cuts] = np.arange(len(cuts))
    batch_problem = batch_kernels.BatchProblem(
        problem.arrays, problem.unit, np.array(claim), problem.cluster.memory_bytes, row_of, counts, once, cuts, place
    )
    return batch_kernels.in_batches(batch_problem, np.array(priority), by_finish, insertion)


def _offer_in_batches(
    monitor: Monitor, priority: FloatArray, sizes: int | Sequence[int] | None, *, by_finish: bool, insertion: bool
) -> None:
    """Offer the result of `place_in_batches`, from optimistic to conservative claims; note why where none fits."""
    problem = with_sizes(monitor.problem, sizes)
    for claim in memory_claims(problem):
        task, device, low, high, start, stuck = place_in_batches(problem, claim, priority, by_finish=by_finish, insertion=insertion)
        if stuck >= 0:
            monitor.note(_no_place(problem, claim, task, device, low, high, stuck))
        elif np.isfinite(monitor.offer(decision_of_intervals(task, device, low, high, start))):
            return
        if monitor.should_stop:
            return


def _shared_counts(problem: Problem, once: bool) -> tuple[IntArray, BoolArray]:
    """Return (row of each unit with several members, else -1; whether all members can process q inputs on k, [rows, K, L + 1])."""
    from hetsched.heuristics.list_scheduling import batch_kernels

    shared = np.bincount(problem.unit, minlength=problem.n_units) > 1
    row_of = np.where(shared, np.cumsum(shared) - 1, -1)
    return row_of, batch_kernels.shared_counts(problem.arrays, problem.unit, row_of, int(shared.sum()), once)


def decision_of_intervals(task: IntArray, device: IntArray, low: IntArray, high: IntArray, start: FloatArray) -> Decision:
    """Return the decision whose batches have the inputs `low` to `high` - 1 and run in order of `start`."""
    order = np.argsort(start, kind="stable")
    task, device, low, high = task[order], device[order], low[order], high[order]
    item_ptr = row_starts(high - low)
    return Decision(task, device, item_ptr, np.arange(item_ptr[-1]) + np.repeat(low - item_ptr[:-1], high - low))


def _no_place(problem: Problem, claim: FloatArray, task: IntArray, device: IntArray, low: IntArray, high: IntArray, stuck: int) -> str:
    """Return a message with the memory left, once the other tasks were placed, for a task that fits nowhere."""
    pair, first = np.unique(problem.unit[task] * problem.n_devices + device, return_index=True)
    leader = np.full(problem.n_units, -1)
    leader[problem.unit[task][::-1]] = task[::-1]
    placed, of_leader = pair[first >= 0], leader[problem.unit[task]] == task
    used = np.bincount(placed % problem.n_devices, claim[placed // problem.n_devices, 0], problem.n_devices)
    used += np.bincount(device[of_leader], (high - low)[of_leader] * claim[problem.unit[task[of_leader]], 1], problem.n_devices)
    free = np.maximum(problem.cluster.memory_bytes - used, 0.0)
    fixed, per_input = claim[problem.unit[stuck]]
    runs = np.flatnonzero(problem.eligible[stuck])
    room = ", ".join(f"{free[k]:.6g} on {problem.cluster.names[k]!r}" for k in runs)
    return (
        f"found no place for the {problem.inputs} inputs of task {problem.graph.names[stuck]!r}, which with its co-located tasks claims "
        f"{fixed:.6g} bytes on every device it uses and {per_input:.6g} for each input; left: {room}"
    )
