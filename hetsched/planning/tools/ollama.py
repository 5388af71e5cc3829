"""Ollama: a number of layers on the GPU, of a Modelfile."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from hetsched.arguments import shown
from hetsched.arrays import FloatArray
from hetsched.chain.card import ModelCard
from hetsched.chain.placement import Placement
from hetsched.chain.problem import ChainProblem
from hetsched.chain.workload import NUMBER_BYTES
from hetsched.errors import InvalidArgument, UnsupportedFeature
from hetsched.planning.tools import llama_cpp
from hetsched.planning.tools.protocol import Command, Execution, Request, Tool, block_counts, cache_type, described
from hetsched.planning.tools.shell import PCI_ORDER, ShellLine, device_number, is_count, shell_words

CACHE_TYPES = {NUMBER_BYTES[name]: name for name in ("f16", "q8_0", "q4_0")}

RULE = (
    "A model of n blocks has n + 1 layers: the blocks and the output. The last num_gpu of them are on GPUs, the others on the CPU, and so "
    "is the embedding. Which layers are on which of several GPUs Ollama decides itself, so a placement is on one GPU, the only one of "
    "CUDA_VISIBLE_DEVICES, and the CPU. OLLAMA_NUM_PARALLEL sequences have room for num_ctx tokens each."
)


def _refusal(card: ModelCard, placement: Placement, devices: tuple[str | int, ...]) -> str:
    gpus = [stage for stage in placement.stages if not llama_cpp.is_cpu(devices[stage.device])]
    if len(gpus) > 1:
        names = " and ".join(repr(devices[stage.device]) for stage in gpus)
        return f"there are layers on {names}; Ollama takes their number, and divides them itself: place them on one GPU, or use llama.cpp"
    strange = [devices[stage.device] for stage in gpus if not isinstance(devices[stage.device], int)]
    if strange:
        return f"{described(card, gpus[0])} are on {strange[0]!r}, which is no number of a GPU; name the GPUs 0, 1, .., and the CPU 'cpu'"
    return llama_cpp.LLAMA_CPP.find_refusal(card, placement, devices).replace("llama.cpp", "Ollama")


def _write(request: Request) -> Command:
    counts = block_counts(request.card, request.placement)
    counts[-1] += 1  # the output
    on_cpu = [llama_cpp.is_cpu(request.devices[stage.device]) for stage in request.placement.stages]
    gpus = [request.devices[stage.device] for stage, cpu in zip(request.placement.stages, on_cpu, strict=True) if not cpu]
    environment = {**PCI_ORDER, "CUDA_VISIBLE_DEVICES": str(gpus[0]) if gpus else "-1"}
    if request.sequences is not None:
        environment["OLLAMA_NUM_PARALLEL"] = str(request.sequences)
    if request.cache_bytes not in (None, llama_cpp.F16):
        environment |= {"OLLAMA_FLASH_ATTENTION": "1", "OLLAMA_KV_CACHE_TYPE": cache_type("Ollama", CACHE_TYPES, request.cache_bytes)}
    served = ShellLine(environment, ["ollama", "serve"])
    layers = sum(count for count, cpu in zip(counts, on_cpu, strict=True) if not cpu)
    lines = [f"# {served.text}", f"FROM {request.model_name}", f"PARAMETER num_gpu {layers}"]
    lines += [f"PARAMETER num_ctx {request.context}"] if request.context is not None else []
    lines += [f"PARAMETER num_batch {request.chunk}"] if request.chunk not in (None, llama_cpp.UBATCH) else []
    return Command("ollama", "\n".join(lines), ("ollama", "serve"), environment)


def _read(card: ModelCard, text: str, devices: tuple[str | int, ...]) -> Placement:
    found = re.search(r"^PARAMETER +num_gpu +(\S+) *$", text, re.MULTILINE)
    if found is None or not is_count(found[1]):
        raise InvalidArgument(f"{shown(text)} has no PARAMETER num_gpu with a number; give the layers on the GPU")
    served = re.search(r"^# *(.*ollama serve) *$", text, re.MULTILINE)
    visible = shell_words(served[1])[0].get("CUDA_VISIBLE_DEVICES", "") if served else ""
    layers = min(int(found[1]), card.n_blocks + 1)
    cpu = next((k for k, name in enumerate(devices) if llama_cpp.is_cpu(name)), None)
    if layers and "," in visible:
        raise InvalidArgument(f"CUDA_VISIBLE_DEVICES is {visible}; of several GPUs Ollama decides itself which layers they have: give one")
    gpu = device_number(visible, devices) if layers else None
    if cpu is None and layers < card.n_blocks + 1:
        raise InvalidArgument(f"num_gpu {layers} leaves layers on the CPU, which is none of the devices; name it 'cpu'")
    first = card.n_items - layers
    if gpu is None or cpu is None:
        return Placement([(cpu if gpu is None else gpu, 0, card.n_items)])  # type: ignore[list-item]
    return Placement([(cpu, 0, first), (gpu, first, card.n_items)])


def _restrict(card: ModelCard, problem: ChainProblem, devices: tuple[str | int, ...]) -> ChainProblem:
    """Return the problem of llama.cpp without hops between GPUs."""
    gpus = [k for k, name in enumerate(devices) if not llama_cpp.is_cpu(name)]
    hops = problem.hops.copy()
    hops[np.ix_(gpus, gpus)] = np.inf
    return llama_cpp.LLAMA_CPP.execution.restrict(card, problem.replace(hops=hops), devices)


def _default(_card: ModelCard, _problem: ChainProblem, _devices: Sequence[str | int], _free: FloatArray) -> Placement:
    raise UnsupportedFeature("Ollama estimates itself how many layers fit, by a rule that is not known here; state num_gpu")


OLLAMA = Tool(
    "ollama",
    "docs/modelfile.md and docs/faq.md of Ollama, November 2026",
    RULE,
    _refusal,
    _write,
    _read,
    _default,
    execution=Execution(
        not_searched="its own division among several GPUs",
        activation_bytes=llama_cpp.LLAMA_CPP.execution.activation_bytes,
        cache_tokens=llama_cpp.LLAMA_CPP.execution.cache_tokens,
        budget=llama_cpp.LLAMA_CPP.execution.budget,
        restrict=_restrict,
        begins=llama_cpp.LLAMA_CPP.execution.begins,
        host=llama_cpp.LLAMA_CPP.execution.host,
    ),
)
