"""Bytes of numbers of the KV cache, by the names of their types."""

from __future__ import annotations

from hetsched.errors import InvalidArgument

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


def number_bytes(kind: str) -> float:
    """Return the bytes of a number of a type."""
    if kind not in NUMBERS:
        raise InvalidArgument(f"--kv-dtype is {kind!r}; choose from {', '.join(NUMBERS)}")
    return NUMBERS[kind]
