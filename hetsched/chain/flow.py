"""The most tokens per second through devices with given intervals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hetsched.arguments import checked
from hetsched.arrays import FloatArray, Frozen
from hetsched.chain.flow_kernels import SINK, SOURCE, network, throughput
from hetsched.chain.serving import ServingPlacement, ServingProblem, check_intervals


@dataclass(frozen=True, eq=False)
class ServingFlow(Frozen):
    """Tokens per second through the devices of a placement.

    Attributes
    ----------
    transfers : float64 [m + 1, m + 1]
        From one device (row) to another (column); in the last row and column from and to the outside.
    """

    transfers: FloatArray

    @property
    def throughput(self) -> float:
        """Tokens per second in all."""
        return float(self.transfers[-1].sum())

    @property
    def device(self) -> FloatArray:
        """Tokens per second through each device [m]."""
        return np.asarray(self.transfers[:-1].sum(axis=1))


@checked
def max_flow(problem: ServingProblem, placement: ServingPlacement) -> ServingFlow:
    """Return a maximum flow through the intervals of a placement, within the limits of devices and links.

    Raises
    ------
    InvalidSchedule
        A device cannot hold its interval.
    """
    check_intervals(problem, placement)
    m = problem.n_devices
    scratch = network(problem.n_items, m)
    throughput(problem.fleet(limited=True), placement.first.copy(), placement.end.copy(), scratch)
    enter = 2 + 2 * np.arange(m)
    used = placement.first < placement.end
    meeting = used[:, None] & used & (placement.end[:, None] == placement.first)
    transfers = np.zeros((m + 1, m + 1))
    transfers[:m, :m] = np.where(meeting, scratch.residual[np.ix_(enter, enter + 1)].T, 0.0)
    transfers[m, :m] = np.where(used & (placement.first == 0), scratch.residual[enter, SOURCE], 0.0)
    transfers[:m, m] = np.where(used & (placement.end == problem.n_items), scratch.residual[SINK, enter + 1], 0.0)
    return ServingFlow(transfers)
