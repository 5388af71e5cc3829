"""Placements of a chain: its stages and their devices."""

from __future__ import annotations

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


class Placement(Frozen):
    """Stages of a chain in order of execution.

    `Placement.of` makes one from what is known of the stages; whether it is valid says `hetsched.verify_placement`.
    """

    stages: tuple[ChainStage, ...]

    @checked
    def __init__(self, stages: Iterable[tuple[int, int, int]]) -> None:
        """Make a placement of (device, first, end)."""
        rows = check_rows(stages, "stages", "device", "first", "end")
        number = whole()
        for place, row in enumerate(rows):
            for cell, what in zip(row, ("device", "first", "end"), strict=True):
                number.check(cell, f"{what} of stages[{place}]", InvalidArgument)
        self._set(stages=tuple(ChainStage(*map(int, row)) for row in rows))

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
        return f"<Placement {stages or 'of no stage'}>"

    def __len__(self) -> int:
        return len(self.stages)


def check_stages(placement: Placement, n_items: int, n_devices: int, *, model: str = "") -> None:
    """Raise `InvalidSchedule` unless the stages cover the items one after the other, each on a device of its own."""
    ends = [0, *(stage.end for stage in placement.stages)]
    if ends[-1] != n_items or any(not start == stage.first < stage.end for start, stage in zip(ends, placement.stages, strict=False)):
        raise InvalidSchedule(
            f"{placement!r} does not cover the items 0 to {n_items - 1}{f' of {model!r}' if model else ''} one after the other; "
            "each stage begins where the last ends"
        )
    devices = [stage.device for stage in placement.stages]
    if len(set(devices)) < len(devices) or not set(devices) <= set(range(n_devices)):
        raise InvalidSchedule(f"{placement!r} has devices {shown(devices)}; each stage has a device of its own, from 0 to {n_devices - 1}")
