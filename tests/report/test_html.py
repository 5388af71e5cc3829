"""The page of a solution, in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given

import hetsched as hs
from hetsched.errors import printable
from hetsched.problem.units import seconds
from hetsched.testing.profiles import examples
from tests.browser import Visit, visit
from tests.report.cases import diamond, schedules, stack

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


def shown(browser: Browser, folder: Path, problem: hs.Problem, solution: hs.Solution | hs.Schedule, **options: Any) -> Visit:
    """Return the opened page of a solution; asserts that it has no errors and makes no requests."""
    path = folder / "report.html"
    hs.report.write_html(problem, solution, path, **options)
    seen = visit(browser, path.as_uri(), local=path.as_uri())
    if isinstance(solution, hs.Schedule) or solution.schedule is not None:
        seen.page.wait_for_selector("#gantt .plot-container .bars, #gantt .plot-container .scatterlayer")
    assert seen.complaints == []
    assert seen.requests == []
    return seen


def becomes(page: Page, condition: str) -> None:
    """Wait until an expression is true; playwright's own function evaluates strings in the page, which its policy forbids."""
    for _ in range(300):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(100)
    raise AssertionError(condition)


def hover(page: Page, trace: str, number: int) -> str:
    """Return the text of the chart when the pointer is on a bar."""
    index = page.evaluate("name => document.getElementById('gantt').data.findIndex(t => t.name === name)", trace)
    shape = page.locator("#gantt .bars.trace, #gantt .trace.bars").nth(
        page.evaluate("index => document.getElementById('gantt').data.slice(0, index).filter(t => t.type === 'bar').length", index)
    )
    box = shape.locator(".point path").nth(number).bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_selector("#gantt .hoverlayer .hovertext")
    return page.locator("#gantt .hoverlayer .hovertext").text_content() or ""


def test_hovering_over_a_batch_shows_its_task_device_and_times(browser: Browser, tmp_path: Path) -> None:
    problem, solution = diamond()
    page = shown(browser, tmp_path, problem, solution).page
    assert hover(page, "conv2d", 0) == "bconv2d on gpu3.000 ms to 7.000 ms (4.000 ms)"
    page.close()


def test_the_page_shows_the_solution(browser: Browser, tmp_path: Path) -> None:
    problem, solution = diamond()
    page = shown(browser, tmp_path, problem, solution).page
    assert page.title() == "hetsched: makespan 10.00 ms"
    assert page.inner_text("h1") == "4 tasks on 2 devices in 10.00 ms"
    text = page.inner_text("body")
    for words in ("This schedule is optimal", "keeps every rule", "4 edges; 1 input; channel communication", "Critical chain"):
        assert words in text
    rows = [row.split("\t") for row in page.locator("h2#devices + div tr").all_inner_texts()]
    assert [row[0].strip() for row in rows] == ["device", "cpu", "gpu"]
    assert rows[1][4].strip() == "70.00 %"
    chain = page.locator("h2#chain ~ div.tall tr").all_inner_texts()
    assert [row.split("\t")[0].strip() for row in chain] == ["step", "a", "transfer of a to b", "b", "transfer of b to d", "d"]
    page.close()


def test_a_second_schedule_has_a_paler_row_below_that_of_each_device(browser: Browser, tmp_path: Path) -> None:
    problem, solution = diamond()
    assert solution.schedule is not None
    slower = problem.replace(durations=problem.durations * 2)
    measured, forecast = hs.runtime.forecast(slower, solution.schedule), hs.runtime.forecast(problem, solution.schedule)
    page = shown(browser, tmp_path, slower, measured.schedule, against=forecast).page
    assert page.locator("#gantt .yaxislayer-above text, #gantt .yaxislayer-below text").all_text_contents() == [
        row for name in problem.cluster.names for row in (name, f"{name}, forecast")
    ]
    text = page.inner_text("body")
    assert f"forecast\n{seconds(forecast.makespan)}" in text
    assert "in paler colours, its row of the forecast" in text
    assert "keeps every rule" in text
    bars = page.evaluate("document.getElementById('gantt').data.find(t => t.name === 'conv2d')")
    (b,) = (measured.schedule.batches.task == 1).nonzero()[0]
    row = 2 * int(measured.schedule.batches.device[b])
    assert (bars["y"]["_inputArray"], len(set(bars["marker"]["color"]))) == ([row, row + 1], 2)
    assert hover(page, "conv2d", 1) == "bconv2d on gpu, forecast3.000 ms to 7.000 ms (4.000 ms)"
    page.close()


def test_zooming_and_the_legend_work(browser: Browser, tmp_path: Path) -> None:
    problem, solution = stack(2, 10)
    page = shown(browser, tmp_path, problem, solution).page
    chart = page.locator("#gantt .nsewdrag").first
    box = chart.bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.25, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, y, steps=5)
    page.mouse.up()
    left, right = page.evaluate("document.getElementById('gantt').layout.xaxis.range")
    makespan = problem and solution.makespan * 1e6
    assert [left, right] == pytest.approx([makespan * 0.25, makespan * 0.5], rel=0.05)
    page.locator("#gantt .legend .traces", has_text="relu_sepconv").locator(".legendtoggle").click()
    becomes(page, "document.getElementById('gantt').data[0].visible === 'legendonly'")
    page.close()


def test_the_critical_chain_is_switched_on_and_nothing_is_offered_for_upload(browser: Browser, tmp_path: Path) -> None:
    problem, solution = stack(4, 32)
    page = shown(browser, tmp_path, problem, solution).page
    chain = "document.getElementById('gantt').data.findIndex(t => t.name === 'critical chain')"
    assert page.evaluate(f"document.getElementById('gantt').data[{chain}].visible") == "legendonly"
    page.locator("#gantt .legend .traces", has_text="critical chain").locator(".legendtoggle").click()
    becomes(page, f"document.getElementById('gantt').data[{chain}].visible === true")
    titles = page.eval_on_selector_all("#gantt .modebar-btn", "found => found.map(each => each.getAttribute('data-title'))")
    assert titles
    assert not [title for title in titles if "loud" in title or "hare" in title]
    page.close()


def test_many_groups_leave_the_legend_to_the_switches(browser: Browser, tmp_path: Path) -> None:
    problem, solution = stack(3, 10)
    page = shown(browser, tmp_path, problem, solution, colour_by=[f"g.{i % 30}" for i in range(problem.n_tasks)]).page
    assert page.locator("#gantt .legend .traces").count() <= 10
    page.close()
    problem, solution = stack(30, 10)
    page = shown(browser, tmp_path, problem, solution, colour_by="module").page
    assert page.locator("#gantt .legend .traces").all_text_contents() == ["transfers", "critical chain"]
    page.close()


@pytest.mark.parametrize(("modules", "communication"), [(32, "delay"), (400, "channel")])
def test_large_schedules_are_drawn(browser: Browser, tmp_path: Path, modules: int, communication: str) -> None:
    problem, solution = stack(modules, communication=communication)
    seen = shown(browser, tmp_path, problem, solution, colour_by="module")
    page = seen.page
    bars = page.locator("#gantt .barlayer .point").count()
    assert solution.schedule is not None
    text = page.inner_text("body")
    if modules == 32:
        assert bars == len(solution.schedule.batches) == 1024
    else:
        assert 1000 < bars < 12800
        assert "are drawn as one grey block" in text
        assert f"The {len(solution.schedule.transfers)} transfers are not drawn" in text or len(solution.schedule.transfers) <= 8000
    page.close()


def test_names_are_text_whatever_they_hold(browser: Browser, tmp_path: Path) -> None:
    evil = "</script><script>console.error('run')</script><b>&amp;"
    problem, solution = diamond(a=evil, cpu="<img src=x onerror=console.error('run')>")
    page = shown(browser, tmp_path, problem, solution).page
    assert evil in page.inner_text("h2#chain ~ div.tall")
    assert evil in hover(page, "input", 0)
    page.close()


def test_control_characters_are_shown_without_effect(browser: Browser, tmp_path: Path) -> None:
    evil = "\x1b[31mred\x00\x07\x9b\u202e"
    problem, solution = diamond(a=evil, cpu="c\x1bpu")
    page = shown(browser, tmp_path, problem, solution).page
    for text in (page.inner_text("body"), page.title(), hover(page, "input", 0)):
        assert not [c for c in text if not c.isprintable() and c not in "\n\t\u00a0"]
    assert printable(evil) in page.inner_text("h2#chain ~ div.tall")
    page.close()


def test_the_page_runs_its_own_scripts_alone_and_loads_nothing(browser: Browser, tmp_path: Path) -> None:
    problem, solution = diamond()
    seen = shown(browser, tmp_path, problem, solution)
    seen.page.evaluate("""() => {
        const script = document.createElement('script'); script.textContent = 'window.ran = true'; document.body.append(script);
        const image = document.createElement('img'); image.src = 'https://example.org/seen.png'; document.body.append(image);
        document.body.insertAdjacentHTML('beforeend', '<p id="p" onclick="window.ran = true">p</p>');
        document.getElementById('p').click();
    }""")
    assert not seen.page.evaluate("window.ran")
    assert seen.requests == []
    assert len(seen.complaints) == 3
    assert all("Content Security Policy" in complaint for complaint in seen.complaints)
    with seen.page.expect_download() as saved:  # the picture is a blob
        seen.page.locator("#gantt .modebar-btn[data-title*=ownload]").click()
    assert saved.value.suggested_filename.endswith(".png")
    seen.page.close()


def test_without_a_schedule_the_page_reports_it(browser: Browser, tmp_path: Path) -> None:
    graph = hs.TaskGraph(["a"], [], weight_bytes=9.0)
    problem = hs.Problem(graph, hs.Cluster([hs.Device("x", memory_bytes=8.0)], bandwidth=1.0), durations=[[1.0]])
    solution = hs.solve(problem, "heft")
    assert solution.schedule is None
    page = shown(browser, tmp_path, problem, solution).page
    assert page.inner_text("h1") == "1 task on 1 device: no valid schedule exists"
    assert solution.proof.evidence in page.inner_text("body")
    assert page.locator("#progress").count() == 0
    page.close()


def test_broken_rules_are_listed(browser: Browser, tmp_path: Path) -> None:
    problem, solution = diamond()
    assert solution.schedule is not None
    schedule = solution.schedule
    early = hs.Schedule.from_columns(
        schedule.tasks,
        schedule.devices,
        1,
        schedule.batches.replace(start=schedule.batches.start * 0.9),
        schedule.item_ptr,
        schedule.items,
        schedule.transfers,
    )
    page = shown(browser, tmp_path, problem, early).page
    text = page.inner_text("body")
    assert f"{len(hs.verify(problem, early))} broken rules" in text
    assert "as claimed; the check disagrees" in page.inner_text("h1")
    assert "Critical chain" not in text
    page.close()


@pytest.mark.slow
@examples(15)
@given(schedules())
def test_a_page_is_made_of_every_schedule(case: tuple[hs.Problem, hs.Schedule]) -> None:
    problem, schedule = case
    text = hs.report.html(problem, schedule)
    assert f"in {seconds(schedule.makespan)}" in text
    assert text.count("<script") == text.count("</script>")


def test_missing_plotly_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, solution = diamond()
    monkeypatch.setattr("importlib.util.find_spec", lambda name, package=None: None)
    with pytest.raises(hs.MissingDependency, match="'plotly' is not installed"):
        hs.report.html(problem, solution)


def test_memory_curves_are_thinned_without_losing_the_peak() -> None:
    from hetsched.report.figures import _thinned

    rng = np.random.default_rng(0)
    time, value = np.sort(rng.random(40000)), rng.random(40000)
    few, thin = _thinned(time, value, 1.0)
    assert len(few) < 7000
    assert thin.max() == value.max()
    assert (np.diff(few) > 0).all()
