"""Formulations: what is said to a solver, as lists of components over one abstract model."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hetsched.models import components
    from hetsched.models.batched import BatchedMakespan
    from hetsched.models.formulation import Component, Formulation
    from hetsched.models.methods import formulate
    from hetsched.models.moirai import CongestionAware

_HOME = {
    "BatchedMakespan": "batched",
    "Component": "formulation",
    "CongestionAware": "moirai",
    "Formulation": "formulation",
    "formulate": "methods",
}

__all__ = ["BatchedMakespan", "Component", "CongestionAware", "Formulation", "components", "formulate"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"hetsched.models.{_HOME[name]}"), name)
    if name == "components":
        return importlib.import_module("hetsched.models.components")
    raise AttributeError(f"module 'hetsched.models' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
