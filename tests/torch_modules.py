"""Random modules of cheap operators."""

from __future__ import annotations

import functools
import random
from typing import Any

import torch
from hypothesis import settings
from hypothesis import strategies as st

from hetsched.runtime import Program

nn, F = torch.nn, torch.nn.functional
SHAPE = (4, 8, 8)
"""Every tensor between two steps has this shape, for each item of the batch."""
FEW = settings().max_examples // 4 if settings().derandomize else 0
"""How many programs `captured` has in this profile; 0 for always new ones: a capture takes longer than most tests of it."""


class Steps(nn.Module):
    """Steps (operator, i, j) that read the results i and j of earlier ones, modulo their number; the first ones are the arguments."""

    def __init__(self, steps, results):
        super().__init__()
        self.steps, self.results = steps, results
        self.weight = nn.Parameter(torch.randn(8, 8) / 3)
        self.down = nn.ModuleList(nn.Conv2d(8, 4, 1) for _ in steps)
        self.conv = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1, bias=bool(k % 2)) for k, _ in enumerate(steps))
        self.norm = nn.ModuleList(nn.BatchNorm2d(4, affine=k % 3 != 0) for k, _ in enumerate(steps))
        for norm in self.norm:
            norm.running_mean.uniform_(-0.3, 0.3)
            norm.running_var.uniform_(0.5, 2.0)
            if norm.affine:
                nn.init.uniform_(norm.weight, 0.5, 2.0)
                nn.init.uniform_(norm.bias, -1, 1)

    def forward(self, x, y):
        made = [x, y]
        for k, (op, i, j) in enumerate(self.steps):
            a, b = made[i % len(made)], made[j % len(made)]
            made.append(getattr(self, f"_{op}")(k, a, b))
        kept = [made[i % len(made)] for i in self.results]
        return {"last": made[-1], "others": (*kept, made[-1])}

    def _add(self, k, a, b):
        return a + b

    def _scale(self, k, a, b):
        return a * 0.5

    def _matmul(self, k, a, b):
        return a @ self.weight

    def _relu(self, k, a, b):
        return F.relu(a)

    def _cat(self, k, a, b):
        return self.down[k](torch.cat([a, b], 1))

    def _split(self, k, a, b):
        left, right = a.split(2, 1)
        return torch.cat([right, left], 1)

    def _parts(self, k, a, b):
        first, second, third, fourth = b.unbind(1)
        return torch.stack([fourth, first + second, second, third], 1)

    def _pool(self, k, a, b):
        values, indices = F.max_pool2d(a, 3, 1, 1, return_indices=True)
        return values + indices.to(a.dtype) / 64 if k % 2 else values - b

    def _largest(self, k, a, b):
        values, indices = a.max(3, keepdim=True)
        return b - values * indices.to(a.dtype) / 8

    def _top(self, k, a, b):
        return torch.topk(a, 8, 2).values

    def _norm(self, k, a, b):
        return self.norm[k](self.conv[k](a))

    def _both(self, k, a, b):
        made = self.conv[k](a)
        return self.norm[k](made) + made

    def _sizes(self, k, a, b):
        return a.reshape(a.shape[0] * 2, -1).reshape(b.shape[0], 4, 8, 8)


OPERATORS = ["add", "scale", "matmul", "relu", "cat", "split", "parts", "pool", "largest", "top", "norm", "norm", "both", "sizes"]


@st.composite
def modules(draw: Any, most: int = 10) -> Any:
    """Draw a module of two tensors, in eval mode."""
    number = st.integers(0, 100)
    steps = draw(st.lists(st.tuples(st.sampled_from(OPERATORS), number, number), min_size=1, max_size=most))
    results = draw(st.lists(number, max_size=2))
    torch.manual_seed(draw(st.integers(0, 10**6)))
    return Steps(steps, results).eval()


@functools.cache
def _captured(number: int) -> tuple[Steps, Program]:
    rng = random.Random(number)
    steps = [(rng.choice(OPERATORS), rng.randrange(100), rng.randrange(100)) for _ in range(rng.randint(1, 10))]
    with torch.random.fork_rng():
        torch.manual_seed(number)
        module = Steps(steps, [rng.randrange(100) for _ in range(rng.randint(0, 2))]).eval()
        return module, Program(module, arguments(), fuse=number % 2 == 1)


@st.composite
def captured(draw: Any) -> tuple[Steps, Program]:
    """Draw a module and its program, fused or not: of `FEW` that all tests share and none may change, or new ones."""
    if FEW:
        return _captured(draw(st.integers(0, FEW - 1)))
    module = draw(modules())
    return module, Program(module, arguments(), fuse=draw(st.booleans()))


def arguments(count: int = 2) -> Any:
    """Return random arguments."""
    return torch.randn(count, *SHAPE), torch.randn(count, *SHAPE)


def tensors(result: Any) -> list[Any]:
    """Return the tensors of a result."""
    return [result["last"], *result["others"]]
