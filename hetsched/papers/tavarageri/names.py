"""What the items name in their cases: graphs, clusters, costs; and the parameters of the paper's method."""

from __future__ import annotations

CLUSTERS = {"4 V100": ("v100", "v100", "v100", "v100"), "2 V100, 2 T4": ("v100", "v100", "t4", "t4")}
EQUAL = "4 V100"
GRAPHS = ("holography", "inception_v3", "transformer", "nmt")
"""Training steps; those of Celeritas, for this paper names none."""
QUICK = GRAPHS[:1]
ROOFLINE, OPERATIONS = "roofline", "operations"
"""Durations as a step runs here, and as the paper's compiler models them."""
EXPENSIVE = 0.95
"""The expensive tasks have this share of the work of all stateless ones."""
SLACK = 0.1
"""The paper's threshold of balance, a parameter without a value there, as a share of the ideal load."""
PASSES = 50
"""The most passes; fewer are needed unless they go round in circles."""
