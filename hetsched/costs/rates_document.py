"""The JSON document of measured rates."""

from __future__ import annotations

from typing import Annotated, Self

import msgspec

from hetsched.costs.rates import Rate, Rates
from hetsched.documents import VERSION, Document, Row

Size = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Count = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
Amount = Annotated[float, msgspec.Meta(ge=0)]


class RateRow(Row):
    """The time of one run: tokens of a prompt, or generated one after the other, of each of `batch` sequences behind `depth` tokens."""

    device: str
    seconds: Annotated[float, msgspec.Meta(gt=0)]
    prompt: Size = 0
    output: Size = 0
    depth: Size = 0
    batch: Count = 1
    chunk: Count = 512
    model: str = ""
    model_bytes: Amount | None = None
    parameters: Amount | None = None
    deviation: Amount | None = None
    source: str = ""


class RatesDocument(Document[Rates], kw_only=True, tag="hetsched-rates"):
    """Measured rates of language models; `device` is a device's name or kind."""

    rows: list[RateRow]

    @classmethod
    def of(cls, value: Rates) -> Self:
        """Return the document of rates."""
        return cls(version=VERSION, rows=[RateRow(*row) for row in value.rows])

    def value(self) -> Rates:
        """Return the rates."""
        return Rates(Rate(**msgspec.structs.asdict(row)) for row in self.rows)
