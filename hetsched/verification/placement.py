"""The independent check of placements of chains."""

from __future__ import annotations

import math
from collections.abc import Iterator

from hetsched.arguments import checked
from hetsched.chain.placement import ChainStage, Placement
from hetsched.chain.problem import ChainProblem
from hetsched.problem.graph import plural
from hetsched.verification.facts import TOLERANCE
from hetsched.verification.verify import Violation

PLACEMENT_RULES = {
    "coverage": "every item is in exactly one stage (amount: stages too many, or 1)",
    "range": "a stage has items of the chain only (amount: others)",
    "order": "the first stage begins with the first item, every other where the last one ends (amount: items between)",
    "empty": "a stage has an item at least (amount: items too few)",
    "device": "a stage is on a device of the problem (amount: 1)",
    "one-stage": "a device has at most one stage, but that of the first may run later ones, all offloaded (amount: stages too many)",
    "item-time": "a stage and its items take a finite time on its device (amount: items, or 1 for the stage)",
    "nodes": "stages on a node follow one another, as many on each that has any, if that is a rule (amount: runs or numbers too many)",
    "hop": "from a stage to the next, and from the last of several back to the first, takes a finite time (amount: 1)",
    "offload": "an item is offloaded at most once, from a stage to another device, if it may be, in finite time (amount: 1)",
    "kept": "a stage with offloaded items keeps some of its weights (amount: 1)",
    "memory": "a device has the bytes that its stage needs, and those that it holds for others (amount: bytes over)",
    "latency": "the stated latency is that of the stages (amount: seconds off)",
    "period": "the stated period is that of the stages (amount: seconds off)",
}
"""The rules of `verify_placement`, in order, with the unit of ``Violation.amount``."""


@checked
def verify_placement(
    problem: ChainProblem, placement: Placement, *, latency: float | None = None, period: float | None = None
) -> list[Violation]:
    """Return every violation of the rules of placements; an empty list if the placement is valid.

    It shares no code with the evaluation of placements. ``Violation.tasks`` are names of items.

    Parameters
    ----------
    problem : ChainProblem
    placement : Placement
        A placement of any origin.
    latency, period : float, optional
        Stated seconds, which are compared with those of the stages with a relative tolerance of 1e-9. None checks nothing.

    Notes
    -----
    Each rule is applied to all that it can be applied to: memory and times of a stage concern those of its items that the chain
    has, and a stage on an unknown device has neither. Latency and period are compared if all devices are known, no stage has
    items that the chain lacks, and each offloaded item may be: the sum over the stages as they are.
    """
    return [
        *_coverage(problem, placement),
        *_range(problem, placement),
        *_order(placement),
        *_empty(placement),
        *_devices(problem, placement),
        *_item_times(problem, placement),
        *_nodes(problem, placement),
        *_hops(problem, placement),
        *_offloads(problem, placement),
        *_kept(problem, placement),
        *_memory(problem, placement),
        *_stated(problem, placement, latency, period),
    ]


def _own(problem: ChainProblem, stage: ChainStage) -> range:
    """Return the items of a stage that the chain has."""
    return range(max(stage.first, 0), min(stage.end, len(problem.items)))


def _known(problem: ChainProblem, stage: ChainStage) -> bool:
    return 0 <= stage.device < len(problem.devices)


def _where(problem: ChainProblem, placement: Placement, s: int) -> str:
    k = placement.stages[s].device
    return f"stage {s} on {problem.devices[k]!r}" if _known(problem, placement.stages[s]) else f"stage {s} on device {k}"


def _pairs(placement: Placement) -> list[tuple[int, int]]:
    """Return the pairs of stages between which there is a hop; the closing one is the last."""
    last = len(placement.stages) - 1
    return [(s, s + 1) for s in range(last)] + ([(last, 0)] if last > 0 else [])


def _coverage(problem: ChainProblem, placement: Placement) -> Iterator[Violation]:
    stages_of: list[list[int]] = [[] for _ in problem.items]
    for s, stage in enumerate(placement.stages):
        for i in _own(problem, stage):
            stages_of[i].append(s)
    for name, stages in zip(problem.items, stages_of, strict=True):
        if len(stages) != 1:
            where = f"stages {', '.join(map(str, stages))}" if stages else "no stage"
            yield Violation("coverage", f"item {name!r} is in {where}", float(abs(len(stages) - 1)), (name,))


def _range(problem: ChainProblem, placement: Placement) -> Iterator[Violation]:
    n = len(problem.items)
    for s, stage in enumerate(placement.stages):
        others = max(stage.end - stage.first, 0) - len(_own(problem, stage))
        if others:
            message = f"{_where(problem, placement, s)} has items {stage.first} to {stage.end - 1}; the chain has 0 to {n - 1}"
            yield Violation("range", message, float(others))


def _order(placement: Placement) -> Iterator[Violation]:
    end = 0
    for s, stage in enumerate(placement.stages):
        if stage.first != end:
            before = f"stage {s - 1} ends before item {end}" if s else "the chain begins with item 0"
            yield Violation("order", f"stage {s} begins with item {stage.first}, but {before}", float(abs(stage.first - end)))
        end = stage.end


def _empty(placement: Placement) -> Iterator[Violation]:
    for s, stage in enumerate(placement.stages):
        if stage.end <= stage.first:
            message = f"stage {s} has no item: it begins with item {stage.first} and ends before item {stage.end}"
            yield Violation("empty", message, float(stage.first - stage.end + 1))


def _returns(problem: ChainProblem, placement: Placement, s: int) -> bool:
    """Return whether a stage may be on the device of the first: if all of its items are offloaded, as only those of the first may be."""
    items, moved = _own(problem, placement.stages[s]), {item for item, _ in placement.offloaded}
    allowed = problem.offloading is not None and problem.offloading.only_first
    return (
        s > 0 and placement.stages[s].device == placement.stages[0].device and allowed and len(items) > 0 and all(i in moved for i in items)
    )


def _devices(problem: ChainProblem, placement: Placement) -> Iterator[Violation]:
    stages_of: dict[int, list[int]] = {}
    for s, stage in enumerate(placement.stages):
        if not _returns(problem, placement, s):
            stages_of.setdefault(stage.device, []).append(s)
        if not _known(problem, stage):
            message = f"stage {s} is on device {stage.device}; the problem has devices 0 to {len(problem.devices) - 1}"
            yield Violation("device", message, 1.0)
    for k, stages in stages_of.items():
        if len(stages) > 1:
            known = 0 <= k < len(problem.devices)
            name = repr(problem.devices[k]) if known else f"device {k}"
            message = f"{name} has stages {', '.join(map(str, stages))}; a device has at most one"
            yield Violation("one-stage", message, float(len(stages) - 1), devices=(problem.devices[k],) if known else ())


def _item_times(problem: ChainProblem, placement: Placement) -> Iterator[Violation]:
    for s, stage in enumerate(placement.stages):
        if not _known(problem, stage):
            continue
        name = problem.devices[stage.device]
        if problem.stage_seconds[stage.device] == math.inf:
            yield Violation("item-time", f"a stage on {name!r} takes inf seconds", 1.0, devices=(name,))
        endless = tuple(problem.items[i] for i in _own(problem, stage) if problem.seconds[i, stage.device] == math.inf)
        if endless:
            which = f"{plural(len(endless), 'item')} of {_where(problem, placement, s)}"
            message = f"{which}, the first of them {endless[0]!r}, cannot run there: inf seconds"
            yield Violation("item-time", message, float(len(endless)), endless, (name,))


def _hops(problem: ChainProblem, placement: Placement) -> Iterator[Violation]:
    for s, t in _pairs(placement):
        if not (_known(problem, placement.stages[s]) and _known(problem, placement.stages[t])):
            continue
        a, b = placement.stages[s].device, placement.stages[t].device
        closing = t == 0
        if (problem.closing if closing else problem.hops)[a, b] == math.inf:
            names = problem.devices[a], problem.devices[b]
            back = "the last stage back to the first" if closing else f"stage {s} to stage {t}"
            yield Violation("hop", f"from {back}, {names[0]!r} to {names[1]!r}, is impossible: inf seconds", 1.0, devices=names)


def _nodes(problem: ChainProblem, placement: Placement) -> Iterator[Violation]:
    if problem.nodes is None or not all(_known(problem, stage) for stage in placement.stages):
        return
    counts: dict[int, int] = {}
    runs, last = 0, -1
    for stage in placement.stages:
        node = int(problem.nodes[stage.device])
        counts[node] = counts.get(node, 0) + 1
        runs, last = runs + (node != last), node
    if runs > len(counts):
        yield Violation("nodes", "stages on other nodes are between those on one", float(runs - len(counts)))
    if len(set(counts.values())) > 1:
        numbers = ", ".join(map(str, counts.values()))
        yield Violation(
            "nodes", f"there are {numbers} stages on the nodes, which must be as many on each", float(len(set(counts.values())) - 1)
        )


def _stages_of(placement: Placement, item: int) -> list[ChainStage]:
    return [stage for stage in placement.stages if stage.first <= item < stage.end]


def _moved(problem: ChainProblem, item: int) -> float:
    """Return the bytes of an item that may be offloaded; 0 if none may, or the chain has no such item."""
    if problem.offloading is None or not 0 <= item < len(problem.items):
        return 0.0
    return float(problem.offloading.weight_bytes[item])


def _offloaded_seconds(problem: ChainProblem, item: int, device: int, holder: int) -> float:
    """Return the time of an offloaded item; inf where it is impossible."""
    moved = problem.offloading
    if moved is None or device == holder or problem.seconds[item, device] == math.inf:
        return math.inf
    kept, held = float(moved.kept_seconds[item, device]), float(moved.held_seconds[item, holder])
    return kept + held + float(moved.link_seconds[item, device, holder])


def _offloads(problem: ChainProblem, placement: Placement) -> Iterator[Violation]:
    seen: set[int] = set()
    for item, holder in placement.offloaded:
        name = problem.items[item] if 0 <= item < len(problem.items) else f"number {item}"
        stages = _stages_of(placement, item)
        reason = ""
        if item in seen:
            reason = "is offloaded twice"
        elif not _moved(problem, item):
            reason = "has no weights that may be offloaded"
        elif not stages:
            reason = "is in no stage, and offloaded"
        elif not 0 <= holder < len(problem.devices):
            reason = f"is offloaded to device {holder}; the problem has devices 0 to {len(problem.devices) - 1}"
        elif (
            problem.offloading is not None
            and problem.offloading.only_first
            and any(stage.first > 0 and not _returns(problem, placement, s) for s, stage in enumerate(placement.stages) if stage in stages)
        ):
            reason = "is offloaded behind the first stage"
        else:
            on = [stage.device for stage in stages if _known(problem, stage)]
            if any(_offloaded_seconds(problem, item, k, holder) == math.inf for k in on):
                reason = f"is offloaded to {problem.devices[holder]!r}, which is impossible: inf seconds"
        seen.add(item)
        if reason:
            yield Violation("offload", f"item {name!r} {reason}", 1.0, (name,) if 0 <= item < len(problem.items) else ())


def _kept(problem: ChainProblem, placement: Placement) -> Iterator[Violation]:
    moved = {item for item, _ in placement.offloaded}
    for s, stage in enumerate(placement.stages):
        own = _own(problem, stage)
        kept = sum(float(problem.weight_bytes[i]) - (_moved(problem, i) if i in moved else 0.0) for i in own)
        if kept <= 0 and not _returns(problem, placement, s) and any(_moved(problem, i) for i in own if i in moved):
            yield Violation("kept", f"{_where(problem, placement, s)} keeps no weights: all are offloaded", 1.0)


def _memory(problem: ChainProblem, placement: Placement) -> Iterator[Violation]:
    moved = {item for item, _ in placement.offloaded}
    held = [0.0] * len(problem.devices)
    for item, holder in placement.offloaded:
        if 0 <= holder < len(held):
            held[holder] += _moved(problem, item)
    staged = set()
    for s, stage in enumerate(placement.stages):
        own = _own(problem, stage)
        if not own or not _known(problem, stage) or _returns(problem, placement, s):
            continue
        back = [t for t in range(len(placement.stages)) if s == 0 and _returns(problem, placement, t)]
        needed = workspace = 0.0
        for i in [*own, *(i for t in back for i in _own(problem, placement.stages[t]))]:
            away = _moved(problem, i) if i in moved else 0.0
            needed += float(problem.weight_bytes[i]) - away + float(problem.cache_bytes[i])
            workspace = max(workspace, float(problem.workspace_bytes[i]) + away)
        needed += workspace + held[stage.device]
        staged.add(stage.device)
        if len(own) == len(problem.items):
            needed -= problem.shared_bytes
        free = float(problem.memory_bytes[stage.device])
        if needed > free:
            others = f", {held[stage.device]:.0f} of them for other stages" if held[stage.device] else ""
            message = f"{_where(problem, placement, s)} needs {needed:.0f} bytes{others}, {needed - free:.0f} more than its {free:.0f}"
            items = tuple(problem.items[i] for i in own)
            yield Violation("memory", message, needed - free, items, (problem.devices[stage.device],))
    for k, name in enumerate(problem.devices):
        free = float(problem.memory_bytes[k])
        if k not in staged and held[k] > free:
            message = f"{name!r} holds {held[k]:.0f} bytes for stages, {held[k] - free:.0f} more than its {free:.0f}"
            yield Violation("memory", message, held[k] - free, devices=(name,))


def _stated(problem: ChainProblem, placement: Placement, latency: float | None, period: float | None) -> Iterator[Violation]:
    stages = placement.stages
    if not stages or not all(_known(problem, stage) for stage in stages) or any(_range(problem, placement)):
        return
    if any(_offloads(problem, placement)):
        return
    holders = dict(placement.offloaded)
    loads, overlapped = [], []
    for stage in stages:
        load, part = float(problem.stage_seconds[stage.device]), 0.0
        for i in _own(problem, stage):
            k = stage.device
            load += _offloaded_seconds(problem, i, k, holders[i]) if i in holders else float(problem.seconds[i, k])
            part += float(problem.overlapped_seconds[i, stage.device])
        loads.append(load)
        overlapped.append(part)
    for s, t in _pairs(placement):
        pair = stages[s].device, stages[t].device
        loads.append(float((problem.hops if t else problem.closing)[pair]))
        if t:
            overlapped.append(float(problem.overlapped_hops[pair]))
    total = sum(loads) - sum(overlapped) + max(overlapped)
    limit = problem.most_in_progress
    at_a_time = len(stages) if limit is None or limit > len(stages) else limit
    for rule, stated, expected in (("latency", latency, total), ("period", period, max(*loads, total / at_a_time))):
        if stated is None or stated == expected or abs(stated - expected) <= TOLERANCE * expected < math.inf:
            continue
        off = abs(stated - expected)
        message = f"the stated {rule} is {stated:.12g} s, that of the stages {expected:.12g} s"
        yield Violation(rule, message, math.inf if math.isnan(off) else off, times=(stated, expected))
