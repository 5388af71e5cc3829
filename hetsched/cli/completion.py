"""Completion by the Tab key, for values from a known set; for others the shell completes file names."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import get_args


def methods(incomplete: str) -> list[tuple[str, str]]:
    """Return the methods and their summaries, without those named before the last comma."""
    from hetsched.solving import methods

    before, comma, last = incomplete.rpartition(",")
    taken = [name.strip() for name in before.split(",")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of plug-ins: a warning would appear in the command line
        available = methods()
    return [(f"{before}{comma}{name}", method.summary) for name, method in available.items() if name.startswith(last) and name not in taken]


def solvers(incomplete: str) -> list[str]:
    """Return the solvers of exact methods."""
    from hetsched.modeling.backends import known

    return _beginning(incomplete, [backend.name for backend in known()])


def method_kinds(incomplete: str) -> list[str]:
    """Return the kinds of methods."""
    from hetsched.search import Kind

    return _beginning(incomplete, list(Kind))


def objectives(incomplete: str) -> list[str]:
    """Return the objectives."""
    from hetsched.schedule.objectives import OBJECTIVES

    return _beginning(incomplete, OBJECTIVES)


def networks(incomplete: str) -> list[str]:
    """Return the shipped networks."""
    from hetsched.workloads import networks

    return _beginning(incomplete, networks.names())


def clusters(incomplete: str) -> list[str]:
    """Return the named clusters."""
    from hetsched.workloads import clusters

    return _beginning(incomplete, clusters.names())


def links(incomplete: str) -> list[str]:
    """Return the named links between devices."""
    from hetsched.problem import interconnects

    return _beginning(incomplete, interconnects.names())


def devices(incomplete: str) -> list[str]:
    """Return the kinds of devices in the catalogue."""
    from hetsched.problem.catalogue import CATALOGUE

    return _beginning(incomplete, CATALOGUE)


def dtypes(incomplete: str) -> list[str]:
    """Return the number formats that a device of the catalogue has a peak for."""
    from hetsched.problem.catalogue import CATALOGUE

    return _beginning(incomplete, sorted({dtype for entry in CATALOGUE.values() for dtype in entry.peak_flops}))


def batching(incomplete: str) -> list[str]:
    """Return the batching rules."""
    from hetsched.problem.problem import Batching

    return _beginning(incomplete, get_args(Batching))


def communication(incomplete: str) -> list[str]:
    """Return the communication models."""
    from hetsched.problem.links import Communication

    return _beginning(incomplete, get_args(Communication))


def memory(incomplete: str) -> list[str]:
    """Return the memory models."""
    from hetsched.problem.problem import Memory

    return _beginning(incomplete, get_args(Memory))


def kinds(incomplete: str) -> list[str]:
    """Return the kinds of documents."""
    from hetsched.documents import KINDS

    return _beginning(incomplete, (name.removeprefix("hetsched-") for name in KINDS))


def formats(incomplete: str) -> list[str]:
    """Return the formats of files that are read."""
    from hetsched.frontends import formats

    return _beginning(incomplete, formats.names())


def written_formats(incomplete: str) -> list[str]:
    """Return the formats that are written."""
    from hetsched.frontends import formats

    return _beginning(incomplete, formats.names(writes=True))


def colours(incomplete: str) -> list[str]:
    """Return the ways to colour tasks."""
    from hetsched.report.groups import WAYS

    return _beginning(incomplete, WAYS)


def _beginning(incomplete: str, values: Iterable[str]) -> list[str]:
    return [value for value in values if value.startswith(incomplete)]


def coarsenings(incomplete: str) -> list[str]:
    """Return the ways to coarsen a graph."""
    from hetsched.coarsening import RULES

    return _beginning(incomplete, ["celeritas", "heavy-edges", "degree-one", "module", *RULES])


def tools(incomplete: str) -> list[str]:
    """Return the tools that plans are for, without those named before the last comma."""
    from hetsched.planning.tools import TOOLS

    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in TOOLS if name.startswith(last) and name not in before.split(",")]


def papers(incomplete: str) -> list[str]:
    """Return the papers whose items `reproduce` measures."""
    from hetsched.papers.registry import PAPERS

    return _beginning(incomplete, [*PAPERS, "all"])


def tables(incomplete: str) -> list[str]:
    """Return the tables of a comparison of methods, without those named before the last comma."""
    from hetsched.experiments.comparison import TABLES

    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in TABLES if name.startswith(last) and name not in before.split(",")]


def instances(incomplete: str) -> list[str]:
    """Return the families of the registry, and its instances."""
    from hetsched.instances import families, names

    return _beginning(incomplete, [*families(), *names()])
