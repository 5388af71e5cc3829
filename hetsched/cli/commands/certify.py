"""`certify`: a lower bound with a proof that needs no trust in this package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hetsched.cli.files import Outputs, check_writable, read_problem
from hetsched.cli.options import JSON, ProblemFile, time_option
from hetsched.cli.terminal import Working, say_json, say_rows
from hetsched.problem.units import seconds


def certify(
    problem: ProblemFile,
    claim: Annotated[
        float | None,
        typer.Option(
            help="Prove that no schedule is shorter than this, or with inf that there is none; default the largest claim found.",
            metavar="SECONDS",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the certificate here; compressed if it ends in .gz.", metavar="FILE")
    ] = None,
    time_limit: Annotated[float, time_option()] = 60.0,
    json: JSON = False,
) -> None:
    """Prove a lower bound on the makespan so that anybody can check the proof.

    A certificate refutes every shorter schedule, by a tree of devices and orders whose leaves contradict simple rules. The checker
    replays it in whole numbers, in one file without this package. Any source of the claim will do, the makespan of a solution by
    another solver for instance: it is proven anew. If schedule and certificate agree, the schedule is optimal. Exit code 1 if the
    claim is wrong, or not proven in the time.

    Example: [bold]hetsched certify problem.json -o certificate.json[/bold]
    """
    from hetsched import certify as prove
    from hetsched.checker import seconds as exact
    from hetsched.problem.graph import plural

    check_writable(output, sources=[problem])
    instance = read_problem(problem)
    with Working("certifying"):
        made = prove(instance, claim, time_limit=time_limit)
    outputs = Outputs()
    outputs.write(output, None if made is None else made.write, "nothing is proven")
    if json:
        fields: dict[str, Any] = {}
        if made is not None:
            text = "infinity" if made.claim is None else str(made.claim)
            fields = {"value": made.value, "exact": text, "nodes": made.nodes, "hints": made.hints}
        say_json({"certified": made is not None, **fields, "written": outputs.written})
    elif made is None:
        what = "a claim" if claim is None else f"{claim!r} s"
        say_rows([("certified", f"no: {what} is wrong, or not proven within {seconds(time_limit)}")])
    else:
        proven = "no schedule exists" if made.claim is None else f"no schedule is shorter than {exact(made.claim)}"
        say_rows(
            [
                ("proven", proven),
                ("proof", f"{plural(len(made.lemmas), 'lemma')}, {plural(made.nodes, 'node')}, {plural(made.hints, 'hint')}"),
                ("checked", "yes, by the checker"),
                *(("wrote", name) for name in outputs.written),
            ]
        )
    outputs.finish()
    raise typer.Exit(int(made is None))
