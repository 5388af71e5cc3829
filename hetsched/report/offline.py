"""What the offline pages share: the look of their charts, their templates, and the policy that permits no downloads."""

from __future__ import annotations

import hashlib
import html
import re
from base64 import b64encode
from typing import TYPE_CHECKING, Any

from hetsched.errors import printable
from hetsched.problem.units import percent, seconds, size
from hetsched.version import __version__

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

BUTTONS = ["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d", "toImage"]
LINE = "#222222"


def rendered(template: str, **values: Any) -> str:
    """Return the page of a template.

    Figures among the values become charts, in elements of the values' names. Scripts may run that are in values of `Markup`.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup
    from plotly.graph_objects import Figure
    from plotly.offline import get_plotlyjs

    environment = Environment(
        loader=PackageLoader("hetsched.report", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True, finalize=_printable
    )
    environment.filters.update({"seconds": seconds, "size": size, "percent": percent})
    values["script"] = Markup(f"<script>{get_plotlyjs()}</script>")
    values |= {name: Markup(embed(value, name)) for name, value in values.items() if isinstance(value, Figure)}
    policy = _policy(*(value for value in values.values() if isinstance(value, Markup)))
    return environment.get_template(template).render(version=__version__, infinity=float("inf"), policy=policy, **values)


def _printable(value: Any) -> Any:
    """Return a value for the page: text without control characters, `Markup` unchanged."""
    return value if hasattr(value, "__html__") or not isinstance(value, str) else printable(value)


def _policy(*parts: str) -> str:
    """Return a content security policy that permits the scripts in these parts only, and no download.

    plotly needs inline styles, and blobs for the pictures that it saves.
    """
    scripts = [script for part in parts for script in re.findall(r"<script[^>]*>(.*?)</script>", part, re.DOTALL)]
    hashes = " ".join(f"'sha256-{b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" for script in scripts)
    return f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"


def escape(text: str) -> str:
    """Return text without control characters and with its markup escaped."""
    return html.escape(printable(text))


def look(x_title: str, height: int) -> dict[str, Any]:
    """Return the layout of all charts."""
    axis = {"gridcolor": "#e4e4e4", "zeroline": False, "linecolor": "#444444"}
    return {
        "height": height,
        "margin": {"l": 10, "r": 40, "t": 10, "b": 10},
        "modebar": {"orientation": "v"},
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom", "itemsizing": "constant"},
        "plot_bgcolor": "white",
        "paper_bgcolor": "white",
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": "#222222"},
        "template": "none",
        "xaxis": {**axis, "title": {"text": x_title}, "ticks": "outside", "automargin": True},
        "yaxis": {**axis, "automargin": True},
        "hoverlabel": {"bgcolor": "white", "font": {"color": "#222222"}, "align": "left"},
    }


def embed(figure: Figure, name: str) -> str:
    """Return the HTML of a figure, without plotly's script."""
    text: str = figure.to_html(
        full_html=False,
        include_plotlyjs=False,
        div_id=name,
        config={"displaylogo": False, "responsive": True, "modeBarButtons": [BUTTONS], "plotlyServerURL": "", "showSendToCloud": False},
    )
    return text
