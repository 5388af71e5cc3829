"""Help of commands: paragraphs that wrap at any width, and flags without a type."""

from __future__ import annotations

import inspect
from typing import Any

from typer.core import TyperCommand, TyperGroup

EXAMPLE = "Example: "


class Command(TyperCommand):
    """A command whose help wraps at the terminal's width."""

    def __init__(self, name: str | None, *, help: str | None = None, **settings: Any) -> None:  # noqa: A002
        super().__init__(name, help=_flowing(help), **settings)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, as help shows and the parser reads them."""
        return _without_types_of_flags(super().get_params(ctx))


class Group(TyperGroup):
    """A group of commands whose help wraps at the terminal's width."""

    def __init__(self, *, help: str | None = None, **settings: Any) -> None:  # noqa: A002
        super().__init__(help=_flowing(help), **settings)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, as help shows and the parser reads them."""
        return _without_types_of_flags(super().get_params(ctx))


def _flowing(text: str | None) -> str:
    """Return the help with each paragraph on one line, for the terminal to wrap; examples keep their lines."""
    paragraphs = inspect.cleandoc(text or "").split("\n\n")
    return "\n\n".join(paragraph if paragraph.startswith(EXAMPLE) else paragraph.replace("\n", " ") for paragraph in paragraphs)


def _without_types_of_flags(parameters: list[Any]) -> list[Any]:
    """Remove the type of flags from the help: ``--json <bool>`` looks like an option that takes a value."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters
