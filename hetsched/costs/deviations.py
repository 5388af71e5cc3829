"""Deviations of estimates from measurements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
import numpy.typing as npt

from hetsched.arguments import check_array, checked, number
from hetsched.arrays import Columns
from hetsched.errors import InvalidArgument

WITHIN = (0.05, 0.1, 0.2, 0.3)
"""Thresholds of the printed distribution."""


class Deviations(Columns):
    """Relative deviations ``|estimated - actual| / actual``, one row for each measurement.

    Columns: `task` and `device` by name, `batch_size`, `estimated` and `actual` in seconds or bytes, `deviation`. Rows in
    which both are 0 are omitted. ``str`` has the means and the distribution.

    References
    ----------
    Celeritas, section 6.3 (estimation accuracy), its Table 5 and Figure 5.
    """

    @classmethod
    @checked
    def between(
        cls, tasks: Sequence[str], devices: Sequence[str], batch_sizes: npt.ArrayLike, estimated: npt.ArrayLike, actual: npt.ArrayLike
    ) -> Self:
        """Return the deviations of columns of one length."""
        rows = (len(tasks),)
        guess, measurements = check_array(estimated, "estimated", rows), check_array(actual, "actual", rows)
        sizes = check_array(batch_sizes, "batch_sizes", rows, np.int64)
        if len(devices) != len(tasks):
            raise InvalidArgument(f"devices has {len(devices)} names; give as many as tasks, {len(tasks)}")
        counts = (guess != 0) | (measurements != 0)
        with np.errstate(divide="ignore"):
            deviation = np.abs(guess - measurements)[counts] / measurements[counts]
        return cls(
            task=np.array(tasks, np.str_)[counts],
            device=np.array(devices, np.str_)[counts],
            batch_size=sizes[counts],
            estimated=guess[counts],
            actual=measurements[counts],
            deviation=deviation,
        )

    @property
    def mean(self) -> float:
        """The mean deviation, as in Celeritas' Table 5; NaN without rows."""
        return float(self.deviation.mean()) if len(self) else float("nan")

    @property
    def weighted_mean(self) -> float:
        """The mean weighted by the measurements: the sum of the errors divided by the sum of the actual amounts."""
        total = float(self.actual.sum())
        return float(np.abs(self.estimated - self.actual).sum()) / total if total else float("nan")

    @checked(share=number(0, 1))
    def quantile(self, share: float) -> float:
        """Return the deviation that a share of the rows does not exceed."""
        return float(np.quantile(self.deviation, share)) if len(self) else float("nan")

    @checked
    def within(self, most: float) -> float:
        """Return the share of the rows whose deviation is at most `most`."""
        return float((self.deviation <= most).mean()) if len(self) else float("nan")

    def __str__(self) -> str:
        if not len(self):
            return "no deviations: nothing was measured"
        shares = ", ".join(f"{100 * self.within(most):.0f} % within {100 * most:.0f} %" for most in WITHIN)
        return (
            f"{len(self)} deviations: mean {100 * self.mean:.2f} %, weighted {100 * self.weighted_mean:.2f} %, "
            f"median {100 * self.quantile(0.5):.2f} %, 90 % up to {100 * self.quantile(0.9):.2f} %\n{shares}"
        )
