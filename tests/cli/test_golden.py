"""Documents of a run on two cores, written by `hetsched run` in November 2026, read by every command that takes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parent / "run_of_a_model"
PROBLEM, SCHEDULE, RUN = (str(FOLDER / f"{name}.json") for name in ("problem", "schedule", "run"))


@pytest.mark.parametrize(
    ("name", "words"),
    [("verify", [PROBLEM, RUN]), ("show", [PROBLEM, RUN]), ("show_schedule", [PROBLEM, SCHEDULE]), ("compare", [PROBLEM, SCHEDULE, RUN])],
)
def test_what_a_command_prints_of_a_run(run: Any, name: str, words: list[str]) -> None:
    done = run(name.partition("_")[0], *words)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.replace(str(FOLDER), "...") == (FOLDER / f"{name}.txt").read_text()
