"""`schema`: the JSON Schema of documents."""

from __future__ import annotations

from typing import Annotated

import typer

from hetsched.cli import completion
from hetsched.cli.terminal import say_json


def schema(
    kind: Annotated[
        str,
        typer.Argument(
            help="graph, cluster, problem, schedule, solution, stages, timeline, profile, model, machine, plan, rates, certificate "
            "or registry.",
            metavar="KIND",
            autocompletion=completion.kinds,
        ),
    ],
) -> None:
    """Print the JSON Schema of a kind of document.

    Example: [bold]hetsched schema problem[/bold]
    """
    from hetsched.documents import schema

    say_json(schema(kind))
