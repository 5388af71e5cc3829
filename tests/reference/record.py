"""The record of the answers of methods, bounds and formulations, to show that a refactoring does not change them.

    python -m tests.reference.record [--check | --add] [--folder FOLDER] [SECTION ...]

writes ``tests/reference/SECTION.json``; with ``--check`` it compares with these files, prints differences by method and
problem, and exits with 1 if there are any. Numbers are recorded to the bit (`float.hex`), schedules and their decisions as a
hash; answers of solvers are compared to a relative 1e-6, and bounds to 1e-9, because the last bits of sums by numpy and BLAS
are those of a processor's instructions. Nothing depends on the clock: a solve has a limit of evaluations, or
none. The record is valid for the versions of packages in ``versions.json``, which are those of constraints.txt, and takes
about six minutes of one core if the kernels are compiled. With ``--add`` it writes the answers of what is new, such as a
method; a section in which another answer differs is not written. Its sections:

methods
    Each method of `repeatable` with 200 evaluations on the corpus and on `networks`, with `SEEDS` where it draws numbers;
    those that draw numbers also with 20,000 evaluations on the networks.
auto
    ``auto`` with 300 evaluations in this process.
objectives
    The same methods for the period and, on the networks, for the largest load.
bounds
    Each function of `BOUNDS`, and all of `EVERY` for each objective.
exact
    Each method of `EXACT`: status, value, bound.
formulations
    Rows, columns and a hash of the .mps text of each of `FORMULATIONS`.
stages
    ``hs.stages`` and its baselines.
names
    Public names, the parameters of all public callables, the options of methods.

Not recorded, because they take longer than all others together: `SLOW` methods on seven of eight problems of the corpus,
`auto` on every second; the objectives on seven of eight; exact methods on three of four; the pairs of `SKIPPED`. ``cpsat``,
``auto`` with solvers or workers, and runs under a time limit are not repeatable to the bit.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import importlib
import importlib.metadata
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import hetsched as hs
from hetsched.testing import corpus
from tests.public import doors

HERE = Path(__file__).parent
SEEDS = (0, 1, 2)
SEEDED = {"annealing", "ea", "evolution", "load-search", "multilevel", "policy-gradient", "random-heft", "random-partition", "sa", "tabu"}
"""Methods whose answer depends on the seed."""
EXACT = ("assignment", "branch", "cpsat", "getf", "load-milp", "milp", "milp:highs", "moirai", "pesto", "split")
"""Methods whose answer is compared to the tolerance of solvers."""
EVALUATED = {"split": 200}
"""Evaluation limits of the exact methods that also search; the others end by themselves."""
PROVING = ("bounds",)
"""Methods whose bound is recorded too."""
SLOW = ("auto", "metis", "multilevel")
"""Methods that take tenths of a second on the smallest problem."""
SKIPPED = {("contiguous", "inception_v3"), ("modular", "inception_v3"), ("moirai", "small stack")}
"""Pairs of a method or bound and a problem on which it takes long."""
TOLERANCE, ROUNDING = 1e-6, 1e-9
"""Relative difference of answers of solvers, and of bounds, that is none."""
PACKAGES = ("highspy", "llvmlite", "numba", "numpy", "ortools", "pymetis", "pyscipopt", "scipy")

# Paths of functions that are not public; a module that moves is updated here only.
BOUNDS = {
    "memory": "bounds.combinatorial:memory",
    "critical path": "bounds.combinatorial:critical_path",
    "load": "bounds.combinatorial:load",
    "quick head-tail load": "bounds.combinatorial:quick_head_tail_load",
    "head-tail load": "bounds.combinatorial:head_tail_load",
    "modular": "bounds.modular:modular",
    "in series": "bounds.in_series:in_series",
    "orders": "bounds.branch_and_bound:orders",
    "destructive": "bounds.destructive:destructive",
}
EVERY = "bounds.best:every"
LINEAR_RELAXATION, SMALL = "bounds.relaxation:linear_relaxation", "bounds.relaxation:small"
STAGES = {"stages": "models.ios:stages", "sequential": "models.ios:sequential", "greedy": "models.ios:greedy"}

FORMULATIONS: list[tuple[str, str, dict[str, Any]]] = [
    ("BatchedMakespan", "plain 0", {}),
    ("BatchedMakespan", "plain 5", {"faithful": True}),
    ("BatchedMakespan", "plain 8", {"upper": 20.0}),
    ("BatchedMakespan", "plain 14", {"symmetry": "tasks"}),
    ("BatchedMakespan", "static memory 15", {"symmetry": "batches"}),
    ("BatchedMakespan", "several inputs 1", {}),
    ("BatchedMakespan", "several inputs 6", {"symmetry": "time"}),
    ("BatchedMakespan", "several inputs 22", {"faithful": True}),
    ("BatchedMakespan", "constraints 21", {}),
    ("BatchedMakespan", "links 22", {}),
    ("BatchedMakespan", "small stack", {"symmetry": "tasks"}),
    ("CongestionAware", "channel 9", {}),
    ("CongestionAware", "channel 12", {"faithful": True}),
    ("CongestionAware", "port 15", {"symmetry": "tasks"}),
    ("CongestionAware", "links 10", {}),
    ("CongestionAware", "several inputs 9", {}),
    ("CongestionAware", "several inputs 12", {"symmetry": "tasks"}),
    ("Pesto", "channel 15", {}),
    ("Assignment", "constraints 3", {}),
    ("Assignment", "several inputs 28", {"symmetry": "tasks"}),
    ("SteadyState", "static memory 24", {"objective": "period"}),
    ("SteadyState", "small stack", {"objective": "max-load"}),
]
"""Class, problem and arguments of each formulation whose text is recorded."""

Answer = str | list[str]
Rows = Iterator[tuple[str, str, Answer]]
"""Group, problem and answer."""
Record = dict[str, dict[str, Answer]]


def function(path: str) -> Callable[..., Any]:
    """Return the function at "module:name" below ``hetsched``."""
    module, name = path.split(":")
    value: Callable[..., Any] = getattr(importlib.import_module(f"hetsched.{module}"), name)
    return value


# ---------------------------------------------------------------------- problems


@functools.cache
def networks() -> dict[str, hs.Problem]:
    """Return the shipped networks on a CPU, a T4 and an A100, and stacks of random modules with and without restrictions."""
    cluster, costs = hs.workloads.clusters.diviml(), hs.costs.Roofline()
    shipped = {name: hs.Problem(hs.workloads.networks.load(name), cluster, costs=costs) for name in hs.workloads.networks.names()}
    graph = hs.workloads.rwnn("er", 16, modules=4, channels=2)
    stack = hs.Problem(graph, cluster, costs=costs)
    needed = float((graph.weight_bytes + graph.input_bytes + graph.output_bytes).sum())
    small = [hs.Device(device.name, kind=device.kind, memory_bytes=needed / 8) for device in cluster.devices]
    # The largest load of a pipeline has a meaning only where one device is the host.
    host = hs.Cluster(
        [hs.Device(name, kind="gpu" if k else "cpu") for k, name in enumerate(cluster.names)], cluster.bandwidth, cluster.latency
    )
    return {
        **shipped,
        "stack": stack.replace(cluster=host),
        "stack, channels, peak memory": stack.replace(
            cluster=hs.Cluster(small, cluster.bandwidth / 2, cluster.latency), communication="channel", memory="peak"
        ),
        "stack, ports, 3 inputs": hs.Problem(
            graph, cluster, costs=costs, inputs=3, batch_sizes=[1, 2, 3], batching="free", communication="port"
        ),
        "small stack": hs.Problem(hs.workloads.rwnn("er", 6, modules=4), cluster, costs=costs).replace(cluster=host),
    }


def cases(step: int = 1) -> dict[str, hs.Problem]:
    """Return every `step`-th problem of the corpus."""
    return {case.name: case.problem for case in corpus.problems()[::step]}


# ---------------------------------------------------------------------- answers


def digest(schedule: hs.Schedule) -> str:
    """Return a hash of a schedule and of its decision."""
    decision, integer, floating = schedule.decision, np.dtype("<i8"), np.dtype("<f8")
    order = [] if decision.transfer_order is None else [len(decision.transfer_order), *decision.transfer_order.ravel().tolist()]
    batches, transfers = schedule.batches, schedule.transfers
    columns = [
        *((column, integer) for column in (decision.task, decision.device, decision.item_ptr, decision.items, order)),
        *((column, floating) for column in (batches.start, batches.finish)),
        *((column, integer) for column in (transfers.edge, transfers.source, transfers.target)),
        *((column, floating) for column in (transfers.start, transfers.finish)),
    ]
    return hashed(b"|".join(np.asarray(column, kind).tobytes() for column, kind in columns))


def hashed(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]


def answer(problem: hs.Problem, method: str, **arguments: Any) -> str:
    """Return the answer of a method, in one line."""
    try:
        solution = hs.solve(problem, method, **arguments)
    except hs.UnsupportedFeature:
        return "refused"
    text = str(solution.status)
    if solution.schedule is not None:
        text = f"{solution.value.hex()} {digest(solution.schedule)}"
    elif solution.best_effort is not None:
        text += f", {solution.best_effort.bytes_over.hex()} bytes over {digest(solution.best_effort.schedule)}"
    return f"{text} bound {solution.bound.hex()}" if method in PROVING else text


def answers(problem: hs.Problem, method: str, **arguments: Any) -> Answer:
    """Return the answer of a method, for each seed if it depends on the seed."""
    if method not in SEEDED:
        return answer(problem, method, **arguments)
    return [answer(problem, method, seed=seed, **arguments) for seed in SEEDS]


def _ours() -> dict[str, hs.search.Method]:
    """Return the methods of the package, without those that tests register in the same process."""
    return {name: method for name, method in hs.methods().items() if method.function.__module__.startswith("hetsched.")}


def repeatable() -> list[str]:
    """Return the methods whose answers under an evaluation limit are equal to the bit."""
    return [name for name, method in _ours().items() if name not in EXACT and (method.deterministic or name == "multilevel")]


# ---------------------------------------------------------------------- sections


def methods() -> Rows:
    for method in repeatable():
        for name, problem in [*cases(8 if method in SLOW else 1).items(), *networks().items()]:
            if (method, name) not in SKIPPED:
                yield method, name, answers(problem, method, evaluations=200)
    for method in sorted(SEEDED - set(SLOW)):
        for name, problem in networks().items():
            yield f"{method}, 20,000 evaluations", name, answer(problem, method, evaluations=20_000)


def auto() -> Rows:
    for name, problem in [*cases(2).items(), *networks().items()]:
        yield "auto", name, answer(problem, "auto", evaluations=300, options={"workers": 0})


def objectives() -> Rows:
    for method in repeatable():
        for name, problem in [] if method in SLOW else cases(8).items():
            yield f"{method}, period", name, answers(problem, method, evaluations=200, objective="period")
        for objective in ("period", "max-load"):
            for name, problem in networks().items():
                if (method, name) not in SKIPPED:
                    yield f"{method}, {objective}", name, answers(problem, method, evaluations=200, objective=objective)
    for objective in ("period", "max-load"):
        for name, problem in networks().items():
            yield f"auto, {objective}", name, answer(problem, "auto", evaluations=300, options={"workers": 0}, objective=objective)


def bounds() -> Rows:
    problems = {**cases(), **networks()}
    for bound, path in BOUNDS.items():
        for name, problem in problems.items():
            if (bound, name) not in SKIPPED:
                yield bound, name, function(path)(problem).value.hex()
    for objective in ("makespan", "period", "max-load"):
        for name, problem in problems.items():
            yield f"every, {objective}", name, [best.value.hex() for best in function(EVERY)(problem, objective=objective)]
    for name, problem in problems.items():
        if function(SMALL)(problem):
            yield "linear relaxation", name, function(LINEAR_RELAXATION)(problem).value.hex()


def exact() -> Rows:
    problems = {**cases(4), "small stack": networks()["small stack"]}
    for method in EXACT:
        for objective in ("period", "max-load") if method == "load-milp" else ("makespan",):
            for name, problem in problems.items():
                if (method, name) in SKIPPED:
                    continue
                try:
                    solution = hs.solve(problem, method, objective=objective, evaluations=EVALUATED.get(method))
                except hs.UnsupportedFeature:
                    yield f"{method}, {objective}", name, "refused"
                else:
                    yield f"{method}, {objective}", name, [str(solution.status), str(solution.value), str(solution.bound)]


def formulations() -> Rows:
    problems = {**cases(), **networks()}
    for kind, name, options in FORMULATIONS:
        lines = mps(getattr(hs.models, kind)(problems[name], **options))
        start = {line.split()[0]: number for number, line in enumerate(lines) if line[:1].isalpha()}
        rows = start["COLUMNS"] - start["ROWS"] - 1
        columns = {line.split()[0] for line in lines[start["COLUMNS"] + 1 : start["RHS"]] if "'MARKER'" not in line}
        arguments = ", ".join(f"{key}={value!r}" for key, value in options.items())
        yield f"{kind}({arguments})", name, f"{rows} rows, {len(columns)} columns, {hashed(chr(10).join(lines).encode())}"


def mps(formulation: hs.models.Formulation) -> list[str]:
    """Return the lines of a formulation's .mps text without comments."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.mps"
        formulation.model.write(path)
        return [line for line in path.read_text().splitlines() if not line.startswith("*")]


def stages() -> Rows:
    for network in hs.workloads.networks.names():
        graph = hs.workloads.networks.load(network)
        cost = hs.costs.Contention(graph, hs.costs.device("v100"))
        for name, path in STAGES.items():
            schedule = function(path)(graph, cost)
            groups = json.dumps([schedule.groups(stage) for stage in range(len(schedule))])
            yield name, network, f"{schedule.latency.hex()} {hashed(groups.encode())}"


def names() -> Rows:
    for name in hs.__all__:
        yield "hetsched.__all__", name, type(getattr(hs, name)).__name__
    for door in doors():
        yield "callables", door.name, ", ".join(parameter.name for parameter in door.parameters)
    for name, method in _ours().items():
        yield "options of methods", name, repr(method.options)


def versions() -> Rows:
    for name in PACKAGES:
        yield "packages", name, importlib.metadata.version(name)


SECTIONS: dict[str, Callable[[], Rows]] = {
    section.__name__: section for section in (versions, names, formulations, stages, bounds, exact, methods, objectives, auto)
}

# ---------------------------------------------------------------------- recording


def made(section: str) -> Record:
    """Compute a section of the record; prints each group when it is done."""
    hs.methods()  # loads all methods, so that answers do not depend on the order of loading
    record: Record = {}
    began = time.perf_counter()
    for group, name, answer in SECTIONS[section]():
        if group not in record:
            print(f"{time.perf_counter() - began:7.1f} s  {section}: {group}", flush=True)
        record.setdefault(group, {})[name] = answer
    return record


def committed(section: str, folder: Path = HERE) -> Record:
    """Read a section of the committed record."""
    record: Record = json.loads((folder / f"{section}.json").read_text(encoding="utf-8"))
    return record


def differences(section: str, before: Record, now: Record) -> list[str]:
    """Return a line for each answer that differs."""
    lines = []
    for group in dict.fromkeys([*before, *now]):
        old, new = before.get(group, {}), now.get(group, {})
        for name in dict.fromkeys([*old, *new]):
            was, is_now = old.get(name, "absent"), new.get(name, "absent")
            if was != is_now and not (section in SAME and SAME[section](was, is_now)):
                lines.append(f"{section}: {group}, {name}: was {was}, is {is_now}")
    return lines


def added(before: Record, now: Record) -> Record:
    """Return the recorded answers and, of those that are computed now, the new ones."""
    return {group: {**now.get(group, {}), **before.get(group, {})} for group in dict.fromkeys([*now, *before])}


def close(was: Answer, is_now: Answer) -> bool:
    """Return whether two answers of a solver agree in their status, and in their value and bound to `TOLERANCE`."""
    if isinstance(was, str) or isinstance(is_now, str) or was[0] != is_now[0]:
        return False
    return all(math.isclose(float(a), float(b), rel_tol=TOLERANCE) for a, b in zip(was[1:], is_now[1:], strict=True))


def rounded(was: Answer, is_now: Answer) -> bool:
    """Return whether two bounds, or lists of bounds, agree to `ROUNDING`."""
    before, now = ([answer] if isinstance(answer, str) else answer for answer in (was, is_now))
    return (
        len(before) == len(now)
        and "absent" not in (was, is_now)
        and all(math.isclose(float.fromhex(a), float.fromhex(b), rel_tol=ROUNDING) for a, b in zip(before, now, strict=True))
    )


SAME = {"exact": close, "bounds": rounded}
"""By section, whether two answers that differ are the same."""


def main(arguments: list[str] | None = None) -> int:
    """Record or compare; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.reference.record", description=__doc__.splitlines()[0])
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--check", action="store_true", help="compare with the record instead of writing it")
    how.add_argument("--add", action="store_true", help="write only answers that are not recorded; no section where another differs")
    parser.add_argument("--folder", type=Path, default=HERE, help="where the record is, if not beside this file")
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"some of {', '.join(SECTIONS)}; default all")
    chosen = parser.parse_args(arguments)
    unknown = set(chosen.sections) - set(SECTIONS)
    if unknown:
        parser.error(f"no section {', '.join(sorted(unknown))}; choose from {', '.join(SECTIONS)}")
    lines = []
    for section in chosen.sections or SECTIONS:
        record = made(section)
        if chosen.check:
            lines += differences(section, committed(section, chosen.folder), record)
            continue
        if chosen.add:
            extended = added(committed(section, chosen.folder), record)
            changed = differences(section, extended, record)
            lines += changed
            if changed:
                continue
            record = extended
        text = json.dumps(record, indent=0, ensure_ascii=False) + chr(10)
        (chosen.folder / f"{section}.json").write_text(text, encoding="utf-8")
    for line in lines:
        print(line)
    if chosen.check or chosen.add:
        print(f"{len(lines)} differences")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
