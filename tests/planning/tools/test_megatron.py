"""Megatron: layouts of layers, read by our grammar and by Megatron's parser."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.chain.placement import Placement
from hetsched.errors import InvalidArgument, UnsupportedFeature
from hetsched.planning.tools.megatron import MEGATRON, layout_stages
from hetsched.testing.profiles import examples
from tests.planning.tools.cards import card, placed, problem_of

MODEL = card(64)
SPLIT = Placement([(0, 0, 52), (1, 52, 66)])


def test_text():
    assert MEGATRON.emit(MODEL, SPLIT, [0, 1], context=4096).text == (
        "CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc-per-node 2 pretrain_gpt.py "
        "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Et*51|t*13L' --seq-length 4096"
    )


@pytest.mark.parametrize(
    ("text", "stages"),
    [
        ("Et*51|t*13L", ["E" + 51 * "t", 13 * "t" + "L"]),
        ("E|t*2|L", ["E", "tt", "L"]),
        ("Ettt|(tt|)*3,m|L", ["Ettt", "tt", "tt", "tt", "m", "L"]),
        ("E(t|t)*2L", ["Et", "tt", "tL"]),
        ("(|tt)*2,L", ["", "tt", "ttL"]),
        ("E(t*2|)*2t*1L", ["Ett", "tt", "tL"]),
        ("E|*3L", ["E", "", "", "L"]),
        ("Et*0L", ["EL"]),
    ],
)
def test_grammar(text, stages):
    assert layout_stages(text) == stages


@st.composite
def layouts(draw):
    """Draw a layout, and its stages by the definition of repetitions."""
    layer = st.sampled_from("tttm|").map(lambda c: (c, c))
    times = st.integers(0, 12)

    def repeated(part):
        return st.tuples(part, times).map(lambda x: (f"{x[0][0]}*{x[1]}", x[0][1] * x[1]))

    plain = st.lists(layer | repeated(layer), max_size=4).map(lambda rows: ("".join(r[0] for r in rows), "".join(r[1] for r in rows)))
    some = st.lists(layer | repeated(layer), min_size=1, max_size=3).map(
        lambda rows: ("".join(r[0] for r in rows), "".join(r[1] for r in rows))
    )
    group = st.tuples(some, times).map(lambda x: (f"({x[0][0]})*{x[1]}", x[0][1] * x[1]))
    rows = draw(st.lists(plain | group, max_size=4))
    comma = draw(st.sampled_from(["", ","]))
    return "E" + comma + comma.join(r[0] for r in rows) + comma + "L", "E" + "".join(r[1] for r in rows) + "L"


@given(layouts())
@examples(200)
def test_repetitions(layout):
    text, layers = layout
    assert layout_stages(text) == layers.split("|")


@pytest.mark.slow
def test_the_parser_of_megatron():
    parser = pytest.importorskip(
        "megatron.core.transformer.pipeline_parallel_layer_layout", reason="megatron-core is not installed"
    ).PipelineParallelLayerLayout
    letter = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}

    def theirs(text):
        return ["".join(letter[layer.name] for layer in stage) for stage in parser.parse_str_to_list(text)]

    @given(layouts())
    @examples(200)
    def agree(layout):
        assert layout_stages(layout[0]) == theirs(layout[0])

    @given(placed([0, 1, 2, 3]))
    @examples(100)
    def valid(drawn):
        model, placement = drawn
        words = MEGATRON.emit(model, placement, [0, 1, 2, 3]).arguments
        layout = words[words.index("--pipeline-model-parallel-layout") + 1]
        made = parser(layout, len(placement))
        assert made.validate_layer_layout(model.n_blocks, None) is False
        counts = [len(made.layout[rank][0]) for rank in range(len(placement))]
        assert counts == [stage.end - stage.first for stage in placement.stages]

    agree()
    valid()


def test_virtual_stages_are_read_as_stages_of_their_rank():
    text = "CUDA_VISIBLE_DEVICES=3,1 --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Et*20|t*20|t*20|t*4L"
    read = MEGATRON.read(MODEL, replace(MEGATRON.emit(MODEL, SPLIT, [0, 1]), text=text), [3, 1])
    assert read == Placement([(0, 0, 21), (1, 21, 41), (0, 41, 61), (1, 61, 66)])


def test_default():
    assert MEGATRON.default(MODEL, problem_of(MODEL, [0, 1]), [0, 1]) == Placement([(0, 0, 33), (1, 33, 66)])
    with pytest.raises(UnsupportedFeature, match="has 64 blocks for 3 ranks; without a layout Megatron divides them evenly: give a layout"):
        MEGATRON.default(MODEL, problem_of(MODEL, [0, 1, 2]), [0, 1, 2])


def test_layers_on_the_cpu():
    assert MEGATRON.refusal(MODEL, SPLIT, [0, "cpu"]).startswith(
        "block 51 to head are on 'cpu'; Megatron cannot leave layers on a device that"
    )


MISREAD = {
    "Et*51|t*13": "the layout has the layers 'Ett",
    "Et*63|t*13L": "they must be E, 64 times t for the blocks of 'M', and L",
    "Et*20|t*20|t*24L": "has 3 stages and --pipeline-model-parallel-size is '2'; the stages must be a multiple of it",
    "E x": "the layout 'E x' is not understood from ' x'",
    "": "the layout '' is not understood",
    "*3E": "has *3 behind nothing; put it behind a layer",
    "E(t": "has ( without )*n behind it; brackets are repeated, and have none within",
    "E(t)|L": "has ( without )*n behind it",
    "E((t)*2)*2|L": "has ( without )*n behind it",
    "Et)|L": "has ) without (; close what is open",
    "Et*99999999|L": "has more than 100,000 layers; repeat fewer times",
}


@pytest.mark.parametrize(("layout", "message"), MISREAD.items())
def test_layouts_that_are_not_read(layout, message):
    text = f"CUDA_VISIBLE_DEVICES=0,1 --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout '{layout}'"
    with pytest.raises(InvalidArgument) as error:
        MEGATRON.read(MODEL, replace(MEGATRON.emit(MODEL, SPLIT, [0, 1]), text=text), [0, 1])
    assert message in str(error.value)


def test_too_few_gpus():
    text = "CUDA_VISIBLE_DEVICES=0 --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Et*51|t*13L'"
    with pytest.raises(InvalidArgument, match="has 1 GPU; give one for each of 2 ranks"):
        MEGATRON.read(MODEL, replace(MEGATRON.emit(MODEL, SPLIT, [0, 1]), text=text), [0, 1])
