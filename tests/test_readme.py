"""What README.md shows is run: every command, every block of Python, and the picture against the contracts."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hetsched.cli.app import app
from hetsched.search import _REGISTRY

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """Return the fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


COMMANDS = [line.removeprefix("$ ") for block in blocks("console") for line in block.splitlines()]


def test_every_block_of_python_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("hetsched.search._REGISTRY", dict(_REGISTRY))  # the method it registers stays here
    names: dict[str, object] = {"__name__": "readme"}
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), names)
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("<Solution by ")
    assert said[-1] == "heft"


def test_every_command_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ours = [shlex.split(command)[1:] for command in COMMANDS if command.startswith("hetsched ")]
    assert {words[0] for words in ours} >= {"demo", "generate", "solve", "verify", "bound", "methods", "schema"}
    for words in ours:
        if words[0] == "capture":
            pytest.importorskip("torch", reason="capturing needs torch")
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, (words, result.output)


def test_the_make_targets_exist() -> None:
    targets = {command.removeprefix("make ") for command in COMMANDS if command.startswith("make ")}
    assert targets == {"demo", "test"}
    assert set(COMMANDS) - {f"make {target}" for target in targets} == {command for command in COMMANDS if command.startswith("hetsched ")}
    for target in targets:
        assert re.search(rf"^{target}: ", MAKEFILE, re.MULTILINE)


def test_make_demo_runs_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = re.search(r"^demo: .*\n\t\$\(BIN\)/hetsched (.*)$", MAKEFILE, re.MULTILINE)
    assert recipe is not None
    result = CliRunner().invoke(app, shlex.split(recipe[1]))
    assert result.exit_code == 0, result.output
    assert {path.name for path in tmp_path.iterdir()} == {"problem.json", "schedule.json"}


def test_the_picture_shows_the_layers_that_are_enforced() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    layers = [[name.strip() for name in layer.split("|")] for layer in contracts[0]["layers"]]
    picture = next(block for block in blocks("") if block.startswith("cli"))
    for line, layer in zip(picture.splitlines(), layers, strict=True):
        assert line.split()[: len(layer)] == layer
