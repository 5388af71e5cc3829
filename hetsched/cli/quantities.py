"""Quantities as words of the command line: bytes of memory, and of a number."""

from __future__ import annotations

import re
from collections.abc import Iterable

from hetsched.errors import InvalidArgument

UNITS = {"": 1.0, "B": 1.0, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KIB": 2.0**10, "MIB": 2.0**20, "GIB": 2.0**30, "TIB": 2.0**40}
NUMBERS = {
    "f32": 4.0,
    "f16": 2.0,
    "bf16": 2.0,
    "fp8": 1.0,
    "q8_0": 34 / 32,
    "q5_1": 24 / 32,
    "q5_0": 22 / 32,
    "q4_1": 20 / 32,
    "q4_0": 18 / 32,
}
"""Bytes of a number by its type; a block of 32 quantised ones has a scale in float16, and of type 1 an offset too (source: gguf)."""


def parsed_bytes(text: str, what: str) -> float:
    """Return the bytes of an amount such as 2GB, 512MiB or 1e9."""
    match = re.fullmatch(r"\s*([0-9.]+(?:e[0-9]+)?)\s*([a-z]*)\s*", text, re.IGNORECASE)
    try:
        if match is not None:
            return float(match[1]) * UNITS[match[2].upper()]
    except (KeyError, ValueError):
        pass
    raise InvalidArgument(f"{what} is {text!r}; it must be a number of bytes, as 2GB, 512MiB or 1e9")


def device_bytes(words: Iterable[str], option: str) -> dict[str, float]:
    """Return the bytes by device of words such as gpu0=2GB."""
    found = {}
    for word in words:
        name, equals, amount = word.partition("=")
        if not equals or not name:
            raise InvalidArgument(f"{option} is {word!r}; it must name a device and an amount, as gpu0=2GB")
        found[name] = parsed_bytes(amount, f"{option} of {name}")
    return found


def number_bytes(kind: str) -> float:
    """Return the bytes of a number of a type."""
    if kind not in NUMBERS:
        raise InvalidArgument(f"--kv-dtype is {kind!r}; choose from {', '.join(NUMBERS)}")
    return NUMBERS[kind]
