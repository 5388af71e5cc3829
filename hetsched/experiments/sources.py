"""Problems named in a few words: files, patterns of files, and generators with their arguments."""

from __future__ import annotations

import ast
import glob
import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from hetsched import instances
from hetsched.arguments import checked
from hetsched.documents import read
from hetsched.errors import InvalidProblem
from hetsched.instances.registry import found
from hetsched.problem.graph import TaskGraph
from hetsched.problem.problem import Problem

_RANGE = re.compile(r"(\d+)\.\.(\d+)")
_WORDS = {"true": True, "false": False, "none": None}
RULES = ("inputs", "batching", "communication", "memory")


class Instance(NamedTuple):
    """A problem, the name it has in tables, and the name of the family that it is counted with."""

    name: str
    problem: Problem
    family: str = ""


def _graphs() -> dict[str, Callable[..., TaskGraph]]:
    """Return the generators of graphs; their arguments are those after the colon."""
    from hetsched import workloads
    from hetsched.workloads import networks

    return {"rwnn": workloads.rwnn, "network": networks.load, "gpt3": workloads.gpt3}


@checked
def problems(*texts: str) -> list[Instance]:
    """Return the problems that texts name.

    A text is a problem document; a pattern of such files, as ``mine/*.json``, whose family is the name without the number at its end; an
    instance or a family of `hetsched.instances`; or a generator with its arguments, as ``rwnn:er,32,modules=4,seed=0..9``, whose numbers
    may be ranges. Generators are `rwnn` and `gpt3` of `hetsched.workloads`, and ``network`` with the name of a shipped one; besides their
    arguments they take ``cluster``, ``dtype``, ``inputs``, ``batching``, ``communication`` and ``memory``.

    Raises
    ------
    InvalidProblem
        There is no such file or generator, a file holds no problem, or an argument is wrong.
    """
    return [instance for text in texts for instance in _found(text)]


def _found(text: str) -> Iterator[Instance]:
    generator, colon, arguments = text.partition(":")
    if colon and generator in _graphs():
        yield from _generated(generator, arguments)
        return
    paths = [text] if Path(text).is_file() else sorted(glob.glob(text, recursive=True))
    if not paths:
        known = instances.families()
        names = instances.names(text) if text in known else [text] if text in instances.names() else []
        if not names:
            raise InvalidProblem(
                f"{text!r} is neither a file or a pattern of files, nor an instance or a family of `hetsched instances list`, "
                f"nor one of the generators {', '.join(_graphs())} with ':' after it"
            )
        for name in names:
            yield Instance(name, instances.load(name), found(name)[0].name)
    for path in paths:
        problem = read(path)
        if not isinstance(problem, Problem):
            raise InvalidProblem(f"{path} holds a {type(problem).__name__}, but a Problem is needed here")
        stem = Path(path).stem
        yield Instance(stem, problem, stem.rstrip("0123456789").rstrip("-_ ") or stem)


def _generated(generator: str, arguments: str) -> Iterator[Instance]:
    """Yield a problem for each combination of the ranges."""
    from hetsched.costs import Roofline
    from hetsched.workloads import clusters

    words = [word.strip() for word in arguments.split(",") if word.strip()]
    family = f"{generator}:{','.join(word for word in words if _RANGE.search(word) is None)}"
    for chosen in itertools.product(*map(_choices, words)):
        name = f"{generator}:{','.join(chosen)}"
        named = {key: value(given) for key, equals, given in (word.partition("=") for word in chosen) if equals}
        rules = {key: named.pop(key) for key in RULES if key in named}
        cluster, dtype = named.pop("cluster", "diviml"), named.pop("dtype", "float32")
        try:
            graph = _graphs()[generator](*(value(word) for word in chosen if "=" not in word), **named)
        except TypeError as error:
            raise InvalidProblem(f"{name!r}: {error}") from None
        yield Instance(name, Problem(graph, clusters.load(cluster), costs=Roofline(dtype), **rules), family)


def _choices(word: str) -> list[str]:
    """Return the word with each number of the range in it."""
    match = _RANGE.search(word)
    if match is None:
        return [word]
    first, last = int(match[1]), int(match[2])
    if last < first:
        raise InvalidProblem(f"{match[0]!r} in {word!r} is empty; write the smaller number first")
    return [word.replace(match[0], str(number), 1) for number in range(first, last + 1)]


def value(text: str) -> Any:
    """Return the value of an option: a Python literal, true, false or none, and else text."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
