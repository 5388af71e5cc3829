"""vLLM and SGLang: the number of blocks of each pipeline rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from hetsched.arguments import shown
from hetsched.arrays import FloatArray
from hetsched.chain.card import ModelCard
from hetsched.chain.placement import Placement
from hetsched.chain.problem import ChainProblem
from hetsched.errors import InvalidArgument
from hetsched.planning.tools.protocol import (
    Command,
    Execution,
    Request,
    Tool,
    block_counts,
    cache_type,
    described,
    from_counts,
    gpus_only,
    numbered,
    on_gpus,
    whole_numbers,
)
from hetsched.planning.tools.shell import check_nodes, gpu, options, read_lines, shell_lines, stages_of_gpus
from hetsched.problem.graph import plural

RULE = (
    "{variable} has the number of blocks of each pipeline rank, in order; there are as many numbers as ranks, and they add up to the "
    "blocks of the model. The first rank has the embedding too, the last the head; a head that is tied to the embedding is held twice. "
    "A pipeline rank has as many GPUs as tensor parallelism says, the same number for all, one after the other in CUDA_VISIBLE_DEVICES, "
    "of the nodes by their --node-rank, each with as many: they divide the heads, the widths of feed-forward networks and the vocabulary, "
    "padded to a multiple of 64, and hold copies of KV heads that are fewer. Ray orders the ranks of "
    "several nodes itself: the node of the driver first, then nodes with fewer workers, then by address. Without the variable each "
    "rank has blocks // ranks, and {remainder}."
)


def _refusal(tool: str, card: ModelCard, placement: Placement, devices: tuple[str | int, ...]) -> str:
    for stage, count in zip(placement.stages, block_counts(card, placement), strict=True):
        if not count:
            where = "first" if stage.first == 0 else "last"
            return (
                f"{described(card, stage)} is alone on {devices[stage.device]!r}; {tool} runs it with the {where} blocks: give the stage "
                "a block, or leave it out"
            )
    return on_gpus(tool, card, placement, devices)


PORT = 20000
"""The port at which SGLang's first node waits for the others."""


def _vllm(request: Request, head: str, nodes: int, rank: int, _ranks: int) -> list[str]:
    words = ["vllm", "serve", request.model_name, "--pipeline-parallel-size", str(len(request.placement))]
    words += ["--tensor-parallel-size", str(request.together)] if request.together > 1 else []
    words += ["--max-model-len", str(request.context)] if request.context is not None else []
    words += ["--max-num-seqs", str(request.sequences)] if request.sequences is not None else []
    words += ["--max-num-batched-tokens", str(max(request.chunk, request.sequences or 1))] if request.chunk is not None else []
    words += ["--gpu-memory-utilization", f"{request.memory_share:.4g}"] if request.memory_share is not None else []
    words += _cache("vLLM", request)
    words += ["--nnodes", str(nodes), "--node-rank", str(rank), "--master-addr", head] if nodes > 1 else []
    return words + (["--headless"] if rank else [])


def _sglang(request: Request, head: str, nodes: int, rank: int, _ranks: int) -> list[str]:
    words = ["python", "-m", "sglang.launch_server", "--model-path", request.model_name, "--pp-size", str(len(request.placement))]
    words += ["--tp-size", str(request.together)] if request.together > 1 else []
    words += ["--context-length", str(request.context)] if request.context is not None else []
    words += ["--max-running-requests", str(request.sequences)] if request.sequences is not None else []
    words += ["--chunked-prefill-size", str(request.chunk)] if request.chunk is not None else []
    words += ["--mem-fraction-static", f"{request.memory_share:.4g}"] if request.memory_share is not None else []
    words += _cache("SGLang", request)
    return words + (["--nnodes", str(nodes), "--node-rank", str(rank), "--dist-init-addr", f"{head}:{PORT}"] if nodes > 1 else [])


def _cache(tool: str, request: Request) -> list[str]:
    if request.cache_bytes is None:
        return []
    kind = cache_type(tool, {2.0: "auto", 1.0: "fp8_e5m2"}, request.cache_bytes)
    return [] if kind == "auto" else ["--kv-cache-dtype", kind]


def _write(tool: str, variable: str, words: Callable[[Request, str, int, int, int], list[str]], request: Request) -> Command:
    counts = ",".join(map(str, block_counts(request.card, request.placement)))
    return Command.of_shell(tool, *shell_lines(request.placement, request.devices, {variable: counts}, partial(words, request)))


def _read(
    variable: str, names: Sequence[str], together: Sequence[str], card: ModelCard, text: str, devices: tuple[str | int, ...]
) -> Placement:
    lines = read_lines(text)
    check_nodes(lines)
    given = dict.fromkeys(names, "ranks") | dict.fromkeys(together, "together")
    found = [(options(line.words, given), line.environment.get(variable, "")) for line in lines]
    if any(one != found[0] for one in found):
        raise InvalidArgument(f"the lines of the nodes differ in {names[0]}, {together[0]} or {variable}; they must have the same")
    said, partition = found[0]
    ranks = said.get("ranks", "1")
    counts = whole_numbers(partition, variable)
    if str(len(counts)) != ranks:
        raise InvalidArgument(
            f"{variable} has {plural(len(counts), 'number')} and {names[0]} is {shown(ranks)}; give a number for each rank"
        )
    if sum(counts) != card.n_blocks:
        raise InvalidArgument(f"{variable} adds up to {sum(counts)}; it must be the number of blocks, {card.n_blocks}")
    own = stages_of_gpus(lines, devices, said.get("together", "1"), len(counts))
    return from_counts(card.n_items, card.n_blocks, counts, own)


def vllm_counts(n_blocks: int, ranks: int) -> list[int]:
    """Return the blocks of each rank of vLLM: the remainder one each to ranks from the last but one downward."""
    share, rest = divmod(n_blocks, ranks)
    return [share + (ranks - 1 - rest <= k < ranks - 1) for k in range(ranks)]


def sglang_counts(n_blocks: int, ranks: int) -> list[int]:
    """Return the blocks of each rank of SGLang: the remainder one each to the last ranks."""
    share, rest = divmod(n_blocks, ranks)
    return [share + (k >= ranks - rest) for k in range(ranks)]


def _default(
    counts: Callable[[int, int], list[int]], card: ModelCard, problem: ChainProblem, devices: tuple[str | int, ...], _free: FloatArray
) -> Placement:
    gpus = numbered(devices)
    return from_counts(problem.n_items, card.n_blocks, counts(card.n_blocks, len(gpus)), gpus)


def _begins(card: ModelCard, _devices: tuple[str | int, ...]) -> Sequence[int]:
    """Return the items with which a stage may begin: the embedding goes with the first block, the head with the last."""
    return [0, *range(2, card.n_items - 1)]


UTILISATION = 0.9
"""Share of the memory of a GPU that is planned for vLLM and SGLang, and stated to them; their defaults are about as much."""


def _budget(name: str | int, memory_bytes: float) -> float:
    return memory_bytes if gpu(name) is None else UTILISATION * memory_bytes


EXECUTION = Execution(
    pipelines=True,
    spans_nodes=True,
    ranks_by_node=True,
    not_searched="data and expert parallelism",
    tensors_sent=2,  # the hidden state and the residual
    budget=_budget,
    restrict=gpus_only,
    begins=_begins,
    vocabulary_multiple=lambda _ranks: 64,
)
VLLM = Tool(
    "vllm",
    "vllm/distributed/utils.py, get_pp_indices, November 2026",
    RULE.format(variable="VLLM_PP_LAYER_PARTITION", remainder="the ranks from the last but one downward one more, for the remainder"),
    partial(_refusal, "vLLM"),
    partial(_write, "vllm", "VLLM_PP_LAYER_PARTITION", _vllm),
    partial(_read, "VLLM_PP_LAYER_PARTITION", ("--pipeline-parallel-size", "-pp"), ("--tensor-parallel-size", "-tp")),
    partial(_default, vllm_counts),
    execution=EXECUTION,
)
SGLANG = Tool(
    "sglang",
    "sglang/srt/distributed/utils.py, get_pp_indices, November 2026",
    RULE.format(variable="SGLANG_PP_LAYER_PARTITION", remainder="the last ranks one more, for the remainder"),
    partial(_refusal, "SGLang"),
    partial(_write, "sglang", "SGLANG_PP_LAYER_PARTITION", _sglang),
    partial(_read, "SGLANG_PP_LAYER_PARTITION", ("--pp-size", "--pipeline-parallel-size"), ("--tp-size", "--tensor-parallel-size", "--tp")),
    partial(_default, sglang_counts),
    execution=EXECUTION,
)
