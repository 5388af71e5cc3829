"""Reading and writing files of any known format, found by their names and contents."""

from __future__ import annotations

import importlib
import inspect
import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from hetsched import documents
from hetsched.arguments import checked, shown
from hetsched.errors import InvalidArgument, InvalidProblem, UnsupportedFeature
from hetsched.frontends.exchange import Imported, text_of
from hetsched.problem.problem import Problem


class Format(NamedTuple):
    """A format of files or of objects."""

    summary: str
    suffixes: tuple[str, ...] = ()
    """Endings of names, in lower case, that no other format has."""
    fields: frozenset[str] = frozenset()
    """Of JSON: fields at the top of each file, which no other format has together."""
    attributes: tuple[str, ...] = ()
    """Of objects: attributes that no other has together."""
    module: str = ""
    """Module of `hetsched.frontends`; default: the name of the format."""
    reader: str = "read"
    """Its function that returns what the file says as `Imported`."""
    writes: bool = False
    settings: Mapping[str, Any] = MappingProxyType({})
    """Arguments of its reader, of a module that reads several formats."""


FORMATS: Mapping[str, Format] = {
    "stg": Format("Standard Task Graph, without or with costs; needs processors", (".stg",), writes=True),
    "fjsp": Format(
        "flexible job shop: JSON of ScheduleOpt", fields=frozenset({"operations", "precedences"}), writes=True, settings={"syntax": "json"}
    ),
    "fjs": Format("flexible job shop as text; needs fjsplib", (".fjs",), module="fjsp", settings={"syntax": "fjs"}),
    "gxl": Format("Auckland's task graphs, with schedules", (".gxl",), module="auckland", writes=True, settings={"syntax": "gxl"}),
    "dot": Format("Auckland's task graphs as DOT; needs pydot", (".dot", ".gv"), module="auckland", settings={"syntax": "dot"}),
    "dagbench": Format("graph.json of DAGBench: related devices", fields=frozenset({"task_graph", "network"}), writes=True),
    "wfformat": Format("WfFormat 1.5 and 1.6; needs a bandwidth or a cluster", fields=frozenset({"workflow", "schemaVersion"})),
    "dnn-partitioning": Format("msr-fiddle/dnn-partitioning", fields=frozenset({"nodes", "maxFPGAs"}), module="dnn_partitioning"),
    "moirai": Format("Moirai's profiled graphs as JSON", fields=frozenset({"devices", "tasks", "edges"})),
    "onnx": Format("a model in ONNX; needs a cluster", (".onnx",), reader="read_problem"),
    "saga": Format("a ProblemInstance of SAGA", attributes=("task_graph", "network")),
    "networkx": Format("a networkx.DiGraph with durations; needs a cluster", attributes=("is_directed", "nodes", "edges")),
    "pyjobshop": Format("a ProblemData of PyJobShop", attributes=("resources", "modes", "constraints")),
    "hetsched": Format("a problem document of this package", fields=frozenset({"format", "version"}), writes=True),
}
"""Known formats by name; those with attributes are objects, the others files."""


def names(*, files: bool = True, writes: bool = False) -> list[str]:
    """Return the names of the formats of files, or of files and objects; with `writes` those that are written."""
    return [name for name, one in FORMATS.items() if not (files and one.attributes) and (one.writes or not writes)]


@checked
def read(source: Any, format: str | None = None, **options: Any) -> Imported:  # noqa: A002
    """Read a problem from a file, or from an object of another library.

    Parameters
    ----------
    source : path, or object
        Objects are a ``networkx.DiGraph``, a ``ProblemInstance`` of SAGA and a ``ProblemData`` of PyJobShop.
    format : str, optional
        A key of `formats.FORMATS`. Default: by the name of the file and its contents.
    **options
        Those of the reader of the format, for instance ``processors=8`` of `stg.read`, ``cluster=`` of `onnx.read_problem`.

    Returns
    -------
    Imported
        The problem; the schedule and the reference of the file, if it has them; and what it says and the problem does not.

    Raises
    ------
    InvalidProblem
        The file breaks a rule of its format, or its format is not known; the message has the place.
    InvalidArgument
        The format has no such option, or needs one.
    MissingDependency
        The format needs a package that is not installed.
    """
    if isinstance(source, str | os.PathLike):
        found = _file_format(Path(source)) if format is None else _known(format, names())
    else:
        found = _object_format(source) if format is None else _known(format, [n for n in names(files=False) if FORMATS[n].attributes])
    if found == "hetsched":
        _check_options(found, options, {})
        value = documents.read(source)
        if not isinstance(value, Problem):
            raise InvalidProblem(f"{os.fspath(source)} holds a {type(value).__name__}, but a problem is needed here")
        return Imported(value)
    reader, settings = getattr(_module(found), FORMATS[found].reader), FORMATS[found].settings
    known = dict(list(inspect.signature(reader).parameters.items())[1:])
    _check_options(found, options, {name: one for name, one in known.items() if name not in settings})
    imported: Imported = reader(source, **options, **settings)
    return imported


@checked
def write(problem: Problem, path: str | os.PathLike[str], format: str | None = None, **options: Any) -> None:  # noqa: A002
    """Write a problem to a file of another format, from which `read` returns the same problem.

    Parameters
    ----------
    problem : Problem
    path : path
    format : str, optional
        A key of `formats.FORMATS` that is written. Default: by the ending of the name, of which ``.json`` is a document of this package.
    **options
        Those of the `write` of the format.

    Raises
    ------
    UnsupportedFeature
        The format cannot state the problem, and the message has what it cannot; or the format is not written.
    """
    known = names(writes=True)
    if format is None:
        suffix = Path(path).suffix.lower()
        found = next((name for name in known if suffix in FORMATS[name].suffixes), "hetsched" if suffix == ".json" else "")
        if not found:
            raise UnsupportedFeature(f"no format is written to a name that ends in {suffix!r}; choose a format: {', '.join(known)}")
    else:
        found = _known(format, known)
    if found == "hetsched":
        _check_options(found, options, {})
        problem.write(path)
        return
    writer = _module(found).write
    _check_options(found, options, dict(list(inspect.signature(writer).parameters.items())[2:]))
    writer(problem, path, **options)


def _module(name: str) -> Any:
    return importlib.import_module(f"hetsched.frontends.{FORMATS[name].module or name}")


def _known(name: str, known: list[str]) -> str:
    if name not in known:
        raise InvalidArgument(f"format is {name!r}; choose one of {', '.join(known)}")
    return name


def _check_options(name: str, options: Mapping[str, Any], known: Mapping[str, inspect.Parameter]) -> None:
    for option in options:
        if option not in known:
            raise InvalidArgument(f"format {name!r} has no option {option!r}; {'it has ' + ', '.join(known) if known else 'it has none'}")
    for option, parameter in known.items():
        if parameter.default is parameter.empty and option not in options:
            raise InvalidArgument(f"format {name!r} needs the option {option!r}; give {option}=")


def _file_format(path: Path) -> str:
    """Return the format of a file by the ending of its name, or by the fields at the top of its JSON."""
    for name, one in FORMATS.items():
        if path.suffix.lower() in one.suffixes:
            return name
    known = ", ".join(names())
    try:
        value = json.loads(text_of(path))
    except (ValueError, RecursionError) as error:
        raise (
            error
            if isinstance(error, InvalidProblem)
            else InvalidProblem(f"{path} is no JSON ({error}), and its name tells no format; choose a format: {known}")
        ) from None
    for name, one in FORMATS.items():
        if one.fields and isinstance(value, dict) and one.fields <= value.keys():
            return name
    raise InvalidProblem(f"{path} has no fields of a known format; choose a format: {known}")


def _object_format(source: object) -> str:
    for name, one in FORMATS.items():
        if one.attributes and all(hasattr(source, attribute) for attribute in one.attributes):
            return name
    raise InvalidArgument(
        f"source is {shown(source)}; it must be a path, a networkx.DiGraph, a ProblemInstance of SAGA or a ProblemData of PyJobShop"
    )
