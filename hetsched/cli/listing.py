"""`methods` and `schema`: what there is to choose from, and what the documents look like."""

from __future__ import annotations

from typing import Annotated

import typer

from hetsched.cli import completion
from hetsched.cli.options import JSON
from hetsched.cli.terminal import console, say_json


def methods(json: JSON = False) -> None:
    """List the methods: what each does, its source, its options.

    Example: [bold]hetsched methods[/bold]
    """
    import hetsched

    known = hetsched.methods().values()
    if json:
        say_json(
            [
                {
                    "name": method.name,
                    "summary": method.summary,
                    "source": method.source,
                    "supports": method.supports,
                    "deterministic": method.deterministic,
                    "options": {name: repr(value) for name, value in method.options.items()},
                }
                for method in known
            ]
        )
        return
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="bold")
    table.add_column()
    for method in known:
        options = ", ".join(f"{name}={value!r}" for name, value in method.options.items())
        details = "; ".join(filter(None, [method.source, options and f"options: {options}"]))
        table.add_row(method.name, Text(method.summary) + Text(f"\n{details}" if details else "", style="dim"))
    console().print(table)


def schema(
    kind: Annotated[
        str, typer.Argument(help="graph, cluster, problem, schedule, solution or stages.", metavar="KIND", autocompletion=completion.kinds)
    ],
) -> None:
    """Print the JSON Schema of a kind of document.

    Example: [bold]hetsched schema problem[/bold]
    """
    from hetsched.documents import schema

    say_json(schema(kind))
