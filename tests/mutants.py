"""Mutation tests: does the default suite fail when a rule, a bound or a formula is wrong?

    python -m tests.mutants [--list] [PART ...]

makes faulty copies of the package and runs, on each, the tests of the default suite that should fail. It prints "died" for
a copy on which a test fails, "survived" for one on which none does, and exits with 1 if any survives. With PART, only the
mutants whose name contains one of these texts are made. All of them take about ten minutes of one core.

rule NAME
    `verify` ignores the violations of a rule.
bound NAME
    A bound of `BOUNDS` is 1 % too high.
latency PLACE
    A formula of transfer times omits the latency.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from hetsched.bounds.best import BOUNDS, Cost
from hetsched.search import MAKESPAN
from hetsched.verification.verify import RULES

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "hetsched"
FORMULAS = "problem/link_kernels.py"
IMPORT = re.compile(r"^from hetsched\.problem\.link_kernels import .*$", re.MULTILINE)
CALL = re.compile(r"\b(?:link|bytes)_seconds\(")
INLINE = re.compile(r"\(latency\[(\w+), (\w+)\] \+ ")
LISTS, SEARCH = "heuristics/list_scheduling/", "heuristics/local_search/"
STATES = tuple(
    f"{SEARCH}test_annealing.py::test_{name}"
    for name in ("a_state_is_worth_what_its_decision_is", "a_try_is_refused_exactly_where_its_makespan_is_above_the_limit")
)
SUITES = {
    "analysis/level_kernels.py": ("analysis/test_levels.py",),
    "analysis/ranking_kernels.py": (f"{LISTS}test_static.py::test_basic_imaginary_levels_follow_the_recursion_of_the_paper",),
    f"{LISTS}kernels.py": (f"{LISTS}test_static.py",),
    f"{LISTS}batch_kernels.py": (f"{LISTS}test_batched.py::test_with_one_input_latencies_count_as_in_the_methods_they_extend",),
    f"{LISTS}transfer_kernels.py": (f"{LISTS}test_contention.py::test_many_transfers_are_those_of_the_definition",),
    f"{LISTS}lookahead_kernels.py": (f"{LISTS}test_lookahead.py::test_it_is_the_algorithm_of_the_book",),
    f"{SEARCH}cluster_kernels.py": (f"{SEARCH}test_clusters.py",),
    f"{SEARCH}disjunctive_kernels.py": (
        f"{SEARCH}test_tabu.py::test_a_value_is_the_makespan_where_nothing_contends",
        f"{SEARCH}test_tabu.py::test_loads_break_ties_only_where_no_transfer_takes_time",
        STATES[1],
    ),
    f"{SEARCH}move_kernels.py": (f"{SEARCH}test_annealing.py::test_the_critical_chain_follows_the_latest_arrival",),
    f"{SEARCH}state_kernels.py": STATES,
    "decomposition/window_kernels.py": ("decomposition/test_windows.py::test_limits_are_those_of_the_transfers",),
    "heuristics/randomised_kernels.py": ("heuristics/test_randomised.py::test_the_start_after_a_latency_is_the_later_one",),
    "runtime/assistant_kernels.py": ("runtime/test_assistants.py",),
}
"""Modules with formulas of transfer times, and the tests that should detect a wrong one; their problems are small, because
kernels are interpreted."""

WITHOUT_LATENCY = """

@inner
def free_bytes_seconds(links: LinkTable, amount: float, h: int, k: int) -> float:
    return float(amount / links.bandwidth[h, k]) if links.latency[h, k] < inf else inf


@inner
def free_link_seconds(links: LinkTable, edge: int, h: int, k: int, factor: float) -> float:
    if links.given:
        return float(links.transfers[edge, h, k] * factor)
    return free_bytes_seconds(links, links.edge_bytes[edge] * factor, h, k)
"""
RAISED = """

def _raised(function):
    import dataclasses
    import functools

    @functools.wraps(function)
    def raised(*args, **kwargs):
        found = function(*args, **kwargs)
        return dataclasses.replace(found, value=1.01 * found.value)

    return raised


{name} = _raised({name})
"""


INTERPRETED = """

def _compile(function, **_):
    return function
"""
"""Appended to compiled.py: kernels are interpreted."""
AT_ONCE = """

from hypothesis import Phase  # noqa: E402

settings.register_profile("mutants", settings.get_profile("dev"), phases=[Phase.explicit, Phase.generate], report_multiple_bugs=False)
settings.load_profile("mutants")
"""
"""Appended to conftest.py: the examples of dev, without shrinking, which takes most of the time."""


@dataclass(frozen=True)
class Mutant:
    """A faulty copy of the package.

    Attributes
    ----------
    name : str
    texts : dict of str
        The new texts of modules, by their path in the package.
    tests : tuple of str
        The test modules, or tests, that should fail, by their path in tests/.
    interpreted : bool
        Whether a kernel is changed: all kernels are then interpreted, because to compile it and its callers takes longer.
    """

    name: str
    texts: dict[str, str] = field(repr=False)
    tests: tuple[str, ...]
    interpreted: bool = False


def source(path: str) -> str:
    """Return the text of a module of the package."""
    return (PACKAGE / path).read_text(encoding="utf-8")


def exchanged(text: str, old: str, new: str) -> str:
    """Replace the only occurrence of `old` in a text by `new`; raise `ValueError` unless there is exactly one."""
    if text.count(old) != 1:
        raise ValueError(f"{text.count(old)} times {old!r}")
    return text.replace(old, new)


def mutants() -> Iterator[Mutant]:
    """Yield all mutants, those of kernels last."""
    yield from wrong_rules()
    yield from wrong_bounds()
    yield from wrong_transfers()


def wrong_rules() -> Iterator[Mutant]:
    """Yield a mutant for each rule of `verify`."""
    path, last = "verification/verify.py", "for violation in check(facts)]"
    for rule in RULES:
        text = exchanged(source(path), last, f"{last[:-1]} if violation.rule != {rule!r}]")
        yield Mutant(f"rule {rule}", {path: text}, ("verification/test_verify.py", "verification/test_verify_messages.py"))


def wrong_bounds() -> Iterator[Mutant]:
    """Yield a mutant for each bound; the bound of the memory, which is 0 or inf, is wrongly inf."""
    for entry in BOUNDS:
        name = entry.bound.__name__
        path = f"{entry.bound.__module__.removeprefix('hetsched.').replace('.', '/')}.py"
        if name == "memory":
            text = exchanged(source(path), "if fill > 1.0:", "if 1.01 * fill > 1.0:")
        else:
            text = source(path) + RAISED.format(name=name)
        tests: tuple[str, ...] = ("bounds/test_conformance.py",)
        if name == "memory":
            tests = ("bounds/test_lower_bounds.py",)
        elif entry.cost is Cost.MODEL:  # its suite is slow
            tests = ("bounds/test_relaxation.py", "decomposition/test_split.py")
        elif not entry.objectives >= MAKESPAN:
            tests = ("bounds/test_steady_state.py",)
        yield Mutant(f"bound {name}", {path: text}, tests)


def wrong_transfers() -> Iterator[Mutant]:
    """Yield a mutant for each formula of transfer times: that of problems, and each use, or inlined copy, of it in a kernel."""
    path, one = "problem/problem.py", "latency + moving"
    text = exchanged(source(path), one, "np.where(np.isfinite(latency), moving, np.inf)")
    text = exchanged(text, "latency + size / bandwidth", "size / bandwidth")
    yield Mutant("latency of problems", {path: text}, ("problem/test_problem.py", "problem/test_links.py"))
    free = exchanged(source(FORMULAS), "from hetsched.compiled import inner", "from math import inf\n\nfrom hetsched.compiled import inner")
    free += WITHOUT_LATENCY
    for path in kernel_modules():
        text = source(path)
        lines = text.splitlines()
        imported = IMPORT.sub(lambda match: f"{match[0]}, free_bytes_seconds, free_link_seconds", text)
        for number, match in enumerate(CALL.finditer(imported)):
            wrong = f"{imported[: match.start()]}free_{imported[match.start() :]}"
            line = lines[imported.count("\n", 0, match.start())].strip()
            yield Mutant(f"latency {number} of {path}: {line}", {path: wrong, FORMULAS: free}, SUITES[path], interpreted=True)
        for number, match in enumerate(INLINE.finditer(text)):
            wrong = f"{text[: match.start()]}(0.0 * {match[0][1:]}{text[match.end() :]}"
            line = lines[text.count("\n", 0, match.start())].strip()
            yield Mutant(f"latency inline {number} of {path}: {line}", {path: wrong}, SUITES[path], interpreted=True)


def kernel_modules() -> list[str]:
    """Return the modules that use formulas of transfer times, without the one that defines them."""
    paths = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*kernels.py"))
    return [path for path in paths if path != FORMULAS and (IMPORT.search(source(path)) or INLINE.search(source(path)))]


class Workshop:
    """A copy of the repository in which mutants are tested."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "copy"
        self.cache = folder / "cache"
        unwanted = shutil.ignore_patterns("__pycache__", ".*", "_build", "_made")
        shutil.copytree(ROOT, self.folder, ignore=unwanted)
        with open(self.folder / "tests" / "conftest.py", "a", encoding="utf-8") as conftest:
            conftest.write(AT_ONCE)

    def fails(self, tests: tuple[str, ...], texts: dict[str, str], *, interpreted: bool) -> tuple[bool, str]:
        """Return whether a test fails with some modules replaced, and the failed test or the end of pytest's output."""
        if interpreted:
            texts = {**texts, "compiled.py": source("compiled.py") + INTERPRETED}
        places = {path: self.folder / "hetsched" / path for path in texts}
        before = {place: (place.read_text(encoding="utf-8"), place.stat()) for place in places.values()}
        for path, place in places.items():
            place.write_text(texts[path], encoding="utf-8")
        try:
            environment = {
                **os.environ,
                "PYTHONPATH": str(self.folder),
                "NUMBA_CACHE_DIR": str(self.cache),
                "NUMBA_DISABLE_JIT": str(int(interpreted)),
            }
            environment.pop("CI", None)
            command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *(f"tests/{test}" for test in tests)]
            done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True)
        finally:
            for place, (text, status) in before.items():
                place.write_text(text, encoding="utf-8")
                os.utime(place, ns=(status.st_atime_ns, status.st_mtime_ns))  # so that compiled code of it remains valid
        if done.returncode not in (0, 1):
            raise SystemExit(f"pytest ended with exit code {done.returncode}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
        failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
        return done.returncode == 1, failed[0].removeprefix("FAILED ").partition(" - ")[0] if failed else done.stdout.strip()[-80:]


def main() -> int:
    """Test the mutants named on the command line; return 1 if any survived, else 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help="only mutants whose name contains one of these")
    parser.add_argument("--list", action="store_true", help="only print the names")
    arguments = parser.parse_args()
    chosen = [mutant for mutant in mutants() if not arguments.parts or any(part in mutant.name for part in arguments.parts)]
    if arguments.list:
        print(*(mutant.name for mutant in chosen), sep="\n")
        return 0
    survived = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        workshop = Workshop(Path(folder))
        for tests, interpreted in dict.fromkeys((mutant.tests, mutant.interpreted) for mutant in chosen):
            failed, what = workshop.fails(tests, {}, interpreted=interpreted)
            if failed:
                raise SystemExit(f"a test fails without any mutant: {what}")
        for mutant in chosen:
            began = time.perf_counter()
            died, what = workshop.fails(mutant.tests, mutant.texts, interpreted=mutant.interpreted)
            print(f"{'died    ' if died else 'SURVIVED'} {mutant.name}  ({what}; {time.perf_counter() - began:.0f} s)", flush=True)
            survived += [] if died else [mutant.name]
    print(f"{len(chosen) - len(survived)} of {len(chosen)} mutants died")
    return bool(survived)


if __name__ == "__main__":
    sys.exit(main())
