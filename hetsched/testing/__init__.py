"""Tools to test schedulers with, for this package's tests and for those of others.

Hypothesis strategies for problems and decisions, the true optimum of tiny problems, and suites of
tests that a scheduling method, or a lower bound, must pass.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from hetsched.errors import MissingDependency
from hetsched.testing.brute_force import Optimum, brute_force

if TYPE_CHECKING:
    from hetsched.testing import bounds, conformance, profiles
    from hetsched.testing.strategies import clusters, decisions, numbers, problems, task_graphs

__all__ = ["Optimum", "bounds", "brute_force", "clusters", "conformance", "decisions", "numbers", "problems", "profiles", "task_graphs"]


def __getattr__(name: str) -> Any:
    """Import what is first used: the suites take the profile of hypothesis that is loaded by then."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        if name in ("bounds", "conformance", "profiles"):
            return importlib.import_module(f"{__name__}.{name}")
        return getattr(importlib.import_module(f"{__name__}.strategies"), name)
    except ModuleNotFoundError as error:
        if error.name not in ("hypothesis", "pytest"):
            raise
        raise MissingDependency(error.name, "test") from error


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
