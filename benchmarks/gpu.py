"""What a GPU does: copies, operators, launches, stages, placements and memory, measured on a machine that need not be prepared.

    python benchmarks/gpu.py --minutes 27 --out results/gpu-h200.jsonl [--only ios links] [--full]
    python benchmarks/gpu.py --device cpu --quick
    python benchmarks/gpu.py --tables [results/gpu-h200.jsonl]

Runs from a copy of the repository with any torch from 2.7 on; no package is installed and no solver is imported. Each section has a
number of minutes, ends after the step in which they are over, and prints what it left; the first, which the others need, is always done,
and a run that goes on with a file begins with the sections that have no lines there.
Steps are written to the file as they end, so that a run that was interrupted goes on there at the next start. `--tables` writes the page's
region from files alone.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import math
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

REGION = "gpu"
ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "benchmarks" / "results"
SECTIONS = {"environment": 1, "links": 2, "operators": 7, "engine": 2, "ios": 8, "placements": 4, "memory": 1, "plans": 2}
"""Minutes of each section."""
QUICK = 2.5
"""Minutes of all sections with --quick."""
NEEDED = ("torch", "numpy", "numba", "scipy", "networkx", "msgspec")
LEAST_TORCH = (2, 7)
FIELDS = ("section", "digest", "device", "statistic", "seconds", "spread", "software")
"""What every line has; seconds are None where something else was found out."""
Row = dict[str, Any]


class Step(NamedTuple):
    """A part of a section that is done as a whole, or not at all."""

    name: str
    work: Callable[[], list[Row]]
    """Returns its lines."""


class Records:
    """The lines of a file, or of this run only; a last line that is not whole is removed."""

    def __init__(self, path: Path | None) -> None:
        self.path, self.rows = path, list[Row]()
        if path is None:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            data = path.read_bytes()
            whole = data[: data.rfind(b"\n") + 1]
            if len(whole) < len(data):
                os.truncate(path, len(whole))
            self.rows = read(whole.decode(), path)

    def add(self, rows: Sequence[Row]) -> None:
        """Write lines, all or none of them."""
        self.rows += rows
        if self.path is not None:
            with open(self.path, "ab", buffering=0) as file:
                file.write("".join(f"{json.dumps(row)}\n" for row in rows).encode())
                os.fsync(file.fileno())

    def has(self, section: str, step: str) -> bool:
        """Return whether a step was done."""
        return any((row["section"], row.get("step")) == (section, step) and row["what"] != "failed" for row in self.rows)

    def unknown_first(self, sections: Iterable[str]) -> list[str]:
        """Return sections in the order in which they are measured: the first, and those that have no lines before those that have."""
        known = {row["section"] for row in self.rows if row["what"] not in ("end", "failed")}
        first, *others = sections
        return [first, *sorted(others, key=known.__contains__)]

    def finished(self, section: str) -> bool:
        """Return whether a section has left nothing."""
        return any(row["section"] == section and row["what"] == "end" and not row["left"] for row in self.rows)


def read(text: str, path: Path) -> list[Row]:
    """Return the lines of a file."""
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            row = json.loads(line)
            if not all(field in row for field in (*FIELDS, "what")):
                raise ValueError
        except ValueError:
            raise SystemExit(f"line {number} of {path} is not a line of gpu.py; remove it, or name another file") from None
        rows.append(row)
    return rows


def missing() -> list[str]:
    """Return what this Python lacks, one line each."""
    lacking = [f"{name} is not installed" for name in NEEDED if importlib.util.find_spec(name) is None]
    if not any(text.startswith("torch ") for text in lacking):
        version = str(importlib.import_module("torch").__version__)
        own = tuple(map(int, re.findall(r"\d+", version)[:2]))
        if own < LEAST_TORCH:
            lacking.append(f"torch is {version}, and must be at least {'.'.join(map(str, LEAST_TORCH))}")
    return lacking


def prepare() -> None:
    """Put the repository on the path, also of processes that are started; exit if anything is missing."""
    if importlib.util.find_spec("hetsched") is None:
        sys.path.insert(0, str(ROOT))
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    lacking = missing()
    if lacking:
        raise SystemExit(
            f"gpu.py cannot run: {'; '.join(lacking)}. Collect wheels by benchmarks/gpu_wheels.sh where there is a package registry, and "
            "install them here with: pip install --no-index --no-deps FOLDER/*.whl"
        )


def measure(section: str, steps: Iterable[Step], records: Records, common: Row, seconds: float) -> list[str]:
    """Take the steps of a section that are not done, until its time is over; return those that failed, which the next start repeats."""
    from gpu_tools import Watch

    end, left, failed = time.monotonic() + seconds, list[str](), list[str]()
    for step in steps:
        if records.has(section, step.name):
            continue
        if time.monotonic() >= end:
            left.append(step.name)
            continue
        watch = Watch()
        try:
            made = step.work()
        except Exception as error:
            made = [{"what": "failed", "error": f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"}]
            failed.append(step.name)
        about = {**dict.fromkeys(FIELDS), **common, "section": section, "step": step.name, **watch.found()}
        records.add([{**about, **row} for row in made])
        print(f"{section}: {step.name}: {made[0].get('error') or f'{len(made)} lines'}", flush=True)
    records.add([{**dict.fromkeys(FIELDS), **common, "section": section, "what": "end", "left": [*failed, *left]}])
    for what, names in (("failed", failed), ("left, as the time is over", left)):
        if names:
            print(f"{section}: {what}: {', '.join(names)}", flush=True)
    return failed


def stopped(number: int, _: FrameType | None) -> None:
    """End the run; steps that have ended are in the file."""
    raise SystemExit(128 + number)


def options() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser: argparse.ArgumentParser = importlib.import_module("figures").parser(__doc__)
    parser.add_argument("--device", help="a device of torch, or cpu (default: cuda:0)", default="cuda:0")
    parser.add_argument("--minutes", type=float, help=f"of all sections (default: {sum(SECTIONS.values())}; with --quick {QUICK})")
    parser.add_argument("--out", type=Path, help=f"file of lines to go on with (default: {KEPT}/gpu-DEVICE.jsonl; with --quick none)")
    parser.add_argument("--only", nargs="+", type=lambda text: text.split(","), help=f"sections, of {', '.join(SECTIONS)}")
    parser.add_argument("--full", action="store_true", help="torch.compile for all networks and batches, for as long as it takes")
    parser.add_argument("--tables", nargs="*", type=Path, help="write the page from these files (default: all with --out's default names)")
    parser.add_argument(
        "--profile",
        type=Path,
        help="with --tables: write what was measured of operators as a profile here, which needs torch; its name is that of the GPU",
    )
    parser.add_argument("--rival", help=argparse.SUPPRESS)
    return parser


def main(words: Sequence[str] | None = None) -> None:
    """Measure, or write the tables."""
    prepare()
    parser = options()
    arguments = parser.parse_args(words)
    if arguments.tables is not None:
        figures, tables = (importlib.import_module(name) for name in ("figures", "gpu_tables"))
        arguments = figures.parse(parser, words, region=REGION)
        files = [read(path.read_text(), path) for path in arguments.tables or sorted(KEPT.glob("gpu-*.jsonl"))]
        figures.publish(arguments, REGION, tables.text(files), {"lines": sum(map(len, files))})
        if arguments.profile is not None:
            tables.profile([row for rows in files for row in rows], arguments.profile.name.partition(".")[0]).write(arguments.profile)
        return
    names = [name for group in arguments.only or [[*SECTIONS]] for name in group]
    unknown = [name for name in names if name not in SECTIONS]
    if unknown:
        parser.error(f"--only names {unknown[0]!r}, which is none of {', '.join(SECTIONS)}")
    minutes = (QUICK if arguments.quick else sum(SECTIONS.values())) if arguments.minutes is None else arguments.minutes
    if not minutes > 0:
        parser.error(f"--minutes is {minutes:g}; it must be more than 0")
    if arguments.rival is not None:
        importlib.import_module("gpu_children").compiled(json.loads(arguments.rival))
        return
    sections = importlib.import_module("gpu_sections")
    if arguments.out is None and not arguments.quick:
        arguments.out = KEPT / f"gpu-{arguments.device.replace(':', '')}.jsonl"
    former = signal.signal(signal.SIGTERM, stopped)
    try:
        records = Records(arguments.out)
        try:
            bench = sections.Bench(arguments.device, records, quick=arguments.quick, full=arguments.full)
        except ValueError as error:
            raise SystemExit(f"--device {arguments.device}: {error}") from None
        if any(row[key] != bench.common[key] for row in records.rows for key in ("software", "quick")):
            raise SystemExit(f"{arguments.out} has lines of another device, other software or --quick; name another file")
        failed = []
        for name in records.unknown_first(name for name in SECTIONS if name in names or name == "environment"):
            if records.finished(name):
                print(f"{name}: done before", flush=True)
                continue
            started, seconds = time.monotonic(), 60 * minutes * SECTIONS[name] / sum(SECTIONS.values())
            if name == "environment":  # the others need all of it
                seconds = math.inf
            bench.deadline = started + seconds
            failed += measure(name, sections.STEPS[name](bench), records, bench.common, seconds)
            print(f"{name}: {time.monotonic() - started:.1f} s", flush=True)
    finally:
        signal.signal(signal.SIGTERM, former)
    if failed:
        raise SystemExit(f"{len(failed)} steps failed; the same command repeats them")


if __name__ == "__main__":
    main()
