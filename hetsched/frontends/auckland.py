"""Task graphs of the University of Auckland's database of optimal schedules: GXL and DOT, identical processors with communication."""

from __future__ import annotations

import contextlib
import copy
import io
import os
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple
from xml.etree import ElementTree

import numpy as np

from hetsched.arguments import checked, whole
from hetsched.arrays import Columns
from hetsched.errors import InvalidArgument, InvalidProblem, InvalidSchedule, MissingDependency
from hetsched.frontends.exchange import UNIT, Imported, Reference, bytes_of, naming, number, others, renamed, save, text_in
from hetsched.problem.cluster import MOST_DEVICES, Cluster
from hetsched.problem.edges import Edge
from hetsched.problem.graph import TaskGraph
from hetsched.problem.problem import Problem
from hetsched.schedule.schedule import Schedule

__all__ = ["read", "write"]

Values = Mapping[str, str]
"""Attributes by name."""
WEIGHT, PROCESSOR, PROCESSORS, LENGTH = "Weight", "Processor", "Number of processors", "Total schedule length"
STARTS = ("Start time", "Start")
"""Names of the start of a task: of GXL, and of DOT."""
FINISH = "Finish time"
_NAMES = {name.lower(): name for name in (WEIGHT, PROCESSOR, PROCESSORS, LENGTH, *STARTS, FINISH)}
"""Names by their lower case, for programs of the database write some with other capitals."""
_ID = re.compile(r'"(?:[^"\\]|\\.)*"|[^:]*', re.DOTALL)
"""The name at an end of an edge in DOT, before a port."""


Arc = tuple[str, str, Values]
"""An edge: its source, its target, its attributes."""


class Attributed(NamedTuple):
    """A graph with attributes, of either format."""

    graph: Values
    nodes: Mapping[str, Values]
    edges: list[Arc]


@checked(processors=whole(1, MOST_DEVICES))
def read(
    path: str | os.PathLike[str], *, processors: int | None = None, weight: str = WEIGHT, syntax: Literal["gxl", "dot"] | None = None
) -> Imported:
    """Read a task graph in GXL or DOT for identical processors.

    The attribute ``Weight`` of a node is its duration in seconds, and that of an edge the seconds of its transfer between any two
    processors: bytes at a bandwidth of 1. Starts and processors of all nodes, which files of solved instances have, become the
    schedule (processors are numbered from 0, or from 1), and ``Total schedule length`` the upper value of the reference.

    Parameters
    ----------
    path : path
    processors : int, optional
        Number of identical processors. Default: what the file states.
    weight : str
        Name of the attribute, in a file that has another for ``Weight``.
    syntax : "gxl" or "dot", optional
        Default: by the ending of the name, ``.gxl``, ``.dot`` or ``.gv``; of another name by the contents.

    Raises
    ------
    InvalidProblem
        The file breaks a rule of the format, or has edges without a direction, hyperedges, graphs within nodes, or several graphs.
    InvalidArgument
        Neither the file nor `processors` says how many there are.
    MissingDependency
        DOT needs the package ``pydot``.
    """
    name, data, suffix = os.fspath(path), bytes_of(path), Path(path).suffix.lower()
    if syntax is None:
        dot = suffix in (".dot", ".gv") or (suffix not in (".gxl", ".xml") and not data.lstrip().startswith(b"<"))
        syntax = "dot" if dot else "gxl"
    return _imported(_dot(text_in(data, name), name) if syntax == "dot" else _gxl(data, name), name, processors, weight)


@checked
def write(problem: Problem, path: str | os.PathLike[str], *, schedule: Schedule | None = None, rename: bool = False) -> None:
    """Write a problem on identical processors p0, p1, ... at a bandwidth of 1, and optionally a schedule of it, as GXL.

    Parameters
    ----------
    problem : Problem
    path : path
    schedule : Schedule, optional
        Of the problem; its starts and devices become attributes of the nodes.
    rename : bool
        Whether to name devices as `read` does. Otherwise others are refused.

    Raises
    ------
    UnsupportedFeature
        The format cannot state the problem; the message has what it cannot.
    InvalidSchedule
        The schedule is not one of this problem.
    """
    if schedule is not None and (schedule.tasks, schedule.devices, schedule.n_inputs) != (problem.graph.names, problem.cluster.names, 1):
        raise InvalidSchedule("the schedule has other tasks, devices or inputs than the problem; give one of this problem, with one input")
    if rename:
        problem = renamed(problem, None, "p")
    root = ElementTree.Element("gxl")
    graph = ElementTree.SubElement(root, "graph", id="task graph", edgemode="directed")
    _set(graph, PROCESSORS, problem.n_devices)
    if schedule is not None:
        _set(graph, LENGTH, schedule.makespan)
    nodes = [ElementTree.SubElement(graph, "node", id=name) for name in problem.graph.names]
    for node, seconds in zip(nodes, problem.table[:, 0, 0].tolist(), strict=True):
        _set(node, WEIGHT, seconds)
    if schedule is not None:
        for batch in schedule.batches:
            _set(nodes[batch["task"]], STARTS[0], batch["start"])
            _set(nodes[batch["task"]], PROCESSOR, batch["device"])
    names = problem.graph.names
    for (i, j), size in zip(problem.graph.edges.tolist(), problem.graph.edge_bytes.tolist(), strict=True):
        _set(ElementTree.SubElement(graph, "edge", {"from": names[i], "to": names[j]}), WEIGHT, size)
    ElementTree.indent(root)
    text = '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"
    save(text, problem, path, lambda text, name: _imported(_gxl(text.encode(), name), name), "a GXL file")


def _set(element: ElementTree.Element, name: str, value: float) -> None:
    attribute = ElementTree.SubElement(element, "attr", name=name)
    ElementTree.SubElement(attribute, "int" if float(value).is_integer() else "float").text = number(float(value))


def _gxl(data: bytes, name: str) -> Attributed:
    try:
        root = ElementTree.fromstring(data)
    except (ElementTree.ParseError, LookupError, ValueError) as error:
        raise InvalidProblem(f"{name} is no GXL: {error}") from None
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]  # some programs put all in a namespace
    graphs = [root] if root.tag == "graph" else root.findall("graph")
    if len(graphs) != 1:
        raise InvalidProblem(f"{name} has {len(graphs)} elements 'graph'; give a GXL file of one graph")
    graph = graphs[0]
    found = graph.findall("edge")
    usual = str(graph.get("edgemode", "directed") in ("directed", "defaultdirected")).lower()
    for what, there in (
        ("hyperedges (rel)", graph.find("rel") is not None),
        ("graphs within nodes or edges", graph.find("*/graph") is not None),
        ("edges without a direction", any(edge.get("isdirected", usual) != "true" for edge in found)),
    ):
        if there:
            raise InvalidProblem(f"{name} has {what}; a task graph has directed edges of one node to another")
    nodes: dict[str, Values] = {}
    for node in graph.findall("node"):
        task = _named(node, "id", name)
        if task in nodes:
            raise InvalidProblem(f"{name} has two nodes {task!r}; name each once")
        nodes[task] = _values(node)
    return Attributed(_values(graph), nodes, [(_named(edge, "from", name), _named(edge, "to", name), _values(edge)) for edge in found])


def _named(element: ElementTree.Element, attribute: str, name: str) -> str:
    value = element.get(attribute)
    if value is None:
        raise InvalidProblem(f"{name} has a {element.tag} without {attribute!r}; each needs one")
    return value


def _values(element: ElementTree.Element) -> Values:
    return {_name(attribute.get("name", "")): _value(attribute) for attribute in element.findall("attr")}


def _value(attribute: ElementTree.Element) -> str:
    """Return the text of the value of an attribute, which may have attributes of its own; of a composite one its kind."""
    value = next((part for part in attribute if part.tag != "attr"), attribute)
    return f"<{value.tag}>" if len(value) else (value.text or "").strip()


def _dot(text: str, name: str) -> Attributed:
    try:
        import pydot
    except ImportError:
        raise MissingDependency("pydot", "formats") from None
    said = io.StringIO()
    nodes: dict[str, dict[str, str]] = {}
    edges: list[Arc] = []
    defaults: dict[str, dict[str, str]] = {"node": {}, "edge": {}, "graph": {}}
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), warnings.catch_warnings():  # pydot prints its messages
            warnings.simplefilter("ignore")
            made = pydot.graph_from_dot_data(text)
        if made is None or len(made) != 1:
            raise ValueError("it has another number of graphs")
        _collect(made[0], nodes, edges, defaults)
        directed, strict, values = made[0].get_type() == "digraph", made[0].get_strict(), defaults["graph"] | _bare_values(made[0])
    except Exception as error:  # of the grammar of pydot, which has no class of errors
        raise InvalidProblem(f"{name} is no DOT file of one graph: {said.getvalue() or error}") from None
    if not directed:
        raise InvalidProblem(f"{name} has edges without a direction (graph); a task graph has directed edges (digraph)")
    if strict and len({(source, target) for source, target, _ in edges}) < len(edges):
        raise InvalidProblem(f"{name} has an edge twice in a strict graph, which has one; write each once")
    return Attributed(values, nodes, edges)


def _collect(part: Any, nodes: dict[str, dict[str, str]], edges: list[Arc], defaults: dict[str, dict[str, str]]) -> list[str]:
    """Add the nodes and the edges of a graph or subgraph of pydot in the order of the file, and return its nodes.

    `defaults` are those of nodes, edges and graphs at this place; a subgraph has those of where it stands, and adds its own.
    """
    inside: dict[str, None] = {}
    groups: dict[Any, list[str]] = {}  # of ends of edges; in a chain a group is the end of two

    def named(text: str, values: Values) -> list[str]:
        node = _bare(text)
        nodes.setdefault(node, dict(defaults["node"])).update(values)
        return [node]

    def ends(end: Any) -> list[str]:
        if isinstance(end, str):
            return named(_ID.match(end)[0], {})  # type: ignore[index]  # without the port
        if end not in groups:
            groups[end] = _collect(type(part)(obj_dict=end), nodes, edges, copy.deepcopy(defaults))
        return groups[end]

    for one in sorted([*part.get_nodes(), *part.get_edges(), *part.get_subgraphs()], key=lambda one: one.get_sequence()):
        values = _bare_values(one)
        if hasattr(one, "get_subgraphs"):
            inside |= dict.fromkeys(_collect(one, nodes, edges, copy.deepcopy(defaults)))
        elif hasattr(one, "get_source"):
            sources, targets = ends(one.get_source()), ends(one.get_destination())
            edges += [(source, target, defaults["edge"] | values) for source in sources for target in targets]
            inside |= dict.fromkeys([*sources, *targets])
        elif one.get_name() in defaults:
            defaults[one.get_name()] |= values
        else:
            inside |= dict.fromkeys(named(one.get_name(), values))
    return list(inside)


def _name(text: str) -> str:
    return _NAMES.get(text.lower(), text)


def _bare(text: str) -> str:
    return text[1:-1].replace('\\"', '"') if len(text) > 1 and text[0] == text[-1] == '"' else text


def _bare_values(part: Any) -> dict[str, str]:
    return {_name(_bare(key)): _bare(str(value)) for key, value in part.get_attributes().items()}


def _imported(made: Attributed, name: str, processors: int | None = None, weight: str = WEIGHT) -> Imported:
    weight = _name(weight)
    stated = _number(made.graph, PROCESSORS, f"{name}: the graph") if PROCESSORS in made.graph else None
    count = processors if processors is not None else stated
    if count is None:
        raise InvalidArgument(f"{name} does not state how many processors there are; give processors=2, for instance")
    if not (float(count).is_integer() and 1 <= count <= MOST_DEVICES):
        raise InvalidProblem(f"{name}: {PROCESSORS} is {count}; it must be a whole number from 1 to {MOST_DEVICES}")
    times = [_number(values, weight, f"{name}: node {node!r}") for node, values in made.nodes.items()]
    arcs: list[Edge] = [
        (source, target, _number(values, weight, f"{name}: edge {source!r} -> {target!r}")) for source, target, values in made.edges
    ]
    with naming(name):
        graph = TaskGraph(made.nodes, arcs)
        cluster = Cluster([f"p{k}" for k in range(int(count))], bandwidth=1.0)
        problem = Problem(graph, cluster, durations=np.repeat(np.array(times).reshape(-1, 1), int(count), axis=1))
    other = stated is not None and count != stated  # then the file has a schedule of another problem
    schedule = None if other else _schedule(problem, made.nodes, name)
    lost = others("attributes of the graph", [made.graph], [PROCESSORS] if other else [PROCESSORS, LENGTH])
    lost += others("attributes of nodes", made.nodes.values(), [weight] if schedule is None else [weight, PROCESSOR, *STARTS, FINISH])
    lost += others("attributes of edges", [values for _, _, values in made.edges], [weight])
    upper = _number(made.graph, LENGTH, f"{name}: the graph") if LENGTH in made.graph and not other else None
    if upper is not None and schedule is not None and not np.isclose(upper, schedule.makespan, rtol=1e-9):
        raise InvalidProblem(f"{name}: {LENGTH} is {upper:g}, but the starts and processors of its nodes take {schedule.makespan:g}")
    return Imported(problem, schedule, Reference(upper=upper, source="" if upper is None else name, unit=UNIT), tuple(lost))


def _number(values: Values, key: str, what: str) -> float:
    if key not in values:  # of those that are needed
        raise InvalidProblem(f"{what} has no {key}; give each one, or weight= with the name of the attribute that has its time")
    try:
        value = float(values[key])
    except ValueError:
        value = np.nan
    if not 0 <= value < np.inf:
        raise InvalidProblem(f"{what} has the {key} {values[key]!r}; it must be a number, at least 0")
    return value


def _schedule(problem: Problem, nodes: Mapping[str, Values], name: str) -> Schedule | None:
    """Return the schedule that the nodes state, with their starts and with transfers that begin at once; None unless all state theirs."""
    starts = [next((key for key in STARTS if key in values), None) for values in nodes.values()]
    if not nodes or None in starts or not all(PROCESSOR in values for values in nodes.values()):
        return None
    where = [f"{name}: node {node!r}" for node in nodes]
    start = np.array([_number(values, str(key), w) for values, key, w in zip(nodes.values(), starts, where, strict=True)])
    on = np.array([_number(values, PROCESSOR, w) for values, w in zip(nodes.values(), where, strict=True)])
    if len(on) and on.min() >= 1 and on.max() == problem.n_devices:
        on -= 1
    outside = np.flatnonzero((on >= problem.n_devices) | (on != np.rint(on)))
    if len(outside):
        i = int(outside[0])
        raise InvalidProblem(f"{where[i]} has the {PROCESSOR} {on[i]:g}; it must be a whole number below {problem.n_devices}")
    device, duration = on.astype(np.int64), problem.table[:, 0, 0]
    order = np.lexsort((start + duration, start, device))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    finish = start + duration
    for i, values in enumerate(nodes.values()):
        if FINISH in values and not np.isclose(_number(values, FINISH, where[i]), finish[i], rtol=1e-9):
            raise InvalidProblem(
                f"{where[i]} has the {FINISH} {values[FINISH]}, but it starts at {start[i]:g} with the {WEIGHT} {duration[i]:g}"
            )
    source, target = problem.graph.source, problem.graph.target
    moved = np.flatnonzero(device[source] != device[target])
    sent = finish[source[moved]]
    return Schedule.from_columns(
        problem.graph.names,
        problem.cluster.names,
        1,
        Columns(task=order, device=device[order], start=start[order], finish=finish[order], size=np.ones(len(order), np.int64)),
        np.arange(len(order) + 1),
        np.zeros(len(order), np.int64),
        Columns(
            edge=moved, source=place[source[moved]], target=place[target[moved]], start=sent, finish=sent + problem.graph.edge_bytes[moved]
        ),
    )
