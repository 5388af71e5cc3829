"""Other schedulers, each in its own virtual environment, which is made at first use."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "hetsched" / "peers"
RUNNING = sys.executable


@dataclass
class Saga:
    """One version of anrg-saga on one Python, and its measurements."""

    version: str
    python: Path
    seconds: dict[tuple[str, str], float] = field(default_factory=dict)
    """Least CPU time by (instance, scheduler)."""
    makespans: dict[tuple[str, str], float | None] = field(default_factory=dict)
    """None if the time limit was exceeded."""

    @property
    def title(self) -> str:
        """The version, for the head of a table."""
        return f"SAGA {self.version}"

    def run(self, instance: str, path: Path, limit: float, schedulers: list[str], *, patience: float) -> None:
        """Measure schedulers on an instance, except those known to take longer than `patience` seconds.

        A later measurement counts if it is faster. Nothing runs if building SAGA's graph is known to
        take longer than that.
        """
        if self.seconds.get((instance, "build"), 0.0) > patience:
            return
        names = [name for name in schedulers if self.seconds.get((instance, name), 0.0) <= patience]
        command = [self.python, Path(__file__).with_name("saga_peer.py"), path, limit, *names]
        # Hashes of strings decide SAGA's ties, so they are the same in every run.
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        with subprocess.Popen([str(word) for word in command], env=environment, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                row = json.loads(line)
                key = (instance, row["name"])
                if row["cpu_s"] < self.seconds.get(key, float("inf")):
                    self.seconds[key], self.makespans[key] = row["cpu_s"], row["makespan"]
                spent = f"{row['cpu_s']:.4f} s" if row["makespan"] is not None or row["name"] == "build" else f"> {limit:g} s"
                print(f"  {self.title} {row['name']}: {spent}", flush=True)
        if process.returncode:
            raise SystemExit(f"anrg-saga {self.version} failed on {instance} (exit code {process.returncode}), see above")


def saga(version: str, python: str, folder: Path) -> Saga:
    """Return anrg-saga of a version on a Python, installed below `folder` if missing."""
    try:
        release = subprocess.run(
            [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], check=True, capture_output=True, text=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        raise SystemExit(f"{python!r} is no Python that runs ({error}); name another with --peer-python") from None
    home = folder / f"saga-{version}-python{release}"
    made = home / ".installed"
    if not made.exists():
        print(f"installing anrg-saga {version} into {home}", flush=True)
        try:
            subprocess.run([python, "-m", "venv", "--clear", str(home)], check=True)
            subprocess.run(
                [home / "bin" / "python", "-m", "pip", "install", "-qq", "--disable-pip-version-check", f"anrg-saga=={version}"], check=True
            )
        except subprocess.CalledProcessError as error:
            raise SystemExit(
                f"cannot install anrg-saga {version} for Python {release} ({error}); name another version, or leave it out with --no-saga"
            ) from None
        made.touch()
    return Saga(version, home / "bin" / "python")
