"""Durations that were measured, and for what was not those of another model, scaled to what was."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.arguments import checked
from hetsched.arrays import FloatArray
from hetsched.costs.analytic import Analytic, class_of
from hetsched.costs.measurements import Network, Operator
from hetsched.costs.profile import Profile
from hetsched.errors import InvalidProblem
from hetsched.problem.cluster import Cluster, Device
from hetsched.problem.graph import TaskGraph
from hetsched.problem.problem import CostModel

SOURCES = ("measured", "line", "class", "model")
"""Where a duration is from: a measurement; the line through those of other batch sizes; the model, times the median ratio of its class
in the profile; the model alone."""


class Profiled:
    """A cost model for graphs of which a profile has some operators: measurements first, another model for the rest.

    The other model is multiplied by the median ratio of measurements to it, over the operators of the same class (see
    `hetsched.costs.Analytic`) on the same device.

    Parameters
    ----------
    profile : Profile
    otherwise : CostModel, optional
        Default: `Analytic`.
    network : Network, optional
        The digests of a graph that is not in the profile, from ``hetsched.runtime.network``. Tasks of graphs without digests are
        priced by the other model.

    Examples
    --------
    >>> import hetsched as hs
    >>> profile = hs.costs.Profile.from_arrays(["a"], ["x"], [1], [[[3.0]]])
    >>> graph = hs.TaskGraph(["a", "b"], flops=[1e9, 1e9])
    >>> device = hs.costs.device("v100", "x")
    >>> model = Profiled(profile, network=hs.costs.Network(graph, ("a", "?")))
    >>> model.sources(graph, hs.Cluster([device]), [1]).tolist()
    [['measured'], ['model']]
    """

    @checked(InvalidProblem)
    def __init__(self, profile: Profile, otherwise: CostModel | None = None, *, network: Network | None = None) -> None:
        self.profile, self.network = profile, network
        self.otherwise: CostModel = Analytic() if otherwise is None else otherwise

    def __repr__(self) -> str:
        return f"<Profiled: {self.profile!r}, otherwise {self.otherwise!r}>"

    @checked
    def durations(self, graph: TaskGraph, cluster: Cluster, batch_sizes: Sequence[int]) -> FloatArray:
        """Return seconds per batch, shape [task, device, size]; the errors are those of the other model."""
        return self._priced(graph, cluster, batch_sizes)[0]

    @checked
    def sources(self, graph: TaskGraph, cluster: Cluster, batch_sizes: Sequence[int]) -> npt.NDArray[np.object_]:
        """Return where the durations of each task are from, shape [task, device]: one of `SOURCES`, the weakest of its sizes."""
        worst = self._priced(graph, cluster, batch_sizes)[1].max(axis=2, initial=0)
        return np.asarray(np.array(SOURCES, dtype=object)[worst])

    def _priced(self, graph: TaskGraph, cluster: Cluster, batch_sizes: Sequence[int]) -> tuple[FloatArray, npt.NDArray[np.int64]]:
        """Return seconds, and the number of their source in `SOURCES`, [task, device, size] each."""
        seconds = np.array(self.otherwise.durations(graph, cluster, batch_sizes), np.float64)
        source = np.full(seconds.shape, SOURCES.index("model"))
        digests = self._digests(graph)
        kinds = [class_of(op, shape) for op, shape in zip(graph.op, graph.shape, strict=True)]
        for k, device in enumerate(cluster.devices):
            if device.name not in self.profile.names:
                continue
            ratios = self._ratios(device)
            scale = np.array([ratios.get(kind, np.nan) for kind in kinds])
            known = np.isfinite(scale)
            seconds[known, k] *= scale[known, None]
            source[known, k] = SOURCES.index("class")
            exact = self.profile.amounts("seconds", digests, [device.name], batch_sizes)[:, 0]
            lines = self.profile.on_lines("seconds", digests, [device.name], batch_sizes)[:, 0]
            for which, values in (("line", lines), ("measured", exact)):
                there = np.isfinite(values)
                seconds[:, k][there] = values[there]
                source[:, k][there] = SOURCES.index(which)
        return seconds, source

    def _digests(self, graph: TaskGraph) -> tuple[str, ...]:
        """Return the digest of each task, empty where it is not known."""
        networks = [*self.profile.networks, *([] if self.network is None else [self.network])]
        found = [network.digests for network in networks if network.graph == graph]
        return found[-1] if found else ("",) * graph.n_tasks

    def _ratios(self, device: Device) -> dict[str, float]:
        """Return the median of measured divided by modelled seconds, by class."""
        operators = [row for row in self.profile.operators if row.op]
        if not operators:
            return {}
        graph, sizes = _graph_of(operators), self.profile.batch_sizes
        measured = self.profile.amounts("seconds", [row.digest for row in operators], [device.name], sizes)[:, 0]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            modelled = self.otherwise.durations(graph, Cluster([device]), sizes)[:, 0]
        ratios: dict[str, list[Any]] = {}
        for row, own, model in zip(operators, measured, modelled, strict=True):
            there = np.isfinite(own) & (model > 0)
            ratios.setdefault(class_of(row.op, row.shape), []).extend((own[there] / model[there]).tolist())
        return {kind: float(np.median(own)) for kind, own in ratios.items() if own}


def _graph_of(operators: Sequence[Operator]) -> TaskGraph:
    """Return operators as tasks without edges."""
    return TaskGraph(
        [row.digest for row in operators],
        op=[row.op for row in operators],
        shape=[row.shape for row in operators],
        weight_bytes=[row.weight_bytes for row in operators],
        flops=[np.nan if row.flops is None else row.flops for row in operators],
        bytes_accessed=[np.nan if row.bytes_accessed is None else row.bytes_accessed for row in operators],
    )
