"""The files that commands read and write, checked before any work begins."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetsched.cli.factories import examples, find, importable_here
from hetsched.cli.terminal import Working, say, warn
from hetsched.errors import HetschedError, InvalidArgument, InvalidProblem

if TYPE_CHECKING:
    from hetsched.chain.card import ModelCard
    from hetsched.chain.machine import Machine
    from hetsched.costs.analytic import Analytic
    from hetsched.costs.profile import Profile
    from hetsched.costs.rates import Rate, Rates
    from hetsched.costs.roofline import Roofline
    from hetsched.costs.timeline import Timeline
    from hetsched.problem.cluster import Cluster
    from hetsched.problem.graph import TaskGraph
    from hetsched.problem.problem import Problem
    from hetsched.schedule.schedule import Schedule
    from hetsched.search.solution import Solution


def _read(path: Path, *kinds: type) -> Any:
    """Return the value of a document, which must be of one of the `kinds`."""
    from hetsched.documents import read

    with Working(f"reading {path}"):
        value = read(path)
    if not isinstance(value, kinds):
        expected = " or ".join(f"a {_words(kind)}" for kind in kinds)
        raise InvalidProblem(f"{path} holds a {_words(type(value))}, but {expected} is needed here")
    return value


def _words(kind: type) -> str:
    """Return the name of a class as words: StageSchedule is a stage schedule."""
    return re.sub("(?<=[a-z])(?=[A-Z])", " ", kind.__name__).lower()


def read_problem(path: Path) -> Problem:
    """Return the problem in the document at `path`."""
    from hetsched.problem.problem import Problem

    problem: Problem = _read(path, Problem)
    return problem


def read_graph(path: Path) -> TaskGraph:
    """Return the graph in the document at `path`, or the graph of the problem there."""
    from hetsched.problem.graph import TaskGraph
    from hetsched.problem.problem import Problem

    value: TaskGraph | Problem = _read(path, TaskGraph, Problem)
    return value.graph if isinstance(value, Problem) else value


def read_answer(path: Path) -> Schedule | Solution:
    """Return the schedule or the solution in the document at `path`."""
    from hetsched.schedule.schedule import Schedule
    from hetsched.search.solution import Solution

    answer: Schedule | Solution = _read(path, Schedule, Solution)
    return answer


def read_result(path: Path) -> Schedule | Solution | Timeline:
    """Return the schedule, solution or timeline in the document at `path`."""
    from hetsched.costs.timeline import Timeline
    from hetsched.schedule.schedule import Schedule
    from hetsched.search.solution import Solution

    value: Schedule | Solution | Timeline = _read(path, Schedule, Solution, Timeline)
    return value


def read_timeline(path: Path) -> Timeline:
    """Return the timeline in the document at `path`."""
    from hetsched.costs.timeline import Timeline

    timeline: Timeline = _read(path, Timeline)
    return timeline


def read_profile(path: Path) -> Profile:
    """Return the profile in the document at `path`."""
    from hetsched.costs.profile import Profile

    profile: Profile = _read(path, Profile)
    return profile


def read_machine(path: Path) -> Machine:
    """Return the machine in the document at `path`."""
    from hetsched.chain.machine import Machine

    machine: Machine = _read(path, Machine)
    return machine


def is_factory(model: Path) -> bool:
    """Return whether what names a model is ``module:function``, and no file."""
    return ":" in str(model) and not model.exists()


def read_card(model: Path, shapes: Sequence[str] = (), *, bits: float | None = None) -> ModelCard:
    """Return the card in a document, or of a GGUF file, a config.json or its directory, or of the module that a factory makes.

    A module is called with tensors of the shapes.
    """
    with Working(f"reading {model}"):
        if is_factory(model):
            with importable_here():
                args, kwargs = examples(shapes)
                from hetsched.frontends import torch

                card = torch.card(find(str(model)), args, example_kwargs=kwargs)
            return card if bits is None else card.scaled(bits / card.bits)
        if shapes:
            raise InvalidArgument(f"--input is for a module named MODULE:FUNCTION, and {model} is none; leave it out")
        from hetsched.frontends import cards

        return cards.read(model, bits=bits)


def read_rates(texts: Sequence[str]) -> Rates:
    """Return the rates of words, of files of ``llama-bench -o json``, and of documents; ``NAME:`` before a file states the device."""
    from hetsched.costs.rates import Rates

    rows: list[Rate] = []
    for text in texts:
        name, _, behind = text.partition(":")
        path = Path(text) if Path(text).is_file() else Path(behind) if behind and Path(behind).is_file() else None
        if path is None and "=" not in text:
            raise InvalidArgument(f"there is no file of rates {behind or text!r}; name one, or give rates, as gpu0:pp512=1450,tg128=38")
        if path is None:
            rows += Rates.parse(text).rows
        elif path.read_bytes().lstrip()[:1] == b"[":
            rows += Rates.read_llama_bench(path, device=name if path == Path(behind) else None).rows
        else:
            rates: Rates = _read(path, Rates)
            rows += [row._replace(device=name) if path == Path(behind) else row for row in rates.rows]
    return Rates(rows)


def find_cluster(name: str) -> Cluster:
    """Return a named cluster, or the one in a document."""
    from hetsched.problem.cluster import Cluster
    from hetsched.workloads import clusters

    if name in clusters.names():
        return clusters.load(name)
    if not Path(name).exists():
        raise InvalidProblem(f"cluster {name!r} is neither a file nor one of {', '.join(clusters.names())}")
    cluster: Cluster = _read(Path(name), Cluster)
    return cluster


def check_writable(*paths: Path | None, sources: Sequence[Path | None] = ()) -> None:
    """Raise an error for a file that cannot be written, before the work that would fill it.

    A path must not be one of the `sources`, which are read, nor be given twice.
    """
    read = {path.resolve() for path in sources if path is not None}
    written: set[Path] = set()
    for path in paths:
        if path is None:
            continue
        if str(path) == "-":
            raise InvalidProblem("'-' cannot be written to: standard output carries the command's report; name a file")
        if path.is_file() or not path.exists():
            if path.resolve() in read:
                raise InvalidProblem(f"{path} would be overwritten by the answer; give the output another name")
            if path.resolve() in written:
                raise InvalidProblem(f"{path} is named for two outputs; give each a name of its own")
            written.add(path.resolve())
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        folder = path.resolve().parent if path.is_symlink() else path.parent
        if not folder.is_dir():
            raise FileNotFoundError(errno.ENOENT, "no such folder to write into", str(folder))
        needed = [path] * path.exists() + [folder] * (path.is_file() or not path.exists())  # a file is replaced by a temporary one
        if not all(os.access(target, os.W_OK) for target in needed):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


class Outputs:
    """Writes several files; a failure of one does not prevent the others.

    Attributes
    ----------
    written : list of str
        The files that were written.
    """

    def __init__(self) -> None:
        self.written: list[str] = []
        self._left_out: list[tuple[Path, str]] = []
        self._failures: list[Exception] = []

    def write(self, path: Path | None, write: Callable[[Path], object] | None, why: str = "there is no valid schedule") -> None:
        """Call `write` with the path; nothing is done if `path` is None, and a note of `why` is kept if `write` is None."""
        if path is None:
            return
        if write is None:
            self._left_out.append((path, why))
            return
        try:
            with Working(f"writing {path}"):
                write(path)
            self.written.append(str(path))
        except (OSError, HetschedError) as failure:
            self._failures.append(failure)
        except Exception as failure:
            unexpected = HetschedError(f"{path} is not written: {type(failure).__name__}: {failure} (unexpected; --debug shows where)")
            unexpected.__cause__ = failure
            self._failures.append(unexpected)

    def finish(self) -> None:
        """Print a note for each file left out, and raise an `ExceptionGroup` of the failures if there are any.

        Call it last, after all other output.
        """
        for path, why in self._left_out:
            warn(f"{path} is not written: {why}", "note")
        if self._failures:
            raise ExceptionGroup("not everything could be written", self._failures)


MOST_NAMED = 8
"""The most devices of a cluster that are listed by name."""


def cost_model(costs: str, dtype: str) -> Analytic | Roofline:
    """Return the cost model that --costs names."""
    from hetsched.costs import Analytic, Roofline

    return Roofline(dtype) if costs == "roofline" else Analytic(dtype)


def write_graph(graph: TaskGraph, cluster: str | None, output: Path, dtype: str, costs: str = "roofline", **rules: Any) -> None:
    """Write the graph, or with a cluster the problem of both."""
    from hetsched.documents import write
    from hetsched.problem.graph import plural

    value: Any = graph
    if cluster is not None:
        from hetsched.costs import Analytic
        from hetsched.problem.problem import Problem

        model = cost_model(costs, dtype)
        found = find_cluster(cluster)
        value = Problem(graph, found, costs=model, **rules)
        if isinstance(model, Analytic):
            most = max(model.family(device).error["all"] for device in found.devices)
            warn(f"durations: analytic, 90 % of operators within x{most:.2g}; run 'hetsched profile' for measured ones", "note")
    write(value, output)
    where = "" if cluster is None else f" on {listed(value.cluster.names)}"
    say(f"wrote {output}: {plural(graph.n_tasks, 'task')}, {plural(graph.n_edges, 'edge')}{where}")


def listed(devices: Sequence[str]) -> str:
    """Return the names of devices, or their number if there are many."""
    return ", ".join(devices) if len(devices) <= MOST_NAMED else f"{len(devices)} devices"
