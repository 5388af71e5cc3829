"""Names of modules in the names of tasks: ``"layers.3.norm/layer_norm"`` is a task of the module ``layers.3.norm``."""

from __future__ import annotations


def module_of(task: str) -> str:
    """Return the module of a task of a captured model: its name up to the last ``/``, or ``""`` if it is in none."""
    return task.rpartition("/")[0]


def ancestors(path: str) -> list[str]:
    """Return a module and those that it is in, the outermost first; without the model itself, ``""``."""
    words = path.split(".") if path else []
    return [".".join(words[: k + 1]) for k in range(len(words))]
