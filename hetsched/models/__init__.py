"""Formulations: mixed-integer models of a problem, made of components over the abstract model layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetsched.lazy import attach

if TYPE_CHECKING:
    from hetsched.models import components, ios, redundant
    from hetsched.models.assignment import Assignment
    from hetsched.models.batched import BatchedMakespan
    from hetsched.models.formulation import Component, Formulation
    from hetsched.models.methods import formulate
    from hetsched.models.moirai import CongestionAware
    from hetsched.models.pesto import Pesto
    from hetsched.models.steady_state import SteadyState

_HOMES = {
    "": ["components", "ios", "redundant"],
    "assignment": ["Assignment"],
    "batched": ["BatchedMakespan"],
    "formulation": ["Component", "Formulation"],
    "methods": ["formulate"],
    "moirai": ["CongestionAware"],
    "pesto": ["Pesto"],
    "steady_state": ["SteadyState"],
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

__getattr__, __dir__ = attach(__name__, _HOMES)
