"""Text of quantities: seconds, bytes, shares."""

from __future__ import annotations

import math

_SECONDS = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9))
_BYTES = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0))


def time_unit(value: float) -> tuple[str, float]:
    """Return the unit that suits a time, and its length in seconds."""
    return next((pair for pair in _SECONDS if abs(value) >= pair[1]), _SECONDS[-1] if value else _SECONDS[0])


def byte_unit(value: float) -> tuple[str, float]:
    """Return the unit that suits a number of bytes, and its size in bytes."""
    return next((pair for pair in _BYTES if abs(value) >= pair[1]), _BYTES[-1])


def seconds(value: float) -> str:
    """Return a time in a suitable unit, with four significant digits."""
    if not math.isfinite(value):
        return "-" if math.isnan(value) else "inf"
    if value == 0:
        return "0 s"
    unit, scale = time_unit(value)
    return f"{value / scale:#.4g}".rstrip(".") + f" {unit}"


def size(value: float) -> str:
    """Return a number of bytes in a suitable unit, with four significant digits."""
    if not math.isfinite(value):
        return "-" if math.isnan(value) else "unlimited"
    unit, scale = byte_unit(value)
    return f"{value / scale:.4g} {unit}"


def percent(share: float) -> str:
    """Return a share as per cent; below 0.01 % but not 0 as ``< 0.01 %``."""
    return "< 0.01 %" if 0 < share < 1e-4 else f"{share:.2%}".replace("%", " %")
