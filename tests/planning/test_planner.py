"""Plans are the best of all placements by their costs, and no simple rule is better."""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.chain.evaluation import evaluate
from hetsched.planning.question import forward, selected
from hetsched.testing.chains import best_placements, chain_problems
from hetsched.testing.profiles import examples

CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 500,
}


def ordered(problem, order):
    return forward(selected(problem, order))


def card(blocks=4, tied=False):
    return hs.frontends.configs.read(
        {**CONFIG, "num_hidden_layers": blocks, "tie_word_embeddings": tied, "torch_dtype": "float16"}, name="small"
    )


def machine(memory=(4e5, 3e5, 2e5), speed=(4.0, 2.0, 1.0), bandwidth=1e8, latency=1e-5):
    devices = [
        hs.Device(f"g{k}", memory_bytes=held, peak_flops={"float16": 1e9 * fast}, memory_bandwidth=1e8 * fast)
        for k, (held, fast) in enumerate(zip(memory, speed, strict=True))
    ]
    names = {device.name: {"llama.cpp": f"CUDA{k}", "vllm": k} for k, device in enumerate(devices)}
    return hs.Machine(hs.Cluster(devices, bandwidth=bandwidth, latency=latency), tool_names=names)


machines = st.integers(1, 3).flatmap(
    lambda m: st.builds(
        machine,
        memory=st.tuples(*[st.floats(5e4, 8e5)] * m),
        speed=st.tuples(*[st.sampled_from([1.0, 2.0, 5.0])] * m),
        bandwidth=st.sampled_from([1e6, 1e8]),
    )
)
workloads = st.builds(
    hs.Workload, prompt=st.integers(1, 40), output=st.integers(1, 20), sequences=st.integers(1, 4), chunk=st.sampled_from([8, 64])
)
cards = st.builds(card, st.integers(1, 4), tied=st.booleans())


@examples(60)
@given(cards, machines, workloads)
def test_a_plan_is_the_best_of_all_placements_and_of_all_simple_rules(model, where, work):
    plan = hs.plan(model, where, work)
    assert plan.regime == ("latency" if work.sequences == 1 else "throughput")
    values = []
    for count in range(1, min(len(where.cluster.names), model.n_items) + 1):
        in_progress = 1 if plan.regime == "latency" else min(count, work.sequences)
        problem = hs.costs.LanguageRoofline().chain(model, where, work, in_progress=in_progress)
        per = 1 if plan.regime == "latency" else work.sequences / in_progress
        for cuts in itertools.combinations(range(1, model.n_items), count - 1):
            ends = [0, *cuts, model.n_items]
            for devices in itertools.permutations(range(len(where.cluster.names)), count):
                found = evaluate(problem, hs.Placement(zip(devices, ends[:-1], ends[1:], strict=True)))
                if found.fits:
                    values.append(found.latency if plan.regime == "latency" else max(found.largest_load, found.latency / in_progress) / per)
    assert plan.value == pytest.approx(min(values, default=math.inf), rel=1e-9)
    assert (plan.status == "infeasible") == (not values) == (plan.missing_bytes > 0)
    assert all(row.value >= plan.value * (1 - 1e-9) for row in plan.baselines)
    if plan.placement is None:
        assert plan.tokens_per_second == 0
    else:
        assert plan.values.fits
        batch = work.sequences if plan.regime == "latency" else 1
        assert plan.tokens_per_second == pytest.approx(work.output * batch / plan.value)


@examples(60)
@given(chain_problems(n_devices=st.integers(1, 4)), st.data())
def test_stages_keep_to_an_order_and_nothing_else_changes(problem, data):
    order = data.draw(st.permutations(problem.devices))[: data.draw(st.integers(1, problem.n_devices))]
    best = best_placements(ordered(problem, order)).latency
    assert ordered(problem, order).most_in_progress == problem.most_in_progress
    wanted = math.inf
    for count in range(1, len(order) + 1):
        for names in itertools.combinations(order, count):
            own = ordered(problem, names)
            for cuts in itertools.combinations(range(1, problem.n_items), count - 1):
                ends = [0, *cuts, problem.n_items]
                found = evaluate(own, hs.Placement((k, ends[k], ends[k + 1]) for k in range(count)))
                wanted = min(wanted, found.latency if found.fits else math.inf)
    assert best.value == wanted


@examples(30)
@given(cards, machines, workloads)
def test_more_of_anything_good_is_never_worse(model, where, work):
    plan = hs.plan(model, where, work)
    for device in where.cluster.names:
        assert plan.with_memory(device, 1e5).value <= plan.value
        step = plan.next_memory_step(device)
        if step is not None:
            assert step.best.value < plan.value
    assert plan.without_hops().value <= plan.value * (1 + 1e-12)


def test_what_a_tool_is_told_is_what_the_plan_says():
    plan = hs.plan(card(6), machine(), hs.Workload(20, 5))
    assert len(plan.placement) > 1
    said = plan.command("llama.cpp", model="m.gguf").text
    assert "llama-server -m m.gguf -c 25 -np 1 -ngl 7 -ts " in said
    assert "VLLM_PP_LAYER_PARTITION" in plan.command("vllm").environment


def test_stages_in_the_given_order_have_the_names_of_their_devices():
    plan = hs.plan(card(6), machine(memory=(5e5, 4e5, 0.0)), hs.Workload(20, 5), order=["g1", "g0"])
    assert plan.problem.devices == ("g1", "g0")
    assert [stage.device for stage in plan.placement.stages] == [0, 1]
    assert plan.command("vllm").environment["CUDA_VISIBLE_DEVICES"] == "1,0"


def test_a_plan_says_what_it_is():
    plan = hs.plan(card(1), machine(), hs.Workload(20, 5))
    assert repr(plan).startswith("<ModelPlan for 'small' on g0, g1, g2: optimal, 0.0")
    with pytest.raises(TypeError, match=r"plans are made by hetsched.plan\(card, machine, work\)"):
        hs.ModelPlan()


NOWHERE = machine(memory=(1e3, 1e3, 1e3))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: hs.plan(card(), machine(), hs.Workload(3, 1), order=["g0", "g0"]),
            r"order is \['g0', 'g0'\]; name devices of g0, g1, g2, each at most once",
        ),
        (lambda: hs.plan(card(), machine(), hs.Workload(3, 1), order=[]), r"order is \[\]; name devices of g0"),
        (lambda: hs.plan(card(), machine(), hs.Workload(3, 1), order=["x"]), r"order is \['x'\]; name devices of g0"),
        (
            lambda: hs.plan(card(), machine(), hs.Workload(3, 1), regime="fast"),
            "regime is 'fast'; choose one of 'fit', 'latency', 'throughput'",
        ),
        (
            lambda: hs.plan(card(), NOWHERE, hs.Workload(3, 1)).values,
            "no placement fits, [0-9.e+]+ bytes are missing; give devices more memory",
        ),
        (lambda: hs.plan(card(), NOWHERE, hs.Workload(3, 1)).command("vllm"), "no placement fits"),
        (lambda: hs.plan(card(), machine(), hs.Workload(3, 1)).command("x"), "tool is 'x'; choose from accelerate, llama.cpp"),
        (lambda: hs.plan(card(), machine(), hs.Workload(3, 1)).command(), "the plan is for no tool; name one of accelerate, llama.cpp"),
        (lambda: hs.plan(card(), machine(), hs.Workload(3, 1)).with_memory("x", 1), "device is 'x'; the plan has g0, g1, g2"),
        (
            lambda: hs.plan(card(), machine(), hs.Workload(3, 1, sequences=2)).break_even("g0"),
            "the regime is 'throughput'; the factors are an interval only for",
        ),
    ],
)
def test_messages(call, message):
    with pytest.raises(hs.HetschedError, match=message):
        call()


def test_a_machine_comes_back_to_the_bit(tmp_path):
    where = hs.Machine(
        machine().cluster, reserved_bytes={"g0": 1e3}, tool_names={"g1": {"torch": 1, "llama.cpp": "CUDA1"}}, efficiency={"g2": (0.5, 0.75)}
    )
    where.write(tmp_path / "machine.json")
    assert hs.read(tmp_path / "machine.json") == where
    assert where.usable_bytes.tolist() == [4e5 - 1e3, 3e5, 2e5]


@pytest.mark.slow
def test_planning_loads_no_compiler():
    """The first answer of a process does not wait for numba, which takes longer to load than a plan to find."""
    code = """
import json, sys
import hetsched as hs
card = hs.frontends.configs.read(json.loads(sys.argv[1]), name="small")
devices = [hs.Device(name, memory_bytes=1e6, peak_flops={"float16": 1e9}, memory_bandwidth=1e8) for name in ("a", "b")]
plan = hs.plan(card, hs.Machine(hs.Cluster(devices, bandwidth=1e8)), hs.Workload(20, 5, sequences=2))
assert hs.planning.explain(plan).most_context > 0
assert "numba" not in sys.modules
"""
    config = {**CONFIG, "num_hidden_layers": 4, "torch_dtype": "float16"}
    subprocess.run([sys.executable, "-c", code, json.dumps(config)], check=True)
