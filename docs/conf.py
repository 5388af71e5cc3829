"""Settings of the documentation site; `make docs` builds it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.domains.python import PyObject
from sphinx.util import logging

DOCS = Path(__file__).resolve().parent
MADE = DOCS / "_made"  # files that the build makes before it reads the pages; git ignores them
sys.path.insert(0, str(DOCS))

import generated  # noqa: E402  # after its folder is on the path
import notebooks  # noqa: E402
import run_pages  # noqa: E402

import hetsched  # noqa: E402

project = "hetsched"
author = "the hetsched developers"
version = release = hetsched.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["_build", "_made"]
highlight_language = "text"  # of blocks that name none
default_role = "code"  # `name` in a docstring; see _link

myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3
myst_links_external_new_tab = False

autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_type_aliases = {
    "npt.ArrayLike": "ArrayLike",
    "FloatArray": "FloatArray",
    "IntArray": "IntArray",
    "BoolArray": "BoolArray",
    "Communication": "Communication",
    "Batching": "Batching",
    "Memory": "Memory",
    "Edge": "Edge",
}
autosummary_generate = False  # a topic is one page
napoleon_google_docstring = False
napoleon_use_ivar = True  # attributes in a list, so that properties are not described twice
napoleon_use_rtype = False
python_maximum_signature_line_length = 88
python_display_short_literal_types = True
toc_object_entries_show_parents = "hide"
add_module_names = False

html_theme = "furo"
html_title = f"hetsched {version}"
html_static_path = ["_static"]
html_css_files = ["hetsched.css"]
html_extra_path = ["_made/site"]
html_show_sourcelink = False
html_show_copyright = False
html_copy_source = False
pygments_style, pygments_dark_style = "friendly", "monokai"
copybutton_prompt_text = "$ "
copybutton_exclude = ".linenos, .gp, .go"

# Targets of `name` in docstrings; most other names there are parameters.
LINKS = {name: f"hetsched.{name}" for name in hetsched.__all__ if name[0].isupper()} | {
    **{name: f"hetsched.{name}" for name in ("read", "simulate", "solve", "verify")},
    "Columns": "hetsched.arrays.Columns",
    "Roofline": "hetsched.costs.Roofline",
    "brute_force": "hetsched.testing.brute_force",
    "gantt": "hetsched.report.gantt",
    "html": "hetsched.report.html",
}


def _link(_app: Sphinx, what: str, _name: str, _object: object, _options: object, lines: list[str]) -> None:
    """Make links from the names in a docstring that are in `LINKS`, and from no others."""

    def linked(match: re.Match[str]) -> str:
        return f":py:obj:`{match[1]} <{LINKS[match[1]]}>`" if match[1] in LINKS else match[0]

    kind = next((line for line in lines if line.startswith(":type: ")), None)
    if kind is not None and what in ("attribute", "data", "property"):  # napoleon takes what stands before a colon for a type
        lines.remove(kind)
        lines[0] = f"{kind.removeprefix(':type: ')}: {lines[0]}"
    for number, line in enumerate(lines):
        field = re.match(r":(type|ivar|vartype) ([^:]*): ?", line)
        if field is not None:
            role, names, rest = field[1], field[2].replace(" ", "\u200b"), line[field.end() :]  # a space would end the names
            if role != "ivar":  # Sphinx would link any word of a plain type
                marked = re.sub(r"(?<![`.])\b([A-Z]\w+)", linked, rest)
                rest = f"*{rest}*" if marked == rest and "`" not in rest else marked
            line = f":{role} {names}: {rest}"
        lines[number] = re.sub(r"(?<![`:\w])`(\w+)`(?!`)", linked, line)


def _plain_aliases(
    _app: Sphinx, _what: str, _name: str, _object: object, _options: object, signature: str | None, result: str | None
) -> tuple[str | None, str | None]:
    """Write the aliases of a union by their names: Sphinx shows the object that stands for them."""
    return tuple(text and re.sub(r"TypeAliasForwardRef\('([\w.]+)'\)", r"\1", text) for text in (signature, result))  # type: ignore[return-value]


def _check_prose() -> None:
    """Warn of numbers without a source, which ends the build."""
    for page in (DOCS.parent / "README.md", *sorted(DOCS.rglob("*.md"))):
        for line, number in run_pages.from_nowhere(page) if MADE not in page.parents else ():
            logging.getLogger(__name__).warning(f"{number!r} {run_pages.RULE}", location=f"{page}:{line}")


def _run_pages_with_pictures() -> None:
    """Run each page whose pictures are shown, and copy its reports to the folder that the site links to."""
    for page in sorted(DOCS.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        name = page.relative_to(DOCS).with_suffix("")
        if MADE in page.parents or not run_pages.runs_something(text) or f"_made/{name}/" not in text:
            continue
        folder = MADE / name
        done = subprocess.run(
            [sys.executable, str(DOCS / "run_pages.py"), str(page), str(folder)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{page} cannot be run: {done.stderr}")
        for report in folder.glob("*.html"):
            target = MADE / "site" / name / report.name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(report.read_bytes())


def setup(app: Sphinx) -> None:
    """Make the included files before Sphinx reads pages and pictures."""
    MADE.joinpath("site").mkdir(parents=True, exist_ok=True)
    generated.write(MADE)
    notebooks.write(DOCS / "gallery", MADE / "site" / "gallery")
    _check_prose()
    _run_pages_with_pictures()
    app.connect("autodoc-process-docstring", _link)
    app.connect("autodoc-process-signature", _plain_aliases)
    for field in PyObject.doc_field_types:
        if field.name == "variable":
            field.label = "Attributes"  # as the docstrings call them
