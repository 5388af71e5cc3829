"""llama.cpp: the last layers on GPUs by shares, the rest on the CPU."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hetsched.arguments import shown
from hetsched.arrays import FloatArray
from hetsched.chain.card import ModelCard
from hetsched.chain.evaluation import stage_bytes
from hetsched.chain.placement import ChainStage, Placement
from hetsched.chain.problem import ChainProblem
from hetsched.chain.workload import NUMBER_BYTES, Workload
from hetsched.errors import InvalidArgument, UnsupportedFeature
from hetsched.planning.tools import llama_cpp_experts as experts
from hetsched.planning.tools.protocol import (
    Command,
    Execution,
    Offloads,
    Request,
    Tool,
    block_counts,
    cache_type,
    described,
    from_devices,
    impossible_on,
)
from hetsched.planning.tools.shell import PCI_ORDER, ShellLine, device_number, is_count, options, shell_words

OPTIONS = {
    **dict.fromkeys(("-ngl", "--gpu-layers", "--n-gpu-layers"), "layers"),
    **dict.fromkeys(("-ts", "--tensor-split"), "shares"),
    **dict.fromkeys(("-dev", "--device"), "devices"),
    **dict.fromkeys(("-sm", "--split-mode"), "mode"),
    **dict.fromkeys(("-mg", "--main-gpu"), "main"),
}
UBATCH, BATCH, F16 = 512, 2048, 2.0
"""What llama.cpp takes by default: tokens of a prompt that are computed at a time, at most, and bytes of a number in the KV cache."""
CACHE_TYPES = {NUMBER_BYTES[name]: name for name in ("f32", "f16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1")}

RULE = (
    "A model of n blocks has n + 1 layers: the blocks and the output, number n. With -ngl N the first n + 1 - N layers run on the CPU, and "
    "so does the embedding always. Of the other N, layer number i goes to the first device of -dev whose cumulated share of -ts, in "
    "float32, is above i / N: with whole shares that add up to N each device gets as many layers as its share says. The KV cache of a "
    "layer is on its device. Without -ts the shares are the free memory of the devices; if a device then has less than --fit-target left, "
    "--fit gives the last device as many of the last layers as fit, and so on, and the CPU the rest; of a model with experts these layers "
    "are without experts, which are then moved from the CPU to the devices for the first layers, one after the other (and "
    "a part of one more layer's, which is not modelled: those are on the CPU here). -ot PATTERN=CPU leaves tensors on the CPU whose names "
    "have the pattern, of several options the first that matches; --n-cpu-moe N does so with the experts of blocks 0 to N - 1. The CPU "
    "computes them, but for 32 tokens or more they are copied to the GPU."
)


def is_cpu(name: str | int) -> bool:
    """Return whether a name is that of the CPU."""
    return str(name).lower() == "cpu"


def _cpu(devices: Sequence[str | int]) -> int | None:
    """Return the number of the CPU; None if it is no device, and holds the embedding without being mentioned."""
    return next((k for k, name in enumerate(devices) if is_cpu(name)), None)


def _refusal(card: ModelCard, placement: Placement, devices: tuple[str | int, ...]) -> str:
    first, cpu = placement.stages[0], _cpu(devices)
    for stage in placement.stages[1:]:
        if stage.device == cpu:
            return (
                f"{described(card, stage)} are on {devices[stage.device]!r} behind {described(card, first)} on {devices[first.device]!r}; "
                "llama.cpp runs on the CPU the first layers only: place the stage of the CPU first"
            )
    if cpu is not None and first.device != cpu:
        return (
            f"the embedding is on {devices[first.device]!r}; llama.cpp runs it on the CPU: begin with a stage on {devices[cpu]!r} that "
            "has at least the embedding, or leave the CPU out of the devices"
        )
    if cpu is None and first.end == 1:
        return (
            f"the stage on {devices[first.device]!r} has the embedding alone; llama.cpp runs it on the CPU: give the stage a block, or "
            "leave it out"
        )
    strange = [holder for _, holder in placement.offloaded if holder != cpu]
    if strange or any(not experts.is_movable(card, item) for item, _ in placement.offloaded):
        return "weights are offloaded that are no experts, or not to the CPU; llama.cpp is told of experts on the CPU alone: offload those"
    return ""


def _write(request: Request) -> Command:
    card, placement, devices = request.card, request.placement, request.devices
    stages, counts = list(placement.stages), block_counts(card, placement)
    counts[-1] += 1  # the output
    if is_cpu(devices[stages[0].device]):
        del stages[0], counts[0]
    names = [str(devices[stage.device]) for stage in stages]
    words = ["llama-server", "-m", request.model_name]
    if request.context is not None:
        words += ["-c", str(request.context * (request.sequences or 1))]  # of all slots together
    words += ["-np", str(request.sequences)] if request.sequences is not None else []
    words += ["-ub", str(request.chunk)] if request.chunk not in (None, UBATCH) else []
    words += ["-b", str(request.chunk)] if (request.chunk or 0) > BATCH else []
    if request.cache_bytes not in (None, F16):
        kind = cache_type("llama.cpp", CACHE_TYPES, request.cache_bytes)
        words += ["-ctk", kind, "-ctv", kind, "-fa", "on"]
    words += ["-ngl", str(sum(counts))]
    if len(names) > 1:
        words += ["-ts", ",".join(map(str, counts))]
    words += ["-dev", ",".join(names) or "none"]
    if len(names) == 1:
        words += ["-sm", "none", "-mg", "0"]
    words += experts.option(card, placement)
    return Command.of_shell("llama.cpp", ShellLine(PCI_ORDER, [*words, "--fit", "off"]))


def _read(card: ModelCard, text: str, devices: tuple[str | int, ...]) -> Placement:
    environment, words = shell_words(text)
    if "CUDA_VISIBLE_DEVICES" in environment:
        raise InvalidArgument("CUDA_VISIBLE_DEVICES numbers the devices anew; leave it out, and order the devices with -dev")
    given = options(words, OPTIONS)
    layers = given.get("layers", "")
    if not is_count(layers) or "devices" not in given:
        raise InvalidArgument(f"{shown(text)} does not state the layers on devices; give -ngl with a number, and -dev")
    names = [] if given["devices"] == "none" else given["devices"].split(",")
    mode = given.get("mode", "layer")
    if mode == "none":
        main = given.get("main", "0")
        if not is_count(main) or int(main) >= len(names):
            raise InvalidArgument(f"-mg is {shown(main)}; it must be the place of a device in -dev, from 0 to {len(names) - 1}")
        names = [names[int(main)]]
    elif mode != "layer":
        raise InvalidArgument(f"-sm is {shown(mode)}; what is read is whole layers on devices: give -sm layer or none")
    shares = [1.0] * len(names) if len(names) < 2 else _shares(given.get("shares", ""), len(names))
    cpu = _cpu(devices)
    of_layers = _layer_devices(card.n_blocks, int(layers), shares)
    if cpu is None and -1 in of_layers:
        raise InvalidArgument(f"-ngl {layers} leaves {of_layers.count(-1)} layers on the CPU, which is none of the devices; name it 'CPU'")
    gpus = [device_number(name, devices) for name in names]
    placed = [cpu if k < 0 else gpus[k] for k in of_layers]
    whole = from_devices([k for k in [placed[0] if cpu is None else cpu, *placed] if k is not None])
    return Placement(whole.stages, experts.read(card, words, whole, cpu))


def _shares(text: str, count: int) -> list[float]:
    try:
        shares = [float(word) for word in text.replace("/", ",").split(",")]
    except ValueError:
        shares = []
    if not shares or len(shares) > count or not all(0 <= share < np.inf for share in shares) or not any(shares):
        raise InvalidArgument(f"-ts is {shown(text)}; it must be a share from 0 for each of {count} devices, one of them above 0")
    return shares + [0.0] * (count - len(shares))


def _layer_devices(n_blocks: int, offloaded: int, shares: Sequence[float]) -> list[int]:
    """Return the device of each layer by its place in -dev, -1 for the CPU; the last layer is the output."""
    start = max(n_blocks + 1 - offloaded, 0)
    active = min(offloaded, n_blocks + 1) if shares else 0
    layers = np.full(n_blocks + 1, -1)
    points = np.cumsum(np.array(shares, np.float32), dtype=np.float32)
    at = np.arange(active, dtype=np.float32) / np.float32(active or 1)
    layers[start : start + active] = np.searchsorted(points / points[-1:], at, side="right")
    found: list[int] = layers.tolist()
    return found


def _default(card: ModelCard, problem: ChainProblem, devices: tuple[str | int, ...], free: FloatArray) -> Placement:
    cpu = _cpu(devices)
    gpus = [k for k in range(len(devices)) if k != cpu]
    if gpus and not (np.isfinite(free[gpus]).all() and free[gpus].any()):
        raise UnsupportedFeature(
            f"the free memory of the GPUs is {shown(free[gpus].tolist())} bytes; llama.cpp shares layers out by it: "
            "give numbers, one above 0"
        )
    if not gpus:
        return from_devices([0] * problem.n_items)
    placed = [gpus[k] for k in _layer_devices(card.n_blocks, card.n_blocks + 1, free[gpus].tolist())]
    by_memory = from_devices([placed[0] if cpu is None else cpu, *placed])
    if cpu is None or all(_fits(problem, stage) for stage in by_memory.stages if stage.device != cpu):
        return by_memory
    if not experts.are_named(card):  # --fit finds no experts to move
        return _fitted(problem, cpu, gpus)
    if problem.offloading is None:
        raise UnsupportedFeature(f"the layers of {card.name!r} by memory do not fit, and --fit then moves experts to the CPU; state -ngl")
    return experts.fitted(problem, cpu, gpus)


def _fitted(problem: ChainProblem, cpu: int, gpus: Sequence[int]) -> Placement:
    """Return the placement of --fit: the last device has as many of the last layers as fit, and so on; the CPU has the rest."""
    stages, end = [], problem.n_items
    for k in reversed(gpus):
        first = end
        while first > 1 and _fits(problem, ChainStage(k, first - 1, end)):
            first -= 1
        if first < end:
            stages.append((k, first, end))
            end = first
    return Placement([(cpu, 0, end), *reversed(stages)])


def _fits(problem: ChainProblem, stage: ChainStage) -> bool:
    return bool(stage_bytes(problem, stage) <= problem.memory_bytes[stage.device])


MARGIN = 2.0**30
"""Bytes of a GPU that llama.cpp's --fit-target leaves free."""
CELLS = 256
"""The cells of a KV cache are a multiple of it."""


def _budget(name: str | int, memory_bytes: float) -> float:
    return memory_bytes if is_cpu(name) else max(memory_bytes - MARGIN, 0.0)


def _cache_tokens(window: FloatArray, work: Workload) -> FloatArray:
    """Return the tokens of the KV cache: each sequence has cells for its context, or a window and a chunk, in multiples of CELLS."""
    cells: FloatArray = np.ceil(np.minimum(work.tokens, window + work.chunk) / CELLS) * CELLS
    return work.sequences * cells


def _restrict(_card: ModelCard, problem: ChainProblem, devices: tuple[str | int, ...]) -> ChainProblem:
    """Return the problem with the embedding on the CPU; without a CPU among the devices it takes no memory of theirs."""
    if _cpu(devices) is not None:
        return impossible_on(problem, [k for k in range(len(devices)) if k != _cpu(devices)], slice(0, 1))
    weights = problem.weight_bytes.copy()
    weights[0] = 0
    return problem.replace(weight_bytes=weights, shared_bytes=0)


def _begins(card: ModelCard, devices: tuple[str | int, ...]) -> Sequence[int]:
    """Return the items with which a stage may begin: without a CPU the first stage has a block beside the embedding."""
    return [0, *range(2 if _cpu(devices) is None else 1, card.n_items)]


def _holders(card: ModelCard, devices: tuple[str | int, ...]) -> list[int]:
    """Return the CPU, if it is a device and the experts can be named."""
    cpu = _cpu(devices)
    return [cpu] if cpu is not None and len(devices) > 1 and experts.are_named(card) else []


LLAMA_CPP = Tool(
    "llama.cpp",
    "src/llama-model.cpp, load_tensors, November 2026",
    RULE,
    _refusal,
    _write,
    _read,
    _default,
    execution=Execution(
        overlaps=True,
        activation_bytes=4.0,
        cache_tokens=_cache_tokens,
        budget=_budget,
        restrict=_restrict,
        begins=_begins,
        not_searched="parts of layers (--n-cpu-moe, -ot), -sm row and --rpc",
        offloads=Offloads("experts", _holders, "the experts of any blocks on the CPU", "other parts of layers (-ot), -sm row and --rpc"),
        host=_cpu,
    ),
)
