"""Run the blocks of a Markdown page, and compare their output with the page.

    python docs/run_pages.py docs/tutorial.md FOLDER

The tests run every page by it; the build of the site runs the pages whose pictures it needs. The rules:

- ``python`` blocks run in order, in one namespace, in the folder given.
- ``console`` blocks: each line begins with ``$ `` and is run by bash, in the same folder. Commands that install
  something or take minutes are not run; `not_run` lists them.
- A ``text`` block is the output of the block before it. As in doctest, ``...`` matches any text, and amounts of white
  space are ignored.
- ``{code-block}`` with a caption is a file of that name, written to the folder.
- ``toml`` and ``json`` blocks must parse. A fence without a language is a picture. No other language is allowed.
- Numbers in the prose of a page that runs something, if they have a unit, a per cent sign or a decimal point, are in a
  block of that page too, code or output, possibly in another unit and with more digits. A number from elsewhere has its
  source: a footnote in its sentence, or a link to the benchmarks. The build of the site checks this for all pages.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import json
import os
import re
import subprocess
import sys
import tomllib
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PARSERS = {"toml": tomllib.loads, "json": json.loads}
RUN = ("hetsched", "python")
RULE = "is in no block of this page; print it, or say in the sentence where it comes from: [^source]"
INSTALLS = {"git clone", "cd hetsched", ". .venv/bin/activate", "pip install", "make demo", "make test", "make docs"}
FENCE = re.compile(r"^```(?P<info>[^`\n]*)\n(?P<body>.*?)^```[ ]*$", re.MULTILINE | re.DOTALL)
_UNITS = {
    "%": 1e-2,
    "ns": 1e-9,
    "µs": 1e-6,
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "second": 1.0,
    "seconds": 1.0,
    "minute": 60.0,
    "minutes": 60.0,
    "hour": 3600.0,
    "hours": 3600.0,
    "B": 1.0,
    "bytes": 1.0,
    "KB": 1e3,
    "MB": 1e6,
    "GB": 1e9,
    "TB": 1e12,
    "FLOP": 1.0,
    "MFLOP": 1e6,
    "GFLOP": 1e9,
    "TFLOP": 1e12,
    "times": 1.0,
}
_NUMBER = re.compile(
    rf"""(?<![\w.,])(?P<number>(?:\d{{1,3}}(?:[,_]\d{{3}})+|\d+)(?:\.(?P<decimals>\d+))?(?:e[+-]?\d+)?)
    (?:[ ]?(?P<unit>%)|[ ](?P<word>{"|".join(_UNITS)})\b)?(?!\w)""",
    re.VERBOSE,
)
_NO_PROSE = re.compile(r"(?P<tick>`+).+?(?P=tick)|\]\([^)]*\)|<[^>]+>|(?:Python|[Ss]ections?|[Tt]ables?|[Ff]igures?) \d[\d.]*\d", re.DOTALL)
_FOOTNOTE = re.compile(r"^\[\^\w+\]:(?:.+\n?)*", re.MULTILINE)
_SENTENCE = re.compile(r"(?<=[.?!:])\s+(?=[A-Z`*{\[(])|\n[ ]*(?:[-*|#]|\d+\.)[ ]|\n[ ]*\n")
_SOURCE = re.compile(r"\[\^\w+\]|\{doc\}`[^`]*benchmarks`")
_CAPTION = re.compile(r"^:caption: (?P<name>\S+)\n\n?", re.MULTILINE)
_LOOSE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class PageError(Exception):
    """The output of a block differs from the page."""


@dataclass(frozen=True)
class Block:
    """One fenced block: its language (or ``file``), its text, the first line of its text, and its file name."""

    language: str
    text: str
    line: int
    name: str = ""


def blocks(text: str) -> Iterator[Block]:
    """Yield the blocks of code and output of a page, without directives other than code blocks."""
    for fence in FENCE.finditer(text):
        info, body = fence["info"].strip(), fence["body"]
        line = text.count("\n", 0, fence.start()) + 2
        if info.startswith("{code-block}"):
            caption = _CAPTION.match(body)
            if caption is None:
                raise PageError(f"line {line}: a code block without a caption; fence it with its language alone")
            skipped = body[: caption.end()].count("\n")
            yield Block("file", body[caption.end() :], line + skipped, caption["name"])
        elif not info.startswith("{"):
            yield Block(info, body, line)


def commands(block: Block) -> Iterator[str]:
    """Yield the commands of a console block."""
    for number, line in enumerate(block.text.replace("\\\n", "").splitlines()):
        if not line.startswith("$ "):
            raise PageError(f"line {block.line + number}: {line!r} is no command; begin it with '$ ', and put output into a text block")
        yield line.removeprefix("$ ")


def not_run(command: str) -> bool:
    """Return whether a command is skipped: it installs something, or is a benchmark script."""
    return command.startswith("python benchmarks/") or any(command == start or command.startswith(f"{start} ") for start in INSTALLS)


def needs_torch(text: str) -> bool:
    """Return whether a page needs torch."""
    return any(
        re.search(r"^(import|from) torch|frontends\.torch|^\$ hetsched capture|policy-gradient", block.text, re.MULTILINE) is not None
        for block in blocks(text)
    )


def unsupported(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each number in the prose of a page that is neither in one of its blocks nor has a source."""
    known = [value for block in blocks(text) for value, _ in _numbers(block.text)]
    plain = text
    for no_prose in (FENCE, _FOOTNOTE):
        plain = no_prose.sub(lambda match: "\n" * match[0].count("\n"), plain)
    begin = 0
    for end in [*(match.start() for match in _SENTENCE.finditer(plain)), len(plain)]:
        sentence, line = plain[begin:end], plain.count("\n", 0, begin) + 1
        begin = end
        if _SOURCE.search(sentence):
            continue
        sentence = _NO_PROSE.sub(lambda match: "\n" * match[0].count("\n") or " ", sentence)
        for value, match in _numbers(sentence):
            precise = 0.5000001 * 10.0 ** -len(match["decimals"] or "") * _factor(match)
            if (match["decimals"] or _unit(match)) and not any(abs(value - other) <= precise for other in known):
                yield line + sentence.count("\n", 0, match.start()), match[0]


def _numbers(text: str) -> Iterator[tuple[float, re.Match[str]]]:
    """Yield the numbers of a text in seconds, bytes and the like, and their texts."""
    for match in _NUMBER.finditer(text):
        yield float(re.sub("[,_]", "", match["number"])) * _factor(match), match


def _unit(match: re.Match[str]) -> str:
    return match["unit"] or match["word"] or ""


def _factor(match: re.Match[str]) -> float:
    return _UNITS.get(_unit(match), 1.0)


def from_nowhere(page: Path) -> list[tuple[int, str]]:
    """Return line and text of each number of `unsupported`, for a page that runs something."""
    text = page.read_text(encoding="utf-8")
    return list(unsupported(text)) if runs_something(text) else []


def runs_something(text: str) -> bool:
    """Return whether a page has a block that is run."""
    return any(
        block.language == "python" or (block.language == "console" and not all(map(not_run, commands(block)))) for block in blocks(text)
    )


def run(page: Path, folder: Path) -> None:
    """Run a page in a folder and print the output of its blocks; raise `PageError` at the first that fails or differs."""
    namespace: dict[str, object] = {"__name__": "page"}
    printed = ""
    with contextlib.chdir(folder):
        for block in blocks(page.read_text(encoding="utf-8")):
            where = f"{page}:{block.line}"
            if block.language == "text":
                _compare(block.text, printed, where)
            elif block.language == "file":
                Path(block.name).write_text(block.text, encoding="utf-8")
            elif block.language == "python":
                printed = _echoed(_python(block, namespace, page))
            elif block.language == "console":
                printed = "".join(_echoed(_command(command, where)) for command in commands(block) if not not_run(command))
            elif block.language in PARSERS:
                PARSERS[block.language](block.text)
            elif block.language:
                raise PageError(f"{where}: nobody runs blocks of {block.language!r}")


def _echoed(text: str) -> str:
    sys.stdout.write(text)
    return text


def _python(block: Block, namespace: dict[str, object], page: Path) -> str:
    printed = io.StringIO()
    code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")  # so that a traceback has the lines of the page
    try:
        with contextlib.redirect_stdout(printed):
            exec(code, namespace)
    except Exception as error:
        raise PageError(f"{page}:{block.line}: the block fails\n{traceback.format_exc()}") from error
    return printed.getvalue()


def _command(command: str, where: str) -> str:
    if command.split()[0] not in RUN:
        raise PageError(f"{where}: {command!r} is not run; begin with one of {', '.join(RUN)}, or list it in run_pages.py")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    settings = {**os.environ, "PATH": path, "COLUMNS": "90", "NO_COLOR": "1"}
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=settings, check=False
    )
    if done.returncode:
        raise PageError(f"{where}: {command!r} ends with exit code {done.returncode}\n{done.stdout}")
    return done.stdout


def _compare(shown: str, printed: str, where: str) -> None:
    example = doctest.Example("", shown)
    checker = doctest.OutputChecker()
    if not checker.check_output(shown, printed, _LOOSE):
        difference = checker.output_difference(example, printed, _LOOSE | doctest.REPORT_NDIFF)
        raise PageError(f"{where}: the page shows something else than is printed\n{difference}\nPrinted:\n{printed}")


def main() -> int:
    """Run one page; return the exit code."""
    page, folder = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("MPLBACKEND", "Agg")
    sys.path[0] = str(folder)  # the files a page writes can be imported
    try:
        run(page, folder)
    except PageError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
