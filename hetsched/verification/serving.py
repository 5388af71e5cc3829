"""The independent check of placements for serving."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy.typing as npt

from hetsched.arguments import check_array, checked
from hetsched.chain.serving import ServingPlacement, ServingProblem
from hetsched.verification.facts import TOLERANCE
from hetsched.verification.verify import Violation

SERVING_RULES = {
    "devices": "each device of the problem has an interval (amount: intervals too many or missing)",
    "range": "an interval has items of the chain only, its end is not before its first (amount: items)",
    "held": "a device has a throughput above 0 for as many items as it holds (amount: items)",
    "transfer": "a transfer is a number from 0 (amount: tokens per second)",
    "meeting": "tokens go from a device only to one whose interval begins where its own ends (amount: tokens per second)",
    "conservation": "as many tokens enter a device as leave it (amount: tokens per second)",
    "device-limit": "a device passes on at most its throughput for as many items (amount: tokens per second over)",
    "link-limit": "a link carries at most its limit (amount: tokens per second over)",
    "throughput": "the stated throughput is what enters from outside (amount: tokens per second off)",
}
"""The rules of `verify_serving`, in order, with the unit of ``Violation.amount``."""


@checked
def verify_serving(
    problem: ServingProblem, placement: ServingPlacement, transfers: npt.ArrayLike | None = None, *, throughput: float | None = None
) -> list[Violation]:
    """Return every violation of the rules of serving; an empty list if placement and transfers are valid.

    It shares no code with the search or the flow. Tokens per second are compared with a tolerance of 1e-9, relative to what enters from
    outside.

    Parameters
    ----------
    problem : ServingProblem
    placement : ServingPlacement
    transfers : array_like [m + 1, m + 1], optional
        Tokens per second from device to device, see `ServingFlow`. Without it only the intervals are checked.
    throughput : float, optional
        Stated tokens per second. None checks nothing.
    """
    first, end, m = placement.first.tolist(), placement.end.tolist(), sum(problem.counts.tolist())
    if len(first) != m:
        return [Violation("devices", f"there are {len(first)} intervals for {m} devices", float(abs(len(first) - m)))]
    found = list(_intervals(problem, first, end))
    if transfers is not None and not found:
        found += _flow(problem, first, end, check_array(transfers, "transfers", (m + 1, m + 1)).tolist(), throughput)
    return found


def _table(problem: ServingProblem, device: int) -> list[float]:
    """Return the throughput of a device by the number of items, from 0 on."""
    kinds = [k for k, count in enumerate(problem.counts.tolist()) for _ in range(count)]
    row: list[float] = problem.throughput[kinds[device]].tolist()
    return [0.0, *row]


def _intervals(problem: ServingProblem, first: list[int], end: list[int]) -> Iterator[Violation]:
    for d, (begin, stop) in enumerate(zip(first, end, strict=True)):
        where = f"device {d} holds the items from {begin} to before {stop}"
        outside = max(-begin, 0) + max(stop - problem.n_items, 0) + max(begin - stop, 0)
        if outside:
            yield Violation("range", f"{where}; the chain has {problem.n_items}", float(outside))
            continue
        table = _table(problem, d)
        if stop > begin and (stop - begin >= len(table) or table[stop - begin] == 0):
            yield Violation("held", f"{where}; it cannot hold {stop - begin}", float(stop - begin))


def _flow(
    problem: ServingProblem, first: list[int], end: list[int], transfers: list[list[float]], stated: float | None
) -> Iterator[Violation]:
    m, n = len(first), problem.n_items
    names = [*(f"device {d}" for d in range(m)), "the outside"]
    begins, ends = [*first, n], [*end, 0]  # the outside takes tokens at the end, and gives them at the start
    held = [*(stop > begin for begin, stop in zip(first, end, strict=True)), True]
    entering = sum(transfers[m])
    tolerance = TOLERANCE * abs(entering)
    for a in range(m + 1):
        for b in range(m + 1):
            amount, limit = transfers[a][b], float(problem.links[a, b])
            link = f"from {names[a]} to {names[b]} go {amount:.9g} tokens/s"
            if not 0 <= amount < math.inf:
                yield Violation("transfer", link, math.inf if math.isnan(amount) else abs(amount))
            elif amount > 0 and not (held[a] and held[b] and ends[a] == begins[b] and (a, b) != (m, m)):
                yield Violation("meeting", f"{link}, but their intervals do not meet", amount)
            elif amount > limit + tolerance:
                yield Violation("link-limit", f"{link}, {amount - limit:.9g} more than the link carries", amount - limit)
    for d in range(m):
        into, out = sum(row[d] for row in transfers), sum(transfers[d])
        if not abs(into - out) <= tolerance:
            message = f"{into:.9g} tokens/s enter device {d}, {out:.9g} leave it"
            yield Violation("conservation", message, math.inf if math.isnan(into - out) else abs(into - out))
        most = _table(problem, d)[end[d] - first[d]]
        if into > most + tolerance:
            yield Violation("device-limit", f"device {d} passes on {into:.9g} tokens/s; it can {most:.9g}", into - most)
    if stated is not None and not abs(stated - entering) <= tolerance:
        off = math.inf if math.isnan(stated) else abs(stated - entering)
        yield Violation("throughput", f"the stated throughput is {stated:.12g} tokens/s, that of the transfers {entering:.12g}", off)
