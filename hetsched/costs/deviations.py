"""How far estimates are from what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
import numpy.typing as npt

from hetsched.arguments import check_array, checked, number
from hetsched.arrays import Columns
from hetsched.errors import InvalidArgument

WITHIN = (0.05, 0.1, 0.2, 0.3)
"""Deviations up to which `Deviations` is printed."""


class Deviations(Columns):
    """Relative deviations ``|estimated - actual| / actual``, one row for each measurement.

    Columns: `task` and `device` by name, `batch_size`, `estimated` and `actual` in seconds or bytes, `deviation`. What takes
    nothing, and was estimated to, is left out. Printed, it gives the means and the distribution.

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
        guess, found = check_array(estimated, "estimated", rows), check_array(actual, "actual", rows)
        sizes = check_array(batch_sizes, "batch_sizes", rows, np.int64)
        if len(devices) != len(tasks):
            raise InvalidArgument(f"devices has {len(devices)} names; give as many as tasks, {len(tasks)}")
        counts = (guess != 0) | (found != 0)
        with np.errstate(divide="ignore"):
            deviation = np.abs(guess - found)[counts] / found[counts]
        return cls(
            task=np.array(tasks, np.str_)[counts],
            device=np.array(devices, np.str_)[counts],
            batch_size=sizes[counts],
            estimated=guess[counts],
            actual=found[counts],
            deviation=deviation,
        )

    @property
    def mean(self) -> float:
        """The average deviation, as in Celeritas' Table 5; NaN of nothing."""
        return float(self.deviation.mean()) if len(self) else float("nan")

    @property
    def weighted_mean(self) -> float:
        """The average weighted by what was measured: the sum of the errors over the sum of the actual amounts."""
        total = float(self.actual.sum())
        return float(np.abs(self.estimated - self.actual).sum()) / total if total else float("nan")

    @checked(share=number(0, 1))
    def quantile(self, share: float) -> float:
        """Return the deviation that this share of the rows does not exceed."""
        return float(np.quantile(self.deviation, share)) if len(self) else float("nan")

    @checked
    def within(self, most: float) -> float:
        """Return the share of the rows that deviate by no more than this."""
        return float((self.deviation <= most).mean()) if len(self) else float("nan")

    def __str__(self) -> str:
        if not len(self):
            return "no deviations: nothing was measured"
        shares = ", ".join(f"{100 * self.within(most):.0f} % within {100 * most:.0f} %" for most in WITHIN)
        return (
            f"{len(self)} deviations: mean {100 * self.mean:.2f} %, weighted {100 * self.weighted_mean:.2f} %, "
            f"median {100 * self.quantile(0.5):.2f} %, 90 % up to {100 * self.quantile(0.9):.2f} %\n{shares}"
        )
