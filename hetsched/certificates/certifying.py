"""Certificates of lower bounds: a claim is refuted by the kernels, and the proof written down for the checker."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from hetsched import checker
from hetsched.arguments import checked, number
from hetsched.certificates.certificate import Certificate, Lemma
from hetsched.certificates.relaxation import Relaxation, Window
from hetsched.certificates.series import releases
from hetsched.certificates.tree import MOST_ORDERED, closing, prove, view_of
from hetsched.errors import OutOfTime, UnsupportedFeature
from hetsched.problem.problem import Problem
from hetsched.stopping import Deadline
from hetsched.version import __version__

PRECISION = 5e-7
"""Relative precision of a bound without branching, below the gap at which a schedule is optimal."""
SMALL = 12
"""The most tasks that are certified as a whole, even if they are modules in series."""
SHARE = 0.5
"""Share of the time left in which a claim is looked for; the rest is for its proof."""
PROOF = 2 / 3
"""Share of the time for all that precedes the check, which takes no longer than it took to write the proof down."""


@checked(claim=number(least=0.0), time_limit=number(above=0.0))
def certify(problem: Problem, claim: float | None = None, *, time_limit: float = 60.0) -> Certificate | None:
    """Return a proof, which a stranger can check, that no schedule of a problem is shorter than a claim.

    The proof refutes all schedules of one input without contention that are shorter (and counts all inputs in loads and memory before
    it branches), so with several inputs, contention or peak memory the best claim may be below the optimum. Any source of the claim
    will do, the makespan of a solution for instance: it is proven anew, by branch and bound, and then checked.

    Parameters
    ----------
    problem : Problem
    claim : float, optional
        Seconds, for instance the makespan of a solution thought optimal; inf for a proof that there is no schedule. The certificate
        claims at least this if all times are multiples of one unit, else up to a relative 1e-9 less, which rounding costs. Default:
        the largest claim that is found and proven.
    time_limit : float
        Seconds for the proof and its check.

    Returns
    -------
    Certificate or None
        None if the claim is wrong, or not proven and checked in the time. Without a claim there is a certificate, if only of the
        longest path, unless there are no tasks.

    Raises
    ------
    UnsupportedFeature
        The problem is beyond the limits of the checker.
    """
    end = Deadline.after(time_limit)
    deadline = end.part(PROOF)
    try:
        if excess := too_large(problem):
            raise checker.Malformed(excess)
        relaxation = Relaxation(problem, claim or 0.0)
    except checker.Malformed as error:
        raise UnsupportedFeature(f"the checker does not take the problem: {error}; make it smaller, or use hetsched.bound") from None
    if not relaxation.n:
        return None
    whole = Window(relaxation)
    made: Certificate | None = None
    at_once = claim is not None and closing(whole, whole.root(relaxation.claim(claim)), deadline, root=True) is not None
    if relaxation.n > SMALL and not at_once:
        lemmas, rest = releases(relaxation, deadline.part(SHARE))
        if lemmas:
            made = _certificate(Window(relaxation, rest), claim, deadline, lemmas)
        relaxation.heads.clear()
    coupled = problem.inputs > 1 or problem.n_units < problem.n_tasks or bool(np.isfinite(relaxation.room).any())
    if made is None or (claim is None and coupled):
        other = _certificate(whole, claim, deadline, [])
        made = max((found for found in (other, made) if found is not None), key=lambda found: found.value, default=None)
    try:
        if made is not None:
            made.check(problem, time_limit=end.limit)
    except OutOfTime:
        if claim is not None:
            return None
        made = _certificate(whole, math.nextafter(float(_longest_path(whole) * relaxation.unit), 0.0), deadline, [])
        if made is not None:
            made.check(problem)
    return made


def too_large(problem: Problem) -> str:
    """Return which number of a problem is beyond the limits of the checker, which says so only once it has read a document; or ""."""
    for what, count, most in (
        ("tasks", problem.n_tasks, checker.MOST_TASKS),
        ("devices", problem.n_devices, checker.MOST_DEVICES),
        ("inputs", problem.inputs, checker.MOST_INPUTS),
    ):
        if count > most:
            return f"the number of {what} is {count}; it must be at most {most}"
    return ""


def _certificate(window: Window, claim: float | None, deadline: Deadline, lemmas: list[Lemma]) -> Certificate | None:
    """Return a certificate of a claim, or of the largest that is found, whose last lemma is over a window."""
    relaxation = window.relaxation
    for end in _ends(window, deadline) if claim is None else [relaxation.claim(claim)]:
        share = 1.0 if claim is not None else SHARE / 4 if end >= checker.INFINITE else SHARE
        tree = prove(window, end, deadline.part(share))
        if tree is not None:
            exact = None if end >= checker.INFINITE else end * relaxation.unit
            last = Lemma(("makespan",), tuple(tree), None if window.given is None else tuple(window.given))
            made_by = f"hetsched {__version__}"
            return Certificate(relaxation.problem.digest(), relaxation.unit, exact, (*lemmas, last), made_by=made_by)
    return None


def _ends(window: Window, deadline: Deadline) -> Iterator[int]:
    """Yield claims in units, the largest first; the last is the longest path, whose proof is a leaf."""
    relaxation = window.relaxation
    root = window.root(checker.INFINITE)
    if root.contradiction or np.isfinite(relaxation.room).any() or np.isinf(relaxation.lag).any():
        yield checker.INFINITE
    path = _longest_path(window)
    low = _without_branching(window, path, deadline.part(SHARE))
    if len(window.tasks) <= MOST_ORDERED:
        yield from sorted({end for end in window.targets(deadline.part(SHARE)) if end > low}, reverse=True)
    yield from (low, path)


def _longest_path(window: Window) -> int:
    view = view_of(window, window.root(checker.INFINITE))
    return int((view.start + view.least + view.tail).min(axis=1).max())


def _without_branching(window: Window, low: int, deadline: Deadline) -> int:
    """Return the largest claim found that hints alone prove, by galloping and bisection from one that is proven."""

    def refuted(end: int) -> bool:
        return not deadline.over and closing(window, window.root(end), deadline, root=True) is not None

    fine = max(1, math.ceil(PRECISION * low))
    if not refuted(low + fine):
        return low
    step = fine
    while refuted(low + step):
        low, step = low + step, 2 * step
    high = low + step
    while high - low > fine and not deadline.over:
        middle = (low + high) // 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low
