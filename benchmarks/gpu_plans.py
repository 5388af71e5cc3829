"""A language model of Transformers that is placed by a plan: what the plan says of its time and memory, and a run."""

from __future__ import annotations

import functools
import gc
import importlib.util
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
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
LONG, GENERATED = 4096, 16
"""Tokens of the prompt, and of the generation, whose rates are measured."""
LINK, COPY = "pcie5-x16", "pageable copy"
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
    """Return the lines of the model on the device alone, and of its rates: of a long prompt, and of generation."""
    model, sheets = card(bench), machine(bench)
    plan = hs.plan(model, sheets, WORK, tool=TOOL)
    own = loaded(bench, device_map(plan, plan.placement))
    row = placed(bench, WHOLE, own, plan, plan.placement, None)
    with torch.no_grad():
        prompts = [request(own, bench.device, LONG, 0)[0] for _ in range(1 + runs(bench))][1:]
        outputs = [request(own, bench.device, WORK.prompt, GENERATED)[1] for _ in range(1 + runs(bench))][1:]
    rates = [
        line("rate", prompts, model.name, LONG, prompt=LONG, output=0, depth=0),
        line("rate", outputs, model.name, GENERATED, prompt=0, output=GENERATED, depth=WORK.prompt),
    ]
    try:
        known = measured(bench, model, sheets, rates)
    except hs.InvalidProblem as error:
        return [row, *rates, line("skipped", None, "rates", reason=str(error))]
    row["forecasts"] = {"sheets": plan.value, "measured": hs.plan(model, known, WORK, tool=TOOL).value}
    return [row, *rates]


def limited(bench: Any, way: str) -> list[Row]:
    """Return the line of a placement on a GPU with a limit of memory, forecast from data sheets, and from what was measured before."""
    model = card(bench)
    limit = SHARE * float(sum(model.weights))
    copied = next(row for row in bench.records.rows if row.get("way") == COPY)
    rates = [row for row in bench.records.rows if row["what"] == "rate"]
    sheets = hs.plan(model, machine(bench, limit), WORK, tool=TOOL)
    plan = hs.plan(model, measured(bench, model, machine(bench, limit, COPIED / copied["seconds"]), rates), WORK, tool=TOOL)
    if way == PLAN:
        placement, values = plan.placement, {"sheets": sheets.value, "measured": plan.value}
    else:
        first, other = (next(row for row in one.baselines if row.name == f"{TOOL} default") for one in (plan, sheets))
        placement, values = first.placement, {"sheets": other.value, "measured": first.value}
    return [placed(bench, way, loaded(bench, device_map(plan, placement)), plan, placement, limit) | {"forecasts": values}]


def measured(bench: Any, model: Any, known: hs.Machine, rates: Sequence[Row]) -> hs.Machine:
    """Return a machine whose device reaches the shares of its peaks that follow from a prompt and from generation."""
    rows = [
        hs.costs.Rate(bench.name, row["seconds"], row["prompt"], row["output"], row["depth"], chunk=max(row["prompt"], 1)) for row in rates
    ]
    return known.with_efficiency(hs.costs.Rates(rows).efficiency(known, model))


def placed(bench: Any, way: str, own: Any, plan: Any, placement: Any, limit: float | None) -> Row:
    """Run a model, and return its line with the forecast of the plan; its placement may be another."""
    cuda = bench.device.type == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats(bench.device)
    with torch.no_grad():
        times = [request(own, bench.device, WORK.prompt, WORK.output) for _ in range(1 + runs(bench))][1:]
    about = {"model": plan.card.name, "prompt": WORK.prompt, "output": WORK.output, "weight_bytes": float(sum(plan.card.weights))}
    more = {"way": way, "prompt_seconds": statistics.median(prompt for prompt, _ in times), "limit": limit}
    more |= {"needed": float(evaluate(plan.problem, placement).stage_bytes[0]), "forecasts": {"sheets": plan.value}}
    more |= {"used": float(torch.cuda.max_memory_allocated(bench.device)) if cuda else None}
    return line("plan", [sum(both) for both in times], plan.card.name, way, **about, **more)


def device_map(plan: Any, placement: Any) -> dict[str, Any]:
    """Return the device of each module, in Transformers' words."""
    found: dict[str, Any] = tool(TOOL).emit(plan.card, placement, plan.machine.names_in(TOOL)).device_map
    return found


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
    return line("link", times, "plans", way=COPY, bytes=COPIED)


def runs(bench: Any) -> int:
    """Return how often a request is made."""
    return 1 if bench.quick else RUNS


def loaded(bench: Any, modules: dict[str, Any]) -> Any:
    """Return the model with its modules on devices; what another one held is released before."""
    gc.collect()
    if bench.device.type == "cuda":
        torch.cuda.empty_cache()
    own = module(config(bench))
    if len(set(modules.values())) == 1:
        return own.to(bench.device)
    import accelerate

    return accelerate.dispatch_model(own, modules, main_device=bench.device.index or 0)


def request(own: Any, device: torch.device, prompt: int, output: int) -> tuple[float, float]:
    """Return the seconds of a prompt, and of the tokens that are generated behind it, one after the other."""
    last = functools.partial(own, use_cache=True, logits_to_keep=1)
    tokens = torch.randint(own.config.vocab_size, (1, prompt), device=device)
    made = []

    def generate() -> None:
        for _ in range(output):
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
