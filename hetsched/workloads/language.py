"""Decoder blocks of GPT-3 as PyTorch modules, written from its paper."""

from __future__ import annotations

from hetsched.errors import MissingDependency

try:
    import torch
except ImportError as error:
    raise MissingDependency("torch", "torch") from error

from torch import nn
from torch.nn import functional


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


def tokens(width: int, count: int = 20) -> torch.Tensor:
    """Return one input of `count` tokens of `width` numbers on the meta device: its shape, without data."""
    return torch.empty(1, count, width, dtype=torch.float16, device="meta")


class Attention(nn.Module):
    """Causal self-attention, its three projections apart, so that devices may share them out."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what each token gathers from itself and those before it."""
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


def _block(width: int, heads: int) -> nn.Module:
    return Block(width, heads).half().eval()
