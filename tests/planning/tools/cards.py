"""Cards of models and problems for the tests of tools."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from hetsched.chain.card import PARTS, ModelCard, chain_items
from hetsched.chain.placement import Placement
from hetsched.chain.problem import ChainProblem

TABLE, NORM, FFN = (PARTS.index(part) for part in ("table", "norm", "dense_ffn"))


def card(blocks, *, tied=False, name="M", family="llama", sizes=None, embed=100.0, table=None, norm=1.0, modules=True):
    """Return a card of a causal language model with names as those of Llama; `sizes` are bytes of its blocks."""
    weights = np.zeros((blocks + 2, len(PARTS)))
    weights[0, TABLE] = embed
    weights[-1, TABLE] = embed if table is None else table
    weights[-1, NORM] = norm
    weights[1:-1, FFN] = 10.0 if sizes is None else sizes
    names = [("model.embed_tokens", "model.rotary_emb"), *((f"model.layers.{i}",) for i in range(blocks)), ("model.norm", "lm_head")]
    items = chain_items([{"workspace_numbers": 1}] * blocks, 1)
    return ModelCard(name, family, 1, 10, items, weights, weights, tied=tied, modules=names if modules else ())


def problem_of(model, devices, *, memory=None, seconds=None, n_items=None):
    """Return a problem of the items of a card on devices."""
    n = model.n_items if n_items is None else n_items
    times = np.ones((n, len(devices))) if seconds is None else np.broadcast_to(seconds, (n, len(devices)))
    return ChainProblem(model.items.name[:n].tolist(), list(map(str, devices)), times, weight_bytes=model.weights[:n], memory_bytes=memory)


@st.composite
def placed(draw, devices, *, tied=False, most_blocks=130, family="llama", closed=False):
    """Draw a card, and a placement of its items on some of the devices."""
    model = card(draw(st.integers(1, most_blocks)), tied=tied, family=family)
    n = model.n_items - closed
    used = draw(st.permutations(range(len(devices))))[: draw(st.integers(1, min(len(devices), n)))]
    cuts = draw(st.lists(st.integers(1, n - 1), min_size=len(used) - 1, max_size=len(used) - 1, unique=True))
    edges = [0, *sorted(cuts), n]
    return model, Placement(zip(used, edges[:-1], edges[1:], strict=True))
