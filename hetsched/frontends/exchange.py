"""What readers of other people's files return, and what readers and writers share."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec
import numpy as np
from msgspec import inspect

from hetsched import documents
from hetsched.arguments import shown
from hetsched.errors import InvalidProblem, UnsupportedFeature
from hetsched.problem.cluster import Device
from hetsched.problem.problem import Problem
from hetsched.schedule.schedule import Schedule

Parsed = TypeVar("Parsed")
Path = str | os.PathLike[str]
UNIT = "the file's unit of time, read as one second"
"""The `Reference.unit` of formats that have none."""
WRITTEN = "the file written"
"""The name, in messages, of a text that is not in a file yet."""


class Reference(NamedTuple):
    """What a file says about the makespan of its problem."""

    lower: float | None = None
    """A lower bound on the makespan in seconds; None if the file states none."""
    upper: float | None = None
    """The makespan of a schedule in seconds; None if the file states none."""
    source: str = ""
    """Who says so."""
    unit: str = "seconds"
    """What a second of the problem is in the file."""


class Imported(NamedTuple):
    """A problem of a file, and what else the file says."""

    problem: Problem
    schedule: Schedule | None = None
    """The schedule in the file, with its times; `verify` has not seen it."""
    reference: Reference | None = None
    lost: tuple[str, ...] = ()
    """A line for each thing that the file says and the problem does not."""


def bytes_of(path: Path) -> bytes:
    """Return the bytes of a file; refuse one that is larger than a document may be."""
    with open(path, "rb") as file:
        data = file.read(documents.LARGEST_DOCUMENT + 1)
    if len(data) > documents.LARGEST_DOCUMENT:
        raise InvalidProblem(f"{os.fspath(path)} has more than the {documents.LARGEST_DOCUMENT} bytes that are read")
    return data


def text_in(data: bytes, name: str) -> str:
    """Return the text of the bytes of a file; refuse what is no text."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidProblem(f"{name} is no text in UTF-8 ({error.reason} at byte {error.start})") from None


def text_of(path: Path) -> str:
    """Return the text of a file; refuse one that is no text, or larger than a document may be."""
    return text_in(bytes_of(path), os.fspath(path))


def decode(text: str, kind: type[Parsed], name: str) -> Parsed:
    """Return the JSON of a file as a msgspec structure, whose unknown fields are ignored."""
    try:
        return msgspec.json.decode(text, type=kind)
    except RecursionError:
        raise InvalidProblem(f"{name}: the JSON is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise InvalidProblem(f"{name}: {error}") from None


def decode_all(text: str, kind: type[Parsed], name: str) -> tuple[Parsed, list[str]]:
    """Return the JSON of a file as a msgspec structure, and a line for `Imported.lost` for each part with fields that it has not."""
    made = decode(text, kind, name)
    found: dict[str, set[str]] = {}
    _collect(decode(text, Any, name), inspect.type_info(kind), "", found)
    return made, [line for place, names in found.items() for line in others(f"fields of {place or 'the file'}", [names], [])]


def _collect(value: Any, kind: inspect.Type, place: str, found: dict[str, set[str]]) -> None:
    """Add the fields of objects that their structure has not, by the place of the object."""
    if isinstance(kind, inspect.UnionType):
        for one in kind.types:
            _collect(value, one, place, found)
    elif isinstance(kind, inspect.ListType) and isinstance(value, list):
        for item in value:
            _collect(item, kind.item_type, place, found)
    elif isinstance(kind, inspect.StructType) and isinstance(value, dict):
        known = {field.encode_name: field.type for field in kind.fields}
        found.setdefault(place, set()).update(value.keys() - known.keys())
        for name, part in known.items():
            if name in value:
                _collect(value[name], part, f"{place}.{name}".lstrip("."), found)


@contextlib.contextmanager
def naming(name: str) -> Iterator[None]:
    """Put the name of the file before the message of an `InvalidProblem`."""
    try:
        yield
    except InvalidProblem as error:
        raise InvalidProblem(f"{name}: {error}") from None


def check_transfers(n_edges: int, n_devices: int) -> None:
    """Raise `InvalidProblem` where a time for each edge and pair of devices would need too much memory."""
    if 8 * n_edges * n_devices**2 > documents.LARGEST_DOCUMENT:
        raise InvalidProblem(
            f"{n_edges} edges with a transfer time for each pair of {n_devices} devices need more than {documents.LARGEST_DOCUMENT} bytes; "
            "give fewer devices or edges"
        )


def number(value: float) -> str:
    """Return the shortest text that is read back as `value`: a whole number where it is one."""
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)


def others(what: str, rows: Iterable[Iterable[Any]], known: Iterable[Any]) -> list[str]:
    """Return a line for `Imported.lost` with the fields that some rows have besides the known ones; none if there are none."""
    names = sorted(map(str, {name for row in rows for name in row}.difference(known)))
    return [f"{what}: {', '.join(names)}"] if names else []


def sorted_edges(problem: Problem, end: Literal["source", "target"]) -> Problem:
    """Return the problem with its edges sorted by one end, as a format has them that lists them task by task."""
    order = np.argsort(getattr(problem.graph, end), kind="stable")
    graph = problem.graph.replace(edges=problem.graph.edges[order], edge_bytes=problem.graph.edge_bytes[order])
    return problem.replace(graph=graph, transfers=None if problem.transfers is None else problem.transfers[order])


def renamed(problem: Problem, tasks: str | None, devices: str) -> Problem:
    """Return the problem with tasks and devices named by a letter and their number; with None the tasks keep their names."""
    graph, cluster = problem.graph, problem.cluster
    names = {name: f"{devices}{k}" for k, name in enumerate(cluster.names)}
    return problem.replace(
        graph=graph.replace(
            tasks=graph.names if tasks is None else [f"{tasks}{i}" for i in range(graph.n_tasks)],
            devices=[None if pin is None else [names[name] for name in pin] for pin in graph.devices],
        ),
        cluster=cluster.replace(devices=[dataclasses.replace(device, name=names[device.name]) for device in cluster.devices]),
    )


def save(text: str, problem: Problem, path: Path, parse: Callable[[str, str], Imported], what: str) -> None:
    """Write the text of a problem, unless `parse`, called with it and a name for messages, returns another problem."""
    check_same(problem, lambda: parse(text, WRITTEN).problem, what)
    documents.write_bytes(text.encode(), path)


def check_same(problem: Problem, again: Callable[[], Problem], what: str, rounding: float = 0.0) -> None:
    """Raise `UnsupportedFeature` if `again`, which reads what was written, returns another problem, up to `rounding` of times."""
    try:
        found = next(_differences(problem, again(), rounding), "")
    except InvalidProblem as error:
        found = str(error)
    if found:
        remedy = "rename=True names them so" if found.startswith("the name of") else "change that, or keep a document (problem.write)"
        raise UnsupportedFeature(f"{what} cannot state this problem: {found}; {remedy}")


ROUNDING = 1e-12
"""A relative difference of durations that are quotients, as those of related devices."""
_RULES = ("inputs", "batching", "communication", "memory", "kinds")
_OF_TASKS = ("op", "weight_bytes", "input_bytes", "output_bytes", "flops", "bytes_accessed", "shape", "colocation", "devices")


def _differences(problem: Problem, other: Problem, rounding: float) -> Iterator[str]:
    """Yield the differences of two problems as text: what the one has, and what it would be read back as."""
    both = (problem, other)
    names, devices = problem.graph.names, problem.cluster.names
    yield from _each("the number of tasks", [[one.n_tasks] for one in both])
    yield from _each("the number of devices", [[one.n_devices] for one in both])
    for rule in _RULES:
        yield from _each(rule, [[getattr(one, rule)] for one in both])
    yield from _each("batch_sizes", [[one.batch_sizes.tolist()] for one in both])
    yield from _each("transfer times", [["bytes over bandwidth" if one.transfers is None else "given"] for one in both])
    yield from _each("the name of a task", [one.graph.names for one in both])
    yield from _each("the name of a device", [one.cluster.names for one in both])
    for field in dataclasses.fields(Device):
        columns = [[getattr(device, field.name) for device in one.cluster.devices] for one in both]
        yield from _each(f"{field.name} of device", columns, map(repr, devices))
    for column in _OF_TASKS:
        values = [getattr(one.graph, column) for one in both]
        yield from _each(f"{column} of task", values, map(repr, names))
    edges = [[" -> ".join(repr(names[i]) for i in edge) for edge in one.graph.edges.tolist()] for one in both]
    yield from _each("the number of edges", [[one.graph.n_edges] for one in both])
    yield from _each("an edge", edges)
    yield from _each("bytes of edge", [one.graph.edge_bytes for one in both], edges[0])
    for what in ("bandwidth", "latency"):
        between = (f"from {one!r} to {two!r}" for one in devices for two in devices)
        yield from _each(what, [getattr(one.cluster, what).ravel() for one in both], between)
    for what in ("transfers", "durations"):
        one, two = (getattr(side, what) for side in both)
        if one is not None:
            for place in np.argwhere(~np.isclose(one, two, rtol=rounding, atol=0.0, equal_nan=True)).tolist():
                yield _differs(f"{what}{place}", one[tuple(place)], two[tuple(place)])


def _each(what: str, columns: Sequence[Iterable[Any]], names: Iterable[str] = repeat("")) -> Iterator[str]:
    """Yield the differences of two columns, with the name of the row; NaN is equal to NaN."""
    for first, second, name in zip(*columns, names, strict=False):
        if first != second and not (first != first and second != second):
            yield _differs(f"{what} {name}".rstrip(), first, second)


def _differs(what: str, *values: object) -> str:
    one, two = (shown(value.item() if isinstance(value, np.generic) else value) for value in values)
    return f"{what} is {one} and would be read back as {two}"
