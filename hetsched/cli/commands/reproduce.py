"""`reproduce`: the tables and figures of the papers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hetsched.cli import completion
from hetsched.cli.files import Outputs, check_writable
from hetsched.cli.options import JSON, time_option
from hetsched.cli.terminal import say, say_json, warn

if TYPE_CHECKING:
    from hetsched.papers import Paper, Reproduction

FOLDER = Path("reproduced")


def reproduce(
    paper: Annotated[
        str | None,
        typer.Argument(
            help="One of the papers, see --list, or all.", metavar="PAPER", autocompletion=completion.papers, show_default=False
        ),
    ] = None,
    items: Annotated[
        list[str] | None,
        typer.Argument(help="Tables and figures, for example table-1; default all of the paper.", metavar="ITEM", show_default=False),
    ] = None,
    show_list: Annotated[bool, typer.Option("--list", help="List the papers and their items, with the time each takes in full.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Small cases, about a minute for an item.")] = False,
    results: Annotated[
        Path, typer.Option(help="Folder of the results; what is in it is not measured again.", metavar="FOLDER", show_default=True)
    ] = FOLDER,
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure again what is stored.")] = False,
    stored: Annotated[bool, typer.Option("--stored", help="Measure nothing: show what the folder has.")] = False,
    data: Annotated[
        Path | None, typer.Option(help="Folder of data that the papers' authors have published; some items need it.", metavar="FOLDER")
    ] = None,
    time_limit: Annotated[
        float | None, time_option("Limit of each solve that has one, instead of the item's; kept apart from results of other limits.")
    ] = None,
    jobs: Annotated[int, typer.Option(help="Cases measured at once; more than the cores disturbs the times.", metavar="NUMBER", min=1)] = 1,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write a Markdown page too.", metavar="FILE.md")] = None,
    json: JSON = False,
) -> None:
    """Measure the tables and figures of the papers that this package implements.

    Prints the paper's figures beside those measured here, what differs from the paper's experiment, and for each claim of the
    paper a verdict: held, not held, or cannot be seen here. Results are stored case by case, so that an interrupted run is
    continued by the same command.

    Example: [bold]hetsched reproduce ios table-1 --quick[/bold]
    """
    from hetsched.documents import write_bytes
    from hetsched.experiments import Progress
    from hetsched.papers import find_paper, papers, rendering
    from hetsched.papers import reproduce as measure
    from hetsched.papers.registry import PAPERS

    if paper is None or show_list:
        _list([find_paper(paper)] if paper not in (None, "all") else papers())
        return
    if paper == "all" and items:
        raise typer.BadParameter(f"{items[0]!r} is an item of one paper; name the paper instead of all", param_hint="ITEM")
    if data is not None and not data.is_dir():
        raise typer.BadParameter(f"{data} is not a folder", param_hint="--data")
    if paper == "all" and time_limit is not None:
        raise typer.BadParameter("not every paper has cases with a limit; name the paper instead of all", param_hint="--time-limit")
    check_writable(output)

    def told(progress: Progress) -> None:
        warn(progress, "measured")

    made: list[Reproduction] = []
    for name in PAPERS if paper == "all" else [paper]:
        made += measure(
            name,
            items or None,
            quick=quick,
            results=results,
            data=data,
            time_limit=time_limit,
            fresh=fresh,
            stored=stored,
            jobs=jobs,
            on_progress=told,
        )
    outputs = Outputs()
    if output is not None:
        outputs.write(output, lambda path: write_bytes(rendering.page(made).encode(), path))
    if json:
        say_json([one.as_dict() for one in made])
    else:
        for one in made:
            say(*rendering.text(one), "")
        say(f"claims: {rendering.counted([claim for one in made for claim in one.report.claims]) or 'none'}")
        kept = results / f"{paper}.jsonl" if paper != "all" else results
        say(f"results: {kept if kept.exists() else f'none at {kept}'}", *(f"wrote: {name}" for name in outputs.written))
    outputs.finish()


def _list(listed: list[Paper]) -> None:
    for paper in listed:
        say(f"{paper.name}: {paper.source}")
        width = max(len(item.name) for item in paper.items)
        say(*(f"  {item.name:<{width}}  {item.title} ({item.time})" for item in paper.items))
