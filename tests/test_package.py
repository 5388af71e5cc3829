"""The files of the installed package, and its metadata."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.resources import files
from pathlib import Path

import pytest
import yaml

import hetsched

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_every_public_name_resolves() -> None:
    for name in hetsched.__all__:
        assert getattr(hetsched, name) is not None
    assert set(hetsched.__all__) <= set(dir(hetsched))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'frobnicate'"):
        hetsched.frobnicate  # noqa: B018


def test_the_package_is_typed_and_carries_its_documents() -> None:
    package = files("hetsched")
    assert package.joinpath("py.typed").is_file()
    names = {entry.name for entry in package.joinpath("workloads", "documents").iterdir()}
    assert {"googlenet.json", "inception_v3.json"} <= names


def test_every_dependency_has_a_pin() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {line.split("==")[0].lower() for line in lines if line and not line.startswith("#")}
    required = [*PROJECT["dependencies"], *(name for extra in PROJECT["optional-dependencies"].values() for name in extra)]
    assert {re.split(r"[<>=\[]", name)[0].lower() for name in required} - {"hetsched"} <= pinned


def test_the_module_runs_as_the_console_script_does() -> None:
    assert PROJECT["scripts"]["hetsched"] == "hetsched.cli.app:main"
    shown = subprocess.run([sys.executable, "-m", "hetsched", "--version"], capture_output=True, text=True, timeout=60)
    assert shown.stdout == f"hetsched {hetsched.__version__}\n"


def test_what_can_be_written_can_be_written_first(tmp_path: Path) -> None:
    """Writing works in a process that has not read anything yet."""
    code = """
import sys, hetsched as hs
problem = hs.Problem(hs.TaskGraph(["a"]), hs.Cluster(["cpu"]), durations=[[1.0]])
hs.simulate(problem, hs.Decision.whole(problem, [0], [0])).write(sys.argv[1])
"""
    path = tmp_path / "schedule.json"
    subprocess.run([sys.executable, "-c", code, str(path)], check=True, timeout=120)
    schedule = hetsched.read(path)
    assert isinstance(schedule, hetsched.Schedule)
    assert schedule.makespan == 1.0


def test_the_citation_has_the_version_and_the_licence_of_the_package() -> None:
    lines = (ROOT / "CITATION.cff").read_text(encoding="utf-8").splitlines()
    assert f"version: {hetsched.__version__}" in lines
    assert f"license: {PROJECT['license']}" in lines
    assert (ROOT / "LICENSE").read_text(encoding="utf-8").startswith(f"{PROJECT['license']} License")


def test_the_source_distribution_carries_what_it_lists() -> None:
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    for path in tool["hatch"]["build"]["targets"]["sdist"]["include"]:
        assert (ROOT / path.lstrip("/")).exists(), path


def pip(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


@pytest.mark.slow
def test_the_wheel_has_every_file_of_the_package_and_works_without_the_repository(tmp_path: Path) -> None:
    done = pip("wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), ".")
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name == f"hetsched-{hetsched.__version__}-py3-none-any.whl"
    paths = [path.relative_to(ROOT) for path in (ROOT / "hetsched").rglob("*") if path.is_file()]
    ours = {path.as_posix() for path in paths if "__pycache__" not in path.parts}
    with zipfile.ZipFile(wheel) as file:
        assert {name for name in file.namelist() if name.startswith("hetsched/")} == ours
        file.extractall(tmp_path / "site")
    code = "import hetsched as hs; print(hs.__file__, hs.workloads.networks.load('inception_v3').n_tasks)"
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    shown = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path / "site", env=environment, capture_output=True, text=True, check=True, timeout=300
    )
    where, count = shown.stdout.split()
    assert Path(where).is_relative_to(tmp_path / "site")
    assert int(count) == hetsched.workloads.networks.load("inception_v3").n_tasks


@pytest.mark.slow
def test_the_command_that_messages_name_installs_an_extra_of_a_checkout() -> None:
    """The requirement is that of the installed distribution; no index is asked for one of that name."""
    done = pip("install", "--dry-run", "--no-index", "hetsched[formats]")
    assert done.returncode == 0, done.stderr


def test_a_release_is_in_the_changelog() -> None:
    assert f"## [{hetsched.__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["tests.yml", "publish.yml"])
def test_workflows_run_what_the_makefile_has(name: str) -> None:
    text = (ROOT / ".github" / "workflows" / name).read_text(encoding="utf-8")
    declared = yaml.safe_load(text)
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    steps = [step for job in declared["jobs"].values() for step in job["steps"]]
    assert {match for step in steps for match in re.findall(r"\bmake (\w+)", step.get("run", ""))} <= targets
    versions = {line.rpartition(":: ")[2] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)}
    matrices = [set(job["strategy"]["matrix"]["python"]) for job in declared["jobs"].values() if "strategy" in job]
    assert all(matrix == versions for matrix in matrices)
