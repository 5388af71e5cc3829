"""One offline HTML file about a plan for serving: which device holds what, how much goes through it, and why not more."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from hetsched.planning.serving import ServingPlan
from hetsched.planning.serving_words import UNIT, against, asked, headline
from hetsched.report import require
from hetsched.report.figures import HEIGHT
from hetsched.report.groups import COLOURS
from hetsched.report.offline import escape, look, rendered

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def serving_html(plan: ServingPlan) -> str:
    """Return a self-contained page about a plan for serving: a chart of the intervals, the bound, the rules, and what it rests on."""
    require("html")
    return rendered(
        "serving.html.jinja",
        plan=plan,
        unit=UNIT,
        headline=headline(plan),
        intervals=intervals_figure(plan) if plan.placement is not None else None,
        rates=rates_figure(plan),
        asked=list(asked(plan)),
        against=list(against(plan)),
    )


def intervals_figure(plan: ServingPlan) -> Figure:
    """Return the items of each device, coloured by type, with the tokens per second that it passes on."""
    from plotly.graph_objects import Bar, Figure

    assert plan.placement is not None
    assert plan.flow is not None
    problem, figure = plan.problem, Figure()
    first, end, passed = plan.placement.first.tolist(), plan.placement.end.tolist(), plan.flow.device.tolist()
    order = sorted((d for d in range(problem.n_devices) if first[d] < end[d]), key=lambda d: (first[d], end[d], d))
    for k, name in enumerate(problem.types):
        own = [(row, d) for row, d in enumerate(order) if problem.device_type[d] == k]
        figure.add_trace(
            Bar(
                name=escape(name),
                orientation="h",
                y=[row for row, _ in own],
                base=[first[d] for _, d in own],
                x=[end[d] - first[d] for _, d in own],
                width=HEIGHT,
                marker={"color": COLOURS[k % len(COLOURS)], "line": {"color": "white", "width": 0.5}},
                text=[f"{passed[d]:.4g}" for _, d in own],
                hovertext=[
                    f"<b>{escape(plan.devices[d])}</b><br>items {first[d]} to {end[d] - 1}<br>{passed[d]:.4g} {UNIT}" for _, d in own
                ],
                hovertemplate="%{hovertext}<extra></extra>",
            )
        )
    figure.update_layout(**look("items", 140 + 30 * len(order)), barmode="overlay", bargap=0.0, hovermode="closest", showlegend=True)
    figure.update_xaxes(range=[0, problem.n_items])
    figure.update_yaxes(
        tickvals=list(range(len(order))),
        ticktext=[escape(plan.devices[d]) for d in order],
        range=[len(order) - 0.5, -0.5],
        fixedrange=True,
        showgrid=False,
    )
    return figure


def rates_figure(plan: ServingPlan) -> Figure:
    """Return the tokens per second of a device of each type by the number of items that it holds; those of the plan are marked."""
    from plotly.graph_objects import Figure, Scatter

    problem, figure = plan.problem, Figure()
    held = Counter[tuple[int, int]]()
    if plan.placement is not None:
        held.update(zip(problem.device_type.tolist(), (plan.placement.end - plan.placement.first).tolist(), strict=True))
    for k, (name, row) in enumerate(zip(problem.types, problem.throughput.tolist(), strict=True)):
        shown = [count for count, rate in enumerate(row, 1) if rate > 0]
        colour = COLOURS[k % len(COLOURS)]
        figure.add_trace(
            Scatter(
                name=escape(name),
                x=shown,
                y=[row[count - 1] for count in shown],
                mode="lines+markers",
                line={"color": colour, "width": 1.4},
                marker={"color": colour, "size": [12 if held[k, count] else 4 for count in shown]},
                hovertext=[
                    f"<b>{escape(name)}</b><br>{count} items: {row[count - 1]:.4g} {UNIT}<br>{held[k, count]} devices" for count in shown
                ],
                hovertemplate="%{hovertext}<extra></extra>",
            )
        )
    figure.update_layout(**look("items on a device", 340), hovermode="closest", showlegend=True)
    figure.update_yaxes(title="tokens/s", rangemode="tozero")
    return figure
