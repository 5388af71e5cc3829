"""How commands present themselves: help that fits any width, flags without a type, an order of their own."""

from __future__ import annotations

import inspect
from typing import Any

from typer.core import TyperCommand, TyperGroup

EXAMPLE = "Example: "


class Command(TyperCommand):
    """A command whose help flows."""

    def __init__(self, name: str | None, *, help: str | None = None, **settings: Any) -> None:  # noqa: A002
        super().__init__(name, help=_flowing(help), **settings)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, as help shows and the parser reads them."""
        return _without_types_of_flags(super().get_params(ctx))


class Group(TyperGroup):
    """A group of commands whose help flows."""

    def __init__(self, *, help: str | None = None, **settings: Any) -> None:  # noqa: A002
        super().__init__(help=_flowing(help), **settings)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, as help shows and the parser reads them."""
        return _without_types_of_flags(super().get_params(ctx))


def _flowing(text: str | None) -> str:
    """Return the help with each paragraph on one line, to be broken where the terminal ends; examples stay as they are."""
    paragraphs = inspect.cleandoc(text or "").split("\n\n")
    return "\n\n".join(each if each.startswith(EXAMPLE) else each.replace("\n", " ") for each in paragraphs)


def _without_types_of_flags(parameters: list[Any]) -> list[Any]:
    """Blank what help says of the type of a flag: ``--json <bool>`` reads as if it wanted a value."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters
