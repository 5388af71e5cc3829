"""Every method of one pass through the published suite."""

from __future__ import annotations

from hetsched.search import Kind, select
from hetsched.testing import conformance

TestConstructive = conformance.suites(select(kind=Kind.CONSTRUCTIVE))
