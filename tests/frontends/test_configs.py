"""Cards by the formulas of families: published sizes, properties, stored bytes, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.chain import PARTS
from hetsched.errors import InvalidArgument, InvalidProblem, UnsupportedFeature
from hetsched.frontends import configs
from hetsched.frontends.stored_weights import part_of
from tests.frontends.model_files import CONFIGS, write_directory, write_safetensors

families = st.sampled_from(sorted(CONFIGS))
LLAMA = {"model_type": "llama", **CONFIGS["llama"][0]}


def published(family, d, layers, heads, f, vocabulary, **more):
    """Return the config of a published model."""
    sizes = {"hidden_size": d, "num_hidden_layers": layers, "num_attention_heads": heads, "intermediate_size": f, "vocab_size": vocabulary}
    return {"model_type": family, **sizes, **more}


DEEPSEEK = {
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
}
SPARSE = {
    "num_key_value_heads": 16,
    "shared_expert_intermediate_size": 5632,
    "moe_intermediate_size": 1408,
    "num_experts": 60,
    "num_experts_per_tok": 4,
}
PUBLISHED = {
    "Llama-3-8B": (published("llama", 4096, 32, 32, 14336, 128256, num_key_value_heads=8), 8_030_261_248),
    "Mistral-7B": (published("mistral", 4096, 32, 32, 14336, 32000, num_key_value_heads=8), 7_241_732_096),
    "gemma-7b": (published("gemma", 3072, 28, 16, 24576, 256000, num_key_value_heads=16), 8_537_680_896),
    "gemma-2-9b": (published("gemma2", 3584, 42, 16, 14336, 256000, num_key_value_heads=8), 9_241_705_984),
    "gemma-3-1b": (published("gemma3_text", 1152, 26, 4, 6912, 262144, num_key_value_heads=1), 999_885_952),
    "Qwen2.5-7B": (published("qwen2", 3584, 28, 28, 18944, 152064, num_key_value_heads=4), 7_615_616_512),
    "Qwen3-8B": (published("qwen3", 4096, 36, 32, 12288, 151936, num_key_value_heads=8), 8_190_735_360),
    "Mixtral-8x7B": (
        published("mixtral", 4096, 32, 32, 14336, 32000, num_key_value_heads=8, num_local_experts=8, num_experts_per_tok=2),
        46_702_792_704,
    ),
    "Qwen1.5-MoE-A2.7B": (published("qwen2_moe", 2048, 24, 16, 5632, 151936, **SPARSE), 14_315_784_192),
    "Qwen3-30B-A3B": (
        published(
            "qwen3_moe", 2048, 48, 32, 6144, 151936, head_dim=128, num_key_value_heads=4, moe_intermediate_size=768, num_experts=128,
            num_experts_per_tok=8,
        ),
        30_532_122_624,
    ),
    "DeepSeek-V3": (published("deepseek_v3", 7168, 61, 128, 18432, 129280, **DEEPSEEK), 671_026_404_352),
    "gpt2": ({"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257}, 124_439_808),
    "bert-base": (published("bert", 768, 12, 12, 3072, 30522, max_position_embeddings=512), 109_482_240),
    "t5-small": (
        {"model_type": "t5", "d_model": 512, "d_ff": 2048, "d_kv": 64, "num_heads": 8, "num_layers": 6, "vocab_size": 32128},
        60_506_624,
    ),
}  # fmt: skip
"""Configs and numbers of parameters that the models' pages and files state; that of DeepSeek-V3 without the biases of its routers."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_models_have_the_published_parameters(name):
    config, parameters = PUBLISHED[name]
    assert configs.read(config).n_parameters == parameters


def test_a_model_of_seventy_billion_has_the_known_cache():
    card = configs.read(published("llama", 8192, 80, 64, 28672, 128256, num_key_value_heads=8, torch_dtype="bfloat16"))
    assert card.total_bytes == 2 * 70_553_706_496
    assert 2 * card.items.cache_numbers.sum() == 327_680  # bytes per token in float16
    assert card.items.workspace_numbers[1] == 2 * 8192 + 2 * 28672
    assert (card.n_logits, card.items.workspace_numbers[-1]) == (128256, 8192)


def test_the_head_needs_what_llama_cpp_prints_for_eight_billion_parameters():
    card = configs.read(PUBLISHED["Llama-3-8B"][0])
    tokens, size = 512, 4  # of a micro-batch, and bytes of a number in float32
    assert tokens * (4 * card.n_logits + size * card.items.workspace_numbers[-1]) == 258.5 * 2**20


def test_latent_attention_decodes_what_it_keeps():
    block = next(row for row in configs.read(PUBLISHED["DeepSeek-V3"][0]).items if row["name"] == "block 5")
    assert (block["key_size"], block["value_size"], block["heads"]) == (192, 128, 128)
    assert (block["decode_key_size"], block["decode_value_size"], block["cache_numbers"]) == (576, 512, 576)
    assert (block["experts"], block["experts_used"]) == (256, 8)


def test_windows_are_those_of_the_family():
    def windows(family, **more):
        return configs.read({"model_type": family, **CONFIGS[family][2], **more}).items.window.tolist()[1:-1]

    inf = np.inf
    assert windows("mistral", sliding_window=9) == [9.0] * 7
    assert windows("gemma2", layer_types=None, sliding_window=9) == [9.0, inf, 9.0, inf, 9.0, inf, 9.0]
    assert windows("gemma3_text", sliding_window=9) == [9.0] * 5 + [inf, 9.0]
    assert windows("qwen2", sliding_window=9) == [inf] * 3 + [9.0] * 4
    assert windows("qwen2", sliding_window=9, use_sliding_window=False) == [inf] * 7
    assert windows("qwen2_moe", sliding_window=9) == [9.0, inf, 9.0, inf, inf, inf, inf]
    assert windows("llama", sliding_window=9) == [inf] * 7


@given(families, st.integers(0, 2), st.integers(1, 5), st.sampled_from(["float32", "bfloat16"]))
def test_more_blocks_are_more_bytes_and_one_has_its_own(family, shape, more, dtype):
    config = {"model_type": family, **CONFIGS[family][shape], "dtype": dtype}
    config.pop("layer_types", None)
    layers = next(key for key in ("num_hidden_layers", "n_layer", "num_layers") if key in config)
    card = configs.read(config)
    larger = configs.read({**config, layers: config[layers] + more})
    assert larger.n_blocks > card.n_blocks
    assert larger.total_bytes > card.total_bytes
    added = larger.n_blocks - card.n_blocks
    if family not in ("t5", "qwen2_moe", "qwen3_moe", "deepseek_v3"):  # whose blocks differ
        assert larger.total_bytes == card.total_bytes + added * card.weights[1]
        assert (larger.parameters[-1] == card.parameters[-1]).all()


@given(families, st.integers(0, 2), st.sampled_from(["width", "ffn", "vocabulary"]))
def test_larger_sizes_are_more_parameters(family, shape, what):
    config = {"model_type": family, **CONFIGS[family][shape]}
    keys = {
        "width": ("hidden_size", "n_embd", "d_model"),
        "ffn": ("intermediate_size", "moe_intermediate_size", "n_inner", "d_ff"),
        "vocabulary": ("vocab_size",),
    }[what]
    larger = {key: 2 * value if key in keys and value else value for key, value in config.items()}
    before, after = configs.read(config).parameters, configs.read(larger).parameters
    assert (after >= before).all()
    assert after.sum() > before.sum() or larger == config


@given(families, st.integers(0, 2), st.floats(1, 32))
def test_bits_are_of_every_weight(family, shape, bits):
    config = {"model_type": family, **CONFIGS[family][shape]}
    card = configs.read(config, bits=bits)
    assert card.total_bytes == pytest.approx(card.n_parameters * bits / 8, rel=1e-12)
    assert not card.exact
    assert f"{bits:g} bits" in card.source


@pytest.mark.parametrize(
    ("quantisation", "bits"),
    [
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, 4 + 20 / 128),
        ({"quant_method": "gptq", "bits": 3, "group_size": -1}, 3),
        ({"quant_method": "awq", "bits": 4, "group_size": 64}, 4 + 20 / 64),
        ({"quant_method": "awq", "w_bit": 4, "q_group_size": 32}, 4 + 20 / 32),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 4.5),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True}, 4 + 1 / 8 + 1 / 512),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 8),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 8),
    ],
)
def test_quantised_blocks_have_fewer_bits_and_tables_do_not(quantisation, bits):
    card = configs.read({**LLAMA, "torch_dtype": "float16", "quantization_config": quantisation})
    quantised = np.isin(PARTS, ["attention", "dense_ffn"])
    assert card.weight_bytes[:, quantised] == pytest.approx(card.parameters[:, quantised] * bits / 8)
    assert (card.weight_bytes[:, ~quantised] == card.parameters[:, ~quantised] * 2).all()
    assert quantisation["quant_method"] in card.source


def test_the_type_is_float32_where_the_config_names_none():
    card = configs.read(LLAMA)
    assert card.total_bytes == 4 * card.n_parameters
    assert card.source == "the config, float32 for it has no dtype"


@given(families, st.integers(0, 2))
def test_an_encoder_does_not_decode(family, shape):
    card = configs.read({"model_type": family, **CONFIGS[family][shape]})
    assert card.decodes == (family not in ("bert", "t5"))
    assert (card.items.cache_numbers[1:-1] > 0).all() == card.decodes
    assert (card.items.heads[1:-1] > 0).all()


# ---------------------------------------------------------------------- stored bytes


def stored_sizes(layers, *, tied=False):
    """Return tensors of a llama, each of a size of its own."""
    names = ["model.embed_tokens.weight", "model.norm.weight", *([] if tied else ["lm_head.weight"])]
    for i in range(layers):
        names += [f"model.layers.{i}.{part}" for part in ("self_attn.q_proj.qweight", "self_attn.q_proj.scales", "mlp.up_proj.weight")]
        names += [f"model.layers.{i}.{part}" for part in ("input_layernorm.weight", "something.new")]
    return {name: 100 + 7 * place for place, name in enumerate(names)}


@given(st.integers(1, 4), st.booleans(), st.integers(1, 3))
def test_stored_bytes_are_those_of_the_files(tmp_path_factory, layers, tied, count):
    directory = tmp_path_factory.mktemp("model")
    sizes = stored_sizes(layers, tied=tied)
    parts = [dict(list(sizes.items())[i::count]) for i in range(count)]
    write_directory(directory, {**LLAMA, "num_hidden_layers": layers, "tie_word_embeddings": tied}, *parts)
    card = configs.read(directory)
    assert card.exact
    assert card.total_bytes == card.tensors.bytes.sum() == sum(sizes.values())
    assert dict(zip(card.tensors.name, card.tensors.bytes, strict=True)) == sizes
    block = {part: card.weight_bytes[1, PARTS.index(part)] for part in PARTS}
    assert block["attention"] == sizes["model.layers.0.self_attn.q_proj.qweight"] + sizes["model.layers.0.self_attn.q_proj.scales"]
    assert block["dense_ffn"] == sizes["model.layers.0.mlp.up_proj.weight"] + sizes["model.layers.0.something.new"]
    assert card.weight_bytes[-1, -1] == sizes["model.embed_tokens.weight" if tied else "lm_head.weight"]
    assert configs.read(directory / "config.json") == card
    assert card.name == directory.name
    assert configs.read(directory, bits=16).tensors is None


def test_names_may_leave_out_the_prefix_of_the_model(tmp_path):
    config = {"model_type": "gpt2", **CONFIGS["gpt2"][1]}
    sizes = {"wte.weight": 10, "wpe.weight": 5, "ln_f.weight": 1, "h.0.attn.c_attn.weight": 7, "h.1.mlp.c_fc.weight": 8}
    write_directory(tmp_path / "gpt2", config, sizes)
    card = configs.read(tmp_path / "gpt2")
    assert card.weights.tolist() == [15, 7, 8, 11]
    assert card.total_bytes == 31
    assert card.tied


def test_tensors_that_do_not_run_are_listed_without_an_item(tmp_path):
    config = {"model_type": "bert", **CONFIGS["bert"][1], "num_hidden_layers": 1}
    sizes = {"bert.embeddings.LayerNorm.gamma": 3, "bert.encoder.layer.0.output.dense.weight": 5, "bert.pooler.dense.weight": 7}
    write_directory(tmp_path / "bert", config, {**sizes, "cls.predictions.bias": 9})
    card = configs.read(tmp_path / "bert")
    assert card.total_bytes == 15
    assert card.tensors.bytes.sum() == 24
    assert card.tensors.item.tolist() == ["embed", "block 0", "head", ""]
    config = {"model_type": "deepseek_v3", **CONFIGS["deepseek_v3"][1], "num_hidden_layers": 1}
    names = ["model.embed_tokens.weight", "lm_head.weight", "model.layers.0.mlp.gate.weight", "model.layers.1.eh_proj.weight"]
    write_directory(tmp_path / "deepseek", config, dict.fromkeys(names, 4))
    card = configs.read(tmp_path / "deepseek")
    assert dict(zip(card.tensors.name, card.tensors.item, strict=True))["model.layers.1.eh_proj.weight"] == ""


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("model.layers.0.block_sparse_moe.gate.weight", "router"),
        ("model.layers.0.block_sparse_moe.experts.3.w1.weight", "experts"),
        ("model.layers.0.mlp.experts.gate_up_proj", "experts"),
        ("model.layers.0.mlp.shared_expert_gate.weight", "shared"),
        ("model.layers.0.mlp.gate.e_score_correction_bias", "router"),
        ("model.layers.0.mlp.gate_proj.weight", "dense_ffn"),
        ("model.layers.0.self_attn.kv_a_layernorm.weight", "norm"),
        ("transformer.h.0.ln_1.bias", "norm"),
        ("transformer.h.0.attn.c_attn.bias", "attention"),
        ("encoder.layer.0.attention.output.LayerNorm.weight", "norm"),
        ("encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", "attention"),
    ],
)
def test_a_part_is_known_by_its_name(name, part):
    assert part_of(name) == part


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": None}, "hidden_size of the config is None; it must be a whole number from 1 to 1000000000"),
        ({"num_hidden_layers": 0}, "num_hidden_layers of the config is 0; it must be a whole number from 1 to 10000"),
        ({"num_hidden_layers": 10**6}, "num_hidden_layers of the config is 1000000; it must be"),
        ({"head_dim": None, "num_attention_heads": 5}, "hidden_size 64 of the config is no multiple of num_attention_heads 5"),
        ({"sliding_window": np.ones(3)}, "the config has a value that JSON has not: .*ndarray"),
        ({"attention_bias": "yes"}, "attention_bias of the config is 'yes'; it must be true or false"),
        ({"quantization_config": 4}, "quantization_config of the config is 4; it must be an object"),
        (
            {"quantization_config": {"quant_method": "gptq"}},
            "quantization_config of the config has no 'bits', which the formulas of gptq need",
        ),
        (
            {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 0}},
            "group_size of quantization_config of the config is 0",
        ),
        ({"model_type": "gemma2", "layer_types": ["full_attention"]}, "layer_types of the config is .*; it must have one type for each"),
        (
            {"model_type": "mixtral", "num_local_experts": 2, "num_experts_per_tok": 3},
            "num_experts_per_tok of the config is 3 of 2 experts",
        ),
        (
            {"model_type": "qwen3_moe", "mlp_only_layers": 3, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 5},
            "mlp_only_layers of the config is 3; it must be a list",
        ),
    ],
)
def test_a_bad_value_is_named(changes, message):
    with pytest.raises(InvalidProblem, match=message):
        configs.read({**LLAMA, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"model_type": "mamba"},
            "model_type of the config is 'mamba', for which there is no formula, only for llama, .*huggingface.card reads any",
        ),
        ({"model_type": ["llama"]}, r"model_type of the config is \['llama'\]"),
        ({"dtype": "int4"}, "dtype of the config is 'int4'; it must be one of float64, float32"),
        ({"quantization_config": {"quant_method": "hqq"}}, "quant_method of the config is 'hqq'; bits are known for gptq, awq"),
        ({"model_type": "gemma3_text", "use_bidirectional_attention": True}, "use_bidirectional_attention of the config is true"),
    ],
)
def test_what_has_no_formula_is_refused(changes, message):
    with pytest.raises(UnsupportedFeature, match=message):
        configs.read({**LLAMA, **changes})


@given(families, st.integers(0, 2), st.data())
def test_a_missing_key_is_named_with_its_family_and_file(tmp_path_factory, family, shape, data):
    config = {"model_type": family, **CONFIGS[family][shape]}
    required = {
        "llama": ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"),
        "gpt2": ("n_embd", "n_layer", "n_head", "n_positions", "vocab_size"),
        "t5": ("d_model", "d_ff", "d_kv", "num_heads", "num_layers", "vocab_size"),
        "deepseek_v3": ("hidden_size", "kv_lora_rank", "v_head_dim", "n_routed_experts", "moe_intermediate_size"),
        "mixtral": ("num_key_value_heads", "num_local_experts", "num_experts_per_tok"),
        "bert": ("intermediate_size", "max_position_embeddings"),
    }.get(family, ("hidden_size", "num_attention_heads", "num_key_value_heads", "vocab_size"))
    key = data.draw(st.sampled_from(required))
    del config[key]
    file = tmp_path_factory.mktemp("model") / "config.json"
    file.write_text(json.dumps(config))
    with pytest.raises(InvalidProblem) as caught:
        configs.read(file)
    assert str(caught.value) == f"{file} has no {key!r}, which the formulas of {family} need; add it"


def test_a_file_that_is_no_config_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"config\.json"):
        configs.read(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(InvalidProblem, match=r"config\.json is not JSON"):
        configs.read(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(InvalidProblem, match=r"config\.json is \[\]; it must be a JSON object"):
        configs.read(tmp_path)
    with pytest.raises(InvalidArgument, match="path is 3; it must be"):
        configs.read(3)
    with pytest.raises(InvalidArgument, match="bits is 0; it must be a number above 0 and at most 64, or None"):
        configs.read(LLAMA, bits=0)


def test_bad_files_of_tensors_are_refused(tmp_path):
    sizes = stored_sizes(3)
    index, single = tmp_path / "model.safetensors.index.json", tmp_path / "model.safetensors"

    def refused(message):
        with pytest.raises(InvalidProblem, match=message):
            configs.read(tmp_path)

    write_directory(tmp_path, LLAMA, {**sizes, "adapter.weight": 1})
    refused("tensor 'adapter.weight' of .* belongs to no item of the model")
    write_directory(tmp_path, LLAMA, {name: size for name, size in sizes.items() if "layers.2" not in name})
    refused("block 2 of the model has no tensor in .*; a file may be missing")
    write_directory(tmp_path, LLAMA, {**sizes, "model.layers.3.mlp.up_proj.weight": 1})
    refused("tensor 'model.layers.3.mlp.up_proj.weight' of .* belongs to no item")
    write_safetensors(single, sizes)
    single.write_bytes(single.read_bytes()[:-1])
    refused(r"model.safetensors has \d+ bytes and its header states \d+; it is cut off, complete the download")
    single.write_bytes(b"abc")
    refused("model.safetensors states a header of .* bytes in 3; it is no safetensors file, or cut off")
    single.write_bytes((5).to_bytes(8, "little") + b"[1,2]")
    refused("the header of .* is not JSON with 'data_offsets' for each tensor; write the file again")
    single.write_bytes((40).to_bytes(8, "little") + b'{"a":{"data_offsets":[5,2]}}'.ljust(40))
    refused(r"data_offsets of tensor 'a' of .* are \[5, 2\]; they must be two rising whole numbers")
    single.unlink()
    for name in ("a.safetensors", "b.safetensors"):
        write_safetensors(tmp_path / name, sizes)
    refused("tensor .* of .*b.safetensors is in another file too; leave only the files of one model")
    index.write_text('{"weight_map": {"x": "a.safetensors"}}')
    refused("tensor 'x' of .* is in none of its files; complete the download")
    index.write_text('{"weight_map": {"x": "c.safetensors"}}')
    refused("names 'c.safetensors', which is not in the directory; complete the download")
    index.write_text("[]")
    refused("is no index of safetensors files; it must be JSON whose 'weight_map' has a file for each tensor")
