"""Ollama: layers on one GPU, and what it cannot be told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.chain.placement import Placement
from hetsched.errors import InvalidArgument, UnsupportedFeature
from hetsched.planning.tools.ollama import OLLAMA
from hetsched.planning.tools.protocol import Command
from hetsched.testing.profiles import examples
from tests.planning.test_questions import box
from tests.planning.tools.cards import card, problem_of

MODEL = card(64)
BOX = ["cpu", 0, 1]


def test_text():
    made = OLLAMA.emit(MODEL, Placement([(0, 0, 14), (2, 14, 66)]), BOX, model="./m.gguf", context=4096, sequences=2, cache_bytes=34 / 32)
    assert made.text == (
        "# CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=1 OLLAMA_NUM_PARALLEL=2 OLLAMA_FLASH_ATTENTION=1 OLLAMA_KV_CACHE_TYPE=q8_0 "
        "ollama serve\nFROM ./m.gguf\nPARAMETER num_gpu 52\nPARAMETER num_ctx 4096"
    )


@given(st.integers(1, 80), st.data())
@examples(60)
def test_a_number_of_layers_is_read_as_the_placement(blocks, data):
    model = card(blocks)
    first = data.draw(st.integers(1, blocks + 2))
    placement = Placement([(0, 0, first), (1, first, blocks + 2)] if first < blocks + 2 else [(0, 0, blocks + 2)])
    made = OLLAMA.emit(model, placement, BOX)
    assert f"PARAMETER num_gpu {blocks + 2 - first}" in made.text.splitlines()
    assert OLLAMA.read(model, made, BOX) == placement


def test_a_plan_is_on_one_gpu():
    plan = hs.plan(card_of(), box((4e5, 3e5, 9e5), (4.0, 2.0, 1.0)), hs.Workload(20, 5), tool="ollama")
    used = [plan.problem.devices[stage.device] for stage in plan.placement.stages]
    assert used[0] == "cpu"
    assert len(used) <= 2
    assert "PARAMETER num_gpu" in plan.command().text
    assert [(row.placement, bool(row.reason)) for row in plan.baselines if row.name == "ollama default"] == [(None, True)]


def card_of():
    from tests.planning.test_planner import card as small

    return small(6)


def test_two_gpus_are_refused():
    split = Placement([(0, 0, 1), (1, 1, 30), (2, 30, 66)])
    assert OLLAMA.refusal(MODEL, split, BOX) == (
        "there are layers on 0 and 1; Ollama takes their number, and divides them itself: place them on one GPU, or use llama.cpp"
    )
    assert "which is no number of a GPU" in OLLAMA.refusal(MODEL, Placement([(0, 0, 1), (1, 1, 66)]), ["cpu", "CUDA0"])
    assert "Ollama runs on the CPU the first layers only" in OLLAMA.refusal(MODEL, Placement([(1, 0, 5), (0, 5, 66)]), BOX)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("FROM m", "has no PARAMETER num_gpu with a number; give the layers on the GPU"),
        ("# CUDA_VISIBLE_DEVICES=0,1 ollama serve\nPARAMETER num_gpu 3", "of several GPUs Ollama decides itself which layers they have"),
        ("# CUDA_VISIBLE_DEVICES=7 ollama serve\nPARAMETER num_gpu 3", "'7' is no device; choose from cpu, 0, 1"),
    ],
)
def test_what_is_not_read(text, message):
    with pytest.raises(InvalidArgument, match=message):
        OLLAMA.read(MODEL, Command("ollama", text), BOX)


def test_layers_on_a_cpu_that_is_no_device():
    with pytest.raises(InvalidArgument, match="num_gpu 3 leaves layers on the CPU, which is none of the devices; name it 'cpu'"):
        OLLAMA.read(MODEL, Command("ollama", "# CUDA_VISIBLE_DEVICES=0 ollama serve\nPARAMETER num_gpu 3"), [0])


def test_its_own_estimate_is_not_known():
    with pytest.raises(UnsupportedFeature, match="Ollama estimates itself how many layers fit"):
        OLLAMA.default(MODEL, problem_of(MODEL, BOX), BOX)
