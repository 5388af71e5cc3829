"""llama.cpp: experts on the CPU as options, which are read back by the tensors that they match, and as --fit leaves them there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.chain.card import PARTS, ModelCard, chain_items, tensor_columns
from hetsched.chain.offloading import Offloading
from hetsched.chain.placement import Placement
from hetsched.errors import InvalidArgument
from hetsched.planning.tools.llama_cpp import LLAMA_CPP
from hetsched.planning.tools.ollama import OLLAMA
from hetsched.testing.profiles import examples
from tests.planning.tools.cards import card, placed, problem_of

BOX = ["CPU", "CUDA0", "CUDA1"]


def sparse_card(experts, tensors=None):
    """Return a card of blocks with bytes of experts beside 10 of the rest."""
    model = card(len(experts), embed=100.0)
    weights = np.array(model.weight_bytes)
    weights[1:-1, PARTS.index("experts")] = experts
    rows = [{"workspace_numbers": 1, "experts": 8 * (size > 0), "experts_used": 2 * (size > 0)} for size in experts]
    return ModelCard("M", "qwen3moe", 1, 10, chain_items(rows, 1), weights, weights, tensors=tensors)


SPARSE = sparse_card([0, *[40] * 7])


@st.composite
def placed_experts(draw):
    """Draw a card with experts, and a placement with some of them on the CPU."""
    model, placement = draw(placed(["CPU", "CUDA0", "CUDA1"], most_blocks=12))
    model = sparse_card(draw(st.lists(st.sampled_from([0, 20, 40]), min_size=model.n_blocks, max_size=model.n_blocks)))
    of_gpus = [i for k, first, end in placement.stages if k for i in range(first, end) if model.weight_bytes[i, PARTS.index("experts")]]
    return model, Placement(placement.stages, [(i, 0) for i in of_gpus if draw(st.booleans())])


@examples(100)
@given(placed_experts())
def test_experts_on_the_cpu_are_read_back(given_):
    model, placement = given_
    if not LLAMA_CPP.refusal(model, placement, ["CPU", "CUDA0", "CUDA1"]):
        command = LLAMA_CPP.emit(model, placement, ["CPU", "CUDA0", "CUDA1"])
        assert LLAMA_CPP.read(model, command, ["CPU", "CUDA0", "CUDA1"]) == placement
        assert (command.text.count("-ot ") + command.text.count("--n-cpu-moe ")) == bool(placement.offloaded)


def option_of(stages, items):
    words = list(LLAMA_CPP.emit(SPARSE, Placement(stages, [(i, 0) for i in items]), BOX).arguments)
    return words[words.index("-sm") + 4 if "-sm" in words else words.index("-dev") + 2 : -2]


def test_experts_of_the_first_blocks_are_a_number_and_others_a_pattern():
    one = [(0, 0, 1), (1, 1, 10)]
    assert option_of(one, [2, 3, 4]) == ["--n-cpu-moe", "4"]
    assert option_of([(0, 0, 4), (1, 4, 10)], [4]) == ["--n-cpu-moe", "4"]
    assert option_of(one, [8]) == ["-ot", r"blk\.(7)\.ffn_(up|down|gate|gate_up)_(ch|)exps=CPU"]
    assert option_of([(0, 0, 1), (1, 1, 5), (2, 5, 10)], [5, 6]) == ["-ot", r"blk\.(4|5)\.ffn_(up|down|gate|gate_up)_(ch|)exps=CPU"]
    assert option_of(one, []) == []


READ = "llama-server -ngl 9 -dev CUDA0 -sm none "


def test_other_options_for_experts():
    def read(words, model=SPARSE):
        command = replace(LLAMA_CPP.emit(SPARSE, Placement([(0, 0, 1), (1, 1, 10)]), BOX), text=READ + words)
        return [item for item, _ in LLAMA_CPP.read(model, command, BOX).offloaded]

    assert read("-cmoe") == read("-ncmoe 99") == list(range(2, 9))
    assert read("--n-cpu-moe=3") == [2, 3]
    assert read("-ot 'blk\\.[67]\\.ffn_.*_exps=CPU'") == [7, 8]
    assert read("-ot blk.7=CPU -ngl 1") == []  # the block is on the CPU
    tensors = tensor_columns([("blk.1.ffn_up_exps.weight", "block 1", "experts", 40)])
    assert read("-ncmoe 2", sparse_card([0, *[40] * 7], tensors)) == [2]
    for words, message in {
        "-ot 'exps=CUDA1'": "-ot moves blk.1.ffn_gate_exps.weight to CUDA1; what is read is experts on the CPU",
        "-ot 'blk.3=CPU'": "-ot moves blk.3.attn_q.weight to CPU",
        "-ot 'ffn_up_exps=CPU'": "some tensors of the experts of block 1 are moved; what is read is all of a block",
        "-ot '(=CPU'": r"-ot has '\(=CPU', whose pattern is no regular expression; give PATTERN=CPU",
        "-ot CPU": "-ot has 'CPU'; give PATTERN=CPU",
        "-ncmoe x": "-ncmoe is 'x'; it must be a number of blocks",
    }.items():
        with pytest.raises(InvalidArgument, match=message):
            read(words)
    command = replace(LLAMA_CPP.emit(SPARSE, Placement([(0, 0, 10)]), BOX[1:]), text=READ + "-cmoe")
    with pytest.raises(InvalidArgument, match="experts are left on the CPU, which is none of the devices; name it 'CPU'"):
        LLAMA_CPP.read(SPARSE, command, BOX[1:])


def test_weights_that_are_no_experts_are_not_offloaded():
    for item, holder in ((1, 0), (2, 2)):
        reason = LLAMA_CPP.refusal(SPARSE, Placement([(0, 0, 1), (1, 1, 10)], [(item, holder)]), BOX)
        assert reason.startswith("weights are offloaded that are no experts, or not to the CPU")
    assert OLLAMA.refusal(SPARSE, Placement([(0, 0, 1), (1, 1, 10)], [(2, 0)]), ["cpu", 0]).endswith("place whole items")


def fit(gpus, memory):
    devices = ["CPU", *[f"CUDA{k}" for k in range(gpus)]]
    n, m = SPARSE.n_items, len(devices)
    held = np.full((n, m), np.inf)
    held[:, 0] = 0.0
    offloading = Offloading(SPARSE.weight_bytes[:, PARTS.index("experts")], np.zeros((n, m)), held)
    problem = problem_of(SPARSE, devices, memory=[1e4, *memory]).replace(offloading=offloading)
    placement = LLAMA_CPP.default(SPARSE, problem, devices, free_bytes=[1e4, *[500.0] * gpus])
    return [tuple(stage) for stage in placement.stages], [item for item, _ in placement.offloaded]


def test_fit_moves_experts_to_the_cpu_then_layers():
    """The output has 101 bytes, a block 10 and 40 of experts, of which one passes through; the first block has none."""
    assert fit(1, [101 + 10 + 7 * 50]) == ([(0, 0, 1), (1, 1, 10)], [])
    assert fit(1, [101 + 80 + 40 + 80]) == ([(0, 0, 1), (1, 1, 10)], [4, 5, 6, 7, 8])  # two full layers beside the first
    assert fit(1, [101 + 40 + 40]) == ([(0, 0, 5), (1, 5, 10)], [5, 6, 7, 8])
    assert fit(2, [110, 101 + 80 + 40]) == ([(0, 0, 1), (1, 1, 4), (2, 4, 10)], [4, 5, 6, 7, 8])
    assert fit(2, [40 + 20, 101 + 60 + 40]) == ([(0, 0, 1), (1, 1, 3), (2, 3, 10)], [3, 4, 5, 6, 7, 8])
    assert fit(2, [0, 10]) == ([(0, 0, 10)], [])
