"""The engines of an executor: threads of this process, processes that this one starts, or the ranks that a launcher has started."""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import count
from typing import Any, Literal, Protocol

import torch

from hetsched.arguments import check_count
from hetsched.costs.timeline import RunTimes
from hetsched.errors import InvalidArgument, InvalidProblem, UnsupportedFeature
from hetsched.runtime.code import Boxes, Compiled
from hetsched.runtime.places import Place
from hetsched.runtime.plan import Plan, Run
from hetsched.runtime.program import Program
from hetsched.runtime.ranks import Ranks, Spawned
from hetsched.runtime.streams import Queues
from hetsched.runtime.threads import Threads

Name = Literal["threads", "gloo"]
ENVIRONMENT = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""What torchrun sets."""
PATIENCE = timedelta(hours=1)
"""For other ranks, which may solve a problem meanwhile."""
_numbers = count()


class Finished(Protocol):
    """A run that has ended well."""

    @property
    def registers(self) -> Boxes:
        """The registers, with the values that the result reads."""

    @property
    def span(self) -> tuple[float, float]:
        """The begin and end in seconds of the clock."""

    def times(self) -> RunTimes:
        """Return the times in seconds from the start."""


class Engine(Protocol):
    """What runs a plan on registers, see `Threads`."""

    @property
    def has_result(self) -> bool:
        """Whether the registers after a run have all values that the result reads."""

    @property
    def clock_error(self) -> float:
        """Seconds by which the clocks of devices may differ."""

    def run(self, boxes: Boxes, *, serial: bool = False, cpu: bool = False) -> Finished:
        """Run once."""

    def stream(self, boxes: Iterator[Boxes], depth: int) -> Generator[Finished, None, None]:
        """Run for each of several registers."""

    def synchronise(self, first: bool) -> None:
        """Compare the clocks of the devices before and after measured runs."""

    def renew(self) -> None:
        """Forget that an earlier run was cancelled."""

    def cancel(self) -> None:
        """End what another thread runs."""

    def restart(self) -> None:
        """Start again what runs the plan."""

    def close(self) -> None:
        """End what runs the plan."""


class Launched:
    """This process as one of the ranks that a launcher, such as torchrun, has started."""

    _hosts: list[str] | None = None

    def __init__(self) -> None:
        from hetsched.runtime.gloo import dist

        if dist.is_initialized():
            self.rank, self.size = dist.get_rank(), dist.get_world_size()
            store: Any = dist.distributed_c10d._get_default_store()
        else:
            store, self.rank, self.size = next(dist.rendezvous("env://", timeout=PATIENCE))
        self.store = dist.PrefixStore(f"hetsched/{next(_numbers)}", store)

    @property
    def hosts(self) -> list[str]:
        """A text for each rank, the same for those on one host; every rank has to ask for it."""
        from hetsched.runtime import gloo

        if self._hosts is None:  # no cached property: those of all instances have one lock
            self._hosts = gloo.exchange(self.store, self.rank, self.size, "machine", gloo.host())
        return self._hosts

    def here(self, ranks: Sequence[int]) -> list[bool]:
        """Return of some ranks which are on the host of this one."""
        return [self.hosts[rank] == self.hosts[self.rank] for rank in ranks]

    def agreed(self, content: Any) -> Any:
        """Return what rank 0 gives, on all ranks."""
        if self.rank == 0:
            self.store.set("agreed", pickle.dumps(content))
        return pickle.loads(self.store.get("agreed"))

    def check_equal(self, facts: Mapping[str, str]) -> None:
        """Raise `InvalidProblem` on all ranks if one has other facts than rank 0."""
        for name, own in facts.items():
            self.store.set(f"{name}/{self.rank}", own)
        for rank in range(1, self.size):
            for name in facts:
                first, other = (self.store.get(f"{name}/{number}").decode() for number in (0, rank))
                if first != other:
                    raise InvalidProblem(
                        f"rank {rank} has another {name} than rank 0, {other[:16]} instead of {first[:16]}; all ranks need the same "
                        "module with the same weights, arguments and options"
                    )


def launched() -> bool:
    """Return whether a launcher has started this process as one of several ranks."""
    import torch.distributed as dist

    return dist.is_available() and (dist.is_initialized() or all(name in os.environ for name in ENVIRONMENT))


def checked_ranks(names: Sequence[str], ranks: Mapping[str, int] | None, size: int | None) -> list[int]:
    """Return the rank of each device; by default each has its own."""
    if ranks is None:
        if size is not None and size != len(names):
            raise InvalidProblem(f"there are {size} ranks for {len(names)} devices; give ranks={{...}} with the rank of each device")
        return list(range(len(names)))
    if set(ranks) != set(names):
        given = ", ".join(map(repr, ranks)) or "none"
        raise InvalidProblem(
            f"the devices of the problem are {', '.join(map(repr, names))}, and ranks are given for {given}; give one for each"
        )
    own = [check_count(ranks[name], f"the rank of {name!r}", least=0, error=InvalidArgument) for name in names]
    most = max(own) + 1 if size is None else size
    if set(own) != set(range(most)):
        raise InvalidProblem(f"the devices have the ranks {own}; the ranks are 0 to {most - 1}, and each needs a device")
    return own


def weights_digest(program: Program) -> str:
    """Return the SHA-256 of all constants of a program."""
    digest = hashlib.sha256()
    for node, value in program.constants.items():
        if isinstance(value, torch.Tensor):
            digest.update(f"{node.name} {value.dtype} {tuple(value.shape)}".encode())
            digest.update(value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def crossing(plan: Plan, ranks: Sequence[int]) -> set[tuple[int, int]]:
    """Return the values that cross between ranks, or that the result reads, each with its number of inputs."""
    sent = {(send.value, len(plan.items[send.batch])) for send in plan.sends if ranks[int(plan.device[send.batch])] != ranks[send.to]}
    kept = {(r, len(items)) for r, value in enumerate(plan.values) if value.kept for items in plan.made(r).values()}
    return sent | kept


def make_engine(
    engine: Name | Ranks,
    compiled: Compiled,
    plan: Plan,
    places: Sequence[Place],
    ranks: Mapping[str, int] | None,
    timeout: float,
    copies: bool,
    launch: Launched | None,
    queues: Sequence[Queues | None],
    commit: Callable[[Boxes], None],
) -> Engine:
    """Return an engine for a plan.

    Parameters
    ----------
    engine : {"threads", "gloo"} or Ranks
        With `Ranks`, on these; with ``"gloo"``, on the ranks of `launch` or on processes of its own.
    compiled, plan, places, timeout, copies
        See `Threads`.
    ranks : mapping of str to int, optional
        The rank of each device.
    launch : Launched or None
        Of this process.
    queues : sequence of Queues or None
        Of each device that has streams; only threads have such.
    commit : callable
        See `Threads`; only threads run programs with updates.
    """
    if engine == "threads":
        return Threads(plan, compiled.tasks(plan.gathered), places, timeout, copies, queues, commit)
    for name, place, streams in zip(plan.devices, places, queues, strict=True):
        if streams is not None:
            raise UnsupportedFeature(f"device {name!r} is {place.device}; those of several processes are of the CPU so far: use threads")
    size = engine.count if isinstance(engine, Ranks) else None if launch is None else launch.size
    rank_of = checked_ranks(plan.devices, ranks, size)
    tasks = compiled.tasks(plan.gathered, crossing(plan, rank_of))
    if launch is not None:
        from hetsched.runtime.gloo import Group, Member

        facts = {
            "plan": plan.digest,
            "torch": str(torch.__version__),
            "fold": str(compiled.fold),
            "weights": weights_digest(compiled.program),
        }
        launch.check_equal({**facts, "ranks": repr(rank_of), "copies": str(copies)})
        kept = {value.task for value in plan.values if value.kept}
        runs = (step.batch for step in reversed(plan.order) if isinstance(step, Run))
        home = rank_of[int(plan.device[next((batch for batch in runs if int(plan.task[batch]) in kept), 0)])]
        return Member(plan, tasks, places, rank_of, Group(launch.store, launch.rank, launch.size), timeout, copies, home)
    own = [{int(plan.task[b]) for b, k in enumerate(plan.device.tolist()) if rank_of[k] == rank} for rank in range(max(rank_of) + 1)]
    portable = [compiled.portable(tasks, chosen) for chosen in own]
    if isinstance(engine, Ranks):
        return Spawned(plan, portable, places, rank_of, timeout, copies, engine, owned=False)
    processes = Ranks(len(own))
    try:
        return Spawned(plan, portable, places, rank_of, timeout, copies, processes, owned=True)
    except BaseException:
        processes.close()
        raise
