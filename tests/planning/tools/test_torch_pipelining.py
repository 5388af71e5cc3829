"""torch pipelining: cuts by hand, cuts by torch, and two processes that run the stages."""

from __future__ import annotations

import numpy as np
import pytest

from hetsched.chain.card import PARTS, ModelCard, chain_items
from hetsched.chain.placement import Placement
from hetsched.errors import InvalidArgument
from hetsched.planning.tools import Command
from hetsched.planning.tools.torch_pipelining import TORCH, TORCH_PIPELINE
from tests.planning.tools.cards import card, problem_of

MODEL = card(64)
SPLIT = Placement([(0, 0, 52), (1, 52, 66)])


def plain(blocks):
    """Return the card of a plain chain of modules."""
    names = [("embed",), *((f"layers.{i}",) for i in range(blocks)), ("norm", "head")]
    weights = np.ones((blocks + 2, len(PARTS)))
    return ModelCard("chain", "plain", 1, 10, chain_items([{"workspace_numbers": 1}] * blocks, 1), weights, weights, modules=names)


def test_texts():
    command = TORCH.emit(MODEL, SPLIT, [0, 1])
    assert command.text == "cuts=[(0, 51), (51, 64)], devices=[0, 1]"
    assert command.cuts == ((0, 51), (51, 64))
    command = TORCH_PIPELINE.emit(plain(64), SPLIT, [0, "cpu"])
    assert command.text == 'split_spec={"layers.51": SplitPoint.BEGINNING}, devices=[0, "cpu"]'
    assert command.split_spec == {"layers.51": "BEGINNING"}


@pytest.mark.parametrize(("first", "cuts"), [(1, "[(0, 0), (0, 4)]"), (5, "[(0, 4), (4, 4)]")])
def test_an_end_alone(first, cuts):
    placement = Placement([(1, 0, first), (0, first, 6)])
    command = TORCH.emit(card(4), placement, [0, 1])
    assert command.text == f"cuts={cuts}, devices=[1, 0]"
    assert TORCH.read(card(4), command, [0, 1]) == placement


def test_cuts_behind_a_module():
    text = 'split_spec={"layers.2": SplitPoint.END, "norm": SplitPoint.BEGINNING}, devices=[0, 1, 2]'
    assert TORCH_PIPELINE.read(plain(5), Command("torch-pipeline", text), [0, 1, 2]) == Placement([(0, 0, 4), (1, 4, 6), (2, 6, 7)])


def test_what_torch_cannot_cut():
    assert TORCH_PIPELINE.refusal(MODEL, SPLIT, [0, 1]) == (
        "'M' is a llama of Transformers; torch cannot trace these models: cut the stages by hand, with the tool 'torch'"
    )
    assert TORCH_PIPELINE.refusal(card(64, family="plain", modules=False), SPLIT, [0, 1]) == (
        "block 51 to head begin with an item without names of modules; torch cuts at modules: give the card's modules, or cut the stages "
        "by hand, with the tool 'torch'"
    )


def test_default():
    placement = TORCH.default(card(5), problem_of(card(5), [0, "cpu"]), [0, "cpu"])
    assert placement == Placement([(0, 0, 3), (1, 3, 7)])


BY_HAND = {
    "cuts=[(0, 64)], devices=[0, 1]": "cuts has 1 stage and devices 2; give a device for each stage",
    "cuts=[], devices=[]": "cuts has 0 stages and devices 0",
    "cuts=[(0, 51), (52, 64)], devices=[0, 1]": "they must be (first, end) of each stage, one after the other, from 0 to 64",
    "cuts=[(0, 51), (51, 63)], devices=[0, 1]": "they must be (first, end) of each stage",
    "cuts=[(0, 0), (0, 0), (0, 64)], devices=[0, 1, 2]": "they must be (first, end) of each stage",
    "cuts=[(0, '51'), (51, 64)], devices=[0, 1]": "they must be (first, end) of each stage",
    "cuts=[0, 51], devices=[0, 1]": "they must be (first, end) of each stage",
    "cuts=[(0, 64)]": "there is no devices=; give it",
    "cuts=[(0, 64)], devices=[7]": "7 is no device; choose from 0, 1, 2",
}
BY_TORCH = {
    "devices=[0]": "there is no split_spec={..}; give the module that each stage but the first begins with",
    'split_spec={"layers.1": 3}, devices=[0, 1]': "split_spec has '3'; it must have SplitPoint.BEGINNING or SplitPoint.END",
    'split_spec={"layers.9": SplitPoint.BEGINNING}, devices=[0, 1]': "has 'layers.9', at whose beginning no item of 'chain' starts; cut",
    'split_spec={"head": SplitPoint.BEGINNING}, devices=[0, 1]': "at whose beginning no item",
    'split_spec={"head": SplitPoint.END}, devices=[0, 1]': "at whose end no item",
    'split_spec={"layers.1": SplitPoint.BEGINNING}, devices=[0]': "cuts before the items [2], and devices has 1; give a device",
}


@pytest.mark.parametrize(("text", "message"), BY_HAND.items())
def test_cuts_that_are_not_read(text, message):
    with pytest.raises(InvalidArgument) as error:
        TORCH.read(MODEL, Command("torch", text), [0, 1, 2])
    assert message in str(error.value)


@pytest.mark.parametrize(("text", "message"), BY_TORCH.items())
def test_split_points_that_are_not_read(text, message):
    with pytest.raises(InvalidArgument) as error:
        TORCH_PIPELINE.read(plain(4), Command("torch-pipeline", text), [0, 1, 2])
    assert message in str(error.value)


def computed(kind, tool, model, tmp_path):
    """Return what two processes compute in stages, with each end alone and with a cut between blocks."""
    import torch

    from tests.planning.tools import pipelines

    placements = [Placement([(0, 0, first), (1, first, 6)]) for first in (1, 3, 5)]
    cases = [(kind, tool.emit(model, placement, ["cpu", "cpu:0"]).text) for placement in placements]
    output = tmp_path / "output.pt"
    torch.multiprocessing.spawn(pipelines.run, (cases, str(tmp_path / "store"), str(output)), nprocs=2)
    return torch.load(output)


@pytest.mark.slow
def test_two_processes_compute_what_a_plain_module_does(tmp_path):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from tests.planning.tools import pipelines

    with torch.no_grad():
        expected = pipelines.Plain()(pipelines.plain_input())
    made = computed("plain", TORCH_PIPELINE, plain(4), tmp_path)
    assert len(made) == 3
    for output in made:
        torch.testing.assert_close(output, expected)


@pytest.mark.slow
def test_two_processes_compute_what_a_llama_does(tmp_path):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("transformers", reason="transformers is not installed")
    from tests.planning.tools import pipelines

    with torch.no_grad():
        expected = pipelines.llama()(input_ids=pipelines.llama_input()).logits
    made = computed("llama", TORCH, card(4), tmp_path)
    assert len(made) == 3
    for output in made:
        torch.testing.assert_close(output, expected)
