"""Completion in each shell, through the entry point of the application."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from typer.testing import CliRunner

import hetsched as hs
from hetsched.cli.app import ORDER, app
from hetsched.problem.links import Communication
from hetsched.problem.problem import Batching, Memory
from hetsched.workloads import clusters, networks


def offered(line: str, shell: str = "bash") -> list[str]:
    """Return the completions of the last word of a command line."""
    words = line.split(" ")
    zsh = {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    bash = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    env = {"_HETSCHED_COMPLETE": f"complete_{shell}", **(bash if shell == "bash" else zsh)}
    done = CliRunner().invoke(app, [], env=env, prog_name="hetsched")
    assert (done.exit_code, done.stderr) == (0, "")
    return done.stdout.split("\n") if shell != "bash" else done.stdout.split()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("hetsched ", ORDER),
        ("hetsched so", ["solve"]),
        ("hetsched devices a10", ["a10", "a100", "a100-80gb"]),
        ("hetsched generate ", ["rwnn", "gpt3", "network", "cluster"]),
        ("hetsched solve p.json --rep", ["--report"]),
        ("hetsched generate network ", networks.names()),
        ("hetsched demo --network goo", ["googlenet"]),
        ("hetsched generate cluster ", clusters.names()),
        ("hetsched generate rwnn --cluster moirai", ["moirai_inter", "moirai_intra"]),
        ("hetsched capture a:b --cluster div", ["diviml", "diviml_nodes"]),
        ("hetsched generate rwnn --kind ", ["er", "ws", "ba"]),
        ("hetsched generate rwnn --communication ", get_args(Communication)),
        ("hetsched generate rwnn --batching ", get_args(Batching)),
        ("hetsched capture a:b --memory ", get_args(Memory)),
        ("hetsched generate rwnn --dtype bf", ["bfloat16"]),
        (
            "hetsched schema ",
            [
                "graph",
                "cluster",
                "problem",
                "schedule",
                "solution",
                "stages",
                "timeline",
                "profile",
                "model",
                "machine",
                "plan",
                "serving",
                "rates",
                "certificate",
                "registry",
            ],
        ),
        ("hetsched convert a.stg --format d", ["dot", "dagbench", "dnn-partitioning"]),
        ("hetsched convert a.stg --to ", ["stg", "fjsp", "gxl", "dagbench", "hetsched"]),
        ("hetsched machine --link pcie5", ["pcie5-x8", "pcie5-x16"]),
        ("hetsched solve p.json --method hef", ["heft"]),
        ("hetsched solve p.json --method heft,pef", ["heft,peft"]),
        ("hetsched solve p.json --method heft,hef", []),
        ("hetsched solve p.json --solver ", ["scip", "highs", "cpsat"]),
        ("hetsched solve p.json --solver hi", ["highs"]),
        ("hetsched solve p.json --th", ["--threads"]),
        ("hetsched compare p.json --table summary,g", ["summary,gaps"]),
        ("hetsched compare p.json --methods heft,pef", ["heft,peft"]),
        # no completions: the shell completes file names
        ("hetsched solve ", []),
        ("hetsched verify problem.json ", []),
        ("hetsched solve p.json --report ", []),
        ("hetsched generate rwnn --cluster mine.js", []),
    ],
)
def test_bash_is_offered_what_fits(line: str, expected: list[str]) -> None:
    assert sorted(offered(line)) == sorted(expected)


def test_every_method_is_offered() -> None:
    assert set(offered("hetsched solve p.json --method ")) == set(hs.methods())
    assert set(offered("hetsched solve p.json --method heft,")) == {f"heft,{name}" for name in hs.methods() if name != "heft"}


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_the_summaries_too(shell: str) -> None:
    (shown,) = [line for line in offered("hetsched solve p.json --method heft,suff", shell) if line]
    assert "heft,sufferage" in shown
    assert hs.methods()["sufferage"].summary in shown


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_calls_back(shell: str) -> None:
    shown = CliRunner().invoke(app, [], env={"_HETSCHED_COMPLETE": f"source_{shell}"}, prog_name="hetsched")
    assert shown.exit_code == 0
    assert f"_HETSCHED_COMPLETE=complete_{shell}" in shown.stdout


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None or not Path("/proc/self").exists(), reason="no bash to install into, or no way to see it")
def test_bash_completes_once_it_is_installed(folder: Path) -> None:
    command = folder / "hetsched"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m hetsched "$@"\n')
    command.chmod(0o755)
    script = (
        f"'{command}' --install-completion && source ~/.bashrc && COMP_WORDS=(hetsched generate net) COMP_CWORD=2 && "
        f"_hetsched_completion '{command}' && echo \"offered ${{COMPREPLY[*]}}\" && complete -p hetsched"
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, env={**os.environ, "HOME": str(folder)})
    assert done.returncode == 0, done.stderr
    assert "offered network\n" in done.stdout
    assert "complete -o default -F _hetsched_completion hetsched" in done.stdout


@pytest.mark.slow
def test_completion_and_help_load_nothing_heavy() -> None:
    code = "import sys\nfrom hetsched.cli.app import main\ntry: main()\nexcept SystemExit: print(*sys.modules)"
    heavy = {"numba", "torch", "matplotlib", "plotly", "pandas", "scipy", "pyscipopt", "highspy", "ortools"}
    for line in ("hetsched solve p.json --method he", "hetsched solve p.json --solver ", "hetsched schema ", "hetsched so"):
        env = {**os.environ, "_HETSCHED_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=env)
        assert "hetsched.cli.app" in done.stdout, done.stderr
        assert not {name.split(".")[0] for name in done.stdout.split()} & heavy
