"""Adds claims to the registry of instances: published ones, and our own schedules, bounds and certificates.

    python benchmarks/registry.py [--data FOLDER] [--time-limit SECONDS] [--registry FOLDER] [FAMILY ...]

An instance gets a claim only if it is better than those of its trust. The files of the instances are not in the repository.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import hashlib
import importlib.metadata
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import figures
import msgspec
import numpy as np
from instances import DATA, arabnejad, topcuoglu

import hetsched as hs
from hetsched.instances.claims import claim_of, evidence_of
from hetsched.instances.files import FOLDERS, digest, problem_of
from hetsched.instances.registry import TRUST, Claim, Family, Instance

FAMILIES_FOLDER = Path(hs.__file__).parent / "instances" / "families"
SHOPS = "https://raw.githubusercontent.com/ScheduleOpt/benchmarks/e5e62a01023ff827f658255b793fd1b86e5c1707/flexible-jobshop/instances/json"
BIRGIN = "Birgin, Feofiloff, Fernandes, de Melo, Oshiro, Ronconi 2014: flexible job shops whose jobs are graphs"
CITATIONS = {
    "dafjs": BIRGIN,
    "yfjs": BIRGIN,
    "mk": "Brandimarte 1993: flexible job shops",
    "kacem": "Kacem, Hammadi, Borne 2002: flexible job shops",
    "fattahi": "Fattahi, Saidi Mehrabad, Jolai 2007: flexible job shops",
}
LARGEST = 200_000
"""The most bytes of a certificate that comes with the package."""
US = f"hetsched {hs.__version__}"


def main(words: Sequence[str] | None = None) -> None:
    """Make and improve the documents of the registry."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", metavar="FAMILY", help="default: all")
    parser.add_argument("--data", type=Path, default=DATA, help="folder with fjsp/ and stg/")
    parser.add_argument("--time-limit", type=float, default=20.0, help="seconds for each of the schedule, the bound and the certificate")
    parser.add_argument("--registry", type=Path, default=FAMILIES_FOLDER, help="folder of the documents")
    arguments = parser.parse_args(words)
    os.environ[FOLDERS] = os.pathsep.join(str(arguments.data / folder) for folder in ("fjsp", "stg"))
    arguments.registry.mkdir(parents=True, exist_ok=True)
    for fresh in made(arguments.data, arguments.registry):
        if arguments.families and fresh.name not in arguments.families:
            continue
        path = arguments.registry / f"{fresh.name}.json"
        old = {one.name: one for one in hs.read(path).instances} if path.exists() else {}
        improved: list[Instance] = []
        for instance in fresh.instances:
            known = old.get(instance.name)
            claims = list(known.claims) if known else []
            said = {_said(claim) for claim in claims}
            claims += [claim for claim in instance.claims if _said(claim) not in said]
            improved.append(better(msgspec.structs.replace(instance, claims=claims), arguments.time_limit))
            print(f"{instance.name}: {improved[-1].status}, {[(c.kind, c.value, c.trust) for c in improved[-1].claims]}", flush=True)
            rest = [old.get(one.name, one) for one in fresh.instances[len(improved) :]]
            Family(fresh.name, fresh.citation, fresh.licence, fresh.attribution, (*improved, *rest)).write(path)
    if arguments.registry == FAMILIES_FOLDER:
        write_page()


def _said(claim: Claim) -> tuple[str, ...]:
    """Return a claim without its date, the day on which it is entered, and without its evidence."""
    return claim.kind, claim.value, claim.trust, claim.by


def _today() -> datetime.date:
    return datetime.datetime.now(datetime.UTC).date()


def write_page() -> None:
    """Write the tables of the page of instances."""
    page = figures.DOCS / "instances.md"
    page.write_text(figures.replaced(page, "instances", hs.instances.page(FAMILIES_FOLDER)))


def made(data: Path, registry: Path) -> Iterator[Family]:
    """Yield the families with their published claims."""
    papers = []
    for name, problem in (("topcuoglu2002", topcuoglu()), ("arabnejad2014", arabnejad())):
        path = registry / "problems" / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        problem.write(path)
        papers.append(instance_of(name, path, f"problems/{path.name}", "hetsched"))
    yield Family("examples", "Worked examples of papers on list scheduling", "facts of the papers", "the papers named", tuple(papers))
    if (data / "fjsp").is_dir():
        with open(data / "fjsp" / "reference.csv") as file:
            rows = list(csv.DictReader(file))
        for family, citation in CITATIONS.items():
            own = [row for row in rows if row["instance"].rstrip("0123456789") == family]
            shops = tuple(shop(data / "fjsp" / f"{row['instance']}.json", row) for row in own)
            yield Family(family, citation, "CC-BY-SA-4.0", "ScheduleOpt/benchmarks", shops)
    if (data / "stg").is_dir():
        with open(data / "stg" / "reference.csv") as file:
            graphs = tuple(graph(data / "stg" / row["file"], int(row["processors"])) for row in csv.DictReader(file))
        yield Family("stg", "Tobita, Kasahara 2002: Standard Task Graph Set", "all rights reserved", "Kasahara Laboratory", graphs)


def instance_of(name: str, path: Path, file: str, reader: str, source: str = "", claims: Iterable[Claim] = (), **options: Any) -> Instance:
    """Return the instance of a file."""
    problem = hs.frontends.read(path, reader, **options).problem
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    return Instance(name, reader, file, sha256, digest(problem), problem.n_tasks, problem.n_devices, source, options, list(claims))


def shop(path: Path, row: dict[str, str]) -> Instance:
    """Return a flexible job shop, with the bounds that the library of its files states."""
    claims = []
    if row["source"] == "ScheduleOpt bks.json":
        claims = [Claim(kind, row[kind], "published", row["source"], _today()) for kind in ("lower", "upper")]
    return instance_of(path.stem, path, path.name, "fjsp", f"{SHOPS}/{path.name}", claims)


def graph(path: Path, processors: int) -> Instance:
    """Return a task graph of the Standard Task Graph Set on a number of processors."""
    size, _, name = path.stem.partition("-")
    return instance_of(f"stg-{size}-{name}-p{processors}", path, f"{size}/{name}.stg", "stg", processors=processors)


def better(instance: Instance, time_limit: float) -> Instance:
    """Return the instance with better claims of ours: a schedule, a bound, a solver's bound, a certificate."""
    problem = problem_of(instance)
    claims = list(instance.claims)

    grounds = list(TRUST)

    def add(claim: Claim) -> None:
        sign = 1 if claim.kind == "lower" else -1
        same = [c for c in claims if c.kind == claim.kind and grounds.index(c.trust) >= grounds.index(claim.trust)]
        if all(sign * (claim.seconds - other.seconds) > 0 for other in same):
            claims.append(claim)

    solution = hs.solve(problem, "auto", time_limit=time_limit)
    if solution.schedule is not None:
        add(claim_of(instance, "upper", evidence_of(solution.schedule.decision), US))
    whole = bool((problem.durations[np.isfinite(problem.durations)] % 1 == 0).all()) and not problem.graph.edge_bytes.any()
    own = hs.bound(problem, time_limit=time_limit)
    add(Claim("lower", _below(own.value, whole), own.trust, f"{US}, {own.name}", _today()))
    outside = hs.solve(problem, "cpsat", time_limit=time_limit, start=solution)
    run = {"solver": "CP-SAT", "version": importlib.metadata.version("ortools"), "seconds": time_limit, "seed": 0}
    add(Claim("lower", _below(outside.bound, whole), "solver", US, _today(), run))
    best = min(claim.seconds for claim in claims if claim.kind == "upper")
    certificate = hs.certify(problem, float(best), time_limit=time_limit) or hs.certify(problem, time_limit=time_limit)
    if certificate is not None and len(hs.documents.encode(certificate)) <= LARGEST:
        add(claim_of(instance, "lower", msgspec.json.decode(hs.documents.encode(certificate)), US))
    return msgspec.structs.replace(instance, claims=claims)


def _below(value: float, whole: bool) -> str:
    """Return a bound as an exact fraction: rounded up to a whole number where all makespans are whole."""
    return str(math.ceil(value * (1 - 1e-9))) if whole else str(Fraction(value * (1 - 1e-9)))


if __name__ == "__main__":
    main()
