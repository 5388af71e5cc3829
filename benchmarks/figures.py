"""Common functions of the benchmarks: timing, tables, regions of the page, plots."""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import importlib.util
import json
import os
import platform
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from hetsched.experiments.rendering import number as number
from hetsched.experiments.rendering import percent as percent

DOCS = Path(__file__).resolve().parents[1] / "docs"
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Colours of Okabe and Ito, distinct for every common colour vision."""
MARKERS = "osD^vP*"


def parser(what: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options of every benchmark."""
    made = argparse.ArgumentParser(description=what, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--quick", action="store_true", help="small instances, few repeats; writes nothing unless --docs is given")
    made.add_argument("--docs", type=Path, help=f"folder with benchmarks.md and images/ to write to (default: {DOCS}; with --quick none)")
    made.add_argument("--json", type=Path, help="write the figures here too")
    return made


def parse(parser: argparse.ArgumentParser, words: Sequence[str] | None = None, *, region: str, plot: bool = False) -> argparse.Namespace:
    """Parse the command line; exit if a library or folder that is needed at the end is missing."""
    arguments = parser.parse_args(words)
    if arguments.docs is None and not arguments.quick:
        arguments.docs = DOCS
    if arguments.docs is not None:
        replaced(arguments.docs / "benchmarks.md", region, "")
        if plot and importlib.util.find_spec("matplotlib") is None:
            parser.error("matplotlib is not installed; install it with: pip install 'hetsched[report]'")
    return arguments


def publish(arguments: argparse.Namespace, region: str, text: str, figures: object) -> None:
    """Print a benchmark's text, write it to the page and the figures to the JSON file, if requested."""
    print(f"\n{text}")
    if arguments.docs is not None:
        page = arguments.docs / "benchmarks.md"
        page.write_text(replaced(page, region, text))
        print(f"\nwritten to {page}")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"machine": machine(), "figures": figures}, indent=1) + "\n")


def replaced(page: Path, region: str, text: str) -> str:
    """Return the text of a page with the content of a region replaced.

    A region is between ``<!-- NAME: begin -->`` and ``<!-- NAME: end -->``, both on separate lines.
    """
    old = page.read_text()
    begin, end = f"<!-- {region}: begin -->\n", f"<!-- {region}: end -->\n"
    for marker in (begin, end):
        if old.count(marker) != 1:
            raise SystemExit(f"{page} has the line {marker.strip()!r} {old.count(marker)} times; it must be there once")
    before, rest = old.split(begin)
    if end not in rest:
        raise SystemExit(f"{page} has the line {end.strip()!r} before {begin.strip()!r}; put it after")
    return f"{before}{begin}\n{text.strip()}\n\n{end}{rest.split(end)[1]}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table, its first column left-aligned, the others right-aligned."""
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    for line in lines:
        if len(line) != len(head):
            raise ValueError(f"a row of {len(line)} cells under a head of {len(head)}: {line}")
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def least(call: Callable[[], object], seconds: float = 0.2) -> float:
    """Return the least CPU time in seconds of calls repeated for `seconds`, after one to compile and warm up."""
    call()
    times: list[float] = []
    started = time.perf_counter()
    while len(times) < 3 or time.perf_counter() - started < seconds:
        before = time.thread_time()
        call()
        times.append(time.thread_time() - before)
    return min(times)


def machine() -> str:
    """Return one line with the machine and the date of the figures."""
    return f"{where()}, {datetime.datetime.now(datetime.UTC).date()}"


def where(*packages: str) -> str:
    """Return one line with the machine and the versions of its software, `packages` first."""
    name = platform.processor() or platform.machine()
    with open("/proc/cpuinfo") as file:
        name = next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), name)
    versions = ", ".join(f"{package} {importlib.metadata.version(package)}" for package in (*packages, "numpy", "numba", "hetsched"))
    return f"{name}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}, {versions}"


def save(figure: Any, path: Path) -> None:
    """Write a matplotlib figure as SVG; the same figure makes the same file."""
    import matplotlib as mpl

    path.parent.mkdir(exist_ok=True)
    with mpl.rc_context({"svg.hashsalt": "hetsched"}):
        figure.savefig(path, metadata={"Date": None}, bbox_inches="tight")
    print(f"written to {path}")


def dots(ax: Any, rows: Sequence[str], series: Sequence[tuple[str, dict[str, float]]], *, beyond: Callable[[str, str], bool]) -> None:
    """Draw a line of dots for each row, with a dot for each series.

    `series` are pairs of name and value by row; `beyond(name, row)` is whether the true value is
    larger, which is drawn as a hollow arrowhead.
    """
    for place, (name, values) in enumerate(series):
        shift = 0.5 * (place / max(1, len(series) - 1) - 0.5)
        colour = COLOURS[place % len(COLOURS)]
        for hollow, style in ((False, {"marker": MARKERS[place], "label": name}), (True, {"marker": ">", "fillstyle": "none"})):
            at = [(values[row], y + shift) for y, row in enumerate(rows) if row in values and beyond(name, row) == hollow]
            ax.plot([x for x, _ in at], [y for _, y in at], color=colour, markersize=5.5, linestyle="", **style)
    ax.set_yticks(range(len(rows)), rows)
    ax.set_ylim(len(rows) - 0.5, -0.5)
    for y in range(len(rows) - 1):
        ax.axhline(y + 0.5, color="0.9", linewidth=0.6, zorder=0)
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right"]].set_visible(False)


def log_ticks(ax: Any, places: Sequence[float]) -> None:
    """Make the x axis logarithmic, with the ticks within its range."""
    ax.set_xscale("log")
    low, high = ax.get_xlim()
    within = [place for place in places if low <= place <= high]
    ax.set_xticks(within, [f"{place / 1000:g}k" if place >= 1000 else f"{place:g}" for place in within])
    ax.set_xticks([], minor=True)
    ax.grid(axis="x", color="0.9", linewidth=0.6)


def legend_below(figure: Any, ax: Any) -> None:
    """Put the legend of `ax` below the figure."""
    handles, labels = ax.get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper center", ncols=len(labels), bbox_to_anchor=(0.5, 0.03), frameon=False)
