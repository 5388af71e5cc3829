"""Accelerate and Transformers: device maps, and what both do by themselves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.chain.card import PARTS, ModelCard, chain_items
from hetsched.chain.placement import Placement
from hetsched.errors import InvalidArgument, UnsupportedFeature
from hetsched.planning.tools import Command
from hetsched.planning.tools.accelerate import ACCELERATE, TRANSFORMERS
from hetsched.testing.profiles import examples
from tests.planning.tools.cards import card, problem_of

MODEL = card(3)
SPLIT = Placement([(0, 0, 3), (1, 3, 5)])


def test_texts():
    command = TRANSFORMERS.emit(MODEL, SPLIT, [0, 1])
    assert command.text == (
        'device_map={"model.embed_tokens": 0, "model.rotary_emb": 0, "model.layers.0": 0, "model.layers.1": 0, "model.layers.2": 1, '
        '"model.norm": 1, "lm_head": 1}'
    )
    assert command.text == f"device_map={command.device_map}".replace("'", '"')
    assert command.environment == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    offloaded = ACCELERATE.emit(MODEL, SPLIT, [0, "disk"])
    assert offloaded.text.endswith('"lm_head": "disk"}, offload_folder="offload"')
    assert ACCELERATE.read(MODEL, offloaded, [0, "disk"]) == SPLIT


def test_a_tied_head_goes_with_the_embedding():
    model = card(3, tied=True)
    assert ACCELERATE.n_items(model) == 4
    placement = Placement([(1, 0, 2), (0, 2, 4)])
    command = ACCELERATE.emit(model, placement, [0, "cpu"])
    assert command.device_map == {
        "model.embed_tokens": "cpu",
        "model.rotary_emb": "cpu",
        "model.layers.0": "cpu",
        "model.layers.1": 0,
        "model.layers.2": 0,
        "model.norm": "cpu",
        "lm_head": "cpu",
    }
    assert ACCELERATE.read(model, command, [0, "cpu"]) == placement


def test_what_cannot_be_stated():
    assert ACCELERATE.refusal(card(3, tied=True), SPLIT, [0, 1]) == (
        "<Placement 0-2 on 0, 3-4 on 1> has the head, item 4, on 1; accelerate runs a head that is tied to the embedding on the device of "
        "the embedding: leave the head out of the placement"
    )
    assert ACCELERATE.refusal(card(3, modules=False), SPLIT, [0, 1]) == (
        "embed of 'M' has no names of modules; a device map needs those of every item: read the card from a config.json or a model of "
        "Transformers"
    )
    assert ACCELERATE.refusal(MODEL, Placement([(0, 0, 5)]), ["disk"]) == (
        "all items are on 'disk'; Accelerate runs them on another device: place one item at least on a GPU or on 'cpu'"
    )


@examples(60)
@given(st.booleans(), st.integers(1, 5), st.data())
def test_weights_that_are_copied_are_read_back(tied, blocks, data):
    model, devices = card(blocks, tied=tied), [0, 1, "cpu", "disk"]
    n = ACCELERATE.n_items(model)
    end = data.draw(st.integers(1, n))
    moved = data.draw(st.lists(st.integers(0, end - 1), unique=True, max_size=end - 1))
    stages = [(1, 0, end), (0, end, n)] if end < n else [(1, 0, n)]
    placement = Placement(stages, [(item, data.draw(st.sampled_from([2, 3]))) for item in moved])
    command = TRANSFORMERS.emit(model, placement, devices)
    assert TRANSFORMERS.execution.as_run(TRANSFORMERS.read(model, command, devices), devices) == placement
    assert ("offload_folder" in command.text) == any(holder == 3 for _, holder in placement.offloaded)


COPIED = [
    ([(0, 0, 3), (1, 3, 5)], [(4, 2)], "weights behind the first stage are offloaded; Accelerate copies all to the first GPU"),
    ([(0, 0, 5)], [(i, 2) for i in range(5)], "weights are offloaded; Accelerate copies them to a GPU that has some of its own"),
    ([(2, 0, 5)], [(1, 3)], "weights are offloaded; Accelerate copies them to a GPU that has some of its own"),
    ([(0, 0, 5)], [(1, 1)], "weights are offloaded to 1; Accelerate copies them from 'cpu' or 'disk' alone: offload them there"),
]


@pytest.mark.parametrize(("stages", "offloaded", "message"), COPIED)
def test_weights_that_are_not_copied(stages, offloaded, message):
    assert ACCELERATE.refusal(MODEL, Placement(stages, offloaded), [0, 1, "cpu", "disk"]).startswith(message)


def test_requests_return_to_the_first_gpu_for_what_lies_on_the_cpu_behind_another():
    as_run = ACCELERATE.execution.as_run
    assert as_run(Placement([(1, 0, 3), (0, 3, 5)]), ["cpu", 0]) == Placement([(1, 0, 5)], [(3, 0), (4, 0)])
    assert as_run(SPLIT, ["cpu", "disk"]) == SPLIT
    returned = as_run(Placement([(0, 0, 2), (1, 2, 4), (2, 4, 5)]), [0, 1, "cpu"])
    assert returned == Placement([(0, 0, 2), (1, 2, 4), (0, 4, 5)], [(4, 2)])
    command = ACCELERATE.emit(MODEL, returned, [0, 1, "cpu"])
    assert as_run(ACCELERATE.read(MODEL, command, [0, 1, "cpu"]), [0, 1, "cpu"]) == returned
    with pytest.raises(UnsupportedFeature, match="gives a device items before and behind those of another; give each device an interval"):
        as_run(Placement([(0, 0, 1), (1, 1, 2), (2, 2, 3), (1, 3, 5)]), [0, 1, "cpu"])


WHOLE = [(0, 0, 5)]
READ = {
    '{"": 0}': WHOLE,
    '{"model": 0, "lm_head": 0}': WHOLE,
    '{"model": 0, "lm_head": 1}': None,
    '{"model": 1, "model.embed_tokens": 0, "model.rotary_emb": 0, "lm_head": 1}': [(0, 0, 1), (1, 1, 5)],
    '{"model.layers.2": 1, "model": 0, "model.norm": 1, "lm_head": 1}': [(0, 0, 3), (1, 3, 5)],
    '{"": 0, "model.layers.1": 1}': [(0, 0, 2), (1, 2, 3), (0, 3, 5)],
    '{"": 0, "model.layers.1.mlp": 0}': WHOLE,
}


@pytest.mark.parametrize(("device_map", "stages"), READ.items())
def test_maps_by_prefixes(device_map, stages):
    command = Command("accelerate", f"device_map={device_map}")
    if stages is None:
        with pytest.raises(InvalidArgument, match="device_map divides head among"):
            ACCELERATE.read(MODEL, command, [0, 1])
    else:
        assert ACCELERATE.read(MODEL, command, [0, 1]) == Placement(stages)


def test_a_prefix_is_whole_words():
    model = card(12)
    text = ACCELERATE.emit(model, Placement([(0, 0, 14)]), [0, 1]).text.replace('"model.layers.10": 0, ', "")
    with pytest.raises(
        InvalidArgument, match="device_map has no device for 'model.layers.10' of block 10; give one, or one for what it is in"
    ):
        ACCELERATE.read(model, Command("accelerate", text), [0, 1])


MISREAD = {
    "device_map={": "are no keyword arguments of Python; give name=value, separated by commas",
    "3": "are no keyword arguments of Python",
    "**x": "are no keyword arguments of Python",
    "x=1": "there is no device_map=; give it",
    "device_map=[0]": "device_map is '[0]'; it must be a dict of plain values",
    "device_map=f()": "device_map is 'f()'; it must be a dict of plain values",
    "device_map={0: 0}": "it must have the name or number of a device by prefixes of modules",
    'device_map={"": 7}': "7 is no device; choose from 0, 1",
    'device_map={"": 0, "model.layers.1.mlp": 1}': "device_map divides block 1 among ['0', '1']; give its modules one device",
}


@pytest.mark.parametrize(("text", "message"), MISREAD.items())
def test_texts_that_are_not_read(text, message):
    with pytest.raises(InvalidArgument) as error:
        ACCELERATE.read(MODEL, Command("accelerate", text), [0, 1])
    assert message in str(error.value)


def test_a_tied_head_elsewhere_is_not_read():
    command = ACCELERATE.emit(MODEL, SPLIT, [0, 1])
    with pytest.raises(InvalidArgument, match="has the embedding on 0 and the head, which is tied to it, on 1; give both one device"):
        ACCELERATE.read(card(3, tied=True), command, [0, 1])


class TestDefaults:
    """Blocks of 10 bytes, an embedding and a table of 100, a norm of 1: 100 + 60 + 1 + 100."""

    MODEL = card(6)

    def default(self, tool, devices, free, model=None):
        model = self.MODEL if model is None else model
        return tool.default(model, problem_of(model, devices, n_items=tool.n_items(model)), devices, free_bytes=free)

    def test_the_first_gpu_keeps_room_for_the_largest_layer(self):
        assert self.default(ACCELERATE, [0, 1], [361, 0]) == Placement([(0, 0, 8)])
        assert self.default(ACCELERATE, [0, 1], [260, 1000]) == Placement([(0, 0, 7), (1, 7, 8)])
        assert self.default(ACCELERATE, [0, 1], [250, 1000]) == Placement([(0, 0, 6), (1, 6, 8)])
        assert self.default(ACCELERATE, [0, 1], [199, 1000]) == Placement([(1, 0, 8)])

    def test_the_cpu_keeps_room_too_and_the_disk_takes_the_rest(self):
        placement = self.default(ACCELERATE, ["disk", "cpu", 0], [0, 130, 230])
        assert placement == Placement([(2, 0, 4), (1, 4, 7), (0, 7, 8)])
        placement = self.default(ACCELERATE, ["disk", "cpu", 0], [0, 120, 230])
        assert placement == Placement([(2, 0, 4), (1, 4, 6), (0, 6, 8)])

    def test_devices_by_number(self):
        assert self.default(ACCELERATE, [1, 0], [1000, 220]) == Placement([(1, 0, 3), (0, 3, 8)])

    def test_a_tied_head_takes_no_room(self):
        assert self.default(ACCELERATE, [0, 1], [161, 1000], card(6, tied=True)) == Placement([(0, 0, 7)])
        assert self.default(ACCELERATE, [0, 1], [160, 1000], card(6, tied=True)) == Placement([(0, 0, 6), (1, 6, 7)])

    def test_transformers_balances_all_gpus_but_the_last(self):
        """A GPU may have 261 // 2 + 125 = 255 bytes; the first keeps 100 of them free: the embedding and 5 blocks."""
        assert self.default(TRANSFORMERS, [0, 1], [1000, 1000]) == Placement([(0, 0, 6), (1, 6, 8)])
        assert self.default(ACCELERATE, [0, 1], [1000, 1000]) == Placement([(0, 0, 8)])

    def test_transformers_leaves_a_tenth_of_a_single_gpu(self):
        assert self.default(TRANSFORMERS, [0, "cpu"], [402, 10_000]) == Placement([(0, 0, 8)])
        assert self.default(TRANSFORMERS, [0, "cpu"], [289, 10_000]) == Placement([(0, 0, 7), (1, 7, 8)])

    def test_transformers_counts_the_gpus_with_free_memory(self):
        assert self.default(TRANSFORMERS, [0, 1, "cpu"], [0, 280, 1000]) == Placement([(1, 0, 7), (2, 7, 8)])
        assert self.default(ACCELERATE, [0, 1, "cpu"], [0, 280, 1000]) == Placement([(1, 0, 8)])

    def test_transformers_leaves_a_tenth_of_the_cpu(self):
        assert self.default(TRANSFORMERS, ["cpu", "disk"], [290, 0]) == Placement([(0, 0, 8)])
        assert self.default(TRANSFORMERS, ["cpu", "disk"], [289, 0]) != Placement([(0, 0, 8)])
        assert self.default(ACCELERATE, ["cpu", "disk"], [261, 0]) == Placement([(0, 0, 8)])

    def test_other_models(self):
        model = card(2)
        encoder = ModelCard("B", "bert", 1, 10, model.items, model.parameters, model.weight_bytes, modules=model.modules, decodes=False)
        with pytest.raises(
            UnsupportedFeature, match="'B' is no causal language model; the rule of Accelerate is known for those: call infer_"
        ):
            ACCELERATE.default(encoder, problem_of(encoder, [0]), [0])


def llama(blocks, *, tied, vocabulary=50, meta=True, ffn=None):
    """Return a small Llama of Transformers."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config = transformers.LlamaConfig(
        num_hidden_layers=blocks,
        hidden_size=16,
        intermediate_size=24,
        num_attention_heads=2,
        vocab_size=vocabulary,
        tie_word_embeddings=tied,
        max_position_embeddings=32,
    )
    torch.manual_seed(0)
    with torch.device("meta" if meta else "cpu"):
        model = transformers.AutoModelForCausalLM.from_config(config)
        for i, width in enumerate(ffn or ()):
            model.model.layers[i].extra = torch.nn.Linear(16, width, bias=False)
        for name, buffer in model.model.rotary_emb.named_buffers() if meta else ():
            setattr(model.model.rotary_emb, name, buffer[:0])  # a card has no bytes of buffers
    model.tie_weights()
    return model.eval()


def card_of(model, blocks):
    """Return the card of a model."""
    names = [("model.embed_tokens", "model.rotary_emb"), *((f"model.layers.{i}",) for i in range(blocks)), ("model.norm", "lm_head")]
    sizes = {name: tensor.numel() * tensor.element_size() for name, tensor in model.named_parameters(remove_duplicate=False)}
    weights = np.zeros((blocks + 2, len(PARTS)))
    for i, modules in enumerate(names):
        for module in modules:
            part = "table" if module in ("model.embed_tokens", "lm_head") else "norm" if i > blocks else "dense_ffn"
            weights[i, PARTS.index(part)] += sum(size for name, size in sizes.items() if name.startswith(f"{module}."))
    items = chain_items([{"workspace_numbers": 1}] * blocks, 1)
    tied = bool(model.config.tie_word_embeddings)
    return ModelCard("llama", "llama", 16, 50, items, weights, weights, tied=tied, modules=names)


def placement_of(device_map, model, devices):
    """Return the device of the items of a map that may divide the head: the head is where its table is."""

    def device(module):
        words = module.split(".")
        return next(device_map[key] for key in (".".join(words[:k]) for k in range(len(words), -1, -1)) if key in device_map)

    own = [*(modules[0] for modules in model.modules[:-1]), model.modules[-1][-1]]
    of_item = [devices.index(device(module)) for module in own]
    return of_item[:-1] if model.tied else of_item


def devices_of_items(placement):
    return [stage.device for stage in placement.stages for _ in range(stage.first, stage.end)]


@pytest.mark.slow
@pytest.mark.parametrize("tied", [False, True])
def test_the_rules_of_accelerate_and_transformers_themselves(tied):
    modeling = pytest.importorskip("accelerate.utils.modeling", reason="accelerate is not installed")
    integration = pytest.importorskip("transformers.integrations.accelerate", reason="transformers is not installed")
    devices = [0, 1, 2, "cpu", "disk"]

    @given(
        st.integers(1, 6),
        st.integers(2, 200),
        st.lists(st.integers(0, 40), max_size=6),
        st.lists(st.integers(0, 120), min_size=4, max_size=4),
    )
    @examples(100)
    def agree(blocks, vocabulary, ffn, percent):
        model = llama(blocks, tied=tied, vocabulary=vocabulary, ffn=ffn[:blocks])
        known = card_of(model, blocks)
        free = [part * int(known.total_bytes) // 100 for part in percent]
        problem = problem_of(known, devices, n_items=ACCELERATE.n_items(known))
        memory = dict(zip(devices, free, strict=False))
        theirs = modeling.infer_auto_device_map(model, dict(memory), no_split_module_classes=["LlamaDecoderLayer"])
        ours = ACCELERATE.default(known, problem, devices, free_bytes=[*free, 0])
        assert devices_of_items(ours) == placement_of(theirs, known, devices)

        # Without max_memory it reads the machine and takes 0.9 of the CPU, and of a single GPU.
        single = sum(size > 0 for size in free[:3]) == 1
        given_memory = {k: size * 0.9 if k == "cpu" or (single and size) else size for k, size in memory.items()}
        budgets = integration.get_balanced_memory(model, dict(given_memory), no_split_module_classes={"LlamaDecoderLayer"})
        theirs = integration.infer_auto_device_map(model, budgets, no_split_module_classes={"LlamaDecoderLayer"})
        ours = TRANSFORMERS.default(known, problem, devices, free_bytes=[*free, 0])
        assert devices_of_items(ours) == placement_of(theirs, known, devices)

    agree()


@pytest.mark.slow
@pytest.mark.parametrize("tied", [False, True])
def test_a_model_whose_weights_are_copied_runs_as_planned(tied, tmp_path):
    """The CPU stands for the GPU: what is on the disk is copied to it for each run."""
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    import torch

    model = llama(4, tied=tied, meta=False)
    ids = torch.arange(7).reshape(1, 7)
    expected = model(input_ids=ids).logits
    known = card_of(model, 4)
    peaks = {"peak_flops": {"float16": 1e12}, "memory_bandwidth": 1e11}
    gpu = hs.Device("gpu0", memory_bytes=0.5 * known.total_bytes, **peaks)
    disk = hs.Device("disk", family="disk", memory_bytes=1e9)
    cpu = hs.Device("cpu", memory_bytes=0.3 * known.total_bytes, **peaks)
    machine = hs.Machine(hs.Cluster([gpu, cpu, disk], bandwidth=[[0, 1e9, 1e8], [1e9, 0, 1e8], [1e8, 1e8, 0]]))
    plan = hs.plan(known, machine, hs.Workload(7, 0), tool="accelerate")
    command = plan.command()
    assert set(command.device_map.values()) == {0, "cpu", "disk"}
    assert command.text.endswith('offload_folder="offload"')
    here = {module: "cpu" if device == 0 else device for module, device in command.device_map.items()}
    accelerate.utils.check_device_map(model, here)
    placed = accelerate.dispatch_model(model, here, offload_dir=str(tmp_path), main_device="cpu")
    assert [tensor.device.type for name, tensor in placed.named_parameters() if here[_module(name, here)] == "disk"].count("meta") > 0
    assert torch.equal(placed(input_ids=ids).logits, expected)


def _module(name, device_map):
    return next(module for module in device_map if name.startswith(f"{module}."))


@pytest.mark.slow
@pytest.mark.parametrize("tied", [False, True])
def test_a_model_runs_where_the_map_says(tied, tmp_path):
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    import torch

    model = llama(4, tied=tied, meta=False)
    ids = torch.arange(7).reshape(1, 7)
    expected = model(input_ids=ids).logits
    known = card_of(model, 4)
    placement = Placement([(0, 0, 3), (1, 3, ACCELERATE.n_items(known))])
    command = ACCELERATE.emit(known, placement, ["cpu", "disk"])
    accelerate.utils.check_device_map(model, dict(command.device_map))
    placed = accelerate.dispatch_model(model, dict(command.device_map), offload_dir=str(tmp_path), main_device="cpu")
    assert placed.hf_device_map == command.device_map
    assert {key: str(value) for key, value in placed.hf_device_map.items()}["model.layers.3"] == "disk"
    assert torch.equal(placed(input_ids=ids).logits, expected)


@pytest.mark.slow
def test_a_map_of_devices_is_taken_without_margins_of_memory():
    """Neither the memory of the machine nor a limit of it changes a map that is given, so that a command needs no max_memory."""
    integration = pytest.importorskip("transformers.integrations.accelerate", reason="transformers is not installed")
    model = llama(4, tied=False)
    command = TRANSFORMERS.emit(card_of(model, 4), Placement([(0, 0, 3), (1, 3, 6)]), [0, 1])
    assert integration._get_device_map(model, dict(command.device_map), {0: 1, 1: 1, "cpu": 1}, None) == command.device_map
