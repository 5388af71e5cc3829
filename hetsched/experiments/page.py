"""One offline HTML file about a comparison of methods."""

from __future__ import annotations

from os import PathLike

from hetsched.arguments import checked
from hetsched.documents import write_bytes
from hetsched.experiments.comparison import TABLES, Comparison
from hetsched.report import require
from hetsched.report.offline import rendered


@checked
def html(comparison: Comparison) -> str:
    """Return a self-contained page about a comparison: its tables, and charts over ratios and over time.

    Raises
    ------
    MissingDependency
        plotly or jinja2 is not installed.
    """
    require("html")
    from hetsched.experiments import figures

    drawn = any("makespan" in row for _, row in figures.ended(comparison))
    return rendered(
        "experiment.html.jinja",
        comparison=comparison,
        tables=[comparison.table(name) for name in TABLES],  # type: ignore[arg-type]
        profile=figures.makespan_profile(comparison) if drawn else None,
        profile_pairs=figures.pair_profiles(comparison) if drawn else None,
        most_pairs=figures.MOST_PAIRS,
        n_pairs=len(comparison.pairs),
        profile_times=figures.time_profile(comparison) if drawn else None,
        proofs=figures.proof_figure(comparison) if drawn else None,
        excess=figures.excess_figure(comparison) if drawn else None,
    )


@checked
def write_html(comparison: Comparison, path: str | PathLike[str]) -> None:
    """Write the page of `html` to a file."""
    write_bytes(html(comparison).encode(), path)
