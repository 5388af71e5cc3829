"""`methods`: the list of methods."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hetsched.cli import completion
from hetsched.cli.options import JSON
from hetsched.cli.terminal import console, say_json

if TYPE_CHECKING:
    from hetsched.search import Method

TITLES = {
    "constructive": "Constructive: one pass",
    "search": "Search: improves until the time limit",
    "exact": "Exact: by a solver, or by branch and bound",
    "bound": "Bounds: no schedules",
    "portfolio": "Portfolio: runs other methods",
}
"""Kinds of methods, in the order of the list."""


def methods(
    kind: Annotated[
        str | None,
        typer.Option(
            help=f"Only methods of this kind: {', '.join(TITLES)}.",
            metavar="KIND",
            autocompletion=completion.method_kinds,
            show_default=False,
        ),
    ] = None,
    objective: Annotated[
        str | None,
        typer.Option(
            help="Only methods for this objective: makespan, period or max-load.",
            metavar="OBJECTIVE",
            autocompletion=completion.objectives,
            show_default=False,
        ),
    ] = None,
    json: JSON = False,
) -> None:
    """List the methods by kind: what each does, its source, what it refuses, its options.

    Example: [bold]hetsched methods --kind search[/bold]
    """
    import hetsched
    from hetsched.schedule.objectives import find_objective

    if kind is not None and kind not in TITLES:
        raise typer.BadParameter(f"{kind!r} is not a kind of method; choose from {', '.join(TITLES)}", param_hint="--kind")
    if objective is not None:
        find_objective(objective)
    listed = [
        method
        for method in sorted(hetsched.methods().values(), key=lambda method: (method.turn, method.name))
        if kind in (None, method.kind) and (objective is None or objective in method.objectives)
    ]
    if json:
        say_json([_facts(method) for method in listed])
        return
    from rich.table import Table
    from rich.text import Text

    for section, title in TITLES.items():
        chosen = [method for method in listed if method.kind == section]
        if not chosen:
            continue
        table = Table.grid(padding=(0, 2))
        table.add_column(no_wrap=True, style="bold")
        table.add_column()
        for method in chosen:
            details = "; ".join(_details(method))
            table.add_row(method.name, Text(method.summary) + Text(f"\n{details}" if details else "", style="dim"))
        console().print(Text(title, style="bold underline"))
        console().print(table, "")


def _details(method: Method) -> Iterator[str]:
    """Yield the details of a method below its summary."""
    from hetsched.search import MAKESPAN, Kind

    if method.source:
        yield method.source
    if method.objectives != MAKESPAN:
        yield f"objectives {', '.join(sorted(method.objectives))}"
    if method.supports.refused:
        yield f"refuses {', '.join(method.supports.refused)}"
    if method.needs is not None:
        yield f"needs {method.needs}" + ("" if method.available else " (missing)")
    if method.auto is not None:
        yield f"in auto, weight {method.auto.weight:g}" if method.kind is Kind.SEARCH else "in auto"
    options = ", ".join(f"{name}={value!r}" for name, value in method.options.items())
    if options:
        yield f"options: {options}"


def _facts(method: Method) -> dict[str, Any]:
    """Return the fields of a method as JSON values."""
    return {
        "name": method.name,
        "summary": method.summary,
        "source": method.source,
        "kind": str(method.kind),
        "objectives": sorted(method.objectives),
        "roles": sorted(map(str, method.roles)),
        "refuses": list(method.supports.refused),
        "deterministic": method.deterministic,
        "growth": method.growth,
        "solver": method.solver,
        "needs": method.needs,
        "available": method.available,
        "distributes": method.distributes,
        "turn": method.turn,
        "auto": None if method.auto is None else {"weight": method.auto.weight},
        "options": {name: repr(value) for name, value in method.options.items()},
    }
