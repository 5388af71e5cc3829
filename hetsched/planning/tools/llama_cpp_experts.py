"""llama.cpp: experts on the CPU, as options, as tensors, and as --fit leaves them there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from hetsched.arguments import shown
from hetsched.chain.card import PARTS, ModelCard
from hetsched.chain.evaluation import stage_bytes
from hetsched.chain.placement import ChainStage, Offload, Placement
from hetsched.chain.problem import ChainProblem
from hetsched.errors import InvalidArgument
from hetsched.planning.tools.shell import is_count

PATTERNS = ("-ot", "--override-tensor")
ALL, FIRST = ("-cmoe", "--cpu-moe"), ("-ncmoe", "--n-cpu-moe")
EXPERTS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
"""What llama.cpp takes for the names of experts."""
_PART = PARTS.index("experts")


def is_movable(card: ModelCard, item: int) -> bool:
    """Return whether an item has experts."""
    return 0 <= item < card.n_items and bool(card.weight_bytes[item, _PART] > 0)


def _tensors(card: ModelCard) -> Iterator[tuple[str, int, bool]]:
    """Yield the name of each tensor of the blocks, its item, and whether it is one of the experts; without a file the usual ones."""
    if card.tensors is not None:
        index = {name: i for i, name in enumerate(card.items.name.tolist())}
        for row in card.tensors:
            i = index.get(row["item"], 0)
            if 0 < i <= card.n_blocks:
                yield row["name"], i, row["part"] == "experts"
        return
    for i in range(1, card.n_blocks + 1):
        for word in ("attn_q", "attn_output", "ffn_norm"):
            yield f"blk.{i - 1}.{word}.weight", i, False
        for word in ("gate", "up", "down") if is_movable(card, i) else ():
            yield f"blk.{i - 1}.ffn_{word}_exps.weight", i, True


def are_named(card: ModelCard) -> bool:
    """Return whether there are experts, whose tensors all have the names that llama.cpp looks for."""
    names = [name for name, _, expert in _tensors(card) if expert]
    return bool(names) and all(re.search(EXPERTS, name) for name in names)


def option(card: ModelCard, placement: Placement) -> list[str]:
    """Return the option that leaves the experts of offloaded blocks on the CPU: a number of first blocks if that says it, else a pattern.

    Blocks on the CPU have their experts there anyway.
    """
    if not placement.offloaded:
        return []
    blocks = [item - 1 for item, _ in placement.offloaded]
    holder = placement.offloaded[0].device
    kept = {i - 1 for stage in placement.stages if stage.device != holder for i in range(stage.first, stage.end) if is_movable(card, i)}
    if max(blocks) < min(kept - set(blocks), default=card.n_blocks):
        return ["--n-cpu-moe", str(max(blocks) + 1)]
    return ["-ot", rf"blk\.({'|'.join(map(str, blocks))}){EXPERTS}=CPU"]


def read(card: ModelCard, words: Sequence[str], placement: Placement, cpu: int | None) -> list[Offload]:
    """Return the blocks on GPUs whose experts options leave on the CPU, by the tensors that the patterns match."""
    patterns = list(_patterns(card, words))
    if not patterns:
        return []
    on_cpu = {i for stage in placement.stages if stage.device == cpu for i in range(stage.first, stage.end)}
    moved: dict[int, set[bool]] = {}
    for name, i, expert in _tensors(card):
        word, buffer = next(((word, buffer) for word, pattern, buffer in patterns if pattern.search(name)), ("", ""))
        if word and (buffer.upper() != "CPU" or (not expert and i not in on_cpu)):
            raise InvalidArgument(f"{word} moves {name} to {buffer}; what is read is experts on the CPU: give a pattern of those, and CPU")
        if expert and i not in on_cpu:
            moved.setdefault(i, set()).add(bool(word))
    parted = [i - 1 for i, found in moved.items() if len(found) > 1]
    if parted:
        raise InvalidArgument(
            f"some tensors of the experts of block {parted[0]} are moved; what is read is all of a block: give a pattern of all"
        )
    items = [i for i, found in moved.items() if True in found]
    if items and cpu is None:
        raise InvalidArgument("experts are left on the CPU, which is none of the devices; name it 'CPU'")
    return [Offload(i, cpu) for i in items if cpu is not None]


def _patterns(card: ModelCard, words: Sequence[str]) -> Iterator[tuple[str, re.Pattern[str], str]]:
    """Yield the option, the pattern and the buffer of each override, in order."""
    for k, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name not in (*PATTERNS, *ALL, *FIRST):
            continue
        if not card.items.experts.any():
            raise InvalidArgument(f"{word} moves parts of layers; what is read is the devices of whole layers: leave the option out")
        if name in ALL:
            yield name, re.compile(EXPERTS), "CPU"
            continue
        value = value if equals else "".join(words[k + 1 : k + 2])
        if name in FIRST:
            if not is_count(value):
                raise InvalidArgument(f"{name} is {shown(value)}; it must be a number of blocks")
            for block in range(int(value)):
                yield name, re.compile(rf"blk\.{block}{EXPERTS}"), "CPU"
            continue
        for each in value.split(","):
            pattern, _, buffer = each.rpartition("=")
            try:
                yield name, re.compile(pattern), buffer
            except re.error:
                raise InvalidArgument(f"{name} has {shown(each)}, whose pattern is no regular expression; give PATTERN=CPU") from None
            if not pattern:
                raise InvalidArgument(f"{name} has {shown(each)}; give PATTERN=CPU")


def fitted(problem: ChainProblem, cpu: int, gpus: Sequence[int]) -> Placement:
    """Return the placement of --fit for a model with experts, without the one layer of a device of which it fits a part.

    The last device has as many of the last layers, without experts, as fit, and so on; the CPU has the rest. If there is none, the first
    device gets as many of the first layers with their experts as fit beside what it has without them, then the next.
    """
    assert problem.offloading is not None
    n, moved = problem.n_items, problem.offloading.weight_bytes

    def fits(k: int, start: int, full: int, end: int) -> bool:
        """Return whether a device has room for a stage whose items from `full` on are without experts."""
        offloaded = [Offload(i, cpu) for i in range(full, end) if moved[i]]
        return start == end or bool(stage_bytes(problem, ChainStage(k, start, end), offloaded) <= problem.memory_bytes[k])

    edges = [n]  # of the stages without experts, from the last one
    for k in reversed(gpus):
        start = edges[-1]
        while start > 1 and fits(k, start - 1, start - 1, edges[-1]):
            start -= 1
        edges.append(start)
    edges.reverse()
    full, bounds = edges[0], edges
    if full == 1:
        bounds = [1]
        for k, end in zip(gpus, edges[1:], strict=True):
            while full < n - 1 and fits(k, bounds[-1], full + 1, max(end, full + 1)):
                full += 1
            bounds.append(max(end, full))
            if end > full:
                break
        bounds += edges[len(bounds) :]
    rows = [(k, a, b) for k, a, b in zip(gpus, bounds[:-1], bounds[1:], strict=True) if a < b]
    return Placement([(cpu, 0, edges[0]), *rows], [(i, cpu) for i in range(full, n) if moved[i]])
