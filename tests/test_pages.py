"""All examples of README.md and the pages of docs/ are run: commands, blocks of Python, and outputs."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from docs.run_pages import PageError, blocks, commands, from_nowhere, needs_torch, not_run, run, runs_something, unsupported
from hetsched.cli.app import app
from hetsched.cli.commands import demo

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
COMMANDS = [command for block in blocks(README) if block.language == "console" for command in commands(block)]


def pages() -> list[str]:
    """Return the pages as paths from the root, without those made by the build of the site."""
    paths = [page.relative_to(ROOT) for page in (ROOT / "docs").rglob("*.md")]
    return ["README.md", *sorted(str(page) for page in paths if page.parts[1] not in ("_build", "_made"))]


def followed(page: Path, folder: Path) -> str:
    """Run a page in a separate process, as a reader would, and return its output."""
    done = subprocess.run([sys.executable, str(ROOT / "docs" / "run_pages.py"), str(page), str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


RUNNING = [page for page in pages() if runs_something((ROOT / page).read_text(encoding="utf-8"))]


@pytest.mark.slow
@pytest.mark.parametrize("page", RUNNING)
def test_what_a_page_shows_is_so(page: str, tmp_path: Path) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    if needs_torch(text) and importlib.util.find_spec("torch") is None:
        pytest.skip("this page captures a model, which needs torch")
    output = followed(ROOT / page, tmp_path)
    if page == "README.md":
        assert "\n<Solution by " in output
        assert "\nheft\n" in output


@pytest.mark.parametrize("page", pages())
def test_no_block_is_left_out_unnoticed(page: str) -> None:
    for block in blocks((ROOT / page).read_text(encoding="utf-8")):
        assert block.language in ("python", "console", "text", "toml", "json", "file", ""), f"{page}:{block.line}"
        for command in commands(block) if block.language == "console" else ():
            script = re.match(r"python (benchmarks/\S+)", command)
            assert script is None or (ROOT / script[1]).is_file(), f"{page}:{block.line}: {command}"


@pytest.mark.parametrize("page", pages())
def test_numbers_in_prose_come_from_the_page_or_name_their_source(page: str) -> None:
    assert from_nowhere(ROOT / page) == []


# ---------------------------------------------------------------------- faults of pages are found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("```python\nprint(1)\n```\n\n```text\n2\n```\n", r"page\.md:6: the page shows something else"),
        ("\n\n```python\nraise KeyError(3)\n```\n", r"page\.md:4: the block fails(.|\n)*line 4(.|\n)*KeyError: 3"),
        ("```console\n$ hetsched schema nothing\n```\n", "ends with exit code 2"),
        ("```console\n$ rm -rf folder\n```\n", "'rm -rf folder' is not run"),
        ("```console\nhetsched methods\n```\n", "is no command"),
        ("```ruby\nputs 1\n```\n", "nobody runs blocks of 'ruby'"),
        ("```{code-block} python\nprint(1)\n```\n", "a code block without a caption"),
    ],
)
def test_a_page_that_is_not_true_is_refused(text: str, message: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    with pytest.raises(PageError, match=message):
        run(page, tmp_path)


PAGE = """# A title of 3.7 %

It takes {} for each of 12 tasks, `9.9 s` being no prose, nor Python 3.11, nor [this](page-1.5.md).

```python
print("0.0014523 s, gap 10.92 %")
link = 16e9, 20_000
```

```text
0.0014523 s, gap 10.92 %
```
"""


@pytest.mark.parametrize("text", ["1.452 ms", "1452 µs", "1.5 ms", "10.9 %", "11%", "16 GB", "20,000 times", "5", "1.452 ms (16 GB)"])
def test_a_number_that_a_block_shows_may_have_another_unit_and_fewer_digits(text: str) -> None:
    assert [number for _, number in unsupported(PAGE.format(text))] == ["3.7 %"]


@pytest.mark.parametrize(
    "text", ["1.453 ms", "1.452 s", "1.6 ms", "10.8 %", "10.92 s", "12%", "1.452", "17 GB", "2,000 times", "3 s", "0.3"]
)
def test_a_number_that_no_block_shows_is_reported_with_its_line(text: str) -> None:
    assert list(unsupported(PAGE.format(text))) == [(1, "3.7 %"), (3, text)]


@pytest.mark.parametrize("source", ["[^paper]", "({doc}`../benchmarks`)"])
def test_a_number_from_elsewhere_names_its_source_in_its_sentence(source: str) -> None:
    text = PAGE.format("1.452 ms") + "\nThe paper says 44 %\nand 1.7 s {}. Its sequel says 45 %.\n\n[^paper]: Its table 3, 7.5 s.\n"
    assert list(unsupported(text.format(source))) == [(1, "3.7 %"), (15, "45 %")]


def test_only_pages_with_code_need_sources_for_their_numbers(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.format("7 s"), encoding="utf-8")
    assert from_nowhere(page) == [(1, "3.7 %"), (3, "7 s")]
    page.write_text("This page runs nothing: 7 s.", encoding="utf-8")
    assert from_nowhere(page) == []


def test_blocks_share_names_and_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```{code-block} text\n:caption: note.txt\n\nhello\n```\n\n```python\nx = open('note.txt').read()\n```\n\n"
        "```python\nprint(x, 0.123)\n```\n\n```text\nhello\n 0.1...\n```\n",
        encoding="utf-8",
    )
    run(page, tmp_path)
    assert capsys.readouterr().out == "hello\n 0.123\n"


# ---------------------------------------------------------------------- README alone


def test_the_readme_shows_the_commands() -> None:
    shown = {shlex.split(command)[1] for command in COMMANDS if command.startswith("hetsched ")}
    assert shown >= {"demo", "generate", "solve", "verify", "bound", "methods", "schema", "capture", "run"}


def test_the_make_targets_exist() -> None:
    targets = {command.removeprefix("make ") for command in COMMANDS if not_run(command)}
    assert targets >= {"demo", "test"}
    for target in targets:
        assert re.search(rf"^{target}: ", MAKEFILE, re.MULTILINE)


def test_make_demo_runs_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "SECONDS", 1.0)
    recipe = re.search(r"^demo: .*\n\t\$\(BIN\)/hetsched (.*)$", MAKEFILE, re.MULTILINE)
    assert recipe is not None
    result = CliRunner().invoke(app, shlex.split(recipe[1]))
    assert result.exit_code == 0, result.output
    assert {path.name for path in tmp_path.iterdir()} >= {"problem.json", "schedule.json"}


def test_the_picture_shows_the_layers_that_are_enforced() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    layers = [[name.strip() for name in layer.split("|")] for layer in contracts[0]["layers"]]
    picture = next(block.text for block in blocks(README) if block.language == "" and block.text.startswith("cli"))
    for line, layer in zip(picture.splitlines(), layers, strict=True):
        names = re.split(" {2,}", line)[0]
        assert names.split(" | ") == layer


@pytest.mark.parametrize("page", [page for page in pages() if page.startswith("docs/gallery/") and not page.endswith("index.md")])
def test_a_page_of_the_gallery_is_a_notebook_with_all_of_its_blocks(page: str) -> None:
    notebooks = pytest.importorskip("notebooks", reason="notebooks need pip install 'hetsched[docs]'")
    text = (ROOT / page).read_text(encoding="utf-8")
    cells = notebooks.notebook(text).cells
    parts = list(blocks(text))
    assert [cell.source for cell in cells if cell.cell_type == "code" and cell.source[0] not in "!%"] == [
        block.text.rstrip() for block in parts if block.language == "python"
    ]
    assert [output.text for cell in cells if cell.cell_type == "code" for output in cell.outputs] == [
        block.text for block in parts if block.language == "text"
    ]
    assert not re.search(r"\{doc\}|_made|```", "".join(cell.source for cell in cells if cell.cell_type == "markdown"))
