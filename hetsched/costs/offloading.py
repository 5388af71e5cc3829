"""Times of a language model's items whose weights another device holds: experts that a CPU computes, and weights that are copied."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hetsched.arrays import FloatArray
from hetsched.chain.card import PARTS, ModelCard
from hetsched.chain.machine import Machine
from hetsched.chain.offloading import Offloading
from hetsched.chain.workload import Workload
from hetsched.costs.language import LanguageRoofline, LanguageWork, alike, messages, reached

COPIED_FROM = 32
"""Tokens from which llama.cpp copies experts to the GPU, and does not compute with them on the CPU."""


def experts_held(card: ModelCard, machine: Machine, work: Workload, holders: Sequence[int], costs: LanguageRoofline | None) -> Offloading:
    """Return what blocks take whose experts a CPU holds, as in llama.cpp.

    The CPU computes the experts of a run of few tokens, whose activations go there and back; for a run of `COPIED_FROM` tokens or more the
    experts that they meet are copied to the device of the block, which computes all of it.

    Parameters
    ----------
    card, machine, work
        As those of ``LanguageRoofline.chain``.
    holders : sequence of int
        Numbers of the devices that may hold experts.
    costs : LanguageRoofline or None
        None: no time counts.
    """
    experts = card.weight_bytes[:, PARTS.index("experts")]
    kept, held, links = _nothing(card, machine, holders)
    if costs is None:
        return Offloading(experts, kept, held, links)
    peak, bandwidth = reached(costs, machine)
    for rows in alike(card):
        if not experts[rows[0]]:
            continue
        whole, rest = (LanguageWork(card, int(rows[0]), work, experts=counted).runs(work.sequences) for counted in (True, False))
        copied = whole.tokens >= COPIED_FROM
        flops, moved = (np.where(copied, a, b) for a, b in ((whole.flops, rest.flops), (whole.bytes, rest.bytes)))
        kept[rows] = costs.item_seconds * len(copied) + np.maximum(flops[:, None] / peak, moved[:, None] / bandwidth).sum(axis=0)
        flops, moved = whole.flops - rest.flops, whole.bytes - rest.bytes
        computed = np.maximum(flops[:, None] / peak, moved[:, None] / bandwidth)[~copied].sum(axis=0)
        held[rows] = np.where(np.isfinite(held[rows]), computed, np.inf)
        activations = messages(machine, (~copied).sum(), whole.tokens[~copied].sum() * card.width * work.activation_bytes)
        links[rows] = activations + activations.T + messages(machine, copied.sum(), moved[copied].sum()).T
    return Offloading(experts, kept, held, links)


def weights_copied(card: ModelCard, machine: Machine, work: Workload, holders: Sequence[int], costs: LanguageRoofline | None) -> Offloading:
    """Return what items take whose weights are copied to the device of the first stage for each run, as in Accelerate.

    Copies and work are one after the other. Parameters are those of `experts_held`.
    """
    kept, held, links = _nothing(card, machine, holders)
    if costs is not None:
        kept = costs.chain(card, machine, work).seconds
        runs = math.ceil(work.prompt * work.sequences / work.chunk) + work.output
        links = np.stack([messages(machine, runs, runs * size).T for size in card.weights])
    return Offloading(card.weights, kept, held, links, only_first=True)


def _nothing(card: ModelCard, machine: Machine, holders: Sequence[int]) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return no seconds on devices, on holders, inf on others, and of links."""
    n, m = card.n_items, len(machine.cluster.names)
    held = np.full((n, m), np.inf)
    held[:, list(holders)] = 0.0
    return np.zeros((n, m)), held, np.zeros((n, m, m))
