"""Numba kernels for the seconds of a transfer: the only formula. `Problem.transfer_times` is its numpy twin."""

from __future__ import annotations

import numpy as np

from hetsched.compiled import inner
from hetsched.problem.links import LinkTable


@inner
def multiplier(links: LinkTable, count: int) -> float:
    """Return what the bytes, or the explicit seconds, of one input are multiplied by in a transfer of `count` inputs."""
    return 1.0 if links.per_input else float(count)


@inner
def bytes_seconds(links: LinkTable, amount: float, h: int, k: int) -> float:
    """Return the seconds that `amount` bytes take from device h to k: 0 within a device, inf without a path."""
    x, y = np.uint64(h), np.uint64(k)  # of negative indices numba would take care each time
    return float(links.latency[x, y] + amount / links.bandwidth[x, y])


@inner
def link_seconds(links: LinkTable, edge: int, h: int, k: int, factor: float) -> float:
    """Return the seconds that an edge takes from device h to k: 0 within a device, inf where that is impossible.

    `factor` is the `multiplier` of the number of inputs.
    """
    if links.given:
        return float(links.transfers[np.uint64(edge), np.uint64(h), np.uint64(k)] * factor)
    return bytes_seconds(links, links.edge_bytes[np.uint64(edge)] * factor, h, k)
