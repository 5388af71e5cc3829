"""Every tool makes of its text the placement that was stated, and says why where it cannot state one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched.planning.tools as tools
from hetsched.chain.placement import Placement
from hetsched.errors import InvalidArgument, InvalidSchedule, UnsupportedFeature
from hetsched.testing.profiles import examples
from tests.planning.tools.cards import card, placed, problem_of

GPUS = [0, 1, 2, 3]
NAMES = {
    "accelerate": [0, 1, "cpu", "disk"],
    "llama.cpp": ["CUDA0", "CUDA1", "CPU", "Vulkan0"],
    "megatron": GPUS,
    "ollama": [0, "cpu", 1, 2],
    "sglang": GPUS,
    "torch": [0, 1, "cpu", 2],
    "torch-pipeline": [0, 1, "cpu", 2],
    "transformers": ["cuda:1", 1, 0, "cpu"],
    "vllm": [3, 0, 2, 1],
}


SPLITTING = [name for name in NAMES if name != "ollama"]
"""Tools to which a placement on several GPUs can be stated."""


def test_every_tool_is_tried():
    assert set(NAMES) == set(tools.TOOLS)
    assert all(tool.name == name and tool.version and tool.rule for name, tool in tools.TOOLS.items())


def devices_of(name):
    """Return a strategy of the devices of a tool, at least one of which it can use alone."""
    return st.integers(1, 4).flatmap(lambda count: st.permutations(NAMES[name][:count]))


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
@examples(60)
def test_what_is_emitted_is_read_as_the_placement(name, data):
    tool = tools.tool(name)
    devices = data.draw(devices_of(name))
    tied = data.draw(st.booleans())
    family = "plain" if name == "torch-pipeline" else "llama"
    probe = card(1, tied=tied)
    closed = tool.n_items(probe) < probe.n_items
    model, placement = data.draw(placed(devices, tied=tied, family=family, closed=closed))
    context = data.draw(st.none() | st.integers(1, 10**6))
    if tool.refusal(model, placement, devices):
        with pytest.raises(UnsupportedFeature):
            tool.emit(model, placement, devices, context=context)
        return
    command = tool.emit(
        model, placement, devices, model="a model's name.gguf", context=context, sequences=data.draw(st.none() | st.just(3))
    )
    assert command.tool == name
    assert tool.read(model, command, devices) == placement


@pytest.mark.parametrize("name", SPLITTING)
@given(data=st.data())
@examples(20)
def test_placements_that_suit_a_tool_are_not_refused(name, data):
    """Stages of at least one block on GPUs, behind what llama.cpp leaves on the CPU."""
    tool = tools.tool(name)
    model = card(data.draw(st.integers(4, 130)), family="plain")
    gpus = [device for device in NAMES[name] if device not in ("cpu", "disk", "CPU")]
    used = data.draw(st.permutations(range(len(gpus))))
    cuts = data.draw(st.lists(st.integers(2, model.n_items - 2), min_size=len(used) - 1, max_size=len(used) - 1, unique=True))
    edges = [0, *sorted(cuts), model.n_items]
    placement = Placement(zip(used, edges[:-1], edges[1:], strict=True))
    assert tool.refusal(model, placement, gpus) == ""
    assert tool.read(model, tool.emit(model, placement, gpus), gpus) == placement


@pytest.mark.parametrize("name", SPLITTING)
@given(data=st.data())
@examples(20)
def test_two_placements_have_two_texts(name, data):
    tool = tools.tool(name)
    devices, n = NAMES[name][:2], data.draw(st.integers(2, 40))
    model = card(n, family="plain")
    first, second = data.draw(st.lists(st.integers(2, n + 1), min_size=2, max_size=2, unique=True))
    texts = {tool.emit(model, Placement([(0, 0, cut), (1, cut, n + 2)]), devices).text for cut in (first, second) if cut <= n}
    texts |= {tool.emit(model, Placement([(1, 0, cut), (0, cut, n + 2)]), devices).text for cut in (first, second) if cut <= n}
    assert len(texts) == 2 * sum(cut <= n for cut in (first, second))


@pytest.mark.parametrize("name", SPLITTING)
@given(data=st.data())
@examples(20)
def test_defaults_cover_the_chain_and_can_be_stated(name, data):
    tool = tools.tool(name)
    gpus = [device for device in NAMES[name] if device not in ("cpu", "disk", "CPU")][: data.draw(st.integers(1, 3))]
    model = card(len(gpus) * data.draw(st.integers(1, 40)), tied=data.draw(st.booleans()), family="plain")
    memory = [float(data.draw(st.integers(1, 10**4))) for _ in gpus]
    problem = problem_of(model, gpus, memory=memory, n_items=tool.n_items(model))
    placement = tool.default(model, problem, gpus)
    ends = [0, *(stage.end for stage in placement.stages)]
    assert [stage.first for stage in placement.stages] == ends[:-1]
    assert ends[-1] == problem.n_items
    if not tool.refusal(model, placement, gpus):
        assert tool.read(model, tool.emit(model, placement, gpus), gpus) == placement


class TestMessages:
    MODEL = card(4)
    WHOLE = Placement([(0, 0, 6)])

    def test_an_unknown_tool(self):
        with pytest.raises(InvalidArgument, match="tool is 'exo'; choose from accelerate, llama.cpp, megatron"):
            tools.tool("exo")

    @pytest.mark.parametrize("stages", [[(0, 0, 5)], [(0, 0, 2), (1, 3, 6)], [(0, 1, 6)], [(0, 0, 0), (1, 0, 6)], []])
    def test_a_placement_that_does_not_cover_the_items(self, stages):
        with pytest.raises(InvalidSchedule, match="does not cover the items 0 to 5 of 'M' one after the other"):
            tools.tool("vllm").refusal(self.MODEL, Placement(stages), [0, 1])

    @pytest.mark.parametrize("stages", [[(2, 0, 6)], [(0, 0, 2), (0, 2, 6)]])
    def test_devices_of_a_placement(self, stages):
        with pytest.raises(InvalidSchedule, match="each stage has a device of its own, from 0 to 1"):
            tools.tool("vllm").refusal(self.MODEL, Placement(stages), [0, 1])

    @pytest.mark.parametrize("devices", [[], [0, "0"]])
    def test_names_of_devices(self, devices):
        with pytest.raises(InvalidArgument, match="give each device a name of its own"):
            tools.tool("vllm").refusal(self.MODEL, self.WHOLE, devices)

    @pytest.mark.parametrize("what", ["context", "sequences"])
    def test_counts(self, what):
        with pytest.raises(InvalidArgument, match=f"{what} is 0"):
            tools.tool("vllm").emit(self.MODEL, self.WHOLE, [0], **{what: 0})

    def test_items_of_the_problem(self):
        with pytest.raises(InvalidArgument, match="problem has 5 items; those of 'M' for vllm are 6"):
            tools.tool("vllm").default(self.MODEL, problem_of(self.MODEL, [0], n_items=5), [0])

    def test_devices_of_the_problem(self):
        with pytest.raises(InvalidArgument, match="devices has 1 name; give one for each of the problem's 2"):
            tools.tool("vllm").default(self.MODEL, problem_of(self.MODEL, [0, 1]), [0])

    def test_free_memory(self):
        with pytest.raises(InvalidArgument, match="bytes are numbers from 0"):
            tools.tool("vllm").default(self.MODEL, problem_of(self.MODEL, [0]), [0], free_bytes=[-1.0])

    def test_a_text_that_is_no_line_of_a_shell(self):
        command = replace(tools.tool("vllm").emit(self.MODEL, self.WHOLE, [0]), text="'")
        with pytest.raises(InvalidArgument, match="is no line of a shell: No closing quotation; close its quotes"):
            tools.tool("vllm").read(self.MODEL, command, [0])

    @pytest.mark.parametrize("name", NAMES)
    @given(text=st.text(max_size=40))
    @examples(20)
    def test_any_other_text(self, name, text):
        with pytest.raises(InvalidArgument):
            tools.tool(name).read(self.MODEL, tools.Command(name, text), NAMES[name])
