"""Cards of models: the items of a model in order of execution, with their weights and the coefficients of their work."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched import documents
from hetsched.arguments import check_array, check_count, checked, number, shown
from hetsched.arrays import Columns, FloatArray, Frozen, readonly, texts
from hetsched.errors import InvalidProblem
from hetsched.problem.graph import is_text, plural, unique_names

PARTS = ("attention", "dense_ffn", "experts", "shared", "router", "norm", "table")
"""The parts into which the weights of an item are divided; a table is an embedding or the projection onto the vocabulary."""
KINDS = ("embed", "block", "head")
COUNTS = (
    "heads",
    "key_size",
    "value_size",
    "decode_key_size",
    "decode_value_size",
    "cache_numbers",
    "experts",
    "experts_used",
    "workspace_numbers",
)
"""The columns of `ModelCard.items` that are whole numbers."""
ITEM_COLUMNS = ("name", "kind", *COUNTS, "window")
_TABLE = PARTS.index("table")


class ModelCard(Frozen):
    """A model as a chain of items: the embedding, the blocks, and the head, which is the last norm and the projection onto the vocabulary.

    Parameters
    ----------
    name : str
    family : str
        The ``model_type`` of a config.json, or the ``general.architecture`` of a GGUF file.
    width : int
        Numbers per token between two items.
    vocabulary : int
        Number of tokens of the vocabulary.
    context_length : int or None
        The most tokens that the model was made for; None if unknown.
    items : Columns
        One row for each item in order of execution, see below.
    parameters, weight_bytes : arrays [items, parts]
        Number of parameters, and bytes as stored, of each part in `PARTS`.
    modules : sequence of sequences of str
        For each item prefixes of the names of its PyTorch parameters, and of rotary embeddings; empty if they are unknown.
    tied : bool
        Whether the head uses the table of the embedding. Both rows state it in full; `total_bytes` and `n_parameters` count it once.
    exact : bool
        Whether the bytes are those of a file or of a module; otherwise they follow from a formula.
    decodes : bool
        Whether the items are run again for each new token, with a KV cache. An encoder, or an encoder and a decoder in a row, is not.
    source : str
        Where the numbers are from.
    token_flops : array [items], optional
        FLOPs of one token in each item, attention to other tokens left out, as they were counted. Default: two for each parameter that a
        token uses, tables of embeddings left out.
    tensors : Columns (name, item, part, bytes), optional
        The tensors of a file. The item is a name, or empty for a tensor that is stored but not used.

    Attributes
    ----------
    items : Columns
        ``name``: "embed", "block 0", .., "head"; ``kind``: "embed", "block" or "head".
        ``heads``, ``key_size``, ``value_size``: attention of T tokens to x others takes 2 T heads (key_size + value_size) x FLOPs in
        prefill; 0 without attention. ``decode_key_size``, ``decode_value_size``: the same in decoding; they differ where keys and
        values are kept compressed. ``cache_numbers``: numbers per token in the KV cache. ``window``: the most tokens that a token
        attends to; inf for all. ``experts``, ``experts_used``: their number, and how many a token uses; 0 without experts.
        ``workspace_numbers``: numbers per token of the largest activations; those of the head leave out `n_logits`.

    Raises
    ------
    InvalidProblem
        A size or a name breaks its rule.
    """

    _format = "hetsched-model"
    name: str
    family: str
    width: int
    vocabulary: int
    context_length: int | None
    items: Columns
    parameters: FloatArray
    weight_bytes: FloatArray
    modules: tuple[tuple[str, ...], ...]
    tied: bool
    exact: bool
    decodes: bool
    source: str
    token_flops: FloatArray | None
    tensors: Columns | None

    @checked(InvalidProblem)
    def __init__(
        self,
        name: str,
        family: str,
        width: int,
        vocabulary: int,
        items: Columns,
        parameters: npt.ArrayLike,
        weight_bytes: npt.ArrayLike,
        *,
        context_length: int | None = None,
        modules: Sequence[Sequence[str]] = (),
        tied: bool = False,
        exact: bool = False,
        decodes: bool = True,
        source: str = "",
        token_flops: npt.ArrayLike | None = None,
        tensors: Columns | None = None,
    ) -> None:
        for what, text in (("name", name), ("family", family)):
            if not is_text(text) or not text:
                raise InvalidProblem(f"{what} of a model is {shown(text)}; it must be non-empty Unicode text")
        if not is_text(source):
            raise InvalidProblem(f"source of a model is {shown(source)}; it must be Unicode text")
        rows = _checked_items(items)
        shape, names = (len(rows), len(PARTS)), rows.name.tolist()
        given = [tuple(prefixes) for prefixes in modules] or [()] * len(rows)
        if len(given) != len(rows):
            raise InvalidProblem(f"modules has {plural(len(given), 'row')} and items {len(rows)}; give the prefixes of each item")
        for text in (prefix for prefixes in given for prefix in prefixes):
            if not is_text(text) or not text:
                raise InvalidProblem(f"the prefix {shown(text)} of a module is not non-empty Unicode text")
        self._set(
            name=name,
            family=family,
            width=check_count(width, "width", error=InvalidProblem),
            vocabulary=check_count(vocabulary, "vocabulary", error=InvalidProblem),
            context_length=None if context_length is None else check_count(context_length, "context_length", error=InvalidProblem),
            items=rows,
            parameters=_amounts(parameters, "parameters", shape, names),
            weight_bytes=_amounts(weight_bytes, "weight_bytes", shape, names),
            modules=tuple(given),
            tied=tied,
            exact=exact,
            decodes=decodes,
            source=source,
            token_flops=None if token_flops is None else _amounts(token_flops, "token_flops", (len(rows),), names),
            tensors=None if tensors is None else _checked_tensors(tensors, names),
        )
        if tied:
            for what, table in (("parameters", self.parameters), ("weight_bytes", self.weight_bytes)):
                if table[-1, _TABLE] > table[0, _TABLE]:
                    raise InvalidProblem(
                        f"{what} of the tied head's table are {table[-1, _TABLE]:g}, and of the embedding's {table[0, _TABLE]:g}; "
                        "a tied table is a part of the embedding's, give tied=False for one of its own"
                    )

    def __repr__(self) -> str:
        size = f"{self.n_parameters / 1e9:.4g} B parameters, {self.total_bytes / 1e9:.4g} GB"
        return f"<ModelCard {self.name!r} of {self.family}: {plural(self.n_blocks, 'block')}, {size}>"

    @checked
    def write(self, path: str | PathLike[str]) -> None:
        """Write the card as a JSON document; ``hetsched.read`` reads it back to the bit."""
        documents.write(self, path)

    @checked(factor=number(0))
    def scaled(self, factor: float) -> ModelCard:
        """Return the card with the bytes of all weights multiplied by a finite factor from 0, as of another number of bits."""
        given = {name: getattr(self, name) for name in self._fields} | {"weight_bytes": self.weight_bytes * factor, "exact": False}
        made: ModelCard = type(self)(**given | {"tensors": None})
        return made

    @property
    def n_items(self) -> int:
        """Number of items."""
        return len(self.items)

    @property
    def n_blocks(self) -> int:
        """Number of blocks: all items but the embedding and the head."""
        return len(self.items) - 2

    @property
    def n_logits(self) -> int:
        """Numbers in float32 that the head computes for each token of the output; 0 if it has no table."""
        return self.vocabulary if self.parameters[-1, _TABLE] else 0

    @cached_property
    def weights(self) -> FloatArray:
        """Bytes of the weights of each item, shape [items]."""
        return readonly(self.weight_bytes.sum(axis=1))

    @property
    def n_parameters(self) -> int:
        """Number of parameters; a tied table counts once."""
        return int(self.parameters.sum() - (self.parameters[-1, _TABLE] if self.tied else 0))

    @property
    def total_bytes(self) -> float:
        """Bytes of all weights; a tied table counts once."""
        return float(self.weight_bytes.sum() - (self.weight_bytes[-1, _TABLE] if self.tied else 0))

    @property
    def bits(self) -> float:
        """Bits of weights per parameter."""
        return 8 * self.total_bytes / self.n_parameters


def item_names(blocks: int) -> list[str]:
    """Return the names of the items of a model with so many blocks."""
    return ["embed", *(f"block {i}" for i in range(blocks)), "head"]


def chain_items(blocks: Sequence[dict[str, Any]], width: int) -> Columns:
    """Return the items of a model from the columns of its blocks; those that a block leaves out are 0, and its window inf."""
    ends = {"workspace_numbers": width}
    rows = [ends, *blocks, ends]
    counts = {column: np.array([row.get(column, 0) for row in rows], np.int64) for column in COUNTS}
    window = np.array([row.get("window", np.inf) for row in rows], np.float64)
    kinds = texts(["embed", *["block"] * len(blocks), "head"])
    return Columns(name=texts(item_names(len(blocks))), kind=kinds, **counts, window=window)


def tensor_columns(rows: Sequence[tuple[str, str, str, int]]) -> Columns:
    """Return the tensors of a card from rows of name, item, part and bytes."""
    name, item, part, size = zip(*rows, strict=True) if rows else ((), (), (), ())
    return Columns(name=texts(name), item=texts(item), part=texts(part), bytes=np.array(size, np.int64))


def _checked_items(items: Columns) -> Columns:
    missing = [column for column in ITEM_COLUMNS if column not in items.names]
    other = [column for column in items.names if column not in ITEM_COLUMNS]
    if missing or other:
        problem = f"items has no column {missing[0]!r}" if missing else f"items has an unknown column {other[0]!r}"
        raise InvalidProblem(f"{problem}; it must have {', '.join(ITEM_COLUMNS)}")
    kinds = items.kind.tolist()
    if kinds != ["embed", *["block"] * (len(kinds) - 2), "head"] or len(kinds) < 3:
        raise InvalidProblem(f"the kinds of the items are {shown(kinds)}; they must be 'embed', one 'block' or more, and 'head', in order")
    names = unique_names(items.name.tolist(), "item")
    counts = {column: check_array(items[column], f"{column} of items", (len(kinds),), np.int64, error=InvalidProblem) for column in COUNTS}
    window = check_array(items.window, "window of items", (len(kinds),), error=InvalidProblem)
    for column, values in counts.items():
        if (values < 0).any():
            i = int(np.argmax(values < 0))
            raise InvalidProblem(f"{column} of item {names[i]!r} is {values[i]}; it must be at least 0")
    if not (window > 0).all():
        i = int(np.argmin(window > 0))
        raise InvalidProblem(f"window of item {names[i]!r} is {window[i]}; it must be a number above 0, or inf for all tokens")
    if (counts["experts_used"] > counts["experts"]).any():
        i = int(np.argmax(counts["experts_used"] > counts["experts"]))
        raise InvalidProblem(f"item {names[i]!r} uses {counts['experts_used'][i]} of {counts['experts'][i]} experts; give all of them")
    return Columns(name=texts(names), kind=texts(kinds), **counts, window=window)


def _amounts(values: npt.ArrayLike, what: str, shape: tuple[int, ...], names: Sequence[str]) -> FloatArray:
    """Return finite amounts from 0, by item, or by item and part."""
    amounts = readonly(check_array(values, what, shape, error=InvalidProblem))
    bad = ~(np.isfinite(amounts) & (amounts >= 0))
    if bad.any():
        at = tuple(int(place[0]) for place in np.nonzero(bad))
        part = f" of {PARTS[at[1]]}" if len(at) > 1 else ""
        raise InvalidProblem(f"{what}{part} of item {names[at[0]]!r} is {amounts[at]}; it must be a number, at least 0")
    return amounts


def _checked_tensors(tensors: Columns, items: Sequence[str]) -> Columns:
    if tensors.names != ("name", "item", "part", "bytes"):
        raise InvalidProblem(f"tensors has the columns {', '.join(tensors.names)}; it must have name, item, part and bytes, in this order")
    names = unique_names(tensors.name.tolist(), "tensor")
    amounts = check_array(tensors.bytes, "bytes of tensors", (len(names),), np.int64, error=InvalidProblem)
    known = {"", *items}
    for name, item, part, amount in zip(names, tensors.item.tolist(), tensors.part.tolist(), amounts.tolist(), strict=True):
        if item not in known:
            raise InvalidProblem(f"item of tensor {name!r} is {shown(item)}; it must be the name of an item, or '' if none uses it")
        if part not in PARTS:
            raise InvalidProblem(f"part of tensor {name!r} is {shown(part)}; choose one of {', '.join(PARTS)}")
        if amount < 0:
            raise InvalidProblem(f"bytes of tensor {name!r} are {amount}; they must be at least 0")
    return Columns(name=texts(names), item=texts(tensors.item.tolist()), part=texts(tensors.part.tolist()), bytes=amounts)
