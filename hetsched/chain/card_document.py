"""The JSON document of a model's card."""

from __future__ import annotations

from typing import Annotated, Self

import msgspec
import numpy as np

from hetsched.arrays import Columns, texts
from hetsched.chain.card import COUNTS, PARTS, ModelCard, tensor_columns
from hetsched.documents import VERSION, Document, Row
from hetsched.errors import InvalidProblem

Size = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Count = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
Amount = Annotated[float, msgspec.Meta(ge=0)]


class PartsRow(Row):
    """Amounts by part of the weights."""

    attention: Amount = 0.0
    dense_ffn: Amount = 0.0
    experts: Amount = 0.0
    shared: Amount = 0.0
    router: Amount = 0.0
    norm: Amount = 0.0
    table: Amount = 0.0


class ItemRow(Row, kw_only=True):
    """One item; `window` is the most tokens that a token attends to, null for all.

    `token_flops` is null where they follow from the parameters.
    """

    name: str
    kind: str
    parameters: PartsRow
    weight_bytes: PartsRow
    heads: Size = 0
    key_size: Size = 0
    value_size: Size = 0
    decode_key_size: Size = 0
    decode_value_size: Size = 0
    cache_numbers: Size = 0
    window: Amount | None = None
    experts: Size = 0
    experts_used: Size = 0
    workspace_numbers: Size = 0
    token_flops: Amount | None = None
    modules: list[str] = []


class TensorRow(Row):
    """One tensor of a file; `item` is empty if it is stored but not used."""

    name: str
    item: str
    part: str
    bytes: Size


class ModelDocument(Document[ModelCard], kw_only=True, tag="hetsched-model"):
    """A model as a chain of items; `tensors` are those of a file, null if the bytes follow from a formula."""

    name: str
    family: str
    width: Count
    vocabulary: Count
    context_length: Count | None = None
    items: list[ItemRow]
    tied: bool = False
    exact: bool = False
    decodes: bool = True
    source: str = ""
    tensors: list[TensorRow] | None = None

    @classmethod
    def of(cls, value: ModelCard) -> Self:
        """Return the document of a card."""
        amounts = zip(value.parameters.tolist(), value.weight_bytes.tolist(), strict=True)
        flops = [None] * value.n_items if value.token_flops is None else value.token_flops.tolist()
        rows = []
        for item, (parameters, weight_bytes), modules, counted in zip(value.items, amounts, value.modules, flops, strict=True):
            window = item.pop("window")
            parts = PartsRow(*parameters), PartsRow(*weight_bytes)
            row = ItemRow(**item, parameters=parts[0], weight_bytes=parts[1], modules=list(modules), token_flops=counted)
            row.window = None if np.isinf(window) else window
            rows.append(row)
        return cls(
            version=VERSION,
            name=value.name,
            family=value.family,
            width=value.width,
            vocabulary=value.vocabulary,
            context_length=value.context_length,
            items=rows,
            tied=value.tied,
            exact=value.exact,
            decodes=value.decodes,
            source=value.source,
            tensors=None if value.tensors is None else [TensorRow(**row) for row in value.tensors],
        )

    def value(self) -> ModelCard:
        """Return the card."""
        counts = {column: np.array([getattr(row, column) for row in self.items], np.int64) for column in COUNTS}
        window = np.array([np.inf if row.window is None else row.window for row in self.items], np.float64)
        items = Columns(name=texts(row.name for row in self.items), kind=texts(row.kind for row in self.items), **counts, window=window)
        flops = [row.token_flops for row in self.items if row.token_flops is not None]
        if len(flops) not in (0, len(self.items)):
            raise InvalidProblem("token_flops are given for some items only; give those of all, or of none")
        return ModelCard(
            self.name,
            self.family,
            self.width,
            self.vocabulary,
            items,
            np.array([_amounts(row.parameters) for row in self.items]).reshape(-1, len(PARTS)),
            np.array([_amounts(row.weight_bytes) for row in self.items]).reshape(-1, len(PARTS)),
            context_length=self.context_length,
            modules=[row.modules for row in self.items],
            tied=self.tied,
            exact=self.exact,
            decodes=self.decodes,
            source=self.source,
            token_flops=flops or None,
            tensors=None if self.tensors is None else tensor_columns([(t.name, t.item, t.part, t.bytes) for t in self.tensors]),
        )


def _amounts(row: PartsRow) -> list[float]:
    return [float(getattr(row, part)) for part in PARTS]
