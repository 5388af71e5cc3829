"""Numba kernels for the seconds of a transfer. `Problem.transfer_times` is the same formula in numpy."""

from __future__ import annotations

import numpy as np

from hetsched.compiled import inner
from hetsched.problem.links import LinkTable


@inner
def multiplier(links: LinkTable, count: int) -> float:
    """Return the factor of the bytes, or of the explicit seconds, of one input in a transfer of `count` inputs."""
    return 1.0 if links.per_input else float(count)


@inner
def bytes_seconds(links: LinkTable, amount: float, h: int, k: int) -> float:
    """Return the seconds of a transfer of `amount` bytes from device h to k: 0 within a device, inf without a path."""
    x, y = np.uint64(h), np.uint64(k)  # unsigned, so that numba omits the check for negative indices
    return float(links.latency[x, y] + amount / links.bandwidth[x, y])


@inner
def link_seconds(links: LinkTable, edge: int, h: int, k: int, factor: float) -> float:
    """Return the seconds of the transfer of an edge from device h to k: 0 within a device, inf if it is impossible.

    `factor` is the `multiplier` of the number of inputs.
    """
    if links.given:
        return float(links.transfers[np.uint64(edge), np.uint64(h), np.uint64(k)] * factor)
    return bytes_seconds(links, links.edge_bytes[np.uint64(edge)] * factor, h, k)
