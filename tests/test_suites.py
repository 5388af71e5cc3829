"""Every method and every backend of the package goes through its published suite."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hetsched.modeling import backends
from hetsched.search import Kind, registered, select

TESTS = Path(__file__).parent


def sources(suite: str) -> str:
    """Return the texts of the test modules that have classes derived from a suite."""
    texts = (path.read_text(encoding="utf-8") for path in sorted(TESTS.rglob("test_*.py")) if path.parent.name != "testing")
    return "\n".join(text for text in texts if re.search(rf"\({suite}|\.{suite}[,)]", text))


METHODS = sources("MethodSuite")
BACKENDS = sources("BackendSuite")


@pytest.mark.parametrize("name", [name for name, each in registered().items() if each.function.__module__.startswith("hetsched.")])
def test_every_method_is_in_a_suite(name: str) -> None:
    """Constructive methods of `auto` are queried by `tests/heuristics/test_conformance.py`; bounds only have no answers to test."""
    method = registered()[name]
    if method.kind is not Kind.BOUND and method not in select(kind=Kind.CONSTRUCTIVE, auto=True):
        assert f'"{name}"' in METHODS, f"{name} is in no suite; derive a class from hetsched.testing.conformance.MethodSuite"


@pytest.mark.parametrize("name", [each.name for each in backends.known() if each.module.startswith("hetsched.")])
def test_every_backend_is_in_a_suite(name: str) -> None:
    assert f'solver = "{name}"' in BACKENDS, f"{name} is in no suite; derive a class from hetsched.testing.backends.BackendSuite"
