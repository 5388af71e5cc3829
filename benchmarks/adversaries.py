"""The worst ratios to the optimum that a search finds for each list scheduler, in six families of small problems.

    python benchmarks/adversaries.py [--quick] [--evaluations N] [--seeds N] [--jobs N] [--save FOLDER] [--registry] [METHOD ...]

Each ratio is exact: the optimum was proven by branch and bound. They are lower bounds of the worst case in the family, not the worst case.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import figures
import msgspec
import registry

from hetsched import documents
from hetsched.instances.claims import claim_of, evidence_of
from hetsched.search import Kind, always, registered
from hetsched.testing import Adversary, Family, adversary

REGION = "adversaries"
FAMILIES = {
    f"{kind}, {'communication' if communication else 'none'}": Family(kind=kind, communication=communication)
    for kind in ("identical", "related", "unrelated")
    for communication in (False, True)
}


class Job(NamedTuple):
    """A search: one scheduler, one family, one seed."""

    method: str
    family: str
    seed: int
    evaluations: int


def schedulers() -> list[str]:
    """Return the methods of one pass for one input, in the order of the package's own use."""
    found = [method for method in registered().values() if method.kind is Kind.CONSTRUCTIVE and method.auto and method.auto.when is always]
    return [method.name for method in sorted(found, key=lambda method: method.turn)]


def run(job: Job) -> Adversary:
    """Search."""
    return adversary(job.method, FAMILIES[job.family], evaluations=job.evaluations, seed=job.seed)


def main(words: Sequence[str] | None = None) -> None:
    """Search for the worst problems and publish the table."""
    parser = figures.parser(__doc__)
    parser.add_argument("methods", nargs="*", metavar="METHOD", help="default: all list schedulers")
    parser.add_argument("--evaluations", type=int, default=20_000, help="problems given to a scheduler in one search")
    parser.add_argument("--seeds", type=int, default=5, help="searches of each scheduler in each family")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--save", type=Path, help="folder to write the worst problems to, with both schedules")
    parser.add_argument("--registry", action="store_true", help="make the family of the registry of the worst problems")
    arguments = figures.parse(parser, words, region=REGION)
    evaluations, seeds = (50, 1) if arguments.quick else (arguments.evaluations, arguments.seeds)
    methods = arguments.methods or schedulers()
    jobs = [Job(method, family, seed, evaluations) for method in methods for family in FAMILIES for seed in range(seeds)]
    worst: dict[tuple[str, str], Adversary] = {}
    with ProcessPoolExecutor(arguments.jobs) as pool:
        for job, found in zip(jobs, pool.map(run, jobs), strict=True):
            print(f"{job.method}, {job.family}, seed {job.seed}: {found.ratio} = {float(found.ratio):.3f}", flush=True)
            place = job.method, job.family
            worst[place] = max(worst.get(place, found), found, key=lambda one: one.ratio)
    rows = [[f"`{method}`", *(_shown(worst[method, family]) for family in FAMILIES)] for method in methods]
    text = f"Taken on: {figures.machine()}; {seeds} searches of {evaluations:,} problems each.\n\n" + figures.table(
        ["scheduler", *FAMILIES], rows
    )
    figures.publish(arguments, REGION, text, {f"{m}, {f}": str(found.ratio) for (m, f), found in worst.items()})
    if arguments.save is not None:
        arguments.save.mkdir(parents=True, exist_ok=True)
        for (method, family), found in worst.items():
            name = f"{method}-{family.replace(', ', '-')}"
            for kind, part in (("problem", found.problem), ("schedule", found.schedule), ("optimal", found.optimal)):
                part.write(arguments.save / f"{name}.{kind}.json")
    if arguments.registry:
        register(worst, f"{evaluations:,} problems a search, {seeds} for each scheduler and kind of devices")


def register(worst: Mapping[tuple[str, str], Adversary], searches: str) -> None:
    """Write the family of the worst problems: for each the schedule of the method, a shortest one, and the proof that it is."""
    made = []
    for (method, family), found in worst.items():
        if found.ratio == 1:
            continue
        kind, communication = family.split(", ")
        name = "-".join(["adversarial", method, kind, *([communication] if communication != "none" else [])])
        path = registry.FAMILIES_FOLDER / "problems" / f"{name}.json"
        found.problem.write(path)
        instance = registry.instance_of(name, path, f"problems/{path.name}", "hetsched")
        assert found.certificate is not None, f"{name} has no certificate"
        claims = [
            claim_of(instance, "upper", evidence_of(found.schedule.decision), f"{registry.US}, {method}"),
            claim_of(instance, "upper", evidence_of(found.optimal.decision), registry.US),
            claim_of(instance, "lower", msgspec.json.decode(documents.encode(found.certificate)), registry.US),
        ]
        assert claims[0].seconds / claims[2].seconds == found.ratio
        made.append(msgspec.structs.replace(instance, claims=claims))
    limits = Family()
    about = (
        f"Problems on which list schedulers are far from the optimum, found by hetsched.testing.adversary: at most {limits.tasks} tasks "
        f"on {limits.devices} devices, whole times up to {limits.largest} s; {searches}"
    )
    own = registry.Family("adversarial", about, "that of hetsched", "hetsched", tuple(made))
    own.write(registry.FAMILIES_FOLDER / "adversarial.json")
    registry.write_page()


def _shown(found: Adversary) -> str:
    return f"{float(found.ratio):.2f} ({found.problem.n_tasks})"


if __name__ == "__main__":
    main()
