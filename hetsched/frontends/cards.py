"""The card of a model from whatever file it is in."""

from __future__ import annotations

import json
import os
from pathlib import Path

from hetsched import documents
from hetsched.arguments import checked
from hetsched.chain.card import ModelCard
from hetsched.errors import InvalidProblem, MissingDependency, UnsupportedFeature
from hetsched.frontends import configs, gguf


@checked
def read(path: str | os.PathLike[str], *, bits: float | None = None) -> ModelCard:
    """Return the card of a model from a GGUF file, a Hugging Face directory or its ``config.json``, or the document of a card.

    That of a family without a formula is made by its class in ``transformers``, without memory for weights.

    Parameters
    ----------
    path : path
    bits : float, optional
        Bits of each weight, in place of what is stored. Default: the stored bytes.

    Raises
    ------
    InvalidProblem
        The file is none of these, or breaks a rule of its kind.
    UnsupportedFeature
        The family of a ``config.json`` has no formula, and ``transformers`` or ``torch`` is not installed, or makes no chain of it.
    MissingDependency
        A GGUF file needs the package ``gguf``.
    """
    file = Path(path)
    if file.suffix.lower() == ".gguf":
        card = gguf.read(file)
    elif file.is_dir() and not (file / "config.json").exists():
        found = sorted(file.glob("*.gguf"))
        if not found:
            raise InvalidProblem(f"{file} has neither a config.json nor a GGUF file; give the directory or the file of a model")
        card = gguf.read(found[0])
    elif _is_card(file):
        value = documents.read(file)
        assert isinstance(value, ModelCard)
        card = value
    else:
        try:
            return configs.read(file, bits=bits)
        except UnsupportedFeature as error:
            card = _by_class(file, error)
    return card if bits is None else card.scaled(bits / card.bits)


def _by_class(file: Path, unknown: UnsupportedFeature) -> ModelCard:
    """Return the card by the class of a family in ``transformers``, for which there is no formula."""
    from hetsched.frontends import huggingface

    try:
        return huggingface.card(file)
    except MissingDependency as error:
        raise UnsupportedFeature(f"{unknown}; {error}") from error


def _is_card(file: Path) -> bool:
    """Return whether a file is the document of a card."""
    if not file.is_file():
        return False
    try:
        value = json.loads(file.read_bytes())
    except ValueError:
        return False
    return isinstance(value, dict) and value.get("format") == ModelCard._format
