"""Random cases of each run: their number, their seed, and the case that failed."""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterator

import numpy as np
import pytest

from tests.conftest import END, SEED


class Cases:
    """Random number generators, one per case, until the number of cases or the time limit is reached.

    Case x of a seed does not depend on the number of cases.
    """

    def __init__(self, count: int, seed: int, end: float) -> None:
        self.count, self.seed, self.end = count, seed, end
        self.number = 0  # of the current case

    def __iter__(self) -> Iterator[np.random.Generator]:
        for number in range(self.count):
            if time.monotonic() > self.end:
                return
            self.number = number
            yield np.random.default_rng([self.seed, number])


@pytest.fixture
def cases(request: pytest.FixtureRequest) -> Cases:
    """Return the cases of the test's mark, ``@pytest.mark.thorough(cases=1000)``, or HETSCHED_THOROUGH_COUNT of them."""
    mark = request.node.get_closest_marker("thorough")
    count = os.environ.get("HETSCHED_THOROUGH_COUNT", mark.kwargs["cases"])
    return Cases(int(count), int(os.environ[SEED]), request.config.stash[END])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the number of the failed case to the report."""
    report = yield
    if report.failed and isinstance(cases := getattr(item, "funcargs", {}).get("cases"), Cases):
        report.sections.append(("drawn", f"case {cases.number} of {SEED}={cases.seed}"))
    return report
