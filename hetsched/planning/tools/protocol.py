"""The interface of all tools: a placement as text, the text as a placement, the refusal, and the default."""

from __future__ import annotations

import ast
import itertools
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from hetsched.arguments import check_array, check_count, checked, shown
from hetsched.arrays import FloatArray
from hetsched.chain.card import ModelCard
from hetsched.chain.placement import ChainStage, Placement, check_stages
from hetsched.chain.problem import ChainProblem
from hetsched.errors import InvalidArgument, UnsupportedFeature
from hetsched.problem.graph import plural

Devices: TypeAlias = Sequence[str | int]
"""A tool's name of each device, by the device's number: ``"CUDA0"``, ``0``, ``"cpu"``."""
PCI_ORDER = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
"""CUDA numbers devices by speed by default; this is the order of nvidia-smi."""


@dataclass(frozen=True)
class Command:
    """What states a placement to a tool.

    Attributes
    ----------
    tool : str
        Name of the tool.
    text : str
        A line of a shell, or keyword arguments of a Python function; `Tool.read` reads it alone.
    arguments : tuple of str
        The words of the line behind the variables of the environment; empty for Python.
    environment : mapping
        Variables of the environment. Python sets them before it imports torch.
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
    def of_shell(cls, tool: str, environment: Mapping[str, str], arguments: Sequence[str]) -> Command:
        """Return a command that is a line of a shell."""
        words = [f"{name}={shlex.quote(value)}" for name, value in environment.items()]
        return cls(tool, " ".join([*words, shlex.join(arguments)]), tuple(arguments), environment)


class Request(NamedTuple):
    """What a command states; `model` is the tool's name of the model, `context` the tokens of a sequence, None for the tool's default."""

    card: ModelCard
    placement: Placement
    devices: tuple[str | int, ...]
    model: str | None
    context: int | None
    sequences: int | None

    @property
    def model_name(self) -> str:
        """The tool's name of the model, or that of the card."""
        return self.card.name if self.model is None else self.model


def _never(_card: ModelCard) -> bool:
    return False


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
    """

    name: str
    version: str
    rule: str
    find_refusal: Callable[[ModelCard, Placement, tuple[str | int, ...]], str]
    write: Callable[[Request], Command]
    parse: Callable[[ModelCard, str, tuple[str | int, ...]], Placement]
    place: Callable[[ModelCard, ChainProblem, tuple[str | int, ...], FloatArray], Placement]
    closes: Callable[[ModelCard], bool] = _never

    @checked
    def n_items(self, card: ModelCard) -> int:
        """Return the number of items that a placement covers: those of the card, without the head if it runs with the embedding."""
        return card.n_items - self.closes(card)

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

        Raises
        ------
        UnsupportedFeature
            The tool cannot state the placement; the message is that of `refusal`.
        InvalidSchedule
            The placement is none of the card's items on these devices.
        """
        for what, value in (("context", context), ("sequences", sequences)):
            if value is not None:
                check_count(value, what)
        reason = self.refusal(card, placement, devices)
        if reason:
            raise UnsupportedFeature(reason)
        return self.write(Request(card, placement, _names(devices), model, context, sequences))

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
    if not names or len(set(map(str, names))) < len(names):
        raise InvalidArgument(f"devices is {shown(list(names))}; give each device a name of its own")
    return names


# What several tools use.


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
        if not isinstance(name, int):
            return (
                f"{described(card, stage)} are on {name!r}; {tool} cannot leave layers on a device that is no GPU: "
                "place them on devices with the number of a GPU, or leave this device out"
            )
    return ""


def gpu_environment(placement: Placement, devices: Sequence[str | int]) -> dict[str, str]:
    """Return the variables that give the GPUs of the stages to the ranks, in order."""
    return {**PCI_ORDER, "CUDA_VISIBLE_DEVICES": ",".join(str(devices[stage.device]) for stage in placement.stages)}


def visible_gpus(environment: Mapping[str, str], devices: Sequence[str | int]) -> list[int]:
    """Return the device of each rank, by number, from the variables."""
    if "CUDA_VISIBLE_DEVICES" not in environment:
        raise InvalidArgument("CUDA_VISIBLE_DEVICES is not set; it has to list the GPUs in the order of the stages")
    return [device_number(name, devices) for name in environment["CUDA_VISIBLE_DEVICES"].split(",")]


def device_number(name: str | int, devices: Sequence[str | int]) -> int:
    """Return the number of the device with a tool's name."""
    known = [str(device) for device in devices]
    if str(name) not in known:
        raise InvalidArgument(f"{shown(name)} is no device; choose from {', '.join(known)}")
    return known.index(str(name))


def numbered(devices: Sequence[str | int]) -> list[int]:
    """Return the devices that are GPUs with a number, in the order of these numbers."""
    gpus = [k for k, name in enumerate(devices) if isinstance(name, int)]
    if not gpus:
        raise UnsupportedFeature(f"devices is {shown(list(devices))}, of which none is the number of a GPU; give at least one")
    return sorted(gpus, key=lambda k: int(devices[k]))


def shell_words(text: str) -> tuple[dict[str, str], list[str]]:
    """Return the variables before a line of a shell, and its words."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InvalidArgument(f"{shown(text)} is no line of a shell: {error}; close its quotes") from None
    variables = list(itertools.takewhile(re.compile(r"[A-Za-z_]\w*=").match, words))
    return dict(word.split("=", 1) for word in variables), words[len(variables) :]


def options(words: Sequence[str], names: Mapping[str, str]) -> dict[str, str]:
    """Return the values of the options of a line, by the names that these have in `names`; the last counts."""
    given = {}
    for i, word in enumerate(words):
        option, equals, value = word.partition("=")
        if option in names:
            if not equals and i + 1 == len(words):
                raise InvalidArgument(f"option {option} has no value; give one")
            given[names[option]] = value if equals else words[i + 1]
    return given


def is_count(text: str) -> bool:
    """Return whether a text is a whole number from 0, of digits that C, Python and the shell all know."""
    return text.isascii() and text.isdigit() and len(text) < 10


def whole_numbers(text: str, what: str) -> list[int]:
    """Return whole numbers from 0, separated by commas."""
    words = text.split(",")
    if not all(map(is_count, words)):
        raise InvalidArgument(f"{what} is {shown(text)}; it must be whole numbers separated by commas, as 51,13")
    return [int(word) for word in words]


def keywords(text: str) -> dict[str, ast.expr]:
    """Return the keyword arguments of a call in Python, by name."""
    try:
        call = ast.parse(f"f({text})", mode="eval").body
    except (SyntaxError, ValueError, RecursionError):
        call = None
    if not isinstance(call, ast.Call) or call.args or any(word.arg is None for word in call.keywords):
        raise InvalidArgument(f"{shown(text)} are no keyword arguments of Python; give name=value, separated by commas")
    return {str(word.arg): word.value for word in call.keywords}


def literal(values: Mapping[str, ast.expr], name: str, kind: type) -> Any:
    """Return the value of a keyword argument, which has to be of a kind."""
    if name not in values:
        raise InvalidArgument(f"there is no {name}=; give it")
    try:
        value = ast.literal_eval(values[name])
    except (ValueError, TypeError, SyntaxError):
        value = None
    if not isinstance(value, kind):
        raise InvalidArgument(f"{name} is {shown(ast.unparse(values[name]))}; it must be a {kind.__name__} of plain values")
    return value


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
