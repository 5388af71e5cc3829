"""Task graphs of the University of Auckland's database of optimal schedules: GXL and DOT, identical processors with communication."""

from __future__ import annotations

import contextlib
import io
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple
from xml.etree import ElementTree

import numpy as np

from hetsched.arguments import checked, whole
from hetsched.arrays import Columns
from hetsched.errors import InvalidArgument, InvalidProblem, InvalidSchedule, MissingDependency
from hetsched.frontends.exchange import UNIT, Imported, Reference, naming, number, others, renamed, save, text_of
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


class Attributed(NamedTuple):
    """A graph with attributes, of either format."""

    graph: Values
    nodes: Mapping[str, Values]
    edges: list[tuple[str, str, Values]]


@checked(processors=whole(1, MOST_DEVICES))
def read(path: str | os.PathLike[str], *, processors: int | None = None, syntax: Literal["gxl", "dot"] | None = None) -> Imported:
    """Read a task graph in GXL or DOT for identical processors.

    The attribute ``Weight`` of a node is its duration in seconds, and that of an edge the seconds of its transfer between any two
    processors: bytes at a bandwidth of 1. Starts and processors of all nodes, which files of solved instances have, become the
    schedule (processors are numbered from 0, or from 1), and ``Total schedule length`` the upper value of the reference.

    Parameters
    ----------
    path : path
    processors : int, optional
        Number of identical processors. Default: what the file states.
    syntax : "gxl" or "dot", optional
        Default: by the ending of the name, ``.gxl``, ``.dot`` or ``.gv``; of another name by the contents.

    Raises
    ------
    InvalidProblem
        The file breaks a rule of the format.
    InvalidArgument
        Neither the file nor `processors` says how many there are.
    MissingDependency
        DOT needs the package ``pydot``.
    """
    name = os.fspath(path)
    text, suffix = text_of(path), Path(path).suffix.lower()
    if syntax is None:
        dot = suffix in (".dot", ".gv") or (suffix not in (".gxl", ".xml") and not text.lstrip().startswith("<"))
        syntax = "dot" if dot else "gxl"
    return _imported((_dot if syntax == "dot" else _gxl)(text, name), name, processors)


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
    save(text, problem, path, lambda text, name: _imported(_gxl(text, name), name, None), "a GXL file")


def _set(element: ElementTree.Element, name: str, value: float) -> None:
    attribute = ElementTree.SubElement(element, "attr", name=name)
    ElementTree.SubElement(attribute, "int" if float(value).is_integer() else "float").text = number(float(value))


def _gxl(text: str, name: str) -> Attributed:
    try:
        root = ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError) as error:
        raise InvalidProblem(f"{name} is no GXL: {error}") from None
    graph = root if root.tag == "graph" else root.find("graph")
    if graph is None:
        raise InvalidProblem(f"{name} has no element 'graph'; give a GXL file")
    nodes: dict[str, Values] = {}
    for node in graph.iter("node"):
        task = _named(node, "id", name)
        if task in nodes:
            raise InvalidProblem(f"{name} has two nodes {task!r}; name each once")
        nodes[task] = _values(node)
    edges = [(_named(edge, "from", name), _named(edge, "to", name), _values(edge)) for edge in graph.iter("edge")]
    return Attributed(_values(graph), nodes, edges)


def _named(element: ElementTree.Element, attribute: str, name: str) -> str:
    value = element.get(attribute)
    if value is None:
        raise InvalidProblem(f"{name} has a {element.tag} without {attribute!r}; each needs one")
    return value


def _values(element: ElementTree.Element) -> Values:
    return {_name(attribute.get("name", "")): "".join(attribute.itertext()).strip() for attribute in element.findall("attr")}


def _dot(text: str, name: str) -> Attributed:
    try:
        import pydot
    except ImportError:
        raise MissingDependency("pydot", "formats") from None
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), warnings.catch_warnings():  # pydot prints its messages
            warnings.simplefilter("ignore")
            made = pydot.graph_from_dot_data(text)
        if made is None or len(made) != 1:
            raise ValueError("it has another number of graphs")
        graph = made[0]
        nodes = {_bare(node.get_name()): _bare_values(node) for node in graph.get_nodes()}
        edges = [(_bare(str(edge.get_source())), _bare(str(edge.get_destination())), _bare_values(edge)) for edge in graph.get_edges()]
        values = _bare_values(graph)
    except Exception as error:  # of the grammar of pydot, which has no class of errors
        raise InvalidProblem(f"{name} is no DOT file of one graph: {said.getvalue() or error}") from None
    for default in ("node", "edge", "graph"):
        nodes.pop(default, None)
    for source, target, _ in edges:
        nodes.setdefault(source, {})
        nodes.setdefault(target, {})
    return Attributed(values, nodes, edges)


def _name(text: str) -> str:
    return _NAMES.get(text.lower(), text)


def _bare(text: str) -> str:
    return text[1:-1].replace('\\"', '"') if len(text) > 1 and text[0] == text[-1] == '"' else text


def _bare_values(part: Any) -> Values:
    return {_name(_bare(key)): _bare(str(value)) for key, value in part.get_attributes().items()}


def _imported(made: Attributed, name: str, processors: int | None) -> Imported:
    stated = _number(made.graph, PROCESSORS, f"{name}: the graph") if PROCESSORS in made.graph else None
    count = processors if processors is not None else stated
    if count is None:
        raise InvalidArgument(f"{name} does not state how many processors there are; give processors=2, for instance")
    if not (float(count).is_integer() and 1 <= count <= MOST_DEVICES):
        raise InvalidProblem(f"{name}: {PROCESSORS} is {count}; it must be a whole number from 1 to {MOST_DEVICES}")
    times = [_number(values, WEIGHT, f"{name}: node {node!r}") for node, values in made.nodes.items()]
    arcs: list[Edge] = [
        (source, target, _number(values, WEIGHT, f"{name}: edge {source!r} -> {target!r}")) for source, target, values in made.edges
    ]
    with naming(name):
        graph = TaskGraph(made.nodes, arcs)
        cluster = Cluster([f"p{k}" for k in range(int(count))], bandwidth=1.0)
        problem = Problem(graph, cluster, durations=np.repeat(np.array(times).reshape(-1, 1), int(count), axis=1))
    other = stated is not None and count != stated  # then the file has a schedule of another problem
    schedule = None if other else _schedule(problem, made.nodes, name)
    lost = others("attributes of the graph", [made.graph], [PROCESSORS] if other else [PROCESSORS, LENGTH])
    lost += others("attributes of nodes", made.nodes.values(), [WEIGHT] if schedule is None else [WEIGHT, PROCESSOR, *STARTS, FINISH])
    lost += others("attributes of edges", [values for _, _, values in made.edges], [WEIGHT])
    upper = _number(made.graph, LENGTH, f"{name}: the graph") if LENGTH in made.graph and not other else None
    return Imported(problem, schedule, Reference(upper=upper, source="" if upper is None else name, unit=UNIT), tuple(lost))


def _number(values: Values, key: str, what: str) -> float:
    try:
        value = float(values[key])
    except (KeyError, ValueError):
        value = np.nan
    if not 0 <= value < np.inf:
        raise InvalidProblem(f"{what} has the {key} {values.get(key)!r}; it must be a number, at least 0")
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
