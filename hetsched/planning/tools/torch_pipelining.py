"""torch.distributed.pipelining: stages that are cut by hand, or by torch."""

from __future__ import annotations

import ast
import itertools
import json
from collections.abc import Mapping, Sequence

from hetsched.arguments import shown
from hetsched.arrays import FloatArray
from hetsched.chain.card import ModelCard
from hetsched.chain.placement import Placement
from hetsched.chain.problem import ChainProblem
from hetsched.errors import InvalidArgument
from hetsched.frontends.configs import FAMILIES
from hetsched.planning.tools.protocol import Command, Execution, Request, Tool, described, from_counts
from hetsched.planning.tools.python_call import keywords, literal
from hetsched.planning.tools.shell import PCI_ORDER, device_number
from hetsched.problem.graph import plural

BY_HAND = (
    "cuts has the blocks of each stage, first and end: the modules of a stage are put into one module, with the embedding in the first "
    "stage and the head in the last, and given to PipelineStage(module, rank, number of stages, device). Rank k runs stage k on place k "
    "of devices. torch has no default; the even cuts stand for it. A head that is tied to the embedding is held twice."
)
BY_TORCH = (
    "pipeline(module, mb_args, split_spec=...) traces the module and begins a stage at each module that split_spec names with "
    "SplitPoint.BEGINNING, or behind it with SplitPoint.END; rank k builds stage k on place k of devices. Models of Transformers cannot be "
    "traced (torch 2.13): cut them by hand. torch has no default; the even cuts stand for it."
)


def _first_blocks(card: ModelCard, placement: Placement) -> list[tuple[int, int]]:
    """Return the blocks of each stage, first and end."""
    return [(max(first - 1, 0), min(max(end - 1, 0), card.n_blocks)) for _, first, end in placement.stages]


def _any(_card: ModelCard, _placement: Placement, _devices: tuple[str | int, ...]) -> str:
    return ""


def _devices_text(request: Request) -> str:
    return f"devices={json.dumps([request.devices[stage.device] for stage in request.placement.stages])}"


def _write_by_hand(request: Request) -> Command:
    cuts = _first_blocks(request.card, request.placement)
    return Command("torch", f"cuts={cuts}, {_devices_text(request)}", environment=PCI_ORDER, cuts=tuple(cuts))


def _read_by_hand(card: ModelCard, text: str, devices: tuple[str | int, ...]) -> Placement:
    values = keywords(text)
    cuts, ranks = literal(values, "cuts", list), _ranks(values, devices)
    if not cuts or len(cuts) != len(ranks):
        raise InvalidArgument(f"cuts has {plural(len(cuts), 'stage')} and devices {len(ranks)}; give a device for each stage")
    plain = all(isinstance(cut, tuple) and len(cut) == 2 and all(type(place) is int for place in cut) for cut in cuts)
    edges = [0, *(end + 1 for _, end in cuts[:-1]), card.n_items] if plain else []
    if (
        not plain
        or [first for first, _ in cuts] != [0, *(end for _, end in cuts[:-1])]
        or cuts[-1][1] != card.n_blocks
        or any(a >= b for a, b in itertools.pairwise(edges))
    ):
        raise InvalidArgument(
            f"cuts is {shown(cuts)}; they must be (first, end) of each stage, one after the other, from 0 to {card.n_blocks}"
        )
    return Placement((k, first, end) for k, first, end in zip(ranks, edges[:-1], edges[1:], strict=True))


def _ranks(values: Mapping[str, ast.expr], devices: Sequence[str | int]) -> list[int]:
    return [device_number(name, devices) for name in literal(values, "devices", list)]


def _not_traced(card: ModelCard, placement: Placement, _devices: tuple[str | int, ...]) -> str:
    if card.family in FAMILIES:
        return (
            f"{card.name!r} is a {card.family} of Transformers; torch cannot trace these models: "
            "cut the stages by hand, with the tool 'torch'"
        )
    for stage in placement.stages[1:]:
        if not card.modules[stage.first]:
            return (
                f"{described(card, stage)} begin with an item without names of modules; torch cuts at modules: give the card's modules, "
                "or cut the stages by hand, with the tool 'torch'"
            )
    return ""


def _write_by_torch(request: Request) -> Command:
    spec = {request.card.modules[stage.first][0]: "BEGINNING" for stage in request.placement.stages[1:]}
    entries = ", ".join(f"{json.dumps(module)}: SplitPoint.{point}" for module, point in spec.items())
    return Command("torch-pipeline", f"split_spec={{{entries}}}, {_devices_text(request)}", environment=PCI_ORDER, split_spec=spec)


def _read_by_torch(card: ModelCard, text: str, devices: tuple[str | int, ...]) -> Placement:
    values = keywords(text)
    ranks = _ranks(values, devices)
    firsts = sorted(_first_item(card, module, point) for module, point in _split_points(values))
    if len(set(firsts)) < len(firsts) or len(firsts) + 1 != len(ranks):
        raise InvalidArgument(f"split_spec cuts before the items {firsts}, and devices has {len(ranks)}; give a device for each stage")
    return Placement((k, first, end) for k, (first, end) in zip(ranks, itertools.pairwise([0, *firsts, card.n_items]), strict=True))


def _split_points(values: Mapping[str, ast.expr]) -> list[tuple[str, str]]:
    spec = values.get("split_spec")
    if not isinstance(spec, ast.Dict):
        raise InvalidArgument("there is no split_spec={..}; give the module that each stage but the first begins with")
    found = []
    for key, value in zip(spec.keys, spec.values, strict=True):
        written = ast.unparse(value).removeprefix("SplitPoint.")
        if not isinstance(key, ast.Constant) or not isinstance(key.value, str) or written not in ("BEGINNING", "END"):
            raise InvalidArgument(
                f"split_spec has {shown(ast.unparse(value))}; it must have SplitPoint.BEGINNING or SplitPoint.END by the name of a module"
            )
        found.append((key.value, written))
    return found


def _first_item(card: ModelCard, module: str, point: str) -> int:
    """Return the item that a stage begins with."""
    place = 0 if point == "BEGINNING" else -1
    item = next((i for i, own in enumerate(card.modules) if own and own[place] == module), None)
    first = None if item is None else item + (point == "END")
    if first is None or not 0 < first < card.n_items:
        raise InvalidArgument(
            f"split_spec has {shown(module)}, at whose {point.lower()} no item of {card.name!r} starts; cut between items"
        )
    return first


def _even(card: ModelCard, problem: ChainProblem, devices: tuple[str | int, ...], _free: FloatArray) -> Placement:
    m = len(devices)
    ends = [card.n_blocks * (k + 1) // m for k in range(m)]
    return from_counts(problem.n_items, card.n_blocks, [b - a for a, b in itertools.pairwise([0, *ends])], range(m))


EXECUTION = Execution(pipelines=True, chunks=False, spans_nodes=True)
TORCH = Tool(
    "torch", "torch 2.13, distributed/pipelining/stage.py", BY_HAND, _any, _write_by_hand, _read_by_hand, _even, execution=EXECUTION
)
TORCH_PIPELINE = Tool(
    "torch-pipeline",
    "torch 2.13, distributed/pipelining/_IR.py",
    BY_TORCH,
    _not_traced,
    _write_by_torch,
    _read_by_torch,
    _even,
    execution=EXECUTION,
)
