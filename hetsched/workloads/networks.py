"""Task graphs of GoogLeNet and Inception-v3 that ship with the package.

These commands, which need torch, capture them again in the root of a checkout::

    hetsched capture hetsched.workloads.vision:googlenet --input 1,3,224,224 -o hetsched/workloads/documents/googlenet.json
    hetsched capture hetsched.workloads.vision:inception_v3 --input 1,3,299,299 -o hetsched/workloads/documents/inception_v3.json
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

from hetsched import documents
from hetsched.arguments import checked
from hetsched.errors import InvalidProblem
from hetsched.problem.graph import TaskGraph

if TYPE_CHECKING:
    from torch import nn

DOCUMENTS = Path(__file__).parent / "documents"

IMAGE = {"googlenet": 224, "inception_v3": 299}
"""Height and width of the images for which the shipped graphs were captured."""


def names() -> tuple[str, ...]:
    """Return the names of the shipped networks."""
    return tuple(IMAGE)


@checked
def load(name: str) -> TaskGraph:
    """Return the task graph of a shipped network on float32 images; an input is one image, and torch is not needed.

    Raises
    ------
    InvalidProblem
        No network of that name is shipped.
    """
    return cast("TaskGraph", documents.load(DOCUMENTS / f"{_known(name)}.json"))


@checked
def module(name: str) -> nn.Module:
    """Return a shipped network as a PyTorch module in eval mode, with random weights; see `load`."""
    from hetsched.workloads import vision

    made: nn.Module = getattr(vision, _known(name))()
    return made


def _known(name: str) -> str:
    if name not in IMAGE:
        raise InvalidProblem(f"no network {name!r} is shipped; choose one of {', '.join(IMAGE)}, or capture your own")
    return name
