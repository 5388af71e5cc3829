"""Mutants can be made of the current package: the code that they change has not been renamed or moved."""

from __future__ import annotations

import ast
import re

from hetsched.bounds.best import BOUNDS
from hetsched.verification.verify import RULES
from tests import mutants


def test_every_mutant_is_a_module_that_differs() -> None:
    made = list(mutants.mutants())
    for mutant in made:
        for path, text in mutant.texts.items():
            ast.parse(text)
            assert text != mutants.source(path), mutant.name
        assert all((mutants.ROOT / "tests" / path.partition("::")[0]).is_file() for path in mutant.tests), mutant.name
    assert len({mutant.name for mutant in made}) == len(made)


def test_there_is_one_of_each_rule_each_bound_and_each_formula_of_kernels() -> None:
    names = [mutant.name for mutant in mutants.mutants()]
    assert [name for name in names if name.startswith("rule ")] == [f"rule {rule}" for rule in RULES]
    assert [name for name in names if name.startswith("bound ")] == [f"bound {entry.bound.__name__}" for entry in BOUNDS]
    for path in mutants.kernel_modules():
        calls = len(mutants.CALL.findall(mutants.source(path))) + len(mutants.INLINE.findall(mutants.source(path)))
        assert sum(f"of {path}:" in name for name in names) == calls > 0


def test_every_kernel_that_adds_latencies_is_listed() -> None:
    """Formulas in another form have no mutant; the shortest routes and the means over all pairs have tests of their own."""
    for path in mutants.PACKAGE.rglob("*kernels.py"):
        name = path.relative_to(mutants.PACKAGE).as_posix()
        left = mutants.INLINE.sub("", path.read_text(encoding="utf-8"))
        if name not in (mutants.FORMULAS, "problem/topology_kernels.py", "analysis/ranking_kernels.py"):
            assert not re.search(r"latency\[[^]]*\] *\+|\+ *(\w+\.)?latency\[", left), name
