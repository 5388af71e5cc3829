"""Reading every kind of document, and their published JSON Schemas."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import msgspec

from hetsched.arguments import checked
from hetsched.errors import InvalidProblem
from hetsched.problem import document
from hetsched.problem.cluster import Cluster
from hetsched.problem.document import Document, encode, write, write_bytes
from hetsched.problem.graph import TaskGraph
from hetsched.problem.problem import Problem
from hetsched.schedule.document import ScheduleDocument
from hetsched.schedule.schedule import Schedule
from hetsched.schedule.stage_document import StagesDocument
from hetsched.schedule.stages import StageSchedule
from hetsched.search.solution import Solution, SolutionDocument

__all__ = ["KINDS", "encode", "read", "schema", "write", "write_bytes"]

KINDS: Mapping[str, type[Document]] = {
    **document.KINDS,
    "hetsched-schedule": ScheduleDocument,
    "hetsched-solution": SolutionDocument,
    "hetsched-stages": StagesDocument,
}


@checked
def read(path: str | os.PathLike[str]) -> TaskGraph | Cluster | Problem | Schedule | Solution | StageSchedule:
    """Return what the JSON document at `path` describes: its `format` says which kind it is.

    Raises
    ------
    InvalidProblem, InvalidSchedule
        In one line: where in the document, what rule, what was found.
    OSError
        The file cannot be read.
    """
    return document.read(path, KINDS)  # type: ignore[no-any-return]


@checked
def schema(kind: str) -> dict[str, Any]:
    """Return the JSON Schema of a kind of document: graph, cluster, problem, schedule, solution, stages."""
    name = f"hetsched-{kind}"
    if name not in KINDS:
        raise InvalidProblem(f"no document kind {kind!r}; choose from {', '.join(key.removeprefix('hetsched-') for key in KINDS)}")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(KINDS[name])}
