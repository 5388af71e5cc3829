"""Placements of a chain: its stages and their devices."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from hetsched.arguments import check_rows, checked, shown, whole
from hetsched.arrays import Frozen
from hetsched.chain.problem import ChainProblem
from hetsched.errors import InvalidArgument, InvalidSchedule


class ChainStage(NamedTuple):
    """Items `first` to before `end` of a chain on a device, by number."""

    device: int
    first: int
    end: int


class Offload(NamedTuple):
    """An item, by number, whose weights that may be offloaded are on a device other than that of its stage."""

    item: int
    device: int


class Placement(Frozen):
    """Stages of a chain in order of execution, and the items of them that are offloaded.

    `Placement.of` makes one from what is known of the stages; whether it is valid says `hetsched.verify_placement`.
    """

    stages: tuple[ChainStage, ...]
    offloaded: tuple[Offload, ...]

    @checked
    def __init__(self, stages: Iterable[tuple[int, int, int]], offloaded: Iterable[tuple[int, int]] = ()) -> None:
        """Make a placement of (device, first, end), and (item, device) of those that are offloaded."""
        rows, moved = _rows(stages, "stages", ChainStage._fields), _rows(offloaded, "offloaded", Offload._fields)
        self._set(stages=tuple(ChainStage(*row) for row in rows), offloaded=tuple(sorted(Offload(*row) for row in moved)))

    @classmethod
    @checked
    def of(cls, problem: ChainProblem, devices: Sequence[str], counts: Sequence[int]) -> Placement:
        """Make a placement from the device of each stage and its number of items; stages of no item are left out.

        Raises
        ------
        InvalidArgument
            A device is unknown, a count is negative, or the counts do not add up to the items.
        """
        if isinstance(devices, str):
            raise InvalidArgument(f"devices is {shown(devices)}; it must be a sequence of names, as [{shown(devices)}]")
        unknown = [name for name in devices if name not in problem.devices]
        if unknown:
            raise InvalidArgument(f"devices has {shown(unknown[0])}; choose from {', '.join(map(repr, problem.devices))}")
        ends = np.cumsum([0, *counts]).tolist()
        if len(counts) != len(devices) or min(counts, default=0) < 0 or ends[-1] != problem.n_items:
            raise InvalidArgument(
                f"counts is {shown(list(counts))}; it must be a number of items from 0 for each of {len(devices)} devices, "
                f"{problem.n_items} in all"
            )
        index = [problem.devices.index(name) for name in devices]
        return cls((k, first, end) for k, first, end in zip(index, ends[:-1], ends[1:], strict=True) if end > first)

    def __repr__(self) -> str:
        stages = ", ".join(f"{first}-{end - 1} on {device}" for device, first, end in self.stages)
        moved = "".join(f"; weights of {first}-{end - 1} on {device}" for device, first, end in self.offloaded_runs())
        return f"<Placement {stages or 'of no stage'}{moved}>"

    def __len__(self) -> int:
        return len(self.stages)

    @checked
    def offloaded_in(self, stage: ChainStage) -> tuple[Offload, ...]:
        """Return the offloaded items of a stage."""
        return tuple(offload for offload in self.offloaded if stage.first <= offload.item < stage.end)

    @checked
    def returns(self, s: int) -> bool:
        """Return whether a stage, by number, goes back to the device of the first one, with all of its items offloaded."""
        first, stage = self.stages[0], self.stages[s]
        return s > 0 and stage.device == first.device and len(self.offloaded_in(stage)) == stage.end - stage.first

    @checked
    def offloaded_runs(self, stage: ChainStage | None = None) -> list[tuple[int, int, int]]:
        """Return the offloaded items, all or those of a stage, as runs of holder, first item and end."""
        runs: list[tuple[int, int, int]] = []
        for item, device in self.offloaded if stage is None else self.offloaded_in(stage):
            if runs and runs[-1][::2] == (device, item):
                runs[-1] = device, runs[-1][1], item + 1
            else:
                runs.append((device, item, item + 1))
        return runs


def _rows(rows: Iterable[tuple[int, ...]], what: str, columns: Sequence[str]) -> list[list[int]]:
    """Return rows of whole numbers."""
    number = whole()
    found = check_rows(rows, what, *columns)
    for place, row in enumerate(found):
        for cell, column in zip(row, columns, strict=True):
            number.check(cell, f"{column} of {what}[{place}]", InvalidArgument)
    return [list(map(int, row)) for row in found]


def check_stages(placement: Placement, n_items: int, n_devices: int, *, model: str = "") -> None:
    """Raise `InvalidSchedule` unless the stages cover the items one after the other, each on a device of its own unless it returns."""
    ends = [0, *(stage.end for stage in placement.stages)]
    if ends[-1] != n_items or any(not start == stage.first < stage.end for start, stage in zip(ends, placement.stages, strict=False)):
        raise InvalidSchedule(
            f"{placement!r} does not cover the items 0 to {n_items - 1}{f' of {model!r}' if model else ''} one after the other; "
            "each stage begins where the last ends"
        )
    devices = [stage.device for s, stage in enumerate(placement.stages) if not placement.returns(s)]
    if len(set(devices)) < len(devices) or not set(devices) <= set(range(n_devices)):
        raise InvalidSchedule(f"{placement!r} has devices {shown(devices)}; each stage has a device of its own, from 0 to {n_devices - 1}")


def keeps_to_nodes(problem: ChainProblem, placement: Placement) -> bool:
    """Return whether the stages on the devices of a node follow one another, and are as many on each node that has any."""
    if problem.nodes is None:
        return True
    runs = [(node, len(list(run))) for node, run in itertools.groupby(int(problem.nodes[stage.device]) for stage in placement.stages)]
    return len({node for node, _ in runs}) == len(runs) and len({count for _, count in runs}) <= 1


def check_offloaded(problem: ChainProblem, placement: Placement) -> None:
    """Raise `InvalidSchedule` unless offloaded items may be, are on another device than their stage, and each stage keeps some weights."""
    if not placement.offloaded:
        return
    moved = problem.offloading
    items = [item for item, _ in placement.offloaded]
    for s, stage in enumerate(placement.stages):
        if placement.returns(s) and (moved is None or not moved.only_first):
            raise InvalidSchedule(f"{placement!r} has two stages on device {stage.device}; each stage has a device of its own")
        for item, device in placement.offloaded_in(stage):
            if device == stage.device or not 0 <= device < problem.n_devices:
                raise InvalidSchedule(
                    f"{placement!r} has weights of item {item} on device {device}; they are on another than that of its stage, "
                    f"{stage.device}, from 0 to {problem.n_devices - 1}"
                )
            if moved is not None and moved.only_first and stage.first > 0 and not placement.returns(s):
                raise InvalidSchedule(f"{placement!r} offloads item {item} of a later stage; offload items of the first stage alone")
    unknown = [item for item in items if moved is None or not 0 <= item < problem.n_items or not moved.weight_bytes[item]]
    if unknown or len(set(items)) < len(items):
        raise InvalidSchedule(f"{placement!r} offloads items {shown(items)}; offload each once at most, and of those that may be")
    for s, stage in enumerate(placement.stages):
        own = [] if placement.returns(s) else [item for item, _ in placement.offloaded_in(stage)]
        assert moved is not None
        if own and moved.weight_bytes[own].sum() >= problem.weight_bytes[stage.first : stage.end].sum():
            raise InvalidSchedule(f"{placement!r} offloads all weights of a stage; it has to keep some of them")
