"""benchmarks/costs.py: its tables on small networks, its fit on made-up measurements, and the reading of the logs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("scipy")

import costs
import figures

import hetsched as hs
from hetsched.costs.analytic import Analytic, Family

ABOUT = {"source": "a test", "date": "today", "n": 1}


@pytest.mark.slow
def test_it_writes_its_tables(docs: Path, tmp_path: Path) -> None:
    costs.main(["--quick", "--docs", str(docs), "--data", str(tmp_path), "--keep", str(tmp_path / "kept.json")])
    page = (docs / "benchmarks.md").read_text()
    assert "kept costs" in page
    for held in ("squeezenet", "googlenet"):
        row = next(line for line in page.splitlines() if line.startswith(f"| {held} | ") and " / " in line)
        assert len(row.strip("| ").split(" | ")) == len(costs.HEAD)
    assert "| inception_v3 | 128 | 108.55 | " in page
    assert f"AutoTVM logs: not in {tmp_path}." in page
    kept = hs.read(tmp_path / "kept.json")
    assert isinstance(kept, hs.costs.Profile)
    assert len(kept.networks) == 2


def test_the_page_of_the_docs_has_its_region() -> None:
    assert figures.replaced(figures.DOCS / "benchmarks.md", costs.REGION, "x")


def made(family: Family, network: str, seed: int) -> costs.Samples:
    """Return convolutions whose seconds are those of a family."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(60):
        channels, outputs, kernel, size = (int(rng.choice(some)) for some in ((16, 64, 256), (16, 64, 256), (1, 3), (7, 14, 56)))
        pad = kernel // 2
        rows.append((["conv2d", [1, channels, size, size], [outputs, channels, kernel, kernel], [1, 1], [pad, pad]], 1.0))
    one = costs.convolutions(network, rows)
    return one._replace(seconds=costs.predicted(Analytic(families={"cuda float32": family}), one))


def test_the_fit_finds_the_constants_that_made_the_times() -> None:
    truth = Family(
        **ABOUT, efficiency={"conv3x3": 0.8, "conv1x1": 0.5, "other": 0.5}, bandwidth={"other": 0.6}, error={"all": 1.0}, a=0.7, k0=20.0
    )
    fixed = {"k1": 1e30, "am": 0.0, "cache": 1.0}
    samples = [made(truth, name, seed) for seed, name in enumerate(("one", "other"))]
    found = costs.fitted(samples, "cuda float32", ABOUT, ["conv3x3", "conv1x1"], fixed)
    errors = costs.errors(Analytic(families={"cuda float32": found}), samples)
    assert errors.most < 0.01
    assert errors.rank > 0.999
    assert found.efficiency["conv3x3"] == pytest.approx(0.8, rel=0.05)
    lines, held = costs.halves(samples, "cuda float32", ABOUT, ["conv3x3", "conv1x1"], fixed)
    assert [line[0] for line in lines] == ["other", "one"], "the networks that were held"
    assert held.most < 0.01
    rounded = costs.with_errors(found, held)
    assert rounded.error["all"] == pytest.approx(1.0, abs=0.01)
    assert set(rounded.error) == {"all", "conv3x3", "conv1x1"}


def test_convolutions_of_the_logs_are_read() -> None:
    row = ["depthwise_conv2d_nchw", [1, 77, 112, 112, "float32"], [77, 1, 3, 3, "float32"], [2, 2], [1, 1], [1, 1], "float32"]
    one = costs.convolutions("net", [(row, 5e-6)])
    assert one.graph.shape == (hs.Shape(56 * 56, 77, 9, (3, 3), (2, 2), 77),)
    assert one.graph.flops[0] == 2 * 56 * 56 * 77 * 9
    assert one.seconds.tolist() == [5e-6]


def test_the_logs_have_the_shapes_that_were_counted() -> None:
    if not costs.DATA.is_dir():
        pytest.skip(f"no AutoTVM logs in {costs.DATA}")
    assert [len(one.seconds) for one in costs.tuned(costs.DATA)] == [42, 51, 18, 26]
