"""Tensor parallelism: what a rank holds, which devices run a stage together, and plans that are the best of all of it."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.costs.tensor_parallel import card_of_rank, device_sets, messages_within
from hetsched.errors import InvalidArgument, UnsupportedFeature
from hetsched.planning import words
from hetsched.planning.question import Question
from hetsched.planning.tools import TOOLS
from hetsched.testing.profiles import examples
from tests.planning.test_planner import CONFIG, card, workloads

FAMILIES = st.sampled_from(
    [{"model_type": "llama"}, {"model_type": "gemma"}, {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}]
)


@examples(20)
@given(FAMILIES, st.sampled_from([(8, 8), (8, 4), (8, 2), (8, 1)]), st.sampled_from([2, 4, 8]), st.sampled_from([500, 512]), st.booleans())
def test_a_rank_holds_and_computes_what_a_model_of_its_share_does(family, heads, ranks, vocabulary, tied):
    sizes = {**CONFIG, **family, "head_dim": 16, "num_hidden_layers": 2, "tie_word_embeddings": tied, "torch_dtype": "float16"}
    whole = sizes | {"num_attention_heads": heads[0], "num_key_value_heads": heads[1], "vocab_size": vocabulary}
    part = sizes | {
        "num_attention_heads": heads[0] // ranks,
        "num_key_value_heads": max(heads[1] // ranks, 1),
        "intermediate_size": 128 // ranks,
        "vocab_size": 512 // ranks,
    }
    found, wanted = card_of_rank(hs.frontends.configs.read(whole), ranks, 64), hs.frontends.configs.read(part)
    np.testing.assert_allclose(found.parameters, wanted.parameters)
    np.testing.assert_allclose(found.weight_bytes, wanted.weight_bytes)
    for column in ("heads", "key_size", "value_size", "cache_numbers", "experts", "experts_used"):
        assert found.items[column].tolist() == wanted.items[column].tolist(), column
    assert (found.items.workspace_numbers >= wanted.items.workspace_numbers).all()


def node_machine(kinds, memory=(3e5, 4e5), inside=1e8, between=1e7):
    """Return a machine with nodes of GPUs, of which each has a memory and a speed; links depend on the nodes."""
    gpus = []
    for node, own in enumerate(kinds):
        for k, kind in enumerate(own):
            speed = {"peak_flops": {"float16": 1e9 * (1 + kind)}, "memory_bandwidth": 1e8 * (1 + kind)}
            gpus.append(hs.Device(f"n{node}g{k}", node=f"n{node}", memory_bytes=memory[kind], **speed))
    near = np.array([[a.node == b.node for b in gpus] for a in gpus])
    return hs.Machine(hs.Cluster(gpus, bandwidth=np.where(near, inside, between), latency=np.where(near, 1e-6, 1e-5)))


machines = st.builds(
    node_machine,
    st.sampled_from([[[0, 0]], [[0, 0, 0]], [[0, 0, 1]], [[0, 0], [1]], [[0, 0], [0, 0]], [[0, 0], [1, 1]], [[0, 0, 0, 0]]]),
    memory=st.tuples(*[st.floats(6e4, 6e5)] * 2),
    inside=st.sampled_from([1e7, 1e9]),
    between=st.sampled_from([1e6, 1e8]),
)


def enumerated(model, where, work, regime, sizes):
    """Return the least value over all degrees, sets of alike devices of a node, orders of them and cuts between blocks."""
    devices, index, best = where.cluster.devices, where.cluster.index, math.inf
    for size in sizes:
        rank = card_of_rank(model, size, 64) if size > 1 else model
        for count in range(1, len(devices) // size + 1):
            at_a_time = min(count, work.sequences) if regime == "throughput" else 1
            batch = math.ceil(work.sequences / at_a_time)
            problem = hs.costs.LanguageRoofline().chain(rank, where, work, in_progress=at_a_time, tensors_sent=2)
            runs, tokens = math.ceil(work.prompt * batch / work.chunk) + work.output, batch * (work.prompt + work.output)
            for sets in itertools.permutations(itertools.combinations(range(len(devices)), size), count):
                own = [k for members in sets for k in members]
                alike = all(len({(devices[k].node, devices[k].memory_bandwidth) for k in members}) == 1 for members in sets)
                runs_of = [(node, len(list(run))) for node, run in itertools.groupby(devices[members[0]].node for members in sets)]
                by_node = len(dict(runs_of)) == len(runs_of) and len({length for _, length in runs_of}) == 1
                if len(set(own)) < len(own) or not alike or not by_node:
                    continue
                for cuts in itertools.combinations(range(2, model.n_items - 1), count - 1):
                    edges = [0, *cuts, model.n_items]
                    loads, fits = [], True
                    for members, first, end in zip(sets, edges[:-1], edges[1:], strict=True):
                        seconds, held = problem.seconds[first:end, members[0]].sum(), problem.weight_bytes[first:end].sum()
                        held += problem.cache_bytes[first:end].sum() + problem.workspace_bytes[first:end].max()
                        held -= problem.shared_bytes if count == 1 else 0
                        fits &= held <= 0.9 * devices[members[0]].memory_bytes
                        if size > 1:
                            width = where.cluster.bandwidth[index[devices[members[0]].name], index[devices[members[1]].name]]
                            each = 2 * (size - 1) * (tokens * model.width * 2 / size / width + runs * 1e-6)
                            seconds += each * ((first == 0) + 2 * len(range(max(first, 1), min(end, model.n_items - 1))))
                            logits = batch * (1 + work.output) * model.vocabulary * 2
                            seconds += (end == model.n_items) * (size - 1) * (logits / size / width + runs * 1e-6)
                        loads.append(seconds)
                    hops = [max(problem.hops[a, b] for a in sets[s] for b in sets[s + 1]) for s in range(count - 1)]
                    closing = max(problem.closing[a, b] for a in sets[-1] for b in sets[0]) if count > 1 else 0.0
                    if fits:
                        total = sum(loads) + sum(hops) + closing
                        value = (
                            total if regime == "latency" else max(*loads, *hops, closing, total / at_a_time) * at_a_time / work.sequences
                        )
                        best = min(best, value)
    return best


@examples(10)
@given(st.integers(1, 3), machines, workloads, st.sampled_from(["vllm", "sglang"]), st.sampled_from([None, 1, 2]), st.booleans())
def test_a_plan_is_the_best_of_all_degrees_sets_and_cuts(blocks, where, work, tool, asked, tied):
    model, regime = card(blocks, tied=tied), "latency" if work.sequences == 1 else "throughput"
    plan = hs.plan(model, where, work, tool=tool, tensor_parallel=asked)
    assert plan.value == pytest.approx(enumerated(model, where, work, regime, plan.degrees), rel=1e-9)
    if plan.placement is not None:
        sets = [plan.question.sets[stage.device] for stage in plan.placement.stages]
        assert hs.verify_tensor_parallel(model, where, sets, plan.tensor_parallel) == []
        stated = plan.command().text  # read back by the rule of the tool
        assert (plan.tensor_parallel > 1) == ("--tensor-parallel-size" in stated or "--tp-size" in stated)


BOX = node_machine([[0, 0, 0, 0]], memory=(6e5, 0.0))
WORK = hs.Workload(20, 5)


def test_all_degrees_are_searched_and_the_best_is_found():
    plan = hs.plan(card(8), BOX, WORK, tool="vllm")
    single = {size: hs.plan(card(8), BOX, WORK, tool="vllm", tensor_parallel=size) for size in (1, 2, 4)}
    assert plan.degrees == (1, 2, 4)
    assert plan.value == min(one.value for one in single.values()) == plan.bound == single[plan.tensor_parallel].value
    assert plan.tensor_parallel > 1
    rows = {row.name: row for row in plan.baselines}
    assert [row.tensor_parallel for row in plan.baselines if row.name.startswith("tensor parallel")] == [2, 4]
    assert rows["tensor parallel 4"].placement == hs.Placement([(0, 0, 10)])
    assert all(row.value >= plan.value for row in plan.baselines)
    assert hs.plan(card(8), BOX, WORK, tool="torch").degrees == (1,)
    assert plan.most_context() == max(one.most_context() for one in single.values())


def test_degrees_that_are_no_power_of_two_are_searched_too():
    sizes = {"num_attention_heads": 12, "num_key_value_heads": 6, "intermediate_size": 384, "vocab_size": 384, "head_dim": 8}
    model = hs.frontends.configs.read({**CONFIG, **sizes, "num_hidden_layers": 4})
    where = node_machine([[0, 0, 0]], memory=(1e7, 0.0), inside=1e9)
    plan = hs.plan(model, where, WORK, tool="vllm")
    assert (plan.degrees, plan.tensor_parallel) == ((1, 2, 3), 3)
    assert (
        plan.value
        == enumerated(model, where, WORK, "latency", (1, 2, 3))
        < hs.plan(model, where, WORK, tool="vllm", tensor_parallel=1).value
    )


def test_degrees_whose_search_would_be_too_large_are_left_out():
    where = node_machine([[0] * 8] * 8)  # with one GPU a stage there are 9 ** 8 sets of used ones
    assert Question(card(8), where, WORK, "latency", hs.costs.LanguageRoofline(), TOOLS["vllm"]).degrees() == [2, 4]


def test_the_messages_are_those_of_a_ring():
    model, work = card(1), hs.Workload(3, 2, chunk=2)
    found = messages_within(model, node_machine([[0, 0, 0, 0]], inside=1e8), work, [["n0g0", "n0g1", "n0g2", "n0g3"]])
    all_reduce = 2 * 3 / 4 * 5 * 64 * 2 / 1e8 + 2 * 3 * 1e-6 * 4
    gather = 3 / 4 * 3 * 500 * 2 / 1e8 + 3 * 1e-6 * 4
    assert found[:, 0] == pytest.approx([all_reduce, 2 * all_reduce, gather])


def test_sets_are_of_alike_devices_with_the_fastest_links():
    gpus = [hs.Device(f"g{k}", memory_bytes=1e9) for k in range(5)]
    width = np.full((5, 5), 1e9)
    width[[0, 3], [3, 0]] = width[[1, 4], [4, 1]] = 9e9
    where = hs.Machine(hs.Cluster(gpus, bandwidth=width, latency=1e-6))
    assert device_sets(where, where.cluster.names, 2) == (("g0", "g3"), ("g1", "g4"))
    assert device_sets(where, where.cluster.names, 4) == (("g0", "g1", "g2", "g3"),)
    assert device_sets(where, ["g2", "g1", "g0", "g4"], 2, in_order=True) == (("g2", "g1"), ("g0", "g4"))
    assert device_sets(where.reserving({"g3": 1e8}), where.cluster.names, 2) == (("g0", "g2"), ("g1", "g4"))
    mixed = node_machine([[0, 0], [0, 1]])
    assert device_sets(mixed, mixed.cluster.names, 2) == (("n0g0", "n0g1"),)
    assert device_sets(mixed, mixed.cluster.names, 2, in_order=True) == ()


def test_the_command_of_several_nodes_has_as_many_ranks_on_each():
    where = node_machine([[0, 0], [0, 0]], memory=(3e5, 0.0), inside=1e9)
    plan = hs.plan(card(8), where, WORK, tool="megatron", tensor_parallel=2)
    lines = plan.command().text.splitlines()
    assert lines[0] == "# on n0"
    assert lines[1].startswith(
        "CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc-per-node 2 --nnodes 2 --node-rank 0 "
    )
    assert " --tensor-model-parallel-size 2 " in lines[1]
    assert " --tp-size 2 " in plan.command("sglang").text
    with pytest.raises(UnsupportedFeature, match=r"stages are on sets of devices, \['n0:0,n0:1', .* torch runs a stage on one device"):
        plan.command("torch")


NAMES = ["0,1", "2,3"]
TEXT = "CUDA_VISIBLE_DEVICES=0,1,2,3 VLLM_PP_LAYER_PARTITION=3,5 vllm serve M -pp 2 -tp 2"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("-tp 2", "-tp 4", r"'4' GPUs run a stage together; they must be 2, as in \['0,1', '2,3'\]"),
        ("-tp 2", "", "'1' GPUs run a stage together; they must be 2"),
        ("0,1,2,3", "0,2,1,3", "the GPUs 0, 2 run a stage together; those that do are"),
        ("0,1,2,3", "0,1,2", "CUDA_VISIBLE_DEVICES has 3 GPUs; give 2 for each of 2 ranks"),
    ],
)
def test_texts_with_other_sets_are_not_read(old, new, message):
    vllm = TOOLS["vllm"]
    command = vllm.emit(card(8), hs.Placement([(0, 0, 4), (1, 4, 10)]), NAMES)
    assert vllm.read(card(8), replace(command, text=TEXT), NAMES) == hs.Placement([(0, 0, 4), (1, 4, 10)])
    with pytest.raises(InvalidArgument, match=message):
        vllm.read(card(8), replace(command, text=TEXT.replace(old, new)), NAMES)


def test_the_verifier_finds_each_violation():
    mixed = node_machine([[0, 0, 1], [0]])

    def rules(sets, degree=2):
        return [violation.rule for violation in hs.verify_tensor_parallel(card(2), mixed, sets, degree)]

    assert rules([["n0g0", "n0g1"]]) == []
    assert rules([["n0g0", "n0g1"]], 4) == ["size"]
    assert rules([["n0g0", "n0g1"], ["n0g1", "n0g0"]]) == ["shared", "shared"]
    assert rules([["n0g0", "n0g2"]]) == ["alike"]
    assert rules([["n0g0", "n1g0"]]) == ["node"]
    assert rules([["n0g0", "x"]]) == ["unknown"]
    assert rules([["n0g0", "n0g1", "n0g2"]], 3) == ["alike", *["heads", "kv-heads"] * 2]


def config(**changes):
    return hs.frontends.configs.read({**CONFIG, "num_hidden_layers": 2, "torch_dtype": "float16", **changes}, name="M")


COMPRESSED = {
    "model_type": "deepseek_v3",
    "kv_lora_rank": 16,
    "q_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 8,
    "n_routed_experts": 2,
    "n_shared_experts": 1,
    "num_experts_per_tok": 1,
    "moe_intermediate_size": 8,
    "first_k_dense_replace": 1,
    "num_key_value_heads": 4,
}
REFUSED = [
    ({}, 3, "llama.cpp", "tensor_parallel is 3; it is searched for tools that have it, name one: megatron, sglang, vllm"),
    ({}, 8, "vllm", "there are no 8 alike devices on a node; give fewer"),
    ({}, 3, "vllm", "'M' has 4 attention heads, and tensor_parallel is 3; it must divide them"),
    (
        {"num_attention_heads": 12, "num_key_value_heads": 6, "head_dim": 16},
        4,
        "vllm",
        "'M' has 6 KV heads, and tensor_parallel is 4; it must divide them, or be a multiple of them",
    ),
    (
        {"intermediate_size": 130},
        4,
        "vllm",
        "'M' has a feed-forward network of width 130, and tensor_parallel is 4; it must divide the width",
    ),
    (
        {"num_attention_heads": 3, "num_key_value_heads": 3, "head_dim": 16, "intermediate_size": 129},
        3,
        "vllm",
        "'M' has a vocabulary that is padded to 512, and tensor_parallel is 3; it must divide that",
    ),
    (COMPRESSED, 2, "vllm", "'M' keeps keys and values compressed, whose division is not modelled"),
]


@pytest.mark.parametrize(("changes", "size", "tool", "message"), REFUSED)
def test_what_cannot_be_divided(changes, size, tool, message):
    with pytest.raises(UnsupportedFeature, match=message):
        hs.plan(config(**changes), BOX, WORK, tool=tool, tensor_parallel=size)


def test_an_order_says_the_sets():
    order = ["n0g3", "n0g1", "n0g0", "n0g2"]
    plan = hs.plan(card(8), node_machine([[0, 0, 0, 0]]), WORK, tool="vllm", order=order, tensor_parallel=2)
    assert plan.problem.devices == ("n0g3+n0g1", "n0g0+n0g2")
    assert "CUDA_VISIBLE_DEVICES=3,1,0,2 " in plan.command().text
    with pytest.raises(UnsupportedFeature, match="no 2 alike devices of a node, one behind the other, in the order; give fewer"):
        hs.plan(card(8), node_machine([[0, 0, 1]]), WORK, tool="vllm", order=["n0g0", "n0g2"], tensor_parallel=2)


def test_a_plan_comes_back_and_others_do_not(tmp_path):
    plan = hs.plan(card(8), BOX, WORK, tool="vllm")
    plan.write(tmp_path / "plan.json")
    back = hs.read(tmp_path / "plan.json")
    for what in ("placement", "value", "bound", "tensor_parallel", "degrees", "baselines", "status"):
        assert getattr(back, what) == getattr(plan, what), what
    value = json.loads((tmp_path / "plan.json").read_text())
    for change, message in (
        ({"tensor_parallel": 1}, "a stage is on .* which is none of the devices n0g0, n0g1"),
        ({"degrees": [1, 2, 8]}, "degrees are .*; they must rise, and have tensor_parallel, 4, among them"),
    ):
        (tmp_path / "other.json").write_text(json.dumps({**value, **change}))
        with pytest.raises(hs.InvalidProblem, match=message):
            hs.read(tmp_path / "other.json")


def test_the_plan_says_what_is_modelled_and_what_was_searched():
    plan = hs.plan(card(8), BOX, WORK, tool="vllm")
    text = "\n".join(line for _, line in words.plan_rows(plan.with_explanation(hs.planning.explain(plan))))
    assert "of a stage are messages between its devices, modelled: two all-reduces a block" in text
    assert "each on 1, 2 or 4 alike devices of a node with the fastest links, as many for all, in any order of devices" in text
    assert f"what follows keeps tensor parallelism {plan.tensor_parallel}" in text
    assert "tensor parallel 4: " in text
    assert words.plan_facts(plan)["tensor_parallel"] == plan.tensor_parallel


@pytest.mark.slow
def test_the_page_of_a_plan_names_the_sets():
    assert "n0g0+n0g1" in hs.report.plan_html(hs.plan(card(8), BOX, WORK, tool="vllm"))


@pytest.mark.slow
def test_megatron_divides_heads_by_the_same_rule():
    module = pytest.importorskip("megatron.core.transformer.transformer_config", reason="megatron-core is not installed")
    for heads, kv, size in itertools.product((4, 6, 12), (1, 2, 3, 4, 6), (2, 3, 4, 6)):
        if heads % kv == 0 and heads % size == 0:
            model = config(num_attention_heads=heads, num_key_value_heads=kv, head_dim=16, intermediate_size=24)
            refused = any(one.rule == "kv-heads" for one in hs.verify_tensor_parallel(model, BOX, [], size))
            sizes = {"num_layers": 2, "hidden_size": 16 * heads, "num_attention_heads": heads, "num_query_groups": kv}
            if refused:
                with pytest.raises(ValueError, match="num_query_groups"):
                    module.TransformerConfig(**sizes, tensor_model_parallel_size=size)
            else:
                module.TransformerConfig(**sizes, tensor_model_parallel_size=size)
