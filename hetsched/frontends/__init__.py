"""Frontends: task graphs, problems, and cards of models, from other descriptions of a computation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetsched.lazy import attach

if TYPE_CHECKING:
    from hetsched.frontends import (
        auckland,
        cards,
        configs,
        dagbench,
        dnn_partitioning,
        fjsp,
        gguf,
        huggingface,
        moirai,
        networkx,
        onnx,
        pyjobshop,
        saga,
        stg,
        torch,
        wfformat,
    )
    from hetsched.frontends.exchange import Imported, Reference
    from hetsched.frontends.formats import read, write

__all__ = [
    "Imported",
    "Reference",
    "auckland",
    "cards",
    "configs",
    "dagbench",
    "dnn_partitioning",
    "fjsp",
    "gguf",
    "huggingface",
    "moirai",
    "networkx",
    "onnx",
    "pyjobshop",
    "read",
    "saga",
    "stg",
    "torch",
    "wfformat",
    "write",
]

_HOMES = {
    "": [
        "auckland",
        "cards",
        "configs",
        "dagbench",
        "dnn_partitioning",
        "fjsp",
        "gguf",
        "huggingface",
        "moirai",
        "networkx",
        "onnx",
        "pyjobshop",
        "saga",
        "stg",
        "torch",
        "wfformat",
    ],
    "exchange": ["Imported", "Reference"],
    "formats": ["read", "write"],
}
__getattr__, __dir__ = attach(__name__, _HOMES)
