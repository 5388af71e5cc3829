"""What FLOP formulas of torch's and of ONNX's operators have in common: the check of a result, and the warning of unknown work."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any

from hetsched.errors import InvalidProblem, warn


def checked_flops(operator: str, formula: Callable[..., Any], *args: Any, **kwargs: Any) -> float:
    """Return the FLOPs that a formula finds.

    Raises
    ------
    InvalidProblem
        The formula fails, or does not return a number >= 0.
    """
    try:
        flops = float(formula(*args, **kwargs))
    except Exception as error:  # any error of the user's code
        raise InvalidProblem(f"the FLOP formula of {operator} fails: {type(error).__name__}: {error}") from error
    if not 0 <= flops < math.inf:
        raise InvalidProblem(f"the FLOP formula of {operator} returns {flops}; it must return a number >= 0")
    return flops


def warn_unknown_flops(operators: Collection[str], remedy: str) -> None:
    """Emit one warning that names all operators of unknown work, if there are any; in the remedy, ``{}`` is the first of them."""
    if operators:
        names = sorted(operators)
        warn(
            f"the FLOPs of {', '.join(names)} are unknown, so those of their tasks are NaN; give formulas of shapes, such as "
            + remedy.format(names[0])
        )
