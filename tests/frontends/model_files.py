"""Configs of small models of every family, and files of tensors without contents."""

from __future__ import annotations

import json
import os

COMMON = {"vocab_size": 100, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128}
SHAPES = [
    COMMON | {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "head_dim": 24},
    COMMON | {"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2, "head_dim": 12, "num_key_value_heads": 4},
    COMMON
    | {"hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 7, "head_dim": 8, "num_key_value_heads": 1, "vocab_size": 77},
]
MOE = {"moe_intermediate_size": 16, "num_experts_per_tok": 2, "num_experts": 4}
LATENT = {
    "moe_intermediate_size": 16,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
    "n_shared_experts": 1,
    "num_nextn_predict_layers": 1,
}


def _variants(*changes):
    return [shape | change for shape, change in zip(SHAPES, changes, strict=True)]


def _own_heads(configs):
    """Return configs without a size of heads, which follows from others."""
    return [{key: value for key, value in config.items() if key != "head_dim"} for config in configs]


def _latent(*changes):
    return _own_heads(_variants(*[LATENT | {"num_key_value_heads": 4} | change for change in changes]))


def _gpt2(shape, **more):
    return {
        "n_embd": shape["hidden_size"],
        "n_head": 4,
        "n_layer": shape["num_hidden_layers"],
        "n_positions": 50,
        "vocab_size": 100,
        **more,
    }


def _t5(shape, **more):
    return {"d_model": shape["hidden_size"], "num_heads": 4, "d_kv": 6, "d_ff": 40, "num_layers": 2, "vocab_size": 100, **more}


CONFIGS = {
    "llama": _variants({}, {"attention_bias": True, "tie_word_embeddings": True}, {"mlp_bias": True}),
    "mistral": _variants({}, {"sliding_window": 8}, {"sliding_window": None}),
    "gemma": _variants({}, {"attention_bias": True}, {"tie_word_embeddings": False}),
    "gemma2": _variants({}, {"sliding_window": 8}, {"layer_types": ["full_attention", "sliding_attention"] * 3 + ["full_attention"]}),
    "gemma3_text": _variants({}, {"sliding_window": 8}, {"sliding_window": 8}),
    "qwen2": _variants({}, {"tie_word_embeddings": True}, {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 3}),
    "qwen3": _variants({}, {"attention_bias": True}, {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 3}),
    "mixtral": _variants(*[{"num_local_experts": count, "num_experts_per_tok": 2} for count in (2, 4, 5)]),
    "qwen2_moe": _variants(
        MOE | {"shared_expert_intermediate_size": 20},
        MOE | {"shared_expert_intermediate_size": 24, "mlp_only_layers": [1]},
        MOE | {"shared_expert_intermediate_size": 28, "decoder_sparse_step": 3, "use_sliding_window": True, "max_window_layers": 4},
    ),
    "qwen3_moe": _variants(MOE, MOE | {"mlp_only_layers": [0], "attention_bias": True}, MOE | {"decoder_sparse_step": 2}),
    "deepseek_v3": _latent({}, {"q_lora_rank": None, "n_shared_experts": 2}, {"attention_bias": True, "first_k_dense_replace": 3}),
    "gpt2": [_gpt2(SHAPES[0]), _gpt2(SHAPES[1], n_inner=70), _gpt2(SHAPES[2], tie_word_embeddings=False)],
    "bert": _own_heads(_variants({}, {"type_vocab_size": 1}, {"max_position_embeddings": 40})),
    "t5": [_t5(SHAPES[0]), _t5(SHAPES[1], feed_forward_proj="gated-gelu"), _t5(SHAPES[2], num_decoder_layers=3, d_kv=9)],
}
"""Three configs of each family, without ``model_type``."""


def write_safetensors(path, sizes):
    """Write a safetensors file whose tensors have these bytes, all of them zero."""
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, size in sizes.items():
        header[name] = {"dtype": "U8", "shape": [size], "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    os.truncate(path, 8 + len(text) + end)  # sparse


def write_directory(directory, config, *files):
    """Write the config and safetensors files of a model, with an index if there are several."""
    directory.mkdir(exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    if len(files) == 1:
        write_safetensors(directory / "model.safetensors", files[0])
        return
    names = [f"model-{i + 1:05d}-of-{len(files):05d}.safetensors" for i in range(len(files))]
    for name, sizes in zip(names, files, strict=True):
        write_safetensors(directory / name, sizes)
    weight_map = {tensor: name for name, sizes in zip(names, files, strict=True) for tensor in sizes}
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
