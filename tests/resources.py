"""What transfers hold under each model of communication, by the page of rules: a reading of the tests, independent of the package's."""

from __future__ import annotations

from collections.abc import Hashable

import hetsched as hs


def held_resources(communication: str, cluster: hs.Cluster, h: int, k: int) -> set[Hashable]:
    """Return the resources that a transfer from device h to device k holds; without contention those whose load the period counts."""
    if h == k:
        return set()
    sender, receiver = (cluster.devices[x].node or x for x in (h, k))
    rules: dict[str, set[Hashable]] = {
        "delay": {(h, k)},
        "per-input": {(h, k)},
        "channel": {(h, k)},
        "port": {("sends", h), ("receives", k)},
        "node": set() if sender == receiver else {("sends", sender), ("receives", receiver)},
    }
    assert communication in rules, f"no rule for {communication!r}; add here what its transfers hold"
    return rules[communication]
