"""The ranks of a run in the terminal, and what messages between them cost."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from hetsched.costs.machine import Machine
    from hetsched.problem.cluster import Cluster, Device

Found = TypeVar("Found")


class Messages:
    """Ranks, one for each device: those of torchrun, or processes that end with `stack`.

    Attributes
    ----------
    rank : int
        Of this process; 0 too where it has started the ranks.
    own : list of str
        The devices that this process measures: of one host all on rank 0; of several each rank its own.
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
        several = self._launch is not None and len(set(self._launch.hosts)) > 1
        self.own = [name for name in devices if (of[name] == self.rank if several else self.rank == 0)]
        self._turns = 0

    def in_turn(self, measure: Callable[[], Found]) -> list[Found]:
        """Let the ranks measure one after another; return what each has found on rank 0, and nothing on others."""
        if self._launch is None:
            return [measure()]
        self._turns += 1
        store, found = self._launch.store, []
        for rank in range(self._launch.size):
            key = f"turn {self._turns}/{rank}"
            if rank == self.rank:
                store.set(key, pickle.dumps(measure()))
            content = store.get(key)
            if self.rank == 0:
                found.append(pickle.loads(content))
        return found

    def overheads(self, profiled: Machine) -> Machine:
        """Return the overheads of devices, as profiled, with those of messages."""
        own = {name: replace(self.machine.of(name), dispatch=one.dispatch, gather=one.gather) for name, one in profiled.devices}
        return type(profiled)(own, once=self.machine.once)

    def cluster(self, devices: Sequence[Device]) -> Cluster:
        """Return devices, in the order of the ranks, with the links between these."""
        from hetsched.problem.cluster import Cluster

        return Cluster(devices, bandwidth=self._links.route_bandwidth, latency=self._links.route_latency)

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
