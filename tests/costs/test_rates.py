"""Rates of a model give back the efficiencies with which they were made; llama-bench's files and words are read."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.costs import LanguageRoofline, Rate, Rates
from hetsched.documents import decode, encode
from hetsched.errors import InvalidProblem
from hetsched.testing.profiles import examples

CONFIG = {
    "model_type": "qwen2",
    "hidden_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 512,
    "num_hidden_layers": 3,
    "vocab_size": 1000,
    "dtype": "float16",
}
CARD = hs.frontends.configs.read(CONFIG, bits=4.5)
DEVICE = hs.Device("gpu0", kind="small", peak_flops={"float16": 1e9}, memory_bandwidth=1e7)
MACHINE = hs.Machine(hs.Cluster([DEVICE, hs.Device("cpu", peak_flops={"float16": 1e8}, memory_bandwidth=1e7)], bandwidth=1e9))
COSTS = LanguageRoofline(item_seconds=1e-5)
WORDS = Rates.parse("gpu0:pp512=1450,tg128=38")


def modelled(shares, prompt, output, batch=1, depth=0, costs=COSTS):
    """Return the rates that the cost model foretells of a device with these efficiencies."""
    machine = MACHINE.with_efficiency({"gpu0": shares})

    def seconds(p, o):
        work = hs.Workload(prompt=p, output=o, sequences=batch)
        return float(costs.chain(CARD, machine, work).seconds[:, 0].sum())

    start = max(depth, 1)
    generation = seconds(start, output) - seconds(start, 0)
    return Rates([Rate("small", seconds(prompt, 0), prompt, batch=batch), Rate("small", generation, 0, output, depth, batch)])


@examples(8)
@given(
    compute=st.floats(0.2, 1.5),
    memory=st.floats(0.3, 1.5),
    prompt=st.integers(300, 600),
    output=st.integers(1, 8),
    batch=st.integers(1, 3),
    depth=st.sampled_from([0, 40]),
)
def test_rates_of_the_cost_model_give_back_its_efficiencies(compute, memory, prompt, output, batch, depth):
    found = modelled((compute, memory), prompt, output, batch, depth).efficiency(MACHINE, CARD, costs=COSTS)
    assert found == {"gpu0": pytest.approx((compute, memory), rel=1e-6)}
    assert MACHINE.with_efficiency(found).cost_basis == "mixed"


def test_without_a_card_the_efficiencies_are_those_of_bytes_and_parameters():
    costs = LanguageRoofline(item_seconds=0.0)
    rows = [Rate("gpu0", 2.0, 512, model_bytes=4e6, parameters=1e6), Rate("gpu0", 5.0, 0, 10, model_bytes=4e6, parameters=1e6)]
    compute, memory = Rates(rows).efficiency(MACHINE, costs=costs)["gpu0"]
    assert compute == pytest.approx(2 * 512 * 1e6 / 2.0 / 1e9, rel=1e-3)
    assert memory == pytest.approx(4e6 * 10 / 5.0 / 1e7, rel=1e-3)


def test_rows_by_name_go_before_rows_by_kind():
    by_kind, by_name = modelled((0.5, 0.5), 512, 4), modelled((0.7, 0.9), 512, 4)
    rows = [*by_kind.rows, *(row._replace(device="gpu0") for row in by_name.rows)]
    assert Rates(rows).efficiency(MACHINE, CARD, costs=COSTS)["gpu0"] == pytest.approx((0.7, 0.9), rel=1e-6)


rates = st.builds(
    Rate,
    device=st.text(st.characters(codec="utf-8"), min_size=1, max_size=4),
    seconds=st.floats(1e-9, 1e9),
    prompt=st.integers(1, 2**40),
    output=st.integers(0, 2**40),
    depth=st.integers(0, 2**40),
    batch=st.integers(1, 2**40),
    chunk=st.integers(1, 2**40),
    model=st.text(st.characters(codec="utf-8"), max_size=4),
    model_bytes=st.none() | st.floats(0, 1e15),
    parameters=st.none() | st.floats(0, 1e15),
    deviation=st.none() | st.floats(0, 1e9),
    source=st.text(st.characters(codec="utf-8"), max_size=4),
)


@examples(30)
@given(st.lists(rates, max_size=3))
def test_the_document_restores_the_rates(rows):
    assert decode(encode(Rates(rows))) == Rates(rows)


def test_words_are_tokens_and_tokens_per_second():
    prompt, output = WORDS.rows
    assert (prompt.device, prompt.prompt, prompt.output, output.prompt, output.output) == ("gpu0", 512, 0, 0, 128)
    assert [row.tokens_per_second for row in WORDS.rows] == pytest.approx([1450, 38])
    assert [row.depth for row in Rates.parse("a b:tg16@4096=3.5,tg16@d512=2").rows] == [4096, 512]


# ---------------------------------------------------------------- llama-bench

TEST = {
    "build_commit": "1d72c84",
    "cpu_info": "AMD EPYC 9654 96-Core Processor",
    "gpu_info": "NVIDIA GeForce RTX 4090",
    "backends": "CUDA",
    "model_type": "qwen2 7B Q4_K - Medium",
    "model_size": 4677120000,
    "model_n_params": 7615616512,
    "n_ubatch": 256,
    "n_gpu_layers": 99,
    "split_mode": "layer",
    "main_gpu": 0,
    "n_prompt": 512,
    "n_gen": 0,
    "n_depth": 0,
    "test_time": "2025-04-24T11:57:09Z",
    "avg_ts": 7340.20,
    "stddev_ts": 23.45,
}
TWO = {"gpu_info": "NVIDIA GeForce RTX 4090, NVIDIA TITAN RTX"}


def bench(folder, *changes, device=None):
    (folder / "bench.json").write_text(json.dumps([{**TEST, **change} for change in changes]))
    return Rates.read_llama_bench(folder / "bench.json", device=device)


def test_a_file_of_llama_bench_is_read(tmp_path):
    prompt, output = bench(tmp_path, {}, {"n_prompt": 0, "n_gen": 128, "n_depth": 512, "avg_ts": 116.71}).rows
    assert prompt == Rate(
        "rtx4090",
        pytest.approx(512 / 7340.20),
        512,
        chunk=256,
        model="qwen2 7B Q4_K - Medium",
        model_bytes=4677120000.0,
        parameters=7615616512.0,
        deviation=pytest.approx(512 / 7340.20 * 23.45 / 7340.20),
        source="llama-bench 1d72c84 CUDA 2025-04-24T11:57:09Z",
    )
    assert (output.prompt, output.output, output.depth, output.tokens_per_second) == (0, 128, 512, pytest.approx(116.71))


@pytest.mark.parametrize(
    ("change", "device"),
    [
        ({}, "rtx4090"),
        ({**TWO, "split_mode": "none", "main_gpu": 1}, "NVIDIA TITAN RTX"),
        ({**TWO, "devices": "CUDA0"}, "rtx4090"),
        ({"gpu_info": ""}, "epyc9654"),
        ({"gpu_info": "", "cpu_info": "Intel Xeon"}, "cpu"),
        ({"n_gpu_layers": 0, "no_op_offload": 1}, "epyc9654"),
        ({"devices": "none"}, "epyc9654"),
    ],
)
def test_the_device_is_the_only_one_that_ran(tmp_path, change, device):
    assert bench(tmp_path, change).rows[0].device == device


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (TWO, r"on NVIDIA GeForce RTX 4090, NVIDIA TITAN RTX together; add -sm none -mg 0"),
        ({"n_gpu_layers": 0}, r"with -ngl 0 beside a GPU, which computes long prompts all the same; add -dev none"),
        ({"avg_ts": 0}, r"bench.json is not what llama-bench -o json writes \(ZeroDivisionError"),
        ({"n_gen": None}, r"is not what llama-bench -o json writes \(TypeError"),
    ],
)
def test_what_llama_bench_does_not_say_is_refused(tmp_path, change, message):
    with pytest.raises(InvalidProblem, match=message):
        bench(tmp_path, change)
    if change is TWO:
        assert bench(tmp_path, change, device="gpu1").rows[0].device == "gpu1"


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    "text", ["", "gpu0", "gpu0:", "pp512=3", "gpu0:pp512", "gpu0:pp0=3", "gpu0:pp512=0", "gpu0:pp512=1e400", "gpu0:xx5=3"]
)
def test_other_words_are_refused(text):
    with pytest.raises(InvalidProblem, match="give a device, and tokens per second of a prompt and of generation, as in gpu0:pp512=1450"):
        Rates.parse(text)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (Rate("x", 0.0, 1), "seconds of row 0 of rates is 0.0; it must be a number above 0"),
        (Rate("x", math.nan, 1), "seconds of row 0 of rates is nan"),
        (Rate("x", 1.0), "prompt and output of row 0 of rates are 0; give the tokens that were measured"),
        (Rate("x", 1.0, -1), "prompt of row 0 of rates is -1; it must be a whole number, at least 0"),
        (Rate("x", 1.0, 1, batch=0), "batch of row 0 of rates is 0; it must be a whole number, at least 1"),
        (Rate("", 1.0, 1), "device of row 0 of rates is ''; it must be non-empty Unicode text"),
        (Rate("x", 1.0, 1, model_bytes=-1.0), "model_bytes of row 0 of rates is -1.0"),
    ],
)
def test_rows_that_break_a_rule_are_refused(row, message):
    with pytest.raises(InvalidProblem, match=message):
        Rates([row])


def test_rates_that_tell_no_efficiency_are_refused():
    prompt, output = modelled((0.5, 0.5), 512, 4).rows
    long, tiny = prompt._replace(seconds=1e6), output._replace(seconds=1e-9)
    for rows, message in (
        ([prompt], "the rates of device 'gpu0' have no generation; give one prompt and one generation of one model"),
        ([output], "have no prompt"),
        ([prompt._replace(model="a"), output._replace(model="b")], "have 2 models, a, b"),
        ([prompt._replace(device="gpu7")], r"the rates are of 'gpu7', and the machine has gpu0 \(small\), cpu \(\)"),
        ([], "the rates are of no device"),
        (
            modelled((1.0, 0.1), 8, 4).rows,
            "by the cost model memory limits both, and nothing follows for the peak; measure a longer prompt",
        ),
        ([long, output], "by the cost model arithmetic limits both, and nothing follows for the memory bandwidth"),
        ([prompt, tiny], "the cost model adds 0.0002 s for its items alone; give LanguageRoofline a smaller item_seconds than 1e-05"),
    ):
        with pytest.raises(InvalidProblem, match=message):
            Rates(rows).efficiency(MACHINE, CARD, costs=COSTS)
    with pytest.raises(InvalidProblem, match="do not state the bytes and parameters of the model that ran; give its card"):
        WORDS.efficiency(MACHINE)
