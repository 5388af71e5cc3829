"""Settings of a solve."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hetsched.arguments import checked
from hetsched.errors import UnsupportedFeature
from hetsched.stopping import NEVER, Deadline


@checked(UnsupportedFeature)
@dataclass(frozen=True)
class SolveSettings:
    """Settings of a solver; raises `UnsupportedFeature` for an invalid gap."""

    deadline: Deadline = NEVER
    """The end of the solve, kept to half a second."""
    gap: float = 0.0
    """Relative gap at which to stop."""
    threads: int | None = None
    """None for the solver's own choice."""
    seed: int = 0
    cuts: bool = True
    """Whether redundant rows and propagators are used."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of the solver by name."""

    def __post_init__(self) -> None:
        if not isinstance(self.gap, int | float) or not 0 <= self.gap < math.inf:
            raise UnsupportedFeature(f"gap is {self.gap!r}; it must be a number from 0 on, 0.01 for one per cent")
