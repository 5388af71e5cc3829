"""Language models as plain modules of torch, for the tests of their cards."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    """Causal attention by torch's function, or written out with a mask."""

    def __init__(self, width, heads, kv, *, bias=False, written_out=False):
        super().__init__()
        self.heads, self.kv, self.size, self.written_out = heads, kv, width // heads, written_out
        self.q, self.o = nn.Linear(width, width, bias=bias), nn.Linear(width, width, bias=bias)
        self.k, self.v = (nn.Linear(width, kv * self.size, bias=bias) for _ in range(2))

    def forward(self, x):
        batch, tokens, width = x.shape
        q, k, v = (
            made.view(batch, tokens, -1, self.size).transpose(1, 2) for made in (self.q(x), self.k(x), self.v(x))
        )  # fmt: skip
        if self.written_out:
            mask = torch.ones(tokens, tokens, device=x.device).tril() == 0
            made = (q @ k.transpose(2, 3)).masked_fill(mask, -1e9).softmax(-1) @ v
        else:
            made = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.kv < self.heads)
        return self.o(made.transpose(1, 2).reshape(batch, tokens, width))


class Block(nn.Module):
    """A block as that of llama, or with biases and without a gate as that of gpt2."""

    def __init__(self, width, heads, kv, ffn, *, gated=True, **attention):
        super().__init__()
        norm = nn.RMSNorm if gated else nn.LayerNorm
        self.ln_1, self.ln_2 = norm(width), norm(width)
        self.attn = Attention(width, heads, kv, bias=not gated, **attention)
        self.up, self.down = nn.Linear(width, ffn, bias=not gated), nn.Linear(ffn, width, bias=not gated)
        if gated:
            self.gate = nn.Linear(width, ffn, bias=False)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        y = self.ln_2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y) if hasattr(self, "gate") else F.gelu(self.up(y)))


class Model(nn.Module):
    """Tables of tokens and, for gpt2, of positions, blocks, a norm and a head."""

    def __init__(self, blocks, width, heads, kv, ffn, vocabulary, *, positions=0, tied=False, **block):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        if positions:
            self.wpe = nn.Embedding(positions, width)
        self.blocks = nn.ModuleList(Block(width, heads, kv, ffn, gated=not positions, **block) for _ in range(blocks))
        self.ln_f = nn.LayerNorm(width) if positions else nn.RMSNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, ids):
        x = self.tokens(ids)
        if hasattr(self, "wpe"):
            x = x + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln_f(x))


class Wired(nn.Module):
    """Linear blocks called in an order, with what happens between them."""

    def __init__(self, order=(0, 1, 2), *, skip=False, between=False, width=4, sizes=(4, 4, 4)):
        super().__init__()
        ends = [width, *sizes]
        self.blocks = nn.ModuleList(nn.Linear(a, b) for a, b in zip(ends, sizes, strict=False))
        self.proj = nn.Linear(width, width)
        self.between = nn.Linear(width, width) if between else None
        self.order, self.skip = order, skip

    def forward(self, x):
        x = kept = self.proj(x)
        for place, block in enumerate(self.order):
            x = self.blocks[block](x)
            kept = x if place == 0 else kept
            if self.between is not None and place == 1:
                x = self.between(x)
        return x + kept if self.skip else x


def tiny():
    """Return a small model, as a command line names it."""
    return Model(4, 32, 4, 2, 48, 50)
