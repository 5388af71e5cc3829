"""Schedules of a captured module in the terms of PyTorch's tools: devices of modules, and where a pipeline is divided."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
import torch

from hetsched.arguments import checked
from hetsched.errors import InvalidProblem, InvalidSchedule, UnsupportedFeature, warn
from hetsched.problem.graph import TaskGraph, named
from hetsched.problem.modules import ancestors, module_of
from hetsched.problem.problem import Problem
from hetsched.schedule.schedule import Schedule


@checked(InvalidProblem)
def whole_modules(model: torch.nn.Module, graph: TaskGraph, no_split: Collection[str] | None = None) -> list[str]:
    """Return the outermost modules that have to be on one device each, as `hetsched.coarsening.by_module` takes them.

    These are the modules of classes that must not be split, those with parameters or buffers beside the modules inside, and those that
    combine several tensors in their own ``forward``, such as residual blocks; the model itself is none.

    Parameters
    ----------
    model : torch.nn.Module
    graph : TaskGraph
        Its graph, by `capture` or `record`.
    no_split : collection of str, optional
        Names of classes. Default: ``_no_split_modules`` of the model, which models of Transformers have.
    """
    classes = set((getattr(model, "_no_split_modules", None) or ()) if no_split is None else no_split)
    modules = dict(model.named_modules())
    readers = np.bincount(graph.target, minlength=graph.n_tasks)
    combining = {module_of(name) for name, count in zip(graph.names, readers.tolist(), strict=True) if count > 1 and name not in modules}
    used = {outer for name in graph.names for outer in ancestors(_path(name, modules))}
    whole: list[str] = []
    for path, module in modules.items():
        joined = not _childless(module) and (bool(_own(module)) or path in combining)
        if path in used and (joined or type(module).__name__ in classes) and not any(outer in whole for outer in ancestors(path)):
            whole.append(path)
    return whole


@checked
def device_map(
    model: torch.nn.Module,
    problem: Problem,
    schedule: Schedule,
    devices: Mapping[str, str | int] | None = None,
    *,
    no_split: Collection[str] | None = None,
) -> dict[str, str | int]:
    """Return the device of each module of a schedule, as ``dispatch_model`` of Accelerate and ``device_map=`` of Transformers take it.

    Modules that must not be split have to be on one device: solve the problem that
    ``coarsening.by_module(problem, None, whole=whole_modules(model, problem.graph))`` makes.

    Parameters
    ----------
    model : torch.nn.Module
    problem : Problem
        Of the graph that was captured from the model, or coarsened by module.
    schedule : Schedule
        A schedule of it.
    devices : mapping of str to str or int, optional
        What the tool calls a device, such as ``{"t4": 0, "host": "cpu"}``. Default: the names in the problem.
    no_split
        As for `whole_modules`.

    Returns
    -------
    dict
        As few modules as cover every parameter and buffer; ``""`` is the whole model. A module without tasks, such as a batch norm that is
        part of a convolution, is where the module before it is.

    Raises
    ------
    InvalidProblem, InvalidSchedule
        No task is of a module of the model; the schedule is of other tasks; or `devices` lacks one of its devices.
    UnsupportedFeature
        A module that must not be split is on several devices, or an operator between modules would read tensors on several devices.
    """
    placed = _placed(model, problem, schedule)
    undivided = {*whole_modules(model, problem.graph, no_split), *(path for path, module in model.named_modules() if _childless(module))}
    found = _devices(placed, undivided)
    _check_operators(problem.graph, placed, undivided, found)
    leaves: dict[str, str] = {}
    last = next(iter(placed.values()))[1]
    for path, module in model.named_modules():
        on = next((found[outer] for outer in reversed(ancestors(path)) if outer in found), set())
        if len(on) == 1:
            (last,) = on
        if _childless(module):
            leaves[path] = last
        else:
            leaves |= {".".join(filter(None, (path, name))): last for name in _own(module)}
    names = {name: name for name in schedule.devices} if devices is None else dict(devices)
    missing = sorted(set(leaves.values()) - names.keys())
    if missing:
        raise InvalidSchedule(f"devices has no entry for {missing[0]!r}, which the schedule uses; give the tool's name of it")
    return {path: names[on] for path, on in _merged(leaves).items()}


@checked
def split_spec(model: torch.nn.Module, problem: Problem, schedule: Schedule) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return where ``torch.distributed.pipelining.pipeline`` divides a model, and the device of each stage.

    Each device has to run an interval of the model in the order of execution, as the method ``"contiguous"`` finds it on
    ``coarsening.by_module(problem, None, whole=...).coarse`` under ``objective="period"`` where modules follow one another.

    Parameters
    ----------
    model, problem, schedule
        As for `device_map`.

    Returns
    -------
    split_spec : dict
        ``SplitPoint.BEGINNING`` by the name of the first module of each stage but the first; ``SplitPoint.END`` by that of the last
        module before it where a stage begins with an operator outside modules.
    devices : tuple of str
        The device of each stage: of rank 0, 1, ...

    Raises
    ------
    InvalidProblem, InvalidSchedule
        As for `device_map`.
    UnsupportedFeature
        A device would have two stages, or a stage would begin inside a module.
    """
    from torch.distributed.pipelining import SplitPoint

    placed = _placed(model, problem, schedule)
    steps = list(placed.values())
    called = {path for path, module in model.named_modules() if type(module).forward is not torch.nn.Module.forward}  # no ModuleList
    spec: dict[str, Any] = {}
    stages = [steps[0][1]]
    for k in range(1, len(steps)):
        if steps[k][1] == stages[-1]:
            continue
        before, after = [path for path, _ in steps[:k]], [path for path, _ in steps[k:]]
        begins, ends = (
            next((outer for outer in ancestors(at) if outer in called and not any(outer in ancestors(path) for path in others)), "")
            for at, others in ((after[0], before), (before[-1], after))
        )
        if steps[k][1] in stages:
            raise UnsupportedFeature(
                f"the device {steps[k][1]!r} would have two stages, the second from {_where(after[0])}; give each an interval of the "
                'model: solve(coarsening.by_module(problem, None, whole=...).coarse, "contiguous", objective="period")'
            )
        if not begins and not ends:
            raise UnsupportedFeature(
                f"a stage would begin inside {_where(after[0])}; pipelining divides at modules: coarsen the problem by_module first"
            )
        spec[begins or ends] = SplitPoint.BEGINNING if begins else SplitPoint.END
        stages.append(steps[k][1])
    return spec, tuple(stages)


def _where(path: str) -> str:
    return f"module {path!r}" if path else "the model itself"


def _placed(model: torch.nn.Module, problem: Problem, schedule: Schedule) -> dict[str, tuple[str, str]]:
    """Return the module and the device of each task, in the order of the graph; inputs are left out."""
    if schedule.tasks != problem.graph.names:
        raise InvalidSchedule("the schedule has other tasks than the problem; give the problem that was solved, or lift the decision")
    modules = dict(model.named_modules())
    placed: dict[str, tuple[str, str]] = {}
    for task, k in zip(schedule.batches.task.tolist(), schedule.batches.device.tolist(), strict=True):
        name = schedule.tasks[task]
        path = _path(name, modules)
        if path not in modules:
            raise InvalidProblem(f"task {name!r} is of the module {path!r}, which the model has not; capture the problem from this model")
        if placed.setdefault(name, (path, schedule.devices[k]))[1] != schedule.devices[k]:
            raise UnsupportedFeature(f"task {name!r} runs on several devices, for different inputs; a module has one device")
    real = [name for name, op in zip(problem.graph.names, problem.graph.op, strict=True) if op != "input" and name in placed]
    if not any(placed[name][0] for name in real):
        raise InvalidProblem("no task is of a module of the model; capture the problem from this model")
    return {name: placed[name] for name in real}


def _path(task: str, modules: Collection[str]) -> str:
    """Return the module of a task, or of a cluster that is named as a module."""
    return task if task in modules else module_of(task)


def _childless(module: torch.nn.Module) -> bool:
    return next(module.children(), None) is None


def _own(module: torch.nn.Module) -> list[str]:
    """Return the names of the parameters and buffers of a module, without those of the modules inside."""
    return [name for name, _ in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))]


def _devices(placed: Mapping[str, tuple[str, str]], undivided: set[str]) -> dict[str, set[str]]:
    """Return the devices of what is inside each module, of which those that are not divided have one; ``""`` is the model."""
    found: dict[str, set[str]] = {}
    for name, (path, on) in placed.items():
        outers = ancestors(path)
        if name == path or not undivided.isdisjoint(outers):
            for outer in ("", *outers):
                found.setdefault(outer, set()).add(on)
    for path in sorted(undivided & found.keys()):
        if len(found[path]) > 1:
            raise UnsupportedFeature(
                f"module {path!r}, which must not be split, is on {_listed(found[path])}; solve the problem of "
                "coarsening.by_module(problem, None, whole=whole_modules(model, problem.graph))"
            )
    return found


def _check_operators(graph: TaskGraph, placed: Mapping[str, tuple[str, str]], undivided: set[str], found: Mapping[str, set[str]]) -> None:
    """Check the operators between modules: they run on the device of the module around them, or of what they read."""
    on: dict[int, str] = {}
    elsewhere = []
    for i in graph.topological_order.tolist():
        name = graph.names[i]
        if name not in placed:
            continue  # an input is moved to what reads it
        path, device = placed[name]
        around = next((found[outer] for outer in ("", *ancestors(path)) if len(found.get(outer, ())) == 1), None)
        read = around or {on[j] for j in graph.pred[graph.pred_ptr[i] : graph.pred_ptr[i + 1]].tolist() if j in on}
        if len(read) > 1 and name != path:
            raise UnsupportedFeature(
                f"task {name!r} is an operator between modules and would read tensors on {_listed(read)}, which nothing moves; "
                "pin the tasks that it reads to one device"
            )
        on[i] = device if name == path or not read else min(read)
        if on[i] != device:
            elsewhere.append(name)
    if elsewhere:
        names = named(range(len(elsewhere)), elsewhere)
        warn(f"operators between modules run where their inputs are, not where the schedule has them: {names}")


def _listed(devices: Iterable[str]) -> str:
    return " and ".join(map(repr, sorted(devices)))


def _merged(leaves: Mapping[str, str]) -> dict[str, str]:
    """Return as few modules as have the same devices inside."""
    inside: dict[str, set[str]] = {}
    for path, on in leaves.items():
        for outer in ("", *ancestors(path)):
            inside.setdefault(outer, set()).add(on)
    merged: dict[str, str] = {}
    for path, on in leaves.items():
        merged[next(outer for outer in ("", *ancestors(path)) if len(inside[outer]) == 1)] = on
    return merged
