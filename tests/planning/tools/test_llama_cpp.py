"""llama.cpp: whole shares give exactly these numbers of layers, and free memory what the source says."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.chain.placement import Placement
from hetsched.errors import InvalidArgument, UnsupportedFeature
from hetsched.planning.tools.llama_cpp import LLAMA_CPP, _layer_devices
from hetsched.testing.profiles import examples
from tests.planning.tools.cards import card, problem_of

QWEN = card(64, name="qwen2.5-32b", family="qwen2")
BOX = ["CPU", "CUDA0", "CUDA1"]


def test_the_example_of_the_documentation():
    placement = Placement([(0, 0, 1), (1, 1, 52), (2, 52, 66)])
    command = LLAMA_CPP.emit(QWEN, placement, BOX, model="qwen2.5-32b-q4_k_m.gguf", context=32768, sequences=1)
    assert command.text == (
        "CUDA_DEVICE_ORDER=PCI_BUS_ID llama-server -m qwen2.5-32b-q4_k_m.gguf -c 32768 -np 1 -ngl 65 -ts 51,14 -dev CUDA0,CUDA1 --fit off"
    )
    assert command.environment == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert command.text.split()[1:] == list(command.arguments)


@pytest.mark.parametrize(
    ("stages", "words"),
    [
        ([(0, 0, 1), (2, 1, 66)], "-ngl 65 -dev CUDA1 -sm none -mg 0"),
        ([(0, 0, 14), (1, 14, 66)], "-ngl 52 -dev CUDA0 -sm none -mg 0"),
        ([(0, 0, 14), (2, 14, 50), (1, 50, 66)], "-ngl 52 -ts 36,16 -dev CUDA1,CUDA0"),
        ([(0, 0, 65), (1, 65, 66)], "-ngl 1 -dev CUDA0 -sm none -mg 0"),
        ([(0, 0, 64), (1, 64, 65), (2, 65, 66)], "-ngl 2 -ts 1,1 -dev CUDA0,CUDA1"),
        ([(0, 0, 66)], "-ngl 0 -dev none"),
    ],
)
def test_texts(stages, words):
    command = LLAMA_CPP.emit(QWEN, Placement(stages), BOX)
    assert command.text == f"CUDA_DEVICE_ORDER=PCI_BUS_ID llama-server -m qwen2.5-32b {words} --fit off"
    assert LLAMA_CPP.read(QWEN, command, BOX) == Placement(stages)


def test_the_context_is_that_of_all_sequences():
    command = LLAMA_CPP.emit(QWEN, Placement([(0, 0, 66)]), BOX, context=1000, sequences=4)
    assert " -c 4000 -np 4 " in command.text


def test_every_split_between_two_devices():
    for layers in range(2, 132):
        for first in range(1, layers):
            assert _layer_devices(layers - 1, layers, [first, layers - first]) == [0] * first + [1] * (layers - first)


@pytest.mark.slow
def test_every_split_between_the_cpu_and_two_devices():
    for layers in range(2, 132):
        for offloaded in range(2, layers):
            for first in range(1, offloaded):
                expected = [-1] * (layers - offloaded) + [0] * first + [1] * (offloaded - first)
                assert _layer_devices(layers - 1, offloaded, [first, offloaded - first]) == expected


@given(st.integers(1, 130), st.lists(st.integers(1, 60), min_size=1, max_size=4), st.integers(0, 140))
@examples(200)
def test_shares_in_exact_numbers(blocks, shares, offloaded):
    """Where the cut is not at a layer float32 and fractions agree; where it is, the layer belongs to the next device in both."""
    total, start, active = sum(shares), max(blocks + 1 - offloaded, 0), min(offloaded, blocks + 1)
    expected = []
    for layer in range(blocks + 1):
        at = Fraction(layer - start, active or 1)
        below = [k for k in range(len(shares)) if at < Fraction(sum(shares[: k + 1]), total)]
        expected.append(below[0] if layer >= start and active else -1)
    assert _layer_devices(blocks, offloaded, shares) == expected


def test_default_by_free_memory():
    problem = problem_of(QWEN, BOX, memory=[56e9, 22.4e9, 10.4e9])
    placement = LLAMA_CPP.default(QWEN, problem, BOX)
    assert placement == Placement([(0, 0, 1), (1, 1, 46), (2, 46, 66)])  # 44 / 65 < 22.4 / 32.8 < 45 / 65
    assert LLAMA_CPP.default(QWEN, problem, BOX, free_bytes=[1, 1e9, 3e9]) == Placement([(0, 0, 1), (1, 1, 18), (2, 18, 66)])
    assert LLAMA_CPP.default(QWEN, problem, BOX, free_bytes=[1, 0, 3e9]) == Placement([(0, 0, 1), (2, 1, 66)])
    gpus = problem_of(QWEN, BOX[1:], memory=[1e9, 3e9])
    assert LLAMA_CPP.default(QWEN, gpus, BOX[1:]) == Placement([(0, 0, 18), (1, 18, 66)])
    assert LLAMA_CPP.default(QWEN, problem_of(QWEN, ["CPU"]), ["CPU"]) == Placement([(0, 0, 66)])


REFUSED = [
    (
        [(0, 0, 1), (1, 1, 66)],
        ["CUDA0", "CPU"],
        "block 0 to head are on 'CPU' behind embed on 'CUDA0'; llama.cpp runs on the CPU the first",
    ),
    (
        [(1, 0, 66)],
        BOX,
        "the embedding is on 'CUDA0'; llama.cpp runs it on the CPU: begin with a stage on 'CPU' that has at least the embedding",
    ),
    (
        [(0, 0, 1), (1, 1, 66)],
        BOX[1:],
        "the stage on 'CUDA0' has the embedding alone; llama.cpp runs it on the CPU: give the stage a block",
    ),
]


@pytest.mark.parametrize(("stages", "devices", "message"), REFUSED)
def test_what_cannot_be_stated(stages, devices, message):
    assert LLAMA_CPP.refusal(QWEN, Placement(stages), devices).startswith(message)
    with pytest.raises(UnsupportedFeature, match=message[:40]):
        LLAMA_CPP.emit(QWEN, Placement(stages), devices)


@pytest.mark.parametrize("memory", [None, [1.0, 0.0, 0.0]])
def test_unknown_free_memory(memory):
    with pytest.raises(UnsupportedFeature, match="llama.cpp shares layers out by it: give numbers, one above 0"):
        LLAMA_CPP.default(QWEN, problem_of(QWEN, BOX, memory=memory), BOX)


MISREAD = {
    "-ngl 65 -dev CUDA0 -sm none -mg": "option -mg has no value; give one",
    "-ngl 65 -dev CUDA0 -ot exps=CPU": "-ot moves parts of layers; what is read is the devices of whole layers",
    "-ngl 65 -dev CUDA0 --n-cpu-moe=3": "--n-cpu-moe=3 moves parts of layers",
    "-dev CUDA0": "does not state the layers on devices; give -ngl with a number, and -dev",
    "-ngl auto -dev CUDA0": "does not state the layers on devices",
    "-dev CUDA0 -ngl": "option -ngl has no value; give one",
    "-ngl 65 -dev CUDA0 -sm none -mg 1": "-mg is '1'; it must be the place of a device in -dev, from 0 to 0",
    "-ngl 65 -dev CUDA0 -sm row": "-sm is 'row'; what is read is whole layers on devices: give -sm layer or none",
    "-ngl 65 -dev CUDA0,CUDA1": "-ts is ''; it must be a share from 0 for each of 2 devices, one of them above 0",
    "-ngl 65 -dev CUDA0,CUDA1 -ts 1,2,3": "it must be a share from 0 for each of 2 devices",
    "-ngl 65 -dev CUDA0,CUDA1 -ts 0,0": "it must be a share from 0 for each of 2 devices",
    "-ngl 65 -dev CUDA7": "'CUDA7' is no device; choose from CPU, CUDA0, CUDA1",
}


@pytest.mark.parametrize(("words", "message"), MISREAD.items())
def test_texts_that_are_not_read(words, message):
    command = replace(LLAMA_CPP.emit(QWEN, Placement([(0, 0, 66)]), BOX), text=f"llama-server {words}")
    with pytest.raises(InvalidArgument, match=message):
        LLAMA_CPP.read(QWEN, command, BOX)


def test_a_cpu_that_is_no_device():
    command = LLAMA_CPP.emit(QWEN, Placement([(0, 0, 10), (1, 10, 66)]), BOX)
    with pytest.raises(InvalidArgument, match="-ngl 56 leaves 9 layers on the CPU, which is none of the devices; name it 'CPU'"):
        LLAMA_CPP.read(QWEN, command, BOX[1:])


def test_other_words_of_the_tool():
    text = "X=1 ./llama-cli --n-gpu-layers=56 --device CUDA1,CUDA0 --tensor-split 3/1 -t 8"
    read = LLAMA_CPP.read(QWEN, replace(LLAMA_CPP.emit(QWEN, Placement([(0, 0, 66)]), BOX), text=text), BOX)
    assert read == Placement([(0, 0, 10), (2, 10, 52), (1, 52, 66)])


def test_a_variable_that_numbers_the_devices_anew():
    text = "CUDA_VISIBLE_DEVICES=1,0 llama-server -ngl 65 -dev CUDA0 -sm none"
    with pytest.raises(
        InvalidArgument, match="CUDA_VISIBLE_DEVICES numbers the devices anew; leave it out, and order the devices with -dev"
    ):
        LLAMA_CPP.read(QWEN, replace(LLAMA_CPP.emit(QWEN, Placement([(0, 0, 66)]), BOX), text=text), BOX)


def test_the_default_that_does_not_fit_is_fitted_from_the_back():
    """10 bytes a block, 100 of the output: by memory the first device lacks bytes, so the last takes 4 blocks and the first 3."""
    model, devices = card(8, embed=100.0), ["CPU", "CUDA0", "CUDA1"]
    problem = problem_of(model, devices, memory=[1000.0, 30.0, 141.0])
    assert LLAMA_CPP.default(model, problem, devices, free_bytes=[1000.0, 100.0, 60.0]) == Placement([(0, 0, 2), (1, 2, 5), (2, 5, 10)])
    roomy = problem_of(model, devices, memory=[1000.0, 1000.0, 1000.0])
    assert LLAMA_CPP.default(model, roomy, devices) == Placement([(0, 0, 1), (1, 1, 6), (2, 6, 10)])
