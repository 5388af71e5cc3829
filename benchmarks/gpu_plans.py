"""A language model of Transformers that is placed by a plan: what the plan says of its time and memory, and a run."""

from __future__ import annotations

import functools
import gc
import importlib.util
import math
import statistics
from collections.abc import Callable, Iterator
from typing import Any

import gpu_tools as tools
import torch
from gpu import Row, Step
from gpu_tools import line

import hetsched as hs
from hetsched.chain import evaluate
from hetsched.costs.devices import kind_of
from hetsched.planning.tools import tool
from hetsched.problem.interconnects import link

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "num_hidden_layers": 32,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}
"""The sizes of Llama-3.1-8B (source: its config.json)."""
SMALL = {"hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 256, "vocab_size": 512}
NEEDED = ("transformers", "accelerate")
TOOL = "transformers"
WHOLE, PLAN, DEFAULT = "all on the device", "plan", "default of Transformers"
SHARE = 0.5
"""Bytes of the GPU that a placement may use, as a part of all weights."""
WORK = hs.Workload(prompt=512, output=8)
LINK = "pcie5-x16"
COPIED = 2**26
"""Bytes of the copies by which the link is measured."""
RUNS = 2


def plans(bench: Any) -> Iterator[Step]:
    """A language model on the device alone, and on a GPU with half of the memory: what is forecast, and a run."""
    lacking = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if lacking:
        yield Step("installed", lambda: [line("skipped", None, "plans", reason=f"{' and '.join(lacking)} is not installed")])
        return
    yield Step(WHOLE, functools.partial(whole, bench))
    if bench.device.type == "cuda":
        yield Step("link", lambda: [pageable(bench)])
        for way in (PLAN, DEFAULT):
            yield Step(way, functools.partial(limited, bench, way))


def config(bench: Any) -> dict[str, Any]:
    """Return the sizes of the model."""
    return CONFIG | SMALL | {"num_hidden_layers": 2} if bench.quick else CONFIG


def card(bench: Any) -> Any:
    """Return the model card."""
    return hs.frontends.configs.read(config(bench), name="small" if bench.quick else "Llama, 8B")


def whole(bench: Any) -> list[Row]:
    """Return the line of the model on the device alone."""
    plan = hs.plan(card(bench), machine(bench), WORK, tool=TOOL)
    return [placed(bench, WHOLE, plan, plan.placement, {"sheets": plan.value}, None)]


def limited(bench: Any, way: str) -> list[Row]:
    """Return the line of a placement on a GPU with a limit of memory, forecast from data sheets, and from what was measured before."""
    model = card(bench)
    limit = SHARE * float(sum(model.weights))
    alone, copy = (next(row for row in bench.records.rows if row.get("way") == found) for found in (WHOLE, "pageable copy"))
    measured = hs.costs.LanguageRoofline(item_seconds=(alone["seconds"] - alone["prompt_seconds"]) / WORK.output / model.n_items)
    sheets = hs.plan(model, machine(bench, limit), WORK, tool=TOOL)
    plan = hs.plan(model, machine(bench, limit, COPIED / copy["seconds"]), WORK, tool=TOOL, costs=measured)
    if way == PLAN:
        return [placed(bench, way, plan, plan.placement, {"sheets": sheets.value, "measured": plan.value}, limit)]
    first, other = (next(row for row in one.baselines if row.name == f"{TOOL} default") for one in (plan, sheets))
    return [placed(bench, way, plan, first.placement, {"sheets": other.value, "measured": first.value}, limit)]


def placed(bench: Any, way: str, plan: Any, placement: Any, forecasts: dict[str, float], limit: float | None) -> Row:
    """Run a placement, and return its line."""
    command = tool(TOOL).emit(plan.card, placement, plan.machine.names_in(TOOL))
    prompts, outputs, used = run(bench, command.device_map)
    about = {"model": plan.card.name, "prompt": WORK.prompt, "output": WORK.output, "weight_bytes": float(sum(plan.card.weights))}
    more = {"way": way, "prompt_seconds": statistics.median(prompts), "forecasts": forecasts, "limit": limit}
    more |= {"needed": float(evaluate(plan.problem, placement).stage_bytes[0]), "used": used}
    return line("plan", [sum(both) for both in zip(prompts, outputs, strict=True)], plan.card.name, way, **about, **more)


def machine(bench: Any, limit: float = math.inf, copying: float | None = None) -> hs.Machine:
    """Return the device by its data sheet, with a limit of memory, and the CPU's memory behind a link that is as stated or as measured."""
    cuda = bench.device.type == "cuda"
    kind = kind_of(torch.cuda.get_device_name(bench.device)) if cuda else None
    one = hs.costs.device(kind) if kind else bench.ceilings(bench.name)
    gpu = hs.Device(
        bench.name,
        kind=one.kind,
        family=one.family,
        memory_bytes=min(limit, one.memory_bytes),
        peak_flops={"float16": one.peak_flops["float32"], **one.peak_flops},
        memory_bandwidth=one.memory_bandwidth,
    )
    if not cuda:
        return hs.Machine(hs.Cluster([gpu]), tool_names={gpu.name: {TOOL: "cpu"}})
    host = hs.Device("cpu", memory_bytes=1e12, peak_flops={"float16": 1e12}, memory_bandwidth=1e11)  # which computes nothing
    stated = link(LINK)
    names = {gpu.name: {TOOL: bench.device.index or 0}, "cpu": {TOOL: "cpu"}}
    return hs.Machine(hs.Cluster([gpu, host], bandwidth=copying or stated.bandwidth, latency=stated.latency), tool_names=names)


def pageable(bench: Any) -> Row:
    """Return the line of copies to the device from memory of the CPU that is not pinned."""
    source = torch.ones(COPIED, dtype=torch.uint8)
    times, _ = tools.wall(lambda: source.to(bench.device), bench.device, bench.runs)
    return line("link", times, "plans", way="pageable copy", bytes=COPIED)


def run(bench: Any, device_map: dict[str, Any]) -> tuple[list[float], list[float], float | None]:
    """Return the seconds of prompts and of outputs, and the most bytes in use on the GPU."""
    device, own = bench.device, module(config(bench))
    if len(set(device_map.values())) == 1:
        own.to(device)
    else:
        import accelerate

        accelerate.dispatch_model(own, device_map, main_device=device.index or 0)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    with torch.no_grad():
        times = [request(own, device) for _ in range(1 if bench.quick else 1 + RUNS)]
    if device.type != "cuda":
        return *map(list, zip(*times, strict=True)), None
    used = float(torch.cuda.max_memory_allocated(device))
    del own
    gc.collect()
    torch.cuda.empty_cache()
    return *map(list, zip(*times[1:], strict=True)), used


def request(own: Any, device: torch.device) -> tuple[float, float]:
    """Return the seconds of a prompt, and of the tokens that are generated behind it, one after the other."""
    last = functools.partial(own, use_cache=True, logits_to_keep=1)
    tokens = torch.randint(own.config.vocab_size, (1, WORK.prompt), device=device)
    made = []

    def generate() -> None:
        for _ in range(WORK.output):
            made.append(last(made[-1].logits[:, -1:].argmax(-1), past_key_values=made[-1].past_key_values))

    return once(lambda: made.append(last(tokens)), device), once(generate, device)


def once(call: Callable[[], object], device: torch.device) -> float:
    """Return the seconds of a call until its work is done."""
    return tools.wall(call, device, 1, warmup=0)[0][0]


def module(sizes: dict[str, Any]) -> Any:
    """Return the model on the CPU with random weights, without the initialisation of Transformers, which takes minutes."""
    from transformers import AutoConfig, AutoModelForCausalLM

    stated = AutoConfig.for_model(**{name: value for name, value in sizes.items() if name != "torch_dtype"})
    with torch.device("meta"):
        own = AutoModelForCausalLM.from_config(stated, dtype=torch.bfloat16)
    own = own.to_empty(device="cpu").eval()
    own.model.rotary_emb = type(own.model.rotary_emb)(stated)  # whose buffers are no weights
    noise = 0.02 * torch.randn(2**22, dtype=torch.bfloat16)
    for name, weight in own.named_parameters():
        if name.endswith("norm.weight"):
            weight.data.fill_(1.0)
        else:
            for part in weight.data.view(-1).split(len(noise)):
                part.copy_(noise[: len(part)])
    return own
