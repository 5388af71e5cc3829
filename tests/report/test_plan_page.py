"""The page of a plan says all that the plan says, whatever the plan, and loads nothing."""

from __future__ import annotations

import math
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.planning import explain, words
from hetsched.problem.units import seconds, size
from hetsched.report import plan_page
from hetsched.testing.profiles import examples
from tests.browser import Visit, visit
from tests.planning.test_planner import card, cards, machine, machines, workloads
from tests.planning.test_questions import box, sparse

if TYPE_CHECKING:
    from playwright.sync_api import Browser

EVIL = "</script><script>console.error('run')</script><b>&amp;"
VOID = {"meta", "link"}


class _Reader(HTMLParser):
    """Reads a page: its text without scripts and styles, its links, and whether elements are closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "action", "srcset")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        if tag in ("td", "th", "span"):
            self.text.append(" ")

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("script", "style"):
            self.text.append(data)


def read(page: str) -> str:
    """Return the text of a page in one line; asserts that its elements are closed and that it refers to nothing outside."""
    script = page.index("<script>")  # plotly, millions of characters
    reader = _Reader()
    reader.feed(page[:script] + page[page.index("</script>\n</head>") + len("</script>") :])
    reader.close()
    assert reader.open == []
    assert all(link.startswith(("#", "data:,")) for link in reader.links)
    return " ".join("".join(reader.text).split())


def free(where: hs.Machine) -> hs.Machine:
    """Return a machine of which no tool leaves anything free."""
    return where.reserving(dict.fromkeys(where.cluster.names, 0.0))


tools = st.sampled_from([None, "vllm", "llama.cpp"])


@pytest.mark.slow
@examples(10)
@given(cards, machines.map(free), workloads, tools, st.booleans())
def test_a_page_says_what_the_plan_says(model, where, work, tool, fit):
    plan = hs.plan(model, where, work, tool=tool, regime="fit" if fit else None)
    found = explain(plan)
    text = read(hs.report.plan_html(plan, found, model="model.gguf")).lower()
    made, refusal = words.command(plan, "model.gguf")
    said = [words.headline(plan), str(plan.status), refusal, "" if made is None else made.text, *where.cluster.names]
    said += [text for _, text in words.asked(plan)] + list(words.limits(plan, found))
    said += [f"{row.name} {words.judgement(plan, row)} {words.described(plan, row.placement)}" for row in plan.baselines]
    if plan.placement is not None:
        said += [text for _, text in words.rates(plan)] + [words.proof(plan), words.described(plan, plan.placement)]
    assert [one for one in said if " ".join(one.lower().split()) not in text] == []


@pytest.mark.slow
@examples(30)
@given(cards, machines.map(free), workloads, tools)
def test_bytes_and_seconds_add_up(model, where, work, tool):
    plan = hs.plan(model, where, work, tool=tool, tensor_parallel=1 if tool == "vllm" else None)
    if plan.placement is None:
        return
    rows = {row.bytes.device: row for row in plan_page._devices(plan, plan.placement, [])}
    assert list(rows) == list(where.cluster.names)
    for row, memory in zip(rows.values(), where.cluster.memory_bytes.tolist(), strict=True):
        assert math.fsum(row.bar.parts.values()) == pytest.approx(memory)
    for stage, held in zip(plan.placement.stages, plan.values.stage_bytes.tolist(), strict=True):
        assert rows[plan.problem.devices[stage.device]].bytes.held == held
    times = plan_page._times(plan)
    assert len(times) == len(plan.placement) + (len(plan.placement) > 1)
    if plan.regime == "latency":
        for found, whole, told in (
            (plan.values, plan.value, [taken for bar in times for taken in bar.parts.values()]),
            (plan.prompt_values, plan.prompt_seconds, [bar.parts["prompt"] for bar in times]),
        ):
            overlapped = [*found.overlapped_seconds, *found.overlapped_hops]
            assert math.fsum(told) - math.fsum(overlapped) + max(overlapped) == pytest.approx(whole)
    else:
        assert max(bar.parts["a request"] for bar in times) <= plan.value * (1 + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "memory", "tool", "named"),
    [(sparse(5), (6e5, 4e6), "llama.cpp", "experts of block"), (card(4), (2.5e5, 6e5), "transformers", "weights of embed")],
)
def test_offloaded_weights_are_where_they_are(model, memory, tool, named):
    plan = hs.plan(model, box(memory=memory, speed=(4.0, 0.5)), hs.Workload(40, 5), tool=tool)
    text = read(hs.report.plan_html(plan))
    assert named in text
    assert ("weights of other stages" in text) == (tool == "transformers")
    rows = {row.bytes.device: row for row in plan_page._devices(plan, plan.placement, [])}
    for row, usable in zip(rows.values(), memory, strict=True):
        assert math.fsum(row.bar.parts.values()) == pytest.approx(usable)
    told = dict(words.plan_rows(plan))
    assert named in " ".join(text for _, text in words.plan_rows(plan))
    assert ("cpu: holds" in " ".join(text for _, text in words.plan_rows(plan))) == (tool == "transformers")
    assert "with or without" in told["proven"]
    row = words.plan_facts(plan)["stages"][-1]
    assert {name for name, _, _ in row["offloaded"]} == {"cpu"}
    found = explain(plan)
    assert {limit.device for limit in found.devices} == {"g0", "cpu"}
    assert found.without_hops < plan.value


def large(**changes):
    """Return a plan whose model needs two devices, with one of an odd name."""
    devices = [
        hs.Device(name, kind="tpu", memory_bytes=held, peak_flops={"float16": 1e9}, memory_bandwidth=1e8)
        for name, held in ((EVIL, 3e5), ("links", 3e5), ("spare", 1e4))
    ]
    work = hs.Workload(20, 10, context=changes.pop("context", None))
    return hs.plan(card(), hs.Machine(hs.Cluster(devices, bandwidth=1e8), **changes), work)


@pytest.mark.slow
def test_names_are_text_and_devices_without_a_stage_are_there():
    plan = large(reserved_bytes={"spare": 2e3})
    assert plan.placement is not None
    assert len(plan.placement) == 2
    page = hs.report.plan_html(plan)
    assert EVIL not in page
    text = read(page)
    assert f"{EVIL} tpu" in text
    assert f"spare tpu nothing 0 B 0 B 0 B {size(2e3)} {size(8e3)} {size(1e4)}" in text
    times = {bar.name: bar.parts for bar in plan_page._times(plan)[:2]}
    assert f"{size(3e5)} {seconds(times['links']['prompt'])} {seconds(times['links']['output'])}" in text
    assert "a plan for one has its command here" in text
    assert "Limits" not in text


def test_a_plan_that_does_not_fit_says_what_is_missing_and_what_would_fit():
    plan = large(context=10**6)
    text = read(hs.report.plan_html(plan, explain(plan)))
    assert f"Does not fit: {size(plan.missing_bytes)} are missing" in text
    assert f"missing {size(plan.missing_bytes)}" in text
    least = min(plan.baselines, key=lambda row: row.missing_bytes)
    assert f"Placed as {least.name} does" in text
    for row in plan.baselines:
        assert f"{row.name} does not fit, {size(row.missing_bytes)} are missing" in text
    assert f"What would fit Fits at most: a context of {plan.most_context()} tokens" in text
    assert "Time of the stages" not in text


def test_the_box_says_what_is_measured_and_which_rule_was_read():
    where = machine()
    mixed = hs.Machine(where.cluster, tool_names=where.tool_names, efficiency={"g0": (0.41, 0.83)})
    text = read(hs.report.plan_html(hs.plan(card(), mixed, hs.Workload(20, 10), tool="vllm")))
    assert "g0 0.41 0.83 measured" in text
    assert "g1 0.5 0.75 assumed: a guess" in text
    rule = hs.planning.tools.tool("vllm")
    assert f"The rule of vllm, read in {rule.version}: {' '.join(rule.rule.split())}" in text


def test_a_tool_that_cannot_state_the_plan_says_why():
    plan = hs.plan(card(), free(machine()), hs.Workload(20, 10, cache_bytes=1.75), tool="llama.cpp")
    assert "None: numbers in the KV cache have 1.75 bytes" in read(hs.report.plan_html(plan))


def test_what_takes_long_is_not_drawn_and_said(monkeypatch):
    plan = hs.plan(card(), machine(), hs.Workload(20, 10))
    monkeypatch.setattr("hetsched.planning.curves.MOST_WORK", 0)
    text = read(hs.report.plan_html(plan))
    assert "Not drawn, for it takes long" in text
    assert "Each point is a plan" not in text


def test_missing_plotly_names_the_extra(monkeypatch):
    plan = hs.plan(card(), machine(), hs.Workload(20, 10))
    monkeypatch.setattr("importlib.util.find_spec", lambda name, package=None: None)
    with pytest.raises(hs.MissingDependency, match="'plotly' is not installed"):
        hs.report.plan_html(plan)


def opened(browser: Browser, folder: Path, plan: hs.ModelPlan) -> Visit:
    path = folder / "plan.html"
    hs.report.write_plan(plan, path, explain(plan))
    seen = visit(browser, path.as_uri(), local=path.as_uri())
    seen.page.wait_for_selector("#memory .plot-container .bars")
    assert (seen.complaints, seen.requests) == ([], [])
    return seen


@pytest.mark.parametrize("width", [1280, 420])
def test_charts_are_drawn_within_the_window(browser: Browser, tmp_path: Path, width: int) -> None:
    page = opened(browser, tmp_path, large()).page
    page.set_viewport_size({"width": width, "height": 900})
    for chart in ("memory", "time", "contexts", "bits"):
        page.wait_for_selector(f"#{chart} .plot-container .main-svg")
    page.wait_for_timeout(200)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert EVIL in page.locator("#memory .yaxislayer-above").text_content()
    page.close()


def test_a_command_is_copied_without_network(browser: Browser, tmp_path: Path) -> None:
    plan = hs.plan(card(), free(machine()), hs.Workload(20, 10), tool="llama.cpp")
    page = opened(browser, tmp_path, plan).page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator("button.copy").click()
    page.wait_for_selector("button.copy:has-text('copied')")
    assert page.evaluate("navigator.clipboard.readText()") == plan.command().text
    page.close()
