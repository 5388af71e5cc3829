"""The contract of kernels in docs/developer/kernels, checked on the sources, and one signature per kernel."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import hetsched

PACKAGE = Path(hetsched.__file__).parent
DECORATORS = {"kernel", "inner", "builder"}
MOST_ARGUMENTS, MOST_LINES = 8, 80
FILES = [path.relative_to(PACKAGE).as_posix() for path in sorted(PACKAGE.rglob("*kernels.py"))]


def decorator(function: ast.FunctionDef) -> str | None:
    """Return the name of the decorator that makes a function a kernel, if any."""
    return next(
        (expression.id for expression in function.decorator_list if isinstance(expression, ast.Name) and expression.id in DECORATORS), None
    )


def functions(file: str) -> Iterator[ast.FunctionDef]:
    for node in ast.parse((PACKAGE / file).read_text()).body:
        if isinstance(node, ast.FunctionDef):
            yield node


def test_kernels_are_in_files_of_kernels():
    files = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and decorator(node)
    }
    assert files == set(FILES), "a file of kernels is kernels.py or ends in _kernels.py"


@pytest.mark.parametrize("file", FILES)
def test_kernels_are_short_typed_and_take_records(file):
    for function in functions(file):
        if decorator(function) is None:
            continue
        arguments = function.args.args
        assert len(arguments) <= MOST_ARGUMENTS, f"{function.name}: {len(arguments)} arguments; make a NamedTuple"
        lines = 1 + (function.end_lineno or 0) - function.lineno
        assert lines <= MOST_LINES, f"{function.name} has {lines} lines; make it two functions"
        assert all(argument.annotation for argument in arguments), f"{function.name} has an argument without a type"
        assert function.returns is not None, f"{function.name} has no type of what it returns"


@pytest.mark.parametrize("file", FILES)
def test_files_of_kernels_hold_besides_constants_and_records_only(file):
    body = ast.parse((PACKAGE / file).read_text()).body
    records = {node.name for node in body if isinstance(node, ast.ClassDef)}
    for node in body:
        if isinstance(node, ast.ClassDef):
            assert [ast.unparse(base) for base in node.bases] == ["NamedTuple"], f"{node.name} is no NamedTuple"
        elif isinstance(node, ast.FunctionDef) and decorator(node) is None:
            made = {expression.id for expression in ast.walk(node.returns or node) if isinstance(expression, ast.Name)}
            assert made & records, f"{node.name} is neither a kernel nor the factory of a record"


SIGNATURES = """
import importlib, json, pkgutil
import hetsched
from hetsched import compiled
from hetsched.portfolio import prepare

with compiled.interpreter(on=False):
    for part in prepare.parts().values():
        part()
for module in pkgutil.walk_packages(hetsched.__path__, "hetsched."):
    if module.name.endswith("kernels"):
        importlib.import_module(module.name)
print(json.dumps({f"{kernel.__module__}.{kernel.__name__}": [str(types) for types in kernel.signatures] for kernel in compiled.KERNELS}))
"""


@pytest.mark.slow
def test_prepare_compiles_every_kernel_for_one_signature(tmp_path):
    """It covers explicit transfers, contention, several inputs, read-only and new arrays; the cache is empty.

    Two kernels that others call are compiled twice on purpose: without planned transfers (None) and with them.
    """
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", SIGNATURES], env=environment, capture_output=True, text=True, check=True)
    signatures = json.loads(done.stdout.splitlines()[-1])
    assert len(signatures) > 150
    planning = {name for name, types in signatures.items() if len(types) == 2 and ", none" in types[0] and "Transfers" in types[1]}
    assert planning == {
        f"hetsched.heuristics.list_scheduling.{name}" for name in ("static_kernels._in_order", "dynamic_kernels._by_choice")
    }
    assert {name: types for name, types in signatures.items() if len(types) > 1 and name not in planning} == {}
    left = {name for name, types in signatures.items() if not types}
    assert {name for name in left if not name.startswith("hetsched.runtime.")} == {"hetsched.models.ios.kernels.copy"}  # of large blocks
