"""Values as HTML for notebooks."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given

import hetsched as hs
from hetsched.testing.profiles import examples
from tests.report.cases import diamond, schedules, stack

if TYPE_CHECKING:
    from playwright.sync_api import Browser

WILD = '<img src=x onerror="alert(1)">&\'"'


TAGS = set("div style p b table thead tbody tr th td svg text g rect line path title".split())  # noqa: SIM905
ATTRIBUTES = set("class style viewbox width height role x y x1 x2 y1 y2 rx d fill text-anchor".split())  # noqa: SIM905


class Reader(HTMLParser):
    """Checks that elements are closed in order, and keeps what they are and say."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.words = ""
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.tags.append(tag)
        self.attributes += attrs

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.words += data + " "


def read(value: Any) -> Reader:
    """Return what the HTML of a value has; it runs nothing, loads nothing, and is small."""
    text = value._repr_html_()
    assert len(text) < 120_000
    seen = Reader(text)
    assert set(seen.tags) <= TAGS
    assert {name for name, _ in seen.attributes} <= ATTRIBUTES
    assert "url(" not in text
    assert "nan" not in text
    return seen


@examples(15)
@given(schedules())
def test_every_value_is_shown_with_its_names(pair: tuple[hs.Problem, hs.Schedule]) -> None:
    problem, schedule = pair
    for value in (problem.graph, problem.cluster, problem, schedule):
        seen = read(value)
        assert type(value).__name__ in seen.words
    assert all(name in read(problem).words for name in (*problem.cluster.names, *problem.graph.names[:10]))
    bars = [value for name, value in read(schedule).attributes if (name, value) == ("class", "bar")]
    assert len(bars) == len(schedule.batches) * (schedule.batches.finish.max() > 0)


def test_text_is_escaped() -> None:
    problem, solution = diamond(a=WILD, cpu=WILD + "cpu")
    problem = problem.replace(graph=problem.graph.replace(op=WILD))
    for value in (problem.graph, problem.cluster, problem, solution, solution.schedule):
        assert WILD[:5] in read(value).words.replace("\N{HORIZONTAL ELLIPSIS}", "")


def test_a_solution_has_its_value_bound_and_gap() -> None:
    _, solution = diamond()
    words = read(solution).words
    assert f"makespan 10.00 ms, bound 10.00 ms ({solution.proof.name}), gap 0.00 %" in words
    assert "Solution: optimal" in words
    problem = hs.Problem(hs.TaskGraph(["a"], weight_bytes=5.0), hs.Cluster([hs.Device("x", memory_bytes=1.0)]), durations=[[1.0]])
    words = read(hs.solve(problem)).words
    assert "Solution: infeasible" in words
    assert "memory" in words


def test_large_values_are_cut_and_say_so() -> None:
    problem, solution = stack(60)
    assert f"and {problem.n_tasks - 10} more tasks" in read(problem).words
    schedule = solution.schedule
    assert schedule is not None
    words = read(schedule).words
    assert f"the {len(schedule.batches) - 300} shorter batches are grey" in words
    assert f"and {len(schedule.batches) - 10} more; schedule.to_dataframe() has all" in words
    wide = hs.Cluster([f"d{k}" for k in range(40)], np.arange(1.0, 1601.0).reshape(40, 40))
    words = read(wide).words
    assert "and 24 more devices" in words
    assert "and 32 more devices" in words


def test_what_is_not_finite_is_left_out_of_the_chart() -> None:
    _, solution = diamond()
    schedule = solution.schedule
    assert schedule is not None
    for value in (np.nan, np.inf):
        batches = schedule.batches.replace(finish=np.where(schedule.batches.task == 0, value, schedule.batches.finish))
        broken = hs.Schedule.from_columns(
            schedule.tasks, schedule.devices, 1, batches, schedule.item_ptr, schedule.items, schedule.transfers, makespan=1.0
        )
        assert "Schedule" in broken._repr_html_()
    empty = hs.solve(hs.Problem(hs.TaskGraph([]), hs.Cluster(["x"]), durations=np.zeros((0, 1)))).schedule
    assert "it has no batches" in read(empty).words


@pytest.mark.parametrize(
    ("system", "attribute", "dark"),
    [
        ("light", "", False),
        ("dark", "", True),
        ("light", 'data-jp-theme-light="false"', True),
        ("dark", 'data-jp-theme-light="true"', False),
        ("light", 'class="vscode-dark"', True),
        ("light", 'data-theme="dark"', True),
    ],
)
def test_it_is_dark_where_the_notebook_is(browser: Browser, system: Any, attribute: str, dark: bool) -> None:
    _, solution = diamond()
    page = browser.new_page(color_scheme=system)
    page.set_content(f"<!doctype html><body {attribute}>{solution._repr_html_()}</body>")
    paper, ink = page.evaluate(
        "[...['backgroundColor', 'color']].map(k => getComputedStyle(document.querySelector('.hetsched'))[k].match(/\\d+/g).map(Number))"
    )
    assert (max(paper) < 60 and min(ink) > 180) if dark else (min(paper) > 240 and max(ink) < 80)
    box = page.locator(".hetsched svg").last.bounding_box()
    assert box is not None
    assert box["width"] > 500
    page.close()
