"""Published instances and their values, shared by tests."""

from __future__ import annotations

import numpy as np
from instances import arabnejad, topcuoglu

__all__ = ["UPWARD_RANKS", "arabnejad", "topcuoglu"]

UPWARD_RANKS = np.array([108, 77, 80, 80, 69, 190 / 3, 128 / 3, 107 / 3, 133 / 3, 44 / 3])
"""HEFT's upward ranks on `topcuoglu`, table 3 of the paper."""
