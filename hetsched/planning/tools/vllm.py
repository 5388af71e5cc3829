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
    Request,
    Tool,
    block_counts,
    described,
    from_counts,
    gpu_environment,
    numbered,
    on_gpus,
    options,
    shell_words,
    visible_gpus,
    whole_numbers,
)
from hetsched.problem.graph import plural

RULE = (
    "{variable} has the number of blocks of each pipeline rank, in order; there are as many numbers as ranks, and they add up to the "
    "blocks of the model. The first rank has the embedding too, the last the head; a head that is tied to the embedding is held twice. "
    "Rank k is the GPU in place k of CUDA_VISIBLE_DEVICES, on one node. On several nodes Ray orders the ranks: the node of the driver "
    "first, then nodes with fewer workers, then by address. Without the variable each rank has blocks // ranks, and {remainder}."
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


def _vllm(request: Request) -> list[str]:
    words = ["vllm", "serve", request.model_name, "--pipeline-parallel-size", str(len(request.placement))]
    words += ["--max-model-len", str(request.context)] if request.context is not None else []
    return words + (["--max-num-seqs", str(request.sequences)] if request.sequences is not None else [])


def _sglang(request: Request) -> list[str]:
    words = ["python", "-m", "sglang.launch_server", "--model-path", request.model_name, "--pp-size", str(len(request.placement))]
    words += ["--context-length", str(request.context)] if request.context is not None else []
    return words + (["--max-running-requests", str(request.sequences)] if request.sequences is not None else [])


def _write(tool: str, variable: str, words: Callable[[Request], list[str]], request: Request) -> Command:
    counts = ",".join(map(str, block_counts(request.card, request.placement)))
    environment = {**gpu_environment(request.placement, request.devices), variable: counts}
    return Command.of_shell(tool, environment, words(request))


def _read(variable: str, names: Sequence[str], card: ModelCard, text: str, devices: tuple[str | int, ...]) -> Placement:
    environment, words = shell_words(text)
    ranks = options(words, dict.fromkeys(names, "ranks")).get("ranks", "1")
    counts = whole_numbers(environment.get(variable, ""), variable)
    if str(len(counts)) != ranks:
        raise InvalidArgument(
            f"{variable} has {plural(len(counts), 'number')} and {names[0]} is {shown(ranks)}; give a number for each rank"
        )
    if sum(counts) != card.n_blocks:
        raise InvalidArgument(f"{variable} adds up to {sum(counts)}; it must be the number of blocks, {card.n_blocks}")
    gpus = visible_gpus(environment, devices)
    if len(gpus) < len(counts):
        raise InvalidArgument(f"CUDA_VISIBLE_DEVICES has {plural(len(gpus), 'GPU')}; give one for each of {len(counts)} ranks")
    return from_counts(card.n_items, card.n_blocks, counts, gpus[: len(counts)])


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


VLLM = Tool(
    "vllm",
    "vllm/distributed/utils.py, get_pp_indices, November 2026",
    RULE.format(variable="VLLM_PP_LAYER_PARTITION", remainder="the ranks from the last but one downward one more, for the remainder"),
    partial(_refusal, "vLLM"),
    partial(_write, "vllm", "VLLM_PP_LAYER_PARTITION", _vllm),
    partial(_read, "VLLM_PP_LAYER_PARTITION", ("--pipeline-parallel-size", "-pp")),
    partial(_default, vllm_counts),
)
SGLANG = Tool(
    "sglang",
    "sglang/srt/distributed/utils.py, get_pp_indices, November 2026",
    RULE.format(variable="SGLANG_PP_LAYER_PARTITION", remainder="the last ranks one more, for the remainder"),
    partial(_refusal, "SGLang"),
    partial(_write, "sglang", "SGLANG_PP_LAYER_PARTITION", _sglang),
    partial(_read, "SGLANG_PP_LAYER_PARTITION", ("--pp-size", "--pipeline-parallel-size")),
    partial(_default, sglang_counts),
)
