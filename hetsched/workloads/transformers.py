"""Task graphs of GPT-3's decoder, stacked from one shipped block.

These commands, which need torch, capture the blocks again in the root of a checkout::

    hetsched capture hetsched.workloads.language:gpt3_125m --input 1,20,768:float16 -o hetsched/workloads/documents/gpt3_125m.json
    hetsched capture hetsched.workloads.language:gpt3_6_7b --input 1,20,4096:float16 -o hetsched/workloads/documents/gpt3_6_7b.json
    hetsched capture hetsched.workloads.language:gpt3_175b --input 1,20,12288:float16 -o hetsched/workloads/documents/gpt3_175b.json

With another number of tokens instead of 20 they capture blocks for longer inputs, which `stack` repeats.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from hetsched import documents
from hetsched.arguments import COUNT, checked
from hetsched.arrays import FloatArray
from hetsched.errors import InvalidProblem
from hetsched.problem.graph import TaskGraph

if TYPE_CHECKING:
    from torch import nn

DOCUMENTS = Path(__file__).parent / "documents"

TOKENS = 20
"""Tokens of an input in the shipped blocks, as in DiviML."""


class Model(NamedTuple):
    """A model whose block is shipped."""

    document: str
    layers: int
    width: int


MODELS: Mapping[str, Model] = {
    "125M": Model("gpt3_125m", 12, 768),
    "6.7B": Model("gpt3_6_7b", 32, 4096),
    "175B": Model("gpt3_175b", 96, 12288),
}
"""The models whose blocks are shipped (T. B. Brown et al., "Language models are few-shot learners", 2020, Table 2.1)."""


def names() -> tuple[str, ...]:
    """Return the names of the models whose blocks are shipped."""
    return tuple(MODELS)


@checked(InvalidProblem)
def gpt3(model: str = "175B", *, layers: int | None = None) -> TaskGraph:
    """Return the decoder stack of a GPT-3 model; an input is 20 tokens in float16, and torch is not needed.

    One block, captured from a PyTorch module (`module`), is repeated. It has 13 tasks: two layer norms,
    the query, key and value projections in parallel, attention with the copy that joins its heads, the
    output projection, the two linear layers with a GELU between them, and two additions. A block of
    width d has 12 d^2 + 13 d parameters of 2 bytes, and for t tokens 24 d^2 t FLOPs in its linear layers
    and 4 d t^2 in its attention. Embeddings and the classifier at the end are omitted (0.4 % of the
    parameters of 175B), and all 20 tokens are new: there are no cached keys and values.

    Parameters
    ----------
    model : {"175B", "6.7B", "125M"}
        Width and heads of the blocks.
    layers : int, optional
        Number of blocks; default that of the model: 96, 32 or 12.

    Returns
    -------
    TaskGraph
        It has a task ``"x"`` of type ``"input"``, and tasks ``"h{k}.attention.query/linear"`` and so on for block k.

    Raises
    ------
    InvalidProblem
        The model is unknown, or `layers` is not a whole number >= 1.

    References
    ----------
    T. B. Brown et al., "Language models are few-shot learners", NeurIPS 2020; DiviML, section VI.
    """
    return stack(block(model), _known(model).layers if layers is None else layers)


@checked(InvalidProblem)
def block(model: str) -> TaskGraph:
    """Return the shipped task graph of one block of a model, as captured; see `gpt3`."""
    return cast("TaskGraph", documents.load(DOCUMENTS / f"{_known(model).document}.json"))


@checked(InvalidProblem)
def module(model: str) -> nn.Module:
    """Return one block of a model as a PyTorch module in float16 in eval mode, with random weights; see `gpt3`."""
    from hetsched.workloads import language

    made: nn.Module = getattr(language, _known(model).document)()
    return made


@checked(InvalidProblem, layers=COUNT)
def stack(block: TaskGraph, layers: int) -> TaskGraph:
    """Return a stack of equal blocks, each of which reads the output of the one before.

    Parameters
    ----------
    block : TaskGraph
        A graph with one task of type ``"input"``, and one task without children, whose output has the size
        of the input.
    layers : int
        Number of blocks. The graph has one input task; other tasks of block k have the prefix ``"h{k}."``.

    Raises
    ------
    InvalidProblem
        The block is not such a graph, or `layers` is not a whole number >= 1.
    """
    entry, exit_ = _ends(block)
    rest = np.delete(np.arange(block.n_tasks), entry)
    place = np.empty(block.n_tasks, np.int64)
    place[rest] = np.arange(len(rest)) + 1
    first = np.arange(layers)[:, None] * len(rest)  # the number of tasks before each block, without the input
    reading = block.source == entry
    source = np.where(reading, np.where(first > 0, first - len(rest) + place[exit_], 0), first + place[block.source])
    target = first + place[block.target]

    def column(values: FloatArray) -> FloatArray:
        return np.concatenate([values[[entry]], np.tile(values[rest], layers)])

    op = [block.op[i] for i in rest]
    return TaskGraph(
        [block.names[entry], *(f"h{k}.{block.names[i]}" for k in range(layers) for i in rest)],
        np.column_stack([source.ravel(), target.ravel()]),
        edge_bytes=np.tile(block.edge_bytes, layers),
        op=[block.op[entry], *op * layers],
        weight_bytes=column(block.weight_bytes),
        input_bytes=column(block.input_bytes),
        output_bytes=column(block.output_bytes),
        flops=column(block.flops),
        bytes_accessed=column(block.bytes_accessed),
        shape=[block.shape[entry], *[block.shape[i] for i in rest] * layers],
    )


def _ends(block: TaskGraph) -> tuple[int, int]:
    """Return the input task of a block, and the task of its output."""
    inputs = [i for i, op in enumerate(block.op) if op == "input"]
    ends = np.flatnonzero(np.diff(block.succ_ptr) == 0).tolist()
    if len(inputs) != 1 or len(ends) != 1 or inputs == ends:
        raise InvalidProblem(
            f"a block to stack has one task of type 'input' and one other task without children; this one has {len(inputs)} and {len(ends)}"
        )
    given, made = block.output_bytes[inputs[0]], block.output_bytes[ends[0]]
    if given != made:
        raise InvalidProblem(f"the block reads {given:g} bytes and returns {made:g}; blocks can be stacked only if these are equal")
    return inputs[0], ends[0]


def _known(model: str) -> Model:
    if model not in MODELS:
        raise InvalidProblem(f"no block of GPT-3 {model!r} is shipped; choose one of {', '.join(MODELS)}, or capture your own")
    return MODELS[model]
