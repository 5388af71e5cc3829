"""The independent check of the sets of devices that run the stages of a model together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from hetsched.arguments import COUNT, checked
from hetsched.chain.card import ModelCard
from hetsched.chain.machine import Machine
from hetsched.problem.graph import plural
from hetsched.verification.verify import Violation

TENSOR_PARALLEL_RULES = {
    "unknown": "a set has devices of the machine only (amount: others)",
    "size": "a set has as many devices as the degree says (amount: devices too many or too few)",
    "shared": "a device is in one set, once (amount: times too many)",
    "node": "the devices of a set are in one node (amount: nodes too many)",
    "alike": "the devices of a set have the same kind, memory and speeds (amount: kinds too many)",
    "heads": "the degree divides the attention heads of a block (amount: heads that are left)",
    "kv-heads": "the degree divides the KV heads of a block, or they divide it (amount: heads that are left)",
}
"""The rules of `verify_tensor_parallel`, in order, with the unit of ``Violation.amount``."""


@checked(degree=COUNT)
def verify_tensor_parallel(card: ModelCard, machine: Machine, sets: Sequence[Sequence[str]], degree: int) -> list[Violation]:
    """Return every violation of the rules of tensor parallelism; an empty list if the stages can run on the sets.

    It shares no code with what makes the sets. ``Violation.tasks`` are names of items.

    Parameters
    ----------
    card : ModelCard
    machine : hetsched.Machine
    sets : sequence of sequence of str
        The names of the devices of each stage.
    degree : int
        How many devices run each stage; with 1 the heads of the card are not looked at.
    """
    return [*_sets(machine, sets, degree), *(_heads(card, degree) if degree > 1 else ())]


def _sets(machine: Machine, sets: Sequence[Sequence[str]], degree: int) -> Iterator[Violation]:
    known = {device.name: device for device in machine.cluster.devices}
    apart = any(device.node for device in known.values())
    for s, names in enumerate(sets):
        others = tuple(name for name in names if name not in known)
        if others:
            yield Violation(
                "unknown", f"stage {s} is on {others[0]!r}, which the machine does not have", float(len(others)), devices=others
            )
        off = abs(len(names) - degree)
        if off:
            yield Violation("size", f"stage {s} is on {plural(len(names), 'device')}, not on {degree}", float(off), devices=tuple(names))
    for name, count in Counter(name for names in sets for name in names).items():
        if count > 1:
            yield Violation("shared", f"{name!r} is in the sets of the stages {count} times", float(count - 1), devices=(name,))
    for s, names in enumerate(sets):
        own = [known[name] for name in names if name in known]
        kinds = {
            (
                device.kind,
                device.memory_bytes,
                machine.reserved_bytes.get(device.name, 0.0),
                device.memory_bandwidth,
                frozenset(device.peak_flops.items()),
                machine.efficiency.get(device.name),
            )
            for device in own
        }
        nodes = {device.node or (device.name if apart else "") for device in own}
        for rule, what, values in (("node", "nodes", len(nodes)), ("alike", "kinds, memories or speeds", len(kinds))):
            if values > 1:
                yield Violation(rule, f"stage {s} is on devices of {values} {what}", float(values - 1), devices=tuple(names))


def _heads(card: ModelCard, degree: int) -> Iterator[Violation]:
    items = card.items
    for i in range(1, card.n_items - 1):
        name, heads, size = str(items.name[i]), int(items.heads[i]), int(items.key_size[i] + items.value_size[i])
        kept = int(items.cache_numbers[i]) // size if size else 0
        if not heads or heads % degree:
            message = f"item {name!r} has {heads} attention heads, which {degree} does not divide"
            yield Violation("heads", message, float(heads % degree or 1), (name,))
        if not kept or (kept % degree and degree % kept):
            yield Violation("kv-heads", f"item {name!r} has {kept} KV heads for {degree} devices", float(kept % degree or 1), (name,))
