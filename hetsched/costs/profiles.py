"""Profiles that ship with the package: the measured seconds of the shipped networks' tasks on one device each.

These commands, which need torch, make them again in `hetsched/costs/documents` of a checkout: one of what `benchmarks/gpu.py` measured,
the other on a machine that does nothing else::

    python ../../../benchmarks/gpu.py --quick --tables ../../../benchmarks/results/gpu-h100.jsonl --profile h100.json
    hetsched profile hetsched.workloads.vision:googlenet --input 1,3,224,224 --devices core --batches 1,4 -o core.json
    hetsched profile hetsched.workloads.vision:inception_v3 --input 1,3,299,299 --devices core --batches 1,4 --add -o core.json
    gzip -n9 *.json

A task on a GPU is timed between two events, so that its seconds contain the wait of its kernels for their launch from Python.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

from hetsched import documents
from hetsched.arguments import checked
from hetsched.costs.profile import Profile
from hetsched.errors import InvalidProblem

DOCUMENTS = Path(__file__).parent / "documents"


def names() -> tuple[str, ...]:
    """Return the names of the shipped profiles, each of which is also that of its device."""
    return tuple(sorted(path.name.removesuffix(".json.gz") for path in DOCUMENTS.glob("*.json.gz")))


@checked
def load(name: str) -> Profile:
    """Return a shipped profile; its networks are those of `hetsched.workloads.networks`, and its devices say what was measured, and when.

    Raises
    ------
    InvalidProblem
        No profile of that name is shipped.

    Examples
    --------
    >>> import hetsched as hs
    >>> measured = load("h100").problem(1, graph=hs.workloads.networks.load("googlenet"))
    >>> measured.n_tasks, measured.cluster.names
    (139, ('h100',))
    """
    if name not in names():
        raise InvalidProblem(f"no profile {name!r} is shipped; choose one of {', '.join(names())}, or measure your own: hetsched profile")
    return cast("Profile", documents.load(DOCUMENTS / f"{name}.json.gz"))
