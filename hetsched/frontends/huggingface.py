"""Cards of any model of ``transformers``, whose module is made on the meta device: names, parameters by part, and KV sizes."""

from __future__ import annotations

import copy
import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hetsched.arguments import checked, shown
from hetsched.chain.card import PARTS, ModelCard, chain_items, item_names
from hetsched.errors import InvalidArgument, InvalidProblem, MissingDependency, UnsupportedFeature
from hetsched.frontends.configs import QUANTISED, Config, quantised_bits
from hetsched.frontends.module_items import Stack, layout
from hetsched.frontends.stored_weights import directory_tensors, part_of, places, same_table, stored_bytes

if TYPE_CHECKING:
    import torch

__all__ = ["card"]

TOKENS = 16
"""Tokens of the forward pass that shows the KV cache."""


@checked
def card(model: torch.nn.Module | str | os.PathLike[str] | Mapping[str, Any] | Any, *, name: str | None = None) -> ModelCard:
    """Return the card of a model of ``transformers``; nothing is downloaded, and no memory is taken for its weights.

    Parameters
    ----------
    model : transformers.PreTrainedModel, transformers.PreTrainedConfig, mapping or path
        A module, a config, its contents, or a ``config.json`` or the directory that holds it. Bytes are those of the module, or of the
        safetensors files of the directory; else of the config's dtype, or of its quantisation on average.
    name : str, optional
        Default: the name of the directory, or of the family.

    Raises
    ------
    MissingDependency
        transformers or torch is not installed.
    UnsupportedFeature
        The module has no list of blocks, or its forward pass fails on the meta device.
    InvalidProblem
        A config or a file of tensors breaks a rule.
    """
    torch, transformers = _libraries()
    directory: Path | None = None
    module = model if isinstance(model, torch.nn.Module) else None
    if module is not None:
        config = getattr(module, "config", None)
        if not isinstance(config, transformers.PreTrainedConfig):
            raise InvalidArgument(f"model is {type(model).__name__} without a transformers config; give a transformers.PreTrainedModel")
    else:
        config, directory = _config(transformers, model)
    twin = _on_meta(torch, transformers, config, module)
    subject = twin if module is None else module
    stacks = _stacks(torch, subject)
    parts = layout(subject, stacks)
    base = str(getattr(subject, "base_model_prefix", ""))
    blocks = sum(len(stack.modules) for stack in stacks)
    names = item_names(blocks)
    kinds = ["embed", *["block"] * blocks, "head"]
    text = config.get_text_config()
    if not getattr(text, "vocab_size", None) or not getattr(text, "hidden_size", None):
        raise UnsupportedFeature(f"the config of {config.model_type} has no vocab_size or no hidden_size; a card is of a model of tokens")
    parameters = np.zeros((len(names), len(PARTS)))
    weight_bytes = np.zeros_like(parameters)
    for key, tensor in subject.named_parameters():
        item = parts.owner[key]
        place = item, PARTS.index(part_of(key, kinds[item]))
        parameters[place] += tensor.numel()
        weight_bytes[place] += tensor.numel() * tensor.element_size()
    tokens = _tied_table(subject)
    if tokens is not None:
        parameters[-1, -1] += tokens.numel()
        weight_bytes[-1, -1] += tokens.numel() * tokens.element_size()
    width, vocabulary = int(text.hidden_size), int(text.vocab_size)
    decodes = not (config.is_encoder_decoder or _encodes(transformers, config, subject))
    geometry = _geometry(torch, twin, text, blocks) if decodes else [_plain(text, stack.decoder) for stack in stacks for _ in stack.modules]
    columns = []
    for row, block in zip(geometry, (block for stack in stacks for block in stack.modules), strict=True):
        ffn, experts = _ffn(block, width, text)
        columns.append({**row.columns, **experts, "workspace_numbers": max(2 * width + 2 * ffn, row.activations)})
    items = chain_items(columns, width)
    exact, tensors, origin = module is not None, None, "a module" if module is not None else "config.json by transformers"
    stored = directory_tensors(directory) if directory else []
    if stored:
        found = places([key for key, _ in stored], items, parts.modules, base, _unused(config), directory)
        tensors, weight_bytes = stored_bytes(stored, found, items, directory)
        weight_bytes = weight_bytes if tokens is None else same_table(weight_bytes, stored, found)
        exact, origin = True, f"safetensors of {directory} and transformers"
    elif module is None:
        weight_bytes = _expected_bytes(torch, config, parameters)
    longest = getattr(text, "max_position_embeddings", None)
    return ModelCard(
        name or (directory.resolve().name if directory else "") or config.model_type,
        config.model_type,
        width,
        vocabulary,
        items,
        parameters,
        weight_bytes,
        context_length=longest if isinstance(longest, int) and longest > 0 else None,
        modules=parts.modules,
        tied=tokens is not None,
        exact=exact,
        decodes=decodes,
        source=origin,
        tensors=tensors,
    )


def _libraries() -> tuple[Any, Any]:
    """Return torch and transformers."""
    try:
        import torch
    except ImportError as error:
        raise MissingDependency("torch", "hub") from error
    try:
        import transformers
    except ImportError as error:
        raise MissingDependency("transformers", "hub") from error
    return torch, transformers


def _config(transformers: Any, model: Any) -> tuple[Any, Path | None]:
    """Return the config of a model, and the directory of its files, if there is one."""
    if isinstance(model, transformers.PreTrainedConfig):
        return model, None
    if isinstance(model, Mapping):
        values = dict(model)
        family = values.pop("model_type", None)
        if not isinstance(family, str) or family not in transformers.CONFIG_MAPPING:
            raise InvalidProblem(
                f"model_type of the config is {shown(family)}, which transformers {transformers.__version__} does not know"
            )
        try:
            return transformers.AutoConfig.for_model(family, **values), None
        except Exception as error:  # each class checks its values in its own way
            raise InvalidProblem(f"transformers refuses the config: {error}") from error
    if not isinstance(model, str | os.PathLike):
        raise InvalidArgument(f"model is {shown(model)}; it must be a module or config of transformers, a mapping or a path")
    path = Path(model)
    directory = path if path.is_dir() else path.parent if path.name == "config.json" else None
    if not path.exists():
        told = "does not exist; give a config.json, or a directory that has one, nothing is downloaded"
        raise FileNotFoundError(errno.ENOENT, told, str(path))
    try:
        return transformers.AutoConfig.from_pretrained(str(path), local_files_only=True, trust_remote_code=False), directory
    except Exception as error:  # each class checks its values in its own way
        raise InvalidProblem(f"transformers cannot read {path}: {error}") from error


def _on_meta(torch: Any, transformers: Any, config: Any, module: Any) -> Any:
    """Return a module of the config without memory, of the class of `module` if there is one."""
    config = copy.deepcopy(config)  # which would get the dtype
    try:
        with torch.device("meta"):
            if module is not None:
                return type(module)._from_config(config, dtype=torch.bfloat16).eval()
            return _auto_class(transformers, config).from_config(config, dtype=torch.bfloat16).eval()
    except Exception as error:  # of a class that others wrote, for values that do not fit together
        raise InvalidProblem(f"transformers cannot make a module of the config of {config.model_type}: {error}") from error


def _auto_class(transformers: Any, config: Any) -> Any:
    """Return the class that makes the module which generates, or the one without head for encoders."""
    if config.is_encoder_decoder and type(config) in transformers.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING:
        return transformers.AutoModelForSeq2SeqLM
    causal = type(config) in transformers.MODEL_FOR_CAUSAL_LM_MAPPING
    architectures = " ".join(config.architectures or ())
    if causal and type(config) in transformers.MODEL_FOR_MASKED_LM_MAPPING:  # encoders that may be made decoders
        causal = bool(getattr(config, "is_decoder", False)) or "CausalLM" in architectures or "LMHeadModel" in architectures
    return transformers.AutoModelForCausalLM if causal else transformers.AutoModel


def _encodes(transformers: Any, config: Any, module: Any) -> bool:
    """Return whether a module has no head that generates tokens, or attends in both directions."""
    two_ways = bool(getattr(config.get_text_config(), "use_bidirectional_attention", False))
    return two_ways or (module.get_output_embeddings() is None and _auto_class(transformers, config) is transformers.AutoModel)


# ---------------------------------------------------------------------- items


def _stacks(torch: Any, module: Any) -> list[Stack]:
    """Return the lists of blocks: that with most parameters, or encoder and decoder.

    A block is of a class that the model does not allow to be split; where it names none, any list of modules counts.
    """
    kept = set(getattr(module, "_no_split_modules", None) or ())
    lists = [(key, list(part)) for key, part in module.named_modules() if isinstance(part, torch.nn.ModuleList) and len(part)]
    named = [(key, blocks) for key, blocks in lists if {type(block).__name__ for block in blocks} <= kept]
    outermost: list[tuple[str, list[Any]]] = []
    for key, blocks in named or lists:
        if not any(key.startswith(f"{other}.") for other, _ in outermost):
            outermost.append((key, blocks))
    if not outermost:
        raise UnsupportedFeature(f"{type(module).__name__} has no list of blocks; a chain of items needs one")

    def size(stack: tuple[str, list[Any]]) -> int:
        return sum(parameter.numel() for block in stack[1] for parameter in block.parameters())

    if module.config.is_encoder_decoder:
        largest = sorted(outermost, key=size, reverse=True)[:2]
        ordered = sorted(largest, key=lambda stack: [key for key, _ in outermost].index(stack[0]))
        return [Stack(key, blocks, place == 1) for place, (key, blocks) in enumerate(ordered)]
    return [Stack(*max(outermost, key=size), False)]


def _tied_table(module: Any) -> Any:
    """Return the weight of the embedding if the head uses it, else None."""
    head, embed = module.get_output_embeddings(), module.get_input_embeddings()
    if head is None or embed is None or getattr(head, "weight", None) is not embed.weight:
        return None
    return embed.weight


def _unused(config: Any) -> list[str]:
    """Return the prefixes of blocks for multi-token prediction, which are stored after the others, and of the heads of encoders."""
    text = config.get_text_config()
    more = getattr(text, "num_nextn_predict_layers", None) or 0
    return ["cls", *(f"model.layers.{text.num_hidden_layers + i}" for i in range(more))]


# ---------------------------------------------------------------------- blocks


class _Row(NamedTuple):
    """The columns of a block's attention, and the numbers per token of queries, keys and values."""

    columns: dict[str, Any]
    activations: int


def _geometry(torch: Any, module: Any, config: Any, blocks: int) -> list[_Row]:
    """Return the attention of each block by the KV cache of a forward pass on the meta device."""
    ids = torch.zeros(1, TOKENS, dtype=torch.long, device="meta")
    try:
        with torch.no_grad():
            made = module(input_ids=ids, use_cache=True)
            layers = (getattr(made, "cache", None) or made.past_key_values).layers
    except Exception as error:  # what a model that others wrote raises
        raise UnsupportedFeature(
            f"the forward pass of {type(module).__name__} on the meta device fails, so its KV cache is unknown: {error}; "
            "correct the config, or use hetsched.frontends.configs.read"
        ) from error
    if len(layers) != blocks:
        raise UnsupportedFeature(
            f"the cache of {type(module).__name__} has {len(layers)} layers and the model {blocks} blocks; they must be equal"
        )
    return [_cached(config, layer) for layer in layers]


def _cached(config: Any, layer: Any) -> _Row:
    """Return the attention of a block by its layer of the cache; a layer without keys, as of linear attention, has none."""
    keys, values = getattr(layer, "keys", None), getattr(layer, "values", None)
    if keys is None or values is None:
        return _Row({}, 0)
    heads = int(config.num_attention_heads)
    kv, key, value = int(keys.shape[1]), int(keys.shape[-1]), int(values.shape[-1])
    size = getattr(layer, "sliding_window", None)
    columns: dict[str, Any] = {"heads": heads, "cache_numbers": kv * (key + value), "window": float(size) if size else np.inf}
    if getattr(config, "kv_lora_rank", None) and (key, value) == (config.kv_lora_rank, config.qk_rope_head_dim):
        full, short = config.qk_nope_head_dim + config.qk_rope_head_dim, config.v_head_dim
        columns |= {"key_size": full, "value_size": short, "decode_key_size": key + value, "decode_value_size": key}
        return _Row(columns, heads * (2 * full + short))
    columns |= {"key_size": key, "value_size": value, "decode_key_size": key, "decode_value_size": value}
    return _Row(columns, heads * key + kv * (key + value))


def _plain(config: Any, crossed: bool) -> _Row:
    """Return the attention of a block without a cache; one that is `crossed` attends to the encoder too."""
    heads = int(config.num_attention_heads)
    size = int(getattr(config, "head_dim", None) or getattr(config, "d_kv", None) or config.hidden_size // heads)
    return _Row({"heads": heads * (2 if crossed else 1), "key_size": size, "value_size": size}, 3 * heads * size)


def _ffn(block: Any, width: int, config: Any) -> tuple[int, dict[str, int]]:
    """Return the width of a block's FFN for one token, and its columns of experts."""
    sizes: dict[str, list[int]] = {"dense_ffn": [], "experts": [], "shared": []}
    number = 0
    for key, parameter in block.named_parameters():
        part = part_of(key)
        if part not in sizes or parameter.numel() <= width or parameter.ndim < 2:
            continue
        pair = 2 if "gate_up" in key else 1  # of two matrices in one tensor
        if part != "experts":
            sizes[part].append(parameter.numel() // (width * pair))
            continue
        word = key.split("experts.")[-1].split(".")[0]  # the number of an expert, or a tensor of all of them
        number = max(number, int(word) + 1 if word.isdecimal() else int(parameter.shape[0]))
        if parameter.ndim == (2 if word.isdecimal() else 3):
            sizes[part].append(parameter.numel() // (width * pair * (1 if word.isdecimal() else number)))
    dense, expert, shared = (max(sizes[part], default=0) for part in ("dense_ffn", "experts", "shared"))
    if not number:
        return dense + shared, {}
    used = next(
        (getattr(config, key) for key in ("num_experts_per_tok", "top_k_experts", "moe_topk", "moe_top_k") if getattr(config, key, 0)), None
    )
    if used is None:
        raise UnsupportedFeature(
            f"the config of {config.model_type} does not say how many of {number} experts a token uses; set num_experts_per_tok"
        )
    return dense + int(used) * expert + shared, {"experts": number, "experts_used": int(used)}


def _expected_bytes(torch: Any, config: Any, parameters: Any) -> Any:
    """Return bytes by item and part by the config: its dtype, float32 without one, and its quantisation on average."""
    kind = config.dtype or getattr(config.get_text_config(), "dtype", None) or torch.float32
    size = float(torch.empty((), dtype=kind if isinstance(kind, torch.dtype) else getattr(torch, str(kind))).element_size())
    quantisation = getattr(config, "quantization_config", None)
    if quantisation is None:
        return parameters * size
    values = quantisation if isinstance(quantisation, Mapping) else quantisation.to_dict()
    average, _ = quantised_bits(Config({}, config.model_type, {}, "the config"), values)
    return parameters * np.where([part in QUANTISED for part in PARTS], average / 8, size)
