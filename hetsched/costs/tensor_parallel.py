"""Tensor parallelism: the share of a model that each of several alike devices computes, and the messages between them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from hetsched.arrays import FloatArray, IntArray
from hetsched.chain.card import PARTS, ModelCard
from hetsched.chain.machine import Machine
from hetsched.chain.problem import ChainProblem
from hetsched.chain.workload import Workload
from hetsched.costs.language import kinds_of

_DIVIDED = [PARTS.index(part) for part in ("dense_ffn", "experts", "shared")]
_ATTENTION, _EXPERTS, _TABLE = (PARTS.index(part) for part in ("attention", "experts", "table"))
SOURCE = "two all-reduces a block (Shoeybi et al. 2019), each as a ring over the slowest link (Patarasuk and Yuan 2009)"
"""Where the messages between the ranks are from."""


def indivisible(card: ModelCard, ranks: int, multiple: int) -> str:
    """Return why a model cannot be divided among ranks, and what to do; empty if it can.

    The rule is that of vLLM, SGLang and Megatron: the ranks divide the attention heads, the widths of the feed-forward networks and the
    padded vocabulary; and they divide the KV heads, or these the ranks, which then hold copies.

    Parameters
    ----------
    card : ModelCard
    ranks : int
    multiple : int
        The vocabulary is padded to a multiple of it.
    """
    items, n = card.items, card.n_blocks
    blocks = slice(1, n + 1)
    sizes = items.key_size + items.value_size
    if not card.decodes or not (items.heads[blocks] > 0).all():
        return f"{card.name!r} has blocks without attention heads, or no decoder, whose division is not known; give tensor_parallel=1"
    if card.token_flops is not None:
        return f"{card.name!r} has FLOPs that were counted by item, whose division is not known; give tensor_parallel=1"
    if (items.decode_key_size + items.decode_value_size != sizes).any():
        return f"{card.name!r} keeps keys and values compressed, whose division is not modelled; give tensor_parallel=1"
    for name, heads in (("attention heads", items.heads), ("KV heads", _kv_heads(card))):
        undivided = [int(h) for h in heads[blocks] if h % ranks and (name == "attention heads" or not h or ranks % h)]
        if undivided:
            rule = "must divide them" if name == "attention heads" else "must divide them, or be a multiple of them"
            return f"{card.name!r} has {undivided[0]} {name}, and tensor_parallel is {ranks}; it {rule}"
    for width in sorted(_widths(card)):
        if width % ranks:
            return f"{card.name!r} has a feed-forward network of width {width:g}, and tensor_parallel is {ranks}; it must divide the width"
    padded = _padded(card, multiple)
    if card.n_logits and padded % ranks:
        return f"{card.name!r} has a vocabulary that is padded to {padded}, and tensor_parallel is {ranks}; it must divide that"
    return ""


def _padded(card: ModelCard, multiple: int) -> int:
    return math.ceil(card.vocabulary / multiple) * multiple


def _kv_heads(card: ModelCard) -> IntArray:
    """Return the KV heads of each item, each with keys and values of its own [n]."""
    heads: IntArray = card.items.cache_numbers // np.maximum(card.items.key_size + card.items.value_size, 1)
    return heads


def _widths(card: ModelCard) -> set[float]:
    """Return the widths of all feed-forward networks, by their numbers of parameters: two or three matrices, and biases or a gate."""
    d, found = card.width, set[float]()
    for part in _DIVIDED:
        of_one = card.parameters[:, part] / (np.maximum(card.items.experts, 1) if part == _EXPERTS else 1)
        for numbers in set(of_one[of_one > 0].tolist()):
            known = [(numbers - beside) / each for each, beside in ((3 * d, 0), (3 * d, d), (3 * d + 2, d), (2 * d + 1, d), (2 * d, 0))]
            found.add(next((width for width in known if width == int(width)), numbers / d))
    return found


def card_of_rank(card: ModelCard, ranks: int, multiple: int) -> ModelCard:
    """Return the card of what one of several ranks holds and computes; arguments are as those of `indivisible`, which is empty for them.

    Heads, feed-forward networks and the rows of tables are divided; norms, routers and the positions of a table are held by each rank,
    and so are KV heads, with their projections, of which there are fewer than ranks. Biases count as divided. The workspace has room for
    the whole width between items.
    """
    items, parameters, whole = card.items, card.parameters.copy(), 2 * card.width
    kv = _kv_heads(card)
    copies = np.minimum(np.maximum(kv, 1), ranks)  # by which keys and values are divided
    projections = np.minimum(card.width * items.cache_numbers, parameters[:, _ATTENTION])
    parameters[:, _ATTENTION] = (parameters[:, _ATTENTION] - projections) / ranks + projections / copies
    parameters[:, _DIVIDED] /= ranks
    words = np.minimum(card.vocabulary * card.width, parameters[:, _TABLE])
    parameters[:, _TABLE] += words * (_padded(card, multiple) / card.vocabulary / ranks - 1)
    share = np.divide(parameters, card.parameters, out=np.ones_like(parameters), where=card.parameters > 0)
    workspace = np.where(items.heads > 0, whole + np.ceil((items.workspace_numbers - whole) / ranks), items.workspace_numbers)
    divided = {
        "heads": items.heads // ranks,
        "cache_numbers": items.cache_numbers // copies,
        "workspace_numbers": workspace.astype(np.int64),
    }
    given = {name: getattr(card, name) for name in card._fields} | {
        "items": items.replace(**divided),
        "parameters": parameters,
        "weight_bytes": card.weight_bytes * share,
        "exact": False,
        "tensors": None,
    }
    return ModelCard(**given)


def device_sets(machine: Machine, names: Sequence[str], size: int, *, in_order: bool = False) -> tuple[tuple[str, ...], ...]:
    """Return sets of alike devices of a node, each of a size, that have no device in common; devices that are left are in none.

    Parameters
    ----------
    machine : hetsched.Machine
    names : sequence of str
        Devices of the machine.
    size : int
    in_order : bool
        Whether sets are devices that follow one another in `names`; there are none if those are not alike. Otherwise a set has the devices
        of a node between which the slowest link is fastest, beginning with any that is left and adding the next best.
    """
    devices, kinds = machine.cluster.devices, kinds_of(machine)
    apart = any(device.node for device in devices)

    def like(name: str) -> tuple[object, ...]:
        k = machine.cluster.index[name]
        return devices[k].node or (name if apart else ""), devices[k].family, devices[k].memory_bytes, kinds[k]

    if in_order:
        sets = [tuple(names[k : k + size]) for k in range(0, len(names) - size + 1, size)]
        return tuple(sets) if all(len(set(map(like, own))) == 1 for own in sets) else ()
    fast = {(a, b): _slowest(machine, (a, b)) for a, b in itertools.permutations(names, 2) if like(a) == like(b)}
    found = []
    for own in dict.fromkeys(map(like, names)):
        left = [name for name in names if like(name) == own]
        while len(left) >= size:
            best = max((_grown(fast, left, first, size) for first in left), key=lambda one: one[0])[1]
            found.append(tuple(name for name in left if name in best))
            left = [name for name in left if name not in best]
    return tuple(sorted(found, key=lambda one: names.index(one[0])))


def _slowest(machine: Machine, names: Sequence[str]) -> tuple[float, float]:
    """Return the least bandwidth, and the negative of the largest latency, of the links between devices."""
    index, cluster = machine.cluster.index, machine.cluster
    pairs = list(itertools.permutations((index[name] for name in names), 2))
    bandwidth, latency = (
        min([sign * float(table[pair]) for pair in pairs], default=math.inf)
        for sign, table in ((1, cluster.route_bandwidth), (-1, cluster.route_latency))
    )
    return bandwidth, min(latency, 0.0)


def _grown(
    fast: Mapping[tuple[str, str], tuple[float, float]], names: Sequence[str], first: str, size: int
) -> tuple[tuple[float, float], list[str]]:
    """Return the slowest link of a set that begins with a device, to which the one with the fastest links is added again and again."""
    own, least = [first], (math.inf, 0.0)
    slow = {name: fast[first, name] for name in names if name != first}
    while len(own) < size:
        name = max(slow, key=lambda one: slow[one])
        own.append(name)
        least = min(least, slow.pop(name))
        slow = {other: min(link, fast[name, other]) for other, link in slow.items()}
    return least, own


def on_sets(problem: ChainProblem, sets: Sequence[Sequence[str]], between: FloatArray) -> ChainProblem:
    """Return the problem whose devices are sets of alike devices of a problem, which is that of one rank.

    A set takes the time of its slowest device and the messages between them, has the least memory of any of them, and a hop to another set
    takes as long as that between the two devices that are farthest apart.

    Parameters
    ----------
    problem : ChainProblem
    sets : sequence of sequence of str
    between : float64 [n, set]
        Seconds of messages between the devices of a set for each item.
    """
    own = [[problem.devices.index(name) for name in names] for names in sets]

    def apart(pairs: FloatArray) -> list[list[float]]:
        return [[0.0 if a is b else float(pairs[np.ix_(a, b)].max()) for b in own] for a in own]

    return problem.replace(
        devices=[set_name(names) for names in sets],
        seconds=np.stack([problem.seconds[:, members].max(axis=1) for members in own], axis=1) + between,
        overlapped_seconds=None,
        overlapped_hops=None,
        memory_bytes=[problem.memory_bytes[members].min() for members in own],
        stage_seconds=[problem.stage_seconds[members].max() for members in own],
        hops=apart(problem.hops),
        closing=apart(problem.closing),
    )


def set_name(names: Sequence[str]) -> str:
    """Return the name of a set of devices: ``"gpu0+gpu1"``."""
    return "+".join(names)


def messages_within(
    card: ModelCard, machine: Machine, work: Workload, sets: Sequence[Sequence[str]], *, in_progress: int = 1
) -> FloatArray:
    """Return the seconds of the messages between the devices of each set for each item, modelled [n, set].

    A block has two all-reduces of its activations for each run (Shoeybi et al., Megatron-LM, 2019), the embedding one, and the head gathers
    the logits. An all-reduce of b bytes among t devices takes ``2 (t - 1) / t * b`` over the bandwidth, and ``2 (t - 1)`` latencies, of the
    slowest link between any two of them, as a ring does (Patarasuk and Yuan, 2009); a gather takes half of that. Messages and computation
    do not overlap.

    Parameters
    ----------
    card, machine, work, in_progress
        As those of ``LanguageRoofline.chain``; the card is the whole one.
    sets : sequence of sequence of str
    """
    batch = math.ceil(work.sequences / in_progress)
    runs = math.ceil(work.prompt * batch / work.chunk) + work.output
    activations = batch * (work.prompt + work.output) * card.width * work.activation_bytes
    logits = batch * (1 + work.output) * card.n_logits * work.activation_bytes
    seconds = np.zeros((card.n_items, len(sets)))
    for k, names in enumerate(sets):
        bandwidth, latency, t = *_slowest(machine, names), len(names)
        if not bandwidth:
            seconds[:, k] = np.inf
            continue
        ring = np.array([1.0, 2.0, 0.5])[:, None] * (2 * (t - 1)) * np.array([1 / t / bandwidth, -latency])
        embed, block, head = (parts @ (amount, runs) for parts, amount in zip(ring, (activations, activations, logits), strict=True))
        seconds[:, k] = [embed, *[block] * card.n_blocks, head]
    return seconds
