"""The items of a chain to which the tensors of a module belong, and the names of its modules by item."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

_EARLY = re.compile(r"(?<!un)emb|wte|wpe|rotary|per_layer|altup_proj", re.IGNORECASE)
_LATE = re.compile(r"norm|^ln_f$|lm_head|^head$|pooler|classifier", re.IGNORECASE)


class Stack(NamedTuple):
    """A list of blocks, and its name."""

    name: str
    modules: list[Any]
    decoder: bool
    """Whether its blocks also attend to an encoder."""


class Layout(NamedTuple):
    """To which item each tensor belongs, and the shortest prefixes of each item."""

    owner: Mapping[str, int]
    modules: Sequence[tuple[str, ...]]


def layout(module: Any, stacks: Sequence[Stack], known: Mapping[str, int] | None = None) -> Layout:
    """Return the layout of a module.

    A tensor outside of the blocks belongs to the embedding or the head: to the item of its module, where that is `known`, or by its
    name, or else by its place before or after them; what is between encoder and decoder belongs to the last block of the encoder.
    """
    first, starts = 1, {}
    for stack in stacks:
        starts[stack.name] = first
        first += len(stack.modules)
    head = first
    owner: dict[str, int] = {}
    begun = 0
    for key in _tensors(module):
        inside = next((name for name in starts if key.startswith(f"{name}.")), None)
        if inside is not None:
            begun = starts[inside] + int(key[len(inside) + 1 :].split(".")[0])
            owner[key] = begun
            continue
        item = (known or {}).get(key.rpartition(".")[0])
        if item is not None:
            owner[key] = item
            continue
        words = key.split(".")[:-1] or [key]
        encoder = len(stacks) > 1 and key.startswith(stacks[0].name.rpartition(".")[0] + ".")
        if any(map(_EARLY.search, words)):
            owner[key] = 0
        elif encoder:
            owner[key] = starts[stacks[1].name] - 1
        else:
            beside = ".".join(words[:-1]) in ("", *(name.rpartition(".")[0] for name in starts))
            owner[key] = head if begun or (beside and _LATE.search(words[-1])) else 0
    found: list[list[str]] = [[] for _ in range(head + 1)]
    _collect(module, "", owner, {stack.name for stack in stacks}, found)
    return Layout(owner, [tuple(prefixes) for prefixes in found])


def _tensors(module: Any) -> Iterator[str]:
    """Yield the names of parameters and buffers, those of tied ones too, in the order of the modules."""
    for prefix, part in module.named_modules(remove_duplicate=False):
        own = [*part._parameters, *part._buffers]
        yield from (f"{prefix}.{key}" if prefix else key for key in own if getattr(part, key) is not None)


def _collect(module: Any, prefix: str, owner: Mapping[str, int], stacks: set[str], found: list[list[str]]) -> None:
    """Append the shortest prefixes of each item to `found`; a list of blocks is never a prefix, nor is what contains one."""
    below = {item for key, item in owner.items() if not prefix or key.startswith(f"{prefix}.")}
    contains = any(name == prefix or not prefix or name.startswith(f"{prefix}.") for name in stacks)
    if len(below) == 1 and not contains:
        found[below.pop()].append(prefix)
        return
    for key in (*module._parameters, *module._buffers):
        full = f"{prefix}.{key}" if prefix else key
        if full in owner:
            found[owner[full]].append(full)
    for key, part in module._modules.items():
        if part is not None and below:
            _collect(part, f"{prefix}.{key}" if prefix else key, owner, stacks, found)
