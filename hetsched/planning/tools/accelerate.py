"""Accelerate and Transformers: the device of each module."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from hetsched.arguments import shown
from hetsched.arrays import FloatArray
from hetsched.chain.card import PARTS, ModelCard
from hetsched.chain.placement import Placement
from hetsched.chain.problem import ChainProblem
from hetsched.errors import InvalidArgument, UnsupportedFeature
from hetsched.planning.tools.protocol import Command, Execution, Offloads, Request, Tool, cache_type, from_devices, impossible_on
from hetsched.planning.tools.python_call import keywords, literal
from hetsched.planning.tools.shell import PCI_ORDER, device_number

OFFLOADED = ("cpu", "disk")
BALANCED_SHARE = 0.9
"""Share of the free memory of the CPU, and of a single GPU, that Transformers fills."""

RULE = (
    "device_map has the device of modules by prefixes of their names; it has to cover every parameter. Blocks are not divided. Modules on "
    '"cpu" and "disk" beside a GPU run on the first GPU: their weights are copied to it at each forward. A head that is tied to the '
    "embedding is on the device of the embedding. A map of devices is taken as it is: the room that is kept below is that of the default. "
)
GREEDY = (
    "By default Accelerate fills the devices in order, GPUs by number, then the CPU, then the disk, to their free memory with weights "
    "alone; the first GPU and the CPU keep room for the largest of the remaining layers."
)
BALANCED = (
    'With device_map="auto" Transformers limits every GPU but the last to its part of the weights and 1.25 times the largest layer, the '
    "CPU and a single GPU to 0.9 of their free memory; then it fills the devices in order with weights alone, as Accelerate does: the "
    "first GPU and the CPU keep room for the largest of the remaining layers."
)


def _tied(card: ModelCard) -> bool:
    return card.tied


def _refusal(card: ModelCard, placement: Placement, devices: tuple[str | int, ...]) -> str:
    unknown = [str(name) for name, modules in zip(card.items.name, card.modules, strict=True) if not modules]
    if unknown:
        return (
            f"{unknown[0]} of {card.name!r} has no names of modules; a device map needs those of every item: read the card from a "
            "config.json or a model of Transformers"
        )
    if all(devices[stage.device] == "disk" for stage in placement.stages):
        return "all items are on 'disk'; Accelerate runs them on another device: place one item at least on a GPU or on 'cpu'"
    first = placement.stages[0]
    moved, of_first = placement.offloaded, placement.offloaded_in(first)
    if moved and (any(devices[stage.device] in OFFLOADED for stage in placement.stages) or len(of_first) == first.end - first.first):
        return "weights are offloaded; Accelerate copies them to a GPU that has some of its own: place each stage, and an item, on a GPU"
    behind = [stage for s, stage in enumerate(placement.stages) if s and not placement.returns(s)]
    if any(placement.offloaded_in(stage) for stage in behind):
        return "weights behind the first stage are offloaded; Accelerate copies all to the first GPU: offload items of the first stage"
    strange = [devices[holder] for _, holder in moved if devices[holder] not in OFFLOADED]
    if strange:
        return f"weights are offloaded to {strange[0]!r}; Accelerate copies them from 'cpu' or 'disk' alone: offload them there"
    return ""


def _as_run(placement: Placement, devices: tuple[str | int, ...]) -> Placement:
    """Return the placement in which what lies on the CPU or the disk beside a GPU is run by the first GPU, which requests may return to."""
    lies = [stage.device for stage in placement.stages for _ in range(stage.first, stage.end)]
    gpus = [k for k in lies if devices[k] not in OFFLOADED]
    if not gpus:
        return placement
    run = from_devices([gpus[0] if devices[k] in OFFLOADED else k for k in lies])
    run = Placement(run.stages, ((i, k) for i, k in enumerate(lies) if devices[k] in OFFLOADED))
    own = [stage.device for s, stage in enumerate(run.stages) if not run.returns(s)]
    if len(set(own)) < len(own):
        raise UnsupportedFeature(f"{placement!r} gives a device items before and behind those of another; give each device an interval")
    return run


def _holders(_card: ModelCard, devices: tuple[str | int, ...]) -> list[int]:
    """Return the devices from which weights are copied: the CPU and the disk, beside a GPU."""
    if all(name in OFFLOADED for name in devices):
        return []
    return [k for k, name in enumerate(devices) if name in OFFLOADED]


def _write(tool: str, request: Request) -> Command:
    card, placement = request.card, request.placement
    if request.cache_bytes is not None:
        cache_type(tool, {2.0: "that of the model in 16 bits", 4.0: "that of the model in float32"}, request.cache_bytes)
    of_item = [request.devices[stage.device] for stage in placement.stages for _ in range(stage.first, stage.end)]
    for item, holder in placement.offloaded:
        of_item[item] = request.devices[holder]
    of_item += of_item[:1] * (card.n_items - len(of_item))
    device_map = {module: device for modules, device in zip(card.modules, of_item, strict=True) for module in modules}
    text = f"device_map={json.dumps(device_map)}"
    if "disk" in device_map.values():
        text += ', offload_folder="offload"'
    return Command(tool, text, environment=PCI_ORDER, device_map=device_map)


def _read(card: ModelCard, text: str, devices: tuple[str | int, ...]) -> Placement:
    device_map = literal(keywords(text), "device_map", dict)
    if not all(isinstance(key, str) and isinstance(value, str | int) for key, value in device_map.items()):
        raise InvalidArgument(f"device_map is {shown(device_map)}; it must have the name or number of a device by prefixes of modules")
    of_item = [_device(name, modules, device_map) for name, modules in zip(card.items.name.tolist(), card.modules, strict=True)]
    placed = [device_number(name, devices) for name in of_item]
    if card.tied:
        if placed[-1] != placed[0]:
            raise InvalidArgument(
                f"device_map has the embedding on {of_item[0]!r} and the head, which is tied to it, on {of_item[-1]!r}; "
                "give both one device"
            )
        del placed[-1]
    return from_devices(placed)


def _device(item: str, modules: Sequence[str], device_map: dict[str, str | int]) -> str | int:
    """Return the device of an item: of the longest prefix of each of its modules, and of everything within."""
    found = set()
    for module in modules:
        words = module.split(".")
        covers = [key for key in (".".join(words[:k]) for k in range(len(words), -1, -1)) if key in device_map]
        if not covers:
            raise InvalidArgument(f"device_map has no device for {module!r} of {item}; give one, or one for what it is in")
        found.add(device_map[covers[0]])
        found |= {device for key, device in device_map.items() if key.startswith(f"{module}.")}
    if len(found) != 1:
        raise InvalidArgument(f"device_map divides {item} among {shown(sorted(map(str, found)))}; give its modules one device")
    return found.pop()


@dataclass(frozen=True)
class _Node:
    """Modules that are put on a device together, or one after the other: `items` are those of the card."""

    size: int
    items: tuple[int, ...]
    children: tuple[_Node, ...] = ()

    def leaves(self) -> Iterator[_Node]:
        """Yield the modules that are not divided."""
        if not self.children:
            yield self
        for child in self.children:
            yield from child.leaves()


def _joined(*children: _Node) -> _Node:
    return _Node(sum(child.size for child in children), tuple(i for child in children for i in child.items), children)


def _tree(card: ModelCard) -> list[_Node]:
    """Return the modules of a causal language model: embedding, blocks and norm in one module, then the head's table unless it is tied."""
    sizes = [math.ceil(size) for size in card.weights]
    table = math.ceil(card.weight_bytes[-1, PARTS.index("table")])
    last = card.n_items - 1
    blocks = _joined(*(_Node(sizes[i], (i,)) for i in range(1, last)))
    trunk = _joined(_Node(sizes[0], (0,)), blocks, _Node(sizes[-1] - table, ()))
    return [trunk] if card.tied else [trunk, _Node(table, (last,))]


def _largest(nodes: Sequence[_Node]) -> tuple[int, list[_Node]]:
    leaves = [leaf for node in nodes for leaf in node.leaves()]
    size = max((leaf.size for leaf in leaves), default=0)
    return size, [leaf for leaf in leaves if leaf.size == size]


def _greedy(roots: Sequence[_Node], budgets: Sequence[float], keep_room: Sequence[bool]) -> dict[int, int]:
    """Return the place among the devices of each item by the rule of `infer_auto_device_map`; the last device takes what is left."""
    place: dict[int, int] = {}
    queue, used, k = list(roots), 0.0, 0
    reserve, largest = _largest(queue)
    while queue:
        node = queue.pop(0)
        inside = {id(leaf) for leaf in node.leaves()}
        largest = [leaf for leaf in largest if id(leaf) not in inside]
        if not largest:
            reserve, largest = _largest(queue)
        if k == len(budgets) - 1 or used + node.size <= budgets[k] - (reserve if keep_room[k] else 0):
            used += node.size
            place.update(dict.fromkeys(node.items, k))
        elif node.children:
            queue = [*node.children, *queue]
            reserve, largest = _largest(queue)
        else:
            k, used = k + 1, 0.0
            queue.insert(0, node)
    return place


def _rank(name: str | int) -> tuple[int, int]:
    """Return the place of a device in the order in which Accelerate fills devices."""
    if isinstance(name, int):
        return 0, name
    return (1 + OFFLOADED.index(name) if name in OFFLOADED else 0), 0


def _balanced(card: ModelCard, names: Sequence[str | int], free: FloatArray) -> FloatArray:
    """Return the budgets of Transformers' ``device_map="auto"`` from the free memory of devices."""
    budgets = free.copy()
    budgets[[name == "cpu" for name in names]] *= BALANCED_SHARE
    gpus = [k for k, name in enumerate(names) if name not in OFFLOADED and free[k] > 0]
    if len(gpus) == 1:
        budgets[gpus] *= BALANCED_SHARE
    if gpus:
        leaves = [leaf.size for node in _tree(card) for leaf in node.leaves()]
        share = sum(leaves) // len(gpus) + int(1.25 * max(leaves))
        budgets[gpus[:-1]] = np.minimum(budgets[gpus[:-1]], share)
    return budgets


def _default(balanced: bool, card: ModelCard, problem: ChainProblem, devices: tuple[str | int, ...], free: FloatArray) -> Placement:
    if not card.decodes or not card.n_logits:
        raise UnsupportedFeature(
            f"{card.name!r} is no causal language model; the rule of Accelerate is known for those: "
            "call infer_auto_device_map of accelerate"
        )
    order = sorted(range(len(devices)), key=lambda k: _rank(devices[k]))
    names = [devices[k] for k in order]
    budgets = _balanced(card, names, free[order]) if balanced else free[order]
    budgets = np.where([name == "disk" for name in names], np.inf, budgets)
    first = next((name for name in names if name not in OFFLOADED), None)
    main = ("mps",) if "mps" in names else (first, "cpu")
    place = _greedy(_tree(card), budgets.tolist(), [name in main for name in names])
    return from_devices([order[place[i]] for i in range(problem.n_items)])


def _restrict(_card: ModelCard, problem: ChainProblem, devices: tuple[str | int, ...]) -> ChainProblem:
    """Return the problem without stages on the CPU and the disk beside a GPU: they hold weights, which are copied for each run."""
    gpus = [k for k, name in enumerate(devices) if name not in OFFLOADED]
    unused = [k for k in range(len(devices)) if k not in gpus] if gpus else [k for k, name in enumerate(devices) if name == "disk"]
    return impossible_on(problem, unused)


EXECUTION = Execution(
    chunks=False,
    not_searched="offloading to the CPU or the disk",
    restrict=_restrict,
    disks=True,
    offloads=Offloads(
        "weights",
        _holders,
        "weights of the first stage on the CPU or the disk, copied for each run",
        "weights of other stages on the CPU or the disk, which the first GPU would run, but for the default",
    ),
    as_run=_as_run,
)
ACCELERATE = Tool(
    "accelerate",
    "accelerate 1.15.0, utils/modeling.py",
    RULE + GREEDY,
    _refusal,
    partial(_write, "accelerate"),
    _read,
    partial(_default, False),
    _tied,
    execution=EXECUTION,
)
TRANSFORMERS = Tool(
    "transformers",
    "transformers 5.24.0, integrations/accelerate.py",
    RULE + BALANCED,
    _refusal,
    partial(_write, "transformers"),
    _read,
    partial(_default, True),
    _tied,
    execution=EXECUTION,
)
