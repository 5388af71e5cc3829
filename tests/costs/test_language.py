"""Times and bytes of a language model's items are those of a sum over its tokens."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.arrays import Columns
from hetsched.chain.card import PARTS, ModelCard
from hetsched.chain.evaluation import evaluate
from hetsched.chain.machine import Machine
from hetsched.chain.placement import Placement
from hetsched.chain.workload import Workload
from hetsched.costs.language import LanguageRoofline
from hetsched.testing.profiles import examples

MACHINE = Machine(
    hs.Cluster(
        [
            hs.Device("fast", memory_bytes=3e4, peak_flops={"float16": 4e6}, memory_bandwidth=2e6),
            hs.Device("slow", memory_bytes=5e4, peak_flops={"float16": 1e6}, memory_bandwidth=3e6),
        ],
        bandwidth=[[0, 1e5], [2e5, 0]],
        latency=1e-3,
    ),
    reserved_bytes={"slow": 1e3},
    efficiency={"slow": (0.25, 0.5)},
)
COSTS = LanguageRoofline(compute=0.5, memory=1.0, item_seconds=1e-4)
SHARES = {"fast": (0.5, 1.0), "slow": (0.25, 0.5)}


def card(blocks=2, *, window=math.inf, experts=0, used=0, tied=False, decodes=True):
    """Return a model of width 8 with two heads, of which one is that of keys and values, and a vocabulary of 50."""
    n = blocks + 2
    parts = dict.fromkeys(PARTS, 0)
    rows = [parts | {"table": 400}, *[parts | {"attention": 192, "norm": 16} for _ in range(blocks)], parts | {"table": 400, "norm": 8}]
    for row in rows[1:-1]:
        row |= {"experts": experts * 96, "router": experts * 8, "shared": 24} if experts else {"dense_ffn": 384}
    within = np.array([0, *[1] * blocks, 0])
    items = Columns(
        name=["embed", *(f"block {i}" for i in range(blocks)), "head"],
        kind=["embed", *["block"] * blocks, "head"],
        **{
            name: within * size
            for name, size in {"heads": 2, "key_size": 4, "value_size": 4, "decode_key_size": 6, "decode_value_size": 5}.items()
        },
        cache_numbers=within * 8,
        experts=within * experts,
        experts_used=within * used,
        workspace_numbers=[0, *[64] * blocks, 8],
        window=[math.inf, *[window] * blocks, math.inf],
    )
    parameters = np.array([[row[part] for part in PARTS] for row in rows], float)
    assert len(parameters) == n
    return ModelCard("small", "test", 8, 50, items, parameters, 2 * parameters, tied=tied, decodes=decodes)


def seconds(model, work, batch, item, device):
    """Return the seconds of a batch on a device, token by token."""
    row = list(model.items)[item]
    amounts = dict(zip(PARTS, model.parameters[item], strict=True))
    dense = sum(amounts.values()) - amounts["experts"] - (amounts["table"] if row["kind"] == "embed" else 0)
    share = row["experts_used"] / row["experts"] if row["experts"] else 0.0
    tokens = [(position, position == work.prompt) for _ in range(batch) for position in range(1, work.prompt + 1)]
    runs = [tokens[start : start + work.chunk] for start in range(0, len(tokens), work.chunk)]
    runs += [[(work.prompt + t, True)] * batch for t in range(1, work.output + 1)]
    total = 0.0
    for number, run in enumerate(runs):
        decoding = number >= len(runs) - work.output
        head_size = row["decode_key_size"] + row["decode_value_size"] if decoding else row["key_size"] + row["value_size"]
        wanted = [last for _, last in run] if row["kind"] == "head" else [True] * len(run)
        counted = 2 * dense if model.token_flops is None else model.token_flops[item]
        flops = sum(counted * w + 2 * share * amounts["experts"] for w in wanted)
        flops += sum(2 * row["heads"] * head_size * min(position if model.decodes else work.prompt, row["window"]) for position, _ in run)
        ends = [position for k, (position, last) in enumerate(run) if decoding or last or k == len(run) - 1]
        cached = sum(min(position, row["window"]) for position in ends) + len(run)
        moved = (2 * dense if any(wanted) else 0.0) + 2 * amounts["experts"] * (1 - (1 - share) ** len(run))
        moved += cached * row["cache_numbers"] * work.cache_bytes + 2 * len(run) * model.width * work.activation_bytes
        compute, memory = SHARES[device.name]
        total += COSTS.item_seconds + max(flops / (compute * device.peak_flops["float16"]), moved / (memory * device.memory_bandwidth))
    return total


workloads = st.builds(
    Workload,
    prompt=st.integers(1, 9),
    output=st.integers(0, 5),
    context=st.none() | st.integers(14, 40),
    sequences=st.integers(1, 5),
    chunk=st.integers(1, 12),
    cache_bytes=st.sampled_from([1.0, 2.0]),
)
encoders = st.builds(
    lambda model, flops: ModelCard(**{name: getattr(model, name) for name in model._fields} | {"token_flops": flops}),
    st.builds(card, st.just(2), window=st.sampled_from([math.inf, 3.0]), decodes=st.just(False)),
    st.none() | st.lists(st.integers(0, 2000), min_size=4, max_size=4),
)
cards = st.builds(
    card, st.integers(1, 3), window=st.sampled_from([math.inf, 3.0, 6.0]), experts=st.just(0), tied=st.booleans()
) | st.builds(card, st.integers(1, 3), window=st.sampled_from([math.inf, 4.0]), experts=st.just(4), used=st.integers(1, 4))


@examples(50)
@given(encoders, workloads)
def test_tokens_of_an_encoder_attend_to_the_whole_prompt_and_counted_flops_take_the_place_of_parameters(model, work):
    work = dataclasses.replace(work, output=0)
    problem = COSTS.chain(model, MACHINE, work)
    wanted = [[seconds(model, work, work.sequences, i, device) for device in MACHINE.cluster.devices] for i in range(model.n_items)]
    np.testing.assert_allclose(problem.seconds, wanted, rtol=1e-12)


@examples(200)
@given(cards, workloads, st.integers(1, 3))
def test_times_are_the_sum_over_all_tokens(model, work, in_progress):
    problem = COSTS.chain(model, MACHINE, work, in_progress=in_progress)
    batch = math.ceil(work.sequences / in_progress)
    wanted = [[seconds(model, work, batch, i, device) for device in MACHINE.cluster.devices] for i in range(model.n_items)]
    np.testing.assert_allclose(problem.seconds, wanted, rtol=1e-12)


@examples(100)
@given(cards, workloads)
def test_bytes_are_those_of_all_sequences(model, work):
    problem = COSTS.chain(model, MACHINE, work)
    assert problem.weight_bytes.sum() - problem.shared_bytes == model.total_bytes
    window = float(model.items.window[1])
    room = min(work.prompt + work.output if work.context is None else work.context, window)
    assert problem.cache_bytes[1] == work.sequences * room * 8 * work.cache_bytes
    assert problem.cache_bytes[[0, -1]].tolist() == [0, 0]
    tokens = max(min(work.chunk, work.prompt * work.sequences), work.sequences if work.output else 1)
    assert problem.workspace_bytes[1] == tokens * 64 * 2
    assert problem.workspace_bytes[-1] == tokens * (8 * 2 + 4 * 50)
    assert problem.memory_bytes.tolist() == [3e4, 4.9e4]


@examples(100)
@given(cards, workloads)
def test_hops_carry_each_chunk_and_each_token(model, work):
    problem = COSTS.chain(model, MACHINE, work)
    batch = work.sequences
    messages = math.ceil(work.prompt * batch / work.chunk) + work.output
    moved = (work.prompt + work.output) * batch * 8 * 2
    assert problem.hops[0, 1] == pytest.approx(messages * 1e-3 + moved / 1e5)
    assert problem.hops[1, 0] == pytest.approx(messages * 1e-3 + moved / 2e5)
    assert problem.closing[1, 0] == pytest.approx(work.output * 1e-3 + 4 * work.output * batch / 2e5)


@examples(100)
@given(cards, workloads, st.integers(1, 3))
def test_all_chunks_of_a_prompt_but_one_overlap(model, work, in_progress):
    plain, problem = (COSTS.chain(model, MACHINE, work, in_progress=in_progress, overlap=overlap) for overlap in (False, True))
    assert problem.replace(overlapped_seconds=None, overlapped_hops=None) == plain
    batch = math.ceil(work.sequences / in_progress)
    chunks = math.ceil(work.prompt * batch / work.chunk)
    prompt = COSTS.chain(model, MACHINE, dataclasses.replace(work, output=0), in_progress=in_progress)
    np.testing.assert_allclose(problem.overlapped_seconds, prompt.seconds * (chunks - 1) / chunks, rtol=1e-12)
    np.testing.assert_allclose(problem.overlapped_hops, prompt.hops * (chunks - 1) / chunks, rtol=1e-12)


def test_a_prompt_of_equal_chunks_takes_the_sum_and_the_largest_for_each_further_one():
    """Each chunk takes the mean of the times of all."""
    work = Workload(prompt=40, output=0, chunk=10)
    model = card(4)
    problem = COSTS.chain(model, MACHINE, work, overlap=True)
    placement = Placement([(0, 0, 3), (1, 3, 6)])
    stages, hop = (evaluate(problem, placement).stage_seconds / 4, problem.hops[0, 1] / 4)
    assert evaluate(problem, placement).latency == pytest.approx(stages.sum() + hop + 3 * max(*stages, hop))


def test_where_there_is_no_route_nothing_overlaps():
    machine = Machine(hs.Cluster(MACHINE.cluster.devices, bandwidth=[[0, 1e5], [0, 0]]))
    for chunk in (4, 8):
        problem = COSTS.chain(card(), machine, Workload(prompt=8, output=1, chunk=chunk), overlap=True)
        assert np.isinf(problem.hops[1, 0])
        assert problem.overlapped_hops[1, 0] == 0


@examples(50)
@given(cards, workloads)
def test_more_work_never_takes_less(model, work):
    least = COSTS.chain(model, MACHINE, work).seconds.sum(axis=0)
    for change in ({"output": work.output + 1}, {"prompt": work.prompt + work.chunk}, {"sequences": work.sequences + 1}):
        fields = {name: getattr(work, name) for name in ("prompt", "output", "sequences", "chunk", "cache_bytes")} | change
        more = Workload(**fields)
        assert (COSTS.chain(model, MACHINE, more).seconds.sum(axis=0) >= least * (1 - 1e-12)).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LanguageRoofline(compute=0), r"compute is 0; it must be a share of the data sheet's figure in \(0, 1\]"),
        (lambda: LanguageRoofline(item_seconds=-1), "item_seconds is -1; it must be a finite number of seconds from 0"),
        (lambda: LanguageRoofline("int4").chain(card(), MACHINE, Workload()), "device 'fast' has no peak_flops for 'int4'"),
        (
            lambda: COSTS.chain(card(decodes=False), MACHINE, Workload()),
            "model 'small' of test has no chain that decodes; give a workload with output=0",
        ),
        (lambda: Workload(prompt=0), "prompt is 0"),
        (lambda: Workload(prompt=5, output=6, context=10), "context is 10, but a request has 5 tokens and asks for 6; give at least 11"),
        (lambda: Workload(cache_bytes=0), "cache_bytes is 0; it must be a finite number of bytes above 0"),
        (
            lambda: Machine(MACHINE.cluster, reserved_bytes={"x": 1}),
            "reserved_bytes names 'x', which is not in the cluster; its devices are fast, slow",
        ),
        (
            lambda: Machine(MACHINE.cluster, reserved_bytes={"fast": -1}),
            "reserved_bytes of 'fast' is -1; it must be a finite number of bytes from 0, or text such as '24 GiB'",
        ),
        (lambda: Machine(MACHINE.cluster, efficiency={"fast": (0, 1)}), r"efficiency of 'fast' is \(0, 1\); it must be shares"),
        (lambda: Machine(MACHINE.cluster, tool_names={"fast": {"torch": True}}), r"tool_names\['fast'\] is {'torch': True}; it must be"),
    ],
)
def test_messages(call, message):
    with pytest.raises(hs.HetschedError, match=message):
        call()
