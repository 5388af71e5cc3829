"""The interface of all tools: a placement as text, the text as a placement, the refusal, and the default."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from hetsched.arguments import check_array, check_count, checked, shown
from hetsched.arrays import FloatArray
from hetsched.chain.card import ModelCard
from hetsched.chain.placement import ChainStage, Placement, check_stages
from hetsched.chain.problem import ChainProblem
from hetsched.chain.workload import Workload
from hetsched.errors import InvalidArgument, UnsupportedFeature
from hetsched.planning.tools.shell import ShellLine, gpus, gpus_of_nodes, is_count, single
from hetsched.problem.graph import plural

Devices: TypeAlias = Sequence[str | int]
"""A tool's name of each device, by the device's number: ``"CUDA0"``, ``0``, ``"cpu"``; GPU 0 of one of several nodes ``"node:0"``; those of
devices that run a stage together, by tensor parallelism, with commas: ``"0,1"``, ``"node:0,node:1"``."""


@dataclass(frozen=True)
class Command:
    """What states a placement to a tool.

    Attributes
    ----------
    tool : str
        Name of the tool.
    text : str
        A line of a shell, or one for each of several nodes behind ``# on NODE``; or keyword arguments of a Python function. `Tool.read`
        reads it alone.
    arguments : tuple of str
        The words of the first line behind the variables of the environment; empty for Python.
    environment : mapping
        Variables of the environment of the first line. Python sets them before it imports torch.
    device_map : mapping
        Device of each module; empty unless the tool takes one.
    cuts : tuple of (int, int)
        For stages that are cut by hand the blocks of each, first and end; the first stage has the embedding too, the last the head.
    split_spec : mapping
        For stages that torch cuts ``"BEGINNING"``, a name of ``SplitPoint``, by the module that a stage begins with.
    """

    tool: str
    text: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    device_map: Mapping[str, str | int] = field(default_factory=dict)
    cuts: tuple[tuple[int, int], ...] = ()
    split_spec: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_shell(cls, tool: str, *lines: ShellLine) -> Command:
        """Return a command that is a line of a shell, or one for each node."""
        text = "\n".join(f"# on {line.node}\n{line.text}" if line.node else line.text for line in lines)
        return cls(tool, text, tuple(lines[0].words), lines[0].environment)


class Request(NamedTuple):
    """What a command states; `model` is the tool's name of the model, and other values are None for the tool's defaults."""

    card: ModelCard
    placement: Placement
    devices: tuple[str | int, ...]
    model: str | None
    context: int | None
    sequences: int | None
    chunk: int | None
    cache_bytes: float | None
    memory_share: float | None

    @property
    def together(self) -> int:
        """The number of devices that run each stage together."""
        return together(self.devices)

    @property
    def model_name(self) -> str:
        """The tool's name of the model, or that of the card."""
        return self.card.name if self.model is None else self.model


def _never(_card: ModelCard) -> bool:
    return False


def _all_of_it(_name: str | int, memory_bytes: float) -> float:
    return memory_bytes


def _as_it_is(_card: ModelCard, problem: ChainProblem, _devices: tuple[str | int, ...]) -> ChainProblem:
    return problem


def _everywhere(card: ModelCard, _devices: tuple[str | int, ...]) -> Sequence[int]:
    return range(card.n_items)


def _nowhere(_devices: tuple[str | int, ...]) -> int | None:
    return None


def _as_stated(placement: Placement, _devices: tuple[str | int, ...]) -> Placement:
    return placement


@dataclass(frozen=True)
class Offloads:
    """Which weights a tool leaves on other devices than that of their stage.

    Attributes
    ----------
    part : str
        ``"experts"``, with which the holder computes, or ``"weights"`` of whole items, which are copied for each run.
    holders : callable
        The devices that may hold them, by card and the tool's names of the devices.
    searched, not_searched : str
        What is searched, and what else the tool can state, for people.
    """

    part: Literal["experts", "weights"]
    holders: Callable[[ModelCard, tuple[str | int, ...]], Sequence[int]]
    searched: str
    not_searched: str


@dataclass(frozen=True)
class Execution:
    """How a tool runs stages: at what times, in what memory, and which placements of them it can state.

    Attributes
    ----------
    pipelines : bool
        Whether stages work on different requests at a time.
    overlaps : bool
        Whether stages work on different chunks of a prompt at a time, where the host has the embedding alone.
    chunks : bool
        Whether prompts are computed in chunks; otherwise each at once.
    spans_nodes : bool
        Whether it runs on several nodes.
    ranks_by_node : bool
        Whether the stages of a node follow one another, as many on each node that has any.
    activation_bytes : float or None
        Bytes of a number in activations; None for those of the workload.
    tensors_sent : int
        Tensors of the model's width that a token takes from a stage to the next.
    cache_tokens : callable or None
        Tokens for which the KV cache of an item has room in all, by the windows of the items and the workload; None for those of the
        sequences' contexts, at most the window of each.
    budget : callable
        Bytes that the tool uses of the memory of a device, by the tool's name of the device.
    restrict : callable
        What `Tool.restricted` calls with checked arguments.
    begins : callable
        Items with which a stage may begin, by card and the tool's names of the devices.
    not_searched : str
        What else the tool can state, for people.
    offloads : Offloads or None
        Which weights may be on other devices than that of their stage, where some of the devices may hold them.
    as_run : callable
        The placement as it is run, from one that says where weights are, by the tool's names of the devices.
    disks : bool
        Whether disks are devices.
    note : str
        What the plan leaves out of account, for people.
    host : callable
        The number of the device that always has the embedding, or None, by the tool's names of the devices.
    vocabulary_multiple : callable or None
        The multiple to which the vocabulary is padded, by the number of devices that run each stage together; None without tensor
        parallelism.
    """

    pipelines: bool = False
    overlaps: bool = False
    chunks: bool = True
    spans_nodes: bool = False
    ranks_by_node: bool = False
    activation_bytes: float | None = None
    tensors_sent: int = 1
    cache_tokens: Callable[[FloatArray, Workload], FloatArray] | None = None
    budget: Callable[[str | int, float], float] = _all_of_it
    restrict: Callable[[ModelCard, ChainProblem, tuple[str | int, ...]], ChainProblem] = _as_it_is
    begins: Callable[[ModelCard, tuple[str | int, ...]], Sequence[int]] = _everywhere
    not_searched: str = ""
    offloads: Offloads | None = None
    as_run: Callable[[Placement, tuple[str | int, ...]], Placement] = _as_stated
    disks: bool = False
    note: str = ""
    host: Callable[[tuple[str | int, ...]], int | None] = _nowhere
    vocabulary_multiple: Callable[[int], int] | None = None


@dataclass(frozen=True)
class Tool:
    """A tool that runs a model on several devices: functions to state a placement to it, to read one, and its default.

    Attributes
    ----------
    name, version : str
        The version is that whose source was read.
    rule : str
        How the tool assigns layers to devices, for people.
    find_refusal, write, parse, place : callables
        What `refusal`, `emit`, `read` and `default` call with checked arguments.
    closes : callable
        Whether the tool runs the head of a card on the device of the embedding. Placements then leave out the head.
    execution : Execution
        How the tool runs stages.
    """

    name: str
    version: str
    rule: str
    find_refusal: Callable[[ModelCard, Placement, tuple[str | int, ...]], str]
    write: Callable[[Request], Command]
    parse: Callable[[ModelCard, str, tuple[str | int, ...]], Placement]
    place: Callable[[ModelCard, ChainProblem, tuple[str | int, ...], FloatArray], Placement]
    closes: Callable[[ModelCard], bool] = _never
    execution: Execution = Execution()

    @checked
    def n_items(self, card: ModelCard) -> int:
        """Return the number of items that a placement covers: those of the card, without the head if it runs with the embedding."""
        return card.n_items - self.closes(card)

    @checked
    def restricted(self, card: ModelCard, problem: ChainProblem, devices: Devices) -> ChainProblem:
        """Return the problem whose placements are those that the tool can state, with stages that begin at ``execution.begins``.

        Parameters
        ----------
        card : ModelCard
        problem : ChainProblem
            All items of the card, on the devices.
        devices : sequence of str or int
            The tool's name of each device, by its number.

        Returns
        -------
        ChainProblem
            What the tool cannot state is impossible in it. If the tool closes the chain it is without the head, whose times and bytes are
            those of the embedding.

        Raises
        ------
        InvalidArgument
            Card, problem and devices do not belong together.
        """
        names = _names(devices)
        if problem.n_items != card.n_items or problem.n_devices != len(names):
            raise InvalidArgument(
                f"problem has {plural(problem.n_items, 'item')} on {plural(problem.n_devices, 'device')}; give one of the {card.n_items} "
                f"items of {card.name!r} on {plural(len(names), 'device')}"
            )
        return self.execution.restrict(card, _closed(problem) if self.closes(card) else problem, names)

    @checked
    def refusal(self, card: ModelCard, placement: Placement, devices: Devices) -> str:
        """Return why the tool cannot state a placement, and what to do; empty if it can.

        Parameters
        ----------
        card : ModelCard
        placement : Placement
            Its stages are intervals of the items of the card.
        devices : sequence of str or int
            The tool's name of each device, by its number.

        Raises
        ------
        InvalidSchedule
            The placement is none of the card's items on these devices.
        """
        names = _names(devices)
        stages = placement.stages
        if self.closes(card) and stages and stages[-1].end == card.n_items:
            return (
                f"{placement!r} has the head, item {card.n_items - 1}, on {names[stages[-1].device]!r}; {self.name} runs a head that is "
                "tied to the embedding on the device of the embedding: leave the head out of the placement"
            )
        check_stages(placement, self.n_items(card), len(names), model=card.name)
        if together(names) > 1 and self.execution.vocabulary_multiple is None:
            return f"stages are on sets of devices, {shown(list(names))}; {self.name} runs a stage on one device: give a device for each"
        if placement.offloaded and self.execution.offloads is None:
            return f"{placement!r} offloads weights; {self.name} has those of a stage on its device: place whole items"
        return self.find_refusal(card, placement, names)

    @checked
    def emit(
        self,
        card: ModelCard,
        placement: Placement,
        devices: Devices,
        *,
        model: str | None = None,
        context: int | None = None,
        sequences: int | None = None,
        chunk: int | None = None,
        cache_bytes: float | None = None,
        memory_share: float | None = None,
    ) -> Command:
        """Return what states a placement to the tool.

        Parameters
        ----------
        card, placement, devices
            As those of `refusal`.
        model : str, optional
            The tool's name of the model, or the path of its file; for Megatron the training script. Default: the name of the card;
            for Megatron ``pretrain_gpt.py``.
        context, sequences : int, optional
            Tokens of a sequence, and sequences at a time, where the tool takes them. Default: what the tool chooses.
        chunk : int, optional
            Most tokens of prompts that are computed at a time, where the tool takes them. Default: what the tool chooses.
        cache_bytes : float, optional
            Bytes per number in the KV cache, of which the tool has a type. Default: what the tool chooses.
        memory_share : float, optional
            Share of the memory of each GPU that the tool may take, where it takes one. Default: what the tool chooses.

        Raises
        ------
        UnsupportedFeature
            The tool cannot state the placement, with the message of `refusal`, or has no type of the KV cache.
        InvalidSchedule
            The placement is none of the card's items on these devices.
        """
        for what, value in (("context", context), ("sequences", sequences), ("chunk", chunk)):
            if value is not None:
                check_count(value, what)
        reason = self.refusal(card, placement, devices)
        if reason:
            raise UnsupportedFeature(reason)
        return self.write(Request(card, placement, _names(devices), model, context, sequences, chunk, cache_bytes, memory_share))

    @checked
    def read(self, card: ModelCard, command: Command, devices: Devices) -> Placement:
        """Return the placement that the tool makes of the text of a command, by the tool's own rule.

        Raises
        ------
        InvalidArgument
            The tool does not accept the text, or it states no intervals of whole items.
        """
        return self.parse(card, command.text, _names(devices))

    @checked
    def default(self, card: ModelCard, problem: ChainProblem, devices: Devices, *, free_bytes: npt.ArrayLike | None = None) -> Placement:
        """Return the placement that the tool makes by default; it may not fit.

        Parameters
        ----------
        card : ModelCard
        problem : ChainProblem
            The items of the card, without the head where the tool runs it with the embedding, on the devices.
        devices : sequence of str or int
            The tool's name of each device, by its number.
        free_bytes : array_like [m], optional
            Free memory of each device as the tool measures it. Default: ``memory_bytes`` of the problem.

        Raises
        ------
        UnsupportedFeature
            The tool has no default for this model, or the default needs the free memory.
        InvalidArgument
            Card, problem and devices do not belong together.
        """
        names = _names(devices)
        if problem.n_items != self.n_items(card):
            raise InvalidArgument(
                f"problem has {plural(problem.n_items, 'item')}; those of {card.name!r} for {self.name} are {self.n_items(card)}"
            )
        if problem.n_devices != len(names):
            raise InvalidArgument(f"devices has {plural(len(names), 'name')}; give one for each of the problem's {problem.n_devices}")
        free = problem.memory_bytes if free_bytes is None else check_array(free_bytes, "free_bytes", (len(names),))
        if not (free >= 0).all():
            raise InvalidArgument(f"free_bytes is {shown(free.tolist())}; bytes are numbers from 0")
        return self.place(card, problem, names, free)


def _names(devices: Devices) -> tuple[str | int, ...]:
    names = tuple(name if isinstance(name, str) else int(name) for name in devices)
    told = [one for name in names for one in single(name)]
    if not names or len(set(told)) < len(told):
        raise InvalidArgument(f"devices is {shown(list(names))}; give each device a name of its own")
    if len({len(single(name)) for name in names}) > 1:
        raise InvalidArgument(f"devices is {shown(list(names))}; give sets of as many devices each")
    return names


def together(devices: Sequence[str | int]) -> int:
    """Return how many devices run each stage together."""
    return len(single(devices[0]))


def _closed(problem: ChainProblem) -> ChainProblem:
    """Return the problem in which the device of the first item runs the last one too, which has its table."""
    columns = (problem.weight_bytes, problem.workspace_bytes, problem.seconds, problem.overlapped_seconds)
    weights, workspace, seconds, overlapped = (np.array(column[:-1]) for column in columns)
    weights[0] += problem.weight_bytes[-1] - problem.shared_bytes
    workspace[0] = max(workspace[0], problem.workspace_bytes[-1])
    seconds[0] += problem.seconds[-1]
    overlapped[0] += problem.overlapped_seconds[-1]
    return problem.replace(
        items=problem.items[:-1],
        seconds=seconds,
        overlapped_seconds=overlapped,
        weight_bytes=weights,
        cache_bytes=problem.cache_bytes[:-1],
        workspace_bytes=workspace,
        closing=problem.hops,
        shared_bytes=0,
    )


# What several tools use.


def impossible_on(problem: ChainProblem, devices: Sequence[int], items: slice = slice(None)) -> ChainProblem:
    """Return the problem in which items are impossible on some devices."""
    seconds = problem.seconds.copy()
    seconds[items, list(devices)] = np.inf
    return problem.replace(seconds=seconds)


def gpus_only(_card: ModelCard, problem: ChainProblem, devices: tuple[str | int, ...]) -> ChainProblem:
    """Return the problem of a tool that runs on GPUs, which have numbers."""
    return impossible_on(problem, [k for k, name in enumerate(devices) if not gpus(name)])


def block_counts(card: ModelCard, placement: Placement) -> list[int]:
    """Return the number of blocks of each stage."""
    return [min(end, card.n_blocks + 1) - max(first, 1) if end > 1 else 0 for _, first, end in placement.stages]


def described(card: ModelCard, stage: ChainStage) -> str:
    """Return the names of the items of a stage, for a message."""
    first, last = (str(card.items.name[i]) for i in (stage.first, stage.end - 1))
    return first if first == last else f"{first} to {last}"


def on_gpus(tool: str, card: ModelCard, placement: Placement, devices: Sequence[str | int]) -> str:
    """Return why a tool that runs on GPUs, by number, cannot state a placement; empty if it can."""
    for stage in placement.stages:
        name = devices[stage.device]
        if not gpus(name):
            return (
                f"{described(card, stage)} are on {name!r}; {tool} cannot leave layers on a device that is no GPU: "
                "place them on devices with the number of a GPU, or leave this device out"
            )
    nodes = gpus_of_nodes(placement, devices)
    names = [node for node, _ in nodes]
    if len(set(names)) < len(names) or len({len(numbers) for _, numbers in nodes}) > 1:
        counts = ", ".join(f"{len(numbers)} on {node!r}" for node, numbers in nodes)
        return (
            f"the stages are {counts}; {tool} has the ranks of a node one after the other, and as many on each: give an order of devices "
            "that keeps to that"
        )
    return ""


def cache_type(tool: str, types: Mapping[float, str], cache_bytes: float) -> str:
    """Return a tool's type of the KV cache by the bytes of a number."""
    if cache_bytes not in types:
        known = ", ".join(f"{name} of {held:g}" for held, name in types.items())
        raise UnsupportedFeature(f"numbers in the KV cache have {cache_bytes:g} bytes, of which {tool} has no type; it has {known}")
    return types[cache_bytes]


def numbered(devices: Sequence[str | int]) -> list[int]:
    """Return the devices that are GPUs, or sets of them, in the order of their nodes and numbers."""
    places = {k: own[0] for k, name in enumerate(devices) if (own := gpus(name))}
    if not places:
        raise UnsupportedFeature(f"devices is {shown(list(devices))}, of which none is the number of a GPU; give at least one")
    nodes = [node for node, _ in places.values()]
    return sorted(places, key=lambda k: (nodes.index(places[k][0]), places[k][1]))


def whole_numbers(text: str, what: str) -> list[int]:
    """Return whole numbers from 0, separated by commas."""
    words = text.split(",")
    if not all(map(is_count, words)):
        raise InvalidArgument(f"{what} is {shown(text)}; it must be whole numbers separated by commas, as 51,13")
    return [int(word) for word in words]


def from_counts(n_items: int, n_blocks: int, counts: Sequence[int], devices: Sequence[int]) -> Placement:
    """Return the placement with a number of blocks on each device, in order; those without are left out.

    The embedding goes with the first block, what is behind the blocks with the last.
    """
    held = [(k, count) for k, count in zip(devices, counts, strict=True) if count]
    ends = (1 + np.cumsum([count for _, count in held])).tolist()
    if sum(counts) != n_blocks:
        raise InvalidArgument(
            f"the stages have {list(counts)} blocks, {sum(counts)} in all; the model has {n_blocks}: give each block to one stage"
        )
    ends[-1] = n_items
    return Placement((k, first, end) for (k, _), first, end in zip(held, [0, *ends[:-1]], ends, strict=True))


def from_devices(devices: Sequence[int]) -> Placement:
    """Return the placement with the device of each item; successive items on one device are a stage."""
    stages, first = [], 0
    for device, run in itertools.groupby(devices):
        end = first + len(list(run))
        stages.append((device, first, end))
        first = end
    return Placement(stages)
