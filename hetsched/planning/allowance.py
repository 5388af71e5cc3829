"""How much work solves take, and how much of it is allowed."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hetsched.chain.problem import ChainProblem
from hetsched.errors import OutOfTime
from hetsched.planning.sensitivity import Problems
from hetsched.planning.tables import Tables

CAPS = 10
"""About how many caps on overlapped times are tried."""
SEARCH = 1e6
"""Steps of the search for offloaded items that do not depend on their number."""
NEAR = 5e7
"""Steps of a local search with its bound, about half a second."""
PROBLEM, LEVEL = 2e5, 1e4
"""Steps that each problem takes beside those of the states, and each group on each level of them."""


class OutOfWork(OutOfTime):
    """As much work as was allowed is done."""


@dataclass
class Allowance:
    """Steps of dynamic programs, of about 10 ns, that are left."""

    left: float = math.inf

    def take(self, steps: float) -> None:
        """Take some; raises `OutOfWork` if fewer are left, and then none are."""
        self.left = self.left - steps if steps <= self.left else -1.0
        if self.left < 0:
            raise OutOfWork(f"the allowance has fewer than {steps:g} steps left; allow more work")


def solve_work(problems: Problems, *, latency: bool) -> float:
    """Return about how many steps a solve takes: of the dynamic program, for several caps where times overlap, and of its problems."""
    tables = Tables(problems[0])
    states = (0.6 * tables.n_states * problems[0].n_items + LEVEL * (problems[0].n_devices + 1)) * len(tables.size)
    solves = CAPS if problems[-1].overlapped_seconds.any() else 1 if latency else 2
    return PROBLEM * len(problems) + states * solves + sum(map(_search_work, problems))


def _search_work(problem: ChainProblem) -> float:
    if problem.offloading is None:
        return 0.0
    from hetsched.planning.offloading import work  # with kernels

    return SEARCH + work(problem)
