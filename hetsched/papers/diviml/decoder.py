"""GPT-3's decoder on the paper's six nodes: the problems, and the schedule of one node repeated on the others."""

from __future__ import annotations

import numpy as np

import hetsched as hs
from hetsched.arrays import row_starts
from hetsched.workloads import clusters, transformers

STEPS = ("20 new tokens", "1 new token, 19 cached")
"""What an input is: all its tokens at once, or the last one of them with the keys and values of the others cached."""
ENDS = {"the same": "n0.a100.0", "its twin": "n0.a100.1", "the other kind": "n0.t4.0", "another node": "n1.a100.0"}
"""The device at the end of half a block that begins on the first device."""
BEGIN = "n0.a100.0"


def problem_of(model: str, layers: int, nodes: int, inputs: int, step: str = STEPS[0]) -> hs.Problem:
    """Return a stack of blocks on some of the nodes, costed by the roofline in float16."""
    block = transformers.block(model)
    graph = transformers.stack(block if step == STEPS[0] else with_cache(block), layers)
    return hs.Problem(graph, clusters.diviml_nodes(nodes=nodes), costs=hs.costs.Roofline(dtype="float16"), inputs=inputs)


def with_cache(block: hs.TaskGraph) -> hs.TaskGraph:
    """Return a block for one new token: attention reads the keys and values of the tokens before, which each input keeps in memory.

    Work and tensors are those of a token of the shipped block of `transformers.TOKENS`. The work of attention too, for then one
    token attends to all of them.
    """
    tokens = transformers.TOKENS
    attention = np.array([op == "scaled_dot_product_attention" for op in block.op])
    cached = np.where(attention, 2 * (tokens - 1) / tokens * block.output_bytes, 0.0)
    moved = block.bytes_accessed - block.weight_bytes
    return block.replace(
        edge_bytes=block.edge_bytes / tokens,
        input_bytes=block.input_bytes / tokens + cached,
        output_bytes=block.output_bytes / tokens,
        flops=block.flops / tokens,
        bytes_accessed=block.weight_bytes + moved / tokens + cached,
        shape=None,
    )


def repeated(decision: hs.Decision, part: hs.Problem, nodes: int) -> hs.Decision:
    """Return the decision for a stack of which each node has a part: that of the first node repeated on the others.

    The first task of the part represents its input, which for other nodes is the output of the part before.
    """
    own, devices = part.n_tasks - 1, part.n_devices
    kept = np.flatnonzero(decision.task > 0)
    size = np.diff(decision.item_ptr)
    rows = [np.arange(decision.n_batches), *[kept] * (nodes - 1)]
    items = [decision.items[decision.item_ptr[b] : decision.item_ptr[b + 1]] for row in rows for b in row.tolist()]
    counts = np.concatenate([size[row] for row in rows])
    return hs.Decision(
        np.concatenate([decision.task[row] + node * own for node, row in enumerate(rows)]),
        np.concatenate([decision.device[row] + node * devices for node, row in enumerate(rows)]),
        row_starts(counts),
        np.concatenate(items),
    )


def half_problem(model: str, nodes: int, inputs: int, ends: str) -> hs.Problem:
    """Return the attention half of a block with its input on the first device and its output on another."""
    from hetsched.decomposition.series import cut

    block = problem_of(model, 1, nodes, inputs)
    index = block.cluster.names.index
    module = next(candidate for candidate in cut(block) if not candidate.plain)
    problem = module.between(block, np.array([index(BEGIN)]), np.array([index(ENDS[ends])]))
    assert problem is not None
    return problem
