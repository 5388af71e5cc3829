"""Lower bounds with proofs that a stranger can check, by `hetsched.checker`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetsched.lazy import attach

if TYPE_CHECKING:
    from hetsched.certificates.certificate import Certificate
    from hetsched.certificates.certifying import certify

__all__ = ["Certificate", "certify"]

_HOMES = {"certificate": ["Certificate"], "certifying": ["certify"]}
__getattr__, __dir__ = attach(__name__, _HOMES)
