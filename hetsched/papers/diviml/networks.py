"""The networks of Figures 3 and 5: torchvision's where it is installed, else those that are shipped."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Sequence
from pathlib import Path

import hetsched as hs
from hetsched.papers.diviml import solving, stacks
from hetsched.papers.items import Case, Row
from hetsched.problem.graph import TaskGraph

PIXELS = {"alexnet": 224, "vgg16": 224, "resnet50": 224, "densenet121": 224, "googlenet": 224, "inception_v3": 299}
"""Height and width of the images of torchvision's networks."""
SHIPPED = ("googlenet", "inception_v3")
CHAINS = ("alexnet", "vgg16", "resnet50")
"""Networks with little or no parallelism."""
GAINS = {"inception_v3": 1.0, "googlenet": 1.5}
"""What the paper says that MILP and MILP-SPLIT gain over the best device: more than this share (V-B)."""


def available() -> list[str]:
    """Return the names of the networks that can be had here."""
    return list(PIXELS) if importlib.util.find_spec("torchvision") else list(SHIPPED)


def possible(case: Case) -> bool:
    """Return whether the network of a case, which may be a module, can be had here."""
    return case["network"] not in PIXELS or case["network"] in available()


def missing(rows: Sequence[Row]) -> list[str]:
    """Return a paragraph on the networks that were not measured, and cannot be had here."""
    known = {*available(), *(row["network"] for row in rows)}
    lacking = [name for name in PIXELS if name not in known]
    return [f"Not measured, for they need torchvision (pip install torchvision): {', '.join(lacking)}."] if lacking else []


@functools.cache
def graph(name: str) -> TaskGraph:
    """Return the task graph of a network; an input is an image."""
    if name in SHIPPED:
        return hs.workloads.networks.load(name)
    import torch
    from torchvision import models

    from hetsched.frontends.torch import capture

    images = torch.empty(1, 3, PIXELS[name], PIXELS[name], device="meta")
    return capture(lambda: models.get_model(name, weights=None).eval(), images)


def problem(name: str, inputs: int) -> hs.Problem:
    """Return a network with some images on the paper's CPU, T4 and A100."""
    cluster, costs = hs.workloads.clusters.diviml(), hs.costs.Analytic()
    return hs.Problem(graph(name), cluster, costs=costs, inputs=inputs, batch_sizes=stacks.quarters(inputs))


def measure(case: Case, data: Path | None) -> Row:
    """Solve a network by one method."""
    return solving.solved(problem(case["network"], case["inputs"]), case)
