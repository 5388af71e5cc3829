"""Names of a package that are imported at first use."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Homes = Mapping[str, Sequence[str]]
"""Public names by the module of the package that defines them; those of "" are modules of the package themselves."""


def attach(
    package: str, homes: Homes, *, extras: Mapping[str, str] | None = None
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package whose names are imported at first use.

    Parameters
    ----------
    package : str
        Its ``__name__``.
    homes : mapping of str to sequence of str
        Module of the package -> the names it defines; "" -> modules of the package.
    extras : mapping of str to str
        Optional library -> the extra of hetsched that installs it. If the library is missing, the use of a name raises
        `MissingDependency`.
    """
    home = {name: f"{package}.{module}" if module else "" for module, names in homes.items() for name in names}

    def load(name: str) -> object:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            module = importlib.import_module(home[name] or f"{package}.{name}")
        except ModuleNotFoundError as error:
            if error.name is None or extras is None or error.name not in extras:
                raise
            from hetsched.errors import MissingDependency  # here, to keep `import hetsched` fast

            raise MissingDependency(error.name, extras[error.name]) from error
        value: object = getattr(module, name) if home[name] else module
        setattr(sys.modules[package], name, value)  # for later uses
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home})

    return load, names


def later(where: str) -> Callable[..., Any]:
    """Return the function ``module:name``, which is imported when it is first called: for a class whose method is in a layer above it."""

    def call(*args: Any) -> Any:
        module, _, name = where.partition(":")
        return getattr(importlib.import_module(module), name)(*args)

    return call
