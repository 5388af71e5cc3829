"""Settings of hypothesis: the number of examples of a property, and their seed.

``dev`` and ``ci`` use the same examples every time, ``ci`` four times as many as ``dev``; ``thorough`` draws new ones,
ten times as many as ``ci``. A failure that it finds is pinned with ``@example``.
"""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, settings

USUAL = 100
"""Default number of examples of a property."""
LEAST = 5
"""The least number of examples in any profile, for properties that request at least as many."""


def register() -> None:
    """Register the profiles for `settings.load_profile` and pytest's ``--hypothesis-profile``."""
    # No deadline: the first example of a test may compile a kernel.
    base = settings(settings.get_profile("default"), deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
    for name, share in (("dev", 0.25), ("ci", 1.0)):
        settings.register_profile(name, base, max_examples=int(share * USUAL), derandomize=True)
    settings.register_profile("thorough", base, max_examples=10 * USUAL)


def examples(n: int, *suppressed: HealthCheck) -> settings:
    """Return settings with `n` examples, times the factor of the active profile.

    Parameters
    ----------
    n : int
        Number of examples in a profile with the default of 100.
    *suppressed : HealthCheck
        Further health checks of hypothesis to suppress.
    """
    # Several classes inherit a suite.
    left_out = [HealthCheck.differing_executors, HealthCheck.too_slow, *suppressed]
    tried = max(min(n, LEAST), n * settings().max_examples // USUAL)
    return settings(max_examples=tried, deadline=None, suppress_health_check=left_out)


def searching(n: int) -> settings:
    """Return settings to find one example among `n` in every profile, without shrinking it."""
    return settings(
        max_examples=n,
        database=None,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
