"""Convolutions of the same tensor merged into one: kernels padded with zeros to one size and stacked, outputs split."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn.functional import pad

from hetsched.errors import UnsupportedFeature
from hetsched.frontends.exported import ConvolutionCall
from hetsched.runtime.code import Registers
from hetsched.runtime.program import Program


class Merged:
    """Tasks of a program, each a convolution with the operators folded into it, as one convolution.

    A kernel of height k and padding p has the same output as part of a kernel of height K and padding P if it begins
    at row P - p there and ends within it; likewise for the other dimensions.

    Parameters
    ----------
    program : Program
    tasks : sequence of int

    Raises
    ------
    UnsupportedFeature
        They cannot be merged.
    """

    def __init__(self, program: Program, tasks: Sequence[int]) -> None:
        self.program, self.tasks = program, tuple(tasks)
        calls = alike(program, self.tasks)
        self.stride = calls[0].stride
        self.padding = tuple(max(lengths) for lengths in zip(*(call.padding for call in calls), strict=True))
        begins = [[most - own for most, own in zip(self.padding, call.padding, strict=True)] for call in calls]
        ends = [[begin + own for begin, own in zip(first, call.kernel, strict=True)] for first, call in zip(begins, calls, strict=True)]
        size = [max(lengths) for lengths in zip(*ends, strict=True)]
        weights = [program.constants[call.weight] for call in calls]
        biases = [
            weight.new_zeros(len(weight)) if call.bias is None else program.constants[call.bias]
            for call, weight in zip(calls, weights, strict=True)
        ]
        stacked = []
        for weight, first, last in zip(weights, begins, ends, strict=True):
            margins = [(begin, most - end) for begin, most, end in zip(first, size, last, strict=True)]
            stacked.append(pad(weight, [margin for pair in reversed(margins) for margin in pair]))  # `pad` begins with the last dimension
        self.weight, self.bias = torch.cat(stacked), torch.cat(biases)
        self.channels = [len(weight) for weight in weights]
        self.convolve = (torch.conv1d, torch.conv2d, torch.conv3d)[len(size) - 1]
        self.read = program.compiled.reader(calls[0].source)
        self.rest = [program.compiled.rest(task, program.calls.nodes[task][0]) for task in self.tasks]

    def run(self, registers: Registers) -> None:
        """Run the tasks, and set the registers of the values that other tasks read."""
        made = self.convolve(self.read(registers), self.weight, self.bias, self.stride, self.padding)
        for rest, part in zip(self.rest, torch.split(made, self.channels, 1), strict=True):
            rest(registers, part.contiguous())


def alike(program: Program, tasks: Sequence[int]) -> list[ConvolutionCall]:
    """Return the convolutions of tasks that can be merged; raise `UnsupportedFeature` if they cannot."""
    names = program.graph.names
    calls: list[ConvolutionCall] = []
    for i in tasks:
        call = program.calls.convolution(i)
        if call is None or not {call.weight, call.bias} - {None} <= program.constants.keys():
            raise UnsupportedFeature(f"{names[i]!r} cannot be merged: it is not a convolution of fixed size without groups and dilation")
        calls.append(call)
    first, dtype = calls[0], program.constants[calls[0].weight].dtype
    for i, call in zip(tasks, calls, strict=True):
        for what, same in (
            ("tensor", call.source is first.source),
            ("stride", call.stride == first.stride),
            ("output size", call.out_size == first.out_size),
            ("dtype", program.constants[call.weight].dtype == dtype),
        ):
            if not same:
                raise UnsupportedFeature(f"{names[i]!r} and {names[tasks[0]]!r} cannot be merged: they differ in {what}")
    return calls
