"""Task graphs as graphs of networkx and as tables of pandas, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from hetsched.arguments import shown
from hetsched.arrays import Columns, texts
from hetsched.errors import InvalidProblem

if TYPE_CHECKING:
    import networkx
    import pandas

    from hetsched.problem.graph import TaskGraph

NUMBERS = ("weight_bytes", "input_bytes", "output_bytes", "flops", "bytes_accessed")
OPTIONAL = ("shape", "colocation", "devices")
OF_TASKS = ("op", *NUMBERS, *OPTIONAL)
"""The per-task arguments of `TaskGraph`, which are attributes of nodes and columns of tables."""
_DEFAULTS = {"op": "", **dict.fromkeys(NUMBERS[:3], 0.0)}


def from_networkx(graph: networkx.DiGraph[Any], nodes: Mapping[str, str | None], edges: Mapping[str, str | None]) -> dict[str, Any]:
    """Return the arguments of `TaskGraph`; the parameters are those of `TaskGraph.from_networkx`."""
    if not callable(getattr(graph, "is_directed", None)) or isinstance(graph, type):
        raise InvalidProblem(f"graph is {shown(graph)}; it must be a networkx.DiGraph")
    if not graph.is_directed():
        raise InvalidProblem("an undirected networkx graph has no precedence; pass a DiGraph")
    of_nodes = _columns([data for _, data in graph.nodes(data=True)], OF_TASKS, nodes, "nodes")
    sizes = _columns([data for _, _, data in graph.edges(data=True)], ("bytes",), edges, "edges")["bytes"]
    ends = [(str(source), str(target)) for source, target in graph.edges()]
    columns = {name: [_DEFAULTS.get(name) if value is None else value for value in column] for name, column in of_nodes.items()}
    return {"tasks": map(str, graph.nodes()), "edges": [(*end, size) for end, size in zip(ends, sizes, strict=True)], **columns}


def _columns(rows: list[Mapping[str, Any]], known: Iterable[str], renamed: Mapping[str, str | None], what: str) -> dict[str, list[Any]]:
    """Return the column of each known name, None where a row has no such attribute."""
    sources: dict[str, list[Any]] = {name: [name] for name in known}
    for attribute, name in renamed.items():
        if name is not None and name not in sources:
            raise InvalidProblem(f"{what}[{attribute!r}] is {name!r}; choose from {', '.join(sources)}, or None to leave the attribute out")
    for attribute in dict.fromkeys(attribute for row in rows for attribute in row):
        if attribute not in renamed and attribute not in sources:
            example = f"{what}={{{attribute!r}: {next(reversed(sources))!r}}}"
            raise InvalidProblem(
                f"{what} of the graph have an attribute {shown(attribute)}, which is none of {', '.join(sources)}; name the one that it "
                f"stands for, for instance {example}, or leave it out with None"
            )
        name = renamed.get(attribute, attribute)
        if name is not None and name != attribute:
            sources[name].append(attribute)
    for name, attributes in sources.items():
        clash = next((row for row in rows if sum(attribute in row for attribute in attributes) > 1), None)
        if clash is not None:
            raise InvalidProblem(f"{name} of {what} is given by {' and '.join(map(repr, attributes))}; leave one of them out with None")
    return {name: [next((row[a] for a in attributes if a in row), None) for row in rows] for name, attributes in sources.items()}


def to_networkx(graph: TaskGraph) -> networkx.DiGraph[Any]:
    """Return a graph of networkx, of which `from_networkx` is the inverse."""
    import networkx

    made: networkx.DiGraph[Any] = networkx.DiGraph()
    columns = [getattr(graph, name).tolist() if name in NUMBERS else getattr(graph, name) for name in OF_TASKS]
    for name, *values in zip(graph.names, *columns, strict=True):
        made.add_node(name, **dict(zip(OF_TASKS, values, strict=True)))
    for (i, j), size in zip(graph.edges.tolist(), graph.edge_bytes.tolist(), strict=True):
        made.add_edge(graph.names[i], graph.names[j], bytes=size)
    return made


def from_dataframe(tasks: pandas.DataFrame, edges: pandas.DataFrame | None) -> dict[str, Any]:
    """Return the arguments of `TaskGraph`; the parameters are those of `TaskGraph.from_dataframe`."""
    named = _cells(tasks, "tasks", ("task", *OF_TASKS))
    arguments = {"tasks": named.pop("task", None) or tasks.index.tolist(), **named}
    if edges is not None:
        columns = _cells(edges, "edges", ("source", "target", "bytes"))
        for end in ("source", "target"):
            if end not in columns:
                raise InvalidProblem(f"edges has no column {end!r}; give source and target, and bytes if they are known")
        arguments["edges"] = list(zip(*columns.values(), strict=True))
    return arguments


def _cells(table: pandas.DataFrame, what: str, known: tuple[str, ...]) -> dict[str, list[Any]]:
    """Return the columns of a table as lists, in the order of the known names, with None for NaN."""
    for name in table.columns:
        if name not in known:
            raise InvalidProblem(f"{what} has a column {shown(name)}; choose from {', '.join(known)}, or drop it")
    return {
        name: [None if isinstance(value, float) and value != value else value for value in table[name].tolist()]
        for name in known
        if name in table.columns
    }


def to_dataframe(graph: TaskGraph, of: str) -> pandas.DataFrame:
    """Return the tasks or the edges as a table, of which `from_dataframe` is the inverse."""
    names = texts(graph.names)
    if of == "edges":
        return Columns(source=names[graph.source], target=names[graph.target], bytes=graph.edge_bytes).to_dataframe()
    columns = {name: getattr(graph, name) if name in NUMBERS else texts(getattr(graph, name)) for name in OF_TASKS}
    return Columns(task=names, **columns).to_dataframe().set_index("task")
