"""Cards of models from ``config.json``, by the formulas of their families; bytes from safetensors files where there are some."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from hetsched.arguments import check_count, checked, number, shown
from hetsched.arrays import FloatArray
from hetsched.chain.card import PARTS, ModelCard, chain_items
from hetsched.errors import InvalidProblem, UnsupportedFeature
from hetsched.frontends.stored_weights import directory_tensors, places, same_table, stored_bytes

__all__ = ["read"]

LARGEST = 10**9
"""The largest size in a config; products of two are in the range of int64."""
MOST_BLOCKS = 10_000
BITS = {"float64": 64, "float32": 32, "float16": 16, "bfloat16": 16, "half": 16, "float": 32, "float8_e4m3fn": 8, "float8_e5m2": 8}
QUANTISED = ("attention", "dense_ffn", "experts", "shared")
"""The parts that ``quantization_config`` is about; norms, routers and tables keep their type."""


class Config:
    """The values of a config, read by name; a key that the family requires, and that is missing, is an error."""

    def __init__(self, values: Mapping[str, Any], family: str, options: Mapping[str, Any], file: str) -> None:
        self.values, self.family, self.options, self.file = values, family, options, file

    def get(self, *keys: str) -> Any:
        """Return the value of the first key that is present, or its default."""
        for key in keys:
            if key in self.values:
                return self.values[key]
        if keys[0] in self.options:
            return self.options[keys[0]]
        raise InvalidProblem(f"{self.file} has no {keys[0]!r}, which the formulas of {self.family} need; add it")

    def option(self, key: str) -> Any:
        """Return the value of a key that the family may have, None where it has no such key."""
        return self.get(key) if key in self.options else None

    def count(self, *keys: str, least: int = 1, most: int = LARGEST) -> int:
        """Return a whole number."""
        return check_count(self.get(*keys), f"{keys[0]} of {self.file}", least, most, InvalidProblem)

    def count_or(self, default: int, *keys: str, least: int = 1) -> int:
        """Return a whole number, or the default if the value is null."""
        return default if self.get(*keys) is None else self.count(*keys, least=least)

    def flag(self, key: str) -> bool:
        """Return a boolean option, False where the family has no such key."""
        value = self.option(key)
        if not isinstance(value, bool) and value is not None:
            raise InvalidProblem(f"{key} of {self.file} is {shown(value)}; it must be true or false")
        return bool(value)


class Item(NamedTuple):
    """One item: its parameters by part, the columns of `ModelCard.items`, and its modules."""

    parts: Mapping[str, int]
    columns: dict[str, Any]
    modules: tuple[str, ...]


class Experts(NamedTuple):
    """The experts of a block."""

    number: int
    used: int
    width: int
    shared: int = 0
    """Width of all shared experts together."""
    gated: bool = False
    """Whether a gate scales the shared expert."""


@dataclass(frozen=True)
class Family:
    """How the models of a ``model_type`` are made.

    `options` has the keys that a config may leave out, with their defaults; no other key is optional.
    """

    chain: Callable[[Config, Family], list[Item]]
    options: Mapping[str, Any] = field(default_factory=dict)
    norms: int = 2
    """Norms of a block over the width."""
    head_norms: bool = False
    """Whether queries and keys are normalised in each head."""
    sliding: Callable[[Config, int], bool] | None = None
    """Which blocks have a window, unless ``layer_types`` says so."""
    experts: Callable[[Config, int], Experts | None] | None = None
    width: str = "hidden_size"
    context: str = "max_position_embeddings"
    base: str = "model"
    """The prefix that names of parameters may leave out, or have besides."""
    decodes: bool = True
    unused: Callable[[Config], Sequence[str]] = lambda _config: ()
    """Prefixes of tensors that are stored but are no part of the model that runs."""


# ---------------------------------------------------------------------- decoders with gated FFN


class Attention(NamedTuple):
    """The attention of a block: its parameters without norms, those of its norms, and its columns."""

    parameters: int
    norms: int
    columns: dict[str, int]
    activations: int
    """Numbers per token of queries, keys and values."""


def grouped_attention(c: Config, family: Family) -> Attention:
    """Return attention with groups of queries for each key and value."""
    d, a = c.count("hidden_size"), c.count("num_attention_heads")
    kv = c.count_or(a, "num_key_value_heads")
    h = c.count("head_dim") if c.option("head_dim") is not None else quotient(c, "hidden_size", "num_attention_heads")
    biases = (a + 2 * kv) * h if c.flag("qkv_bias") or c.flag("attention_bias") else 0
    parameters = d * h * (2 * a + 2 * kv) + biases + (d if c.flag("attention_bias") else 0)
    columns = {"heads": a, "key_size": h, "value_size": h, "decode_key_size": h, "decode_value_size": h, "cache_numbers": kv * 2 * h}
    return Attention(parameters, 2 * h if family.head_norms else 0, columns, (a + 2 * kv) * h)


def latent_attention(c: Config, _family: Family) -> Attention:
    """Return attention with compressed keys and values, which decoding reads without expanding them."""
    d, a, rank = c.count("hidden_size"), c.count("num_attention_heads"), c.count_or(0, "q_lora_rank")
    n, e, v, latent = (c.count(key) for key in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "kv_lora_rank"))
    queries = d * rank + rank * a * (n + e) if rank else d * a * (n + e)
    biases = rank + latent + e + d if c.flag("attention_bias") else 0
    parameters = queries + d * (latent + e) + latent * a * (n + v) + a * v * d + biases
    columns = {
        "heads": a,
        "key_size": n + e,
        "value_size": v,
        "decode_key_size": latent + e,
        "decode_value_size": latent,
        "cache_numbers": latent + e,
    }
    return Attention(parameters, rank + latent, columns, 2 * a * (n + e) + a * v)


def decoder(c: Config, family: Family) -> list[Item]:
    """Return the items of a decoder whose blocks have a gated FFN or experts."""
    d, vocabulary = c.count("hidden_size"), c.count("vocab_size")
    attention = (latent_attention if "q_lora_rank" in family.options else grouped_attention)(c, family)
    blocks = []
    for layer in range(c.count("num_hidden_layers", most=MOST_BLOCKS)):
        experts = family.experts(c, layer) if family.experts else None
        parts = {"attention": attention.parameters, "norm": family.norms * d + attention.norms}
        columns: dict[str, Any] = dict(attention.columns)
        if experts is None:
            f = c.count("intermediate_size")
            parts["dense_ffn"] = 3 * d * f + (2 * f + d if c.flag("mlp_bias") else 0)
        else:
            f = experts.used * experts.width + experts.shared
            parts |= {"experts": 3 * d * experts.width * experts.number, "router": d * experts.number}
            parts["shared"] = 3 * d * experts.shared + (d if experts.gated else 0)
            columns |= {"experts": experts.number, "experts_used": experts.used}
        columns |= {"workspace_numbers": max(2 * d + 2 * f, attention.activations), "window": window(c, family, layer)}
        blocks.append(Item(parts, columns, (f"model.layers.{layer}",)))
    embed = Item({"table": vocabulary * d}, {}, ("model.embed_tokens", "model.rotary_emb"))
    head = Item({"table": vocabulary * d, "norm": d}, {}, ("model.norm", "lm_head"))
    return [embed, *blocks, head]


def window(c: Config, family: Family, layer: int) -> float:
    """Return the most tokens that a token of a block attends to, inf for all."""
    size = c.option("sliding_window")
    if family.sliding is None or size in (None, 0) or ("use_sliding_window" in family.options and not c.flag("use_sliding_window")):
        return math.inf
    types = c.option("layer_types")
    if types is None:
        slides = family.sliding(c, layer)
    elif isinstance(types, list) and len(types) == c.count("num_hidden_layers"):
        slides = types[layer] == "sliding_attention"
    else:
        raise InvalidProblem(f"layer_types of {c.file} is {shown(types)}; it must have one type for each of the num_hidden_layers")
    return float(c.count("sliding_window")) if slides else math.inf


def quotient(c: Config, total: str, divisor: str) -> int:
    """Return one size divided by another."""
    size, rest = divmod(c.count(total), c.count(divisor))
    if rest or not size:
        raise InvalidProblem(f"{total} {c.count(total)} of {c.file} is no multiple of {divisor} {c.count(divisor)}; correct one of them")
    return size


def every_block(_c: Config, _layer: int) -> bool:
    """Return True: all blocks have a window."""
    return True


def some_blocks(c: Config, layer: int) -> bool:
    """Return whether a block is none of each ``sliding_window_pattern`` th, which attend to all tokens."""
    return bool((layer + 1) % c.count("sliding_window_pattern"))


def late_blocks(c: Config, layer: int) -> bool:
    """Return whether a block is after the first ``max_window_layers``."""
    return layer >= c.count("max_window_layers", least=0)


def even_early_blocks(c: Config, layer: int) -> bool:
    """Return whether a block has an even number below ``max_window_layers``."""
    return layer % 2 == 0 and layer < c.count("max_window_layers", least=0)


def mixtral_experts(c: Config, _layer: int) -> Experts:
    """Return the experts of each block of mixtral."""
    return checked_experts(c, Experts(c.count("num_local_experts"), c.count("num_experts_per_tok"), c.count("intermediate_size")))


def qwen_experts(c: Config, layer: int) -> Experts | None:
    """Return the experts of a block of qwen2_moe or qwen3_moe, None if it is dense."""
    dense = c.get("mlp_only_layers") or []
    if not isinstance(dense, list):
        raise InvalidProblem(f"mlp_only_layers of {c.file} is {shown(dense)}; it must be a list of numbers of blocks")
    if layer in dense or (layer + 1) % c.count("decoder_sparse_step"):
        return None
    shared = c.count("shared_expert_intermediate_size") if c.family == "qwen2_moe" else 0
    own = (c.count("num_experts", "num_local_experts"), c.count("num_experts_per_tok"), c.count("moe_intermediate_size"))
    return checked_experts(c, Experts(*own, shared, bool(shared)))


def deepseek_experts(c: Config, layer: int) -> Experts | None:
    """Return the experts of a block of deepseek_v3, None if it is dense."""
    if layer < c.count("first_k_dense_replace", least=0):
        return None
    width = c.count("moe_intermediate_size")
    shared = c.count_or(0, "n_shared_experts", least=0) * width
    return checked_experts(c, Experts(c.count("n_routed_experts", "num_local_experts"), c.count("num_experts_per_tok"), width, shared))


def checked_experts(c: Config, experts: Experts) -> Experts:
    """Return experts after checking that a token can use as many."""
    if experts.used > experts.number:
        raise InvalidProblem(
            f"num_experts_per_tok of {c.file} is {experts.used} of {experts.number} experts; it must be at most all of them"
        )
    return experts


def deepseek_unused(c: Config) -> list[str]:
    """Return the blocks for multi-token prediction, which are stored after the others."""
    blocks, more = c.count("num_hidden_layers"), c.count("num_nextn_predict_layers", "num_mtp_layers", least=0, most=MOST_BLOCKS)
    return [f"model.layers.{blocks + i}" for i in range(more)]


# ---------------------------------------------------------------------- others


def plain_columns(width: int, heads: int, size: int, ffn: int, *, cached: bool) -> dict[str, Any]:
    """Return the columns of a block with one key and value for each head."""
    columns: dict[str, Any] = {"heads": heads, "key_size": size, "value_size": size}
    if cached:
        columns |= {"decode_key_size": size, "decode_value_size": size, "cache_numbers": 2 * heads * size}
    return columns | {"workspace_numbers": max(2 * width + 2 * ffn, 3 * heads * size)}


def plain_parts(d: int, f: int) -> dict[str, int]:
    """Return the parameters of a block with biases everywhere, two norms and an FFN without gate."""
    return {"attention": 4 * d * d + 4 * d, "dense_ffn": 2 * d * f + f + d, "norm": 4 * d}


def gpt2(c: Config, _family: Family) -> list[Item]:
    """Return the items of gpt2."""
    d, vocabulary = c.count("n_embd"), c.count("vocab_size")
    f = c.count_or(4 * d, "n_inner")
    columns = plain_columns(d, c.count("n_head"), quotient(c, "n_embd", "n_head"), f, cached=True)
    embed = Item({"table": vocabulary * d + c.count("n_positions") * d}, {}, ("transformer.wte", "transformer.wpe"))
    blocks = [Item(plain_parts(d, f), columns, (f"transformer.h.{i}",)) for i in range(c.count("n_layer", most=MOST_BLOCKS))]
    return [embed, *blocks, Item({"table": vocabulary * d, "norm": 2 * d}, {}, ("transformer.ln_f", "lm_head"))]


def bert(c: Config, _family: Family) -> list[Item]:
    """Return the items of bert, whose head is the pooler."""
    d, f = c.count("hidden_size"), c.count("intermediate_size")
    tables = sum(c.count(key) for key in ("vocab_size", "max_position_embeddings", "type_vocab_size"))
    columns = plain_columns(d, c.count("num_attention_heads"), quotient(c, "hidden_size", "num_attention_heads"), f, cached=False)
    count = c.count("num_hidden_layers", most=MOST_BLOCKS)
    blocks = [Item(plain_parts(d, f), columns, (f"encoder.layer.{i}",)) for i in range(count)]
    return [Item({"table": tables * d, "norm": 2 * d}, {}, ("embeddings",)), *blocks, Item({"dense_ffn": d * d + d}, {}, ("pooler",))]


def t5(c: Config, _family: Family) -> list[Item]:
    """Return the items of t5: the blocks of the encoder, then those of the decoder, which attend to themselves and to the encoder."""
    d, a, f, vocabulary = c.count("d_model"), c.count("num_heads"), c.count("d_ff"), c.count("vocab_size")
    size, biases = c.count("d_kv"), c.count("relative_attention_num_buckets") * a
    matrices = 3 if str(c.get("feed_forward_proj")).startswith("gated") else 2
    encoders = c.count("num_layers", most=MOST_BLOCKS)
    decoders = c.count_or(encoders, "num_decoder_layers")
    blocks = []
    for stack, count, attentions in (("encoder", encoders, 1), ("decoder", min(decoders, MOST_BLOCKS), 2)):
        for i in range(count):
            last = stack == "encoder" and i == count - 1
            parts = {"attention": attentions * 4 * d * a * size + (0 if i else biases), "dense_ffn": matrices * d * f}
            columns = plain_columns(d, a, size, f, cached=False) | {"heads": attentions * a}
            modules = (f"{stack}.block.{i}", *(["encoder.final_layer_norm"] if last else []))
            blocks.append(Item(parts | {"norm": (1 + attentions + last) * d}, columns, modules))
    embed = Item({"table": vocabulary * d}, {}, ("shared", "encoder.embed_tokens", "decoder.embed_tokens"))
    return [embed, *blocks, Item({"table": vocabulary * d, "norm": d}, {}, ("decoder.final_layer_norm", "lm_head"))]


UNTIED = {"tie_word_embeddings": False, "max_position_embeddings": None}
TIED = {"tie_word_embeddings": True, "max_position_embeddings": None}
GEMMA = {**TIED, "head_dim": 256, "attention_bias": False}
SLIDING = {"use_sliding_window": False, "sliding_window": 4096}
LATE = {**SLIDING, "max_window_layers": 28, "layer_types": None}
SPARSE = {"decoder_sparse_step": 1, "mlp_only_layers": None}
FAMILIES: Mapping[str, Family] = {
    "llama": Family(decoder, {**UNTIED, "head_dim": None, "num_key_value_heads": None, "attention_bias": False, "mlp_bias": False}),
    "mistral": Family(decoder, {**UNTIED, "head_dim": None, "sliding_window": 4096}, sliding=every_block),
    "gemma": Family(decoder, GEMMA),
    "gemma2": Family(
        decoder, {**GEMMA, "sliding_window": 4096, "layer_types": None, "sliding_window_pattern": 2}, norms=4, sliding=some_blocks
    ),
    "gemma3_text": Family(
        decoder,
        {**GEMMA, "sliding_window": 4096, "layer_types": None, "sliding_window_pattern": 6, "use_bidirectional_attention": False},
        norms=4,
        head_norms=True,
        sliding=some_blocks,
    ),
    "qwen2": Family(decoder, {**UNTIED, **LATE, "head_dim": None, "qkv_bias": True}, sliding=late_blocks),
    "qwen3": Family(decoder, {**UNTIED, **LATE, "head_dim": 128, "attention_bias": False}, head_norms=True, sliding=late_blocks),
    "mixtral": Family(decoder, {**UNTIED, "head_dim": None, "sliding_window": None}, sliding=every_block, experts=mixtral_experts),
    "qwen2_moe": Family(
        decoder, {**UNTIED, **LATE, **SPARSE, "head_dim": None, "qkv_bias": True}, sliding=even_early_blocks, experts=qwen_experts
    ),
    "qwen3_moe": Family(
        decoder,
        {**UNTIED, **SLIDING, **SPARSE, "head_dim": None, "attention_bias": False},
        head_norms=True,
        sliding=every_block,
        experts=qwen_experts,
    ),
    "deepseek_v3": Family(
        decoder,
        {**UNTIED, "q_lora_rank": 1536, "attention_bias": False, "n_shared_experts": 1, "num_nextn_predict_layers": 1},
        experts=deepseek_experts,
        unused=deepseek_unused,
    ),
    "gpt2": Family(gpt2, {"tie_word_embeddings": True, "n_inner": None}, width="n_embd", context="n_positions", base="transformer"),
    "bert": Family(bert, {"type_vocab_size": 2}, base="bert", decodes=False, unused=lambda _config: ("cls",)),
    "t5": Family(
        t5,
        {
            "tie_word_embeddings": True,
            "num_decoder_layers": None,
            "feed_forward_proj": "relu",
            "relative_attention_num_buckets": 32,
            "n_positions": None,
        },
        width="d_model",
        context="n_positions",
        base="",
        decodes=False,
    ),
}
"""The families whose formulas are known, by ``model_type``."""


# ---------------------------------------------------------------------- reading


@checked(bits=number(above=0, most=64).or_none)
def read(path: str | os.PathLike[str] | Mapping[str, Any], *, bits: float | None = None, name: str | None = None) -> ModelCard:
    """Return the card of a model from its ``config.json``, without torch.

    Where the directory has safetensors files, the bytes are those of their tensors; parameters and work follow from formulas.

    Parameters
    ----------
    path : path or mapping
        A ``config.json``, the directory that holds it, or its contents.
    bits : float, optional
        Bits of each weight, in place of what the files or ``quantization_config`` say. Default: the stored bytes; else those of
        ``quantization_config``, for GPTQ, AWQ, bitsandbytes and FP8, of which norms, routers and tables are no part; else
        ``dtype``, or 32 without one.
    name : str, optional
        Default: the name of the directory, or of the family.

    Raises
    ------
    UnsupportedFeature
        The family or the quantisation has no formula.
    InvalidProblem
        A key is missing or its value breaks a rule, or a file of tensors does not fit the model.
    InvalidArgument
        `bits` is out of range.
    OSError
        A file cannot be read.

    Examples
    --------
    >>> card = read({"model_type": "gpt2", "n_embd": 8, "n_head": 2, "n_layer": 3, "n_positions": 16, "vocab_size": 10})
    >>> card.n_blocks, card.n_parameters, card.total_bytes
    (3, 2840, 11360.0)
    """
    values, file, directory = contents(path)
    family_name = values.get("model_type")
    family = FAMILIES.get(family_name) if isinstance(family_name, str) else None
    if family is None:
        raise UnsupportedFeature(
            f"model_type of {file} is {shown(family_name)}, for which there is no formula, only for {', '.join(FAMILIES)}; "
            "hetsched.frontends.huggingface.card reads any"
        )
    config = Config(values, str(family_name), family.options, file)
    if config.flag("use_bidirectional_attention"):
        raise UnsupportedFeature(
            f"use_bidirectional_attention of {file} is true, for which there is no formula; use hetsched.frontends.huggingface.card"
        )
    items = family.chain(config, family)
    width = config.count(family.width)
    rows = chain_items([item.columns for item in items[1:-1]], width)
    parameters = np.array([[item.parts.get(part, 0) for part in PARTS] for item in items], np.float64)
    modules = [item.modules for item in items]
    tied = config.flag("tie_word_embeddings")
    tensors = None
    stored = directory_tensors(directory) if directory and bits is None else []
    if stored:
        found = places([tensor for tensor, _ in stored], rows, modules, family.base, family.unused(config), directory)
        tensors, weight_bytes = stored_bytes(stored, found, rows, directory)
        weight_bytes = same_table(weight_bytes, stored, found) if tied else weight_bytes
        origin = f"safetensors and config.json of {directory}"
    else:
        per_part, origin = weight_bits(config, bits)
        weight_bytes = parameters * (per_part / 8)
        origin = f"{file}, {origin}"
    context = None if config.option(family.context) is None and family.context in family.options else config.count(family.context)
    return ModelCard(
        name or (directory.resolve().name if directory else "") or str(family_name),
        str(family_name),
        width,
        config.count("vocab_size"),
        rows,
        parameters,
        weight_bytes,
        context_length=context,
        modules=modules,
        tied=tied,
        exact=bool(stored),
        decodes=family.decodes,
        source=origin,
        tensors=tensors,
    )


def contents(path: str | os.PathLike[str] | Mapping[str, Any]) -> tuple[Mapping[str, Any], str, Path | None]:
    """Return the values of a config, the text that names it in messages, and the directory of its model, if there is one."""
    if isinstance(path, Mapping):
        try:
            return msgspec.to_builtins(dict(path), str_keys=True), "the config", None
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidProblem(f"the config has a value that JSON has not: {error}") from None
    file = Path(path)
    if file.is_dir():
        file /= "config.json"
    try:
        values = msgspec.json.decode(file.read_bytes())
    except msgspec.DecodeError as error:
        raise InvalidProblem(f"{file} is not JSON: {error}") from None
    if not isinstance(values, dict):
        raise InvalidProblem(f"{file} is {shown(values)}; it must be a JSON object")
    return values, str(file), file.parent if file.name == "config.json" else None


def weight_bits(config: Config, bits: float | None) -> tuple[FloatArray, str]:
    """Return the bits of a weight by part, shape [parts], and where they are from."""
    if bits is not None:
        return np.full(len(PARTS), float(bits)), f"{bits:g} bits a weight as asked for"
    dtype = config.values.get("dtype", config.values.get("torch_dtype"))
    kind = "float32" if dtype is None or dtype == "auto" else str(dtype).removeprefix("torch.")
    if kind not in BITS:
        raise UnsupportedFeature(f"dtype of {config.file} is {shown(dtype)}; it must be one of {', '.join(BITS)}, or give bits=")
    plain = np.full(len(PARTS), float(BITS[kind]))
    quantisation = config.values.get("quantization_config")
    if quantisation is None:
        return plain, kind if dtype is not None else "float32 for it has no dtype"
    average, method = quantised_bits(config, quantisation)
    return np.where([part in QUANTISED for part in PARTS], average, plain), f"{method} of {average:.4g} bits a weight on average"


def quantised_bits(config: Config, quantisation: Any) -> tuple[float, str]:
    """Return the average bits of a quantised weight, and the name of the method."""
    if not isinstance(quantisation, Mapping):
        raise InvalidProblem(f"quantization_config of {config.file} is {shown(quantisation)}; it must be an object")
    method = quantisation.get("quant_method")
    own = Config(quantisation, str(method), {"group_size": 128, "w_bit": None}, f"quantization_config of {config.file}")
    if method in ("gptq", "awq"):
        bits, group = own.count("bits", "w_bit", most=16), own.get("group_size", "q_group_size")
        return bits + (16 + bits) / own.count("group_size", "q_group_size") if group != -1 else float(bits), str(method)
    if method == "bitsandbytes" and quantisation.get("load_in_4bit"):
        double = quantisation.get("bnb_4bit_use_double_quant")
        return 4 + (8 / 64 + 32 / (64 * 256) if double else 32 / 64), f"{method} in 4 bits"
    if method == "bitsandbytes" and quantisation.get("load_in_8bit"):
        return 8.0, f"{method} in 8 bits"
    if method == "fp8":
        return 8.0, "fp8"
    raise UnsupportedFeature(
        f"quant_method of {config.file} is {shown(method)}; bits are known for gptq, awq, bitsandbytes in 4 or 8 bits and fp8: give bits="
    )
