"""Cards of models from GGUF files: exact bytes by tensor, and the sizes that the metadata state."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hetsched.arguments import checked, shown
from hetsched.chain.card import PARTS, ModelCard, chain_items, item_names, tensor_columns
from hetsched.errors import InvalidProblem, MissingDependency

__all__ = ["read"]

PERIODS: Mapping[str, int] = {"gemma2": 2, "gemma3": 6, "gpt-oss": 2, "cohere2": 4}
"""Architectures of which llama.cpp knows that the last of each so many blocks attends to all tokens, and the others to a window."""
_SPLIT = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")
_BLOCK = re.compile(r"^(enc\.|dec\.|)blk\.(\d+)\.(.+)$")
_LARGEST = 2**40
_EMBED = re.compile(r"^(token_embd|position_embd|token_types|per_layer_|rope_)")
_HEAD = re.compile(r"^(output|cls|enc\.output_norm|dec\.output_norm)")


class _Tensor(NamedTuple):
    """One tensor of a file."""

    name: str
    numbers: int
    size: int
    """Bytes."""


class _Fields:
    """The metadata of a file, by name; those of the architecture without its prefix."""

    def __init__(self, values: Mapping[str, Any], family: str, file: str) -> None:
        self.values, self.family, self.file = values, family, file

    def get(self, key: str) -> Any:
        """Return a value, or None."""
        return self.values.get(f"{self.family}.{key}")

    def count(self, key: str, default: int | None = None) -> int:
        """Return a whole number; without a default it must be there."""
        return self.each(key, 1, default)[0]

    def each(self, key: str, blocks: int, default: int | None = None) -> list[int]:
        """Return a whole number for each block: the same for all, or as a list states."""
        value = self.get(key)
        if value is None:
            if default is None:
                raise InvalidProblem(f"{self.file} has no field '{self.family}.{key}', which a card needs; convert the model again")
            return [default] * blocks
        values = value if isinstance(value, list) else [value] * blocks
        if len(values) < blocks or not all(isinstance(n, int) and 0 <= n <= _LARGEST for n in values):
            raise InvalidProblem(
                f"'{self.family}.{key}' of {self.file} is {shown(value)}; it must be a whole number, or one for each block"
            )
        return [int(n) for n in values[:blocks]]


@checked
def read(path: str | os.PathLike[str], *, name: str | None = None) -> ModelCard:
    """Return the card of a model from a GGUF file; of a model in several files, from any of them.

    Parameters
    ----------
    path : path
        The file. The others of a split model, ``-00001-of-00003.gguf``, must be beside it.
    name : str, optional
        Default: the ``general.name`` of the file, or its stem.

    Returns
    -------
    ModelCard
        Its `modules` are empty: the file has no names of PyTorch. Windows are those of ``attention.sliding_window`` in the blocks that
        a pattern in the file selects, or llama.cpp's rule for gemma2, gemma3, gpt-oss and cohere2; other blocks attend to all tokens.

    Raises
    ------
    MissingDependency
        The package ``gguf`` is not installed.
    InvalidProblem
        A file is no GGUF file, cut off or missing; a field is missing or breaks its rule; or a tensor belongs to no item.
    """
    files = _files(Path(path))
    values, tensors = _contents(files)
    family = values.get("general.architecture")
    if not isinstance(family, str) or not family:
        raise InvalidProblem(f"general.architecture of {files[0]} is {shown(family)}; it must be a name, convert the model again")
    fields = _Fields(values, family, str(files[0]))
    encoders = fields.count("block_count")
    two = any(tensor.name.startswith("dec.blk.") for tensor in tensors)
    decoders = fields.count("decoder_block_count", encoders) if two else 0
    blocks = encoders + decoders
    names = item_names(blocks)
    parameters = np.zeros((len(names), len(PARTS)))
    weight_bytes = np.zeros_like(parameters)
    found = []
    for tensor in tensors:
        item, part = _place(tensor.name, encoders, decoders, files[0])
        place = item, PARTS.index(part)
        parameters[place] += tensor.numbers
        weight_bytes[place] += tensor.size
        found.append((tensor.name, names[item], part, tensor.size))
    by_name = {tensor.name: tensor for tensor in tensors}
    if "token_embd.weight" not in by_name:
        raise InvalidProblem(f"{files[0]} has no tensor 'token_embd.weight'; it must hold a whole model")
    for i, item_name in enumerate(names[1:-1], 1):
        if not parameters[i].any():
            raise InvalidProblem(f"{item_name} of {files[0]} has no tensor; it must hold a whole model")
    table = by_name["token_embd.weight"]
    decodes = fields.get("attention.causal") is not False and not any(tensor.name.startswith(("enc.", "cls.")) for tensor in tensors)
    tied = "output.weight" not in by_name and (decodes or two)
    if tied:
        parameters[-1, -1], weight_bytes[-1, -1] = table.numbers, table.size
    width = fields.count("embedding_length")
    if not width or table.numbers % width:
        raise InvalidProblem(f"token_embd.weight of {files[0]} has {table.numbers} numbers, no multiple of embedding_length {width}")
    columns = _columns(fields, encoders, decoders, width, decodes, by_name)
    context = fields.count("context_length", 0)
    return ModelCard(
        name or str(values.get("general.name") or "") or files[0].name.removesuffix(".gguf"),
        family,
        width,
        table.numbers // width,
        chain_items(columns, width),
        parameters,
        weight_bytes,
        context_length=context or None,
        tied=tied,
        exact=True,
        decodes=decodes,
        source=f"GGUF file {files[0]}" + (f" and {len(files) - 1} more" if len(files) > 1 else ""),
        tensors=tensor_columns(found),
    )


# ---------------------------------------------------------------------- files


def _files(path: Path) -> list[Path]:
    """Return the file, or all files of a split model."""
    match = _SPLIT.search(path.name)
    if match is None:
        return [path]
    stem, count = path.name[: match.start()], int(match[2])
    files = [path.with_name(f"{stem}-{i:05d}-of-{count:05d}.gguf") for i in range(1, count + 1)]
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise InvalidProblem(f"{missing[0]}, a file of the split model {path.name}, is not beside it; complete the download")
    return files


def _contents(files: Sequence[Path]) -> tuple[dict[str, Any], list[_Tensor]]:
    """Return the metadata of the first file, and the tensors of all."""
    try:
        import gguf
    except ImportError as error:
        raise MissingDependency("gguf", "gguf") from error
    values: dict[str, Any] = {}
    tensors: dict[str, _Tensor] = {}
    for place, file in enumerate(files):
        if not file.is_file():
            raise FileNotFoundError(f"{file} is no file; give a GGUF file")
        try:
            reader = gguf.GGUFReader(str(file))
        except (ValueError, IndexError, KeyError, OverflowError, UnicodeError) as error:
            raise InvalidProblem(f"{file} is no GGUF file, or cut off: {error}; complete the download") from None
        if place == 0:
            values = {key: _value(reader.fields[key]) for key in reader.fields if _small(reader.fields[key])}
        for tensor in reader.tensors:
            if tensor.name in tensors:
                raise InvalidProblem(f"tensor {tensor.name!r} of {file} is in another file too; leave only the files of one model")
            tensors[tensor.name] = _Tensor(str(tensor.name), int(tensor.n_elements), int(tensor.n_bytes))
    stated = values.get("split.count")
    if isinstance(stated, int) and stated > 1 and stated != len(files):
        raise InvalidProblem(f"{files[0]} is one of {stated} files, whose names must end as -00001-of-{stated:05d}.gguf; name them so")
    return values, list(tensors.values())


def _small(field: Any) -> bool:
    """Return whether a field is no list of tokens, which takes seconds to read and is not needed."""
    return not str(field.name).startswith("tokenizer.")


def _value(field: Any) -> Any:
    """Return the contents of a field as Python values."""
    value = field.contents()
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


# ---------------------------------------------------------------------- items


def _place(name: str, encoders: int, decoders: int, file: Path) -> tuple[int, str]:
    """Return the item and the part of a tensor."""
    match = _BLOCK.match(name)
    if match is not None:
        index = int(match[2])
        if index < (decoders if match[1] == "dec." else encoders):
            return 1 + index + (encoders if match[1] == "dec." else 0), _part(match[3])
    elif _EMBED.match(name):
        return 0, "norm" if "norm" in name else "table"
    elif _HEAD.match(name):
        part = "norm" if "norm" in name else "table" if name == "output.weight" else "dense_ffn"
        return (encoders if name.startswith("enc.") and decoders else 1 + encoders + decoders), part
    raise InvalidProblem(f"tensor {name!r} of {file} belongs to no item of a model with {encoders + decoders} blocks")


def _part(name: str) -> str:
    """Return the part of a tensor of a block, whose name is given without the number of the block."""
    word = name.split(".")[0]
    if word.endswith("_shexp"):
        return "shared"
    if word.endswith("exps"):
        return "experts"
    if word in ("ffn_gate_inp", "exp_probs_b"):
        return "router"
    if "norm" in word:
        return "norm"
    return "attention" if word.startswith(("attn", "cross_attn", "ssm", "time_mix", "shortconv", "rope")) else "dense_ffn"


def _columns(
    fields: _Fields, encoders: int, decoders: int, width: int, decodes: bool, tensors: Mapping[str, _Tensor]
) -> list[dict[str, Any]]:
    """Return the columns of the blocks."""

    def each(key: str, default: int | None = None) -> list[int]:
        return [*fields.each(key, encoders, default), *fields.each(key, decoders, default)]

    heads = each("attention.head_count")
    kv = [own or many for own, many in zip(each("attention.head_count_kv", 0), heads, strict=True)]
    if isinstance(fields.get("attention.head_count_kv"), list):
        kv = each("attention.head_count_kv")  # where 0 means no attention
    size = next((width // many for many in heads if many), 0)
    key, value = fields.count("attention.key_length", size), fields.count("attention.value_length", size)
    latent = fields.count("attention.kv_lora_rank", 0)
    full, short = fields.count("attention.key_length_mla", 0), fields.count("attention.value_length_mla", 0)
    windows = _windows(fields, encoders + decoders)
    widths = each("feed_forward_length", 0)
    sparse = {int(match[2]) for match in map(_BLOCK.match, tensors) if match and _part(match[3]) == "experts"}
    rows = []
    for i in range(encoders + decoders):
        row: dict[str, Any] = {}
        activations = 0
        if heads[i] and kv[i]:
            row = {"heads": heads[i], "key_size": key, "value_size": value, "window": windows[i]}
            if latent and full:
                row |= {"key_size": full, "value_size": short}
            activations = heads[i] * row["key_size"] + kv[i] * (row["key_size"] + row["value_size"])
            if latent and full:
                activations = heads[i] * (2 * full + short)
            if i >= encoders:
                row["heads"] *= 2  # attends to the encoder too
            if decodes:
                row |= {"decode_key_size": key, "decode_value_size": value, "cache_numbers": kv[i] * (key + value)}
            if decodes and latent and full:
                rotary = key - latent if key > latent else fields.count("rope.dimension_count")
                row |= {"decode_key_size": latent + rotary, "decode_value_size": latent, "cache_numbers": latent + rotary}
        ffn = widths[i]
        if i in sparse:
            used, number = fields.count("expert_used_count"), fields.count("expert_count")
            row |= {"experts": number, "experts_used": used}
            ffn = used * fields.count("expert_feed_forward_length", widths[i]) + _shared_width(tensors, i, width)
        rows.append({**row, "workspace_numbers": max(2 * width + 2 * ffn, activations)})
    return rows


def _shared_width(tensors: Mapping[str, _Tensor], block: int, width: int) -> int:
    """Return the width of all shared experts of a block together."""
    down = tensors.get(f"blk.{block}.ffn_down_shexp.weight")
    return down.numbers // width if down else 0


def _windows(fields: _Fields, blocks: int) -> list[float]:
    """Return the most tokens that a token of each block attends to, inf for all."""
    size = fields.count("attention.sliding_window", 0)
    pattern = fields.get("attention.sliding_window_pattern")
    if not size:
        return [np.inf] * blocks
    if isinstance(pattern, list):
        if len(pattern) < blocks:
            raise InvalidProblem(f"sliding_window_pattern of {fields.file} has {len(pattern)} entries; it must have one for each block")
        return [float(size) if slides else np.inf for slides in pattern[:blocks]]
    period = int(pattern) if isinstance(pattern, int) and pattern else PERIODS.get(fields.family, 1)
    return [float(size) if i % period < period - 1 else np.inf for i in range(blocks)]
