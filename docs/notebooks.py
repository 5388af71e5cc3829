"""Write the pages of the gallery as notebooks, with the outputs that the pages show."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from run_pages import FENCE, Block, blocks

_DOC = re.compile(r"\{doc\}`(?:\.\./)?([\w/]+)`")
_PICTURE = re.compile(r"^!\[[^\]]*\]\([^)]*_made[^)]*\)\n", re.MULTILINE)


def write(pages: Path, folder: Path) -> None:
    """Write each page of a folder but its index to another folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for page in sorted(set(pages.glob("*.md")) - {pages / "index.md"}):
        nbformat.write(notebook(page.read_text(encoding="utf-8")), folder / f"{page.stem}.ipynb")


def notebook(text: str) -> nbformat.NotebookNode:
    """Return the notebook of a page; pictures are left out, for a cell that draws one shows it."""
    made = new_notebook(cells=list(_cells(text)))
    made.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    for number, cell in enumerate(made.cells):
        cell["id"] = f"cell-{number}"  # the same in each build
    nbformat.validate(made)
    return made


def _cells(text: str) -> Iterator[nbformat.NotebookNode]:
    begin, cell = 0, None
    for fence in FENCE.finditer(text):
        yield from _prose(text[begin : fence.start()])
        (block,) = blocks(fence[0])
        if block.language == "text" and cell is not None:
            cell.outputs.append(new_output("stream", text=block.text))
        else:
            cell = new_code_cell(_code(block))
            yield cell
        begin = fence.end()
    yield from _prose(text[begin:])


def _code(block: Block) -> str:
    if block.language == "file":
        return f"%%writefile {block.name}\n{block.text}".rstrip()
    if block.language == "console":
        return re.sub(r"^\$ ", "!", block.text, flags=re.MULTILINE).rstrip()
    return block.text.rstrip()


def _prose(text: str) -> Iterator[nbformat.NotebookNode]:
    said = _DOC.sub(r"*\1* in the documentation", _PICTURE.sub("", text)).strip()
    if said:
        yield new_markdown_cell(said)
