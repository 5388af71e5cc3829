"""The registry of instances: what is known of problems that others published, each figure with the ground on which it is believed."""

from __future__ import annotations

import datetime
import difflib
import functools
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

import msgspec

from hetsched import documents
from hetsched.arguments import checked, shown
from hetsched.arrays import Frozen
from hetsched.documents import VERSION, Document
from hetsched.errors import InvalidArgument, InvalidProblem
from hetsched.problem.graph import unique_names

Side: TypeAlias = Literal["lower", "upper"]
Trust: TypeAlias = Literal["published", "solver", "computed", "checked"]

TRUST: Mapping[Trust, str] = {
    "published": "someone says so",
    "solver": "a solver says so, of which the version and the options are known",
    "computed": "a bound of this package, without a certificate",
    "checked": "a schedule that was verified and timed exactly, or a certificate that the checker accepted",
}
"""The grounds of a claim, from the weakest to the strongest."""
SHIPPED = files("hetsched.instances") / "families"
"""The folder of the documents that come with the package."""


class Claim(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A bound on the makespan of an instance; claims are added, never changed."""

    kind: Side
    value: str
    """Seconds as an exact fraction: digits, or digits/digits."""
    trust: Trust
    by: str
    """Who says so: a program and its version, or a publication."""
    date: datetime.date
    evidence: dict[str, Any] | None = None
    """Of a checked claim the decision, or the certificate, as in a certificate's document; else what is known of the solver's run."""

    @property
    def seconds(self) -> Fraction:
        """The value."""
        return Fraction(self.value)


class Instance(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A problem of a registry, and what is claimed of it."""

    name: str
    reader: str
    """The format of the file, a key of `hetsched.frontends.FORMATS`."""
    file: str
    """The name of the file."""
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    """Of the file."""
    digest: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    """Of the problem, as a certificate states it."""
    tasks: int
    devices: int
    source: str = ""
    """Address of the file; empty if it comes with the package, or if one has to ask its owners for it."""
    options: dict[str, Any] = {}
    """Arguments of the reader."""
    claims: list[Claim] = []

    def best(self, kind: Side, trust: Trust | None = None) -> Claim | None:
        """Return the highest lower, or the lowest upper claim; with `trust`, of that trust. Of equal ones it is the most trusted.

        Raises
        ------
        InvalidArgument
            The kind or the trust is unknown.
        """
        for what, value, known in (("kind", kind, ("lower", "upper")), ("trust", trust, (None, *TRUST))):
            if value not in known:
                raise InvalidArgument(f"{what} is {shown(value)}; it must be one of {', '.join(map(repr, known))}")
        grounds, sign = list(TRUST), 1 if kind == "lower" else -1
        found = [claim for claim in self.claims if claim.kind == kind and trust in (None, claim.trust)]
        return max(found, key=lambda claim: (sign * claim.seconds, grounds.index(claim.trust)), default=None)

    @property
    def status(self) -> Literal["optimal", "closed", "open", "contradictory"]:
        """Whether the best claims meet: "optimal" if both are checked, "closed" if another's word is needed.

        They are "contradictory" if a bound is above a makespan, of which neither is checked.
        """
        lower, upper = self.best("lower"), self.best("upper")
        if lower is None or upper is None or lower.seconds < upper.seconds:
            return "open"
        if lower.seconds > upper.seconds:
            return "contradictory"
        return "optimal" if lower.trust == upper.trust == "checked" else "closed"

    @property
    def gap(self) -> float:
        """The relative gap of the best claims, (upper - lower) / upper; NaN if one of them is missing."""
        lower, upper = self.best("lower"), self.best("upper")
        if lower is None or upper is None:
            return float("nan")
        return float((upper.seconds - lower.seconds) / upper.seconds) if upper.seconds else 0.0


@checked(InvalidProblem)
@dataclass(frozen=True, eq=False)
class Family(Frozen):
    """Instances of one origin.

    Attributes
    ----------
    name : str
    citation, licence, attribution : str
        The publication, the terms of the files, and whom they ask to name.
    instances : tuple of Instance

    Raises
    ------
    InvalidProblem
        Two instances have one name, or claims contradict each other.
    """

    _format: ClassVar[str] = "hetsched-registry"

    name: str
    citation: str
    licence: str
    attribution: str
    instances: tuple[Instance, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        unique_names([instance.name for instance in self.instances], "instance")
        for instance in self.instances:
            check_consistent(instance)

    @checked
    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the family as a JSON document; ``hetsched.read`` reads it back."""
        documents.write(self, path)


class FamilyDocument(Document[Family], kw_only=True, tag="hetsched-registry"):
    """A family of a registry of instances."""

    keys_once = True
    family: str
    citation: str
    licence: str
    attribution: str
    instances: list[Instance]

    @classmethod
    def of(cls, value: Family) -> Self:
        """Return the document of a family."""
        about = {name: getattr(value, name) for name in ("citation", "licence", "attribution")}
        return cls(version=VERSION, family=value.name, instances=list(value.instances), **about)

    def value(self) -> Family:
        """Return the family."""
        return Family(self.family, self.citation, self.licence, self.attribution, tuple(self.instances))


def check_consistent(instance: Instance) -> None:
    """Raise `InvalidProblem` if a checked claim refutes another one; one of the two is wrong."""
    for claim in instance.claims:
        _exact(claim.value, instance.name)
    for proven in (claim for claim in instance.claims if claim.trust == "checked"):
        for other in instance.claims:
            lower, upper = (proven, other) if proven.kind == "lower" else (other, proven)
            if other.kind != proven.kind and lower.seconds > upper.seconds:
                verdict = "was checked, too, and one is wrong" if other.trust == "checked" else "is wrong"
                raise InvalidProblem(
                    f"instance {instance.name!r}: the lower bound {lower.value} of {lower.by!r} is above {upper.value} of {upper.by!r}, "
                    f"and the {proven.kind} one was checked; the {other.kind} one {verdict}: find out why"
                )


def _exact(value: str, name: str) -> None:
    if re.fullmatch(r"[0-9]{1,80}(/[0-9]{1,80})?", value) is None or value.endswith("/0"):
        raise InvalidProblem(f"instance {name!r} has the claim {shown(value)}; it must be an exact fraction: digits, or digits/digits")


# ---------------------------------------------------------------------- what is shipped


@functools.cache
def _shipped() -> dict[str, Family]:
    paths = sorted((path for path in SHIPPED.iterdir() if path.name.endswith(".json")), key=lambda path: path.name)
    read = (documents.decode(path.read_bytes(), name=path.name) for path in paths)
    return {family.name: family for family in read}


@checked
def families(path: str | os.PathLike[str] | None = None) -> dict[str, Family]:
    """Return families by name: those that come with the package, or those of the documents in a folder."""
    if path is None:
        return dict(_shipped())
    read = (documents.read(file) for file in sorted(Path(path).glob("*.json")))
    return {family.name: family for family in read if isinstance(family, Family)}


@checked
def names(family: str | None = None) -> list[str]:
    """Return the names of the instances, of one family or of all.

    Raises
    ------
    InvalidArgument
        There is no such family.
    """
    known = _shipped()
    if family is not None and family not in known:
        raise InvalidArgument(f"there is no family {family!r} of instances; choose from {', '.join(known)}")
    return [instance.name for own in known.values() if family in (None, own.name) for instance in own.instances]


@checked
def entry(name: str) -> Instance:
    """Return an instance by its name.

    Raises
    ------
    InvalidArgument
        There is no such instance; the message has names that are close.
    """
    return found(name)[1]


def found(name: str) -> tuple[Family, Instance]:
    """Return an instance and its family."""
    for family in _shipped().values():
        for instance in family.instances:
            if instance.name == name:
                return family, instance
    close = difflib.get_close_matches(name, names(), 5) or names()[:5]
    raise InvalidArgument(f"there is no instance {name!r}; close are {', '.join(close)}; `hetsched instances list` has all")
