"""The contract of a cost model.

A cost model is any object with ``durations(graph, cluster, batch_sizes)`` that returns float64
seconds of shape [task, device, batch size]: element [i, k, b] is the time of ONE batch of
``batch_sizes[b]`` inputs of task i on device k, alone on the device, its inputs already there. It is
finite and >= 0, or NaN where the task cannot run on that device with that batch. Pins, co-location,
memory and transfers are not its business: ``Problem`` applies them. It must be a pure function of its
arguments, so that a problem can be made again from the same graph and cluster.

``hetsched.Problem(graph, cluster, costs=model)`` is the caller. Models that measure instead of
computing meet the same contract.
"""

from __future__ import annotations

from hetsched.problem.problem import CostModel

__all__ = ["CostModel"]
