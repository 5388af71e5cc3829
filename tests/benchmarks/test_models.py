"""benchmarks/models.py: rows of small models, of failures and of processes that die; an interrupted run goes on."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import architectures  # noqa: E402
import models  # noqa: E402
from architectures import ARCHITECTURES, Architecture  # noqa: E402


def test_there_are_sixty_names_of_four_libraries() -> None:
    assert len(ARCHITECTURES) == 60
    assert {model.library for model in ARCHITECTURES.values()} == {"torchvision", "timm", "transformers", "diffusers"}
    args, kwargs = ARCHITECTURES["t5"].example()
    assert not args
    assert {name: tensor.dtype for name, tensor in kwargs.items()} == dict.fromkeys(["input_ids", "decoder_input_ids"], torch.long)


def test_boxes_that_overlap_better_ones_are_suppressed() -> None:
    boxes = torch.tensor([[0.0, 0, 2, 2], [0, 0, 2, 1.8], [5, 5, 6, 6], [0, 0, 1, 1]])
    kept = architectures._suppressed(boxes, torch.tensor([0.5, 0.9, 0.1, 0.7]), 0.5)
    assert kept.tolist() == [1, 3, 2]
    assert architectures._suppressed(boxes[:0], torch.zeros(0), 0.5).tolist() == []


def dying() -> Any:
    os._exit(3)


@pytest.mark.slow
def test_failures_cost_their_rows_and_a_run_goes_on(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = {"linear": lambda: torch.nn.Linear(4, 4), "broken": lambda: 1 / 0, "dying": dying}
    small = {name: Architecture("torch", make, ((1, 4),)) for name, make in made.items()}
    for module in (architectures, models):
        monkeypatch.setattr(module, "ARCHITECTURES", small)
    monkeypatch.setattr(architectures, "define_operators", lambda: None)
    words = ["--docs", str(docs), "--rows", str(docs / "rows.jsonl")]
    models.main([*words, "--models", "linear", "broken"])
    models.main(words)
    rows = [json.loads(line) for line in (docs / "rows.jsonl").read_text().splitlines()]
    assert [row["name"] for row in rows] == ["linear", "broken", "dying"]
    assert rows[0]["flops"] == rows[0]["counted"] == 32
    assert rows[0]["way"] == "any batch"
    assert rows[1]["error"] == "InvalidProblem: <lambda> fails: ZeroDivisionError: division by zero; it must return a torch.nn.Module"
    assert rows[2]["error"] == "its process died"
    page = (docs / "benchmarks.md").read_text()
    assert "The plain call captured 1 of 3 (target 56 of 3): 1 any batch." in page
    assert "| broken | torch | **fails** |" in page
