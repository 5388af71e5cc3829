"""Megatron-LM: a layout of layers for the pipeline's stages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from hetsched.arguments import shown
from hetsched.arrays import FloatArray
from hetsched.chain.card import ModelCard
from hetsched.chain.placement import Placement
from hetsched.chain.problem import ChainProblem
from hetsched.errors import InvalidArgument, UnsupportedFeature
from hetsched.planning.tools.protocol import (
    Command,
    Execution,
    Request,
    Tool,
    block_counts,
    from_counts,
    from_devices,
    gpus_only,
    numbered,
    on_gpus,
)
from hetsched.planning.tools.shell import check_nodes, is_count, options, read_lines, shell_lines, stages_of_gpus
from hetsched.problem.graph import plural

SCRIPT = "pretrain_gpt.py"
"""The training script, unless another is named."""
LONGEST = 100_000
"""The most layers of a layout; repetitions could ask for any number."""

RULE = (
    "The layout has the layers of each stage in order: E the embedding, t a block, m a block that predicts further tokens, L the head; "
    "a | begins the next stage, x*n and (..)*n repeat, commas mean nothing. There are as many stages as pipeline ranks, or a multiple: "
    "stage k is on rank k modulo the ranks. A pipeline rank has as many GPUs as --tensor-model-parallel-size, one after the other: "
    "they divide the heads, the widths of feed-forward networks and the vocabulary, padded to a multiple of 128 times their number, and "
    "hold copies of KV heads that are fewer. E is first and L last, and there are as many t as blocks. Without a layout each rank has "
    "blocks / ranks, which has to be a whole number. A head that is tied to the embedding is held twice."
)


def _refusal(card: ModelCard, placement: Placement, devices: tuple[str | int, ...]) -> str:
    return on_gpus("Megatron", card, placement, devices)


def _write(request: Request) -> Command:
    blocks = [f"t*{count}" if count > 1 else "t" * count for count in block_counts(request.card, request.placement)]
    layout = f"E{'|'.join(blocks)}L"
    options = ["--pipeline-model-parallel-size", str(len(blocks)), "--pipeline-model-parallel-layout", layout]
    options += ["--tensor-model-parallel-size", str(request.together)] if request.together > 1 else []
    options += ["--seq-length", str(request.context)] if request.context is not None else []

    def words(head: str, nodes: int, rank: int, ranks: int) -> list[str]:
        place = ["--nnodes", str(nodes), "--node-rank", str(rank), "--master-addr", head] if nodes > 1 else []
        return ["torchrun", "--nproc-per-node", str(ranks), *place, request.model or SCRIPT, *options]

    return Command.of_shell("megatron", *shell_lines(request.placement, request.devices, {}, words))


def _read(card: ModelCard, text: str, devices: tuple[str | int, ...]) -> Placement:
    lines = read_lines(text)
    check_nodes(lines)
    names = {
        "--pipeline-model-parallel-size": "ranks",
        "--pipeline-model-parallel-layout": "layout",
        "--tensor-model-parallel-size": "together",
    }
    given = options(lines[0].words, names)
    if any(options(line.words, names) != given for line in lines):
        raise InvalidArgument("the lines of the nodes differ in the options of the pipeline; they must have the same")
    ranks = given.get("ranks", "1")
    stages = layout_stages(given.get("layout", ""))
    if not is_count(ranks) or int(ranks) < 1 or len(stages) % int(ranks):
        raise InvalidArgument(
            f"the layout has {plural(len(stages), 'stage')} and --pipeline-model-parallel-size is {shown(ranks)}; "
            "the stages must be a multiple of it"
        )
    layers = "".join(stages)
    if layers != f"E{'t' * card.n_blocks}L":
        raise InvalidArgument(
            f"the layout has the layers {shown(layers)}; they must be E, {card.n_blocks} times t for the blocks of {card.name!r}, and L"
        )
    own = stages_of_gpus(lines, devices, given.get("together", "1"), int(ranks))
    return from_devices([own[k % int(ranks)] for k, stage in enumerate(stages) for _ in stage])


class _Token(NamedTuple):
    kind: str
    text: str


def layout_stages(text: str) -> list[str]:
    """Return the layers of each stage of a layout, as E, t, m and L without repetitions."""
    tokens = list(_tokens(text))
    layers, end = _sequence(tokens, 0, text)
    if end < len(tokens):
        raise InvalidArgument(f"the layout {shown(text)} has ) without (; close what is open")
    return layers.split("|")


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    for match in re.finditer(r"([EtmL|])|\*([0-9]+)|([()])|,", text):
        if match.start() > at:
            break
        at = match.end()
        if match[1]:
            yield _Token("layer", match[1])
        elif match[2]:
            yield _Token("times", match[2])
        elif match[3]:
            yield _Token(match[3], match[3])
    if at < len(text) or not text:
        raise InvalidArgument(
            f"the layout {shown(text)} is not understood from {shown(text[at:])}; it consists of E, t, m, L, |, x*n, (..)*n and commas"
        )


def _sequence(tokens: list[_Token], at: int, text: str) -> tuple[str, int]:
    """Return layers and | from a place to the end or to a closing bracket, and the place of that."""
    parts: list[str] = []
    total = 0
    while at < len(tokens) and tokens[at].kind != ")":
        kind, word = tokens[at]
        if kind == "times":
            raise InvalidArgument(f"the layout {shown(text)} has *{word} behind nothing; put it behind a layer, | or (..)")
        at += 1
        if kind == "(":
            word, at = _group(tokens, at, text)
        if at < len(tokens) and tokens[at].kind == "times":
            times, at = int(tokens[at].text[:9]), at + 1
            if len(word) * times > LONGEST:
                raise InvalidArgument(f"the layout {shown(text)} has more than {LONGEST:,} layers; repeat fewer times")
            word *= times
        parts.append(word)
        total += len(word)
    return "".join(parts), at


def _group(tokens: list[_Token], at: int, text: str) -> tuple[str, int]:
    """Return the layers of brackets from behind the opening one, and the place behind the closing one."""
    end = next((k for k in range(at, len(tokens)) if tokens[k].kind in "()"), len(tokens))
    if end + 1 >= len(tokens) or tokens[end].kind != ")" or tokens[end + 1].kind != "times":
        raise InvalidArgument(f"the layout {shown(text)} has ( without )*n behind it; brackets are repeated, and have none within")
    return _sequence(tokens[:end], at, text)[0], end + 1


def _default(card: ModelCard, problem: ChainProblem, devices: tuple[str | int, ...], _free: FloatArray) -> Placement:
    gpus = numbered(devices)
    share, rest = divmod(card.n_blocks, len(gpus))
    if rest:
        raise UnsupportedFeature(
            f"{card.name!r} has {card.n_blocks} blocks for {len(gpus)} ranks; without a layout Megatron divides them evenly: give a "
            "layout, or a number of ranks that divides the blocks"
        )
    return from_counts(problem.n_items, card.n_blocks, [share] * len(gpus), gpus)


MEGATRON = Tool(
    "megatron",
    "megatron-core 0.16.1, pipeline_parallel_layer_layout.py",
    RULE,
    _refusal,
    _write,
    _read,
    _default,
    execution=Execution(
        pipelines=True,
        chunks=False,
        spans_nodes=True,
        ranks_by_node=True,
        not_searched="data, expert and context parallelism",
        note="the memory and the times are those of inference: training needs gradients, states of the optimiser and activations too",
        restrict=gpus_only,
        vocabulary_multiple=lambda ranks: 128 * ranks,
    ),
)
