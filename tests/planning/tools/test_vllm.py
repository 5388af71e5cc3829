"""vLLM and SGLang: partitions as text, and who gets the remainder."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.chain.placement import Placement
from hetsched.errors import InvalidArgument, UnsupportedFeature
from hetsched.planning.tools.vllm import SGLANG, VLLM, sglang_counts, vllm_counts
from hetsched.testing.profiles import examples
from tests.planning.tools.cards import card, problem_of

MODEL = card(64)
SPLIT = Placement([(0, 0, 52), (1, 52, 66)])


def test_texts():
    assert VLLM.emit(MODEL, SPLIT, [1, 0], context=4096, sequences=8).text == (
        "CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=1,0 VLLM_PP_LAYER_PARTITION=51,13 "
        "vllm serve M --pipeline-parallel-size 2 --max-model-len 4096 --max-num-seqs 8"
    )
    assert SGLANG.emit(MODEL, SPLIT, [0, 1], context=4096, sequences=8).text == (
        "CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0,1 SGLANG_PP_LAYER_PARTITION=51,13 "
        "python -m sglang.launch_server --model-path M --pp-size 2 --context-length 4096 --max-running-requests 8"
    )


@pytest.mark.parametrize(
    ("blocks", "ranks", "vllm", "sglang"),
    [
        (64, 4, [16, 16, 16, 16], [16, 16, 16, 16]),
        (22, 4, [5, 6, 6, 5], [5, 5, 6, 6]),
        (5, 3, [2, 2, 1], [1, 2, 2]),
        (4, 3, [1, 2, 1], [1, 1, 2]),
        (3, 2, [2, 1], [1, 2]),
        (2, 3, [1, 1, 0], [0, 1, 1]),
        (7, 1, [7], [7]),
    ],
)
def test_remainders(blocks, ranks, vllm, sglang):
    assert (vllm_counts(blocks, ranks), sglang_counts(blocks, ranks)) == (vllm, sglang)


@given(st.integers(1, 130), st.integers(1, 8))
@examples(100)
def test_counts_are_even_to_one(blocks, ranks):
    for counts in (vllm_counts(blocks, ranks), sglang_counts(blocks, ranks)):
        assert sum(counts) == blocks
        assert max(counts) - min(counts) <= 1


def test_defaults_go_by_the_numbers_of_the_gpus():
    devices = [2, "cpu", 0, 1]
    problem = problem_of(card(22), devices)
    assert VLLM.default(card(22), problem, devices) == Placement([(2, 0, 8), (3, 8, 16), (0, 16, 24)])
    assert SGLANG.default(card(23), problem_of(card(23), devices), devices) == Placement([(2, 0, 8), (3, 8, 16), (0, 16, 25)])


def test_a_default_needs_a_gpu():
    with pytest.raises(UnsupportedFeature, match="of which none is the number of a GPU; give at least one"):
        VLLM.default(MODEL, problem_of(MODEL, ["cpu"]), ["cpu"])


def test_layers_on_the_cpu():
    assert VLLM.refusal(MODEL, SPLIT, [0, "cpu"]) == (
        "block 51 to head are on 'cpu'; vLLM cannot leave layers on a device that is no GPU: place them on devices with the number of a "
        "GPU, or leave this device out"
    )
    assert "SGLang cannot leave layers" in SGLANG.refusal(MODEL, SPLIT, [0, "cpu"])


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ([(0, 0, 1), (1, 1, 66)], "embed is alone on 0; vLLM runs it with the first blocks: give the stage a block, or leave it out"),
        ([(0, 0, 65), (1, 65, 66)], "head is alone on 1; vLLM runs it with the last blocks: give the stage a block, or leave it out"),
    ],
)
def test_ends_without_a_block(stages, message):
    assert VLLM.refusal(MODEL, Placement(stages), [0, 1]) == message


MISREAD = {
    "VLLM_PP_LAYER_PARTITION=51,13 vllm serve M --pipeline-parallel-size 3": "has 2 numbers and --pipeline-parallel-size is '3'",
    "VLLM_PP_LAYER_PARTITION=51,12 vllm serve M -pp 2": "adds up to 63; it must be the number of blocks, 64",
    "VLLM_PP_LAYER_PARTITION=51,x vllm serve M -pp 2": "is '51,x'; it must be whole numbers separated by commas, as 51,13",
    "vllm serve M -pp 2": "VLLM_PP_LAYER_PARTITION is ''; it must be whole numbers",
    "VLLM_PP_LAYER_PARTITION=51,13 vllm serve M -pp 2": "CUDA_VISIBLE_DEVICES is not set; it has to list the GPUs",
    "CUDA_VISIBLE_DEVICES=0 VLLM_PP_LAYER_PARTITION=51,13 vllm serve M -pp 2": "has 1 GPU; give one for each of 2 ranks",
    "CUDA_VISIBLE_DEVICES=0,7 VLLM_PP_LAYER_PARTITION=51,13 vllm serve M -pp 2": "'7' is no device; choose from 0, 1",
}


@pytest.mark.parametrize(("text", "message"), MISREAD.items())
def test_texts_that_are_not_read(text, message):
    with pytest.raises(InvalidArgument, match=message):
        VLLM.read(MODEL, replace(VLLM.emit(MODEL, SPLIT, [0, 1]), text=text), [0, 1])


@pytest.mark.slow
def test_the_rule_of_vllm_itself(monkeypatch):
    utils = pytest.importorskip("vllm.distributed.utils", reason="vllm is not installed")
    for blocks in range(1, 131):
        for ranks in range(1, 5):
            monkeypatch.delenv("VLLM_PP_LAYER_PARTITION", raising=False)
            found = [utils.get_pp_indices(blocks, rank, ranks) for rank in range(ranks)]
            assert [end - start for start, end in found] == vllm_counts(blocks, ranks)
    for cut in range(1, 64):
        command = VLLM.emit(MODEL, Placement([(0, 0, cut + 1), (1, cut + 1, 66)]), [0, 1])
        monkeypatch.setenv("VLLM_PP_LAYER_PARTITION", command.environment["VLLM_PP_LAYER_PARTITION"])
        assert [utils.get_pp_indices(64, rank, 2) for rank in range(2)] == [(0, cut), (cut, 64)]
