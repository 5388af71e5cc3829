"""`capture`: a problem from a PyTorch model."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from hetsched.cli import completion
from hetsched.cli.factories import Factory, FixedBatch, Fuse, Shapes, example, find, importable_here
from hetsched.cli.files import check_writable, write_graph
from hetsched.cli.options import Batching, Communication, Costs, Dtype, Inputs, Memory, Output
from hetsched.cli.terminal import Working
from hetsched.errors import InvalidProblem

Optimiser = Literal["sgd", "momentum", "adam"]


def capture(
    factory: Factory,
    output: Output,
    shapes: Shapes,
    cluster: Annotated[
        str | None,
        typer.Option(
            help="As in 'generate', to write a problem; default: write the graph alone.",
            metavar="NAME|FILE",
            autocompletion=completion.clusters,
        ),
    ] = None,
    fixed_batch: FixedBatch = False,
    fuse: Fuse = False,
    training: Annotated[
        Optimiser | None,
        typer.Option(help="Capture a training step with this optimiser; the example is one input, the loss the mean of the output."),
    ] = None,
    dtype: Dtype = "float32",
    costs: Costs = "analytic",
    inputs: Inputs = 1,
    batching: Batching = "once",
    communication: Communication = "delay",
    memory: Memory = "static",
) -> None:
    r"""Make a problem from a PyTorch model.

    The model is captured in eval mode (with --training in train mode) without being run or
    allocated. Modules in the current folder can be imported. This model ships with the package:

    Example: [bold]hetsched capture hetsched.workloads.vision:googlenet \
      --input 1,3,224,224 --cluster diviml -o problem.json[/bold]
    """
    from hetsched.frontends.torch import capture, capture_training

    if training is not None and fuse:
        raise InvalidProblem("--fuse does not go with --training: the backward pass reads tensors inside fused operators; leave one out")
    check_writable(output)
    examples = tuple(map(example, shapes))
    with Working(f"capturing {factory}"):
        with importable_here():
            make = find(factory)
            if training is not None:
                graph = capture_training(lambda: make().train(), examples, optimiser=training)
            else:
                graph = capture(lambda: make().eval(), examples, dynamic_batch=not fixed_batch, fuse=fuse)
        write_graph(graph, cluster, output, dtype, costs, inputs=inputs, batching=batching, communication=communication, memory=memory)
