"""`hetsched machine`: what it finds, what is stated, and what it says of other devices; nvidia-smi is a script on the path."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import hetsched as hs
from hetsched.cli import hardware
from tests.costs.test_rates import CONFIG, TEST

TWO = "0, NVIDIA GeForce RTX 4090, 24564, 23000\n1, NVIDIA GeForce RTX 3060, 12288, 12200\n"
EPYC = "AMD EPYC 9654 96-Core Processor"


@pytest.fixture
def system(tmp_path, monkeypatch):
    """Return a function that makes nvidia-smi print a text and end with a code, and /proc name a CPU."""

    def make(gpus: str | None, processor: str = EPYC, code: int = 0) -> None:
        tools, proc = tmp_path / "bin", tmp_path / "proc"
        for folder in (tools, proc):
            folder.mkdir(exist_ok=True)
        (proc / "meminfo").write_text("MemTotal:       65536000 kB\nMemAvailable:   60000000 kB\n")
        (proc / "cpuinfo").write_text(f"processor\t: 0\nmodel name\t: {processor}\n")
        monkeypatch.setattr(hardware, "PROC", proc)
        monkeypatch.setenv("PATH", f"{tools}{os.pathsep}/usr/bin{os.pathsep}/bin")
        if gpus is not None:
            (tools / "nvidia-smi").write_text(f"#!/bin/sh\ncat <<'END'\n{gpus}END\nexit {code}\n")
            (tools / "nvidia-smi").chmod(0o755)

    monkeypatch.setattr(hardware.shutil, "which", lambda name: str(path) if (path := tmp_path / "bin" / name).exists() else None)
    return make


def stated(run, *words):
    return run("machine", "--no-detect", *words)


def test_what_is_found_is_written_with_the_figures_of_the_catalogue(run, system):
    system(TWO)
    done = run("machine", "-o", "here.json")
    assert (done.exit_code, done.stderr) == (0, "")
    made = hs.read("here.json")
    assert [(one.name, one.kind) for one in made.cluster.devices] == [("gpu0", "rtx4090"), ("gpu1", "rtx3060"), ("cpu", "epyc9654")]
    assert made.cluster.memory_bytes.tolist() == [24564 * 2**20, 12288 * 2**20, 65536000 * 1024]
    assert made.cluster.bandwidth[0, 1] == hs.costs.interconnects.link("pcie4-x16").bandwidth
    assert "times     modelled; run llama-bench on a device alone" in done.stdout
    assert "(assumed; state it with --link)" in done.stdout
    assert "note      1.64 GB of gpu0 are in use now; --reserve gpu0=1.6GB leaves them free" in done.stdout
    assert "gpu1 are in use" not in done.stdout


def test_json_has_the_devices_the_link_and_the_sources(run, system):
    system(TWO)
    facts = json.loads(run("machine", "--reserve", "gpu0=2GiB", "--link", "25GB/s:5us", "--json").stdout)
    big = facts["devices"][0]
    assert (big["kind"], big["memory_bytes"] - big["usable_bytes"], big["efficiency"]) == ("rtx4090", 2**31, None)
    assert big["source"] == "nvidia-smi; NVIDIA Ada GPU architecture white paper (2023), GeForce RTX 4090"
    assert facts["link"] == {"bandwidth": 25e9, "latency": pytest.approx(5e-6), "source": "stated"}
    assert (facts["times"], facts["notes"], facts["written"]) == ("modelled", [], [])


def test_a_gpu_that_is_not_in_the_catalogue_has_to_be_stated(run, system):
    system("0, NVIDIA TITAN RTX, 24576, 24000\n1, NVIDIA GeForce RTX 3060, 8192, 8000\n")
    done = run("machine")
    assert done.exit_code == 2
    assert "gpu0 is 'NVIDIA TITAN RTX' with 24.0 GiB, gpu1 is 'NVIDIA GeForce RTX 3060' with 8.0 GiB, which is not in" in done.stderr
    assert "state a kind of hetsched devices, or its figures: --device gpu0=NAME:24.0GiB:BANDWIDTH:PEAK" in done.stderr
    done = run("machine", "--device", "gpu0=titanrtx:24GB:672GB/s:65.2TF", "--device", "gpu1=rtx3060", "-o", "here.json")
    assert done.exit_code == 0
    first, second, _ = hs.read("here.json").cluster.devices
    assert (first.kind, first.memory_bytes, first.memory_bandwidth, first.peak_flops) == ("titanrtx", 24e9, 672e9, {"float16": 65.2e12})
    assert (second.kind, second.memory_bytes) == ("rtx3060", 8192 * 2**20)


def test_a_cpu_that_is_not_in_the_catalogue_is_left_out_beside_a_gpu(run, system):
    system(TWO, processor="Some CPU")
    done = run("machine", "-o", "here.json")
    assert hs.read("here.json").cluster.names == ("gpu0", "gpu1")
    assert "note      left out: cpu is 'Some CPU' with 62.5 GiB, which is not in the catalogue" in done.stdout
    system("", processor="Some CPU")
    assert run("machine").exit_code == 2


def test_an_nvidia_smi_that_fails_is_reported(run, system):
    for text, code, note in (("no driver\n", 9, "nvidia-smi: no driver"), ("0, a\n", 0, "nvidia-smi: '0, a' is not a number, a name")):
        system(text, code=code)
        done = run("machine")
        assert done.exit_code == 0
        assert f"note      {note}" in done.stdout


def test_torch_is_asked_on_request(run, system, monkeypatch):
    system(TWO)
    cuda = SimpleNamespace(device_count=lambda: 1, mem_get_info=lambda k: (190e9, 192e9), get_device_name=lambda k: "AMD Instinct MI300X")
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    facts = json.loads(run("machine", "--torch", "--json").stdout)
    first = facts["devices"][0]
    assert (first["name"], first["kind"], first["source"]) == ("gpu0", "mi300x", "torch; AMD Instinct MI300X data sheet")
    monkeypatch.setitem(sys.modules, "torch", None)
    assert "pip install 'hetsched[torch]'" in run("machine", "--torch").stderr


@pytest.mark.parametrize("words", [["--model", "config.json", "--measured", "gpu0:pp512=2000,tg128=60"], ["--measured", "gpu0:bench.json"]])
def test_measured_rates_become_efficiencies(run, words):
    Path("config.json").write_text(json.dumps({**CONFIG, "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 28}))
    Path("bench.json").write_text(json.dumps([TEST, {**TEST, "n_prompt": 0, "n_gen": 128, "avg_ts": 120.6}]))
    done = stated(run, "--device", "gpu0=rtx4090", "--device", "gpu1=rtx3060", *words, "-o", "here.json")
    assert (done.exit_code, done.stderr) == (0, "")
    made = hs.read("here.json")
    assert list(made.efficiency) == ["gpu0"]
    assert all(0 < share < 1 for share in made.efficiency["gpu0"])
    assert "times     mixed" in done.stdout


def test_rates_documents_are_read_and_faster_devices_than_data_sheets_are_noted(run):
    rows = [
        hs.costs.Rate("a", 512 / 2e5, 512, model_bytes=1e9, parameters=5e8),
        hs.costs.Rate("a", 0.1, 0, 128, model_bytes=1e9, parameters=5e8),
    ]
    hs.costs.Rates(rows).write("rates.json")
    done = stated(run, "--device", "x=t4", "--measured", "x:rates.json")
    assert "note      x is faster than its data sheet" in done.stdout
    assert "no prompt" not in done.stdout
    assert "the rates are of 'a'" in stated(run, "--device", "x=t4", "--measured", "rates.json").stderr


def test_the_list_has_every_kind_and_link(run):
    lines = run("machine", "--list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == [*hs.costs.devices.names(), *hs.costs.interconnects.names()]
    facts = json.loads(run("machine", "--list", "--json").stdout)
    assert facts["devices"]["rtx3060"]["reported"] == ["GeForce RTX 3060"]
    assert facts["links"]["1gbe"]["latency"] == 50e-6


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no device is found or stated; name each: --device gpu0=rtx4090"),
        (["--device", "rtx4090"], "--device is 'rtx4090'; give the name of a device and =, as in --device gpu0=rtx4090"),
        (["--device", "a=tpu"], "device kind 'tpu' is not in the catalogue"),
        (["--device", "a=t4:16GB:1GB/s"], "has 2 figures; give a kind of the catalogue, a kind and its memory, or a word with memory"),
        (["--device", "a=t4:16 apples"], "memory of --device a is '16 apples'; give an amount such as 24GB or 22.5GiB"),
        (["--device", "a=x:16GB:fast:1TF"], "bandwidth of --device a is 'fast'; give an amount such as 1008GB/s"),
        (["--device", "a=t4", "--link", "usb"], "--link is 'usb'; choose from pcie3-x8, "),
        (["--device", "a=t4", "--link", "1GB"], "--link is '1GB'; give an amount such as 1008GB/s"),
        (["--device", "a=t4", "--reserve", "a"], "--reserve is 'a'; give the name of a device and ="),
        (["--device", "a=t4", "--reserve", "b=1GB"], "reserved_bytes names 'b', which is not in the cluster"),
        (["--device", "a=t4", "--measured", "a:pp5=1"], "the rates do not say which model ran; name it with --model"),
        (["--device", "a=t4", "--model", "m"], "the model is that of --measured, which is missing"),
    ],
)
def test_what_is_refused(run, words, message):
    done = stated(run, *words)
    assert done.exit_code == 2
    assert message in done.stderr
