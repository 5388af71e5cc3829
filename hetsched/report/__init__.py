"""Pictures of schedules: Gantt charts, an interactive page, traces for Perfetto, data frames."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from hetsched.errors import MissingDependency, UnsupportedFeature
from hetsched.lazy import attach

if TYPE_CHECKING:
    from hetsched.report.gantt_chart import gantt, write_gantt
    from hetsched.report.lanes import lanes
    from hetsched.report.page import html, write_html
    from hetsched.report.plan_page import plan_html, write_plan
    from hetsched.report.tables import device_table, method_table, to_dataframe
    from hetsched.report.trace import chrome_trace, write_trace

GANTT_FORMATS = (".png", ".svg", ".pdf")
"""Suffixes of the files that `write_gantt` writes."""

_HOMES = {
    "gantt_chart": ["gantt", "write_gantt"],
    "lanes": ["lanes"],
    "page": ["html", "write_html"],
    "plan_page": ["plan_html", "write_plan"],
    "tables": ["device_table", "method_table", "to_dataframe"],
    "trace": ["chrome_trace", "write_trace"],
}
_NEEDS = {"gantt": ("matplotlib",), "html": ("plotly", "jinja2"), "dataframe": ("pandas",), "trace": ()}

__all__ = [
    "GANTT_FORMATS",
    "chrome_trace",
    "device_table",
    "gantt",
    "html",
    "lanes",
    "method_table",
    "plan_html",
    "require",
    "to_dataframe",
    "write_gantt",
    "write_html",
    "write_plan",
    "write_trace",
]


def require(*parts: str) -> None:
    """Raise `MissingDependency` if a library that a part needs is not installed.

    Parts are "gantt", "html", "dataframe" and "trace". Call it before long work whose result will be drawn.
    """
    for part in parts:
        if not isinstance(part, str) or part not in _NEEDS:
            raise UnsupportedFeature(f"there is no part {part!r}; choose from {', '.join(_NEEDS)}")
        for library in _NEEDS[part]:
            if importlib.util.find_spec(library) is None:
                raise MissingDependency(library, "report")


__getattr__, __dir__ = attach(__name__, _HOMES)
