"""A trunk like AlphaFold2's as a PyTorch module: Evoformer blocks over aligned sequences and pairs of residues."""

from __future__ import annotations

from collections.abc import Mapping

from hetsched.arguments import COUNT, checked, one_of
from hetsched.errors import InvalidProblem, MissingDependency

try:
    import torch
except ImportError as error:
    raise MissingDependency("torch", "torch") from error

from torch import nn

SIZES: Mapping[str, tuple[int, int, int, int, int]] = {
    "87M": (48, 256, 8, 128, 4),
    "930M": (64, 512, 16, 544, 17),
    "2.4B": (96, 1024, 32, 448, 14),
    "3.2B": (128, 1024, 32, 448, 14),
}
"""Blocks, width and heads of sequences (Moirai, Table IV); width and heads of pairs, chosen for the number of parameters."""


@checked
def evoformer(size: str = "87M") -> nn.Module:
    """Return a stack of Evoformer blocks with random weights, without the other parts of AlphaFold2.

    Its inputs are aligned sequences [batch, sequences, residues, width] and pairs [batch, residues, residues, width]; its
    outputs have the same shapes. Blocks are as in the paper, without dropout.

    References
    ----------
    J. Jumper et al., "Highly accurate protein structure prediction with AlphaFold", Nature 596, 2021, supplementary
    algorithms 6 to 15.
    """
    if size not in SIZES:
        raise InvalidProblem(f"no trunk of {size!r} parameters is known; choose one of {', '.join(SIZES)}")
    blocks, *widths = SIZES[size]
    return Trunk(blocks, *widths)


@checked(InvalidProblem, size=one_of(*SIZES), sequences=COUNT, residues=COUNT)
def aligned(size: str = "87M", sequences: int = 128, residues: int = 128) -> tuple[torch.Tensor, torch.Tensor]:
    """Return one input of `evoformer` on the meta device: its shape, without data."""
    _, width, _, pairs, _ = SIZES[size]
    return torch.empty(1, sequences, residues, width, device="meta"), torch.empty(1, residues, residues, pairs, device="meta")


class Gated(nn.Module):
    """Attention along the second last dimension with a gated output; pairs may bias the scores."""

    def __init__(self, width: int, heads: int, pairs: int = 0) -> None:
        super().__init__()
        self.heads, self.scale = heads, (width // heads) ** -0.5
        self.norm = nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.gate, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.pair_norm = nn.LayerNorm(pairs) if pairs else None
        self.bias = nn.Linear(pairs, heads, bias=False) if pairs else None

    def forward(self, x: torch.Tensor, pair: torch.Tensor | None = None) -> torch.Tensor:
        """Return the update of `x` [..., rows, positions, width]."""
        x = self.norm(x)
        query, key, value = (part(x).unflatten(-1, (self.heads, -1)).transpose(-2, -3) for part in (self.query, self.key, self.value))
        scores = (query * self.scale) @ key.transpose(-1, -2)
        if self.bias is not None and self.pair_norm is not None:
            scores = scores + self.bias(self.pair_norm(pair)).permute(0, 3, 1, 2)[:, None]
        mixed = (torch.softmax(scores, -1) @ value).transpose(-2, -3).flatten(-2)
        return torch.as_tensor(self.out(torch.sigmoid(self.gate(x)) * mixed))


class Transition(nn.Sequential):
    """Two linear layers with four times the width between them."""

    def __init__(self, width: int) -> None:
        super().__init__(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width))


class OuterProduct(nn.Module):
    """The update of pairs from aligned sequences: the mean of outer products over the sequences."""

    def __init__(self, width: int, pairs: int, inner: int = 32) -> None:
        super().__init__()
        self.norm, self.left, self.right = nn.LayerNorm(width), nn.Linear(width, inner), nn.Linear(width, inner)
        self.out = nn.Linear(inner * inner, pairs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the update to be added to the pairs."""
        x = self.norm(x)
        product = torch.einsum("bsic,bsjd->bijcd", self.left(x), self.right(x)) / x.shape[1]
        return torch.as_tensor(self.out(product.flatten(-2)))


class Triangle(nn.Module):
    """The update of each edge of a triangle from the two others, outgoing from its ends or incoming."""

    def __init__(self, width: int, *, outgoing: bool) -> None:
        super().__init__()
        self.rule = "bikc,bjkc->bijc" if outgoing else "bkic,bkjc->bijc"
        self.norm, self.last = nn.LayerNorm(width), nn.LayerNorm(width)
        self.left, self.right, self.left_gate, self.right_gate, self.gate, self.out = (nn.Linear(width, width) for _ in range(6))

    def forward(self, pair: torch.Tensor) -> torch.Tensor:
        """Return the update to be added to the pairs."""
        pair = self.norm(pair)
        left = torch.sigmoid(self.left_gate(pair)) * self.left(pair)
        right = torch.sigmoid(self.right_gate(pair)) * self.right(pair)
        product = self.out(self.last(torch.einsum(self.rule, left, right)))
        return torch.as_tensor(torch.sigmoid(self.gate(pair)) * product)


class Block(nn.Module):
    """An Evoformer block."""

    def __init__(self, width: int, heads: int, pairs: int, pair_heads: int) -> None:
        super().__init__()
        self.row, self.column, self.transition = Gated(width, heads, pairs), Gated(width, heads), Transition(width)
        self.outer = OuterProduct(width, pairs)
        self.outgoing, self.incoming = Triangle(pairs, outgoing=True), Triangle(pairs, outgoing=False)
        self.starting, self.ending = Gated(pairs, pair_heads, pairs), Gated(pairs, pair_heads, pairs)
        self.pair_transition = Transition(pairs)

    def forward(self, x: torch.Tensor, pair: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return sequences and pairs after the block."""
        x = x + self.row(x, pair)
        x = x + self.column(x.transpose(1, 2)).transpose(1, 2)
        x = x + self.transition(x)
        pair = pair + self.outer(x)
        pair = pair + self.outgoing(pair)
        pair = pair + self.incoming(pair)
        pair = pair + self.starting(pair, pair)
        turned = pair.transpose(1, 2)
        pair = pair + self.ending(turned, turned).transpose(1, 2)
        return x, pair + self.pair_transition(pair)


class Trunk(nn.Module):
    """A sequence of Evoformer blocks."""

    def __init__(self, blocks: int, width: int, heads: int, pairs: int, pair_heads: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(width, heads, pairs, pair_heads) for _ in range(blocks))

    def forward(self, x: torch.Tensor, pair: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return sequences and pairs after all blocks."""
        for block in self.blocks:
            x, pair = block(x, pair)
        return x, pair
