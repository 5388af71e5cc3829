"""Weights as they are stored: tensors of safetensors files by their headers, and the item and part to which a tensor belongs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from hetsched.arguments import shown
from hetsched.arrays import Columns, FloatArray
from hetsched.chain.card import PARTS, tensor_columns
from hetsched.errors import InvalidProblem

LONGEST_HEADER = 100_000_000
"""The most bytes of a header that the format permits."""
INDEX = "model.safetensors.index.json"
Place = tuple[str, str]
"""The name of an item, empty for a tensor that is not used, and a part."""

_ATTENTION = re.compile(r"attn|attention|mixer|mamba|ssm|rotary|conv", re.IGNORECASE)
_NORM = re.compile(r"norm|(^|\.)ln", re.IGNORECASE)
_SHARED = re.compile(r"(^|\.)shared_expert")


def part_of(name: str, kind: str = "block") -> str:
    """Return the part of the weights to which a parameter of an item of a `kind` belongs, by the words of its name.

    In the embedding and the head everything but norms, poolers and biases is a table; in a block everything without a part is dense.
    """
    if kind == "block" and _SHARED.search(name):
        return "shared"
    words = name.split(".")
    if kind == "block" and "experts" in words:
        return "experts"
    if _NORM.search(name):
        return "norm"
    if kind != "block":
        return "dense_ffn" if "pooler" in words or words[-1] == "bias" else "table"
    if _ATTENTION.search(name):
        return "attention"
    return "router" if {"gate", "router", "gating"}.intersection(words) else "dense_ffn"


# ---------------------------------------------------------------------- files


def directory_tensors(directory: Path) -> list[tuple[str, int]]:
    """Return name and bytes of the tensors in the safetensors files of a directory, sorted by name; empty if it has no such files.

    They are the files of ``model.safetensors.index.json``, else ``model.safetensors``, else all.

    Raises
    ------
    InvalidProblem
        A file is missing or cut off, a header breaks the format, or two files have a tensor of the same name.
    """
    index, single = directory / INDEX, directory / "model.safetensors"
    listed: dict[str, str] = {}
    if index.is_file():
        listed = _weight_map(index)
        files = [directory / name for name in sorted(set(listed.values()))]
    else:
        files = [single] if single.is_file() else sorted(directory.glob("*.safetensors"))
    sizes: dict[str, int] = {}
    for file in files:
        if not file.is_file():
            raise InvalidProblem(f"{index} names {file.name!r}, which is not in the directory; complete the download")
        for name, size in header_tensors(file):
            if name in sizes:
                raise InvalidProblem(f"tensor {name!r} of {file} is in another file too; leave only the files of one model")
            sizes[name] = size
    absent = sorted(set(listed) - set(sizes))
    if absent:
        raise InvalidProblem(f"tensor {absent[0]!r} of {index} is in none of its files; complete the download")
    return sorted(sizes.items())


def _weight_map(index: Path) -> dict[str, str]:
    try:
        return msgspec.convert(msgspec.json.decode(index.read_bytes())["weight_map"], dict[str, str])
    except (KeyError, TypeError, ValueError):
        raise InvalidProblem(
            f"{index} is no index of safetensors files; it must be JSON whose 'weight_map' has a file for each tensor"
        ) from None


def header_tensors(file: Path) -> list[tuple[str, int]]:
    """Return name and bytes of the tensors of a safetensors file, of which only the header is read; see `directory_tensors`."""
    with file.open("rb") as stream:
        total = os.fstat(stream.fileno()).st_size
        length = int.from_bytes(stream.read(8), "little")
        if total < 8 or not 2 <= length <= LONGEST_HEADER or 8 + length > total:
            raise InvalidProblem(f"{file} states a header of {length} bytes in {total}; it is no safetensors file, or cut off")
        text = stream.read(length)
    try:
        header = msgspec.json.decode(text)
        tensors = {name: entry["data_offsets"] for name, entry in header.items() if name != "__metadata__"}
    except (AttributeError, KeyError, TypeError, ValueError):
        raise InvalidProblem(f"the header of {file} is not JSON with 'data_offsets' for each tensor; write the file again") from None
    end = 0
    for name, offsets in tensors.items():
        if not (isinstance(offsets, list) and len(offsets) == 2 and all(type(n) is int for n in offsets) and 0 <= offsets[0] <= offsets[1]):
            raise InvalidProblem(f"data_offsets of tensor {name!r} of {file} are {shown(offsets)}; they must be two rising whole numbers")
        end = max(end, offsets[1])
    if 8 + length + end > total:
        raise InvalidProblem(f"{file} has {total} bytes and its header states {8 + length + end}; it is cut off, complete the download")
    return [(name, last - first) for name, (first, last) in tensors.items()]


# ---------------------------------------------------------------------- items


def places(
    tensors: Iterable[str], items: Columns, modules: Sequence[Sequence[str]], base: str, unused: Sequence[str], file: Any
) -> list[Place]:
    """Return the item and part of each tensor by the prefixes in `modules`; names may have the prefix `base` or leave it out.

    Raises
    ------
    InvalidProblem
        A tensor belongs to no item, and has none of the prefixes `unused`.
    """
    owner = {prefix: item for item, prefixes in enumerate(modules) for prefix in prefixes}
    owner |= dict.fromkeys(unused, -1)
    names, kinds = items.name.tolist(), items.kind.tolist()
    found = []
    for name in tensors:
        item = _owner(name, owner)
        if item is None:
            item = _owner(name.removeprefix(f"{base}.") if name.startswith(f"{base}.") else f"{base}.{name}", owner)
        if item is None:
            raise InvalidProblem(
                f"tensor {name!r} of {file} belongs to no item of the model; its prefixes must be those of PyTorch modules"
            )
        found.append(("" if item < 0 else names[item], part_of(name, "block" if item < 0 else kinds[item])))
    return found


def _owner(name: str, owner: Mapping[str, int]) -> int | None:
    """Return the item of the first prefix of a name, ended before a dot, that has one."""
    end = 0
    while end >= 0:
        end = name.find(".", end + 1)
        item = owner.get(name if end < 0 else name[:end])
        if item is not None:
            return item
    return None


def stored_bytes(tensors: Sequence[tuple[str, int]], found: Sequence[Place], items: Columns, file: Any) -> tuple[Columns, FloatArray]:
    """Return the tensors of a card, and the bytes by item and part.

    Raises
    ------
    InvalidProblem
        An item has no tensor.
    """
    index = {name: i for i, name in enumerate(items.name.tolist())}
    table = np.zeros((len(items), len(PARTS)))
    seen = np.zeros(len(items), bool)
    for (_, size), (item, part) in zip(tensors, found, strict=True):
        if item:
            table[index[item], PARTS.index(part)] += size
            seen[index[item]] = True
    if not seen.all():
        raise InvalidProblem(f"{items.name[int(np.argmin(seen))]} of the model has no tensor in {file}; a file may be missing")
    return tensor_columns([(name, item, part, size) for (name, size), (item, part) in zip(tensors, found, strict=True)]), table


def same_table(card_bytes: FloatArray, tensors: Sequence[tuple[str, int]], found: Sequence[Place]) -> FloatArray:
    """Return the bytes by item and part with the tied head's table stated in full, that of the embedding's tokens."""
    table = PARTS.index("table")
    tokens = [
        size for (name, size), (item, part) in zip(tensors, found, strict=True) if item == "embed" and part == "table" and is_tokens(name)
    ]
    card_bytes[-1, table] = min(max(tokens, default=0), card_bytes[0, table])
    return card_bytes


def is_tokens(name: str) -> bool:
    """Return whether a table of the embedding is that of the tokens, not of positions or types."""
    return re.search(r"(embed_tokens|wte|word_embeddings|shared|token_embd|embed_in)\.weight$", name) is not None
