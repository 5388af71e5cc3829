"""The arguments of a call on the devices that read them, and its result from the values that devices have made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from hetsched.errors import InvalidProblem, OutOfMemory, UnsupportedFeature
from hetsched.runtime.code import Boxes, Compiled, Registers
from hetsched.runtime.plan import Plan, runs_of
from hetsched.runtime.program import Program
from hetsched.runtime.steps import gathering
from hetsched.runtime.streams import Queues


class Boundary:
    """What goes into the registers of the devices before a run of a plan, and what is taken from them after it."""

    def __init__(self, program: Program, compiled: Compiled, plan: Plan, queues: Sequence[Queues | None] = ()) -> None:
        self.program, self.compiled, self.plan = program, compiled, plan
        self.queues = tuple(queues) or (None,) * len(plan.devices)
        self.kept = self._gatherings()
        """Of each value that the result reads, the function that takes it from the registers of all devices."""
        self._entered: list[list[int]] = [[] for _ in range(program.graph.n_tasks)]
        for register in compiled.entered:
            self._entered[compiled.values[register].task].append(register)

    def placed(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Boxes:
        """Return the registers of each device before a run.

        Raises
        ------
        InvalidProblem
            The arguments are not those of the capture with a batch of the decision's inputs.
        UnsupportedFeature
            Weights that were folded have changed.
        OutOfMemory
            A device has no memory left for its arguments.
        """
        given = self.program.inputs(args, kwargs)
        if self.compiled.outdated:
            raise UnsupportedFeature(
                "weights of the module have changed since the executor was made, which multiplied batch norms into them or copied them "
                "to a GPU; make a new one, or give fold=False and no GPU"
            )
        for length in self.compiled.lengths(given):
            if length != self.plan.inputs:
                raise InvalidProblem(
                    f"the arguments are a batch of {length}, and the decision is for {self.plan.inputs} inputs; "
                    "solve a problem of as many inputs as the batch has"
                )
        count, groups = len(self.compiled.values), self.plan.groups
        boxes: Boxes = [[] for _ in self.plan.devices]
        entries = []
        for items in groups:
            entries.append(self.compiled.start(given if items is groups[-1] else self.compiled.part(given, items)))
            for k, own in enumerate(boxes):
                own.append([None] * count + [self._on(k, value) for value in entries[-1][count:]])
        for batch, device in enumerate(self.plan.device.tolist()):
            group = self.plan.group[batch]
            for register in self._entered[int(self.plan.task[batch])]:
                boxes[device][group][register] = self._on(device, entries[group][register])
        return boxes

    def _on(self, k: int, value: Any) -> Any:
        """Return a value on a device."""
        queues = self.queues[k]
        if queues is None or not isinstance(value, torch.Tensor):
            return value
        try:
            return queues.put(value)
        except torch.OutOfMemoryError as error:
            queues.accelerator.release()
            made = OutOfMemory(
                f"there is no memory left on device {self.plan.devices[k]!r} for the arguments; the plan needs "
                f"{self.plan.peak_bytes[k]:.3g} bytes there, weights included; run fewer inputs at a time"
            )
            made.device = self.plan.devices[k]  # type: ignore[attr-defined]
            raise made from error.with_traceback(None)

    def result(self, boxes: Boxes) -> Any:
        """Return the result of the module."""
        here = boxes if not any(self.queues) else self._on_host(boxes)
        with torch.no_grad():
            return self.compiled.result(self._results_of(here))

    def commit(self, boxes: Boxes) -> None:
        """Change the state that no update changes, see `Program.commit`."""
        self.program.commit(self.compiled.outputs(self._results_of(boxes)))

    def _results_of(self, boxes: Boxes) -> Registers:
        """Return registers with the values that the result reads."""
        registers = list(boxes[0][-1])
        for register, take in self.kept.items():
            registers[register] = take(boxes)
        return registers

    def _on_host(self, boxes: Boxes) -> Boxes:
        """Return the registers with what the result reads in memory of the host, none of it in the buffers of a run."""
        count = len(self.compiled.values)
        here: Boxes = [[[None] * len(box) for box in own] for own in boxes]
        homes = [(0, len(here[0]) - 1, register) for register in range(count, len(here[0][-1]))]
        for register in self.kept:
            homes += [(int(self.plan.device[batch]), self.plan.group[batch], register) for batch in self.plan.made(register)]
        for k, group, register in homes:
            value = boxes[k][group][register]
            here[k][group][register] = value if not isinstance(value, torch.Tensor) else _off(self.queues, k, value)
        return here

    def _gatherings(self) -> dict[int, Callable[[Boxes], Any]]:
        plan, made = self.plan, dict[int, Callable[[Boxes], Any]]()
        for register, value in enumerate(plan.values):
            if value.kept:
                runs = runs_of(plan.groups[-1], plan.made(register))
                places = [(int(plan.device[batch]), plan.group[batch], first, count) for batch, first, count in runs]
                device, group, *_ = places[0]
                whole = len(places) == 1
                made[register] = (
                    partial(_taken, device, group, register) if whole else gathering(self.compiled.dimension(register), register, places)
                )
        return made


def _off(queues: Sequence[Queues | None], k: int, value: torch.Tensor) -> torch.Tensor:
    """Return a tensor of device k in memory of the host that is not pinned."""
    own = queues[k]
    if own is not None:
        return own.get(value)
    pinned = any(other.accelerator.is_pinned(value) for other in queues if other is not None)
    return value.clone() if pinned else value


def _taken(device: int, group: int, register: int, boxes: Sequence[Sequence[Sequence[Any]]]) -> Any:
    return boxes[device][group][register]
