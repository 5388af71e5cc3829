"""Every method, backend and lower bound of the package goes through its published suite."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from hetsched.bounds.best import BOUNDS, Entry
from hetsched.modeling import backends
from hetsched.search import MAKESPAN, registered
from hetsched.testing.backends import BackendSuite
from hetsched.testing.bounds import BoundSuite
from hetsched.testing.conformance import MethodSuite

TESTS = Path(__file__).parent
SUITES = re.compile(r"\b(?:(?:Method|Bound|Backend)Suite|suites)\b")


def collected() -> Iterator[type]:
    """Yield the classes that pytest collects from the test modules that name a suite, but for the tests of the suites."""
    for path in sorted(TESTS.rglob("test_*.py")):
        if path.parent.name != "testing" and path != Path(__file__) and SUITES.search(path.read_text(encoding="utf-8")):
            name = ".".join(path.relative_to(TESTS.parent).with_suffix("").parts)
            yield from nested(importlib.import_module(name))


def nested(holder: object) -> Iterator[type]:
    """Yield the classes named as tests in a module or a class, and those in them."""
    for name, each in vars(holder).items():
        if name.startswith("Test") and isinstance(each, type):
            yield each
            yield from nested(each)


@pytest.fixture(scope="module")
def suites() -> list[type]:
    return list(collected())


@pytest.mark.parametrize(
    "name", [name for name, each in registered().items() if each.function.__module__.startswith("hetsched.") and each.available]
)
def test_every_method_is_in_a_suite(name: str, suites: list[type]) -> None:
    """Bounds only have no answers to test."""
    found = [each.method for each in suites if issubclass(each, MethodSuite)]
    if registered()[name].kind != "bound":
        assert name in found, f"{name} is in no suite; derive a class from hetsched.testing.conformance.MethodSuite"
        assert found.count(name) == 1, "the same tests twice"


@pytest.mark.parametrize("name", [each.name for each in backends.known() if each.module.startswith("hetsched.")])
def test_every_backend_is_in_a_suite(name: str, suites: list[type]) -> None:
    found = [each.solver for each in suites if issubclass(each, BackendSuite)]
    assert name in found, f"{name} is in no suite; derive a class from hetsched.testing.backends.BackendSuite"


@pytest.mark.parametrize("entry", [each for each in BOUNDS if each.objectives >= MAKESPAN], ids=lambda each: each.bound.__name__)
def test_every_bound_is_in_a_suite(entry: Entry, suites: list[type]) -> None:
    found = [each.function for each in suites if issubclass(each, BoundSuite)]
    name = entry.bound.__name__
    assert entry.bound in found, f"{name} is in no suite; derive a class from hetsched.testing.bounds.BoundSuite"
