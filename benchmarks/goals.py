"""The goals of instances and proofs beside what is known: of stored results and the registry that comes with the package.

    python benchmarks/goals.py

Nothing is measured here; `published.py`, `identical.py`, `registry.py` and `adversaries.py` are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import figures
import identical

import hetsched as hs
from hetsched.experiments import Results
from hetsched.instances.registry import Instance

REGION = "goals"
RESULTS = Path(__file__).parent / "results"
CHECKER = Path(hs.__file__).parent / "checker.py"
Row = dict[str, Any]


def rows_of(script: str) -> list[Row]:
    """Return the stored results of a script."""
    return Results(RESULTS / f"{script}.jsonl").rows()


def reached(rows: Iterable[Row], **fields: object) -> tuple[int, int, int]:
    """Return how many published instances of a set there are, are reached, and are reached and proven."""
    own = [row for row in rows if all(row[name] == value for name, value in fields.items())]
    good = [row for row in own if row["says"].startswith("reached")]
    return len(own), len(good), sum(row["proven"] for row in good)


def known(*names: str) -> list[Instance]:
    """Return the instances of some families."""
    families = hs.instances.families()
    return [instance for name in names for instance in families[name].instances]


def status(instances: Sequence[Instance]) -> str:
    """Return how many instances are closed, and how many with a checked proof."""
    best = [one.status for one in instances]
    return f"{len(best) - best.count('open')} closed, {best.count('optimal')} of them with a checked certificate"


def lines() -> list[list[str]]:
    """Return the rows of the table."""
    shops, results, alike = known("dafjs", "yfjs"), rows_of("published"), [row for row in rows_of("identical") if row["method"] == "auto"]
    with_dags = [reached(results, set=name) for name in ("dafjs", "yfjs")]
    graphs, mk = reached(results, set="stg"), reached(results, set="mk")
    ten = next(row for row in results if row["name"] == "mk10")
    share = figures.percent(sum(row["proven"] for row in alike) / len(alike))
    worst = known("adversarial")
    return [
        [
            "assembly job shops (dafjs, yfjs)",
            "50 with verified schedule and bound, 30 closed, 18 with a checked certificate",
            f"of the {len(shops)} whose files the project has {status(shops)}; {sum(one[1] for one in with_dags)} reached in 60 s",
            "published.py, registry.py",
        ],
        [
            "Standard Task Graphs",
            "60 reached and 56 proven in 10 s, 45 with a checked certificate",
            f"{graphs[1]} of {graphs[0]} reached and {graphs[2]} proven in 10 s; {status(known('stg'))}",
            "published.py, registry.py",
        ],
        [
            "flexible job shops (mk)",
            "10 of 12 reached and proven in 60 s; mk10 197, bound 189",
            f"{mk[1]} of {mk[0]} reached, {mk[2]} proven in 60 s; mk10 {ten['makespan']:g}, bound {ten['bound']:g}",
            "published.py",
        ],
        [
            "graphs of 10 to 30 tasks on 2 to 16 identical devices",
            f"{figures.percent(identical.TARGET)} proven in 5 s",
            f"{share} of {len(alike)}",
            "identical.py",
        ],
        ["Auckland's graphs", "517 of 527 proven in 5 s", "not measured: the project does not have the files", ""],
        [
            "worst problems of list schedulers",
            "10 schedulers in 6 families, with certificates",
            f"{len(worst) // 6} schedulers in 6 families; {status(worst)}",
            "adversaries.py",
        ],
        ["checker", "under 600 lines", f"{len(CHECKER.read_text().splitlines())} lines, with blank ones, comments and docstrings", ""],
    ]


def main(words: Sequence[str] | None = None) -> None:
    """Publish the table."""
    arguments = figures.parse(figures.parser(__doc__), words, region=REGION)
    made = lines()
    head = ["what", "goal", "known", "by"]
    figures.publish(arguments, REGION, figures.table(head, made), made)


if __name__ == "__main__":
    main()
