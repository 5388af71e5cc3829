"""Independent verification: every rule of the problem statement, applied to the columns of a schedule.

All expected values are derived from the data of the problem and the columns of the schedule, without the code
that constructs schedules.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import assert_never

import numpy as np

from hetsched.arguments import checked
from hetsched.arrays import BoolArray, Columns, FloatArray, IntArray, distinct
from hetsched.errors import InvalidSchedule
from hetsched.problem.graph import named, plural
from hetsched.problem.problem import Problem
from hetsched.schedule.schedule import Schedule
from hetsched.verification.facts import TOLERANCE, Facts, inputs_text

RULES = {
    "coverage": "every input of every task is in exactly one batch, and no batch is empty (amount: inputs, or empty batches)",
    "batch-size": "a batch has as many inputs as its stated size, a size its device supports for its task (amount: inputs off)",
    "once": "with batching='once', a task has at most one batch on a device (amount: batches too many)",
    "eligibility": "a task runs only on devices for which it has durations (amount: inputs)",
    "pin": "a pinned task runs only on the devices it is pinned to (amount: inputs)",
    "colocation": "for each input, all tasks of one label run on one device (amount: inputs split)",
    "time": "times are finite and not negative (amount: seconds before 0, or inf)",
    "duration": "a batch takes its duration in the problem (amount: seconds off)",
    "device-overlap": "a device runs one batch at a time (amount: seconds of overlap)",
    "precedence": "a batch starts after its local producers and the transfers of its inputs end (amount: seconds too early)",
    "no-path": "data moves only between devices with a path (amount: inputs)",
    "transfer-missing": "each edge between batches on different devices that share inputs has a transfer (amount: 1)",
    "transfer-extra": "there is no other transfer, and no transfer occurs twice (amount: 1)",
    "transfer-time": "a transfer takes its transfer time in the problem (amount: seconds off)",
    "transfer-early": "a transfer starts after its producer's finish (amount: seconds too early)",
    "channel-overlap": "with communication='channel', an ordered device pair moves one transfer at a time (amount: seconds of overlap)",
    "port-overlap": "with communication='port', a device sends one and receives one transfer at a time (amount: seconds of overlap)",
    "node-overlap": "with communication='node', a node sends one and receives one transfer at a time (amount: seconds of overlap)",
    "memory": "a device holds no more than its capacity under the problem's memory model (amount: bytes over)",
    "makespan": "the stated makespan is the last finish (amount: seconds off)",
}
"""The rules of `verify`, in order, with the unit of ``Violation.amount``."""


@dataclass(frozen=True)
class Violation:
    """A violation of one rule.

    Attributes
    ----------
    rule : str
        A key of `RULES`.
    message : str
        One line.
    amount : float
        Extent of the violation, in the unit given in `RULES`.
    tasks, devices : tuple of str
        Names of the tasks and devices concerned.
    items : tuple of int
        Inputs concerned.
    times : tuple of float
        The conflicting times in seconds.
    """

    rule: str
    message: str
    amount: float
    tasks: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    items: tuple[int, ...] = ()
    times: tuple[float, ...] = ()

    def __str__(self) -> str:
        return f"{self.rule}: {self.message}"


@checked
def verify(problem: Problem, schedule: Schedule) -> list[Violation]:
    """Return every violation of the problem's rules; an empty list if the schedule is valid.

    Parameters
    ----------
    problem : Problem
    schedule : Schedule
        A schedule of any origin. Times are compared with a tolerance of 1e-9 of the last finish, memory
        with 1e-9 of the capacity.

    Raises
    ------
    InvalidSchedule
        The tasks, devices, inputs or edges of the schedule are not those of the problem.
    """
    _check_same_names(problem, schedule)
    facts = Facts(problem, schedule)
    checks = (
        _coverage,
        _batch_size,
        _once,
        _eligibility,
        _pin,
        _colocation,
        _time,
        _duration,
        _device_overlap,
        _precedence,
        _no_path,
        _transfer_missing,
        _transfer_extra,
        _transfer_time,
        _transfer_early,
        _contention,
        _memory,
        _makespan,
    )
    return [violation for check in checks for violation in check(facts)]


def _check_same_names(problem: Problem, schedule: Schedule) -> None:
    for what, expected, actual in (("task", problem.graph.names, schedule.tasks), ("device", problem.cluster.names, schedule.devices)):
        if expected is actual or expected == actual:
            continue
        known, given = set(expected), set(actual)
        missing, extra = [name for name in expected if name not in given], [name for name in actual if name not in known]
        differences = [f"{verb} {named(range(len(names)), names)}" for verb, names in (("lacks", missing), ("adds", extra)) if names]
        if not differences and len(expected) != len(actual):
            differences = ["names some twice"]
        if differences:
            raise InvalidSchedule(
                f"the schedule has {len(actual)} {what}s, the problem {len(expected)}: it {' and '.join(differences)}; "
                "check it against the problem it was made for"
            )
        for x, (our, their) in enumerate(zip(expected, actual, strict=True)):
            if our != their:
                raise InvalidSchedule(
                    f"{what} {x} is {their!r} in the schedule but {our!r} in the problem; list the {what}s in the problem's order"
                )
    if schedule.n_inputs != problem.inputs:
        raise InvalidSchedule(f"the schedule has {schedule.n_inputs} inputs, the problem {problem.inputs}")
    edge, n_edges = schedule.transfers.edge, problem.graph.n_edges
    if len(edge) and not (0 <= edge.min() and edge.max() < n_edges):
        raise InvalidSchedule(f"a transfer's edge index runs from {edge.min()} to {edge.max()} but the problem has {n_edges} edges")


def _rows(mask: BoolArray) -> list[int]:
    rows: list[int] = mask.nonzero()[0].tolist()
    return rows


def _of_batches(facts: Facts, rule: str, message: str, amount: float, *batches: int, times: Sequence[float] = ()) -> Violation:
    """Return a violation with the tasks, devices and inputs of some batches."""
    return Violation(
        rule,
        message,
        float(amount),
        tuple(dict.fromkeys(map(facts.task_name, batches))),
        tuple(dict.fromkeys(map(facts.device_name, batches))),
        tuple(sorted({item for b in batches for item in facts.items(b)})),
        tuple(map(float, times)),
    )


# ---------------------------------------------------------------------- assignment


def _coverage(facts: Facts) -> Iterator[Violation]:
    if facts.once and facts.count.all() and not facts.repeats.any():
        return
    names = facts.problem.graph.names
    copies = facts.copies.reshape(len(names), facts.problem.inputs)
    for i in _rows(np.any(copies == 0, axis=1)):
        items = _rows(copies[i] == 0)
        message = f"{inputs_text(items)} of task {names[i]!r} in no batch"
        yield Violation("coverage", message, len(items), (names[i],), items=tuple(items))
    for i in _rows(np.any(copies > 1, axis=1)):
        items = _rows(copies[i] > 1)
        message = f"{inputs_text(items)} of task {names[i]!r} in {copies[i].max()} batches"
        yield Violation("coverage", message, len(items), (names[i],), items=tuple(items))
    for b in _rows(facts.count == 0):
        yield _of_batches(facts, "coverage", f"batch {b}, task {facts.batch(b)}, has no inputs", 1, b)
    for b in _rows(facts.repeats > 0):
        yield _of_batches(facts, "coverage", f"batch {b}, task {facts.batch(b)}, lists an input more than once", facts.repeats[b], b)


def _batch_size(facts: Facts) -> Iterator[Violation]:
    stated = np.asarray(facts.schedule.batches.size)
    for b in _rows((stated != facts.count) & (facts.repeats == 0)):
        message = f"the batch of task {facts.batch(b)} states size {stated[b]} but has {facts.count[b]}"
        yield _of_batches(facts, "batch-size", message, abs(stated[b] - facts.count[b]), b)
    for b in facts.no_duration:
        sizes = facts.sizes(b)
        if len(sizes) and facts.count[b] > 0:
            message = f"task {facts.batch(b)} runs {facts.count[b]} at once; its batch sizes there are {sizes.tolist()}"
            yield _of_batches(facts, "batch-size", message, np.abs(sizes - facts.count[b]).min(), b)


def _once(facts: Facts) -> Iterator[Violation]:
    if facts.problem.batching != "once" or (facts.once and len(facts.task) == facts.problem.n_tasks):
        return
    pair = facts.task * facts.problem.n_devices + facts.device
    ordered = np.sort(pair)
    for value in distinct(ordered[1:][ordered[1:] == ordered[:-1]]):
        batches = _rows(pair == value)
        where = f"task {facts.task_name(batches[0])!r} has {len(batches)} batches on {facts.device_name(batches[0])!r}"
        message = f"{where}; batching='once' allows one"
        yield _of_batches(facts, "once", message, len(batches) - 1, *batches)


def _eligibility(facts: Facts) -> Iterator[Violation]:
    for b in facts.no_duration:
        if not len(facts.sizes(b)):
            yield _of_batches(facts, "eligibility", f"task {facts.batch(b)}, where it has no duration", facts.count[b], b)


def _pin(facts: Facts) -> Iterator[Violation]:
    graph, index = facts.problem.graph, facts.problem.cluster.index
    if graph.devices.count(None) == graph.n_tasks:
        return
    allowed = np.ones((graph.n_tasks, facts.problem.n_devices), bool)
    for i, pin in enumerate(graph.devices):
        if pin is not None:
            allowed[i] = False
            allowed[i, [index[name] for name in pin]] = True
    for b in _rows(~allowed[facts.task, facts.device]):
        pin = graph.devices[facts.task[b]] or ()
        yield _of_batches(facts, "pin", f"task {facts.batch(b)} but pinned to {named(range(len(pin)), pin)}", facts.count[b], b)


def _colocation(facts: Facts) -> Iterator[Violation]:
    labels, devices = facts.problem.graph.colocation, facts.problem.cluster.names
    if labels.count(None) == len(labels):
        return
    number = {label: x for x, label in enumerate(dict.fromkeys(label for label in labels if label is not None))}
    label = np.array([-1 if name is None else number[name] for name in labels], np.int64)[facts.task[facts.row_batch]]
    rows = np.flatnonzero(label >= 0)
    cell, device = label[rows] * facts.problem.inputs + facts.row_item[rows], facts.device[facts.row_batch[rows]]
    lowest, highest = np.full(len(number) * facts.problem.inputs, len(devices)), np.full(len(number) * facts.problem.inputs, -1)
    np.minimum.at(lowest, cell, device)
    np.maximum.at(highest, cell, device)
    split = (lowest < highest).reshape(len(number), facts.problem.inputs)
    for name, x in number.items():
        if split[x].any():
            items = _rows(split[x])
            members = rows[(label[rows] == x) & split[x][facts.row_item[rows]]]
            batches = np.unique(facts.row_batch[members])
            tasks = tuple(facts.problem.graph.names[i] for i in np.unique(facts.task[batches]))
            where = tuple(devices[k] for k in np.unique(facts.device[batches]))
            message = (
                f"co-location label {name!r} is split for {inputs_text(items)}: {named(range(len(tasks)), tasks)} run on "
                f"{named(range(len(where)), where)}"
            )
            yield Violation("colocation", message, len(items), tasks, where, tuple(items))


# ---------------------------------------------------------------------- times


def _time(facts: Facts) -> Iterator[Violation]:
    columns = facts.schedule.batches
    for b, first, last, amount in _improper(columns, facts.start, facts.finish, facts.tolerance):
        message = f"task {facts.batch(b)} runs from {first:.9g} s to {last:.9g} s; times must be finite and not negative"
        yield _of_batches(facts, "time", message, amount, b, times=(first, last))
    columns = facts.schedule.transfers
    for x, first, last, amount in _improper(columns, facts.move_start, facts.move_finish, facts.tolerance):
        edge, a, b = facts.move(x)
        message = f"{facts.transfer(edge, a, b)} runs from {first:.9g} s to {last:.9g} s; times must be finite and not negative"
        yield _of_batches(facts, "time", message, amount, a, b, times=(first, last))


def _improper(columns: Columns, start: FloatArray, finish: FloatArray, tolerance: float) -> Iterator[tuple[int, float, float, float]]:
    """Yield (row, start, finish, amount) of invalid times; `start` and `finish` are the columns' as `Facts` has them."""
    first = np.minimum(start, finish)  # NaN where one is not finite
    for x in _rows(~(first >= -tolerance)):
        yield x, float(columns.start[x]), float(columns.finish[x]), np.inf if np.isnan(first[x]) else -float(first[x])


def _duration(facts: Facts) -> Iterator[Violation]:
    taken = facts.finish - facts.start
    for b in _rows(np.abs(taken - facts.duration) > facts.tolerance):
        message = f"task {facts.batch(b)} takes {taken[b]:.9g} s, its duration there is {facts.duration[b]:.9g} s"
        yield _of_batches(facts, "duration", message, abs(taken[b] - facts.duration[b]), b, times=(facts.start[b], facts.finish[b]))


def _overlaps(resource: IntArray, start: FloatArray, finish: FloatArray, tolerance: float) -> Iterator[tuple[int, int, float]]:
    """Yield (earlier, later, seconds) for each half-open interval that starts while its resource is in use."""
    begins, free = start[1:], finish[:-1]
    later = (begins >= start[:-1]) & (free - begins <= tolerance) & (resource[1:] == resource[:-1]) | (resource[1:] > resource[:-1])
    if later.all() and (finish >= start).all():
        return  # listed by resource and start, as the simulator's schedules are
    busy = np.flatnonzero(finish > start)
    order = busy[np.lexsort((finish[busy], start[busy], resource[busy]))]
    before, after = order[:-1], order[1:]
    same = resource[before] == resource[after]
    if not (same & (finish[before] - start[after] > tolerance)).any():
        return  # starts ascend, so without an overlap of neighbours there is none
    for group in np.split(order, np.flatnonzero(~same) + 1):
        last = np.maximum.accumulate(finish[group])
        holder = np.maximum.accumulate(np.where(finish[group] == last, np.arange(len(group)), 0))
        overlap = np.minimum(last[:-1], finish[group[1:]]) - start[group[1:]]
        for x in _rows(overlap > tolerance):
            yield int(group[holder[x]]), int(group[x + 1]), float(overlap[x])


def _device_overlap(facts: Facts) -> Iterator[Violation]:
    for a, b, overlap in _overlaps(facts.device, facts.start, facts.finish, facts.tolerance):
        message = (
            f"task {facts.batch(b)} starts at {facts.start[b]:.9g} s, while {facts.batch(a)} runs until {facts.finish[a]:.9g} s: "
            f"they overlap by {overlap:.9g} s"
        )
        yield _of_batches(facts, "device-overlap", message, overlap, a, b, times=(facts.start[b], facts.finish[a]))


def _precedence(facts: Facts) -> Iterator[Violation]:
    arcs = facts.arcs
    ready = np.where(arcs.remote, np.nan, facts.finish[arcs.source])
    ready[arcs.served] = facts.move_finish[arcs.transfer[arcs.served]]
    early = ready - facts.start[arcs.target]
    for x in _rows(early > facts.tolerance):
        a, b = int(arcs.source[x]), int(arcs.target[x])
        what = f"{facts.transfer(arcs.edge[x], a, b)} ends" if arcs.remote[x] else f"its producer {facts.batch(a)} finishes"
        message = f"task {facts.batch(b)} starts at {facts.start[b]:.9g} s, {early[x]:.9g} s before {what} at {ready[x]:.9g} s"
        yield _of_batches(facts, "precedence", message, early[x], a, b, times=(facts.start[b], ready[x]))


# ---------------------------------------------------------------------- transfers


def _no_path(facts: Facts) -> Iterator[Violation]:
    for x in _rows(np.isinf(facts.arcs.seconds)):
        e, a, b = int(facts.arcs.edge[x]), int(facts.arcs.source[x]), int(facts.arcs.target[x])
        where = f"{facts.device_name(a)!r} and {facts.device_name(b)!r}"
        message = f"edge {facts.edge_text(e)} is split over {where}, between which there is no path"
        yield _of_batches(facts, "no-path", message, facts.arcs.shared[x], a, b)


def _transfer_missing(facts: Facts) -> Iterator[Violation]:
    arcs = facts.arcs
    if np.count_nonzero(arcs.remote) == len(arcs.served):
        return
    for x in _rows(arcs.remote & (arcs.transfer < 0) & np.isfinite(arcs.seconds)):
        e, a, b = int(arcs.edge[x]), int(arcs.source[x]), int(arcs.target[x])
        yield _of_batches(facts, "transfer-missing", f"{facts.transfer(e, a, b)} is missing; it takes {arcs.seconds[x]:.9g} s", 1, a, b)


def _transfer_extra(facts: Facts) -> Iterator[Violation]:
    for x in _rows(facts.arc_of_move < 0):
        e, a, b = facts.move(x)
        if tuple(facts.problem.graph.edges[e]) != (facts.task[a], facts.task[b]):
            why = f"joins batches of {facts.task_name(a)!r} and {facts.task_name(b)!r}"
        elif not set(facts.items(a)) & set(facts.items(b)):
            why = "joins batches without a common input"
        elif facts.device[a] == facts.device[b]:
            why = "joins batches on one device"
        else:
            why = "is listed more than once"
        yield _of_batches(facts, "transfer-extra", f"{facts.transfer(e, a, b)} {why}; it must not be there", 1, a, b)


def _transfer_time(facts: Facts) -> Iterator[Violation]:
    arcs = facts.arcs
    moves, expected = arcs.transfer[arcs.served], arcs.seconds[arcs.served]
    taken = (facts.move_finish - facts.move_start)[moves]
    for x in _rows((np.abs(taken - expected) > facts.tolerance) & np.isfinite(expected)):
        edge, a, b = facts.move(moves[x])
        carried = "" if facts.problem.inputs == 1 else f" for {plural(int(arcs.shared[arcs.served[x]]), 'input')}"
        message = f"{facts.transfer(edge, a, b)} takes {taken[x]:.9g} s, its transfer time{carried} is {expected[x]:.9g} s"
        times = (facts.move_start[moves[x]], facts.move_finish[moves[x]])
        yield _of_batches(facts, "transfer-time", message, abs(taken[x] - expected[x]), a, b, times=times)


def _transfer_early(facts: Facts) -> Iterator[Violation]:
    early = facts.finish[facts.move_source] - facts.move_start
    for x in _rows((early > facts.tolerance) & (facts.arc_of_move >= 0)):
        e, a, b = facts.move(x)
        message = (
            f"{facts.transfer(e, a, b)} starts at {facts.move_start[x]:.9g} s, {early[x]:.9g} s before its producer finishes "
            f"at {facts.finish[a]:.9g} s"
        )
        yield _of_batches(facts, "transfer-early", message, early[x], a, b, times=(facts.move_start[x], facts.finish[a]))


def _contention(facts: Facts) -> Iterator[Violation]:
    model, devices = facts.problem.communication, facts.problem.cluster.names
    if model == "delay" or model == "per-input":
        return
    needed = np.flatnonzero(facts.arc_of_move >= 0)
    h, k = facts.device[facts.move_source[needed]], facts.device[facts.move_target[needed]]
    ports: Sequence[str] = devices
    if model == "channel":
        resources = [("", h * len(devices) + k)]
    elif model == "port":
        resources = [("send", h), ("receive", k)]
    elif model == "node":
        nodes = [device.node for device in facts.problem.cluster.devices]
        ports = [node or devices[x] for x, node in enumerate(nodes)]
        host = np.array([nodes.index(node) if node else x for x, node in enumerate(nodes)])  # a device without a node is its own node
        needed = needed[host[h] != host[k]]
        resources = [("send", host[facts.device[facts.move_source[needed]]]), ("receive", host[facts.device[facts.move_target[needed]]])]
    else:
        assert_never(model)  # mypy names a model without a rule
    start, finish = facts.move_start[needed], facts.move_finish[needed]
    for role, resource in resources:
        for x, y, overlap in _overlaps(resource, start, finish, facts.tolerance):
            first, second = int(needed[x]), int(needed[y])
            ends = [facts.move(first), facts.move(second)]
            where = f"the {role} port of {ports[resource[x]]!r}" if role else f"the channel {devices[h[x]]!r} -> {devices[k[x]]!r}"
            message = f"{facts.transfer(*ends[0])} and {facts.transfer(*ends[1])} overlap on {where} by {overlap:.9g} s"
            times = (start[y], finish[x])
            yield _of_batches(facts, f"{model}-overlap", message, overlap, *ends[0][1:], *ends[1][1:], times=times)


# ---------------------------------------------------------------------- memory and makespan


def _static_bytes(facts: Facts) -> FloatArray:
    """Return the static memory of each device in bytes, [K]: weights once per task, plus input and output of every (task, input)."""
    graph, n_devices = facts.problem.graph, facts.problem.n_devices
    device, task = np.divmod(distinct(facts.device * graph.n_tasks + facts.task), max(graph.n_tasks, 1))
    moved = graph.input_bytes + graph.output_bytes
    result = np.zeros(n_devices)
    result += np.bincount(device, weights=graph.weight_bytes[task], minlength=n_devices)
    result += np.bincount(facts.device, weights=moved[facts.task] * facts.count, minlength=n_devices)
    return result


def _peak_bytes(facts: Facts) -> FloatArray:
    """Return the peak memory of each device in bytes, [K]."""
    graph, arcs, n_devices = facts.problem.graph, facts.arcs, facts.problem.n_devices
    task, device = facts.task[facts.row_batch], facts.device[facts.row_batch]
    start, finish = facts.start[facts.row_batch], facts.finish[facts.row_batch]
    childless, parentless = (np.bincount(column, minlength=graph.n_tasks) == 0 for column in (graph.edges[:, 0], graph.edges[:, 1]))
    needed_until, served = np.where(arcs.remote, -np.inf, facts.finish[arcs.target]), arcs.served
    needed_until[served] = facts.move_finish[arcs.transfer[served]]
    release = np.where(childless[task], facts.makespan, finish)
    np.fmax.at(release, facts.source_row, needed_until[facts.arc_of])
    arriving, first = arcs.target[served], parentless[task]
    holders = np.concatenate([device, facts.device[arriving], device[first]])
    since = np.concatenate([start, facts.move_start[arcs.transfer[served]], np.zeros(int(first.sum()))])
    until = np.concatenate([release, facts.finish[arriving], finish[first]])
    size = np.concatenate(
        [graph.output_bytes[task], graph.edge_bytes[arcs.edge[served]] * arcs.shared[served], graph.input_bytes[task[first]]]
    )
    peak = np.zeros(n_devices)
    for k in range(n_devices):
        held = (holders == k) & (until - since > facts.tolerance)
        moments = np.concatenate([since[held], until[held] - facts.tolerance])  # releases within the tolerance come first
        times, moment = np.unique(moments, return_inverse=True)
        change = np.bincount(moment, weights=np.concatenate([size[held], -size[held]]), minlength=len(times))
        peak[k] = np.cumsum(change).max(initial=0.0)
    pair = np.unique(np.stack([facts.device, facts.task]), axis=1)
    return peak + np.bincount(pair[0], weights=graph.weight_bytes[pair[1]], minlength=n_devices)


def _memory(facts: Facts) -> Iterator[Violation]:
    model, devices, capacity = facts.problem.memory, facts.problem.cluster.names, facts.problem.cluster.memory_bytes
    if np.isinf(capacity).all():
        return
    needed = _static_bytes(facts) if model == "static" else _peak_bytes(facts)
    for k in _rows(needed > capacity * (1 + TOLERANCE)):
        over = float(needed[k] - capacity[k])
        tasks = np.unique(facts.task[facts.device == k])
        message = f"{devices[k]!r} needs {needed[k]:.9g} bytes, {over:.9g} more than its {capacity[k]:.9g} ({model} memory)"
        yield Violation("memory", message, over, tuple(facts.problem.graph.names[i] for i in tasks), (devices[k],))


def _makespan(facts: Facts) -> Iterator[Violation]:
    stated = facts.schedule.makespan
    off = abs(stated - facts.makespan)
    if not off <= facts.tolerance:
        amount = off if np.isfinite(off) else np.inf
        message = f"the stated makespan is {stated:.9g} s, the last finish {facts.makespan:.9g} s"
        yield Violation("makespan", message, amount, times=(stated, facts.makespan))
