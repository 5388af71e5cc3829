"""`hetsched plan --report`: the page says what the terminal says."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.planning.test_planner import CONFIG, machine


@pytest.fixture
def asked(folder: Path) -> list[str]:
    """Return the words of a command line that plans a small model."""
    (folder / "config.json").write_text(json.dumps({**CONFIG, "num_hidden_layers": 4, "torch_dtype": "float16"}))
    machine().write(folder / "box.json")
    return ["plan", "config.json", "-m", "box.json", "--prompt", "20", "--output", "10", "--no-limits"]


@pytest.mark.slow
def test_the_page_has_the_command_that_is_printed(run: Run, folder: Path, asked: list[str]) -> None:
    result = run(*asked, "--for", "vllm", "--report", "plan.html")
    assert result.exit_code == 0, result.stderr
    assert "wrote" in result.stdout
    page = (folder / "plan.html").read_text()
    (command,) = re.findall(r'<pre id="text">(.*?)</pre>', page, re.DOTALL)
    assert html.unescape(command) in result.stdout
    assert "vllm serve" in command
    assert 'id="limits"' not in page


@pytest.mark.slow
def test_a_plan_that_does_not_fit_has_a_page_too(run: Run, folder: Path, asked: list[str]) -> None:
    result = run(*asked, "--context", 10**6, "--json", "--report", "plan.html")
    assert result.exit_code == 1, result.stderr
    facts = json.loads(result.stdout)
    assert facts["written"] == ["plan.html"]
    assert facts["headline"][1:] in (folder / "plan.html").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--for", "llama.cpp,vllm", "--report", "plan.html"], "--report takes one plan; name one tool"),
        (["--for", "llama.cpp,vllm", "--save", "plan.json"], "--save takes one plan; name one tool"),
        (["--report", "plan.txt"], "does not end in .html"),
        (["--report", "box.json.html", "--save", "box.json.html"], "is named for two outputs"),
    ],
)
def test_what_cannot_be_written_is_refused_before_any_work(
    run: Run, folder: Path, asked: list[str], words: list[str], message: str
) -> None:
    result = run(*asked, *words)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.replace("│", " ").split())
    assert sorted(path.name for path in folder.iterdir()) == ["box.json", "config.json"]
