"""Every public callable: those of the reference pages, of `hetsched.__all__` and of the modules' `__all__`."""

from __future__ import annotations

import enum
import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import hetsched as hs

REFERENCE = Path(__file__).resolve().parents[1] / "docs" / "reference"
_DIRECTIVE = re.compile(r"^\.\. auto(module|class|function):: ([\w.]+)", re.MULTILINE)
HOOKS = ("add_to", "canonical", "fill")
"""Methods of components that are called by formulations, not by users."""
_OPTION = re.compile(r"^ +:([\w-]+): ?(.*)$")


class Door(NamedTuple):
    """A public function, constructor or method."""

    name: str
    """Dotted, below ``hetsched``."""
    owner: type | None
    """The class of a method that needs an instance."""
    function: Callable[..., Any]
    """The callable; for such a method, the unbound function."""

    @property
    def parameters(self) -> list[inspect.Parameter]:
        """The parameters, without self."""
        parameters_of_function = list(inspect.signature(self.function).parameters.values())
        return parameters_of_function[1:] if self.owner else parameters_of_function


def doors() -> list[Door]:
    """Return all public callables without duplicates, sorted by name."""
    by_name: dict[str, Door] = {}
    seen: set[object] = set()
    documented = list(_documented())
    names = {name for name, _, _ in documented}
    for name, value, left_out in [*documented, *(row for row in _listed() if row[0] not in names)]:
        for door in _of(name, value, left_out):
            key = (door.owner, door.function)
            hook = door.owner is not None and issubclass(door.owner, hs.models.Component) and door.function.__name__ in HOOKS
            if key not in seen and not hook:
                seen.add(key)
                by_name[door.name] = door
    return sorted(by_name.values())


def _documented() -> Iterator[tuple[str, Any, frozenset[str]]]:
    """Yield the name and value of each directive of the pages, and the members that it excludes."""
    for page in sorted(REFERENCE.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        for match in _DIRECTIVE.finditer(text):
            kind, name = match[1], match[2].removeprefix("hetsched.")
            lines = text[match.end() :].splitlines()[1:]
            options: dict[str, str] = {}
            for line in lines:
                option = _OPTION.match(line)
                if option is None:
                    break
                options[option[1]] = option[2]
            left_out = frozenset(re.findall(r"\w+", options.get("exclude-members", "")))
            value = _resolve(name)
            if kind == "class" and options.get("members"):
                chosen = re.findall(r"\w+", options["members"])
                left_out |= {member for member in dir(value) if member not in chosen}
            if kind != "module":
                yield name, value, left_out
            elif "no-members" not in options:
                chosen = re.findall(r"\w+", options.get("members", "")) or getattr(value, "__all__", None) or _own(value)
                yield from ((f"{name}.{key}", getattr(value, key), left_out) for key in chosen if key not in left_out)


def _listed() -> Iterator[tuple[str, Any, frozenset[str]]]:
    for module in (
        "",
        "costs",
        "report",
        "workloads",
        "models",
        "modeling",
        "frontends.torch",
        "coarsening",
        "documents",
        "experiments",
        "runtime",
        "testing",
    ):
        home = _resolve(module)
        for name in home.__all__:
            value = getattr(home, name)
            if not inspect.ismodule(value):
                yield f"{module}.{name}".strip("."), value, frozenset()


def _own(module: Any) -> list[str]:
    return [name for name, value in vars(module).items() if name[0] != "_" and getattr(value, "__module__", "") == module.__name__]


def _resolve(name: str) -> Any:
    value: Any = hs
    for part in name.split(".") if name else []:
        if not hasattr(value, part):
            importlib.import_module(f"{value.__name__}.{part}")
        value = getattr(value, part)
    return value


def _of(name: str, value: Any, left_out: frozenset[str]) -> Iterator[Door]:
    if not inspect.isclass(value):
        if callable(value):
            yield Door(name, None, value)
        return
    if getattr(value, "_is_protocol", False) or issubclass(value, enum.Enum | hs.HetschedError):
        return
    if value.__init__ is not object.__init__ or value.__new__ is not object.__new__:
        yield Door(name, None, value)
    for member in dir(value):
        if member in left_out or (member.startswith("_") and member != "__call__"):
            continue
        home = next(base for base in value.__mro__ if member in vars(base))
        given = vars(home)[member]
        if not home.__module__.startswith("hetsched") or (
            not isinstance(given, staticmethod | classmethod) and not inspect.isfunction(given)
        ):
            continue
        if isinstance(given, staticmethod | classmethod):
            yield Door(f"{name}.{member}", None, getattr(value, member))
        else:
            yield Door(f"{name}.{member}", value, given)
