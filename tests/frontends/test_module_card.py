"""Cards of plain modules: the weights of the formulas, the FLOPs of the recorded call, and blocks that follow one another."""

from __future__ import annotations

import numpy as np
import pytest

import hetsched as hs
from hetsched.chain import PARTS
from hetsched.costs.language import LanguageWork
from hetsched.errors import InvalidArgument, InvalidProblem, UnsupportedFeature
from hetsched.frontends import configs, huggingface

torch = pytest.importorskip("torch", reason="torch is not installed")
from hetsched.frontends.torch import card, record  # noqa: E402
from tests.frontends.plain_modules import Model, Wired  # noqa: E402

IDS = torch.zeros(2, 6, dtype=torch.long)
LLAMA = {
    "model_type": "llama",
    "hidden_size": 16,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 24,
    "vocab_size": 50,
    "num_hidden_layers": 3,
}
GPT2 = {"model_type": "gpt2", "n_embd": 16, "n_head": 4, "n_layer": 3, "n_positions": 12, "vocab_size": 50, "n_inner": 24}
CASES = [
    (LLAMA, {}),
    ({**LLAMA, "tie_word_embeddings": True}, {"tied": True}),
    (LLAMA, {"written_out": True, "kv": 4}),
    (GPT2, {"kv": 4, "positions": 12, "tied": True}),
]


@pytest.mark.parametrize(("config", "options"), CASES)
def test_a_plain_model_has_the_weights_and_work_of_the_formula(config, options):
    options = {"kv": 2, **options}
    module = Model(3, 16, 4, ffn=24, vocabulary=50, **options)
    made, formula = card(module, IDS), configs.read({**config, "num_key_value_heads": options["kv"]})
    assert made.parameters.tolist() == formula.parameters.tolist()
    assert made.weight_bytes.tolist() == formula.weight_bytes.tolist()
    assert (made.tied, made.width, made.vocabulary, made.exact) == (formula.tied, formula.width, formula.vocabulary, True)
    assert made.n_parameters == sum(parameter.numel() for parameter in module.parameters())
    biases = sum(p.numel() for p in module.blocks[0].parameters() if p.dim() == 1)  # and norms, of which a token takes no product
    assert made.token_flops.tolist() == [0, *(2 * (formula.parameters[1:-1].sum(axis=1) - biases)).tolist(), 2 * 16 * 50]
    assert (made.items.heads * (made.items.key_size + made.items.value_size)).tolist() == [0, 32, 32, 32, 0]
    known = not options.get("written_out")
    assert made.decodes is known
    assert made.items.cache_numbers.tolist() == (formula.items.cache_numbers.tolist() if known else [0] * 5)
    assert (made.items.workspace_numbers[1:-1] >= 2 * 16 + 24).all()
    assert [made.modules[0], made.modules[2]] == [("tokens", *(["wpe"] if "positions" in options else [])), ("blocks.1",)]
    assert made.modules[-1] == ("ln_f", "head")


@pytest.mark.parametrize("tokens", [6, 5])
def test_its_work_is_that_of_a_recorded_call_of_any_length(tokens):
    module = Model(2, 16, 4, 4, 24, 50, written_out=True)
    made = card(module, IDS)
    work = hs.Workload(prompt=tokens, output=0, chunk=2 * tokens)
    counted = sum(LanguageWork(made, i, work).runs(2).flops.sum() for i in range(made.n_items - 1))
    head = 2 * tokens * made.token_flops[-1]  # the call wants all tokens
    graph = record(module, torch.zeros(2, tokens, dtype=torch.long))
    assert counted + head == graph.flops.sum()


def test_its_plan_is_told_to_tools_and_its_card_is_read_back(tmp_path):
    made = card(lambda: Model(4, 16, 4, 2, 24, 50), IDS, name="mine")
    assert made.name == "mine"
    made.write(tmp_path / "card.json")
    again = hs.read(tmp_path / "card.json")
    assert again.token_flops.tolist() == made.token_flops.tolist()
    devices = [hs.Device(f"gpu{k}", memory_bytes=3e4, peak_flops={"float16": 1e12}, memory_bandwidth=1e11) for k in range(2)]
    machine = hs.Machine(hs.Cluster(devices, bandwidth=1e9, latency=1e-5))
    plan = hs.plan(again, machine, hs.Workload(prompt=6, output=2), tool="torch-pipeline")
    assert plan.command().split_spec == {f"blocks.{plan.placement.stages[1].first - 1}": "BEGINNING"}
    assert hs.plan(again, machine, hs.Workload(prompt=6, output=2), tool="vllm", regime="latency").degrees == (1,)
    with pytest.raises(UnsupportedFeature, match="FLOPs that were counted by item, whose division is not known; give tensor_parallel=1"):
        hs.plan(again, machine, hs.Workload(prompt=6, output=2), tool="vllm", regime="latency", tensor_parallel=2)


def test_what_runs_between_blocks_is_of_the_one_before():
    made = card(Wired(between=True), torch.zeros(1, 3, 4))
    assert made.modules == (("proj",), ("blocks.0",), ("blocks.1", "between"), ("blocks.2",), ())
    assert made.token_flops.tolist() == [32, 32, 64, 32, 0]
    assert not made.decodes
    with pytest.raises(UnsupportedFeature, match="output=0"):
        hs.costs.LanguageRoofline().chain(made, hs.costs.devices.machine(["a10"]), hs.Workload())


@pytest.mark.slow
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_model_of_transformers_has_the_same_weights_by_both_cards(family):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install 'hetsched[hub]'")
    config = LLAMA if family == "llama" else GPT2
    made = transformers.AutoConfig.for_model(**config)
    inner = transformers.AutoModelForCausalLM.from_config(made)

    class Plain(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = inner

        def forward(self, ids):
            return self.inner(input_ids=ids, use_cache=False).logits

    own, theirs = card(Plain().eval(), IDS), card(inner)
    assert theirs.parameters.tolist() == huggingface.card(inner).parameters.tolist() == own.parameters.tolist()
    assert own.modules == tuple(tuple(f"inner.{name}" for name in names) for names in theirs.modules)
    products = 2 * (theirs.parameters.sum(axis=1) - theirs.parameters[:, PARTS.index("norm")])
    assert (own.token_flops[1:-1] <= products[1:-1]).all()
    assert (own.token_flops[1:-1] >= 0.85 * products[1:-1]).all()  # without biases


@pytest.mark.parametrize(
    ("make", "blocks", "error", "message"),
    [
        (lambda: torch.nn.Linear(4, 4), None, UnsupportedFeature, "Linear has no ModuleList or Sequential of like blocks; .* task graph"),
        (
            lambda: torch.nn.ModuleDict({"a": Wired(), "b": Wired()}),
            None,
            UnsupportedFeature,
            "several longest lists of like blocks: a.blocks, b.blocks; .* name one with blocks=",
        ),
        (Wired, "layers", InvalidArgument, "blocks is 'layers'; Wired has the lists of like blocks blocks"),
        (lambda: Wired((0, 2, 1)), None, UnsupportedFeature, r"'blocks' are called in the order \[0, 2, 1\]; each of the 3 must be called"),
        (lambda: Wired((0, 1, 2, 2)), None, UnsupportedFeature, "each of the 3 must be called once, one after the other"),
        (lambda: Wired(sizes=(4, 4, 5)), None, UnsupportedFeature, r"shapes \(1, 3, 4\), \(1, 3, 5\); they must have one, \[batch, tokens"),
        (lambda: Wired(skip=True), None, UnsupportedFeature, "which is not of the block before; .* without connections that skip one"),
        (lambda: 3, None, InvalidProblem, "returns a int; it must return a torch.nn.Module"),
        (lambda: 1 / 0, None, InvalidProblem, "fails: ZeroDivisionError: division by zero; it must return a torch.nn.Module"),
    ],
)
def test_other_modules_are_refused_with_the_rule_and_a_remedy(make, blocks, error, message):
    with pytest.raises(error, match=message):
        card(make, torch.zeros(1, 3, 4), blocks=blocks)


def test_blocks_that_share_weights_are_refused():
    module = Wired()
    module.blocks[2].weight = module.blocks[0].weight
    with pytest.raises(UnsupportedFeature, match=r"blocks.0.weight and blocks.2.weight are one tensor; .* give each block its own"):
        card(module, torch.zeros(1, 3, 4))


def test_an_operator_of_unknown_work_is_refused():
    module = Wired()
    module.blocks[1].forward = lambda x: torch.linalg.matrix_exp(x @ x.transpose(1, 2)) @ x
    with (
        pytest.warns(RuntimeWarning, match="linalg_matrix_exp"),
        pytest.raises(UnsupportedFeature, match="FLOPs of linalg_matrix_exp are unknown; register them by"),
    ):
        card(module, torch.zeros(1, 3, 4))


def test_counted_flops_of_cards_are_checked():
    made = card(Wired(), torch.zeros(1, 3, 4))
    given = {name: getattr(made, name) for name in made._fields}
    with pytest.raises(InvalidProblem, match="token_flops of item 'head' is -1.0; it must be a number, at least 0"):
        type(made)(**given | {"token_flops": np.array([0, 1, 1, 1, -1.0])})
