"""`capture`: a problem from a PyTorch model."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from hetsched.cli import completion
from hetsched.cli.factories import FixedBatch, Fuse, examples, find, importable_here
from hetsched.cli.files import check_writable, write_graph
from hetsched.cli.options import Batching, Communication, Costs, Dtype, Inputs, Memory, Output
from hetsched.cli.terminal import Working
from hetsched.errors import InvalidProblem

Optimiser = Literal["sgd", "momentum", "adam", "adamw"]
Model = Annotated[
    str,
    typer.Argument(
        help="A function that returns a torch.nn.Module, if need be with arguments, or a program that torch.export.save wrote.",
        metavar="MODULE:FUNCTION|FILE.pt2",
    ),
]
Shapes = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        help="Shape of an example input, batch first: 1,3,224,224 or 1,128:int64, or NAME=SHAPE; repeat it for each argument of the model.",
        metavar="SHAPE",
    ),
]


def capture(
    factory: Model,
    output: Output,
    shapes: Shapes = None,
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
        typer.Option(
            help="Capture a training step with this optimiser; the example is one input, the loss that or the mean of the output."
        ),
    ] = None,
    accumulate: Annotated[
        int,
        typer.Option(help="Number of equal parts of the batch that pass one after another in a training step.", metavar="NUMBER", min=1),
    ] = 1,
    dtype: Dtype = "float32",
    costs: Costs = "analytic",
    inputs: Inputs = 1,
    batching: Batching = "once",
    communication: Communication = "delay",
    memory: Memory = "static",
) -> None:
    r"""Make a problem from a PyTorch model.

    The model is captured in eval mode (with --training in train mode) without being run or
    allocated; where that fails, the other ways are tried, and a warning tells the one taken. Modules in the
    current folder can be imported. This model ships with the package:

    Example: [bold]hetsched capture hetsched.workloads.vision:googlenet \
      --input 1,3,224,224 --cluster diviml -o problem.json[/bold]
    """
    from hetsched.frontends.torch import capture, capture_training

    program = factory.endswith(".pt2")
    if training is not None and fuse:
        raise InvalidProblem("--fuse does not go with --training: the backward pass reads tensors inside fused operators; leave one out")
    if program and (shapes or training is not None):
        raise InvalidProblem(f"{factory} has its inputs, and no backward pass; leave --input and --training out")
    if not program and not shapes:
        raise InvalidProblem("Missing option '--input', the shape of each argument of the model")
    check_writable(output)
    args, kwargs = examples(shapes or ())
    batch = False if fixed_batch else None
    with Working(f"capturing {factory}"):
        with importable_here():
            make: Any = None if program else find(factory)
            if program:
                graph = capture(factory, dynamic_batch=batch, fuse=fuse)
            elif training is not None:
                graph = capture_training(lambda: make().train(), args, example_kwargs=kwargs, optimiser=training, accumulate=accumulate)
            else:
                graph = capture(lambda: make().eval(), args, example_kwargs=kwargs, dynamic_batch=batch, fuse=fuse)
        write_graph(graph, cluster, output, dtype, costs, inputs=inputs, batching=batching, communication=communication, memory=memory)
