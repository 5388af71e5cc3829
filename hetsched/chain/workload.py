"""What is asked of a language model."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hetsched.arguments import COUNT, checked, whole
from hetsched.errors import InvalidProblem

NUMBER_BYTES = {
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


@checked(InvalidProblem, prompt=COUNT, output=whole(0), context=whole(0), sequences=COUNT, chunk=COUNT)
@dataclass(frozen=True)
class Workload:
    """Requests of one size to a language model.

    Parameters
    ----------
    prompt, output : int
        Tokens that a request has, and that it asks for.
    context : int, optional
        Tokens for which a sequence has room in the KV cache. Default: prompt and output.
    sequences : int
        Requests at a time.
    chunk : int
        Most tokens of prompts that are computed at a time, which each read the weights again (llama.cpp's ``-ub``, vLLM's
        ``--max-num-batched-tokens``).
    cache_bytes, activation_bytes : float
        Bytes per number in the KV cache, and of activations.

    Raises
    ------
    InvalidProblem
        A number breaks its rule, or the context is shorter than the prompt and the output.
    """

    prompt: int = 512
    output: int = 128
    context: int | None = None
    sequences: int = 1
    chunk: int = 512
    cache_bytes: float = 2.0
    activation_bytes: float = 2.0

    def __post_init__(self) -> None:
        for name, value in (("cache_bytes", self.cache_bytes), ("activation_bytes", self.activation_bytes)):
            if not 0 < value < math.inf:
                raise InvalidProblem(f"{name} is {value!r}; it must be a finite number of bytes above 0")
        if self.tokens < self.prompt + self.output:
            raise InvalidProblem(
                f"context is {self.context}, but a request has {self.prompt} tokens and asks for {self.output}; give at least "
                f"{self.prompt + self.output}"
            )

    @property
    def tokens(self) -> int:
        """Tokens for which a sequence has room in the KV cache."""
        return self.prompt + self.output if self.context is None else self.context
