"""Formulations: what is said to a solver, as lists of components over one abstract model."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hetsched.models import components, ios, redundant
    from hetsched.models.assignment import Assignment
    from hetsched.models.batched import BatchedMakespan
    from hetsched.models.formulation import Component, Formulation
    from hetsched.models.methods import formulate
    from hetsched.models.moirai import CongestionAware
    from hetsched.models.rivals import Pesto
    from hetsched.models.steady import SteadyState

_HOME = {
    "Assignment": "assignment",
    "BatchedMakespan": "batched",
    "Component": "formulation",
    "CongestionAware": "moirai",
    "Formulation": "formulation",
    "Pesto": "rivals",
    "SteadyState": "steady",
    "formulate": "methods",
}

__all__ = [
    "Assignment",
    "BatchedMakespan",
    "Component",
    "CongestionAware",
    "Formulation",
    "Pesto",
    "SteadyState",
    "components",
    "formulate",
    "ios",
    "redundant",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"hetsched.models.{_HOME[name]}"), name)
    if name in ("components", "ios", "redundant"):
        return importlib.import_module(f"hetsched.models.{name}")
    raise AttributeError(f"module 'hetsched.models' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
