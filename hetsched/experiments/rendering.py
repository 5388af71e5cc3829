"""Tables of text, as Markdown and for a terminal, and the numbers in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hetsched.arguments import checked
from hetsched.errors import InvalidArgument


@checked
@dataclass(frozen=True)
class Table:
    """A table of text; the first column names the rows.

    Attributes
    ----------
    head : sequence of str
    rows : sequence of sequences of str
        As many cells in each as the head has.
    title : str
    notes : sequence of str
        Lines below the table: what its numbers mean, and what is left out of them.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.head):
                raise InvalidArgument(f"a row of {len(row)} cells under a head of {len(self.head)}: {list(row)}; give one cell for each")

    def __str__(self) -> str:
        return "\n".join([*([self.title] if self.title else []), *aligned(self), *self.notes])

    def markdown(self) -> str:
        """Return the title, the table and the notes in Markdown."""
        parts = [f"**{self.title}**" if self.title else "", markdown(self), "\n".join(f"- {note}" for note in self.notes)]
        return "\n\n".join(filter(None, parts))


def number(value: float, digits: int = 3) -> str:
    """Return a number to some significant digits, without an exponent, with thousands separated."""
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])
    return f"{value:,.{max(0, digits - 1 - exponent)}f}".replace(",", "\N{NO-BREAK SPACE}")


def percent(share: float) -> str:
    """Return a share as a number of percent."""
    return f"{100 * share:.1f} %"


def aligned(table: Table) -> Iterator[str]:
    """Yield the lines of a table for a terminal, which need not know the spaces that do not break lines."""
    rows = [[cell.replace("\N{NO-BREAK SPACE}", " ") for cell in row] for row in (table.head, *table.rows)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(table.head))]
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        yield "  ".join(cells).rstrip()


def markdown(table: Table, others: str = "---:") -> str:
    """Return the Markdown of a table alone, its first column left-aligned, the others by default right-aligned."""
    rule = ["---"] + [others] * (len(table.head) - 1)
    return "\n".join(f"| {' | '.join(line)} |" for line in (table.head, rule, *table.rows))
