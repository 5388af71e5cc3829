"""The options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

JSON = Annotated[bool, typer.Option("--json", help="Print one JSON value and nothing else.")]
Output = Annotated[Path, typer.Option("-o", "--output", help="Write the document here.", metavar="FILE")]
ProblemFile = Annotated[Path, typer.Argument(help="A problem document.", metavar="PROBLEM")]
TimeLimit = Annotated[float | None, typer.Option(help="Seconds of wall time.", metavar="SECONDS")]

ClusterName = Annotated[str, typer.Option(help="diviml, moirai_inter, moirai_intra or a cluster document.", metavar="NAME|FILE")]
Dtype = Annotated[str, typer.Option(help="Number format the cost model assumes, for instance float16.")]
Inputs = Annotated[int, typer.Option(help="Inputs that flow through the graph.")]
Batching = Annotated[str, typer.Option(help="once: one batch per task and device; free: any number.", metavar="RULE")]
Communication = Annotated[str, typer.Option(help="delay, per-input, channel or port.", metavar="MODEL")]
Memory = Annotated[str, typer.Option(help="static or peak.", metavar="MODEL")]
