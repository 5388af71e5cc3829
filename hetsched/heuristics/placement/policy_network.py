"""A graph network in torch that gives each group of tasks a distribution over devices, and its policy gradient."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch

from hetsched.arrays import FloatArray, IntArray

if TYPE_CHECKING:
    from hetsched.heuristics.placement.policy_groups import Groups

ROUNDS = 2
"""Rounds of messages along the edges, in both directions."""
DECAYS, TINY = (0.9, 0.999), 1e-8
"""Adam's decays of the mean and of the mean square of the gradient, and what keeps its divisor above 0."""
FORBIDDEN = -1e9
"""Logit of a device that is not allowed: its probability is 0, and its product with the logarithm is a number."""

_LOCK = threading.Lock()
"""The number of threads is global: two solves in two threads would each restore what the other has set."""


@contextmanager
def _own_modes() -> Iterator[None]:
    """Compute gradients in one thread, so that no sum depends on their number, whatever the caller's modes are; restore these."""
    with _LOCK, torch.inference_mode(False), torch.enable_grad():
        threads = torch.get_num_threads()
        try:
            torch.set_num_threads(1)
            yield
        finally:
            torch.set_num_threads(threads)


class PolicyNetwork:
    """A distribution over devices for each group, at first uniform over those allowed.

    The state of a group begins with its features and a learned vector of its own, without which groups that look alike could
    never be given different devices. Each round adds a function of it and of the mean states of its predecessors and of its
    successors; a linear head has a logit for each device.

    Parameters
    ----------
    groups : Groups
    hidden : int
        Number of hidden units.
    rate : float
        Learning rate of Adam (Kingma and Ba 2015).
    rng : numpy.random.Generator
        Draws the initial weights; torch draws nothing.
    """

    def __init__(self, groups: Groups, hidden: int, rate: float, rng: np.random.Generator) -> None:
        (count, devices), known = groups.allowed.shape, groups.features.shape[1]
        self.shapes = [(count, hidden), (known, hidden), *((3 * hidden, hidden), (1, hidden)) * ROUNDS, (hidden, devices)]
        scales = [1.0, known**-0.5, *((3 * hidden) ** -0.5, 0.0) * ROUNDS, 0.0]
        self.sizes = [rows * columns for rows, columns in self.shapes]
        initial = np.concatenate([scale * rng.standard_normal(size) for size, scale in zip(self.sizes, scales, strict=True)])
        self.rate, self.steps = rate, 0
        with _own_modes():
            self.features, self.weights = _tensor(groups.features), _tensor(initial).requires_grad_()
            self.forbidden = torch.tensor(~groups.allowed, device="cpu")
            self.ways = [_way(groups.source, groups.target, count), _way(groups.target, groups.source, count)]
            self.moments = [torch.zeros_like(self.weights, requires_grad=False) for _ in DECAYS]
            self.logs = self._forward()

    def probabilities(self) -> FloatArray:
        """Return the probability of each device for each group, [groups, K]; 0 where it is not allowed."""
        with _own_modes():
            return np.asarray(self.logs.detach().exp().numpy(), np.float64)

    def _forward(self) -> torch.Tensor:
        """Return the logarithms of the probabilities, [groups, K]."""
        parts = torch.split(self.weights, self.sizes)
        own, known, *rounds, head = (part.reshape(shape) for part, shape in zip(parts, self.shapes, strict=True))
        state = torch.tanh(own + self.features @ known)
        for weight, bias in zip(rounds[::2], rounds[1::2], strict=True):
            means = [torch.zeros_like(state).index_add(0, to, state[come] * share) for come, to, share in self.ways]
            state = state + torch.tanh(torch.cat([state, *means], dim=1) @ weight + bias)
        return torch.log_softmax((state @ head).masked_fill(self.forbidden, FORBIDDEN), dim=1)

    def ascend(self, gain: FloatArray, bonus: float) -> None:
        """Take one step of Adam to increase the sum of `gain` [groups, K] times the logarithms of the probabilities.

        `bonus` times the sum of the entropies of all groups is added to it.
        """
        with _own_modes():
            entropy = -(self.logs.exp() * self.logs).sum()
            (slope,) = torch.autograd.grad((_tensor(gain) * self.logs).sum() + bonus * entropy, self.weights)
            self.steps += 1
            with torch.no_grad():
                for moment, decay, value in zip(self.moments, DECAYS, (slope, slope * slope), strict=True):
                    moment.mul_(decay).add_(value, alpha=1 - decay)
                mean, square = (moment / (1 - decay**self.steps) for moment, decay in zip(self.moments, DECAYS, strict=True))
                self.weights.addcdiv_(mean, square.sqrt() + TINY, value=self.rate)
            self.logs = self._forward()


def _tensor(values: FloatArray) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64, device="cpu")


def _way(come: IntArray, to: IntArray, count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the ends of messages, and the share of each among those to the same group, [A, 1]."""
    share = 1.0 / np.bincount(to, minlength=count)[to]
    return torch.tensor(come, device="cpu"), torch.tensor(to, device="cpu"), _tensor(share[:, None])
