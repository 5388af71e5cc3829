"""`generate`, `capture` and `demo`: documents that the library can read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest
from instances import list_schedulers

import hetsched as hs
from hetsched.cli.commands.capture import Optimiser
from hetsched.costs import Roofline
from hetsched.workloads import clusters, networks

TINY_NET = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))

def make(width=8):
    return Net() if width == 8 else torch.nn.Linear(width, width)

def broken():
    raise RuntimeError("no weights today")
"""


def read_problem(path: str) -> hs.Problem:
    problem = hs.read(path)
    assert isinstance(problem, hs.Problem)
    return problem


def test_generate_rwnn_writes_the_library_s_problem(run: Any) -> None:
    words = ["--kind", "ws", "--n", 12, "--modules", 3, "--channels", 2, "--dependence", "wdep", "--seed", 5]
    made = run("generate", "rwnn", *words, "--cluster", "moirai_inter", "-o", "problem.json")
    assert made.exit_code == 0, made.stderr
    graph = hs.workloads.rwnn(kind="ws", n=12, modules=3, channels=2, dependence="wdep", seed=5)
    assert read_problem("problem.json") == hs.Problem(graph, clusters.moirai_inter(), costs=Roofline(dtype="float32"))


def test_generate_network_with_batches_and_rules(run: Any) -> None:
    costs = ["--cluster", "moirai_intra", "--dtype", "float16"]
    rules = ["--inputs", 8, "--batching", "free", "--communication", "channel", "--memory", "peak"]
    made = run("generate", "network", "googlenet", *costs, *rules, "-o", "problem.json")
    assert made.exit_code == 0, made.stderr
    expected = hs.Problem(
        networks.load("googlenet"),
        clusters.moirai_intra(),
        costs=Roofline(dtype="float16"),
        inputs=8,
        batching="free",
        communication="channel",
        memory="peak",
    )
    assert read_problem("problem.json") == expected


def test_generate_gpt3_is_in_float16_on_the_nodes_of_its_paper(run: Any) -> None:
    made = run("generate", "gpt3", "--model", "125M", "--layers", 3, "-o", "problem.json")
    assert made.exit_code == 0, made.stderr
    assert made.stdout.strip() == "wrote problem.json: 40 tasks, 51 edges on 24 devices"
    costs = Roofline(dtype="float16")
    assert read_problem("problem.json") == hs.Problem(hs.workloads.gpt3("125M", layers=3), clusters.diviml_nodes(), costs=costs)
    words = ["--cluster", "diviml", "--dtype", "float32", "--inputs", 2]
    assert run("generate", "gpt3", "--model", "6.7B", *words, "-o", "problem.json").exit_code == 0
    expected = hs.Problem(hs.workloads.gpt3("6.7B"), clusters.diviml(), costs=Roofline(), inputs=2)
    assert read_problem("problem.json") == expected


@pytest.mark.parametrize("words", [("--layers", 0), ("--model", "3B")])
def test_generate_gpt3_refuses_what_is_none(run: Any, words: tuple[str, object]) -> None:
    failed = run("generate", "gpt3", *words, "-o", "problem.json")
    assert failed.exit_code == 2
    assert failed.stderr.count("\n") == 1
    assert not Path("problem.json").exists()


def test_a_cluster_document_is_edited_and_used(run: Any) -> None:
    assert run("generate", "cluster", "diviml", "-o", "cluster.json").exit_code == 0
    document = json.loads(Path("cluster.json").read_text())
    document["cluster"]["devices"][0]["name"] = "host"
    Path("cluster.json").write_text(json.dumps(document))
    assert run("generate", "rwnn", "--n", 8, "--modules", 1, "--cluster", "cluster.json", "-o", "problem.json").exit_code == 0
    assert read_problem("problem.json").cluster.names[0] == "host"


def test_a_network_has_durations_of_either_cost_model(run: Any, folder: Path) -> None:
    graph, cluster = hs.workloads.networks.load("googlenet"), hs.workloads.clusters.diviml()
    assert run("generate", "network", "googlenet", "-o", "problem.json").exit_code == 0
    assert read_problem("problem.json") == hs.Problem(graph, cluster, costs=hs.costs.Roofline())
    made = run("generate", "network", "googlenet", "--costs", "analytic", "-o", "problem.json")
    assert "durations: analytic, 90 % of operators within x" in made.stderr
    assert "without a shape" not in made.stderr
    assert read_problem("problem.json") == hs.Problem(graph, cluster, costs=hs.costs.Analytic())


@pytest.mark.slow
def test_capture_writes_a_graph_or_a_problem(run: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="capturing needs torch")
    Path("tiny_net_here.py").write_text(TINY_NET)
    made = run("capture", "tiny_net_here:make", "--input", "1,8", "-o", "graph.json")
    assert made.exit_code == 0, made.stderr
    graph = hs.read("graph.json")
    import importlib

    monkeypatch.syspath_prepend(str(folder))
    model = importlib.import_module("tiny_net_here").make()
    assert graph == hs.frontends.torch.capture(model, (torch.zeros(1, 8),))
    made = run("capture", "tiny_net_here:make", "--input", "1,8", "--cluster", "diviml", "-o", "problem.json")
    assert made.exit_code == 0, made.stderr
    problem = read_problem("problem.json")
    assert problem == hs.Problem(graph, hs.workloads.clusters.diviml(), costs=hs.costs.Analytic())
    assert "durations: analytic, 90 % of operators within x" in made.stderr
    words = ["capture", "tiny_net_here:make", "--input", "1,8", "--cluster", "diviml", "-o", "problem.json"]
    assert run(*words, "--costs", "roofline").exit_code == 0
    assert read_problem("problem.json") == hs.Problem(graph, hs.workloads.clusters.diviml(), costs=hs.costs.Roofline())
    refused = run(*words, "--dtype", "float16")
    assert refused.exit_code == 2
    assert "there are constants of " in refused.stderr
    made = run("capture", "tiny_net_here:make", "--input", "1,8", "--fuse", "-o", "fused.json")
    assert made.exit_code == 0, made.stderr
    assert hs.read("fused.json") == hs.frontends.torch.capture(model, (torch.zeros(1, 8),), fuse=True)


def test_capture_writes_a_step_of_training(run: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="capturing needs torch")
    from hetsched.frontends.training import STATES

    Path("trained_net_here.py").write_text(TINY_NET)
    import importlib

    monkeypatch.syspath_prepend(str(folder))
    model = importlib.import_module("trained_net_here").make().train()
    assert set(get_args(Optimiser)) == set(STATES)
    for optimiser in STATES:
        made = run("capture", "trained_net_here:make", "--input", "4,8", "--training", optimiser, "-o", "graph.json")
        assert made.exit_code == 0, made.stderr
        assert hs.read("graph.json") == hs.frontends.torch.capture_training(model, torch.zeros(4, 8), optimiser=optimiser)


@pytest.mark.slow
def test_capture_calls_a_function_with_arguments_and_reads_a_program(run: Any, folder: Path) -> None:
    torch = pytest.importorskip("torch", reason="capturing needs torch")
    Path("sized_net_here.py").write_text(TINY_NET)
    made = run("capture", "sized_net_here:make(width=3)", "--input", "input=2,3", "-o", "graph.json")
    assert made.exit_code == 0, made.stderr
    graph = hs.read("graph.json")
    assert graph == hs.frontends.torch.capture(torch.nn.Linear(3, 3), torch.zeros(2, 3))
    torch.export.save(torch.export.export(torch.nn.Linear(3, 3), (torch.zeros(1, 3),)), "model.pt2")
    made = run("capture", "model.pt2", "-o", "graph.json")
    assert made.exit_code == 0, made.stderr
    assert hs.read("graph.json") == graph
    made = run("capture", "sized_net_here:make(3)", "--input", "4,3", "--training", "adamw", "--accumulate", "2", "-o", "graph.json")
    assert made.exit_code == 0, made.stderr
    step = hs.frontends.torch.capture_training(torch.nn.Linear(3, 3), torch.zeros(4, 3), optimiser="adamw", accumulate=2)
    assert hs.read("graph.json") == step


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["bad_net_here:make(x)", "--input", "1,8"],
            "the arguments of 'bad_net_here:make(x)' are not numbers, strings, lists and the like",
        ),
        (["bad_net_here:make(3", "--input", "1,8"], "the arguments of 'bad_net_here:make(3' are not numbers"),
        (["bad_net_here:make", "--input", "y=1,8"], "Net cannot be called with the example: missing a required argument: 'x'"),
        (["missing.pt2"], "'missing.pt2' cannot be read as an exported program"),
        (["missing.pt2", "--input", "1,8"], "missing.pt2 has its inputs, and no backward pass; leave --input and --training out"),
        (["bad_net_here:make", "--input", "1,8", "--training", "adam", "--fuse"], "--fuse does not go with --training"),
        (["bad_net_here:make", "--input", "1,8", "--training", "lion"], "'lion' is not one of 'sgd', 'momentum', 'adam'"),
        (["nowhere:make", "--input", "1,8"], "nowhere:make cannot be imported: ModuleNotFoundError"),
        (["bad_net_here:nothing", "--input", "1,8"], "bad_net_here:nothing cannot be imported: AttributeError"),
        (["bad_net_here:broken", "--input", "1,8"], "no weights today"),
        (["bad_net_here", "--input", "1,8"], "'bad_net_here' is not of the form MODULE:FUNCTION"),
        (["bad_net_here:make", "--input", "one,8"], "--input 'one,8' is not a shape"),
        (["bad_net_here:make", "--input", "1,8:frobnicate"], "--input '1,8:frobnicate' is not a shape"),
        (["bad_net_here:make", "--input", "1,8", "--cluster", "frobnicate"], "cluster 'frobnicate' is neither"),
        (["bad_net_here:make"], "Missing option '--input'"),
    ],
)
def test_what_cannot_be_captured_is_refused_in_a_line(run: Any, folder: Path, words: list[str], message: str) -> None:
    pytest.importorskip("torch", reason="capturing needs torch")
    Path("bad_net_here.py").write_text(TINY_NET)
    failed = run("capture", *words, "-o", "graph.json")
    assert failed.exit_code == 2
    assert message in failed.stderr
    assert failed.stderr.count("\n") == 1
    assert not Path("graph.json").exists()


def test_without_torch_capture_names_the_extra(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    failed = run("capture", "anything:make", "--input", "1,8", "-o", "graph.json")
    assert failed.exit_code == 2
    assert "pip install 'hetsched[torch]'" in failed.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("short_demo")
@pytest.mark.parametrize("network", ["inception_v3", "googlenet"])
def test_demo_prints_draws_writes_and_proves(run: Any, network: str) -> None:
    shown = run("demo", "--network", network, "--out", "made")
    assert shown.exit_code == 0, shown.stderr
    problem, schedule = read_problem("made/problem.json"), hs.read("made/schedule.json")
    assert isinstance(schedule, hs.Schedule)
    assert hs.verify(problem, schedule) == []
    assert "verified: the independent check finds no broken rule" in shown.stdout
    for word in ("heft", "best-device", "speed-up", "gap to bound", *problem.cluster.names):
        assert word in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= 80
    assert schedule.makespan <= hs.solve(problem, "heft").makespan


@pytest.mark.slow
def test_demo_json(run: Any) -> None:
    facts = json.loads(run("demo", "--network", "googlenet", "--json").stdout)
    schedule = hs.read("schedule.json")
    assert isinstance(schedule, hs.Schedule)
    assert {row["method"] for row in facts["methods"]} == {*list_schedulers(), "annealing"}
    assert schedule.makespan == min(row["makespan"] for row in facts["methods"] if row["makespan"] is not None)
    assert 0 < facts["bound"] <= schedule.makespan


@pytest.mark.slow
def test_fifty_thousand_tasks_end_to_end(run: Any) -> None:
    assert run("generate", "rwnn", "--n", 32, "--modules", 1563, "-o", "problem.json").exit_code == 0
    assert run("solve", "problem.json", "--method", "heft", "-o", "schedule.json").exit_code == 0
    checked = run("verify", "problem.json", "schedule.json")
    assert checked.exit_code == 0
    assert "valid: 50" in checked.stdout
