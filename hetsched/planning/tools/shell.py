"""Lines of a shell, for one node or several, and the devices that they name."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from hetsched.arguments import shown
from hetsched.chain.placement import Placement
from hetsched.errors import InvalidArgument
from hetsched.problem.graph import plural

PCI_ORDER = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
"""CUDA numbers devices by speed by default; this is the order of nvidia-smi."""


class ShellLine(NamedTuple):
    """A line of a shell on a node, whose name is empty if it is the only one: variables of the environment, and words."""

    environment: Mapping[str, str]
    words: Sequence[str]
    node: str = ""

    @property
    def text(self) -> str:
        """The line."""
        return " ".join([*(f"{name}={shlex.quote(value)}" for name, value in self.environment.items()), shlex.join(self.words)])


def gpu(name: str | int) -> tuple[str, int] | None:
    """Return node and number of a GPU from a tool's name of it, the node empty if there is one; None for another device."""
    if isinstance(name, int):
        return "", name
    node, _, number = name.rpartition(":")
    return (node, int(number)) if node and is_count(number) else None


def single(name: str | int) -> list[str]:
    """Return the names of the devices of a set, or that of one."""
    return str(name).split(",")


def gpus(name: str | int) -> list[tuple[str, int]]:
    """Return node and number of each GPU of a set, or of one; none if a device is no GPU."""
    places = [gpu(int(one) if is_count(one) else one) for one in single(name)]
    return [place for place in places if place is not None] if None not in places else []


def device_number(name: str | int, devices: Sequence[str | int]) -> int:
    """Return the number of the device with a tool's name."""
    known = [str(device) for device in devices]
    if str(name) not in known:
        raise InvalidArgument(f"{shown(name)} is no device; choose from {', '.join(known)}")
    return known.index(str(name))


def gpus_of_nodes(placement: Placement, devices: Sequence[str | int]) -> list[tuple[str, list[int]]]:
    """Return the node and the numbers of the GPUs of successive stages on one node, all of which are on GPUs."""
    places = [place for stage in placement.stages for place in gpus(devices[stage.device])]
    return [(node, [number for _, number in run]) for node, run in itertools.groupby(places, key=lambda place: place[0])]


def shell_lines(
    placement: Placement, devices: Sequence[str | int], environment: Mapping[str, str], words: Callable[[str, int, int, int], Sequence[str]]
) -> list[ShellLine]:
    """Return a line for each node, with the variables that give its GPUs to the ranks in order.

    `words` are of the address of the first node, the number of nodes, that of this one, and its number of ranks.
    """
    nodes = gpus_of_nodes(placement, devices)
    lines = []
    for place, (node, numbers) in enumerate(nodes):
        visible = {**PCI_ORDER, "CUDA_VISIBLE_DEVICES": ",".join(map(str, numbers)), **environment}
        lines.append(ShellLine(visible, words(nodes[0][0], len(nodes), place, len(numbers)), node))
    return lines


def read_lines(text: str) -> list[ShellLine]:
    """Return the lines of a command, of which those for several nodes are behind ``# on NODE``."""
    parts = re.split(r"^# on (.+)$", text, flags=re.MULTILINE)
    named = list(zip(parts[1::2], parts[2::2], strict=True)) or [("", text)]
    return [ShellLine(*shell_words(line.strip()), node) for node, line in named]


def stages_of_gpus(lines: Sequence[ShellLine], devices: Sequence[str | int], together: str, count: int) -> list[int]:
    """Return the device, or the set of devices, of each of `count` stages, by number, from the variables of the lines.

    `together` is the number of successive GPUs that run a stage, as the lines state it.
    """
    names = [one for name in devices for one in single(name)]
    found: list[str] = []
    for line in lines:
        if "CUDA_VISIBLE_DEVICES" not in line.environment:
            raise InvalidArgument("CUDA_VISIBLE_DEVICES is not set; it has to list the GPUs in the order of the stages")
        numbers = line.environment["CUDA_VISIBLE_DEVICES"].split(",")
        found += [names[device_number(f"{line.node}:{number}" if line.node else number, names)] for number in numbers]
    sets = list(map(single, devices))
    if together != str(len(sets[0])):
        raise InvalidArgument(f"{shown(together)} GPUs run a stage together; they must be {len(sets[0])}, as in {shown(list(devices))}")
    size = len(sets[0])
    if len(found) < count * size:
        each = "one" if size == 1 else str(size)
        raise InvalidArgument(f"CUDA_VISIBLE_DEVICES has {plural(len(found), 'GPU')}; give {each} for each of {count} ranks")
    ranks = [found[k : k + size] for k in range(0, count * size, size)]
    strange = [own for own in ranks if own not in sets]
    if strange:
        raise InvalidArgument(f"the GPUs {', '.join(strange[0])} run a stage together; those that do are {shown(sets)}")
    return [sets.index(own) for own in ranks]


def check_nodes(lines: Sequence[ShellLine]) -> None:
    """Raise `InvalidArgument` unless the lines of several nodes have their number and that of the nodes."""
    if len(lines) == 1:
        return
    for place, line in enumerate(lines):
        given = options(line.words, {"--nnodes": "nodes", "--node-rank": "rank"})
        if (given.get("nodes"), given.get("rank")) != (str(len(lines)), str(place)):
            raise InvalidArgument(
                f"the line for {line.node!r} has --nnodes {given.get('nodes')} and --node-rank {given.get('rank')}; it is number {place} "
                f"of {plural(len(lines), 'node')}"
            )


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
