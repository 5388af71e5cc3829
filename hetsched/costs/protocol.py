"""The contract of a cost model.

A cost model is any object with ``durations(graph, cluster, batch_sizes)`` that returns float64
seconds of shape [task, device, batch size]: element [i, k, b] is the time of ONE batch of
``batch_sizes[b]`` inputs of task i on device k, alone on the device, its inputs already there. It is
finite and >= 0, or NaN where the task cannot run on that device with that batch. Pins, co-location,
memory and transfers are not its business: ``Problem`` applies them. It must be a pure function of its
arguments, so that a problem can be made again from the same graph and cluster.

``hetsched.Problem(graph, cluster, costs=model)`` is the caller. Models that measure instead of
computing meet the same contract.

The cost of stages on one device is a `StageCost`, any callable ``cost(tasks, strategy)`` that returns the
seconds of one stage: a tuple of task names in topological order, ``"concurrent"`` or ``"merge"``; inf if it
cannot be done. ``hetsched.stages`` is its caller.
"""

from __future__ import annotations

from hetsched.problem.problem import CostModel
from hetsched.schedule.stages import StageCost

__all__ = ["CostModel", "StageCost"]
