"""`generate`: problems from random and shipped networks."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from hetsched.cli import completion
from hetsched.cli.files import check_writable, find_cluster, listed, write_graph
from hetsched.cli.help import Command, Group
from hetsched.cli.options import Batching, ClusterName, Communication, Costs, Dtype, Inputs, Memory, Output, Seed
from hetsched.cli.terminal import Working, say

generate = typer.Typer(cls=Group, rich_markup_mode="rich", context_settings={"help_option_names": ["-h", "--help"]})


@generate.callback(invoke_without_command=True)
def _generate(context: typer.Context) -> None:
    """Make a problem from a random or a shipped network.

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
    channels: Annotated[int, typer.Option(help="Number of tensors from each module to the next.", metavar="NUMBER")] = 1,
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

    The networks of the DiviML paper: a series of modules, each a random graph.

    Example: [bold]hetsched generate rwnn --kind ws --n 16 --modules 4 -o problem.json[/bold]
    """
    from hetsched import workloads

    check_writable(output)
    with Working("generating"):
        graph = workloads.rwnn(kind=kind, n=n, modules=modules, channels=channels, dependence=dependence, seed=seed)
        write_graph(graph, cluster, output, dtype, inputs=inputs, batching=batching, communication=communication, memory=memory)


@generate.command("network", cls=Command)
def network(
    name: Annotated[str, typer.Argument(help="inception_v3 or googlenet.", metavar="NAME", autocompletion=completion.networks)],
    output: Output,
    cluster: ClusterName = "diviml",
    dtype: Dtype = "float32",
    costs: Costs = "roofline",
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
    graph = networks.load(name)
    write_graph(graph, cluster, output, dtype, costs, inputs=inputs, batching=batching, communication=communication, memory=memory)


@generate.command("gpt3", cls=Command)
def gpt3(
    output: Output,
    model: Annotated[Literal["175B", "6.7B", "125M"], typer.Option(help="Model that has the blocks.")] = "175B",
    layers: Annotated[int | None, typer.Option(help="Blocks in a row; default: those of the model.", metavar="NUMBER")] = None,
    cluster: ClusterName = "diviml_nodes",
    dtype: Dtype = "float16",
    inputs: Inputs = 1,
    batching: Batching = "once",
    communication: Communication = "delay",
    memory: Memory = "static",
) -> None:
    """Put the decoder of GPT-3, with inputs of 20 tokens, on a cluster.

    It repeats one block, captured from PyTorch in float16.

    Example: [bold]hetsched generate gpt3 --model 6.7B --layers 16 -o problem.json[/bold]
    """
    from hetsched import workloads

    check_writable(output)
    with Working("generating"):
        graph = workloads.gpt3(model, layers=layers)
        write_graph(graph, cluster, output, dtype, inputs=inputs, batching=batching, communication=communication, memory=memory)


@generate.command("cluster", cls=Command)
def cluster(
    name: Annotated[
        str, typer.Argument(help="diviml, diviml_nodes, moirai_inter or moirai_intra.", metavar="NAME", autocompletion=completion.clusters)
    ],
    output: Output,
) -> None:
    """Write a named cluster as a document.

    An edited copy is used by --cluster.

    Example: [bold]hetsched generate cluster diviml -o cluster.json[/bold]
    """
    from hetsched.documents import write

    check_writable(output)
    chosen = find_cluster(name)
    write(chosen, output)
    say(f"wrote {output}: {listed(chosen.names)}")
