"""`compare`: methods on problems, a run beside its forecast, or one profile beside another."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hetsched.cli import completion
from hetsched.cli.files import Outputs, check_writable, read_answer, read_problem, read_profile, read_timeline
from hetsched.cli.options import JSON, Gantt, time_option
from hetsched.cli.pictures import Pictures
from hetsched.cli.terminal import Working, say, say_json, warn

if TYPE_CHECKING:
    from hetsched.experiments import Comparison, Results

_METHODS = "Methods on problems"
SECONDS = 10.0
"""Limit of a case that has none."""
Files = Annotated[
    list[str] | None,
    typer.Argument(
        help="With --methods: problem documents, patterns of files such as 'mine/*.json', names and families of instances "
        "(hetsched instances list), and generators such as rwnn:er,32,seed=0..9. Without: a problem, a schedule of it and a timeline "
        "of its runs; or an old and a new profile.",
        metavar="FILE",
        show_default=False,
    ),
]


def compare(
    files: Files = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="Methods, with options in braces: heft,'cpsat{cuts=false}'.",
            metavar="NAME[,NAME]",
            autocompletion=completion.methods,
            rich_help_panel=_METHODS,
        ),
    ] = None,
    seeds: Annotated[
        str, typer.Option(help="Seeds of all random choices, such as 0..4 or 0,7.", metavar="NUMBERS", rich_help_panel=_METHODS)
    ] = "0",
    time_limit: Annotated[float | None, time_option(f"Seconds of a case; {SECONDS:g} if no limit is given.", _METHODS)] = None,
    cpu_limit: Annotated[
        float | None, time_option("Seconds of CPU time of a case instead: fair on a machine that does other work.", _METHODS)
    ] = None,
    evaluations: Annotated[
        int | None, typer.Option(help="The most schedules evaluated in a case.", metavar="NUMBER", rich_help_panel=_METHODS)
    ] = None,
    certify: Annotated[
        float | None, time_option("Prove the bound of each case to the checker afterwards, in this many seconds.", _METHODS)
    ] = None,
    jobs: Annotated[
        int,
        typer.Option(
            help="Cases measured at once; more than the free cores disturbs the times.", metavar="NUMBER", min=1, rich_help_panel=_METHODS
        ),
    ] = 1,
    scheduler: Annotated[
        str | None,
        typer.Option(
            help="Measure by the workers of this scheduler of dask.distributed, such as tcp://host:8786.",
            metavar="ADDRESS",
            rich_help_panel=_METHODS,
        ),
    ] = None,
    results: Annotated[
        Path | None,
        typer.Option(
            help="Keep a line for each case in this file, and do not measure again what it has; without --methods, show what it has.",
            metavar="FILE.jsonl",
            rich_help_panel=_METHODS,
        ),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure again what the file has.", rich_help_panel=_METHODS)] = False,
    table: Annotated[
        str,
        typer.Option(
            help="Tables to print, of summary, pairs, gaps and makespans.",
            metavar="NAME[,NAME]",
            autocompletion=completion.tables,
            rich_help_panel=_METHODS,
        ),
    ] = "summary,pairs",
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the tables in Markdown.", rich_help_panel=_METHODS)] = False,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html",
            help="Write a page with all tables and charts, for any browser, offline too.",
            metavar="FILE.html",
            rich_help_panel=_METHODS,
        ),
    ] = None,
    gantt: Gantt = None,
    json: JSON = False,
) -> None:
    """Compare methods on problems; or a run with its forecast, or two profiles.

    With --methods every case, a method on a problem with a seed, is measured in a process of its own, in one thread, and its schedule is
    verified. A case that fails is a record too, and the others go on. Medians over the seeds are compared
    over the instances: wins, ties and losses, the signed-rank test, and the mean ratio of makespans with its interval. Exit code 1 if a
    bound is above a makespan.

    Example: [bold]hetsched compare problem.json --methods heft,peft --html run.html[/bold]

    With --results a line for each case is kept in a file, which the same command continues, and which is shown again:

    Example: [bold]hetsched compare rwnn:er,10 --methods cpop --results run.jsonl[/bold]

    Example: [bold]hetsched compare --results run.jsonl --table gaps --markdown[/bold]

    Without, a run of a schedule is compared with its forecast: replays of the schedule with measured times split the error. The run is
    verified too: exit code 1 if it broke a rule. With --gantt each device has a row of the run and one of the forecast. Of two profiles
    the seconds of the same operators are compared.

    Example: [bold]hetsched compare problem.json schedule.json run.json[/bold]

    Example: [bold]hetsched compare old.json new.json[/bold]
    """
    given = files or []
    if methods is None and results is None:
        if len(given) not in (2, 3):
            raise typer.BadParameter(
                f"{len(given)} files are given; name the --methods to compare on problems, or give PROBLEM SCHEDULE RUN, or two profiles"
            )
        paths = [Path(name) for name in given]
        if len(paths) == 2:
            _profiles(paths[0], paths[1], gantt, json)
        else:
            _run(paths[0], paths[1], paths[2], gantt, json)
        return
    if gantt is not None:
        raise typer.BadParameter("methods have no Gantt chart in common; leave it out, or write a page by --html", param_hint="--gantt")
    if json and markdown:
        raise typer.BadParameter("Markdown is not JSON; leave out one of --markdown and --json", param_hint="--markdown")
    from hetsched.experiments.comparison import check_tables
    from hetsched.report import require

    names = [name.strip() for name in table.split(",") if name.strip()]
    check_tables(names)
    check_writable(html, results, sources=[Path(name) for name in given])
    if html is not None:
        require("html")
    if methods is None:
        if given or fresh:
            raise typer.BadParameter(
                "no methods are named; without them the records in --results are shown as they are", param_hint="--methods"
            )
        assert results is not None
        if not results.is_file():
            raise FileNotFoundError(2, "no such file of results; name --methods and problems to make it", str(results))
    if time_limit is None and cpu_limit is None and evaluations is None:
        time_limit = SECONDS
    store = _measured(given, methods, seeds, (time_limit, cpu_limit, evaluations, certify), (jobs, scheduler, fresh), results, names)
    _show(store, names, markdown, html, json)


def _measured(
    texts: list[str],
    methods: str | None,
    seeds: str,
    limits: tuple[float | None, float | None, int | None, float | None],
    ways: tuple[int, str | None, bool],
    results: Path | None,
    names: list[str],
) -> Results:
    """Return the records, after the cases that are named have been measured."""
    from hetsched.certificates.certifying import too_large
    from hetsched.cli.executors import client
    from hetsched.experiments import Comparison, Results, cases, problems, run

    store = Results(results)
    if methods is None:
        return store
    with Working("reading problems"):
        instances = problems(*texts)
    time_limit, cpu_limit, evaluations, certify = limits
    for instance in instances if certify is not None else ():
        if excess := too_large(instance.problem):
            warn(f"bounds on {instance.name} are not certified, which stay 'computed' or a solver's: {excess}", "note")
    requested = cases(
        instances, methods, seeds=_seeds(seeds), time_limit=time_limit, cpu_limit=cpu_limit, evaluations=evaluations, certify=certify
    )
    jobs, scheduler, fresh = ways
    try:
        with client(scheduler) as workers:
            return run(
                requested, results=store, jobs=jobs, client=workers, fresh=fresh, on_progress=lambda progress: warn(progress, "measured")
            )
    except KeyboardInterrupt:
        if results is None and len(store):
            _print(Comparison(store), names, markdown=False)  # else they are in the file
        raise


def _seeds(text: str) -> list[int]:
    numbers: list[int] = []
    for part in text.split(","):
        first, dots, last = part.strip().partition("..")
        if not (first.isdecimal() and (last.isdecimal() or not dots)) or (dots and int(last) < int(first)):
            raise typer.BadParameter(f"{text!r} is not a list of whole numbers such as 0..4 or 0,7", param_hint="--seeds")
        numbers += range(int(first), int(last or first) + 1)
    return list(dict.fromkeys(numbers))


def _print(comparison: Comparison, names: list[str], *, markdown: bool) -> None:
    """Print tables of a comparison."""
    tables = [comparison.table(name) for name in names]  # type: ignore[arg-type]
    say(*"\n\n".join(table.markdown() if markdown else str(table) for table in tables).splitlines())
    say("", f"taken on: {comparison.taken or 'nothing is measured yet'}")


def _show(store: Results, names: list[str], markdown: bool, html: Path | None, json: bool) -> None:
    from hetsched.experiments import Comparison, write_html

    comparison = Comparison(store)
    outputs = Outputs()
    outputs.write(html, lambda path: write_html(comparison, path))
    if json:
        tables = {name: comparison.table(name) for name in names}  # type: ignore[arg-type]
        made = {name: {"head": [*table.head], "rows": [[*row] for row in table.rows]} for name, table in tables.items()}
        contradictions = list(comparison.contradictions)
        say_json({"taken": comparison.taken, "tables": made, "contradictions": contradictions, "written": outputs.written})
    else:
        _print(comparison, names, markdown=markdown)
        say(*(f"wrote {name}" for name in outputs.written))
    if comparison.outdated:
        warn(f"{comparison.outdated} cases were measured with other sources of hetsched; --fresh measures them again", "note")
    for text in comparison.contradictions:
        warn(text)
    outputs.finish()
    raise typer.Exit(1 if comparison.contradictions else 0)


def _run(problem: Path, schedule: Path, run: Path, gantt: Path | None, json: bool) -> None:
    from hetsched.runtime import compare, forecast

    check_writable(gantt, sources=[problem, schedule, run])
    Pictures(None, None, gantt, "op").check()
    instance, answer, measured = read_problem(problem), read_answer(schedule), read_timeline(run)
    with Working("comparing"):
        comparison = compare(instance, answer, measured)
    outputs = Outputs()
    if gantt is not None:
        from hetsched.report import write_gantt

        expected = forecast(instance, measured.schedule, measured)
        outputs.write(gantt, lambda path: write_gantt(instance, measured.schedule, path, against=expected))
    if json:
        say_json({**comparison.to_dict(), "written": outputs.written})
    else:
        kept = [] if comparison.violations else ["", "valid: the run kept every rule"]
        say(*str(comparison).splitlines(), *kept, *(f"wrote {name}" for name in outputs.written))
    outputs.finish()
    raise typer.Exit(1 if comparison.violations else 0)


def _profiles(old: Path, new: Path, gantt: Path | None, json: bool) -> None:
    from hetsched.costs import compare_profiles

    if gantt is not None:
        raise typer.BadParameter("two profiles have no Gantt chart; leave it out, or give PROBLEM SCHEDULE RUN", param_hint="--gantt")
    comparison = compare_profiles(read_profile(old), read_profile(new))
    if json:
        say_json(comparison.to_dict())
    else:
        say(*str(comparison).splitlines())
