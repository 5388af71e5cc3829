"""`instances`: the registry of instances with known bounds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hetsched.cli import completion
from hetsched.cli.files import Outputs, check_writable
from hetsched.cli.help import Command, Group
from hetsched.cli.options import JSON
from hetsched.cli.terminal import say, say_json, say_rows, warn
from hetsched.errors import HetschedError

if TYPE_CHECKING:
    from hetsched.instances import Family, Instance

instances = typer.Typer(cls=Group, rich_markup_mode="rich", context_settings={"help_option_names": ["-h", "--help"]})
Name = Annotated[str, typer.Argument(help="Name of an instance.", metavar="NAME", autocompletion=completion.instances)]
Names = Annotated[
    list[str] | None,
    typer.Argument(
        help="Names of instances or families; default all.", metavar="NAME", autocompletion=completion.instances, show_default=False
    ),
]


@instances.callback(invoke_without_command=True)
def _instances(context: typer.Context) -> None:
    """Instances that others published, and what is claimed of them.

    A claim is a bound with its trust: published (someone says so), solver (a solver says so), computed (a bound of this package),
    checked (a schedule that was verified and timed exactly, or a certificate that the checker accepted).

    Example: [bold]hetsched instances list[/bold]
    """
    if context.invoked_subcommand is None:
        say(context.get_help())


@instances.command("list", cls=Command)
def list_(
    names: Names = None,
    only_open: Annotated[bool, typer.Option("--open", help="Only instances whose best bounds do not meet.")] = False,
    json: JSON = False,
) -> None:
    """List instances with their best bounds.

    Example: [bold]hetsched instances list examples[/bold]
    """
    from rich.table import Table

    from hetsched.cli.terminal import console
    from hetsched.instances.tables import cells

    shown = [instance for instance in _chosen(names) if not only_open or instance.status == "open"]
    if json:
        say_json([_facts(instance) for instance in shown])
        return
    table = Table("instance", "tasks", "devices", "lower bound", "upper bound", "gap", box=None)
    for instance in shown:
        table.add_row(*cells(instance))
    console().print(table)


@instances.command("show", cls=Command)
def show(name: Name, json: JSON = False) -> None:
    """Show an instance: where it is from, and every claim.

    Example: [bold]hetsched instances show topcuoglu2002[/bold]
    """
    from hetsched.instances.registry import found
    from hetsched.instances.tables import exact

    family, instance = found(name)
    if json:
        say_json(_facts(instance))
        return
    say_rows(
        [
            ("instance", f"{instance.name}: {instance.tasks} tasks, {instance.devices} devices, {instance.status}"),
            ("family", f"{family.name}: {family.citation}"),
            ("licence", f"{family.licence}; {family.attribution}"),
            ("file", instance.source or f"{instance.file}, without an address"),
            *((claim.kind, f"{exact(claim.seconds)} s, {claim.trust}, by {claim.by}, {claim.date}") for claim in instance.claims),
        ]
    )


@instances.command("fetch", cls=Command)
def fetch(
    names: Names = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the problem of the one instance here.", metavar="FILE.json")
    ] = None,
) -> None:
    """Fetch the files of instances, each once, and check that they are the ones that are meant.

    Files are looked for in the folders that the variable HETSCHED_INSTANCES names, then in the cache of the user.

    Example: [bold]hetsched instances fetch topcuoglu2002 -o topcuoglu.json[/bold]
    """
    from hetsched.instances.files import problem_of

    chosen = _chosen(names)
    if output is not None and len(chosen) != 1:
        raise typer.BadParameter(f"{len(chosen)} instances do not fit into one file; name one", param_hint="--output")
    check_writable(output)
    failed = 0
    for instance in chosen:
        try:
            problem = problem_of(instance)
        except (HetschedError, OSError) as error:
            warn(f"{instance.name}: {error}", "failed")
            failed += 1
            continue
        if output is not None:
            problem.write(output)
            say(f"wrote: {output}")
        else:
            say(f"{instance.name}: {problem}")
    if failed:
        raise typer.Exit(1)


@instances.command("check", cls=Command)
def check(
    names: Names = None,
    registry: Annotated[
        Path | None,
        typer.Option(help="Document of a family, in place of those that come with the package.", metavar="FILE.json", show_default=False),
    ] = None,
) -> None:
    """Verify every schedule and check every certificate behind the claims; exit code 1 if one does not hold.

    Example: [bold]hetsched instances check examples[/bold]
    """
    from hetsched.errors import InvalidProblem
    from hetsched.instances import failures

    try:
        chosen = _chosen(names, registry)
    except InvalidProblem as error:  # claims that contradict each other are not even read
        warn(str(error), "failed")
        raise typer.Exit(1) from None
    failed, count, unread = 0, 0, 0
    for instance in chosen:
        try:
            lines = failures(instance)
        except (HetschedError, OSError) as error:
            warn(f"{instance.name}: {error}", "not read")
            unread += 1
            continue
        count += sum(claim.trust == "checked" for claim in instance.claims)
        failed += len(lines)
        for line in lines:
            warn(line, "failed")
    say(f"checked: {count} claims, {failed} do not hold" + (f"; {unread} instances are not read" if unread else ""))
    if failed or unread:
        raise typer.Exit(1)


@instances.command("submit", cls=Command)
def submit(
    name: Name,
    by: Annotated[str, typer.Option(help="Who claims it: a program with its version, or a publication.", metavar="TEXT")],
    registry: Annotated[Path, typer.Option(help="Document of the family, to which the claims are added.", metavar="FILE.json")],
    schedule: Annotated[
        Path | None, typer.Option(help="A schedule or a solution of the instance: an upper bound.", metavar="FILE.json")
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option(help="A certificate for the instance: a lower bound.", metavar="FILE.json[.gz]")
    ] = None,
) -> None:
    """Check a schedule or a certificate of an instance, and add the claim to a registry.

    Example: [bold]hetsched instances submit --help[/bold]
    """
    import msgspec

    from hetsched import checker
    from hetsched.cli.files import read_answer
    from hetsched.errors import InvalidArgument
    from hetsched.instances.claims import claim_of, evidence_of
    from hetsched.instances.registry import Family
    from hetsched.search.solution import Solution

    check_writable(registry)
    family = _family(registry)
    instance = _named(name, family, registry)
    new = []
    if schedule is not None:
        answer = read_answer(schedule)
        given = answer.schedule if isinstance(answer, Solution) else answer
        if given is None:
            raise InvalidArgument(f"{schedule} has no schedule")
        new.append(claim_of(instance, "upper", evidence_of(given.decision), by))
    if certificate is not None:
        try:
            evidence = msgspec.json.decode(checker.load(str(certificate)), type=dict[str, Any])
        except (msgspec.DecodeError, checker.Malformed) as error:
            raise InvalidArgument(f"{certificate} is no certificate: {error}") from None
        new.append(claim_of(instance, "lower", evidence, by))
    if not new:
        raise typer.BadParameter("there is nothing to claim; give a schedule or a certificate", param_hint="--schedule")
    changed = msgspec.structs.replace(instance, claims=[*instance.claims, *new])
    others = tuple(changed if other is instance else other for other in family.instances)
    Family(family.name, family.citation, family.licence, family.attribution, others).write(registry)
    for claim in new:
        say(f"added: {claim.kind} {claim.value} s, checked, to {registry}")


@instances.command("table", cls=Command)
def table(
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the page here.", metavar="FILE.md")] = None,
    stale: Annotated[
        Path | None, typer.Option("--check", help="Exit with code 1 if this page is not the present one.", metavar="FILE.md")
    ] = None,
) -> None:
    """Print a page with the best bounds of all instances, and their gaps, as Markdown.

    Example: [bold]hetsched instances table -o instances.md[/bold]
    """
    from hetsched.documents import write_bytes
    from hetsched.instances import page

    text = page()
    check_writable(output)
    if output is not None:
        outputs = Outputs()
        outputs.write(output, lambda path: write_bytes(text.encode(), path))
        say(f"wrote: {output}")
    elif stale is None:
        say(text.rstrip("\n"))
    if stale is not None and text.encode() not in stale.read_bytes():
        warn(f"{stale} does not have the present tables; write them anew by: hetsched instances table", "stale")
        raise typer.Exit(1)


def _chosen(names: list[str] | None, registry: Path | None = None) -> list[Instance]:
    """Return instances by names of their own or of families, or all without names; with a registry those of its family."""
    from hetsched.instances import entry, families

    if registry is not None:
        family = _family(registry)
        return [_named(name, family, registry) for name in names] if names else list(family.instances)
    known = families()
    if not names:
        return [instance for family in known.values() for instance in family.instances]
    return [instance for name in names for instance in (known[name].instances if name in known else [entry(name)])]


def _family(registry: Path) -> Family:
    """Return the family of a document."""
    from hetsched import documents
    from hetsched.errors import InvalidArgument
    from hetsched.instances import Family

    family = documents.read(registry)
    if not isinstance(family, Family):
        raise InvalidArgument(f"{registry} is no registry; name the document of a family of instances")
    return family


def _named(name: str, family: Family, registry: Path) -> Instance:
    """Return the instance of a family by its name."""
    from hetsched.errors import InvalidArgument

    found = next((instance for instance in family.instances if instance.name == name), None)
    if found is None:
        raise InvalidArgument(f"{registry} has no instance {name!r}; name the document of its family")
    return found


def _facts(instance: Instance) -> dict[str, Any]:
    """Return what is known of an instance, for programs."""
    import msgspec

    facts: dict[str, Any] = msgspec.to_builtins(instance)
    for claim in facts.get("claims", []):
        claim.pop("evidence", None)
    return facts | {"status": instance.status, "gap": instance.gap}
