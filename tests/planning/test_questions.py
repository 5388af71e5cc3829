"""Plans for a tool are the best of what the tool can state, with its margins of memory, its messages and its default."""

from __future__ import annotations

import itertools
import math
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.chain.evaluation import evaluate
from hetsched.planning import offloading, tools, words
from hetsched.testing.profiles import examples
from tests.planning.test_planner import CONFIG, card, cards, machine, workloads

NAMES = ("accelerate", "llama.cpp", "megatron", "sglang", "torch", "transformers", "vllm")


def box(memory=(4e5, 3e5, 2e5), speed=(4.0, 2.0, 1.0), cpu=True, bandwidth=1e8):
    """Return a machine whose last device is a CPU, with the tools' own names."""
    where = machine(memory, speed, bandwidth).cluster
    devices = [hs.Device("cpu" if cpu and k == len(where.names) - 1 else d.name, kind="cpu" if cpu and k == len(where.names) - 1 else "",
                         memory_bytes=d.memory_bytes, peak_flops=d.peak_flops, memory_bandwidth=d.memory_bandwidth)
               for k, d in enumerate(where.devices)]  # fmt: skip
    nothing = dict.fromkeys((d.name for d in devices), 0.0)  # margins of tools are larger than these devices
    return hs.Machine(hs.Cluster(devices, bandwidth=bandwidth, latency=1e-5), reserved_bytes=nothing)


boxes = st.integers(1, 3).flatmap(
    lambda m: st.builds(
        box,
        memory=st.tuples(*[st.floats(5e4, 8e5)] * m),
        speed=st.tuples(*[st.sampled_from([1.0, 2.0, 5.0])] * m),
        cpu=st.booleans(),
        bandwidth=st.sampled_from([1e6, 1e8]),
    )
)


def placements(n_items, n_devices):
    for count in range(1, min(n_items, n_devices) + 1):
        for cuts in itertools.combinations(range(1, n_items), count - 1):
            ends = [0, *cuts, n_items]
            for devices in itertools.permutations(range(n_devices), count):
                yield hs.Placement(zip(devices, ends[:-1], ends[1:], strict=True))


def sparse(blocks=3):
    """Return a card of blocks with experts."""
    experts = {"model_type": "qwen3_moe", "head_dim": 16, "moe_intermediate_size": 64, "num_experts": 8, "num_experts_per_tok": 2}
    rest = {"num_hidden_layers": blocks, "tie_word_embeddings": False, "torch_dtype": "float16", "mlp_only_layers": [0]}
    return hs.frontends.configs.read({**CONFIG, **experts, **rest, "decoder_sparse_step": 1}, name="sparse")


def offloads(problem, placement):
    """Yield the placement with all choices of offloaded items."""
    moved = problem.offloading
    items = [] if moved is None else np.flatnonzero(moved.weight_bytes).tolist()
    for chosen in itertools.product([None, *([] if moved is None else np.flatnonzero(moved.holds).tolist())], repeat=len(items)):
        yield hs.Placement(placement.stages, [(item, k) for item, k in zip(items, chosen, strict=True) if k is not None])


def with_disk(where):
    """Return the machine with a disk of little bandwidth."""
    cluster, disk = where.cluster, hs.Device("disk", family="disk", memory_bytes=1e9)
    width = np.pad(cluster.bandwidth, ((0, 1), (0, 1)), constant_values=1e7)
    return hs.Machine(hs.Cluster([*cluster.devices, disk], bandwidth=width, latency=1e-5), reserved_bytes=where.reserved_bytes)


def values_that_fit(plan, placement):
    """Yield the value of a placement, with all choices of offloaded items, each of which the tool can state."""
    for moved in offloads(plan.question.problems[0], placement):
        try:
            found = evaluate(plan.question.of(moved), moved)
        except hs.InvalidSchedule:
            continue
        if moved.offloaded and math.isfinite(found.latency):
            assert plan.question.tool.refusal(plan.card, moved, plan.question.names(plan.tool)) == ""
        if found.fits and math.isfinite(found.latency):
            yield found.period if plan.regime == "throughput" else found.latency


@pytest.mark.slow
@examples(60)
@given(st.one_of(cards, st.builds(sparse, st.integers(1, 3))), st.one_of(boxes, boxes.map(with_disk)), workloads, st.sampled_from(NAMES))
def test_a_plan_for_a_tool_is_the_best_of_what_it_can_state(model, where, work, name):
    plan = hs.plan(model, where, work, tool=name)
    tool, names = tools.tool(name), plan.question.names(name)
    stated, values = set(plan.question.starts), []
    for placement in placements(tool.n_items(model), len(names)):
        problem = plan.question.of(placement)
        found = evaluate(problem, placement)
        possible = all(stage.first in stated for stage in placement.stages) and math.isfinite(found.latency)
        if possible:
            assert tool.refusal(model, placement, names) == ""
            values += values_that_fit(plan, placement)
        elif tool.refusal(model, placement, names) == "" and math.isfinite(found.latency):
            raise AssertionError(f"{name} can state {placement!r}, which is not searched")
    assert plan.value == pytest.approx(min(values, default=math.inf), rel=1e-9)
    assert all(row.value >= plan.value * (1 - 1e-9) for row in plan.baselines)
    assert (plan.missing_bytes == 0) == (plan.placement is not None)
    if plan.placement is not None:
        assert plan.command().tool == name
        assert plan.prompt_seconds <= plan.value * (1 + 1e-9)
        rows = dict(words.plan_rows(plan))
        assert ("with or without" in rows["proven"]) == (plan.question.offloads is not None)
        assert hs.documents.decode(hs.documents.encode(plan)).placement == plan.placement


@pytest.mark.slow
@examples(40)
@given(cards, boxes, workloads, st.sampled_from([None, *NAMES]), st.sampled_from(["fit", "latency"]))
def test_the_most_of_each_fits_and_more_does_not(model, where, work, name, regime):
    plan = hs.plan(model, where, work, tool=name, regime=regime)
    assert (plan.placement is None) == (not plan.question.fits())
    assert plan.most_sequences() >= work.sequences or plan.placement is None
    most = plan.most_context()
    assert (most > 0) == (plan.placement is not None) or work.context is not None
    if most:
        for tokens in (most, most + 1):
            other = hs.Workload(work.prompt, work.output, context=tokens, sequences=work.sequences, chunk=work.chunk)
            fits = hs.plan(model, where, other, tool=name, regime="fit").status == "optimal"
            assert fits == (tokens == most)
    bits, now = plan.most_bits(), 8 * model.total_bytes / model.n_parameters
    assert bits >= now - 1 / 16 or plan.placement is None
    if 0 < bits < 64:
        for count in (bits, bits + 1 / 16):
            fits = hs.plan(model.scaled(count / now), where, work, tool=name, regime="fit").status == "optimal"
            assert fits == (count == bits)


def test_whether_a_model_fits_needs_no_speeds():
    where = hs.Machine(hs.Cluster([hs.Device("a", memory_bytes=1e6), hs.Device("b", memory_bytes=1e6)], bandwidth=math.inf))
    plan = hs.plan(card(), where, hs.Workload(3, 1), regime="fit")
    assert (plan.status, plan.value, len(plan.placement)) == ("optimal", 0.0, 1)
    assert math.isnan(plan.tokens_per_second)
    assert hs.plan(card(), where, hs.Workload(3, 1, context=10**6), regime="fit").status == "infeasible"


def test_llama_cpp_leaves_a_gibibyte_free_and_has_the_embedding_on_the_cpu():
    gpu = hs.Device("g", memory_bytes=8e9, peak_flops={"float16": 1e13}, memory_bandwidth=1e11)
    cpu = hs.Device("cpu", memory_bytes=8e9, peak_flops={"float16": 1e12}, memory_bandwidth=1e10)
    where = hs.Machine(hs.Cluster([gpu, cpu], bandwidth=1e10))
    plan = hs.plan(card(), where, hs.Workload(3, 1), tool="llama.cpp")
    assert plan.problem.memory_bytes.tolist() == [8e9 - 2**30, 8e9]
    assert plan.placement.stages == ((1, 0, 1), (0, 1, 6))
    assert hs.plan(card(), where.reserving({"g": 5e8}), hs.Workload(3, 1), tool="llama.cpp").problem.memory_bytes.tolist() == [7.5e9, 8e9]
    assert hs.plan(card(), where, hs.Workload(3, 1), tool="vllm").problem.memory_bytes[0] == pytest.approx(7.2e9)


def test_a_tied_head_of_transformers_is_with_the_embedding():
    """Two devices of half the memory: the first stage pays the table once and both passes over it, and the last one a hop more."""
    model, where = card(4, tied=True), box((2.5e5, 2.5e5), (1.0, 1.0), cpu=False)
    work = hs.Workload(5, 3)
    plan = hs.plan(model, where, work, tool="transformers")
    bare = hs.costs.LanguageRoofline().chain(model, where, work)
    (first, _, cut), (second, _, end) = plan.placement.stages
    assert end == model.n_items - 1
    own = bare.seconds[:cut, first].sum() + bare.seconds[-1, first] + bare.seconds[cut:end, second].sum()
    assert plan.value == pytest.approx(own + bare.hops[first, second] + bare.hops[second, first])
    held = bare.weight_bytes[:cut].sum() + bare.weight_bytes[-1] - bare.shared_bytes + bare.cache_bytes[:cut].sum()
    assert plan.values.stage_bytes[0] == held + max(bare.workspace_bytes[:cut].max(), bare.workspace_bytes[-1])


def test_the_default_of_a_tool_is_the_first_baseline():
    plan = hs.plan(card(8), box(cpu=False), hs.Workload(5, 3), tool="vllm")
    assert plan.baselines[0].name == "vllm default"
    counts = [end - first for _, first, end in plan.baselines[0].placement.stages]
    assert counts == [3 + 1, 3, 2 + 1]
    assert [row.name for row in hs.plan(card(8), box(cpu=False), hs.Workload(5, 3)).baselines] == [
        "even",
        "fill-first",
        "by memory",
        "by bandwidth",
    ]


def test_several_nodes_are_told_their_lines():
    devices = [
        hs.Device(f"gpu{k}", node=f"n{k}", memory_bytes=4e5, peak_flops={"float16": 1e9}, memory_bandwidth=1e8 * (k + 1)) for k in range(3)
    ]
    where = hs.Machine(hs.Cluster(devices, bandwidth=1e8), reserved_bytes=dict.fromkeys(["gpu0", "gpu1", "gpu2"], 0))
    assert where.names_in("vllm") == ("n0:0", "n1:0", "n2:0")
    plan = hs.plan(card(8), where, hs.Workload(5, 3, sequences=4), tool="vllm")
    lines = plan.command().text.splitlines()
    head = lines[0].removeprefix("# on ")
    assert len(lines) == 2 * len(plan.placement) > 2
    for rank, (node, line) in enumerate(zip(lines[::2], lines[1::2], strict=True)):
        assert node == f"# on n{plan.placement.stages[rank].device}"
        assert f"--nnodes {len(plan.placement)} --node-rank {rank} --master-addr {head}" in line
        assert line.endswith("--headless") == (rank > 0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: hs.plan(card(), box(), hs.Workload(3, 1, sequences=2), tool="llama.cpp", regime="throughput"),
            "llama.cpp works on one request at a time, its stages one after the other; ask for the regime 'latency', or for a tool that",
        ),
        (lambda: hs.plan(card(), box(), hs.Workload(3, 1), tool="x"), "tool is 'x'; choose from accelerate, llama.cpp"),
        (
            lambda: tools.tool("vllm").restricted(card(), hs.ChainProblem(["a"], ["b"], [[1.0]]), [0]),
            r"problem has 1 item on 1 device; give one of the 6 items of 'small' on 1 device",
        ),
        (
            lambda: hs.plan(card(), box(), hs.Workload(3, 1, cache_bytes=3.0), tool="llama.cpp").command(),
            "numbers in the KV cache have 3 bytes, of which llama.cpp has no type; it has f32 of 4, f16 of 2, q8_0 of 1.0625",
        ),
    ],
)
def test_messages(call, message):
    with pytest.raises(hs.HetschedError, match=message):
        call()


def test_the_cache_and_the_chunks_are_told_to_the_tool():
    work = hs.Workload(3, 1, chunk=256, cache_bytes=34 / 32)
    assert " -ub 256 -ctk q8_0 -ctv q8_0 -fa on " in hs.plan(card(), box(), work, tool="llama.cpp").command().text
    said = hs.plan(card(), box(), hs.Workload(3, 1, chunk=256, cache_bytes=1), tool="vllm").command().text
    assert said.endswith("--max-num-batched-tokens 256 --gpu-memory-utilization 1 --kv-cache-dtype fp8_e5m2")


def test_a_card_of_fewer_bits_is_smaller():
    model = card()
    assert model.scaled(0.5).total_bytes == model.total_bytes / 2
    assert model.scaled(0.5).n_parameters == model.n_parameters
    assert CONFIG["hidden_size"] == model.width


@examples(30)
@given(st.integers(1, 5), st.integers(1, 3), st.sampled_from([2e5, 5e5, 2e6]), st.integers(1, 6))
def test_a_device_with_all_blocks_serves_as_a_plan_of_it_alone(blocks, count, memory, sequences):
    """All blocks on one device leave it at its work all the time: tokens per second are those of the latency of its sequences."""
    model, work = card(blocks), hs.Workload(7, 5, sequences=sequences)
    device = {"memory_bytes": memory, "peak_flops": {"float16": 1e9}, "memory_bandwidth": 1e8}
    where = hs.Machine(hs.Cluster([hs.Device(f"g{k}", kind="x", **device) for k in range(count)], bandwidth=1e12))
    problem = hs.costs.LanguageRoofline().serving(model, where, work)
    assert (problem.types, problem.counts.tolist(), problem.n_items) == (("x",), [count], blocks)
    alone = hs.Machine(hs.Cluster([hs.Device("g0", **device)], bandwidth=1e12))
    best = 0.0
    for some in range(1, sequences + 1):
        plan = hs.plan(model, alone, hs.Workload(7, 5, sequences=some), regime="latency")
        best = max(best, plan.tokens_per_second)
    assert problem.throughput[0, -1] <= best * (1 + 1e-9)
    full = hs.plan(model, alone, work, regime="latency")
    if full.placement is not None:
        assert problem.throughput[0, -1] == pytest.approx(full.tokens_per_second)


def test_types_of_a_machine_and_links_that_bind():
    fast, slow = ({"memory_bytes": 2e6, "peak_flops": {"float16": 1e9 * k}, "memory_bandwidth": 1e8 * k} for k in (2, 1))
    devices = [hs.Device("a", kind="x", **fast), hs.Device("b", kind="y", **slow), hs.Device("c", kind="x", **fast)]
    work = hs.Workload(7, 5)
    problem = hs.costs.LanguageRoofline().serving(card(), hs.Machine(hs.Cluster(devices, bandwidth=1e12)), work)
    assert (problem.types, problem.counts.tolist(), problem.limited) == (("x", "y"), [2, 1], False)
    narrow = hs.costs.LanguageRoofline().serving(card(), hs.Machine(hs.Cluster(devices, bandwidth=1e3)), work)
    assert narrow.links[0, 1] == pytest.approx(1e3 / (card().width * 2.0 * 12 / 5))
    assert narrow.links[0, -1] == math.inf
    with pytest.raises(hs.UnsupportedFeature, match="serving counts tokens of output, and output is 0; ask for one at least"):
        hs.costs.LanguageRoofline().serving(card(), hs.Machine(hs.Cluster(devices, bandwidth=1e3)), hs.Workload(7, 0))


@examples(60)
@given(cards, boxes, workloads.filter(lambda work: work.sequences > 1))
def test_a_plan_serves_no_more_sequences_than_are_asked_for(model, where, work):
    """A cycle of microbatches, each as large as the largest, takes as long as the period says for all sequences together."""
    plan = hs.plan(model, where, work, regime="throughput")
    if plan.placement is not None:
        count = plan.values.in_progress
        batch = hs.costs.LanguageRoofline().chain(model, where, work, in_progress=count)
        found = evaluate(batch, plan.placement)
        assert plan.value * work.sequences == pytest.approx(max(found.largest_load * count, found.latency))


def test_one_node_of_several_needs_no_other():
    devices = [hs.Device(f"g{k}", node=f"n{k // 2}", memory_bytes=8e5, peak_flops={"float16": 1e9}, memory_bandwidth=1e8) for k in range(4)]
    where = hs.Machine(hs.Cluster(devices, bandwidth=1e6), reserved_bytes=dict.fromkeys(["g0", "g1", "g2", "g3"], 0))
    plan = hs.plan(card(6), where, hs.Workload(5, 3), tool="vllm")
    assert plan.refusal == ""
    assert plan.command().text.startswith("# on n0\nCUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0 ")
    split = hs.plan(card(12), where, hs.Workload(5, 3), tool="vllm", order=["g0", "g2", "g3"])
    assert (split.refusal, len(split.placement)) == ("", 2)
    three = hs.Placement([(0, 0, 5), (1, 5, 10), (2, 10, 14)])
    refused = tools.tool("vllm").refusal(card(12), three, ["n0:0", "n0:1", "n1:0"])
    assert "has the ranks of a node one after the other, and as many on each" in refused
    with pytest.raises(hs.UnsupportedFeature, match="llama.cpp is planned on one node, and the machine has n0, n1; name devices of one"):
        hs.plan(card(6), where, hs.Workload(5, 3), tool="llama.cpp")
    assert hs.plan(card(6), where, hs.Workload(5, 3), tool="llama.cpp", order=["g0", "g1"]).question.names("llama.cpp") == (
        "CUDA0",
        "CUDA1",
    )


def test_an_order_leaves_the_way_back_to_a_tied_head():
    model, where, work = card(4, tied=True), box((2.5e5, 2.5e5), (1.0, 1.0), cpu=False), hs.Workload(5, 3)
    free = hs.plan(model, where, work, tool="transformers")
    order = [free.problem.devices[stage.device] for stage in free.placement.stages]
    assert hs.plan(model, where, work, tool="transformers", order=order).value == free.value


def test_the_share_of_memory_is_stated_to_vllm():
    gpu = {"memory_bytes": 8e9, "peak_flops": {"float16": 1e13}, "memory_bandwidth": 1e11}
    where = hs.Machine(hs.Cluster([hs.Device("a", **gpu)]))
    assert " --gpu-memory-utilization 0.9" in hs.plan(card(), where, hs.Workload(3, 1), tool="vllm").command().text
    roomy = where.reserving({"a": 2e9})
    assert " --mem-fraction-static 0.75" in hs.plan(card(), roomy, hs.Workload(3, 1), tool="sglang").command().text


def test_prompts_are_computed_at_once_where_a_tool_has_no_chunks():
    work = hs.Workload(40, 1, chunk=8)
    once = hs.plan(card(), box(), work, tool="transformers").problem.workspace_bytes
    chunked = hs.plan(card(), box(), work).problem.workspace_bytes
    assert (once[1:-1] == 5 * chunked[1:-1]).all()


@pytest.mark.slow
@examples(40)
@given(cards, boxes, workloads, st.sampled_from([None, *NAMES]))
def test_fewer_bits_a_shorter_context_and_faster_links_are_never_worse(model, where, work, name):
    roomy = hs.Workload(work.prompt, work.output, context=work.tokens + 50, sequences=work.sequences, chunk=work.chunk)
    plan = hs.plan(model, where, roomy, tool=name)
    fast = hs.Machine(hs.Cluster(where.cluster.devices, bandwidth=1e9, latency=1e-5), reserved_bytes=where.reserved_bytes)
    for better in (
        hs.plan(model.scaled(0.5), where, roomy, tool=name),
        hs.plan(model, where, work, tool=name),
        hs.plan(model, fast, roomy, tool=name),
    ):
        assert better.value <= plan.value * (1 + 1e-9)
        assert better.missing_bytes <= plan.missing_bytes


def test_the_cache_of_llama_cpp_has_a_window_and_a_chunk_in_multiples_of_256():
    model = hs.frontends.configs.read(
        {**CONFIG, "model_type": "mistral", "num_hidden_layers": 2, "sliding_window": 1000, "torch_dtype": "float16"}, name="sliding"
    )
    work = hs.Workload(10, 5, context=5000, sequences=3, chunk=100)
    cells = hs.plan(model, box((1e9, 1e9, 1e9)), work, tool="llama.cpp").problem.cache_bytes[1]
    assert cells == 3 * 1280 * model.items.cache_numbers[1] * 2
    assert hs.plan(model, box((1e9, 1e9, 1e9)), work).problem.cache_bytes[1] == 3 * 1000 * model.items.cache_numbers[1] * 2


@examples(15)
@given(cards, st.tuples(*[st.floats(0.15, 0.9)] * 2), st.sampled_from([1.0, 5.0, 20.0]), st.sampled_from(["accelerate", "transformers"]))
def test_the_default_of_two_gpus_and_the_cpu_is_evaluated_as_it_is_run(model, shares, speed, tool):
    total = model.total_bytes
    where = box(memory=(shares[0] * total, shares[1] * total, 5 * total), speed=(1.0, speed, 1.0))
    plan = hs.plan(model, where, hs.Workload(20, 5), tool=tool)
    row = plan.baselines[0]
    assert (row.name, row.reason) == (f"{tool} default", "")
    assert plan.value <= row.value * (1 + 1e-9)
    assert row.placement is not None
    if not row.missing_bytes:
        assert row.value == evaluate(plan.question.of(row.placement), row.placement).latency


@pytest.mark.slow
def test_a_default_that_returns_to_its_first_gpu_is_the_answer_where_it_is_better(tmp_path):
    """Requests go back to the first GPU for the last block and the head, which no placement in intervals does as fast."""
    model = card(2)
    where = box(memory=(0.727 * model.total_bytes, 0.507 * model.total_bytes, 5 * model.total_bytes), speed=(1.0, 5.0, 1.0))
    plan = hs.plan(model, where, hs.Workload(20, 5), tool="accelerate")
    assert plan.placement == hs.Placement([(0, 0, 1), (1, 1, 2), (0, 2, 4)], [(2, 2), (3, 2)])
    assert plan.placement == plan.baselines[0].placement
    assert plan.command().device_map["lm_head"] == "cpu"  # which is read back
    plan.write(tmp_path / "plan.json")
    assert hs.read(tmp_path / "plan.json").placement == plan.placement
    assert "weights of block" in " ".join(text for _, text in words.plan_rows(plan.with_explanation(hs.planning.explain(plan))))


def test_no_rule_is_left_out_without_a_reason(tmp_path):
    encoder = hs.ModelCard("B", "bert", card().width, 500, card().items, card().parameters, card().weight_bytes, modules=card().modules,
                           decodes=False)  # fmt: skip
    plan = hs.plan(encoder, box(memory=(math.inf, math.inf, math.inf)), hs.Workload(20, 0), tool="transformers")
    told = {row.name: (row.placement, row.reason) for row in plan.baselines}
    assert told["transformers default"] == (
        None,
        "'B' is no causal language model; the rule of Accelerate is known for those: call infer_auto_device_map of accelerate",
    )
    assert told["by memory"] == (None, "a device has no finite figure, by which blocks would be shared out")
    rows = [text for _, text in words.plan_rows(plan)]
    assert "by memory: unknown: a device has no finite figure, by which blocks would be shared out" in rows
    plan.write(tmp_path / "plan.json")
    assert hs.read(tmp_path / "plan.json").baselines == plan.baselines


def test_the_default_with_experts_is_evaluated_where_their_search_is_too_large():
    model = sparse(6)
    small = box(memory=(0.3 * model.total_bytes, 0.2 * model.total_bytes, 5 * model.total_bytes))
    searched = hs.plan(model, small, hs.Workload(20, 5), tool="llama.cpp")
    with mock.patch.object(offloading, "MOST_CHOICES", 0):
        plan = hs.plan(model, small, hs.Workload(20, 5), tool="llama.cpp")
        assert plan.question.offloads is None
        assert (plan.baselines[0].placement, plan.baselines[0].value) == (searched.baselines[0].placement, searched.baselines[0].value)
        assert plan.baselines[0].placement.offloaded
        assert plan.value <= plan.baselines[0].value
        assert plan.command().tool == "llama.cpp"
        assert "experts of block" in words.described(plan, plan.baselines[0].placement)


def test_a_tool_that_would_run_the_placement_of_a_plan_for_no_tool_elsewhere_cannot_state_it(tmp_path):
    plan = hs.plan(card(6), box((5e5, 4e5, 4e5)), hs.Workload(20, 5))
    assert any(plan.problem.devices[stage.device] == "cpu" for stage in plan.placement.stages)
    with pytest.raises(hs.UnsupportedFeature, match="accelerate runs what is on cpu elsewhere, .*; make a plan for accelerate"):
        plan.command("accelerate")
    plan.write(tmp_path / "plan.json")
    assert hs.read(tmp_path / "plan.json").placement == plan.placement
