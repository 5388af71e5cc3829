"""benchmarks/ios.py: its tables on a small network."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

import ios

import hetsched as hs


@pytest.mark.slow
def test_it_writes_its_tables(docs: Path, capsys: pytest.CaptureFixture[str]):
    ios.main(["--quick", "--docs", str(docs), "--repeats", "1"])
    page = (docs / "benchmarks.md").read_text()
    assert "kept ios" in page
    assert "kept ios_counts" in page
    assert "| squeezenet | 50 / 50 | 6, 3, 2.2e+02 / 6, 3, 2.2e2 | 51, 131 | 51, 1.3e2 | 60, 152 | 51 |" in page
    for title in ("Search", "Block by block: squeezenet", "Batch sizes: squeezenet", "Measured"):
        assert f"### {title}" in page
    row = next(line for line in page.splitlines() if line.startswith("| squeezenet | ") and "x)" in line)
    speeds = [float(cell.split("(")[1].rstrip("x) |")) for cell in row.split(" | ")[1:]]
    assert speeds[0] == 1
    assert speeds[4] == max(speeds)


def test_counts_alone_are_those_of_table_1_and_leave_the_other_region(docs: Path):
    ios.main(["--counts", "--docs", str(docs), "--networks", "nasnet_a"])
    page = (docs / "benchmarks.md").read_text()
    assert "| nasnet_a | 374 / 374 | 18, 8, 5.2e+06 / 18, 8, 5.2e6 | 307,841, 7.151e+12 | 3.1e5, 7.2e12 | 335,331, 8.839e+12 | " in page
    assert "### Search" not in page


@pytest.mark.slow
def test_cells_of_nasnet_are_blocks_that_can_be_scheduled():
    vision = pytest.importorskip("hetsched.workloads.vision")
    graph = hs.frontends.torch.capture(lambda: vision.nasnet_a(10, cells=1, filters=8), vision.images(64), fuse=True)
    cells = ios.cells(graph)
    assert len(cells) == 1 + 7 + 1
    assert sorted(name for cell in cells for name in cell) == sorted(graph.names)
    best = hs.stages(graph, lambda tasks, strategy: 1.0 if strategy == "concurrent" else 9.0, blocks=cells, groups=2, group_size=1)
    assert hs.verify_stages(graph, best, groups=2, group_size=1) == []


@pytest.mark.slow
def test_a_schedule_costs_what_its_stages_do():
    net = ios.network("squeezenet", Path())
    cost = net.cost()
    best = net.best(cost)
    assert ios.seconds(best, cost) == pytest.approx(best.latency)
    assert ios.seconds(best, net.cost(inputs=32)) > best.latency
