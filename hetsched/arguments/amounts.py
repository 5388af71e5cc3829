"""Amounts as text with a unit: ``"24 GiB"``, ``"16 GB/s"``, ``"2 ms"``."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, TypeAlias

Amount: TypeAlias = float | Any
"""A number in the base unit, or text with a unit; the type of a checker does not follow what becomes of it."""
EXAMPLES: Mapping[str, str] = {"B": "24 GiB", "B/s": "16 GB/s", "FLOP": "2 GFLOP", "FLOP/s": "312 TFLOP/s", "s": "2 ms"}
"""Base units, each with an amount as a message shows it."""
_DECIMAL = {prefix: Decimal(1000**power) for power, prefix in enumerate(("", "k", "M", "G", "T", "P"))}
_PREFIXES = _DECIMAL | {f"{prefix}i": Decimal(1024**power) for power, prefix in enumerate("KMGT", 1)}
_FRACTIONS = {"": Decimal(1), "m": Decimal("1e-3"), "u": Decimal("1e-6"), "\N{MICRO SIGN}": Decimal("1e-6"), "n": Decimal("1e-9")}


def _with(prefixes: Mapping[str, Decimal], *units: str, divisor: int = 1) -> dict[str, Decimal]:
    return {prefix + unit: size / divisor for unit in units for prefix, size in prefixes.items()}


_SUFFIXES: Mapping[str, Mapping[str, Decimal]] = {
    "B": _with(_PREFIXES, "B"),
    "B/s": _with(_PREFIXES, "B/s") | _with(_DECIMAL, "bit/s", divisor=8),
    "FLOP": _with(_DECIMAL, "FLOP", "FLOPs"),
    "FLOP/s": _with(_DECIMAL, "FLOP/s", "FLOPS", "F"),
    "s": _with(_FRACTIONS, "s") | {"min": Decimal(60), "h": Decimal(3600)},
}


def parse(text: str, unit: str, *, bare: bool = False) -> float:
    """Return an amount in a base unit of `EXAMPLES`; with `bare` the unit, but not its prefix, may be left out.

    Raises `ValueError` for any other text; negative numbers are none.
    """
    match = re.fullmatch(r"\s*([0-9.]+(?:[eE][+-]?\d+)?)\s*(\S*)\s*", text)
    factors = _SUFFIXES[unit]
    if bare:
        factors = {suffix.removesuffix(unit): factor for suffix, factor in factors.items()} | dict(factors)
    if match is None or match[2] not in factors:
        raise ValueError(text)
    try:
        value = float(Decimal(match[1]) * factors[match[2]])  # rounded once: "5 us" is 5e-6
    except ArithmeticError:
        raise ValueError(text) from None
    if math.isinf(value):
        raise ValueError(text)
    return value


def hint(unit: str) -> str:
    """Return the end of a rule that also permits text."""
    return f", or text such as {EXAMPLES[unit]!r}" if unit else ""
