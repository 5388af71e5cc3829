"""The ranks of a run in the terminal, and what messages between them cost."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hetsched.problem.cluster import Cluster


class Messages:
    """Ranks, one for each device: those of torchrun, or processes that end with `stack`.

    Attributes
    ----------
    rank : int
        Of this process; 0 too where it has started the ranks.
    machine : Machine
        What messages cost the processors of the devices.
    """

    def __init__(self, devices: list[str], stack: ExitStack) -> None:
        from hetsched.runtime.engines import Launched, checked_ranks, launched
        from hetsched.runtime.gloo import Group
        from hetsched.runtime.messages import message_costs, message_times
        from hetsched.runtime.ranks import START, Ranks

        self._launch = Launched() if launched() else None
        self.rank = 0 if self._launch is None else self._launch.rank
        self.engine: Any = "gloo"
        of = dict(zip(devices, checked_ranks(devices, None, None if self._launch is None else self._launch.size), strict=True))
        if self._launch is None:
            self.engine = stack.enter_context(Ranks(len(devices)))
            costs = self.engine.messages(of)
        else:
            costs = message_costs(message_times(Group(self._launch.store, self.rank, self._launch.size), START), of)
        self._links, self.machine = costs

    def cluster(self, devices: Cluster) -> Cluster:
        """Return the devices of a cluster with the links between the ranks."""
        from hetsched.problem.cluster import Cluster

        return Cluster(devices.devices, bandwidth=self._links.route_bandwidth, latency=self._links.route_latency)

    def agreed(self, content: Any) -> Any:
        """Return what rank 0 gives."""
        return content if self._launch is None else self._launch.agreed(content)

    def told(self, number: float) -> float:
        """Return the number of the rank that has one, which is not NaN."""
        if self._launch is None:
            return number
        if number == number:
            self._launch.store.set("number", repr(number))
        return float(self._launch.store.get("number"))
