"""Settings of hypothesis: on how many examples a property is tried, and on which.

``dev`` and ``ci`` try the same examples every time, ``ci`` four times as many; ``thorough`` draws anew, ten times
as many as ``ci``. What it finds is pinned with ``@example``.
"""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, settings

USUAL = 100
"""Examples of a property that names no number, where no profile says otherwise."""
LEAST = 5
"""No profile tries fewer, where a property asks for as many."""


def register() -> None:
    """Register the profiles; `settings.load_profile` or pytest's ``--hypothesis-profile`` takes one."""
    # No deadline: the first example of a test may compile a kernel.
    base = settings(settings.get_profile("default"), deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
    for name, share in (("dev", 0.25), ("ci", 1.0)):
        settings.register_profile(name, base, max_examples=int(share * USUAL), derandomize=True)
    settings.register_profile("thorough", base, max_examples=10 * USUAL)


def examples(n: int, *suppressed: HealthCheck) -> settings:
    """Return the settings of a property that is tried on `n` examples, or on as many times that as the profile says.

    Parameters
    ----------
    n : int
        Examples where a property that names no number gets 100, as it does without a profile.
    *suppressed : HealthCheck
        Further checks of hypothesis to leave out.
    """
    # Suites are inherited by one class a method, on purpose.
    left_out = [HealthCheck.differing_executors, HealthCheck.too_slow, *suppressed]
    tried = max(min(n, LEAST), n * settings().max_examples // USUAL)
    return settings(max_examples=tried, deadline=None, suppress_health_check=left_out)


def searching(n: int) -> settings:
    """Return settings to look for one example among `n` whatever the profile is, without making it small."""
    return settings(
        max_examples=n,
        database=None,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
