"""Keyword arguments of a call in Python, as some tools take a placement."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from hetsched.arguments import shown
from hetsched.errors import InvalidArgument


def keywords(text: str) -> dict[str, ast.expr]:
    """Return the keyword arguments of a call in Python, by name."""
    try:
        call = ast.parse(f"f({text})", mode="eval").body
    except (SyntaxError, ValueError, RecursionError):
        call = None
    if not isinstance(call, ast.Call) or call.args or any(word.arg is None for word in call.keywords):
        raise InvalidArgument(f"{shown(text)} are no keyword arguments of Python; give name=value, separated by commas")
    return {str(word.arg): word.value for word in call.keywords}


def literal(values: Mapping[str, ast.expr], name: str, kind: type) -> Any:
    """Return the value of a keyword argument, which has to be of a kind."""
    if name not in values:
        raise InvalidArgument(f"there is no {name}=; give it")
    try:
        value = ast.literal_eval(values[name])
    except (ValueError, TypeError, SyntaxError):
        value = None
    if not isinstance(value, kind):
        raise InvalidArgument(f"{name} is {shown(ast.unparse(values[name]))}; it must be a {kind.__name__} of plain values")
    return value
