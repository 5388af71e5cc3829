"""Every public function, constructor and method with one wrong argument at a time.

A wrong call either raises an error of this package that names the argument, before any work, or is valid after all.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import importlib
import inspect
import math
import os
import random
import re
import warnings
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pytest

import hetsched as hs
from hetsched import arguments
from hetsched.analysis.levels import Levels
from hetsched.arguments import annotations
from hetsched.bounds import best
from hetsched.modeling import backends
from hetsched.modeling.settings import SolveSettings
from hetsched.models.variables import AssignmentVariables, Objective
from hetsched.search import Auto, Supports
from hetsched.stopping import Stop
from tests.public import Door, doors

ROOT = Path(hs.__file__).parent


# ---------------------------------------------------------------- right values


@functools.cache
def graph() -> hs.TaskGraph:
    return hs.TaskGraph(["a", "b", "c"], [("a", "b", 4.0), ("a", "c", 2.0)], output_bytes=1.0, op=["conv2d", "relu", "relu"], flops=8.0)


@functools.cache
def problem() -> hs.Problem:
    cluster = hs.Cluster([hs.Device("x", memory_bytes=64.0, peak_flops={"float32": 4.0}, memory_bandwidth=4.0), "y"], bandwidth=2.0)
    return hs.Problem(graph(), cluster, durations=[[3, 1], [1, 3], [2, 2]])


@functools.cache
def solution() -> hs.Solution:
    return hs.solve(problem(), "heft")


@functools.cache
def certificate() -> hs.Certificate:
    made = hs.certify(problem())
    assert made is not None
    return made


def timeline() -> hs.costs.Timeline:
    return hs.runtime.forecast(problem(), schedule())


def plan() -> hs.runtime.Plan:
    return hs.runtime.Plan(problem(), schedule().decision)


def run_times() -> hs.costs.RunTimes:
    batches, moves, waited = schedule().batches, schedule().transfers, np.zeros(3)
    return hs.costs.RunTimes(batches.start, batches.finish, waited, waited, moves.start, moves.finish, schedule().makespan)


def schedule() -> hs.Schedule:
    result = solution().schedule
    assert result is not None
    return result


@functools.cache
def stage_schedule() -> hs.StageSchedule:
    return hs.StageSchedule.from_groups(["a", "b", "c"], [[["a"]], [["b"], ["c"]]], ["concurrent", "concurrent"], [1.0, 1.0])


class Profiler:
    """A profiler with 1 s per task and input."""

    devices = (hs.Device("x"), hs.Device("y"))

    @property
    def graph(self) -> hs.TaskGraph:
        return graph()

    def measure(self, inputs: int, placement: object) -> Any:
        return hs.costs.Measured(np.full(3, float(inputs)), np.zeros(3))

    def transfer(self, size: int, source: str, target: str) -> float:
        return 1.0 + size


class Nothing(hs.models.Component):
    """A component that adds nothing."""

    def add_to(self, formulation: object) -> None:
        pass


def cost(tasks: tuple[str, ...], strategy: str) -> float:
    return float(len(tasks))


def observation() -> Any:
    return hs.runtime.Observation(0, schedule().decision, np.ones(3), np.zeros(2), 4.0)


@functools.cache
def samples() -> Any:
    return hs.costs.measure(Profiler(), [1, 2])


@functools.cache
def whole_profile() -> Any:
    recorder = hs.costs.Recorder(Profiler())
    hs.costs.measure(recorder, [1, 2])
    hs.costs.Links.measured(recorder, [1, 8])
    return recorder.profile


def analytic() -> Any:
    family = hs.costs.Family("a test", "today", 1, {"other": 1.0}, {"other": 1.0}, {"all": 2.0})
    return hs.costs.Analytic(families={" float32": family})


def model() -> Any:
    made = hs.modeling.Model()
    made.binary("x", 2)
    return made


def columns_of(count: int) -> Any:
    made = hs.modeling.Model()
    made.binary("x", count)
    return made


def never() -> Any:
    from hetsched.stopping import NEVER

    return NEVER


def stages_measured() -> Any:
    cost = hs.costs.Contention(graph(), hs.costs.device("v100"))
    stages = [("a",), ("b",), ("c",), ("b", "c"), ("a", "b"), ("a", "c"), ("a", "b", "c")]
    return [(tasks, "concurrent", cost(tasks, "concurrent")) for tasks in stages]


def refuted() -> Any:
    single = subset()
    single.refute(single.node(), 100.0, refutation_budget())
    return single


def columns(made: Any) -> Any:
    return made.binary("z", 2)


def formulation() -> Any:
    return hs.models.BatchedMakespan(problem())


def program() -> Any:
    return hs.modeling.DynamicProgram([0, 0, 1, 2], [1, 2, 3, 3], [1.0, 2.0, 3.0, 1.0])


def single_input() -> Any:
    from hetsched.analysis.task_subsets import SingleInputProblem

    return SingleInputProblem(problem())


def subset() -> Any:
    from hetsched.analysis.task_subsets import TaskSubset

    return TaskSubset(single_input(), np.array([0, 1]), np.array([0]))


def release_times() -> Any:
    from hetsched.analysis import levels
    from hetsched.bounds.release_times import ReleaseTimes

    return ReleaseTimes(problem(), levels.least_durations(problem()), [np.array([0]), np.array([1, 2])])


def refutation_budget() -> Any:
    from hetsched.analysis.task_subsets import RefutationBudget

    return RefutationBudget()


@functools.cache
def module_of_series() -> Any:
    from hetsched.decomposition.series import cut

    return cut(problem(), None, 1)[0]


def series() -> Any:
    from hetsched.decomposition.series import Series, cut

    return Series(problem(), cut(problem(), None, 1))


@functools.cache
def net() -> Any:
    import torch

    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).eval()


@functools.cache
def tensor() -> Any:
    import torch

    return torch.ones(2, 4)


@functools.cache
def torch_program() -> Any:
    return hs.runtime.Program(net(), tensor())


@functools.cache
def trained() -> Any:
    return copy.deepcopy(net())


@functools.cache
def optimiser() -> Any:
    import torch

    return torch.optim.SGD(trained().parameters())


@functools.cache
def training_program() -> Any:
    return hs.runtime.TrainingProgram(trained(), tensor(), optimiser=optimiser())


@functools.cache
def document() -> str:
    path = os.path.abspath("right.json")
    problem().write(path)
    return path


def coarsened() -> Any:
    return hs.coarsening.by_module(problem())


def lower_bound() -> hs.Bound:
    return hs.Bound(1.0, "mine")


@functools.cache
def relaxed() -> Any:
    return hs.models.Assignment(problem())


BY_NAME: dict[str, Callable[[], Any]] = {
    "problem": problem,
    "graph": graph,
    "cluster": lambda: problem().cluster,
    "schedule": schedule,
    "solution": solution,
    "answer": solution,
    "decision": lambda: schedule().decision,
    "device": lambda: problem().cluster.devices[0],
    "path": lambda: "written.json",
    "monitor": lambda: hs.Monitor(problem()),
    "budget": hs.search.Budget,
    "cost": lambda: cost,
    "profiler": Profiler,
    "samples": samples,
    "source": lambda: "x",
    "target": lambda: "y",
    "task": lambda: "a",
    "tasks": lambda: ["a", "b", "c"],
    "devices": lambda: ["x", "y"],
    "name": lambda: "heft",
    "method": lambda: "heft",
    "summary": lambda: "what it does",
    "message": lambda: "told",
    "options": dict,
    "asked": lambda: "heft",
    "start": schedule,
    "bound": lower_bound,
    "proof": lower_bound,
    "observation": observation,
    "value": lambda: 1.0,
    "seconds": lambda: 1.0,
    "time": lambda: 1.0,
    "size": lambda: 8,
    "sizes": lambda: [1, 8],
    "edge": lambda: np.array([0]),
    "count": lambda: 1,
    "batch_sizes": lambda: [1, 2],
    "inputs": lambda: 1,
    "history": lambda: solution().history,
    "methods": lambda: solution().methods,
    "seed": lambda: 0,
    "stage": lambda: 0,
    "strategy": lambda: "concurrent",
    "amount": lambda: 1.0,
    "rule": lambda: "overlap",
    "incumbent": lambda: 2.0,
    "assignment": lambda: {"a": "x", "b": "y", "c": "x"},
    "batches": lambda: [("a", "x", [0]), ("b", "x", [0]), ("c", "y", [0])],
    "sequence": lambda: [0, 1, 2],
    "parts": lambda: [np.array([0, 1])],
    "amounts": lambda: np.ones(3),
    "horizon": lambda: 10.0,
    "share": lambda: 0.5,
    "most": lambda: 0.5,
    "placement": lambda: "x",
    "further": coarsened,
    "levels": lambda: [coarsened()],
    "coarse": lambda: coarsened().coarse,
    "actual": samples,
    "profile": samples,
    "old": samples,
    "new": samples,
    "digest": lambda: "a",
    "q25": lambda: 1.0,
    "q75": lambda: 1.0,
    "cpu": lambda: 1.0,
    "bytes_over": lambda: 0.0,
    "what": lambda: "seconds",
    "measured": lambda: [(("a",), "concurrent", 1.0)],
    "i": lambda: 0,
    "deadline": lambda: math.inf,
    "t": lambda: 0,
    "width": lambda: 1,
    "subset": subset,
    "single_input": single_input,
    "node": lambda: subset().node(),
    "nodes": lambda: [subset().node()],
    "pins": list,
    "delivery": lambda: np.zeros((3, 2)),
    "least": lambda: np.ones((3, 2)),
    "edges": lambda: np.array([0]),
    "said": relaxed,
    "data": lambda: b"{}",
    "feature": lambda: "links",
    "kind": lambda: "problem",
    "example_args": tensor,
    "example_kwargs": lambda: None,
    "model": net,
    "module": net,
    "evaluate": lambda: lambda query: hs.modeling.Evaluation(5.0, 5.0, "known"),
    "values": lambda: np.zeros(12),
    "expression": lambda: columns(model()),
    "lower": lambda: np.zeros(2),
    "upper": lambda: np.ones(2),
    "shape": lambda: (2,),
    "component": Nothing,
    "solver": lambda: "scip",
    "iterations": lambda: 3,
    "n_tasks": lambda: 3,
    "generator": lambda: np.random.default_rng(0),
    "n_devices": lambda: 2,
    "factor": lambda: 2.0,
    "iteration": lambda: 0,
    "length": lambda: 1.0,
    "steps": lambda: 2,
    "batch": lambda: 2,
    "layers": lambda: 2,
    "layer": lambda: 2,
    "block": graph,
    "sign": lambda: 1.0,
    "program": torch_program,
    "function": lambda: len,
    "fractions": lambda: np.full((3, 2), 0.5),
    "group": lambda: np.array([0, 1]),
    "speed": lambda: np.ones(2),
    "work": lambda: np.ones(3),
    "first": lambda: 0,
    "decisions": list,
    "mine": lambda: "x",
    "transition": lambda: 0,
    "cutoff": lambda: 1.0,
    "title": lambda: "X",
    "requires": lambda: "numpy",
    "extra": lambda: "",
    "turn": lambda: 50,
    "capabilities": lambda: backends.info("scip").capabilities,
    "bound_tolerance": lambda: 0.0,
    "proves_up_to": lambda: 10,
    "settings": SolveSettings,
    "request": backends.Request,
    "formulation": lambda: relaxed(),
    "reason": lambda: Stop.STOPPED,
    "record": lambda: object(),
}
FORMULATIONS = ("Assignment", "BatchedMakespan", "CongestionAware", "Formulation", "Pesto", "SteadyState")


class LoadObjective(Objective):
    """An objective for a formulation without one."""


def load_objective() -> Objective:
    made = model()
    return LoadObjective(made.time("C"), "makespan", 1.0, lambda problem, schedule: 1.0)


def encoded(name: str) -> Any:
    return SELVES[name]().encode(solution())


def hosted() -> hs.Problem:
    cluster = hs.Cluster([hs.Device("x", kind="cpu"), hs.Device("y", kind="gpu")], bandwidth=2.0)
    return problem().replace(cluster=cluster)


CAPABILITIES = ("continuous", "unbounded", "threads", "intervals", "incremental", "deterministic", "propagators")
EXPRESSIONS = {
    "AssignmentVariables": ("x", "on", "busy", "duration", "batches"),
    "TimeVariables": ("start", "finish"),
    "FlowVariables": ("pair", "leave", "arrive", "moving"),
    "Objective": ("expression",),
}


def chain() -> hs.ChainProblem:
    return hs.ChainProblem(["i", "j"], ["x", "y"], [[1.0, 2.0], [1.0, 2.0]])


def placement() -> hs.Placement:
    return hs.Placement([(0, 0, 1), (1, 1, 2)])


def offloading() -> Any:
    return hs.chain.Offloading([1.0, 0.0], np.ones((2, 2)), np.ones((2, 2)))


def machine() -> hs.Machine:
    cluster = hs.Cluster([hs.costs.device("t4", "x"), hs.costs.device("v100", "y")], bandwidth=1e9)
    return hs.Machine(cluster, tool_names={"x": {"vllm": 0}, "y": {"vllm": 1}})


def known() -> hs.instances.Instance:
    return hs.instances.entry("topcuoglu2002")


def rates() -> hs.costs.Rates:
    known = {"model_bytes": 1e9, "parameters": 5e8}
    return hs.costs.Rates([hs.costs.Rate("x", 1.0, 512, **known), hs.costs.Rate("x", 1.0, 0, 8, **known)])


def llama_bench_file() -> str:
    Path("bench.json").write_text('[{"n_prompt": 512, "n_gen": 0, "avg_ts": 100.0, "gpu_info": "Tesla T4", "n_gpu_layers": 99}]')
    return "bench.json"


def model_plan() -> hs.ModelPlan:
    return hs.plan(model_card(), machine(), hs.Workload(3, 1), tool="vllm")


def vllm() -> hs.planning.tools.Tool:
    return hs.planning.tools.tool("vllm")


CONFIG = {"model_type": "gpt2", "n_embd": 8, "n_head": 2, "n_layer": 1, "n_positions": 4, "vocab_size": 10}


def model_card() -> hs.ModelCard:
    return hs.frontends.configs.read(CONFIG)


def card_file() -> str:
    model_card().write("card.json")
    return "card.json"


def gguf_file() -> str:
    files = importlib.import_module("tests.frontends.test_gguf")
    files.write("model.gguf", "llama", files.dense(1), {**files.FIELDS, "block_count": 1})
    return "model.gguf"


def onnx_file() -> str:
    from onnx import TensorProto, helper, save

    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", "y")]
    save(helper.make_model(helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "net", made[:1], made[1:])), "net.onnx")
    return "net.onnx"


def like_blocks() -> Any:
    import torch

    return torch.nn.Sequential(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)))


def blocks_example() -> Any:
    import torch

    return torch.zeros(1, 3, 2)


@functools.cache
def nested() -> Any:
    import torch

    return torch.nn.Sequential(torch.nn.Linear(2, 2))


@functools.cache
def nested_problem() -> hs.Problem:
    return hs.Problem(hs.TaskGraph(["0/linear"], op="linear"), hs.Cluster(["x"]), durations=[[1.0]])


def other_format(name: str) -> str:
    text, suffix, _ = importlib.import_module("tests.frontends.format_files").FILES[name]
    path = Path(f"{name}{suffix}")
    path.write_text(text)
    return str(path)


def split_file() -> str:
    Path("split.json").write_text('{"fpgas": []}')
    return "split.json"


def related() -> hs.Problem:
    """Return a problem that every format states: one task on one device."""
    return hs.Problem(hs.TaskGraph(["n0"]), hs.Cluster(["host0"]), durations=[[1.0]])


def saga_instance() -> Any:
    task, node = SimpleNamespace(name="a", cost=1.0), SimpleNamespace(name="x", speed=1.0)
    return SimpleNamespace(task_graph=SimpleNamespace(tasks=[task], dependencies=[]), network=SimpleNamespace(nodes=[node], edges=[]))


def pyjobshop_data() -> Any:
    """Return an object with the attributes of a ``ProblemData`` of one machine."""
    machine, constraints, objective = (
        dataclasses.make_dataclass(name, fields)(*values)
        for name, fields, values in (
            ("Machine", ["name"], ["x"]),
            ("Constraints", ["end_before_start", "identical_resources"], [[], []]),
            ("Objective", ["weight_makespan"], [1]),
        )
    )
    return SimpleNamespace(resources=[machine], tasks=[], jobs=[], modes=[], constraints=constraints, objective=objective)


def with_durations() -> Any:
    made = graph().to_networkx()
    for values in made.nodes.values():
        values["durations"] = {"x": 1.0}
    return made


def serving() -> Any:
    return hs.chain.ServingProblem(2, ["a"], [2], [[1.0, 1.0]])


def serving_placement() -> Any:
    return hs.chain.ServingPlacement([0, 1], [1, 2])


def serving_model() -> Any:
    return importlib.import_module("hetsched.models.serving").ServingModel(serving(), 0.0, 2.0)


def instance() -> Any:
    return hs.experiments.Instance("mine", problem())


@functools.cache
def records() -> Any:
    made = hs.experiments.Results()
    key = hs.experiments.SolveCase(instance(), hs.experiments.Configuration("heft")).key
    made.add(key, {"status": "feasible", "makespan": 4.0, "bound": 1.0, "history": [[0.1, 4.0]], "wall_s": 1.0, "cpu_s": 1.0})
    return made


def comparison() -> Any:
    return hs.experiments.Comparison(records())


BY_DOOR: dict[str, Callable[[], Any]] = {
    "experiments.Comparison.results": records,
    "experiments.Comparison.cases.instance": lambda: comparison().instances[0],
    "experiments.Comparison.table.name": lambda: "summary",
    "experiments.Configuration.parse.text": lambda: "heft,peft",
    **{f"experiments.Progress.{name}": lambda: 1 for name in ("done", "total")},
    **{f"experiments.{name}.case": lambda: {"x": 1} for name in ("Progress", "Results.add")},
    "experiments.Progress.says": lambda: "measured",
    "experiments.SolveCase.instance": instance,
    "experiments.SolveCase.configuration": lambda: hs.experiments.Configuration("heft"),
    "experiments.Table.head": lambda: ["a", "b"],
    "experiments.Table.rows": lambda: [["1", "2"]],
    "experiments.cases.problems": lambda: [instance()],
    "experiments.cases.methods": lambda: "heft,peft",
    **{f"experiments.{name}.comparison": comparison for name in ("html", "write_html")},
    "experiments.run.cases": list,
    "experiments.statistics.Interval.mean": lambda: 1.0,
    **{f"experiments.statistics.Interval.{name}": lambda: 1.0 for name in ("low", "high")},
    **{f"experiments.statistics.Profile.{name}": lambda: np.ones(2) for name in ("ratios", "shares")},
    **{f"experiments.statistics.WinTieLoss.{name}": lambda: 1 for name in ("win", "tie", "loss")},
    "experiments.statistics.bootstrap_mean.families": lambda: ["f"] * 12,
    **{f"experiments.statistics.{name}.best": lambda: 1.0 for name in ("gap", "primal_integral")},
    **{f"experiments.statistics.{name}.first": lambda: np.ones(3) for name in ("log_ratios", "win_tie_loss")},
    **{f"experiments.statistics.{name}.second": lambda: np.ones(3) for name in ("log_ratios", "win_tie_loss")},
    "experiments.statistics.performance_profile.values": lambda: np.ones((2, 3)),
    "experiments.statistics.primal_integral.history": lambda: [[1.0, 2.0]],
    "experiments.statistics.primal_integral.limit": lambda: 1.0,
    "experiments.statistics.shifted_geometric_mean.shift": lambda: 1.0,
    "experiments.statistics.signed_rank.differences": lambda: np.arange(6.0),
    **{f"chain.ServingProblem.{name}": lambda name=name: getattr(serving(), name) for name in ("types", "counts", "throughput")},
    "chain.ServingProblem.n_items": lambda: 2,
    **{
        f"chain.Offloading.{name}": lambda name=name: getattr(offloading(), name)
        for name in ("weight_bytes", "kept_seconds", "held_seconds")
    },
    "chain.Offloading.selected.devices": lambda: [0, 1],
    "chain.Offloading.merged.starts": lambda: [0, 1],
    "chain.Offloading.closed.shared_bytes": lambda: 0.0,
    "chain.Offload.item": lambda: 0,
    "chain.Offload.device": lambda: 1,
    "Placement.offloaded_in.stage": lambda: placement().stages[0],
    "Placement.returns.s": lambda: 0,
    "bounds.set_partition.set_partitioning.problem": lambda: hs.Problem(
        hs.TaskGraph(["a"]), hs.Cluster([hs.Device("c", kind="cpu")]), durations=[[1.0]]
    ),
    "chain.ChainValues.held_missing_bytes": lambda: 0.0,
    "chain.ServingPlacement.first": lambda: [0, 1],
    "chain.ServingPlacement.end": lambda: [1, 2],
    "chain.ServingPlacement.of.intervals": lambda: [(0, 0, 1)],
    "chain.ServingFlow.transfers": lambda: np.zeros((3, 3)),
    **{f"{name}.placement": serving_placement for name in ("chain.max_flow", "models.serving.ServingModel.encode", "verify_serving")},
    **{
        f"{name}.problem": serving
        for name in (
            "analysis.serving_units.excess",
            "analysis.serving_units.most_units",
            "analysis.serving_units.units",
            "bounds.serving.capped_load",
            "bounds.serving.counting",
            "bounds.serving.tightest",
            "chain.ServingPlacement.of",
            "chain.max_flow",
            "models.serving.ServingModel",
            "planning.most_throughput",
            "testing.best_serving",
            "verify_serving",
        )
    },
    **{f"analysis.serving_units.{name}.above": lambda: 1.0 for name in ("excess", "most_units", "units")},
    "analysis.serving_units.needed.parts": lambda: 2,
    "bounds.serving.counting.parts": lambda: 2,
    "bounds.serving.ThroughputBound.value": lambda: 1.0,
    "bounds.serving.ThroughputBound.name": lambda: "counting",
    "models.serving.ServingModel.above": lambda: 0.0,
    "models.serving.ServingModel.below": lambda: 2.0,
    "models.serving.ServingModel.decode.values": lambda: serving_model().encode(serving_placement()),
    **{f"planning.ServingProgress.{name}": lambda: 1.0 for name in ("seconds", "value", "bound")},
    "planning.ServingProgress.source": lambda: "even",
    "planning.ServingQuestion.card": model_card,
    "planning.ServingQuestion.machine": machine,
    "planning.ServingQuestion.work": lambda: hs.Workload(3, 1),
    **{f"planning.PlanProgress.{name}": lambda: 1.0 for name in ("elapsed", "value", "bound")},
    "planning.PlanProgress.source": lambda: "even",
    **dict.fromkeys(("planning.explain.deadline", "planning.least_missing.deadline", "ModelPlan.within.deadline"), never),
    **{f"ChainProblem.{name}": lambda name=name: getattr(chain(), name) for name in ("items", "devices", "seconds")},
    **{f"chain.ChainStage.{name}": lambda end=end: end for name, end in (("device", 0), ("first", 0), ("end", 1))},
    **{
        f"chain.ChainValues.{name}": lambda: np.ones(2)
        for name in ("stage_seconds", "hop_seconds", "overlapped_seconds", "overlapped_hops", "stage_bytes", "missing_bytes", "held_bytes")
    },
    "chain.ChainValues.closing_seconds": lambda: 0.0,
    "chain.ChainValues.in_progress": lambda: 2,
    "chain.evaluate.problem": chain,
    "chain.evaluate.placement": placement,
    **{f"planning.{name}.problem": chain for name in ("least_latency", "least_missing", "least_period")},
    "planning.LeastLatencies.latency": lambda: np.ones(2),
    "planning.LeastLatencies.placements": lambda: (None, placement()),
    "planning.LeastPeriod.placement": placement,
    "planning.LeastPeriod.period": lambda: 1.0,
    "planning.Best.value": lambda: 1.0,
    "planning.Best.placement": placement,
    "planning.MemoryStep.memory_bytes": lambda: 1.0,
    "planning.MemoryStep.best": lambda: (1.0, placement()),
    **{f"planning.tools.Command.{name}": lambda: "vllm" for name in ("tool", "text")},
    **{
        f"planning.tools.Tool.{name}": lambda name=name: getattr(vllm(), name)
        for name in ("name", "version", "rule", "find_refusal", "write", "parse", "place")
    },
    **{
        f"planning.tools.Tool.{name}.card": model_card for name in ("closes", "default", "emit", "n_items", "read", "refusal", "restricted")
    },
    "planning.tools.Tool.restricted.problem": lambda: hs.costs.LanguageRoofline().chain(model_card(), machine(), hs.Workload(3, 1)),
    "planning.explain.plan": model_plan,
    **{f"planning.Baseline.{name}": lambda name=name: getattr(model_plan().baselines[0], name) for name in hs.planning.Baseline._fields},
    **{
        f"planning.DeviceLimit.{name}": value
        for name, value in (("device", lambda: "x"), ("with_more", lambda: hs.planning.Best(1.0, None)))
    },
    **{f"planning.Explanation.{name}": lambda: 1 for name in ("most_context", "most_sequences", "most_bits")},
    "modeling.backends.Request.signed.sign": lambda: -1.0,
    "Machine.reserving.reserved_bytes": lambda: {"x": 1e9},
    "ChainProblem.merged.starts": lambda: [0, 1],
    "ModelCard.scaled.factor": lambda: 0.5,
    "frontends.cards.read.path": card_file,
    **{
        f"frontends.{module}.read.path": lambda name=name: other_format(name)
        for module, name in (
            *((name, name) for name in ("dagbench", "fjsp", "moirai", "stg", "wfformat")),
            ("auckland", "gxl"),
            ("dnn_partitioning", "dnn-partitioning"),
        )
    },
    **{f"frontends.{name}.problem": related for name in ("dagbench.write", "dnn_partitioning.read_split", "dnn_partitioning.write_split")},
    **{f"frontends.{name}.write.rename": lambda: True for name in ("auckland", "fjsp", "stg")},
    **{f"frontends.{name}.write.problem": related for name in ("auckland", "fjsp", "stg")},
    "frontends.auckland.read.weight": lambda: "Weight",
    "frontends.auckland.write.schedule": lambda: hs.solve(related(), "heft").schedule,
    "frontends.dnn_partitioning.write_split.assignment": lambda: {"n0": "host0"},
    "frontends.dnn_partitioning.read_split.path": split_file,
    "frontends.networkx.read.graph": with_durations,
    "frontends.pyjobshop.read.data": pyjobshop_data,
    "frontends.saga.read.instance": saga_instance,
    "frontends.read.source": lambda: other_format("fjsp"),
    "frontends.onnx.read.model": onnx_file,
    "frontends.onnx.read_problem.path": onnx_file,
    "frontends.onnx.read_problem.cluster": lambda: hs.workloads.clusters.load("diviml"),
    "frontends.torch.whole_modules.model": nested,
    "frontends.torch.whole_modules.graph": lambda: nested_problem().graph,
    "frontends.torch.card.model": like_blocks,
    "frontends.torch.card.example_args": blocks_example,
    **{f"frontends.torch.{name}.model": nested for name in ("device_map", "split_spec")},
    **{f"frontends.torch.{name}.problem": nested_problem for name in ("device_map", "split_spec")},
    **{f"frontends.torch.{name}.schedule": lambda: hs.solve(nested_problem(), "heft").schedule for name in ("device_map", "split_spec")},
    "frontends.stg.read.processors": lambda: 2,
    "frontends.wfformat.read.bandwidth": lambda: 1.0,
    **{f"planning.tools.Tool.{name}.placement": lambda: model_plan().placement for name in ("emit", "refusal")},
    **{f"planning.tools.Tool.{name}.devices": lambda: [0, 1] for name in ("default", "emit", "read", "refusal", "restricted")},
    "planning.tools.Tool.default.problem": lambda: model_plan().problem,
    "planning.tools.Tool.read.command": lambda: model_plan().command("vllm"),
    "planning.tools.tool.name": lambda: "vllm",
    "frontends.configs.read.path": lambda: CONFIG,
    "frontends.gguf.read.path": gguf_file,
    "frontends.huggingface.card.model": lambda: CONFIG,
    "ModelPlan.command.tool": lambda: "vllm",
    "ModelPlan.with_memory.more_bytes": lambda: 1e9,
    "ModelPlan.with_explanation.explanation": lambda: None,
    **{f"{name}.problem": chain for name in ("testing.best_placements", "testing.placements", "verify_placement")},
    "verify_placement.placement": placement,
    "verify_tensor_parallel.card": model_card,
    "verify_tensor_parallel.machine": machine,
    "verify_tensor_parallel.sets": lambda: [["x"]],
    "verify_tensor_parallel.degree": lambda: 1,
    **{f"ModelPlan.{name}.device": lambda: "x" for name in ("next_memory_step", "with_memory", "break_even")},
    **{f"{name}.card": model_card for name in ("plan", "costs.LanguageRoofline.chain", "costs.LanguageRoofline.serving")},
    **{f"{name}.machine": machine for name in ("plan", "costs.LanguageRoofline.chain", "costs.LanguageRoofline.serving")},
    **{f"{name}.work": lambda: hs.Workload(3, 1) for name in ("plan", "costs.LanguageRoofline.chain", "costs.LanguageRoofline.serving")},
    "ChainProblem.in_progress.n_stages": lambda: 2,
    "ChainProblem.scaled.factor": lambda: 2.0,
    "Placement.stages": lambda: placement().stages,
    "Placement.of.problem": chain,
    "Placement.of.devices": lambda: ["x", "y"],
    "Placement.of.counts": lambda: [1, 1],
    "ModelCard.name": lambda: "m",
    "ModelCard.family": lambda: "gpt2",
    "ModelCard.width": lambda: 8,
    "ModelCard.vocabulary": lambda: 10,
    "ModelCard.items": lambda: model_card().items,
    "ModelCard.parameters": lambda: model_card().parameters,
    "ModelCard.weight_bytes": lambda: model_card().weight_bytes,
    **{f"models.variables.{record}.{name}": lambda: columns(model()) for record, names in EXPRESSIONS.items() for name in names},
    "analysis.levels.Merged.members": lambda: np.ones(2, np.int64),
    "models.variables.AssignmentVariables.seconds": lambda: np.zeros((3, 2)),
    "models.variables.FlowVariables.seconds": lambda: np.zeros((2, 2, 2)),
    "models.variables.Objective.name": lambda: "makespan",
    "models.variables.Objective.ticks_per_second": lambda: 1.0,
    "models.variables.Objective.value": lambda: len,
    "models.variables.Objective.bound.value": lambda: 1.0,
    "models.variables.Objective.bound.tolerance": lambda: 0.0,
    "models.variables.Values.array": lambda: np.zeros(3),
    **{f"models.{name}.variables.kind": lambda: AssignmentVariables for name in FORMULATIONS},
    **{f"models.{name}.minimise.objective": lambda: load_objective() for name in FORMULATIONS},
    "bounds.best.Entry.bound": lambda: best.BOUNDS[0].bound,
    "bounds.best.Entry.cost": lambda: best.Cost.CHEAP,
    "bounds.relaxation.relaxed.model": model,
    "modeling.backends.BackendInfo.module": lambda: "x",
    "modeling.backends.info.name": lambda: "scip",
    "models.Pesto.problem": lambda: problem().replace(communication="channel"),
    "models.Pesto.check.problem": lambda: problem().replace(communication="channel"),
    "Decision.device": lambda: [0, 1, 0],
    "Decision.task": lambda: [0, 1, 2],
    "Decision.whole.device": lambda: [0, 1, 0],
    "Device.kind": lambda: "gpu",
    "Device.name": lambda: "x",
    "Event.source": lambda: "heft",
    "Event.bound": lambda: 1.0,
    "Problem.durations": lambda: [[3, 1], [1, 3], [2, 2]],
    "Problem.transfer_times.source": lambda: np.array([0]),
    "Problem.transfer_times.target": lambda: np.array([1]),
    "Schedule.from_columns.tasks": lambda: ("a", "b", "c"),
    "Schedule.from_columns.devices": lambda: ("x", "y"),
    "Schedule.from_columns.n_inputs": lambda: 1,
    "Schedule.from_columns.batches": lambda: schedule().batches,
    "Schedule.from_columns.item_ptr": lambda: schedule().item_ptr,
    "Schedule.from_columns.items": lambda: schedule().items,
    "Schedule.from_columns.transfers": lambda: schedule().transfers,
    "StageSchedule.from_groups.groups": lambda: [[["a"]], [["b"], ["c"]]],
    "StageSchedule.from_groups.strategies": lambda: ["concurrent"] * 2,
    "StageSchedule.from_groups.latencies": lambda: [1.0, 1.0],
    "TaskGraph.from_dataframe.tasks": lambda: graph().to_dataframe(),
    "TaskGraph.from_networkx.graph": lambda: graph().to_networkx(),
    "TaskGraph.edges": lambda: [("a", "b")],
    "analysis.isomorphism.Copy.of": lambda: 0,
    "analysis.isomorphism.Copy.tasks": lambda: np.array([0]),
    "analysis.modules.Modules.of_task": lambda: np.array([0, 1, 1]),
    "analysis.modules.Modules.channels": lambda: 1,
    "analysis.modules.Modules.cuts": lambda: np.array([0]),
    "bounds.batches.Handover.boundary": lambda: 0,
    "analysis.levels.CriticalPath.tasks": lambda: np.array([0]),
    "analysis.levels.Windows.start": lambda: np.ones((3, 2)),
    "analysis.levels.Windows.finish": lambda: np.ones((3, 2)),
    "analysis.levels.Windows.possible": lambda: np.ones((3, 2), bool),
    "bounds.batches.handover.modules": lambda: [np.array([0]), np.array([1, 2])],
    "bounds.batches.handover.deadline": never,
    "bounds.release_times.ReleaseTimes.modules": lambda: [np.array([0]), np.array([1, 2])],
    "bounds.release_times.ReleaseTimes.raise_.budget": refutation_budget,
    "bounds.release_times.ReleaseTimes.join.budget": refutation_budget,
    "analysis.task_subsets.TaskSubset.least.budget": refutation_budget,
    "analysis.task_subsets.TaskSubset.refute.budget": refutation_budget,
    "analysis.task_subsets.TaskSubset.tasks": lambda: np.array([0, 1]),
    "analysis.task_subsets.TaskSubset.ancestry.tasks": lambda: [1],
    "analysis.task_subsets.TaskSubset.node.pins": lambda: [(0, 0)],
    "coarsening.Coarsening.cluster": lambda: coarsened().cluster,
    "coarsening.acyclic.cluster": lambda: [0, 1, 1],
    "coarsening.contract.cluster": lambda: [0, 1, 1],
    "coarsening.settled.cluster": lambda: [0, 1, 1],
    "coarsening.Coarsening.lift.decision": lambda: coarsened_decision(),
    "coarsening.Coarsening.then.further": lambda: hs.coarsening.contract(coarsened().coarse, range(coarsened().coarse.n_tasks)),
    "costs.Contention.__call__.tasks": lambda: ("a",),
    "costs.Contention.device": lambda: hs.costs.device("v100"),
    "costs.Kernels.body": lambda: np.ones(4),
    "costs.Kernels.work": lambda: np.ones(4),
    "costs.Kernels.move": lambda: np.ones(4),
    "costs.Kernels.launched": lambda: np.ones(4, bool),
    "costs.Contention.fitted.measured": lambda: stages_measured(),
    "costs.Links.seconds": lambda: np.ones((2, 2, 2)) * [1.0, 2.0],
    "costs.Roofline.durations.cluster": lambda: hs.Cluster(problem().cluster.devices[:1]),
    "costs.Links.devices": lambda: ["x", "y"],
    "costs.Measured.seconds": lambda: np.ones(3),
    "costs.Measured.memory_bytes": lambda: np.ones(3),
    "costs.Profile.from_arrays.seconds": lambda: np.ones((3, 2, 2)),
    "costs.StageTime.groups": lambda: (("a",),),
    "costs.Profile.stage.groups": lambda: (("a",),),
    "costs.Profile.stage.device": lambda: samples().devices[0],
    "Shape.columns": lambda: 1.0,
    "Shape.rows": lambda: 1.0,
    "Shape.reduction": lambda: 1.0,
    "costs.Rates.rows": lambda: rates().rows,
    "costs.Rates.parse.text": lambda: "x:pp512=100,tg8=10",
    "costs.Rates.read_llama_bench.path": llama_bench_file,
    "costs.Rates.efficiency.machine": machine,
    "costs.Rate.device": lambda: "x",
    "costs.Rate.seconds": lambda: 1.0,
    "costs.devices.kind_of.name": lambda: "Tesla T4",
    "costs.devices.sources.kind": lambda: "t4",
    "costs.devices.machine.devices": lambda: ["t4", "v100"],
    "problem.interconnects.Interconnect.bandwidth": lambda: 1e9,
    "problem.interconnects.Interconnect.latency": lambda: 1e-5,
    "problem.interconnects.Interconnect.source": lambda: "assumed",
    "problem.interconnects.link.name": lambda: "pcie4-x16",
    "Machine.names_in.tool": lambda: "vllm",
    "Machine.with_efficiency.efficiency": lambda: {"x": (0.5, 0.5)},
    "problem.catalogue.Specification.units": lambda: 1,
    "problem.catalogue.Specification.cache_bytes": lambda: 1.0,
    "costs.Profile.amounts.digests": lambda: ["a"],
    "costs.Profile.on_lines.digests": lambda: ["a"],
    "costs.Analytic.durations.cluster": lambda: hs.Cluster(problem().cluster.devices[:1]),
    "costs.Analytic.error.cluster": lambda: hs.Cluster(problem().cluster.devices[:1]),
    "costs.Profiled.durations.cluster": lambda: hs.Cluster(problem().cluster.devices[:1]),
    "costs.Profiled.sources.cluster": lambda: hs.Cluster(problem().cluster.devices[:1]),
    "costs.Profile.device.name": lambda: "x",
    "costs.Profile.merge.other": samples,
    "costs.Profile.pooled.device": lambda: "x",
    "costs.Profile.stolen.device": lambda: "x",
    "costs.Recorder.described.device": lambda: "x",
    "runtime.ModuleProfiler.described.device": lambda: torch_profiler().devices[0].name,
    "runtime.ModuleProfiler.described.session": lambda: "now",
    "costs.Network.digests": lambda: ("a", "b", "c"),
    "costs.profile.Pooled.runs": lambda: 1,
    "costs.profile.Pooled.seconds": lambda: 1.0,
    "costs.profile.Pooled.memory_bytes": lambda: 1.0,
    "costs.profile.Pooled.sessions": lambda: (("", 1.0),),
    "costs.Deviations.between.estimated": lambda: np.ones(3),
    "costs.Deviations.between.devices": lambda: ["x", "y", "x"],
    "costs.Deviations.between.batch_sizes": lambda: [1, 2, 1],
    "costs.Deviations.between.actual": lambda: np.ones(3),
    "costs.device.kind": lambda: "t4",
    "problem.catalogue.Specification.peak_flops": lambda: {"float32": 1.0},
    "problem.catalogue.Specification.memory_bytes": lambda: 1.0,
    "problem.catalogue.Specification.memory_bandwidth": lambda: 1.0,
    "documents.encode.value": problem,
    "documents.write.value": problem,
    "method.name": lambda: f"mine{random.random()}",
    "modeling.DynamicProgram.tail": lambda: [0, 0, 1, 2],
    "modeling.DynamicProgram.head": lambda: [1, 2, 3, 3],
    "modeling.DynamicProgram.lower": lambda: [1.0, 2.0, 3.0, 1.0],
    "modeling.DynamicProgram.around.cost": lambda: np.ones(4),
    "modeling.DynamicProgram.least.cost": lambda: np.ones(4),
    "modeling.DynamicProgram.shortest.cost": lambda: np.ones(4),
    "modeling.Expression.shape": lambda: (1,),
    "modeling.Expression.ptr": lambda: np.array([0, 1]),
    "modeling.Expression.column": lambda: np.array([0]),
    "modeling.Expression.coefficient": lambda: np.ones(1),
    "modeling.Expression.constant": lambda: np.zeros(1),
    **{f"models.{name}.{method}.values": functools.partial(encoded, name) for name in FORMULATIONS for method in ("decode", "offer")},
    "models.components.shared_resources.links": lambda: problem().links,
    "report.write_gantt.path": lambda: "gantt.svg",
    **{f"report.{name}.plan": model_plan for name in ("plan_html", "write_plan")},
    "schedule.objectives.host_times.problem": lambda: hosted(),
    "schedule.objectives.max_load.problem": lambda: hosted(),
    "workloads.transformers.stack.block": lambda: hs.workloads.transformers.block("125M"),
    **{f"modeling.backends.Capabilities.{name}": lambda: True for name in CAPABILITIES},
    "testing.clocks.SteppingClock.late.deadline": lambda: never(),
    "modeling.Incumbent.objective": lambda: 1.0,
    "modeling.NewBound.bound": lambda: 1.0,
    "modeling.Model.add.rows": lambda: columns(model()) <= 1,
    "modeling.Model.implies.rows": lambda: columns(model()) <= 1,
    "modeling.Model.implies.literals": lambda: columns(model()),
    "modeling.Model.exactly_one.literals": lambda: columns(model()),
    "modeling.Model.violations.values": lambda: np.zeros(8),
    "modeling.Model.integer.lower": lambda: 0,
    "modeling.Model.integer.upper": lambda: 2,
    "modeling.Model.interval.start": lambda: columns(model()),
    "modeling.Model.interval.size": lambda: np.ones(2),
    "modeling.Model.maximise.objective": lambda: columns(model()).sum(),
    "modeling.Model.minimise.objective": lambda: columns(model()).sum(),
    "modeling.Model.maximum.terms": lambda: columns(model()),
    "modeling.Model.set_bounds.columns": lambda: columns(model()),
    "modeling.Model.propagate.columns": lambda: columns(model()),
    "modeling.Model.propagate.tighten": lambda: lambda lower, upper: -1,
    "modeling.Model.no_overlap.intervals": lambda: intervals(),
    "modeling.Model.write.path": lambda: "model.lp",
    "modeling.Outcome.stopped": lambda: "finished",
    "modeling.Outcome.proven": lambda: "",
    "modeling.Outcome.objective": lambda: 1.0,
    "modeling.Outcome.bound": lambda: 1.0,
    "modeling.Path.transitions": lambda: np.array([0]),
    "modeling.Path.answers": lambda: [None],
    "modeling.Path.bound": lambda: 1.0,
    "modeling.Path.evaluated": lambda: 1,
    "modeling.Path.stopped": lambda: "finished",
    "modeling.Query.tries": lambda: 0,
    "modeling.Query.answer": lambda: None,
    "modeling.concatenate.expressions": lambda: [columns(model())],
    "modeling.stack.expressions": lambda: [columns(model())],
    "modeling.backends.backend.name": lambda: "scip",
    "modeling.Expression.bounds.lower": lambda: np.zeros(8),
    "modeling.Expression.bounds.upper": lambda: np.ones(8),
    "modeling.Expression.value.values": lambda: np.zeros(8),
    "modeling.Expression.broadcast_to.shape": lambda: (3, 2),
    "modeling.Rows.of.lower": lambda: 0.0,
    "modeling.Rows.of.upper": lambda: 1.0,
    "models.ios.Progress.block": lambda: 0,
    "models.ios.Progress.blocks": lambda: 1,
    "models.ios.Progress.asked": lambda: 1,
    "models.ios.Progress.possible": lambda: 1,
    "models.ios.block_states.Block.tasks": lambda: np.array([0, 1, 2]),
    "models.ios.block_states.Block.groups": lambda: None,
    "models.ios.block_states.Block.group_size": lambda: None,
    "decomposition.series.Module.tasks": lambda: np.array([0, 1]),
    "decomposition.series.Module.edges": lambda: np.array([0]),
    "decomposition.series.Module.given": lambda: 0,
    "decomposition.series.Module.ends": lambda: np.array([1]),
    "decomposition.series.Module.clean": lambda: True,
    "decomposition.series.Module.between.source": lambda: np.zeros(module_of_series().given, np.int64),
    "decomposition.series.Series.modules": lambda: list(series().modules),
    "decomposition.series.Module.least.sources": lambda: module_states(),
    "decomposition.series.Module.least.targets": lambda: module_states("ends"),
    "decomposition.series.Module.least.shortest": lambda: shortest(),
    "decomposition.series.Module.plain_finishes.sources": lambda: module_states(),
    "decomposition.series.Module.plain_finishes.shortest": lambda: shortest(),
    "decomposition.series.Module.moved.alone": problem,
    "decomposition.series.Module.moved.known": schedule,
    "decomposition.series.Module.moved.source": lambda: np.zeros(module_of_series().given, np.int64),
    "decomposition.series.Module.moved.target": lambda: np.zeros(len(module_of_series().ends), np.int64),
    "decomposition.series.Series.join.path": lambda: joined(),
    "read.path": document,
    "report.method_table.solution": solution,
    "runtime.Observation.task_seconds": lambda: np.ones(3),
    "runtime.Observation.transfer_seconds": lambda: np.zeros(2),
    "runtime.Run.devices": lambda: ("x", "y"),
    "runtime.Run.makespan": lambda: np.ones(3),
    "runtime.Run.pause": lambda: np.zeros(3),
    "runtime.Run.busy": lambda: np.ones((3, 2)),
    "runtime.Run.traffic": lambda: np.zeros((3, 2)),
    "runtime.Run.moved": lambda: np.zeros(3, np.int64),
    "runtime.Run.moved_bytes": lambda: np.zeros(3),
    "runtime.Run.excess": lambda: np.zeros((3, 2)),
    "runtime.Run.decisions": lambda: {0: schedule().decision},
    "runtime.Run.thinking": lambda: np.zeros(3),
    "runtime.SlowDown.device": lambda: "x",
    "runtime.SlowLink.source": lambda: "x",
    "runtime.SlowLink.target": lambda: "y",
    "runtime.LessMemory.device": lambda: "x",
    "runtime.LessMemory.taken_bytes": lambda: 1.0,
    "runtime.plan.Value.task": lambda: 0,
    "runtime.plan.Value.name": lambda: "t",
    "runtime.plan.Value.bytes": lambda: 1.0,
    "runtime.plan.Value.readers": lambda: (1,),
    **{f"runtime.plan.{step}.{name}": lambda: 0 for step in ("Run", "Send", "Wait", "Drop") for name in ("value", "batch", "to")},
    "costs.Timeline.cpu": lambda: timeline().cpu,
    "costs.Timeline.waited": lambda: timeline().waited,
    "costs.Timeline.seen": lambda: timeline().seen,
    "costs.Timeline.shipment": lambda: timeline().shipment,
    "costs.Timeline.durations": lambda: timeline().durations,
    "costs.Timeline.lengths": lambda: timeline().lengths,
    "costs.Timeline.makespans": lambda: timeline().makespans,
    "costs.Timeline.of_runs.runs": lambda: [run_times()],
    "costs.Timeline.of_runs.carried": lambda: plan().carried,
    "costs.Machine.of.device": lambda: "x",
    "runtime.compare.measured": timeline,
    "runtime.Observation.of_timeline.timeline": timeline,
    "runtime.verify_run.measured": timeline,
    **{f"costs.RunTimes.{name}": lambda name=name: getattr(run_times(), name) for name in hs.costs.RunTimes._fields},
    "runtime.MeasuredStages.__call__.tasks": lambda: torch_program().graph.names[:1],
    "runtime.MeasuredStages.bound.tasks": lambda: torch_program().graph.names[:1],
    "runtime.StagedProgram.schedule": lambda: torch_stages(),
    "runtime.Executor.module": torch_program,
    "runtime.Executor.example_args": tensor,
    "runtime.Executor.decision": lambda: torch_schedule(),
    "runtime.Executor.devices": lambda: {"x": 1},
    "runtime.Ranks.count": lambda: 1,
    "runtime.Ranks.messages.ranks": lambda: {"x": 0},
    "runtime.MessageCosts.cluster": lambda: problem().cluster,
    "runtime.MessageCosts.machine": lambda: hs.costs.Machine(),
    **{f"runtime.StreamTimes.{name}": lambda: 1 for name in ("period", "q25", "q75", "latency", "depth")},
    "runtime.Executor.stream.items": lambda: [tensor()],
    "runtime.Executor.profiled.problem": lambda: executor().problem,
    "runtime.Executor.replace.decision": lambda: executor().decision,
    "runtime.TrainingProgram.module": trained,
    "runtime.TrainingProgram.random_numbers.step": lambda: 0,
    "Monitor.without_compiling.work": lambda: dict,
    "runtime.TrainingProgram.example_args": tensor,
    "runtime.TrainingProgram.optimiser": optimiser,
    "runtime.Program.inputs.args": lambda: (tensor(),),
    "runtime.Program.inputs.kwargs": dict,
    "runtime.Program.resized.values": lambda: torch_values(),
    "runtime.Program.resized.length": lambda: 2,
    "runtime.ModuleProfiler.transfer.source": lambda: "cpu0",
    "runtime.ModuleProfiler.transfer.target": lambda: "cpu1",
    "runtime.ModuleProfiler.measure.placement": lambda: "cpu0",
    "runtime.TrainingProfiler.step": lambda: lambda batch: (training_program(), (tensor(),)),
    "runtime.TrainingProfiler.batch": lambda: 2,
    "runtime.TrainingProfiler.measure.placement": lambda: "cpu0",
    "runtime.TrainingProfiler.transfer.source": lambda: "cpu0",
    "runtime.TrainingProfiler.transfer.target": lambda: "cpu1",
    "runtime.TwoStep.regression": lambda: hs.costs.Regression(samples()),
    "runtime.TwoStep.first": problem,
    "runtime.TwoStep.measured": lambda: None,
    "runtime.TwoStep.second": problem,
    "runtime.TwoStep.before": lambda: None,
    "runtime.TwoStep.after": lambda: None,
    "runtime.TwoStep.memory": lambda: None,
    "runtime.TwoStep.placement": dict,
    "schedule.objectives.find_objective.name": lambda: "makespan",
    "testing.Optimum.makespan": lambda: 1.0,
    "testing.Adversary.ratio": lambda: Fraction(2),
    **{f"testing.Adversary.{name}": schedule for name in ("schedule", "optimal")},
    **{f"testing.Adversary.{name}": lambda: 1 for name in ("evaluations", "open")},
    "testing.adversary.scheduler": lambda: "heft",
    "instances.Family.citation": lambda: "somebody 2026",
    "instances.Family.licence": lambda: "none",
    "instances.Family.attribution": lambda: "nobody",
    "instances.Family.instances": lambda: (known(),),
    **{f"instances.{name}.instance": lambda: known() for name in ("claim_of", "failures")},
    **{f"instances.{name}.name": lambda: "topcuoglu2002" for name in ("entry", "load")},
    **{f"instances.{name}.kind": lambda: "upper" for name in ("claim_of", "Instance.best")},
    "instances.claim_of.evidence": lambda: {"batches": [[task, 0, [0]] for task in range(10)]},
    "instances.claim_of.by": lambda: "somebody",
    "instances.Family.write.path": lambda: "family.json",
    "testing.Family.kind": lambda: "related",
    "testing.Family.graph": lambda: "free",
    "testing.corpus.Case.optimum": lambda: 1.0,
    "verify_stages.schedule": stage_schedule,
    "report.lanes.schedule": stage_schedule,
    "workloads.clusters.load.name": lambda: "diviml",
    "costs.profiles.load.name": lambda: "h100",
    "workloads.networks.load.name": lambda: "googlenet",
    "workloads.networks.module.name": lambda: "googlenet",
    "workloads.transformers.block.model": lambda: "125M",
    "workloads.transformers.module.model": lambda: "125M",
    "workloads.units.randwire.wirings": lambda: [[(0, 1)]],
    "search.Method.name": lambda: "x",
    "search.Method.source": lambda: "",
    "Cluster.devices": lambda: ["x"],
    "reproduce.paper": lambda: "ios",
    "models.Formulation.encode.decision": solution,
}
KEYWORDS: dict[str, dict[str, Callable[[], Any]]] = {
    "testing.adversary": {"evaluations": lambda: 1, "family": lambda: hs.testing.Family(tasks=1, devices=1)},
    "frontends.stg.read": {"processors": lambda: 2},
    "frontends.wfformat.read": {"bandwidth": lambda: 1.0},
    **{f"frontends.{name}.write": {"rename": lambda: True} for name in ("auckland", "fjsp", "stg")},
    "Problem": {"durations": BY_DOOR["Problem.durations"]},
    "experiments.Results.add": {"result": lambda: {"y": 1}},
    "Cluster.replace": {"bandwidth": lambda: 3.0},
    "Problem.replace": {"inputs": lambda: 1},
    "TaskGraph.replace": {"op": lambda: "relu"},
    "arrays.Columns": {"time": lambda: [1.0, 2.0]},
    "arrays.Columns.replace": {"time": lambda: [1.0]},
    "costs.Deviations.replace": {"estimated": lambda: np.ones(12)},
    "ChainProblem.replace": {"shared_bytes": lambda: 0},
    "costs.device": {"memory_bytes": lambda: 1.0},
    "runtime.two_step": {"memory": lambda: "static"},
    "costs.Profile.problem": {"memory": lambda: "static"},
    "costs.Recorder": {"profiler": Profiler},
    **{f"frontends.torch.{name}": {"example_args": tensor} for name in ("capture", "capture_training", "record")},
    "frontends.torch.card": {"example_args": blocks_example},
    "runtime.network": {"example_args": tensor},
    "reproduce": {"results": lambda: Path("nowhere"), "stored": lambda: True},
    "runtime.MeasuredStages.write": {"path": lambda: "stages.json"},
    "costs.Deviations": {
        "task": lambda: ["a"],
        "device": lambda: ["x"],
        "batch_size": lambda: [1],
        "estimated": lambda: [1.0],
        "actual": lambda: [1.0],
    },
}
"""Arguments besides those without a default, and values of arbitrary keywords."""
PLACES: dict[str, list[Callable[[], Any]]] = {
    "report.require": [lambda: "html"],
    "modeling.Expression.reshape": [lambda: 2, lambda: 1],
    "runtime.Program.__call__": [tensor],
    "runtime.TrainingProgram.__call__": [tensor],
    "runtime.StagedProgram.__call__": [tensor],
    "runtime.Executor.__call__": [tensor],
    "runtime.Executor.measure": [tensor],
    "runtime.Executor.timed": [tensor],
    "runtime.Executor.measure_stream": [tensor],
}
SELVES: dict[str, Callable[[], Any]] = {
    "Results": records,
    **{f"experiments.Comparison.{name}": comparison for name in ("cases", "table")},
    "Table": lambda: hs.experiments.Table(["a"], [["1"]]),
    "Cluster": lambda: problem().cluster,
    "Problem": problem,
    "TaskGraph": graph,
    "Schedule": schedule,
    "Solution": solution,
    "Certificate": certificate,
    "Family": lambda: hs.instances.families()["examples"],
    "Instance": lambda: known(),
    "StageSchedule": stage_schedule,
    "ChainProblem": chain,
    "Offloading": offloading,
    "ServingProblem": serving,
    "ServingModel": serving_model,
    "LanguageRoofline": hs.costs.LanguageRoofline,
    "Machine.write": machine,
    "Machine.names_in": machine,
    "Machine.with_efficiency": machine,
    "Machine.reserving": machine,
    "Request": hs.modeling.backends.Request,
    "Rates": rates,
    "ModelCard": model_card,
    "Placement": placement,
    "Command": lambda: model_plan().command("vllm"),
    "Tool": vllm,
    "ModelPlan": model_plan,
    "ServingPlan": lambda: hs.planning.most_throughput(serving()),
    "Workload": lambda: hs.Workload(3, 1),
    "Monitor": lambda: hs.Monitor(problem()),
    "Levels": lambda: Levels(problem()),
    "Supports": Supports,
    "Entry": lambda: best.BOUNDS[0],
    "Objective": lambda: formulation().objective,
    "Auto": Auto,
    "Modules": lambda: hs.analysis.modules.modules(graph()),
    "ReleaseTimes": release_times,
    "SingleInputProblem": single_input,
    "TaskSubset": subset,
    "Coarsening": coarsened,
    "Columns": lambda: hs.arrays.Columns(time=[2.0]),
    "Contention": lambda: hs.costs.Contention(graph(), hs.costs.device("v100")),
    "Deviations": lambda: hs.costs.Regression(samples()).deviations(samples()),
    "Links": lambda: hs.costs.Links.measured(Profiler(), [1, 8]),
    "Analytic": analytic,
    "Profile": whole_profile,
    "Profiled": lambda: hs.costs.Profiled(samples(), analytic()),
    "ProfileComparison": lambda: hs.costs.compare_profiles(samples(), samples()),
    "ProfiledDevice": lambda: samples().devices[0],
    "Recorder": lambda: hs.costs.Recorder(Profiler()),
    "Regression": lambda: hs.costs.Regression(samples()),
    "Roofline": hs.costs.Roofline,
    "Timeline": timeline,
    "Machine": hs.costs.Machine,
    "Plan": plan,
    "Comparison": lambda: hs.runtime.compare(problem(), schedule(), timeline()),
    "DynamicProgram": program,
    "Expression": lambda: columns(model()),
    "Model": lambda: columns_of(8),
    "analysis.task_subsets.TaskSubset.schedule": lambda: refuted(),
    "Outcome": lambda: model().solve(),
    "BatchedMakespan": formulation,
    "Formulation": formulation,
    "Assignment": relaxed,
    "CongestionAware": functools.cache(lambda: hs.models.CongestionAware(problem())),
    "SteadyState": functools.cache(lambda: hs.models.SteadyState(problem())),
    "Pesto": functools.cache(lambda: hs.models.Pesto(problem().replace(communication="channel"))),
    "Block": lambda: blocks(),
    "Module": module_of_series,
    "Series": series,
    "Assistants": lambda: begun(hs.runtime.Assistants()),
    "SearchingAssistants": lambda: begun(hs.runtime.SearchingAssistants()),
    "Resolve": lambda: begun(hs.runtime.Resolve("heft")),
    "Static": hs.runtime.Static,
    "Interference": hs.runtime.Interference,
    "Scenario": hs.runtime.Scenario,
    "Program": torch_program,
    "TrainingProgram": training_program,
    "MeasuredStages": lambda: measured_stages(),
    "ModuleProfiler": lambda: torch_profiler(),
    "TrainingProfiler": lambda: hs.runtime.TrainingProfiler(lambda batch: (training_program(), (tensor(),)), 2),
    "Executor": lambda: executor(),
    "Ranks": lambda: ranks(),
    "runtime.Ranks.close": lambda: hs.runtime.Ranks(1),
    "runtime.Executor.close": lambda: executor.__wrapped__(),
    "StagedProgram": lambda: hs.runtime.StagedProgram(torch_program(), torch_stages()),
    "Method": lambda: hs.methods()["heft"],
}


def begun(policy: Any) -> Any:
    policy.begin(problem(), schedule().decision)
    return policy


def coarsened_decision() -> hs.Decision:
    coarse = coarsened().coarse
    return hs.Decision.whole(coarse, [0] * coarse.n_tasks, coarse.graph.topological_order)


def intervals() -> Any:
    made = model()
    return made.interval(made.time("s", 2, upper=4.0), np.ones(2))


def module_states(of: str = "given") -> Any:
    count = module_of_series().given if of == "given" else len(module_of_series().ends)
    return np.zeros((1, count), np.int64)


def shortest() -> Any:
    from hetsched.analysis import levels

    return levels.least_durations(problem())


def joined() -> Any:
    return series().program.solve(lambda query: hs.modeling.Evaluation(1.0, 1.0, schedule()))


def blocks() -> Any:
    from hetsched.models.ios.block_states import Block

    return Block(graph(), np.array([0, 1, 2]), None, None)


def torch_stages() -> Any:
    return hs.models.ios.sequential(torch_program().graph, cost)


@functools.cache
def measured_stages() -> Any:
    return hs.runtime.MeasuredStages(torch_program(), tensor(), warmup=1, repeats=1)


@functools.cache
def torch_profiler() -> Any:
    return hs.runtime.ModuleProfiler(net(), tensor())


@functools.cache
def executor() -> Any:
    made = hs.runtime.Executor(torch_program(), None, torch_schedule(), devices={"x": 1})
    made.measure(tensor(), runs=1)
    return made


@functools.cache
def ranks() -> Any:
    return hs.runtime.Ranks(1)


@functools.cache
def torch_schedule() -> hs.Schedule:
    graph = torch_program().graph
    return hs.solve(
        hs.Problem(graph, hs.Cluster(["x"]), durations=np.ones((graph.n_tasks, 1, 1)), batch_sizes=[2], inputs=2), "heft"
    ).schedule


def torch_values() -> Any:
    return torch_program().inputs((tensor(),), {})


# ---------------------------------------------------------------- values that are wrong for some arguments


class Thing:
    def __repr__(self) -> str:
        return "<a thing>"


WRONG: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "True": lambda: True,
    "-1": lambda: -1,
    "0": lambda: 0,
    "nan": lambda: math.nan,
    "inf": lambda: math.inf,
    "1.5": lambda: 1.5,
    "'x'": lambda: "x",
    "'5s'": lambda: "5s",
    "''": lambda: "",
    "b'x'": lambda: b"x",
    "[]": list,
    "{}": dict,
    "{'x': 'y'}": lambda: {"x": "y"},
    "a thing": Thing,
    "a class": lambda: Thing,
    "a path": lambda: Path("nowhere") / "at all",
    "a graph": graph,
    "a problem": problem,
    "a cluster": lambda: problem().cluster,
    "a schedule": schedule,
    "a solution": solution,
    "a decision": lambda: schedule().decision,
    "numbers of another shape": lambda: np.ones((2, 1, 3)),
    "words": lambda: np.array(["x", "y", "z"]),
    "things": lambda: np.array([Thing()] * 3),
    "complex": lambda: 1j,
    "complex numbers": lambda: np.ones(3, complex),
    "a huge number": lambda: 10**400,
    "2**64": lambda: 2**64,
    "a generator": lambda: (i for i in range(3)),
    "nested": lambda: [[1], [2, 3]],
    "NaNs": lambda: np.full(3, np.nan),
    "-1s": lambda: [-1, -1, -1],
    "large": lambda: np.array([7, 8, 9]),
    "a function": lambda: max,
    "dates": lambda: np.zeros(3, "datetime64[s]"),
    "a set": lambda: {1, 2},
    "Nones": lambda: [None] * 3,
    "texts": lambda: ["x", "y", "z"],
    "a zero-dimensional array": lambda: np.array(1.0),
}


def right(door: Door, parameter: inspect.Parameter) -> Any:
    for key, values in ((f"{door.name}.{parameter.name}", BY_DOOR), (parameter.name, BY_NAME)):
        if key in values:
            return values[key]()
    raise LookupError(f"add a right value of {parameter.name!r} of {door.name} to BY_NAME or BY_DOOR of tests/test_wrong_calls.py")


def call(door: Door, wrong: str = "", value: Any = None) -> object:
    """Call a door with right arguments except one."""
    places: list[Any] = [] if door.owner is None else [SELVES.get(door.name, SELVES[door.owner.__name__])()]
    keywords: dict[str, Any] = {name: make() for name, make in KEYWORDS.get(door.name, {}).items()}
    for parameter in door.parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            given = [make() for make in PLACES.get(door.name, [])]
            places += [value, *given[1:]] if parameter.name == wrong else given
        elif parameter.kind is parameter.VAR_KEYWORD:
            if parameter.name == wrong:
                keywords |= dict.fromkeys(KEYWORDS.get(door.name, {"some": None}), value)
        elif parameter.name == wrong or (parameter.default is parameter.empty and parameter.name not in keywords):
            chosen = value if parameter.name == wrong else right(door, parameter)
            if parameter.kind is parameter.KEYWORD_ONLY:
                keywords[parameter.name] = chosen
            elif parameter.kind is parameter.POSITIONAL_ONLY or parameter.default is parameter.empty:
                places.append(chosen)
            else:
                keywords[parameter.name] = chosen
    with without_weights(door):
        result = door.function(*places, **keywords)
        if inspect.isgenerator(result):
            for _ in zip(range(3), result, strict=False):
                pass
    return result


def without_weights(door: Door) -> contextlib.AbstractContextManager[Any]:
    """Return a context in which models of the papers, of billions of parameters, have no memory."""
    if door.name.split(".")[:2] in (["workloads", name] for name in ("folding", "language", "swin", "translation")):
        return importlib.import_module("torch").device("meta")  # type: ignore[no-any-return]
    return contextlib.nullcontext()


def strange(parameter: inspect.Parameter, which: str) -> bool:
    """Return whether a wrong value is a callable whose fault shows only when it is called."""
    return which in ("a function", "a class") and any(word in str(parameter.annotation) for word in ("Call", "Clock", "StageCost"))


def raw(error: BaseException) -> str:
    """Return the place and text of an error that users should not see; empty for an intended one."""
    if isinstance(error, hs.HetschedError):
        return "" if str(error) and "\n" not in str(error) and len(str(error)) < 1000 else f"{len(str(error))} characters, or several lines"
    if isinstance(error, OSError) and error.filename is not None:
        return ""  # an error of the system about a path
    trace, last, inside = error.__traceback__, None, False
    while trace is not None:
        file = Path(trace.tb_frame.f_code.co_filename)
        inside = inside or (ROOT in file.parents and Path(arguments.__file__).parent not in file.parents)
        last, trace = f"{file.name}:{trace.tb_lineno}", trace.tb_next
    if isinstance(error, TypeError) and (not inside or "are made by" in str(error)):
        return ""  # missing or unknown arguments, reported by Python
    return f"{last}: {type(error).__name__}: {str(error)[:200]}"


def failures(door: Door, chosen: list[tuple[str, str]]) -> Iterator[str]:
    """Yield the wrong calls among (argument, wrong value) that end in a raw error."""
    kinds = {parameter.name: parameter for parameter in door.parameters}
    for name, which in chosen:
        if strange(kinds[name], which):
            continue
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"), contextlib.redirect_stdout(None):
                warnings.simplefilter("ignore")
                call(door, name, WRONG[which]())
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            where = raw(error)
            if where:
                yield f"{door.name}({name}={which}): {where}"


# ---------------------------------------------------------------- tests

_ELSEWHERE = (
    "stopping.",  # used in the innermost loops
    "testing.clocks.",
    "testing.profiles.",  # tools of these tests
    "testing.conformance.",
    "testing.bounds.",  # pytest calls them
    "frontends.pyjobshop.to_pyjobshop",
    "frontends.saga.to_saga",  # need libraries that no extra installs
    "Schedule.of_problem",  # for the simulator; users have from_columns
)
ABSTRACT = (
    "Certificate",
    "ModelPlan",
    "planning.ServingPlan",
    "Schedule",
    "StageSchedule",
    "runtime.Comparison",
    "costs.ProfileComparison",
    "models.Formulation",
    "models.Formulation.decode",
    "models.Formulation.parts",
)
"""Callables that are not called themselves; their subclasses or other constructors are."""
PUBLIC = [door for door in doors() if not door.name.startswith(_ELSEWHERE) and door.name not in ABSTRACT]
_TORCH = (
    "frontends.",
    "runtime.Executor",
    "runtime.MeasuredStages",
    "runtime.MessageCosts",
    "runtime.ModuleProfiler",
    "runtime.Program",
    "runtime.Ranks",
    "runtime.network",
    "runtime.profile",
    "runtime.StagedProgram",
    "runtime.TrainingProfiler",
    "runtime.TrainingProgram",
    "workloads.folding",
    "workloads.language",
    "workloads.networks.module",
    "workloads.swin",
    "workloads.transformers.module",
    "workloads.translation",
    "workloads.vision",
)
"""Callables that make or run a module of PyTorch, whose valid calls take seconds."""
CALLS = [(door, parameter.name) for door in PUBLIC if not door.name.startswith(_TORCH) for parameter in door.parameters]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # some wrong values are names of files


REMEDY = "the decorator hetsched.arguments.checked refuses wrong arguments of a public function or constructor; raw errors:"


def _some(door: Door, name: str, count: int) -> list[tuple[str, str]]:
    """Return `count` wrong values of an argument, different ones for different arguments."""
    first = zlib.crc32(f"{door.name}.{name}".encode()) % len(WRONG)
    return [(name, which) for which in [*WRONG, *WRONG][first : first + count]]


@pytest.mark.slow
@pytest.mark.parametrize("start", sorted({door.name.partition(".")[0] for door, _ in CALLS}))
def test_no_wrong_call_ends_in_a_raw_error(start: str) -> None:
    faults = [fault for door, name in CALLS if door.name.partition(".")[0] == start for fault in failures(door, _some(door, name, 3))]
    assert not faults, "\n".join([REMEDY, *faults])


@pytest.mark.thorough
@pytest.mark.parametrize("door", PUBLIC, ids=lambda door: door.name)
def test_no_wrong_call_at_all_ends_in_a_raw_error(door: Door) -> None:
    faults = [fault for parameter in door.parameters for fault in failures(door, [(parameter.name, which) for which in WRONG])]
    assert not faults, "\n".join([REMEDY, *faults])


@pytest.mark.slow
def test_the_right_values_are_right() -> None:
    """Otherwise a call with a wrong value could fail because of another argument."""
    refused = []
    for door in PUBLIC:
        try:
            call(door)
        except Exception as error:
            refused.append(f"{door.name}: {type(error).__name__}: {error}")
    assert not refused, "\n".join(refused)


SETTINGS = ("time_limit", "seed", "evaluations", "threads")


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_bad_setting_is_refused_wherever_it_is_an_argument(setting: str) -> None:
    for door in PUBLIC:
        for parameter in door.parameters:
            if (
                parameter.name != setting
                or "bool" in str(parameter.annotation)
                or door.name.startswith(("modeling.backends", "costs.Profile"))
            ):
                continue
            for value in (-1, math.nan, "x", "5", "5 sec", "-5 s", [], True, 1j, 10**400 if setting != "time_limit" else "inf"):
                with pytest.raises(hs.HetschedError, match=f"^{setting} is "):
                    call(door, setting, value)


@pytest.mark.parametrize("value", [math.inf, np.inf, np.float32(60), Fraction(60), Decimal(60), np.int64(60), 60, "60 s", "1 min"])
def test_a_time_limit_is_any_number_and_infinite_for_none(value: Any) -> None:
    assert hs.search.Budget(value).time_limit == (None if value == math.inf else 60)
    assert hs.solve(problem(), "heft", time_limit=value).makespan == solution().makespan
    assert hs.bound(problem(), time_limit=hs.search.Budget(value).time_limit or 5) == hs.bound(problem(), time_limit=5)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: hs.solve(graph()), "problem is <TaskGraph of 3 tasks and 2 edges>; it must be a Problem (hetsched.Problem(graph, cluster"),
        (lambda: hs.solve([]), "problem is []; it must be a Problem"),
        (lambda: hs.solve("problem.json"), "durations=...) makes one, hetsched.read(path) reads one)"),
        (lambda: hs.verify(schedule(), problem()), "problem is <Schedule of 3 batches"),
        (lambda: hs.verify(problem(), solution()), "it must be a Schedule (hetsched.solve(problem).schedule and"),
        (lambda: hs.report.write_gantt(problem(), "gantt.svg", solution()), "answer is 'gantt.svg'; it must be a Schedule"),
        (
            lambda: hs.solve(problem(), time_limit="5"),
            "time_limit is '5'; it must be a number of seconds, at least 0, or text such as '2 ms', or None for no limit",
        ),
        (lambda: hs.Cluster(1), "devices is 1; it must be a sequence or another iterable"),
        (lambda: hs.solve(problem(), threads=[]), "threads is []; it must be a whole number, at least 1, or None"),
        (lambda: hs.solve(problem(), evaluations="x"), "evaluations is 'x'; it must be a whole number, at least 0, or None"),
        (lambda: hs.solve(problem(), ["heft", 3]), "method is 3; it must be a string"),
        (
            lambda: hs.Problem(graph(), problem().cluster, durations=[[1, 1]] * 3, batching="twice"),
            "batching is 'twice'; choose one of 'once', 'free'",
        ),
    ],
)
def test_the_message_names_the_argument_its_value_and_the_rule(wrong: Callable[[], object], message: str) -> None:
    with pytest.raises(hs.HetschedError, match=re.escape(message)):
        wrong()


def test_an_argument_of_a_wrong_kind_is_a_type_error_and_a_value_error() -> None:
    for error in (TypeError, ValueError, hs.HetschedError):
        with pytest.raises(error):
            hs.solve(graph())


def test_the_check_reads_classes_that_are_not_imported_by_their_names() -> None:
    @arguments.checked
    def takes(executor: Elsewhere | None, *more: int, **others: Fraction) -> object:
        return executor, more, others

    class Elsewhere:
        pass

    own = Elsewhere()
    assert takes(own, np.int8(1), a=Fraction(1, 2)) == (own, (1,), {"a": Fraction(1, 2)})
    assert takes(None) == (None, (), {})
    for wrong, message in (
        (lambda: takes(3), "executor is 3; it must be"),
        (lambda: takes(None, 1, "x"), re.escape("more[1] is 'x'")),
        (lambda: takes(None, a=1.5), "a is 1.5; it must be a Fraction"),
    ):
        with pytest.raises(hs.errors.InvalidArgument, match=message):
            wrong()


def test_a_mapping_is_a_collection_of_its_keys() -> None:
    @arguments.checked
    def takes(numbers: Collection[int]) -> object:
        return list(numbers)

    assert takes({1: "a"}) == [1]
    with pytest.raises(hs.errors.InvalidArgument, match=re.escape("numbers[0] is 'a'; it must be a whole number")):
        takes({"a": 1})


def test_an_alias_stands_for_its_type() -> None:
    """As those of numpy 2.5 on Python 3.12."""
    make = pytest.importorskip("typing_extensions").TypeAliasType
    scalar = TypeVar("scalar", bound=np.generic)
    array = make("array", np.ndarray[Any, np.dtype[scalar]], type_params=(scalar,))
    rule = annotations._rule(make("numbers", array[np.float64]))
    assert rule is not None
    assert (rule.text, rule.take([1, 2]).dtype) == ("an array of numbers", np.float64)


def test_an_alternative_to_whatever_numpy_makes_an_array_of_is_any_value() -> None:
    assert annotations._rule(npt.ArrayLike | Mapping) is None
    assert annotations._rule(int | Mapping) is not None
