"""Instances that others published, with what is claimed of them and why it is believed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetsched.lazy import attach

if TYPE_CHECKING:
    from hetsched.instances.claims import claim_of, failures
    from hetsched.instances.files import load
    from hetsched.instances.registry import TRUST, Claim, Family, Instance, entry, families, names
    from hetsched.instances.tables import page

__all__ = ["TRUST", "Claim", "Family", "Instance", "claim_of", "entry", "failures", "families", "load", "names", "page"]

_HOMES = {
    "claims": ["claim_of", "failures"],
    "files": ["load"],
    "registry": ["TRUST", "Claim", "Family", "Instance", "entry", "families", "names"],
    "tables": ["page"],
}
__getattr__, __dir__ = attach(__name__, _HOMES)
