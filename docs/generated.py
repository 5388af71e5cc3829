"""Write the generated parts of the site as Markdown, which pages include."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from hetsched import documents
from hetsched.cli.app import app
from hetsched.search import Kind, find_method, select

NAME = "hetsched"


def write(folder: Path) -> None:
    """Write every part into a folder."""
    for name, lines in (("terminal", terminal()), ("methods", method_table()), ("documents", document_kinds())):
        (folder / f"{name}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


# ---------------------------------------------------------------------- the terminal


def terminal() -> Iterator[str]:
    """Yield a section for each command with the text of `--help`."""
    yield from _commands(typer.main.get_command(app), NAME)


def _commands(command: Any, path: str) -> Iterator[str]:
    context = command.context_class(command, info_name=path)
    if path != NAME:
        yield from _command(command, context, path)
    for name in command.list_commands(context) if hasattr(command, "list_commands") else ():
        yield from _commands(command.get_command(context, name), f"{path} {name}")


def _command(command: Any, context: Any, path: str) -> Iterator[str]:
    said, _, example = inspect.cleandoc(command.help or "").partition("Example: ")
    yield from (f"## {path.removeprefix(f'{NAME} ')}", "", _text(said.strip()), "")
    if example:
        yield from ("```console", "$ " + re.sub(r"\[/?bold\]", "", example).strip(), "```", "")
    yield from ("```text", " ".join(["usage:", path, *command.collect_usage_pieces(context)]), "```", "")
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and parameter.name != "help":
            yield from (f"`{record[0].replace(' <str>', '').replace(' <path>', '')}`", f": {_text(record[1])}", "")


def _text(said: str) -> str:
    """Return plain text as Markdown, with text in square brackets at the end in italics."""
    said = re.sub(r"\s*\[([^\[\]]*)\]$", r" *(\1)*", said.replace("<", "&lt;"))
    return re.sub(r"(?<![\w-])(--[\w-]+)", r"`\1`", said)


# ---------------------------------------------------------------------- methods


def method_table() -> Iterator[str]:
    """Yield a table of the methods that `auto` runs, with their sources."""
    yield from ("| method | what it does | source |", "| --- | --- | --- |")
    for method in (find_method("auto"), *select(kind=Kind.CONSTRUCTIVE, auto=True)):
        options = ", ".join(f"`{option}={default!r}`" for option, default in method.options.items())
        yield f"| `{method.name}` | {method.summary}{f'; options: {options}' if options else ''} | {method.source} |"


# ---------------------------------------------------------------------- documents


def document_kinds() -> Iterator[str]:
    """Yield a section for each kind of document, with a list of fields for each of its parts."""
    told: set[str] = set()
    for kind in documents.KINDS:
        schema = documents.schema(kind.removeprefix(f"{NAME}-"))
        yield from (f"## {kind}", "")
        for title, part in schema["$defs"].items():
            if title not in told:
                told.add(title)
                yield from _part(title, part)


def _part(title: str, part: dict[str, Any]) -> Iterator[str]:
    yield from (f"### {title}", "", " ".join(part.get("description", "").split()), "")
    yield from ("| field | type | |", "| --- | --- | --- |")
    for name, field in part.get("properties", {}).items():
        optional = f"default `{json.dumps(field['default'])}`" if "default" in field else "optional"
        yield f"| `{name}` | {_type(field)} | {'required' if name in part.get('required', ()) else optional} |"
    yield ""


def _type(field: dict[str, Any]) -> str:
    """Return the type of a field in words."""
    if "enum" in field:
        return " or ".join(f"`{value}`" for value in field["enum"])
    if "$ref" in field:
        return f"[{field['$ref'].rpartition('/')[2]}](#{field['$ref'].rpartition('/')[2].lower()})"
    if "anyOf" in field:
        return " or ".join(map(_type, field["anyOf"]))
    if "prefixItems" in field:
        return f"[{', '.join(map(_type, field['prefixItems']))}]"
    if field.get("type") == "array":
        of = field.get("items")
        return f"list of ({_type(of)})" if of and "anyOf" in of else f"list of {_type(of)}" if of else "list"
    if field.get("type") == "object" and "additionalProperties" in field:
        return f"object of {_type(field['additionalProperties'])}"
    return str(field.get("type", "anything"))
