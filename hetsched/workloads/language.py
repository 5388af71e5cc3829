"""Decoder blocks of GPT-3 as PyTorch modules, written from its paper."""

from __future__ import annotations

from collections.abc import Mapping

from hetsched.arguments import COUNT, checked
from hetsched.errors import InvalidProblem, MissingDependency

try:
    import torch
except ImportError as error:
    raise MissingDependency("torch", "torch") from error

from torch import nn
from torch.nn import functional

DECODERS: Mapping[str, tuple[int, int, int]] = {
    "330M": (24, 1024, 16),
    "1.3B": (32, 2048, 32),
    "2.7B": (32, 2560, 32),
    "13B": (40, 5120, 40),
}
"""Layers, width and heads of the decoders in Moirai's Table IV."""


def gpt3_125m() -> nn.Module:
    """Return a decoder block of GPT-3 125M in eval mode, in float16, random weights."""
    return _block(768, 12)


def gpt3_6_7b() -> nn.Module:
    """Return a decoder block of GPT-3 6.7B in eval mode, in float16, random weights."""
    return _block(4096, 32)


def gpt3_175b() -> nn.Module:
    """Return a decoder block of GPT-3 175B in eval mode, in float16, random weights.

    References
    ----------
    T. B. Brown et al., "Language models are few-shot learners", NeurIPS 2020, Table 2.1.
    """
    return _block(12288, 96)


@checked(InvalidProblem, tokens=COUNT, words=COUNT)
def decoder(size: str = "330M", *, tokens: int = 2048, words: int = 50257) -> nn.Module:
    """Return a decoder with random weights: embeddings, blocks, and the scores of each next token.

    Its input are tokens [batch, at most `tokens`], its output scores [batch, tokens, words]. The weights of the scores are
    those of the embedding.
    """
    if size not in DECODERS:
        raise InvalidProblem(f"no decoder of {size!r} parameters is known; choose one of {', '.join(DECODERS)}")
    return Decoder(*DECODERS[size], tokens, words)


def tokens(width: int, count: int = 20) -> torch.Tensor:
    """Return one input of `count` tokens of `width` numbers on the meta device: its shape, without data."""
    return torch.empty(1, count, width, dtype=torch.float16, device="meta")


class Attention(nn.Module):
    """Causal self-attention with three separate projections, which may run on different devices."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the attention of each token to itself and those before it."""
        query, key, value = (part(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.query, self.key, self.value))
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        gathered: torch.Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return gathered


class Block(nn.Module):
    """A decoder block: attention, then two linear layers, each on normalised input and added to it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.norm2, self.wide, self.narrow = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the tokens `x` [batch, tokens, width] after the block."""
        x = x + self.attention(self.norm1(x))
        made: torch.Tensor = x + self.narrow(functional.gelu(self.wide(self.norm2(x)), approximate="tanh"))
        return made


class Decoder(nn.Module):
    """Embeddings of tokens and positions, blocks, a last norm, and scores."""

    def __init__(self, layers: int, width: int, heads: int, tokens: int, words: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(tokens, width)
        self.blocks, self.norm = nn.Sequential(*(Block(width, heads) for _ in range(layers))), nn.LayerNorm(width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return scores [batch, tokens, words]."""
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        return functional.linear(self.norm(self.blocks(x)), self.words.weight)


def _block(width: int, heads: int) -> nn.Module:
    return Block(width, heads).half().eval()
