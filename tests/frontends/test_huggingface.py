"""Cards by modules on the meta device: equal to the formulas in all that both say, and exact names and bytes."""

from __future__ import annotations

import json
import re
import sys

import numpy as np
import pytest

from hetsched.chain import PARTS
from hetsched.errors import InvalidArgument, InvalidProblem, MissingDependency, UnsupportedFeature
from hetsched.frontends import cards, configs, huggingface
from tests.frontends.model_files import CONFIGS, SHAPES, write_directory, write_safetensors

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install 'hetsched[hub]'")

CASES = [(family, shape) for family in CONFIGS for shape in range(3)]
QUICK = [(family, 1) for family in ("llama", "deepseek_v3", "t5")]
"""Shapes that are tried each time; all of them take half a minute."""
MANY = [pytest.param(*case, marks=[] if case in QUICK else [pytest.mark.slow]) for case in CASES]


def module_of(config):
    """Return the module of a config on the meta device, by the classes of transformers themselves."""
    made = transformers.AutoConfig.for_model(config["model_type"], **{key: value for key, value in config.items() if key != "model_type"})
    kinds = {"bert": transformers.AutoModel, "t5": transformers.AutoModelForSeq2SeqLM}
    with torch.device("meta"):
        return kinds.get(config["model_type"], transformers.AutoModelForCausalLM).from_config(made, dtype=torch.bfloat16)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "shape"), MANY)
def test_formulas_are_equal_to_the_module_in_every_part(family, shape):
    config = {"model_type": family, **CONFIGS[family][shape]}
    by_formula, by_module = configs.read(config), huggingface.card(config)
    assert by_formula.n_parameters == sum(parameter.numel() for parameter in module_of(config).parameters())
    for i, item in enumerate(by_formula.items.name):
        for part, formula, module in zip(PARTS, by_formula.parameters[i], by_module.parameters[i], strict=True):
            assert formula == module, f"{part} of {item}"
    for column in by_formula.items.names:
        assert by_formula.items[column].tolist() == by_module.items[column].tolist(), column
    assert by_formula.modules == by_module.modules
    for field in ("width", "vocabulary", "context_length", "tied", "decodes", "family", "exact"):
        assert getattr(by_formula, field) == getattr(by_module, field), field
    assert by_formula.weight_bytes.tolist() == by_module.weight_bytes.tolist()


@pytest.mark.parametrize(("family", "shape"), [case for case in MANY if case.values[0] not in ("bert", "t5")])
def test_caches_have_the_numbers_of_the_card(family, shape):
    config = {"model_type": family, **CONFIGS[family][shape]}
    card, module = configs.read(config), module_of(config)
    cache = module(input_ids=torch.zeros(1, 16, dtype=torch.long, device="meta"), use_cache=True).past_key_values
    for layer, numbers, window in zip(cache.layers, card.items.cache_numbers[1:-1], card.items.window[1:-1], strict=True):
        tokens = min(16, window - 1)  # the next token attends to itself and to those before it
        assert layer.keys.numel() + layer.values.numel() == numbers * tokens


@pytest.mark.parametrize(("family", "shape"), MANY)
def test_each_tensor_of_a_checkpoint_is_in_its_part(tmp_path, family, shape):
    config = {"model_type": family, **CONFIGS[family][shape]}
    module = module_of(config)
    sizes = {name: 2 * parameter.numel() for name, parameter in module.named_parameters()}
    write_directory(tmp_path, {**config, "dtype": "bfloat16"}, sizes)
    stored, plain = configs.read(tmp_path), configs.read({**config, "dtype": "bfloat16"})
    assert stored.exact
    assert stored.weight_bytes.tolist() == plain.weight_bytes.tolist()
    assert stored.total_bytes == stored.tensors.bytes.sum() == sum(sizes.values())


def test_prefixes_cover_every_tensor_once():
    for family in ("llama", "gpt2", "bert"):
        config = {"model_type": family, **CONFIGS[family][0]}
        card = configs.read(config)
        prefixes = [prefix for own in card.modules for prefix in own]
        for name in module_of(config).state_dict():
            assert sum(name == prefix or name.startswith(f"{prefix}.") for prefix in prefixes) == 1


@pytest.mark.parametrize(
    "family", ["llama", "gpt2", pytest.param("t5", marks=pytest.mark.slow), pytest.param("bert", marks=pytest.mark.slow)]
)
def test_accelerate_takes_the_prefixes_as_a_device_map(family):
    modeling = pytest.importorskip("accelerate.utils.modeling", reason="accelerate is not installed")
    config = {"model_type": family, **CONFIGS[family][0]}
    devices = {prefix: 0 for own in configs.read(config).modules for prefix in own}
    modeling.check_device_map(module_of(config), devices)
    devices.pop(next(prefix for prefix in devices if prefix.endswith(".1")))
    with pytest.raises(ValueError, match="does not give any device"):
        modeling.check_device_map(module_of(config), devices)


@pytest.mark.parametrize(
    ("family", "more", "first", "head"),
    [
        ("gpt_neox", {}, ("gpt_neox.embed_in", "gpt_neox.rotary_emb"), ("gpt_neox.final_layer_norm", "lm_head")),
        ("phi3", {}, ("model.embed_tokens", "model.rotary_emb"), ("model.norm", "lm_head")),
        (
            "opt",
            {"ffn_dim": 96, "word_embed_proj_dim": 64},
            ("model.decoder.embed_tokens", "model.decoder.embed_positions"),
            ("model.decoder.final_layer_norm", "lm_head"),
        ),
        (
            "gpt_oss",
            {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 16},
            ("model.embed_tokens", "model.rotary_emb"),
            ("model.norm", "lm_head"),
        ),
        ("bloom", {}, ("transformer.word_embeddings", "transformer.word_embeddings_layernorm"), ("transformer.ln_f", "lm_head")),
    ],
)
def test_families_without_formulas_have_cards(family, more, first, head):
    config = {"model_type": family, **SHAPES[0], "pad_token_id": 0, **more}
    card = huggingface.card(config)
    module = module_of(config)
    assert card.n_parameters == sum(parameter.numel() for parameter in module.parameters())
    assert card.n_blocks == module.config.num_hidden_layers
    assert card.modules[0] == first
    assert card.modules[-1] == head
    assert sum(map(len, card.modules)) == len({prefix for own in card.modules for prefix in own})
    assert (card.items.cache_numbers[1:-1] > 0).all()
    assert card.decodes


def test_layers_of_linear_attention_keep_no_tokens():
    linear = {f"linear_num_{kind}_heads": count for kind, count in (("value", 4), ("key", 2))}
    sizes = {"linear_key_head_dim": 8, "linear_value_head_dim": 8, "shared_expert_intermediate_size": 32, "head_dim": 16}
    card = huggingface.card(
        {"model_type": "qwen3_next", **SHAPES[0], "num_hidden_layers": 4, **sizes, **linear, "num_experts": 4, "num_experts_per_tok": 2}
    )
    assert card.items.cache_numbers.tolist() == [0, 0, 0, 0, 64, 0]
    assert card.items.experts.tolist() == [0, 4, 4, 4, 4, 0]


def test_a_vision_tower_runs_with_the_embedding():
    vision = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 48}
    card = huggingface.card({"model_type": "gemma3", "text_config": SHAPES[1], "vision_config": vision})
    assert card.n_blocks == 2
    assert card.modules[0][:2] == ("model.vision_tower", "model.multi_modal_projector")
    assert card.modules[-1] == ("model.language_model.norm", "lm_head")


def test_a_module_gives_its_own_bytes_and_stays_as_it_is():
    config = transformers.AutoConfig.for_model("llama", **CONFIGS["llama"][1])
    module = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float16)
    before = config.to_dict()
    card = huggingface.card(module, name="mine")
    assert (card.name, card.exact, card.tied) == ("mine", True, True)
    assert card.total_bytes == 2 * sum(parameter.numel() for parameter in module.parameters())
    assert config.to_dict() == before
    again = huggingface.card(config)
    assert again.parameters.tolist() == card.parameters.tolist()


def test_a_directory_gives_stored_bytes(tmp_path):
    config = {"model_type": "llama", **CONFIGS["llama"][0], "architectures": ["LlamaForCausalLM"]}
    sizes = {name: 3 * parameter.numel() for name, parameter in module_of(config).named_parameters()}
    write_directory(tmp_path, config, sizes)
    card = huggingface.card(tmp_path)
    assert card.exact
    assert card.total_bytes == card.tensors.bytes.sum() == sum(sizes.values())
    by_file = configs.read(tmp_path)
    assert by_file.tensors == card.tensors
    assert by_file.weight_bytes.tolist() == card.weight_bytes.tolist()
    write_safetensors(tmp_path / "model.safetensors", {**sizes, "adapter.weight": 1})
    with pytest.raises(InvalidProblem, match="tensor 'adapter.weight' of .* belongs to no item"):
        huggingface.card(tmp_path)


def test_quantised_bytes_are_those_of_the_formula():
    quantisation = {"quant_method": "gptq", "bits": 4, "group_size": 128}
    config = {"model_type": "llama", **CONFIGS["llama"][0], "dtype": "float16", "quantization_config": quantisation}
    assert huggingface.card(config).weight_bytes == pytest.approx(configs.read(config).weight_bytes)


def test_what_is_no_model_is_refused(tmp_path):
    with pytest.raises(InvalidArgument, match="model is 3; it must be a module or config of transformers, a mapping or a path"):
        huggingface.card(3)
    with pytest.raises(InvalidArgument, match="model is Linear without a transformers config; give a transformers.PreTrainedModel"):
        huggingface.card(torch.nn.Linear(2, 2))
    with pytest.raises(InvalidProblem, match="model_type of the config is 'nothing', which transformers .* does not know"):
        huggingface.card({"model_type": "nothing"})
    with pytest.raises(InvalidProblem, match="transformers refuses the config: .*hidden_size"):
        huggingface.card({"model_type": "llama", **CONFIGS["llama"][0], "hidden_size": "large"})
    with pytest.raises(InvalidProblem, match="transformers cannot make a module of the config of llama: "):
        huggingface.card({"model_type": "llama", **CONFIGS["llama"][0], "hidden_size": -64})
    with pytest.raises(FileNotFoundError, match="does not exist; give a config.json, or a directory that has one, nothing is downloaded"):
        huggingface.card(tmp_path / "none")
    (tmp_path / "config.json").write_text(json.dumps({"architectures": []}))
    with pytest.raises(InvalidProblem, match=f"transformers cannot read {re.escape(str(tmp_path))}"):
        huggingface.card(tmp_path)
    with pytest.raises(UnsupportedFeature, match="the config of vit has no vocab_size or no hidden_size; a card is of a model of tokens"):
        huggingface.card({"model_type": "vit", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8})
    wrong = {"model_type": "deepseek_v3", **CONFIGS["deepseek_v3"][0], "num_key_value_heads": 2}
    with pytest.raises(
        UnsupportedFeature, match="the forward pass of DeepseekV3ForCausalLM on the meta device fails, so its KV cache is unknown"
    ):
        huggingface.card(wrong)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingDependency, match=r"'transformers' is not installed; install it with: pip install 'hetsched\[hub\]'"):
        huggingface.card({"model_type": "llama"})
    assert np.isfinite(configs.read({"model_type": "llama", **CONFIGS["llama"][0]}).total_bytes)


PHI3 = {**CONFIGS["llama"][1], "model_type": "phi3", "pad_token_id": 0}


def test_a_family_without_a_formula_has_the_card_of_its_class(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text(json.dumps(PHI3))
    card = cards.read(tmp_path)
    assert card == huggingface.card(tmp_path)
    assert card.source.endswith("transformers")
    assert cards.read(tmp_path, bits=4).bits == pytest.approx(4)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(
        UnsupportedFeature, match=r"is 'phi3', for which there is no formula, .* install it with: pip install 'hetsched\[hub\]'"
    ):
        cards.read(tmp_path)
