"""The published suite for every constructive method."""

from __future__ import annotations

from hetsched.search import Kind, select
from hetsched.testing import conformance

TestConstructive = conformance.suites(select(kind=Kind.CONSTRUCTIVE))
