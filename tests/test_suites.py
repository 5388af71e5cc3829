"""Every method, backend and lower bound of the package goes through its published suite."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import hetsched.bounds
from hetsched.bounds.best import BOUNDS, BoundFunction, Entry
from hetsched.modeling import backends
from hetsched.search import MAKESPAN, registered
from hetsched.testing.backends import BackendSuite
from hetsched.testing.bounds import BoundSuite
from hetsched.testing.conformance import MethodSuite

TESTS = Path(__file__).parent
BOUND_ARGUMENTS = tuple(inspect.signature(BoundFunction.__call__).parameters)[2:]
SUITES = re.compile(r"\b(?:(?:Method|Bound|Backend)Suite|suites)\b")


def collected() -> Iterator[type]:
    """Yield the classes that pytest collects from the test modules that name a suite, without the tests of the suites."""
    for path in sorted(TESTS.rglob("test_*.py")):
        if path.parent.name != "testing" and path != Path(__file__) and SUITES.search(path.read_text(encoding="utf-8")):
            name = ".".join(path.relative_to(TESTS.parent).with_suffix("").parts)
            yield from nested(importlib.import_module(name))


def nested(holder: object) -> Iterator[type]:
    """Yield the classes named as tests in a module or a class, and those in them."""
    for name, value in vars(holder).items():
        if name.startswith("Test") and isinstance(value, type):
            yield value
            yield from nested(value)


@pytest.fixture(scope="module")
def suites() -> list[type]:
    return list(collected())


@pytest.mark.parametrize(
    "name", [name for name, method in registered().items() if method.function.__module__.startswith("hetsched.") and method.available]
)
def test_every_method_is_in_a_suite(name: str, suites: list[type]) -> None:
    """Methods that only compute bounds have no schedules to test."""
    methods = [suite.method for suite in suites if issubclass(suite, MethodSuite)]
    if registered()[name].kind != "bound":
        assert name in methods, f"{name} is in no suite; derive a class from hetsched.testing.conformance.MethodSuite"
        assert methods.count(name) == 1, "the same tests twice"


@pytest.mark.parametrize("name", [backend.name for backend in backends.known() if backend.module.startswith("hetsched.")])
def test_every_backend_is_in_a_suite(name: str, suites: list[type]) -> None:
    solvers = [suite.solver for suite in suites if issubclass(suite, BackendSuite)]
    assert name in solvers, f"{name} is in no suite; derive a class from hetsched.testing.backends.BackendSuite"


def bound_functions() -> Iterator[Callable[..., object]]:
    """Yield the public functions of `hetsched.bounds` that take what a `BoundFunction` takes."""
    for module in pkgutil.walk_packages(hetsched.bounds.__path__, "hetsched.bounds."):
        for name, function in vars(importlib.import_module(module.name)).items():
            own = inspect.isfunction(function) and function.__module__ == module.name and not name.startswith("_")
            if own and list(inspect.signature(function).parameters) == ["problem", *BOUND_ARGUMENTS]:
                yield function


@pytest.mark.parametrize("function", [*bound_functions()], ids=lambda function: function.__name__)
def test_every_bound_is_in_the_list_checks_its_arguments_and_is_documented(function: Callable[..., object]) -> None:
    name = f"{function.__module__.removeprefix('hetsched.')}.{function.__name__}"
    page = (TESTS.parent / "docs" / "reference" / "bounds.md").read_text(encoding="utf-8")
    assert function in [entry.bound for entry in BOUNDS], f"{name} is never computed; add an Entry to BOUNDS of hetsched/bounds/best.py"
    assert hasattr(function, "__wrapped__"), f"{name} does not check its arguments; decorate it with hetsched.arguments.checked"
    assert f"   {name}\n" in page, f"list {name} in docs/reference/bounds.md"
    assert f"automodule:: {function.__module__}\n" in page, f"add a section for {function.__module__} to docs/reference/bounds.md"


@pytest.mark.parametrize("entry", [entry for entry in BOUNDS if entry.objectives >= MAKESPAN], ids=lambda entry: entry.bound.__name__)
def test_every_bound_is_in_a_suite(entry: Entry, suites: list[type]) -> None:
    functions = [suite.function for suite in suites if issubclass(suite, BoundSuite)]
    name = entry.bound.__name__
    assert entry.bound in functions, f"{name} is in no suite; derive a class from hetsched.testing.bounds.BoundSuite"
