"""What every component of the package has to define."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator

import pytest

from hetsched import models
from hetsched.models import Component
from hetsched.models.shortage import Excess

COLUMNS = re.compile(r"\bmodel\.(?:binary|integer|continuous|time|maximum)\(")
WITHOUT_START = {Excess}
"""Components of models to which no schedule is passed."""


def components(base: type[Component] = Component) -> Iterator[type[Component]]:
    """Yield the components of the package."""
    for module in pkgutil.walk_packages(models.__path__, f"{models.__name__}."):
        importlib.import_module(module.name)
    for component in base.__subclasses__():
        if component.__module__.startswith("hetsched."):
            yield component
            yield from components(component)


@pytest.mark.parametrize(
    "component", sorted({*components()}, key=lambda component: component.__name__), ids=lambda component: component.__name__
)
def test_a_component_with_columns_fills_them_for_a_start(component: type[Component]) -> None:
    makes_columns = "add_to" in vars(component) and COLUMNS.search(inspect.getsource(component.add_to))
    if makes_columns and component not in WITHOUT_START:
        assert component.fill is not Component.fill, f"{component.__name__} makes columns; define `fill`, which sets them for a schedule"
