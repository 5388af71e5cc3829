"""`generate` and `capture`: where problems come from."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hetsched.cli import completion
from hetsched.cli.files import check_writable, find_cluster
from hetsched.cli.help import Command, Group
from hetsched.cli.options import Batching, ClusterName, Communication, Dtype, Inputs, Memory, Output, Seed
from hetsched.cli.terminal import Working, say
from hetsched.errors import HetschedError, InvalidProblem, MissingDependency

if TYPE_CHECKING:
    from hetsched.problem.graph import TaskGraph

_SHAPE = "Shape of an example input, batch first: 1,3,224,224 or 1,128:int64; repeat it for each argument of the model."

Optimiser = Literal["sgd", "momentum", "adam"]

MOST_NAMED = 8
"""Devices of a cluster that are named in one line."""

generate = typer.Typer(cls=Group, rich_markup_mode="rich", context_settings={"help_option_names": ["-h", "--help"]})


@generate.callback(invoke_without_command=True)
def _generate(context: typer.Context) -> None:
    """Make a problem of a random or a shipped network.

    Example: [bold]hetsched generate rwnn --n 32 --modules 10 -o problem.json[/bold]
    """
    if context.invoked_subcommand is None:
        say(context.get_help())


@generate.command("rwnn", cls=Command)
def rwnn(
    output: Output,
    kind: Annotated[
        Literal["er", "ws", "ba"], typer.Option(help="Random graph in a module: Erdos-Renyi, Watts-Strogatz, Barabasi-Albert.")
    ] = "er",
    n: Annotated[int, typer.Option("--n", help="Tasks per module.", metavar="NUMBER")] = 32,
    modules: Annotated[int, typer.Option(help="Modules in a row.", metavar="NUMBER")] = 10,
    channels: Annotated[int, typer.Option(help="Tensors from each module to the next.", metavar="NUMBER")] = 1,
    dependence: Annotated[
        Literal["sdep", "wdep"], typer.Option(help="Where modules join: sdep at their first and last tasks, wdep at random ones.")
    ] = "sdep",
    seed: Seed = 0,
    cluster: ClusterName = "diviml",
    dtype: Dtype = "float32",
    inputs: Inputs = 1,
    batching: Batching = "once",
    communication: Communication = "delay",
    memory: Memory = "static",
) -> None:
    """Put a randomly wired neural network on a cluster.

    The networks of the DiviML paper: modules of random graphs, one behind the other.

    Example: [bold]hetsched generate rwnn --kind ws --n 16 --modules 4 -o problem.json[/bold]
    """
    from hetsched import workloads

    check_writable(output)
    with Working("generating"):
        graph = workloads.rwnn(kind=kind, n=n, modules=modules, channels=channels, dependence=dependence, seed=seed)
        _write(graph, cluster, output, dtype, inputs=inputs, batching=batching, communication=communication, memory=memory)


@generate.command("network", cls=Command)
def network(
    name: Annotated[str, typer.Argument(help="inception_v3 or googlenet.", metavar="NAME", autocompletion=completion.networks)],
    output: Output,
    cluster: ClusterName = "diviml",
    dtype: Dtype = "float32",
    inputs: Inputs = 1,
    batching: Batching = "once",
    communication: Communication = "delay",
    memory: Memory = "static",
) -> None:
    """Put a shipped network on a cluster.

    Example: [bold]hetsched generate network googlenet -o problem.json[/bold]
    """
    from hetsched.workloads import networks

    check_writable(output)
    _write(networks.load(name), cluster, output, dtype, inputs=inputs, batching=batching, communication=communication, memory=memory)


@generate.command("gpt3", cls=Command)
def gpt3(
    output: Output,
    model: Annotated[Literal["175B", "6.7B", "125M"], typer.Option(help="Size of the blocks, by the model's parameters.")] = "175B",
    layers: Annotated[int | None, typer.Option(help="Blocks in a row; default: those of the model.", metavar="NUMBER")] = None,
    cluster: ClusterName = "diviml_nodes",
    dtype: Dtype = "float16",
    inputs: Inputs = 1,
    batching: Batching = "once",
    communication: Communication = "delay",
    memory: Memory = "static",
) -> None:
    """Put GPT-3's decoder, inputs of 20 tokens, on a cluster.

    One block was captured from PyTorch, in float16, and is repeated.

    Example: [bold]hetsched generate gpt3 --model 6.7B --layers 16 -o problem.json[/bold]
    """
    from hetsched import workloads

    check_writable(output)
    with Working("generating"):
        graph = workloads.gpt3(model, layers=layers)
        _write(graph, cluster, output, dtype, inputs=inputs, batching=batching, communication=communication, memory=memory)


@generate.command("cluster", cls=Command)
def cluster(
    name: Annotated[
        str, typer.Argument(help="diviml, diviml_nodes, moirai_inter or moirai_intra.", metavar="NAME", autocompletion=completion.clusters)
    ],
    output: Output,
) -> None:
    """Write a named cluster as a document to edit.

    Give it back with --cluster.

    Example: [bold]hetsched generate cluster diviml -o cluster.json[/bold]
    """
    from hetsched.documents import write

    check_writable(output)
    chosen = find_cluster(name)
    write(chosen, output)
    say(f"wrote {output}: {_list(chosen.names)}")


def capture(
    factory: Annotated[str, typer.Argument(help="A function without arguments that returns a torch.nn.Module.", metavar="MODULE:FUNCTION")],
    output: Output,
    shapes: Annotated[list[str], typer.Option("--input", help=_SHAPE, metavar="SHAPE")],
    cluster: Annotated[
        str | None,
        typer.Option(
            help="As in 'generate', for a problem; without it the graph alone is written.",
            metavar="NAME|FILE",
            autocompletion=completion.clusters,
        ),
    ] = None,
    fixed_batch: Annotated[
        bool, typer.Option("--fixed-batch", help="The first dimension of the inputs is no batch (dynamic_batch=False).")
    ] = False,
    fuse: Annotated[bool, typer.Option("--fuse", help="Let activations and the like be part of the operator before them.")] = False,
    training: Annotated[
        Optimiser | None,
        typer.Option(help="Take a step of training with this optimiser, the whole example as one input; the loss is the output's mean."),
    ] = None,
    dtype: Dtype = "float32",
    inputs: Inputs = 1,
    batching: Batching = "once",
    communication: Communication = "delay",
    memory: Memory = "static",
) -> None:
    r"""Make a problem of a PyTorch model of your own.

    The model is captured in eval mode (with --training in train mode), never run, and
    needs no memory. Modules in the current folder can be imported. This one ships with the package:

    Example: [bold]hetsched capture hetsched.workloads.vision:googlenet \
      --input 1,3,224,224 --cluster diviml -o problem.json[/bold]
    """
    from hetsched.frontends.torch import capture, capture_training

    if training is not None and fuse:
        raise InvalidProblem("--fuse does not go with --training: the backward pass reads what is between the operators; leave one out")
    check_writable(output)
    examples = tuple(map(_example, shapes))
    with Working(f"capturing {factory}"):
        with _importable_here():
            make = _find(factory)
            if training is not None:
                graph = capture_training(lambda: make().train(), examples, optimiser=training)
            else:
                graph = capture(lambda: make().eval(), examples, dynamic_batch=not fixed_batch, fuse=fuse)
        _write(graph, cluster, output, dtype, inputs=inputs, batching=batching, communication=communication, memory=memory)


def _write(graph: TaskGraph, cluster: str | None, output: Path, dtype: str, **rules: Any) -> None:
    """Write the graph, or the problem it makes with a cluster."""
    from hetsched.documents import write
    from hetsched.problem.graph import plural

    value: Any = graph
    if cluster is not None:
        from hetsched.costs import Roofline
        from hetsched.problem.problem import Problem

        value = Problem(graph, find_cluster(cluster), costs=Roofline(dtype=dtype), **rules)
    write(value, output)
    where = "" if cluster is None else f" on {_list(value.cluster.names)}"
    say(f"wrote {output}: {plural(graph.n_tasks, 'task')}, {plural(graph.n_edges, 'edge')}{where}")


def _list(devices: Sequence[str]) -> str:
    return ", ".join(devices) if len(devices) <= MOST_NAMED else f"{len(devices)} devices"


def _example(text: str) -> Any:
    """Return the tensor of zeros that ``1,3,224,224`` or ``1,128:int64`` describes."""
    try:
        import torch
    except ImportError as error:
        raise MissingDependency("torch", "torch") from error
    shape, _, name = text.partition(":")
    dtype = getattr(torch, name or "float32", None)
    try:
        sizes = [int(size) for size in shape.split(",") if size.strip()]
    except ValueError:
        sizes = [-1]
    if min(sizes, default=0) < 0 or not isinstance(dtype, torch.dtype):
        raise InvalidProblem(f"--input {text!r} is not a shape like 1,3,224,224, with an optional dtype like 1,128:int64")
    return torch.zeros(sizes, dtype=dtype)


def _find(factory: str) -> Any:
    """Import what ``module:function`` names."""
    name, colon, attribute = factory.partition(":")
    if not (colon and name and attribute):
        raise InvalidProblem(f"{factory!r} is not of the form MODULE:FUNCTION, for instance mypackage.nets:make")
    try:
        found = importlib.import_module(name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:  # whatever the user's module raises on import
        raise HetschedError(f"{factory} cannot be imported: {type(error).__name__}: {error}") from error
    return found


@contextlib.contextmanager
def _importable_here() -> Iterator[None]:
    """Let modules in the current folder be imported, before all others."""
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)
