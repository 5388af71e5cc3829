"""Swin transformers for large images as PyTorch modules."""

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

SIZES: Mapping[str, tuple[tuple[int, ...], int, int]] = {
    "1.8B": ((2, 2, 26, 2), 512, 16),
    "6.6B": ((2, 2, 48, 2), 768, 24),
    "13B": ((2, 2, 56, 2), 1024, 32),
}
"""Blocks of each stage, width and heads of the first. Moirai's Table IV has 32, 48 and 56 layers; their distribution over the
stages is chosen for the number of parameters."""


@checked(InvalidProblem, window=COUNT, classes=COUNT)
def swin(size: str = "1.8B", *, window: int = 11, classes: int = 1000) -> nn.Module:
    """Return a Swin transformer with random weights: four stages, each with half the grid and twice the width of the one before.

    References
    ----------
    Z. Liu et al., "Swin transformer: hierarchical vision transformer using shifted windows", ICCV 2021, section 3.
    """
    if size not in SIZES:
        raise InvalidProblem(f"no Swin transformer of {size!r} parameters is known; choose one of {', '.join(SIZES)}")
    return Swin(*SIZES[size], window, classes)


class Windows(nn.Module):
    """Attention within windows of a grid, with scores biased by relative position."""

    def __init__(self, width: int, heads: int, window: int, shift: int) -> None:
        super().__init__()
        self.heads, self.window, self.shift, self.scale = heads, window, shift, (width // heads) ** -0.5
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.bias = nn.Parameter(torch.zeros((2 * window - 1) ** 2, heads))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the update of the grid `x` [batch, height, width, channels]."""
        side, (batch, height, width, channels) = self.window, x.shape
        x = functional.pad(x, (0, 0, 0, -width % side, 0, -height % side))
        rows, columns = x.shape[1] // side, x.shape[2] // side
        if self.shift:
            x = torch.roll(x, (-self.shift, -self.shift), (1, 2))
        cut = x.view(batch, rows, side, columns, side, channels).transpose(2, 3).reshape(-1, side * side, channels)
        query, key, value = self.qkv(cut).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        scores = (query * self.scale) @ key.transpose(-1, -2) + self.bias[self._relative(x.device)].permute(2, 0, 1)
        if self.shift:
            mask = self._mask(x.shape[1], x.shape[2], x.device)
            scores = (scores.unflatten(0, (batch, -1)) + mask[:, None]).flatten(0, 1)
        made = self.out((torch.softmax(scores, -1) @ value).transpose(1, 2).flatten(2))
        made = made.view(batch, rows, columns, side, side, channels).transpose(2, 3).reshape(batch, rows * side, columns * side, channels)
        if self.shift:
            made = torch.roll(made, (self.shift, self.shift), (1, 2))
        return torch.as_tensor(made[:, :height, :width])

    def _relative(self, device: torch.device) -> torch.Tensor:
        """Return the row of the bias for each pair of positions in a window."""
        side = torch.arange(self.window, device=device)
        places = torch.cartesian_prod(side, side)
        apart = places[:, None] - places[None] + self.window - 1
        return apart[..., 0] * (2 * self.window - 1) + apart[..., 1]

    def _mask(self, height: int, width: int, device: torch.device) -> torch.Tensor:
        """Return the mask of the scores of each window, which excludes positions that are not neighbours in the grid."""
        regions = []
        for length in (height, width):
            place = torch.arange(length, device=device)
            regions.append((place >= length - self.window).long() + (place >= length - self.shift).long())
        region = 3 * regions[0][:, None] + regions[1]
        side = self.window
        cut = region.view(height // side, side, width // side, side).transpose(1, 2).reshape(-1, side * side)
        return (cut[:, None] != cut[:, :, None]) * -100.0


class Block(nn.Module):
    """Attention within windows, then two linear layers, each on normalised input and added to it."""

    def __init__(self, width: int, heads: int, window: int, shift: int) -> None:
        super().__init__()
        self.norm1, self.attention, self.norm2 = nn.LayerNorm(width), Windows(width, heads, window, shift), nn.LayerNorm(width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the grid after the block."""
        x = x + self.attention(self.norm1(x))
        return torch.as_tensor(x + self.narrow(functional.gelu(self.wide(self.norm2(x)))))


class Merging(nn.Module):
    """Merges two by two positions into one of twice the width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.reduce = nn.LayerNorm(4 * width), nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the smaller grid."""
        x = functional.pad(x, (0, 0, 0, x.shape[2] % 2, 0, x.shape[1] % 2))
        quarters = [x[:, row::2, column::2] for column in (0, 1) for row in (0, 1)]
        return torch.as_tensor(self.reduce(self.norm(torch.cat(quarters, -1))))


class Swin(nn.Module):
    """Patches of 4 x 4 pixels, the stages, a classifier."""

    def __init__(self, depths: tuple[int, ...], width: int, heads: int, window: int, classes: int) -> None:
        super().__init__()
        self.patches, self.norm = nn.Conv2d(3, width, 4, 4), nn.LayerNorm(width)
        stages: list[nn.Module] = []
        for k, depth in enumerate(depths):
            blocks = [Block(width << k, heads << k, window, i % 2 * (window // 2)) for i in range(depth)]
            stages.append(nn.Sequential(*([Merging(width << (k - 1))] if k else []), *blocks))
        self.stages = nn.Sequential(*stages)
        last = width << (len(depths) - 1)
        self.last, self.classes = nn.LayerNorm(last), nn.Linear(last, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the classes' scores of images [batch, 3, height, width]."""
        x = self.stages(self.norm(self.patches(images).permute(0, 2, 3, 1)))
        return torch.as_tensor(self.classes(self.last(x).mean((1, 2))))
