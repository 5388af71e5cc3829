"""The models, clusters and problems of the paper."""

from __future__ import annotations

import dataclasses
import functools
import importlib
from typing import NamedTuple

from hetsched.coarsening.fusion_rules import fuse
from hetsched.costs.roofline import Roofline
from hetsched.papers.models import calls
from hetsched.problem.cluster import Cluster
from hetsched.problem.graph import TaskGraph
from hetsched.problem.problem import Problem
from hetsched.workloads import clusters


class Printed(NamedTuple):
    """Numbers of operators in Table IV; placement times in Table V as printed: HRL, m-SCT, GETF, Moirai, then on the coarsened graph."""

    original: int
    coarsened: int
    seconds: tuple[str, ...]


PRINTED = {
    "swin 1.8B": Printed(6496, 5204, ("4 h", "17.63 s", "2 min", "2.15 min", "4 h", "15.24 s", "1.58 min", "1.64 min")),
    "swin 6.6B": Printed(14352, 11512, ("5 h", "64.32 s", "12.4 min", "13.28 min", "4.8 h", "58.57 s", "9.72 min", "10.51 min")),
    "swin 13B": Printed(22120, 17947, ("5 h", "148.25 s", "19.75 min", "22.54 min", "5 h", "142.9 s", "14.95 min", "15.46 min")),
    "gpt3 330M": Printed(4872, 3682, ("3.5 h", "15.92 s", "1.25 min", "1.38 min", "3 h", "14.4 s", "58.04 s", "1.04 min")),
    "gpt3 1.3B": Printed(9480, 7308, ("4 h", "39.82 s", "8.65 min", "9.02 min", "3.85 h", "37.39 s", "5.29 min", "6.88 min")),
    "gpt3 2.7B": Printed(12640, 9825, ("5 h", "54.17 s", "10.82 min", "11.48 min", "4.75 h", "51.52 s", "7.84 min", "8.51 min")),
    "gpt3 13B": Printed(19640, 15283, ("5.5 h", "125.53 s", "15.7 min", "16.5 min", "5 h", "117.48 s", "10.92 min", "11.07 min")),
    "alphafold2 87M": Printed(5136, 3618, ("3.5 h", "20.18 s", "1.78 min", "1.9 min", "3.3 h", "18.62 s", "1.24 min", "1.38 min")),
    "alphafold2 930M": Printed(12992, 9252, ("5 h", "56.62 s", "11.05 min", "12.87 min", "4.82 h", "53.71 s", "7.95 min", "8.75 min")),
    "alphafold2 2.4B": Printed(37920, 26824, ("5.75 h", "226.34 s", "22.5 min", "23.91 min", "5 h", "215.48 s", "17.92 min", "18.02 min")),
    "alphafold2 3.2B": Printed(50560, 35096, ("7 h", "507.65 s", "35.75 min", "38.42 min", "6.5 h", "485.35 s", "21.5 min", "22.18 min")),
}
"""The models by name: kind and size."""
CLUSTERS = {"inter": "moirai_inter", "intra": "moirai_intra"}
GRAPHS = ("original", "fused")
COSTS = Roofline("float16")


def kind(model: str) -> str:
    """Return the kind of a model: swin, gpt3 or alphafold2."""
    return model.split()[0]


@functools.cache
def graph(model: str) -> TaskGraph:
    """Return one call of a model in float16: an image of 1100 x 1100, 2048 tokens, or 128 sequences of 128 residues."""
    torch = importlib.import_module("torch")
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float16)  # a module converted afterwards would be made in full
    try:
        return calls()[model].capture()
    finally:
        torch.set_default_dtype(default)


def cluster(name: str) -> Cluster:
    """Return a cluster of Table III; a device without fast arithmetic in half precision has its rate in float32."""
    printed = clusters.load(CLUSTERS[name])
    devices = [
        dataclasses.replace(device, peak_flops={"float16": device.peak_flops["float32"], **device.peak_flops}) for device in printed.devices
    ]
    return Cluster(devices, bandwidth=printed.bandwidth, latency=printed.latency)


@functools.lru_cache(2)
def whole(model: str, where: str, which: str) -> Problem:
    """Return the problem of the original or fused graph with the bytes of all activations."""
    problem = Problem(graph(model), cluster(where), costs=COSTS, communication="port", memory="static")
    return problem if which == "original" else fuse(problem, costs=COSTS).coarse


def placing(problem: Problem) -> Problem:
    """Return the problem with the parameters of operators as their memory, equation (4d)."""
    nothing = [0.0] * problem.n_tasks
    return problem.replace(graph=problem.graph.replace(input_bytes=nothing, output_bytes=nothing))
