"""What is asked of a plan: a model, a machine, a workload, a regime and a tool; and the problems that these make."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hetsched.arguments import shown
from hetsched.arrays import FloatArray
from hetsched.chain.card import ModelCard
from hetsched.chain.evaluation import ChainValues, evaluate
from hetsched.chain.machine import Machine
from hetsched.chain.offloading import Offloading
from hetsched.chain.placement import Placement, keeps_to_nodes
from hetsched.chain.problem import ChainProblem
from hetsched.chain.workload import Workload
from hetsched.costs.language import LanguageRoofline, held
from hetsched.costs.offloading import experts_held, weights_copied
from hetsched.costs.tensor_parallel import card_of_rank, device_sets, indivisible, messages_within, on_sets, set_name
from hetsched.errors import InvalidArgument, UnsupportedFeature
from hetsched.planning.allowance import NEAR, Allowance, solve_work
from hetsched.planning.dynamic_program import fewest_stages, find_latency, find_period, least_latency, least_missing
from hetsched.planning.incumbent import Incumbent
from hetsched.planning.sensitivity import CLOSE, Best, Problems
from hetsched.planning.tables import Tables
from hetsched.planning.tools import TOOLS, Tool
from hetsched.planning.tools.protocol import Execution, Offloads, impossible_on
from hetsched.problem.cluster import Device
from hetsched.stopping import NEVER, Deadline
from hetsched.verification.tensor_parallel import verify_tensor_parallel
from hetsched.verification.verify import Violation

MOST_STATES = 2**16
"""The most numbers of used devices by node with which the order of ranks by node is a rule of the search."""


SMALL = 16
"""The most devices that can be searched in any case."""


@dataclass(frozen=True, eq=False)
class Question:
    """What a plan answers.

    Attributes
    ----------
    card, machine, work, costs
        As those of `hetsched.plan`.
    regime : str
        ``"fit"``, ``"latency"`` or ``"throughput"``.
    tool : Tool or None
    order : tuple of str or None
        The devices that may be used, in order; None for all in any order.
    tensor_parallel : int
        Alike devices of a node that run each stage together.
    deadline : Deadline
        When the search for an answer ends, with `OutOfTime`; not a part of the question.
    allowance : Allowance
        The work that solving changed problems may take, else it ends with `OutOfWork`; not a part of the question either.
    """

    card: ModelCard
    machine: Machine
    work: Workload
    regime: str
    costs: LanguageRoofline
    tool: Tool | None = None
    order: tuple[str, ...] | None = None
    tensor_parallel: int = 1
    deadline: Deadline = dataclasses.field(default=NEVER, compare=False)
    allowance: Allowance = dataclasses.field(default_factory=Allowance, compare=False)
    _known_sets: dict[int, tuple[tuple[str, ...], ...]] = dataclasses.field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.tool is not None and self.regime == "throughput" and not self.tool.execution.pipelines:
            raise UnsupportedFeature(
                f"{self.tool.name} works on one request at a time, its stages one after the other; ask for the regime 'latency', "
                f"or for a tool that pipelines: {', '.join(name for name, tool in TOOLS.items() if tool.execution.pipelines)}"
            )
        if self.tool is not None and not self.execution.spans_nodes and len(self._nodes()) > 1:
            raise UnsupportedFeature(
                f"{self.tool.name} is planned on one node, and the machine has {', '.join(self._nodes())}; name devices of one with order"
            )
        if self.order is not None:
            check_order(self.machine.cluster.names, self.order)
        reason = self._undivided(self.tensor_parallel)
        if reason:
            raise UnsupportedFeature(reason)

    def _undivided(self, size: int) -> str:
        """Return why stages cannot be run by so many devices each, and what to do; empty if they can."""
        multiple = self.execution.vocabulary_multiple
        if size == 1:
            return ""
        if multiple is None:
            able = ", ".join(name for name, tool in TOOLS.items() if tool.execution.vocabulary_multiple is not None)
            return f"tensor_parallel is {size}; it is searched for tools that have it, name one: {able}"
        if not self._sets(size):
            where = "on a node" if self.order is None else "of a node, one behind the other, in the order"
            return f"tensor_parallel is {size}, and there are no {size} alike devices {where}; give fewer"
        return indivisible(self.card, size, multiple(size))

    def with_degrees(self, degrees: Sequence[int]) -> list[Question]:
        """Return the question with each of some degrees of tensor parallelism; that of its own if there are none."""
        return [self if size == self.tensor_parallel else self.replace(tensor_parallel=size) for size in degrees] or [self]

    def degrees(self) -> list[int]:
        """Return by how many devices each stages may be run: all that the tool, the model and the machine allow.

        Of several those are left out whose search would be too large, unless all are.
        """
        multiple = self.execution.vocabulary_multiple
        if multiple is None:
            return [1]
        sizes = range(2, len(self.used) + 1)
        allowed = [1, *(size for size in sizes if not indivisible(self.card, size, multiple(size)) and self._sets(size))]
        if len(self.used) <= SMALL:
            return allowed
        return [size for size, own in zip(allowed, self.with_degrees(allowed), strict=True) if own._has_room()] or allowed

    def _has_room(self) -> bool:
        return len(self.sets) <= SMALL or all(Tables(problem.merged(self.starts)).has_room() for problem in self.problems)

    def _sets(self, size: int) -> tuple[tuple[str, ...], ...]:
        """Return the devices that run a stage together, for each set of them."""
        if size == 1:
            return tuple((name,) for name in self.used)
        if size not in self._known_sets:
            self._known_sets[size] = device_sets(self.machine, self.used, size, in_order=self.order is not None)
        return self._known_sets[size]

    def devices(self, size: int) -> tuple[str, ...]:
        """Return the names of the devices, or of the sets of so many, that run stages."""
        return tuple(map(set_name, self._sets(size)))

    @cached_property
    def sets(self) -> tuple[tuple[str, ...], ...]:
        """The devices of the machine that each device of the problems consists of."""
        return self._sets(self.tensor_parallel)

    def device(self, name: str) -> Device:
        """Return a device of the machine."""
        return self.machine.cluster.devices[self.machine.cluster.index[name]]

    def verified_sets(self, placement: Placement) -> list[Violation]:
        """Return every violation of the rules of tensor parallelism by the sets of devices of a placement."""
        own = [self.sets[stage.device] for s, stage in enumerate(placement.stages) if not placement.returns(s)]
        return verify_tensor_parallel(self.card, self.machine, own, self.tensor_parallel)

    def messages_within(self, placement: Placement) -> list[float]:
        """Return the seconds of each stage that messages between its devices take."""
        count = min(len(placement), len(self.problems)) if self.regime == "throughput" else 1
        seconds = self._messages(count) * (count / self.work.sequences if self.regime == "throughput" else 1)
        return [float(seconds[first:end, k].sum()) for k, first, end in placement.stages]

    def _messages(self, count: int) -> FloatArray:
        if self.tensor_parallel == 1 or self.regime == "fit":
            return np.zeros((self.card.n_items, len(self.sets)))
        return messages_within(self.card, self.machine, self._work(), self.sets, in_progress=count)

    def _work(self) -> Workload:
        """Return the workload as the tool computes it."""
        work = dataclasses.replace(self.work, activation_bytes=self.execution.activation_bytes or self.work.activation_bytes)
        return work if self.execution.chunks else dataclasses.replace(work, chunk=work.prompt * work.sequences)

    def replace(self, **changes: object) -> Question:
        """Return the question with other attributes."""
        if not changes.keys().isdisjoint(("machine", "tool", "order")):
            changes["_known_sets"] = {}
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]

    @cached_property
    def problems(self) -> Problems:
        """The problems for 1, 2, ... stages, the last one for more too; those of the tool, if one is asked for.

        Of a tool that computes chunks of a prompt at once unless the host has blocks, or weights of some, there are two for the latency:
        those with such blocks, and those without.
        """
        if not self.execution.overlaps or self.regime != "latency":
            return tuple(self._problem(count) for count in range(1, self._most() + 1))
        overlapped = self._problem(1, overlap=True)
        if self.host is None:
            return (overlapped,)
        return self._problem(1), impossible_on(overlapped, [self.host], slice(1, None))

    @cached_property
    def offloading_problem(self) -> ChainProblem:
        """The problem with all that the tool may leave on other devices, searched or not; the first one if it leaves nothing there."""
        return self.problems[0] if self.problems[0].offloading is not None else self._problem(1, searched=False)

    def _most(self) -> int:
        """Return the most microbatches that are in progress."""
        return 1 if self.regime != "throughput" else min(len(self.sets), self.card.n_items, self.work.sequences)

    def _problem(self, count: int, *, overlap: bool = False, times: bool = True, searched: bool = True) -> ChainProblem:
        """Return the problem of `count` microbatches in progress; for the throughput with times per sequence, or without times."""
        machine = self.machine if self.tool is None else self._within_budgets(self.tool)
        work, card, size = self._work(), self.card, self.tensor_parallel
        if size > 1 and self.execution.vocabulary_multiple is not None:
            card = card_of_rank(card, size, self.execution.vocabulary_multiple(size))
        if self.regime == "fit" or not times:
            problem = held(card, machine, work, in_progress=count)
        else:
            sent = self.execution.tensors_sent
            problem = self.costs.chain(card, machine, work, in_progress=count, tensors_sent=sent, overlap=overlap)
        if size > 1:
            problem = on_sets(problem, self.sets, self._messages(count) if times else np.zeros((card.n_items, 1)))
        if self.regime == "throughput" and times:
            problem = problem.scaled(count / work.sequences).replace(most_in_progress=work.sequences)
        if self.execution.cache_tokens is not None:
            items = self.card.items
            tokens = self.execution.cache_tokens(items.window, work)
            problem = problem.replace(cache_bytes=tokens * items.cache_numbers * work.cache_bytes)
        devices = self.devices(size)
        if devices != problem.devices:
            problem = selected(problem, devices)
        if self.tool is not None:
            whole, problem = problem, self.tool.restricted(self.card, problem, self.names(self.tool.name))
            offloading = None if overlap else self._offloading(self.tool, machine, work, times and self.regime != "fit")
            if offloading is not None:
                closed = offloading.closed(whole.shared_bytes) if self.tool.closes(self.card) else offloading
                moving = problem.replace(offloading=closed)
                problem = _searchable(problem, moving) if searched else moving
        ranks = self._ranks(problem)
        if ranks is not None:
            problem = problem.replace(nodes=ranks)
        return problem if self.order is None else forward(problem)

    def _ranks(self, problem: ChainProblem) -> list[int] | None:
        """Return the node of each device where the tool has the ranks of a node one after the other; None where that makes no difference.

        None too where there are so many nodes that the search would be too large: then a placement may be one that cannot be stated.
        """
        names, sizes = self._nodes(), Counter[str]()
        if not self.execution.ranks_by_node or len(names) == 1:
            return None
        hosts = [self.device(own[0]).node or own[0] for own in self.sets]
        able = np.isfinite(problem.seconds).all(axis=0)
        sizes.update(hosts[k] for k in np.flatnonzero(able))
        if max(sizes.values(), default=1) == 1 or math.prod(size + 1 for size in sizes.values()) > MOST_STATES:
            return None
        return [names.index(host) for host in hosts]

    def _offloading(self, tool: Tool, machine: Machine, work: Workload, times: bool) -> Offloading | None:
        """Return which weights the tool may leave on other devices; None if it leaves none there."""
        rule = tool.execution.offloads
        holders = [] if rule is None else rule.holders(self.card, self.names(tool.name))
        if rule is None or not holders:
            return None
        own = [machine.cluster.index[name] for name in self.used]
        find = experts_held if rule.part == "experts" else weights_copied
        return find(self.card, machine, work, [own[k] for k in holders], self.costs if times else None).selected(own)

    @property
    def used(self) -> tuple[str, ...]:
        """The devices that may be used: those of the order, or all that the tool can use."""
        if self.order is not None:
            return self.order
        disks = self.tool is None or self.execution.disks
        return tuple(name for name, computes in zip(self.machine.cluster.names, self.machine.computes, strict=True) if computes or disks)

    @property
    def not_searched(self) -> str:
        """What the tool can state and is not searched, for people."""
        return self.execution.not_searched if self.offloads is None else self.offloads.not_searched

    @property
    def offloads(self) -> Offloads | None:
        """Which weights may be on other devices than that of their stage; None if none are searched."""
        return self.execution.offloads if self.problems[0].offloading is not None else None

    def _within_budgets(self, tool: Tool) -> Machine:
        """Return the machine that leaves free what the tool does, where the user does not say how much."""
        machine = self.machine
        names = dict(zip(self.used, self._names(tool.name), strict=True))
        reserved = {
            device.name: device.memory_bytes - tool.execution.budget(names[device.name], device.memory_bytes)
            for device in machine.cluster.devices
            if device.name in names and math.isfinite(device.memory_bytes)
        }
        return machine.reserving({**reserved, **machine.reserved_bytes})

    def names(self, tool: str) -> tuple[str | int, ...]:
        """Return what a tool calls the devices of the problems, or those of each set; those of one node are named without it."""
        names = dict(zip(self.used, self._names(tool), strict=True))
        return tuple(names[own[0]] if len(own) == 1 else ",".join(str(names[name]) for name in own) for own in self.sets)

    def _names(self, tool: str) -> tuple[str | int, ...]:
        names = dict(zip(self.machine.cluster.names, self.machine.names_in(tool), strict=True))
        used, nodes = self.used, self._nodes()
        told = [names[name] for name in used]
        if len(nodes) == 1:
            told = [int(short) if (short := str(name).removeprefix(f"{nodes[0]}:")).isdigit() else short for name in told]
        if len(set(map(str, told))) < len(told):
            raise InvalidArgument(
                f"{tool} calls the devices {', '.join(used)} {shown(told)}, some of them the same; name devices of one kind with order, or "
                "make the machine with tool_names"
            )
        return tuple(told)

    def _nodes(self) -> list[str]:
        """Return the nodes of the devices that may be used."""
        index, devices = self.machine.cluster.index, self.machine.cluster.devices
        used = [devices[index[name]] for name in self.used if name in index]
        return list(dict.fromkeys(device.node or device.name for device in used)) if any(device.node for device in used) else [""]

    @property
    def execution(self) -> Execution:
        """How the tool runs stages."""
        return Execution() if self.tool is None else self.tool.execution

    @cached_property
    def host(self) -> int | None:
        """The device that always has the embedding."""
        return None if self.tool is None else self.execution.host(self.names(self.tool.name))

    @cached_property
    def starts(self) -> Sequence[int]:
        """Items with which a stage may begin."""
        return self._starts(self.problems[0].n_items)

    def _starts(self, n_items: int) -> Sequence[int]:
        if self.tool is None:
            return range(n_items)
        return [start for start in self.execution.begins(self.card, self.names(self.tool.name)) if start < n_items]

    def of(self, placement: Placement | None, problems: Problems | None = None) -> ChainProblem:
        """Return the problem of a placement: for as many requests in progress as it has stages, or with chunks that overlap if they do.

        It is one of the question's problems, or of some that are like them.
        """
        problems = self.problems if problems is None else problems
        if placement is None:
            return problems[0]
        if problems is self.problems and placement.offloaded and problems[0].offloading is None:
            return self.offloading_problem
        return self.searched(placement, problems)

    def searched(self, placement: Placement, problems: Problems) -> ChainProblem:
        """Return that one of some problems that is of a placement; raises `UnsupportedFeature` if they do not have what it offloads."""
        if placement.offloaded and problems[0].offloading is None:
            raise UnsupportedFeature("weights are offloaded, which is too large to search; ask for the placement as it is alone")
        if self.regime == "throughput":
            return problems[min(len(placement), len(problems)) - 1]
        on_host = any(stage.device == self.host and stage.end > 1 for stage in placement.stages)
        return problems[0 if on_host or placement.offloaded else -1]

    def solve(self, problems: Problems, *, known: Placement | None = None, below: float = math.inf, near: bool = False) -> Best:
        """Return the best placement of problems as those of the question; it is found faster with a good one that is known.

        That may be one that the search does not find, such as the default of a tool. Only one whose value is at most `below` is sought.
        With `near` it is a good one, by local search, where the search is not exact.
        """
        self.allowance.take(self.work_of(problems))
        judged = known is not None and (not known.offloaded or problems[0].offloading is not None)
        missing, value = self._judged(self.of(known, problems), known) if known is not None and judged else (0.0, math.inf)
        value = math.inf if missing else value
        incumbent = Incumbent(min(below, value * (1 + CLOSE)), deadline=self.deadline)
        self.find(problems, incumbent, near=near)
        found = self.best(incumbent)
        return Best(value, known) if found.placement is None and math.isfinite(value) and value <= below else found

    def work_of(self, problems: Problems) -> float:
        """Return about how many steps a solve of problems as those of the question takes."""
        return solve_work(problems, latency=self.regime == "latency") if self.is_exact else NEAR

    def find(self, problems: Problems, incumbent: Incumbent, *, near: bool = False) -> None:
        """Find the best placement of problems as those of the question, and prove it; or a good one and a bound, if that is too large."""
        merged, by_period = tuple(problem.merged(self.starts) for problem in problems), self.regime == "throughput"
        if near and not self.is_exact:
            from hetsched.planning.local_search import find_near  # with kernels

            find_near(merged, incumbent, by_period=by_period)
        else:
            (find_period if by_period else find_latency)(merged, incumbent)

    @cached_property
    def is_exact(self) -> bool:
        """Whether the search is exact: not if so many devices differ that the table of those that are used would be too large."""
        return self._has_room()

    def best(self, incumbent: Incumbent) -> Best:
        """Return the best placement that was found."""
        if incumbent.placement is None:
            return Best(math.inf, None)
        return Best(incumbent.value, unmerged(incumbent.placement, self.starts, self.problems[0].n_items))

    def missing(self) -> float:
        """Return the least sum of the bytes that stages lack, or without exact search what the devices lack in all; nan if nothing."""
        if not self.is_exact:
            return min(Tables(problem).lacking for problem in self.problems) or math.nan
        return min(least_missing(problem.merged(self.starts), deadline=self.deadline) for problem in self.problems)

    def fits(self) -> bool:
        """Return whether any placement fits."""
        routes, most = bool((self.machine.cluster.route_bandwidth > 0).all()), self._most()

        def of(count: int) -> ChainProblem:
            self.deadline.check("the search for placements that fit")
            problem = self._problem(count, times=not routes)
            return problem.merged(self._starts(problem.n_items))

        whole = of(most)
        if (whole.weight_bytes + whole.cache_bytes).sum() - whole.shared_bytes > whole.memory_bytes.sum():
            return False
        if whole.offloading is not None:
            from hetsched.planning.offloading import least_offloaded  # with kernels

            return least_offloaded(whole.without_times(), deadline=self.deadline)[1] is not None
        least = fewest_stages(whole)
        if least is None or least >= most or self.regime != "throughput":
            return least is not None
        for count in range(least, most + 1):  # with fewer microbatches, which are larger, no fewer stages are enough
            problem = of(count)
            fewest = fewest_stages(problem)
            if fewest == count:
                return True
            if fewest is not None and fewest < count:
                own = least_latency(problem.without_times()).latency[count - 1 : None if count == most else count]
                if np.isfinite(own).any():
                    return True
        return False

    def stated(self, value: float) -> dict[str, float]:
        """Return the argument of `verify_placement` that states a value."""
        return {} if self.regime == "fit" else {"period" if self.regime == "throughput" else "latency": value}

    def judged(self, placement: Placement) -> tuple[float, float]:
        """Return the bytes that a placement lacks, and its value, inf if it lacks any."""
        return self._judged(self.of(placement), placement)

    def _judged(self, problem: ChainProblem, placement: Placement) -> tuple[float, float]:
        found = evaluate(problem, placement)
        missing = found.all_missing_bytes
        valid = not missing and keeps_to_nodes(problem, placement)
        return missing, self._of_values(found) if valid else math.inf

    def value(self, problem: ChainProblem, placement: Placement) -> float:
        """Return the value of a placement that fits, in a problem as that of it."""
        return self._of_values(evaluate(problem, placement))

    def _of_values(self, found: ChainValues) -> float:
        return found.period if self.regime == "throughput" else found.latency


def _searchable(plain: ChainProblem, moving: ChainProblem) -> ChainProblem:
    """Return the problem with something to offload if it can be searched, else that without."""
    from hetsched.planning.offloading import is_searchable  # with kernels

    return moving if is_searchable(moving) else plain


def unmerged(placement: Placement, starts: Sequence[int], n_items: int) -> Placement:
    """Return a placement of a chain from that of the chain which is merged at `starts`."""
    edges = [*starts, n_items]
    stages = ((k, edges[first], edges[end]) for k, first, end in placement.stages)
    return Placement(stages, ((edges[item], holder) for item, holder in placement.offloaded))


def selected(problem: ChainProblem, order: Sequence[str]) -> ChainProblem:
    """Return the problem of some of the devices, in an order that has no meaning yet.

    Raises
    ------
    InvalidArgument
        A device is named twice, or the problem does not have it.
    """
    check_order(problem.devices, order)
    own = [problem.devices.index(name) for name in order]
    return problem.replace(
        devices=order,
        seconds=problem.seconds[:, own],
        overlapped_seconds=problem.overlapped_seconds[:, own],
        overlapped_hops=problem.overlapped_hops[np.ix_(own, own)],
        memory_bytes=problem.memory_bytes[own],
        stage_seconds=problem.stage_seconds[own],
        hops=problem.hops[np.ix_(own, own)],
        closing=problem.closing[np.ix_(own, own)],
        nodes=None if problem.nodes is None else problem.nodes[own],
    )


def check_order(devices: Sequence[str], order: Sequence[str]) -> None:
    """Raise `InvalidArgument` unless an order names some of the devices, each once."""
    strange = [name for k, name in enumerate(order) if name not in devices or name in order[:k]]
    if strange or not order:
        raise InvalidArgument(f"order is {shown(list(order))}; name devices of {', '.join(devices)}, each at most once")


def forward(problem: ChainProblem) -> ChainProblem:
    """Return the problem whose stages use devices in their order."""
    hops = problem.hops.copy()
    hops[np.tri(problem.n_devices, k=-1, dtype=bool)] = np.inf
    return problem.replace(hops=hops)
