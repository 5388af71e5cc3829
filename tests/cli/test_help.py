"""Help: every command has examples, and the examples work."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import typer
from typer.testing import CliRunner

import hetsched as hs
from hetsched.cli.app import app
from hetsched.cli.welcome import STEPS
from hetsched.problem.links import Communication
from hetsched.problem.problem import Batching, Memory
from hetsched.workloads import clusters, networks
from tests.frontends.test_gguf import FIELDS, dense, write
from tests.planning.test_questions import box


def walk(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each command with its words, in the order of the help."""
    yield words, command
    for name in command.list_commands(None) if hasattr(command, "list_commands") else ():
        yield from walk(command.commands[name], (*words, name))


COMMANDS = dict(walk(typer.main.get_command(app)))
WORDS = pytest.mark.parametrize("words", COMMANDS, ids=" ".join)


def help_of(words: tuple[str, ...], width: int = 80) -> str:
    shown = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": str(width), "TERMINAL_WIDTH": ""})
    assert shown.exit_code == 0
    return shown.stdout


def examples(words: tuple[str, ...]) -> list[str]:
    """Return the commands after "Example: ", as copied from help of 80 columns."""
    lines = [line.strip() for line in help_of(words).splitlines()]
    commands = []
    for i, line in enumerate(lines):
        if line.startswith("Example: "):
            command = line.removeprefix("Example: ")
            while command.endswith("\\"):
                i += 1
                command = command[:-1] + lines[i]
            assert lines[i + 1] == ""  # the command is complete
            commands.append(command)
    return commands


def test_there_are_commands() -> None:
    assert {("solve",), ("generate", "rwnn"), ("generate", "network"), ("show",)} < set(COMMANDS)


@pytest.mark.slow
@WORDS
@pytest.mark.parametrize("width", [60, 80, 120])
def test_help_fits_the_terminal(words: tuple[str, ...], width: int) -> None:
    assert max(map(len, help_of(words, width).splitlines())) <= width


@WORDS
def test_every_command_has_an_example_of_itself(words: tuple[str, ...]) -> None:
    commands = examples(words)
    assert commands
    assert all(example.startswith(" ".join(["hetsched", *words])) for example in commands)


@pytest.mark.slow
def test_the_examples_work_in_the_order_of_the_help(run: Any, folder: Path) -> None:
    """All run in one folder, because later examples read files of earlier ones."""
    for words in COMMANDS:
        if words == ("capture",):
            pytest.importorskip("torch", reason="capturing needs torch")
        if words == ("compare",):
            for name in ("old.json", "new.json"):
                shutil.copy("profile.json", name)
        if words == ("plan",):
            write("model.gguf", "llama", dense(1), {**FIELDS, "block_count": 1})
            box((1e9, 1e9, 1e9)).write("box.json")
        if words == ("convert",):
            Path("graph.stg").write_text("1\n0 3 0\n")
            onnx = pytest.importorskip("onnx", reason="a model in ONNX needs onnx")
            kinds = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [8]) for name in ("x", "y")]
            nodes = [onnx.helper.make_node("Relu", ["x"], ["y"])]
            onnx.save(onnx.helper.make_model(onnx.helper.make_graph(nodes, "net", kinds[:1], kinds[1:])), "net.onnx")
        for example in examples(words):
            done = run(*shlex.split(example)[1:])
            assert done.exit_code == 0, f"{example}\n{done.stderr}"
            for name in re.findall(r"\S+\.(?:json|html|svg)", example):
                assert Path(name).exists(), f"{example} left no {name}"


@WORDS
def test_every_option_is_explained(words: tuple[str, ...]) -> None:
    for parameter in COMMANDS[words].params:
        assert parameter.help, parameter.name
        assert parameter.help.endswith("."), parameter.name


@pytest.mark.slow
def test_flags_show_no_type(run: Any) -> None:
    for words in COMMANDS:
        assert "<bool>" not in help_of(words)


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("communication", get_args(Communication)),
        ("batching", get_args(Batching)),
        ("memory", get_args(Memory)),
        ("cluster", clusters.names()),
        ("name", networks.names()),
    ],
)
def test_help_names_the_values_there_are(option: str, values: tuple[str, ...]) -> None:
    parameter = next(candidate for candidate in COMMANDS["generate", "network"].params if candidate.name == option)
    assert all(re.search(rf"\b{value}\b", parameter.help) for value in values)


def test_without_a_command_the_next_steps_are_printed(run: Any, folder: Path) -> None:
    shown = run()
    assert (shown.exit_code, shown.stderr) == (0, "")
    lines = shown.stdout.splitlines()
    assert lines[0].startswith(f"hetsched {hs.__version__}: ")
    assert len(lines) <= 20  # leaves room for a prompt in 24 rows
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in shown.stdout
    assert "is here already" not in shown.stdout
    Path("problem.json").touch()
    assert "problem.json is here already; next: hetsched solve problem.json --show" in run().stdout


@pytest.mark.slow
def test_the_steps_it_shows_work(run: Any, folder: Path) -> None:
    for _, command in STEPS:
        if command.endswith("--install-completion"):
            continue  # writes into the home folder
        done = run(*command.split()[1:])
        assert done.exit_code == 0, f"{command}\n{done.stderr}"


def test_without_a_terminal_the_width_is_columns_or_80(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "get_terminal_size", lambda *_: os.terminal_size((150, 50)))
    for columns, expected in ((None, 80), ("100", 100), ("wide", 80)):
        monkeypatch.delenv("COLUMNS", raising=False)
        if columns is not None:
            monkeypatch.setenv("COLUMNS", columns)
        assert 0 < expected - max(map(len, run("methods").stdout.splitlines())) + 1 <= 12
