"""One offline HTML file about a plan: what goes where, how fast, against what, within which limits, and how to tell the tool."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from typing import NamedTuple

from hetsched.arguments import checked
from hetsched.chain.evaluation import ChainValues
from hetsched.chain.machine import Efficiency
from hetsched.chain.placement import Placement
from hetsched.documents import write_bytes
from hetsched.errors import InvalidArgument
from hetsched.planning import tools
from hetsched.planning.curves import affordable, over_bits, over_context
from hetsched.planning.explanation import Explanation
from hetsched.planning.planner import ModelPlan
from hetsched.planning.rows import DeviceBytes, device_rows
from hetsched.planning.serving import ServingPlan
from hetsched.planning.words import TIGHT, asked, command, described, headline, judgement, limits, proof, rates, stage_items, tight
from hetsched.report import require
from hetsched.report.offline import rendered
from hetsched.report.plan_figures import Bar, bits_figure, memory_figure, rate_figure, time_figure
from hetsched.report.serving_page import serving_html

COPY = """<script>
const button = document.querySelector("button.copy"), text = document.getElementById("text").textContent;
button.hidden = !navigator.clipboard;
button.onclick = () => navigator.clipboard.writeText(text).then(() => button.textContent = "copied");
</script>"""
VALUES = {"latency": "time of a request", "throughput": "time between requests"}


@checked
def plan_html(plan: ModelPlan | ServingPlan, explanation: Explanation | None = None, *, model: str | None = None) -> str:
    """Return a self-contained page about a plan.

    It holds the bytes of each device, the time of each stage, the baselines, the limits, how the value changes with the context and with
    the bits of the weights, the command of the tool, and what the answer rests on. Each point of the curves is a plan of its own; they
    are left out where they take long. That of a plan for serving holds the intervals of the devices, what each passes on, and the bound.

    Parameters
    ----------
    plan : ModelPlan or ServingPlan
        If nothing fits, the page says what is missing.
    explanation : Explanation, optional
        What `hetsched.planning.explain` returns. Default: that of the plan; without one no limits are told.
    model : str, optional
        What the tool calls the model, or the path of its file, as in `ModelPlan.command`.

    Raises
    ------
    MissingDependency
        plotly or jinja2 is not installed.
    InvalidArgument
        An explanation or a model is given for a plan for serving.
    """
    if isinstance(plan, ServingPlan):
        if explanation is not None or model is not None:
            raise InvalidArgument("explanation and model are for a ModelPlan, and the plan is for serving; leave them out")
        return serving_html(plan)
    require("html")
    from markupsafe import Markup

    alike = [row for row in plan.baselines if row.tensor_parallel == plan.tensor_parallel and row.placement is not None]
    least = min(alike, key=lambda row: row.missing_bytes, default=None) if plan.placement is None else None
    times = _times(plan) if plan.placement is not None and plan.regime != "fit" else []
    devices = list(_devices(plan, plan.placement if least is None else least.placement, times))
    made, refusal = command(plan, model)
    explanation = plan.explanation if explanation is None else explanation
    contexts, bits = over_context(plan), over_bits(plan)
    return rendered(
        "plan.html.jinja",
        plan=plan,
        headline=headline(plan),
        value=VALUES.get(plan.regime),
        rates=list(rates(plan)) if plan.placement is not None else [],
        least=least,
        devices=devices,
        most_tight=TIGHT,
        memory=memory_figure([row.bar for row in devices], [row.bytes.memory for row in devices]),
        parts=list(times[0].parts) if times else [],
        time=time_figure(times, plan.value if plan.regime == "throughput" else None) if times else None,
        baselines=[(row.name, judgement(plan, row), described(plan, row.placement, row.tensor_parallel)) for row in plan.baselines],
        chosen=described(plan, plan.placement) if plan.placement is not None else "",
        limits=None if explanation is None else list(limits(plan, explanation)),
        contexts=rate_figure(contexts, plan.work.tokens) if contexts else None,
        bits=bits_figure(bits, plan.card.bits, VALUES[plan.regime]) if bits else None,
        affordable=affordable(plan),
        command=made,
        refusal=refusal,
        asked=[*asked(plan), *([("proven", proof(plan))] if plan.placement is not None else [])],
        efficiency=list(_efficiency(plan)) if plan.regime != "fit" else [],
        tool=None if plan.tool is None else tools.tool(plan.tool),
        copy=Markup(COPY),
    )


@checked
def write_plan(
    plan: ModelPlan | ServingPlan, path: str | PathLike[str], explanation: Explanation | None = None, *, model: str | None = None
) -> None:
    """Write the page of `plan_html` to a file."""
    write_bytes(plan_html(plan, explanation, model=model).encode(), path)


class _Device(NamedTuple):
    """A device in the table: what it is, what it holds in words, its bytes, whether little is left, and seconds of its stage."""

    kind: str
    items: str
    bytes: DeviceBytes
    tight: bool
    seconds: dict[str, float]

    @property
    def bar(self) -> Bar:
        """The bytes in the chart; what is free of an unlimited memory is not drawn."""
        own = self.bytes
        parts = {"weights": own.weights, "KV cache": own.cache, "workspace": own.workspace, "reserved": own.reserved}
        return Bar(own.device, parts | ({"free": own.free} if math.isfinite(own.free) else {}))


def _devices(plan: ModelPlan, placement: Placement | None, times: Sequence[Bar]) -> Iterator[_Device]:
    """Yield the devices that may be used, with their stage of a placement, which may not fit, and the times of the stages."""
    question = plan.question
    seconds = {} if placement is None else dict(zip(placement.stages, (bar.parts for bar in times), strict=False))
    for own, row in zip(question.sets, device_rows(plan, placement), strict=True):
        items = "weights of other stages" if row.weights else ""
        if row.stage is not None and placement is not None:
            items = stage_items(plan, placement, row.stage)
        little = row.held > 0 and tight(row.held, row.held + row.free - row.missing)
        yield _Device(question.device(own[0]).kind, items, row, little, {} if row.stage is None else seconds.get(row.stage, {}))


def _times(plan: ModelPlan) -> list[Bar]:
    """Return the seconds of each stage and of the links: all of them for the latency, prompt and output apart, else the busiest."""
    assert plan.placement is not None
    names = [*(plan.problem.devices[stage.device] for stage in plan.placement.stages), "links"]
    if plan.regime == "throughput":
        rows = [{"a request": taken} for taken in _seconds(plan.values, max)]
    else:
        pairs = zip(_seconds(plan.prompt_values, math.fsum), _seconds(plan.values, math.fsum), strict=True)
        rows = [{"prompt": prompt, "output": max(whole - prompt, 0.0)} for prompt, whole in pairs]
    return [Bar(name, row) for name, row in zip(names, rows, strict=True)][: None if len(names) > 2 else 1]


def _seconds(values: ChainValues, joined: Callable[[list[float]], float]) -> list[float]:
    """Return the seconds of the stages, and those of the links joined."""
    return [*values.stage_seconds.tolist(), joined([*values.hop_seconds.tolist(), values.closing_seconds])]


def _efficiency(plan: ModelPlan) -> Iterator[tuple[str, Efficiency, str]]:
    """Yield the shares of its data sheet that each device reaches, and where they are from."""
    known, assumed = plan.machine.efficiency, Efficiency(plan.costs.compute, plan.costs.memory)
    for name in plan.question.used:
        yield name, known.get(name, assumed), "measured" if name in known else "assumed: a guess"
