"""The abstract model layer: what is to be solved, said once; how a solver hears it is the backend's business."""

from __future__ import annotations

from hetsched.modeling.expression import Expression, Rows, concatenate, stack
from hetsched.modeling.model import Model
from hetsched.modeling.outcome import Incumbent, NewBound, Outcome

__all__ = ["Expression", "Incumbent", "Model", "NewBound", "Outcome", "Rows", "concatenate", "stack"]
