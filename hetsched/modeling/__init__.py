"""The abstract model layer: solver-independent models, and backends that solve them."""

from __future__ import annotations

from hetsched.modeling.dynamic import DynamicProgram, Evaluation, Path, Query
from hetsched.modeling.expression import Expression, Rows, concatenate, stack
from hetsched.modeling.model import Model
from hetsched.modeling.outcome import Incumbent, NewBound, Outcome

__all__ = [
    "DynamicProgram",
    "Evaluation",
    "Expression",
    "Incumbent",
    "Model",
    "NewBound",
    "Outcome",
    "Path",
    "Query",
    "Rows",
    "concatenate",
    "stack",
]
