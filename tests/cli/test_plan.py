"""`hetsched plan`: what it prints, its exit codes, its files and its messages."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

import hetsched as hs
from hetsched.planning.tools import TOOLS
from hetsched.stopping import Terminated
from tests.planning.test_planner import CONFIG, machine
from tests.planning.test_questions import box


@pytest.fixture
def here(folder: Any) -> Any:
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(json.dumps({**CONFIG, "num_hidden_layers": 6, "torch_dtype": "float16"}))
    box().write("box.json")
    return folder


WORK = ("--machine", "box.json", "--prompt", 20, "--output", 5)


@pytest.mark.slow
def test_it_prints_the_placement_its_rivals_its_limits_and_the_command(run: Any, here: Any) -> None:
    box((5e5, 5e5, 9e5)).write("box.json")
    shown = run("plan", "model", *WORK, "--for", "llama.cpp", "-o", "plan.json")
    assert shown.exit_code == 0, shown.stderr
    lines = shown.stdout.splitlines()
    assert lines[0].startswith("plan      MODELLED costs: ")
    labels = [line.split(" ")[0] for line in lines if line[:1].strip()]
    assert labels[:9] == ["plan", "model", "machine", "costs", "asked", "placement", "request", "proven", "against"]
    assert "limits" in labels
    assert "against   llama.cpp default: " in shown.stdout
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID llama-server -m MODEL.gguf -c 25 -np 1 -ngl 7 -ts " in shown.stdout
    plan = hs.read("plan.json")
    assert plan.command(model="MODEL.gguf").text in lines
    facts = json.loads(run("plan", "model", *WORK, "--for", "llama.cpp", "--json").stdout)
    assert (facts["seconds"], facts["costs"], facts["status"]) == (plan.value, "modelled", "optimal")
    assert [(row["first"], row["last"]) for row in facts["stages"]] == [(s.first, s.end - 1) for s in plan.placement.stages]
    assert facts["command"]["text"] in lines


@pytest.mark.slow
def test_each_tool_has_a_plan_of_its_own(run: Any, here: Any) -> None:
    facts = json.loads(run("plan", "model", *WORK, "--sequences", 4, "--for", "vllm, torch-pipeline", "--json").stdout)["plans"]
    assert [(one["tool"], one["regime"]) for one in facts] == [("vllm", "throughput"), ("torch-pipeline", "throughput")]
    assert "cut the stages by hand" in facts[1]["refusal"]
    assert "command   none: " in run("plan", "model", *WORK, "--for", "torch-pipeline").stdout


def test_a_module_that_a_function_makes_is_planned(run: Any, here: Any) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    words = ("plan", "tests.frontends.plain_modules:tiny", *WORK, "--for", "accelerate")
    shown = run(*words, "--input", "1,20:int64", "--no-limits")
    assert shown.exit_code == 0, shown.stderr
    assert "model     Model: Model, 4 blocks" in shown.stdout
    assert 'device_map={"tokens": ' in shown.stdout
    assert "missing a required argument: 'ids'" in run(*words).stderr
    refused = run("plan", "model", *WORK, "--input", "1,20:int64").stderr
    assert "--input is for a module named MODULE:FUNCTION, and model is none; leave it out" in refused


def test_tensor_parallelism_is_searched_or_set(run: Any, here: Any) -> None:
    machine((6e5,) * 4, (1.0,) * 4).write("four.json")
    words = ("plan", "model", "--machine", "four.json", "--prompt", 20, "--output", 5, "--for", "vllm", "--no-limits")
    four, one = (json.loads(run(*words, *more, "--json").stdout) for more in ((), ("--tensor-parallel", 1)))
    assert (four["tensor_parallel"], one["tensor_parallel"]) == (4, 1)
    assert four["seconds"] < one["seconds"]
    assert " --tensor-parallel-size 4 " in four["command"]["text"]
    assert "placement g0+g1+g2+g3: embed, blocks 0-5, head; " in run(*words).stdout


def test_what_does_not_fit_says_what_would(run: Any, here: Any) -> None:
    machine((5e4, 5e4), (1.0, 1.0)).write("small.json")
    shown = run("plan", "model", "--machine", "small.json")
    assert shown.exit_code == 1
    assert shown.stdout.startswith("plan      does not fit: ")
    assert "are missing, over all placements of whole blocks" in shown.stdout
    assert "limits    fits at most: a context of " in shown.stdout
    assert "even: does not fit, " in shown.stdout
    facts = json.loads(run("plan", "model", "--machine", "small.json", "--json").stdout)
    assert (facts["status"], facts["seconds"], facts["stages"]) == ("infeasible", None, [])


@pytest.mark.slow
def test_options_are_heard(run: Any, here: Any) -> None:
    facts = json.loads(run("plan", "model", *WORK, "--json").stdout)
    fewer = json.loads(run("plan", "model", *WORK, "--bits", 4, "--kv-dtype", "q8_0", "--json").stdout)
    assert fewer["seconds"] < facts["seconds"]
    ordered = json.loads(run("plan", "model", *WORK, "--order", "cpu,g1,g0", "--json").stdout)
    order = ["cpu", "g1", "g0"]
    used = [order.index(row["device"]) for row in ordered["stages"]]
    assert used == sorted(used) != []
    assert json.loads(run("plan", "model", *WORK, "--reserve", "g0=100kB", "--json").stdout)["seconds"] > facts["seconds"]
    assert "limits" not in json.loads(run("plan", "model", *WORK, "--no-limits", "--json").stdout)
    assert json.loads(run("plan", "model", *WORK, "--limits", "--json").stdout)["limits"]["left_out"] == []
    fit = run("plan", "model", *WORK, "--regime", "fit")
    assert "fits, on 1 device; no times are asked for" in fit.stdout or "fits, on 2 devices" in fit.stdout


@pytest.mark.slow
def test_other_files_of_a_model(run: Any, here: Any) -> None:
    card = hs.frontends.configs.read("model")
    card.write("card.json")
    told = [json.loads(run("plan", name, *WORK, "--json").stdout)["seconds"] for name in ("model", "model/config.json", "card.json")]
    assert len(set(told)) == 1
    assert math.isfinite(told[0])


def test_serving(run: Any, here: Any) -> None:
    machine((2e6, 2e6, 4e6), (1.0, 1.0, 2.0)).write("pool.json")
    words = ("plan", "model", "--machine", "pool.json", "--regime", "serving", "--sequences", 4, "--time-limit", 5)
    shown = run(*words)
    assert shown.exit_code == 0, shown.stderr
    assert shown.stdout.startswith("plan      MODELLED costs: ")
    facts = json.loads(run(*words, "--json", "-o", "serving.json", "--report", "serving.html").stdout)
    assert facts["written"] == ["serving.json", "serving.html"]
    assert hs.read("serving.json").value == facts["tokens_per_second"]
    assert f"{facts['bound']:.6g} tokens/s of output on, by " in (here / "serving.html").read_text()
    assert facts["tokens_per_second"] >= max(facts["baselines"].values())
    assert facts["bound"] >= facts["tokens_per_second"] * (1 - 1e-9)
    assert f"{facts['bound']:.6g} tokens/s of output by " in shown.stdout
    machine((1e3,), (1.0,)).write("pool.json")
    nothing = run(*words)
    assert (nothing.exit_code, nothing.stdout[:38]) == (1, "plan      no device holds a block with")


@pytest.mark.parametrize("tool", TOOLS)
def test_the_rule_of_a_tool(run: Any, tool: str) -> None:
    shown = run("plan", "--explain", tool)
    assert shown.exit_code == 0
    assert shown.stdout.startswith(f"tool      {tool}\nread in   ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "MODEL is missing; give a model and a machine"),
        (("model",), "--machine is missing; give a model and a machine (see: hetsched machine)"),
        (("model", *WORK, "--for", "x"), "tool is 'x'; choose from accelerate"),
        (("model", *WORK, "--kv-dtype", "f8"), "--kv-dtype is 'f8'; choose from f32, f16"),
        (("model", *WORK, "--reserve", "g0"), "--reserve is 'g0'; give the name of a device and =, as in --reserve gpu0=2GB"),
        (("model", *WORK, "--reserve", "g0=2XB"), "--reserve g0 is '2XB'; give an amount such as 24GB or 22.5GiB"),
        (("model", *WORK, "--reserve", "x=2GB"), "reserved_bytes names 'x', which is not in the cluster"),
        (("model", *WORK, "--order", "g0,x"), "order is ['g0', 'x']; name devices of g0, g1, cpu"),
        (("model", *WORK, "--order", ""), "--order is ''; give names of devices with commas between them: gpu1,gpu0"),
        (("model", *WORK, "--measured", "g0:x.json"), "there is no file of rates 'x.json'; name one, or give rates, as gpu0:"),
        (("model", *WORK, "--tensor-parallel", "x"), "--tensor-parallel is 'x'; give a number of GPUs from 1, or auto"),
        (("model", *WORK, "--tensor-parallel", 2), "tensor_parallel is 2; it is searched for tools that have it, name one: megatron"),
        (("model", *WORK, "--context", 3), "context is 3, but a request has 20 tokens and asks for 5; give at least 25"),
        (("model", *WORK, "--for", "vllm,torch", "-o", "p.json"), "--for names vllm, torch, and --save takes one plan; name one tool"),
        (("model", "--machine", "model/config.json"), "missing required field `format`"),
        (("nothing", *WORK), "nothing"),
        (("model", *WORK, "--regime", "serving", "--for", "vllm"), "--for is not for the regime serving, whose devices hold blocks"),
    ],
)
def test_messages(run: Any, here: Any, words: tuple[Any, ...], message: str) -> None:
    shown = run("plan", *words)
    assert shown.exit_code == 2
    assert message in shown.stderr.replace("\n", " ")


def test_after_the_time_limit_the_best_found_is_printed_with_its_bound(run: Any, here: Any) -> None:
    box((5e5, 4e5, 4e5)).write("box.json")  # of which the quick bound proves nothing
    shown = run("plan", "model", *WORK, "--time-limit", 0)
    assert shown.exit_code == 0, shown.stderr
    assert "found before the end (time limit), the best of whole blocks for these costs takes at most " in shown.stdout
    assert "proven    no placement of whole blocks, in any order of devices, takes less than " in shown.stdout
    assert "limits    not computed, for it takes long: the most context, " in shown.stdout
    assert "allow more time with --time-limit" in shown.stdout
    facts = json.loads(run("plan", "model", *WORK, "--time-limit", 0, "--json").stdout)
    assert (facts["status"], facts["stopped"]) == ("feasible", "time limit")
    assert 0 < facts["bound"] < facts["seconds"]
    assert facts["gap"] == pytest.approx(1 - facts["bound"] / facts["seconds"])


@pytest.mark.parametrize(("raised", "code"), [(KeyboardInterrupt, 130), (Terminated, 143)])
@pytest.mark.parametrize("where", ["hetsched.planning.dynamic_program._least", "hetsched.planning.planner.ModelPlan.most_context"])
def test_a_signal_loses_nothing_that_was_found(run: Any, here: Any, monkeypatch: Any, raised: Any, code: int, where: str) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise raised

    if where.endswith("_least"):
        box((5e5, 4e5, 4e5)).write("box.json")  # of which the quick bound proves nothing
    monkeypatch.setattr(where, interrupt)
    shown = run("plan", "model", *WORK, "-o", "plan.json")
    assert shown.exit_code == code
    assert "placement g0: " in shown.stdout
    assert "limits" not in shown.stdout
    assert hs.read("plan.json").status == ("feasible" if where.endswith("_least") else "optimal")
